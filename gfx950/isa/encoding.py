"""Bit fields of the gfx950 instruction formats, and the decoder. [CDNA4 ISA 13]

A format is a table of fields; decoding reads them, encoding writes them. Fields of one instruction are numbered from
bit 0 of its first dword.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gfx950.isa import operand_codes
from gfx950.isa.legality import objection, too_many_scalars, unanswered
from gfx950.isa.other_chips import why_no_format, why_undefined
from gfx950.isa.registry import INSTRUCTIONS, OPCODES, Instruction, load


@dataclass(frozen=True)
class Encoding:
    """A format: how many bytes, the fixed prefix (value at [low, 32)), and fields by name as (low bit, bits)."""

    name: str
    nbytes: int
    prefix: int
    prefix_low: int
    fields: dict[str, tuple[int, int]]

    def matches(self, word: int) -> bool:
        """Whether the first dword carries this format's prefix."""
        return word >> self.prefix_low == self.prefix

    def unpack(self, bits: int) -> dict[str, int]:
        """The fields of an instruction's bits."""
        return {name: bits >> low & (1 << count) - 1 for name, (low, count) in self.fields.items()}

    def pack(self, values: dict[str, int]) -> int:
        """The bits of an instruction with these fields. Raises ValueError for an unknown name and a value too large."""
        bits = self.prefix << self.prefix_low
        for name, value in values.items():
            if name not in self.fields:
                raise ValueError(f"{self.name} has no field {name!r}; it has {', '.join(self.fields)}")
            low, count = self.fields[name]
            if value < 0 or value >> count:
                raise ValueError(f"{self.name} field {name} has {count} bits: {value} does not fit")
            bits |= value << low
        return bits


# fmt: off
_VOP3_SOURCES = {"src0": (32, 9), "src1": (41, 9), "src2": (50, 9)}
_MEMORY_BITS = {"sc0": (16, 1), "nt": (17, 1), "op": (18, 7), "sc1": (25, 1)}
_FLAT_FIELDS = {
    "offset": (0, 13), "sve": (13, 1), "seg": (14, 2), **_MEMORY_BITS, "addr": (32, 8), "data": (40, 8),
    "saddr": (48, 7), "acc": (55, 1), "vdst": (56, 8),
}

