"""Bytes that are no instruction."""

import pytest

from gfx950.isa.encoding import DecodeError, decode

BAD = [  # bytes, words of the message
    (b"\x00\x00\x00", "the code ends in the middle of an instruction"),
    (bytes.fromhex("0000ffbf"), "unknown SOPP opcode 127 in 0xbfff0000 "),
    (bytes.fromhex("000074d900000000"), r"unknown DS opcode 186 .*nearest known: ds_"),
    (bytes.fromhex("000000f800000000"), "belongs to no gfx950 instruction format"),
]


@pytest.mark.parametrize(("code", "message"), BAD)
def test_what_is_no_instruction_says_so(code, message):
    with pytest.raises(DecodeError, match=f"pc 0x20: .*{message}"):
        decode(code, 0x20, 0x20)
