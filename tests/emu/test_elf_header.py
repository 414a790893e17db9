"""Files that are no code object for gfx950."""

import struct

import pytest
from llvm_tools import assembled, kernel_source, linked, object_of

from emu.code_object import load
from emu.elf_header import MACHINES
from emu.errors import CodeObjectError


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the data is empty"),
        (b"hello world", "not an ELF file: it starts with 68 65 6c 6c"),
        (b"__CLANG_OFFLOAD_BUNDLE__" + bytes(100), "an offload bundle.*\n.*\n.*clang-offload-bundler"),
        (b"BC\xc0\xde" + bytes(100), "LLVM bitcode"),
        (b"\x7fELF", "damaged: its header has 64 bytes and the file only 4"),
    ],
)
def test_data_that_is_no_elf_file_is_named(data, message):
    with pytest.raises(CodeObjectError, match=message):
        load(data)


def test_host_objects_are_named():
    with pytest.raises(CodeObjectError, match=r"for X86_64 \(e_machine 62\), not for an AMD GPU.*\n.*\n.*host code"):
        load(object_of("int f;", target="x86_64-linux-gnu"))
    with pytest.raises(CodeObjectError, match=r"for AARCH64 \(e_machine 183\)"):
        load(object_of("int f;", target="aarch64-linux-gnu"))
    with pytest.raises(CodeObjectError, match=r"for MIPS \(e_machine 8\)"):
        load(object_of("int f;", target="mips64-linux-gnu"))


def test_every_machine_number_is_llvms_and_only_runnable_ones_load():
    for flag, cpu in MACHINES.items():
        data = assembled(".text\n", cpu=cpu)
        assert data[48] == flag
        if cpu in ("gfx950", "gfx9-4-generic"):
            assert load(data).target == cpu
        else:
            flags = struct.unpack_from("<I", data, 48)[0]
            with pytest.raises(CodeObjectError, match=rf"is for {cpu} \(e_flags {flags:#x}\)"):
                load(data)
    unknown = bytearray(assembled(kernel_source()))
    unknown[48] = 0xEE
    with pytest.raises(CodeObjectError, match=r"an unknown GPU \(machine number 0xee\)"):
        load(unknown)


def test_old_versions_and_other_systems_are_named():
    data = bytearray(assembled(kernel_source()))
    data[8] = 1
    with pytest.raises(CodeObjectError, match=r"ABI version 1, which is code object V3"):
        load(data)
    with pytest.raises(CodeObjectError, match="OS/ABI 66 and type 1"):
        load(object_of("", "-mcpu=gfx950", target="amdgcn-mesa-mesa3d", language="assembler"))


def test_tables_past_the_end_of_the_file_are_named():
    data = assembled(kernel_source())
    start, _, count = struct.unpack_from("<Q10xHH", data, 40)
    short = rf"{count} section headers of 64 bytes at offset {start:#x} do not fit a file of {len(data) - 1} bytes"
    with pytest.raises(CodeObjectError, match=short):
        load(data[:-1])
    damaged = bytearray(data)
    struct.pack_into("<Q", damaged, start + 64 * 2 + 32, 1 << 40)
    with pytest.raises(
        CodeObjectError, match=rf"section header 2 points at 0x100\.\.0x10000000100 of a file of {len(data)}"
    ):
        load(damaged)
    damaged = bytearray(linked(data))
    struct.pack_into("<Q", damaged, 64 + 56 + 32, 1 << 40)
    with pytest.raises(CodeObjectError, match=r"program header 1 points at 0x0\.\.0x10000000000"):
        load(damaged)