# Longer prefixes first: the decoder takes the first that matches.
ENCODINGS: dict[str, Encoding] = {
    e.name: e
    for e in (
        Encoding("SOPP", 4, 0x17F, 23, {"simm16": (0, 16), "op": (16, 7)}),
        Encoding("SOPC", 4, 0x17E, 23, {"ssrc0": (0, 8), "ssrc1": (8, 8), "op": (16, 7)}),
        Encoding("SOP1", 4, 0x17D, 23, {"ssrc0": (0, 8), "op": (8, 8), "sdst": (16, 7)}),
        Encoding("SOPK", 4, 0xB, 28, {"simm16": (0, 16), "sdst": (16, 7), "op": (23, 5)}),
        Encoding("SOP2", 4, 0x2, 30, {"ssrc0": (0, 8), "ssrc1": (8, 8), "sdst": (16, 7), "op": (23, 7)}),
        Encoding("VOP1", 4, 0x3F, 25, {"src0": (0, 9), "op": (9, 8), "vdst": (17, 8)}),
        Encoding("VOPC", 4, 0x3E, 25, {"src0": (0, 9), "src1": (9, 8), "op": (17, 8)}),
        Encoding("VOP3P", 8, 0x1A7, 23, {
            "vdst": (0, 8), "neg_hi": (8, 3), "op_sel": (11, 3), "op_sel_hi2": (14, 1), "clamp": (15, 1),
            "op": (16, 7), **_VOP3_SOURCES, "op_sel_hi": (59, 2), "neg": (61, 3),
        }),
        Encoding("VOP3", 8, 0x34, 26, {
            "vdst": (0, 8), "abs": (8, 3), "op_sel": (11, 4), "clamp": (15, 1), "op": (16, 10), **_VOP3_SOURCES,
            "omod": (59, 2), "neg": (61, 3),
        }),
        Encoding("SMEM", 8, 0x30, 26, {
            "sbase": (0, 6), "sdata": (6, 7), "soe": (14, 1), "nv": (15, 1), "glc": (16, 1), "imm": (17, 1),
            "op": (18, 8), "offset": (32, 21), "soffset": (57, 7),
        }),
        Encoding("DS", 8, 0x36, 26, {
            "offset0": (0, 8), "offset1": (8, 8), "gds": (16, 1), "op": (17, 8), "acc": (25, 1), "addr": (32, 8),
            "data0": (40, 8), "data1": (48, 8), "vdst": (56, 8),
        }),
        Encoding("FLAT", 8, 0x37, 26, _FLAT_FIELDS),
        Encoding("MUBUF", 8, 0x38, 26, {
            "offset": (0, 12), "offen": (12, 1), "idxen": (13, 1), "sc0": (14, 1), "sc1": (15, 1), "lds": (16, 1),
            "nt": (17, 1), "op": (18, 7), "vaddr": (32, 8), "vdata": (40, 8), "srsrc": (48, 5), "acc": (55, 1),
            "soffset": (56, 8),
        }),
        Encoding("MTBUF", 8, 0x3A, 26, {
            "offset": (0, 12), "offen": (12, 1), "idxen": (13, 1), "sc0": (14, 1), "op": (15, 4), "dfmt": (19, 4),
            "nfmt": (23, 3), "vaddr": (32, 8), "vdata": (40, 8), "srsrc": (48, 5), "sc1": (53, 1), "nt": (54, 1),
            "acc": (55, 1), "soffset": (56, 8),
        }),
        Encoding("VOP2", 4, 0x0, 31, {"src0": (0, 9), "src1": (9, 8), "vdst": (17, 8), "op": (25, 6)}),
    )
}
# The same bits under other names: carry-out forms of VOP3, and the matrix form of VOP3P.
VOP3B = Encoding("VOP3B", 8, 0x34, 26, {
    "vdst": (0, 8), "sdst": (8, 7), "clamp": (15, 1), "op": (16, 10), **_VOP3_SOURCES, "omod": (59, 2),
    "neg": (61, 3),
})
MAI = Encoding("MAI", 8, 0x1A7, 23, {
    "vdst": (0, 8), "cbsz": (8, 3), "abid": (11, 4), "acc_cd": (15, 1), "op": (16, 7), **_VOP3_SOURCES,
    "acc": (59, 2), "blgp": (61, 3),
})
# V_MFMA_LD_SCALE_B32 before a scaled MFMA. [13.3.6, and the prose of 7.2.1; the table of 7.2.1 prints another] LLVM
# sets the third OP_SEL_HI bit of one that it writes alone.
LOAD_SCALE = 0x2C  # its opcode
SCALE_PREFIX = 0x1A7 << 23 | LOAD_SCALE << 16
SCALE_PREFIX_MASK = 0xFFFF87FF
DPP = Encoding("DPP", 4, 0, 32, {
    "src0": (0, 8), "ctrl": (8, 9), "bound_ctrl": (19, 1), "src0_neg": (20, 1), "src0_abs": (21, 1),
    "src1_neg": (22, 1), "src1_abs": (23, 1), "bank_mask": (24, 4), "row_mask": (28, 4),
})
SDWA = Encoding("SDWA", 4, 0, 32, {
    "src0": (0, 8), "dst_sel": (8, 3), "dst_u": (11, 2), "clamp": (13, 1), "omod": (14, 2), "src0_sel": (16, 3),
    "src0_sext": (19, 1), "src0_neg": (20, 1), "src0_abs": (21, 1), "s0": (23, 1), "src1_sel": (24, 3),
    "src1_sext": (27, 1), "src1_neg": (28, 1), "src1_abs": (29, 1), "s1": (31, 1),
})
SDWAB = Encoding("SDWAB", 4, 0, 32, {
    **{k: v for k, v in SDWA.fields.items() if k not in ("dst_sel", "dst_u", "clamp", "omod")}, "sdst": (8, 7),
    "sd": (15, 1),
})
# fmt: on

# Opcode of a 32-bit form's 64-bit twin. [12.7.1, 12.8.1, 12.9.1, as LLVM's assembler has them; table 85 does not]
VOP3_BASES = {"VOPC": 0x000, "VOP2": 0x100, "VOP1": 0x140}
NO_LITERAL = {"s_setpc_b64", "s_swappc_b64", "s_rfe_b64", "s_rfe_restore_b64"}  # [12.3, 12.1]
ALWAYS_LITERAL = {("VOP2", 23), ("VOP2", 24), ("VOP2", 36), ("VOP2", 37), ("SOPK", 20)}


class DecodeError(Exception):
    """Bytes that are no known gfx950 instruction. Message: pc, the bytes, the fields, the nearest known name."""

    def __init__(self, message: str, pc: int, word: int) -> None:
        super().__init__(message, pc, word)
        self.pc = pc
        self.word = word

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass
class Decoded:
    """One instruction at an address: its definition, the encoding it stands in, its fields, and what follows it.

    nbytes: whole length. form: the encoding actually used (VOP3 for a VOP1 definition in its 64-bit form). dpp / sdwa:
    that dword's fields. scale: the fields of the prefix of a scaled MFMA. refusal: why it is known and never run.
    """

    instruction: Instruction
    form: str
    fields: dict[str, int]
    pc: int
    nbytes: int
    literal: int | None = None
    dpp: dict[str, int] | None = None
    sdwa: dict[str, int] | None = None
    scale: dict[str, int] | None = None
    raw: bytes = field(default=b"", repr=False)
    refusal: str = ""


def find_encoding(word: int) -> Encoding | None:
    """The format a first dword belongs to."""
    return next((e for e in ENCODINGS.values() if e.matches(word)), None)


def decode(code: bytes | memoryview, pc: int, base: int = 0) -> Decoded:
    """Decodes the instruction at address `pc`; `code` starts at address `base`.

    Raises DecodeError when the bytes end early or are no instruction that is defined.
    """
    load()
    at = pc - base
    word = _dword(code, at, pc)
    if word & SCALE_PREFIX_MASK == SCALE_PREFIX:
        scaled = _decode_scaled(code, pc, base)
        if scaled is not None:
            return scaled
    encoding = find_encoding(word)
    if encoding is None:
        why = why_no_format(word) or "it belongs to no gfx950 instruction format"
        raise DecodeError(f"pc 0x{pc:x}: 0x{word:08x}: {why}", pc, word)
    bits = word if encoding.nbytes == 4 else word | _dword(code, at + 4, pc) << 32
    fields = encoding.unpack(bits)
    instruction = _find(encoding.name, fields, pc, bits)
    return _finish(code, pc, base, encoding, instruction, bits)


def encoding_of(instruction: Instruction, form: str) -> Encoding:
    """The fields of a definition's form: VOP3B where a vector result stands beside a mask, MAI for matrices."""
    if form == "VOP3" and uses_vop3b(instruction):
        return VOP3B
    return MAI if instruction.encoding in ("MAI", "MAI_SCALE") else ENCODINGS[form]


def blank(instruction: Instruction, form: str, extra: str = "") -> Decoded:
    """An instruction with its opcode and zeros for everything else. extra: "", dpp or sdwa, the dword that follows."""
    encoding = encoding_of(instruction, form)
    fields = dict.fromkeys(encoding.fields, 0)
    fields["op"] = instruction.opcode + (VOP3_BASES.get(instruction.encoding, 0) if form == "VOP3" else 0)
    decoded = Decoded(instruction, form, fields, 0, encoding.nbytes)
    if extra:
        fields["src0"] = operand_codes.DPP if extra == "dpp" else operand_codes.SDWA
        extra_fields = DPP if extra == "dpp" else SDWAB if form == "VOPC" else SDWA
        setattr(decoded, extra, dict.fromkeys(extra_fields.fields, 0))
    if instruction.encoding == "MAI_SCALE":
        decoded.scale = dict.fromkeys(ENCODINGS["VOP3P"].fields, 0) | {"op": LOAD_SCALE}
    return decoded


def encode(decoded: Decoded) -> bytes:
    """The bytes of an instruction's fields, the inverse of `decode`; `nbytes` and `raw` are not read.

    Raises ValueError for a value that its field cannot hold.
    """
    encoding = encoding_of(decoded.instruction, decoded.form)
    code = encoding.pack(decoded.fields).to_bytes(encoding.nbytes, "little")
    if decoded.scale is not None:
        code = ENCODINGS["VOP3P"].pack(decoded.scale).to_bytes(8, "little") + code
    extra = decoded.literal
    if decoded.dpp is not None:
        extra = DPP.pack(decoded.dpp)
    elif decoded.sdwa is not None:
        extra = (SDWAB if decoded.form == "VOPC" else SDWA).pack(decoded.sdwa)
    return code if extra is None else code + extra.to_bytes(4, "little")


def _finish(
    code: bytes | memoryview, pc: int, base: int, encoding: Encoding, instruction: Instruction, bits: int
) -> Decoded:
    form = encoding.name
    encoding = encoding_of(instruction, form)
    decoded = Decoded(instruction, form, encoding.unpack(bits), pc, encoding.nbytes)
    _read_extra_dword(code, pc - base, decoded)
    if why := objection(instruction, form, decoded.fields, decoded.dpp, decoded.sdwa):
        raise DecodeError(f"pc 0x{pc:x}: {why}", pc, bits & 0xFFFFFFFF)
    decoded.raw = bytes(code[pc - base : pc - base + decoded.nbytes])
    crowded = too_many_scalars(instruction, form, decoded.fields, decoded.dpp, decoded.sdwa)
    decoded.refusal = crowded or unanswered(instruction, decoded.fields)
    return decoded


def _read_extra_dword(code: bytes | memoryview, at: int, decoded: Decoded) -> None:
    form, fields = decoded.form, decoded.fields
    scalar = [] if decoded.instruction.name in NO_LITERAL else ["ssrc0", "ssrc1"]
    sources = [fields[k] for k in scalar if decoded.instruction.parameter(k)] if form.startswith("SOP") else []
    sources = sources or [fields.get("src0", 0)]
    if (form, fields["op"]) in ALWAYS_LITERAL or (
        form in ("SOP1", "SOP2", "SOPC", "VOP1", "VOP2", "VOPC") and operand_codes.LITERAL in sources
    ):
        decoded.literal = _dword(code, at + 4, decoded.pc)
        decoded.nbytes = 8
    elif form in ("VOP1", "VOP2", "VOPC") and fields["src0"] in (operand_codes.SDWA, operand_codes.DPP):
        extra = _dword(code, at + 4, decoded.pc)
        decoded.nbytes = 8
        if fields["src0"] == operand_codes.DPP:
            decoded.dpp = DPP.unpack(extra)
        else:
            decoded.sdwa = (SDWAB if form == "VOPC" else SDWA).unpack(extra)


def _decode_scaled(code: bytes | memoryview, pc: int, base: int) -> Decoded | None:
    """Loaded scales and the F8F6F4 instruction that uses them; None where none follows. [rule mfma.load_scale]"""
    at = pc - base
    if at + 16 > len(code):
        return None
    first = _dword(code, at, pc) | _dword(code, at + 4, pc) << 32
    second = _dword(code, at + 8, pc) | _dword(code, at + 12, pc) << 32
    fields = MAI.unpack(second)
    plain = OPCODES.get(("MAI", fields["op"])) if ENCODINGS["VOP3P"].matches(second & 0xFFFFFFFF) else None
    name = plain.name.replace("v_mfma_", "v_mfma_scale_") if plain else ""
    if name not in INSTRUCTIONS or not fields["abid"] & 1:
        return None
    scale = ENCODINGS["VOP3P"].unpack(first)
    if scale["neg"] or scale["src2"]:
        raise DecodeError(
            f"pc 0x{pc:x}: 0x{first:016x} loads MFMA scales with NEG {scale['neg']} and SRC2 {scale['src2']}: what they"
            " mean there is not documented, they must be 0",
            pc,
            first & 0xFFFFFFFF,
        )
    return Decoded(INSTRUCTIONS[name], "MAI", fields, pc, 16, scale=scale, raw=bytes(code[at : at + 16]))


def uses_vop3b(instruction: Instruction) -> bool:
    """Whether the 64-bit form has an SDST in bits 14:8: a vector result beside a mask result."""
    kinds = [r.kind.__name__ for r in instruction.results]
    return instruction.encoding in ("VOP2", "VOP3") and len(kinds) == 2 and kinds[1] == "Mask"


def _find(encoding: str, fields: dict[str, int], pc: int, bits: int) -> Instruction:
    opcode = fields["op"]
    if encoding == "FLAT":
        encoding = ("FLAT", "SCRATCH", "GLOBAL", "reserved")[fields["seg"]]
    elif encoding == "MUBUF" and fields["lds"]:
        encoding = "MUBUF_LDS"  # the bit gives opcodes another meaning: definitions of their own
    found = OPCODES.get((encoding, opcode))
    if found is None and encoding == "VOP3":
        found = _vop3_twin(opcode)
    elif found is None and encoding == "VOP3P":
        found = OPCODES.get(("MAI", opcode))
    if found is None:
        raise DecodeError(_unknown(encoding, opcode, fields, pc, bits), pc, bits & 0xFFFFFFFF)
    return found


def _vop3_twin(opcode: int) -> Instruction | None:
    for encoding, start in sorted(VOP3_BASES.items(), key=lambda item: -item[1]):
        if opcode >= start:
            return OPCODES.get((encoding, opcode - start))
    return None


def _unknown(encoding: str, opcode: int, fields: dict[str, int], pc: int, bits: int) -> str:
    near = sorted(((abs(o - opcode), i.name) for (e, o), i in OPCODES.items() if e == encoding), key=lambda t: t[0])[:2]
    if why := why_undefined(encoding, opcode):
        return f"pc 0x{pc:x}: {why}"
    shown = " ".join(f"{k}={v}" for k, v in fields.items())
    width = 16 if ENCODINGS.get(encoding, ENCODINGS["FLAT"]).nbytes == 8 else 8
    return (
        f"pc 0x{pc:x}: unknown {encoding} opcode {opcode} in 0x{bits:0{width}x} ({shown});"
        f" nearest known: {', '.join(n for _, n in near) or 'none'}"
    )


def _dword(code: bytes | memoryview, at: int, pc: int) -> int:
    if at < 0 or at + 4 > len(code):
        needed = f"needs the dword at +{at}, has {len(code)} bytes"
        raise DecodeError(f"pc 0x{pc:x}: the code ends in the middle of an instruction ({needed})", pc, 0)
    return int.from_bytes(code[at : at + 4], "little")
