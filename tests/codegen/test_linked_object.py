"""The code objects that a device loads, byte by byte against LLVM's documents and against what ROCm's own link makes.

Sections named below are those of LLVM's "User Guide for AMDGPU Backend" (AMDGPUUsage). Nothing here reads a file with
the project's own readers: headers, symbols, notes and descriptors are taken apart by the documented tables.
"""

import itertools
import os
import re
import shlex
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgpack
import pytest
from llvm_tools import ZIG, assembled, run_tool, text_section

from codegen.compile import compile_kernels, compile_text
from codegen.kernel_package import kernel_names, kernel_package
from codegen.kernels.probes.probe import SIZES, probes
from codegen.kernels.probes.run import code_objects
from codegen.language import F32, I32, U32, U64, Pointer, kernel, load, store, thread_id, trace
from codegen.link import link
from codegen.llvm_text import EmitError
from gfx950.isa.text import listing

PACKAGES = kernel_names()
PROBES = ("P9", "P11", "P12", "P13b")  # made by way of clang's assembler, for their inline assembly
ALL_PROBES = [name for name in probes() if name not in PROBES]

# ---- ELF [System V ABI] --------------------------------------------------------------------------

PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_PHDR, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 4, 6, 0x6474E551, 0x6474E552
R, W, X = 4, 2, 1  # p_flags
ALLOC, WRITE, EXECUTE = 2, 1, 4  # sh_flags
STB_GLOBAL, STT_OBJECT, STT_FUNC, STV_DEFAULT, STV_PROTECTED = 1, 1, 2, 0, 3
PAGE = 0x1000


@dataclass(frozen=True)
class Segment:
    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    align: int


@dataclass(frozen=True)
class Section:
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    align: int


@dataclass(frozen=True)
class Symbol:
    name: str
    binding: int
    type: int
    visibility: int
    section: int
    value: int
    size: int


def text_at(table, offset):
    return table[offset : table.index(b"\0", offset)].decode()


class Elf:
    """A 64-bit little-endian ELF file."""

    def __init__(self, data):
        self.data = data
        (
            self.type, self.machine, self.version, self.entry, program_at, section_at, self.flags, _, program_size,
            programs, section_size, sections, names,
        ) = struct.unpack_from("<HHIQQQIHHHHHH", data, 16)  # fmt: skip
        assert (program_size, section_size) == (56, 64)
        self.segments = []
        for i in range(programs):
            kind, flags, offset, address, physical, *sizes = struct.unpack_from("<IIQQQQQQ", data, program_at + 56 * i)
            assert physical == address
            self.segments.append(Segment(kind, flags, offset, address, *sizes))
        rows = [struct.unpack_from("<IIQQQQIIQQ", data, section_at + 64 * i) for i in range(sections)]
        table = data[rows[names][4] :]
        self.sections = [Section(text_at(table, r[0]), r[1], r[2], *r[3:6], r[6], r[8]) for r in rows]

    def section(self, name):
        (found,) = [s for s in self.sections if s.name == name]
        return found

    def content(self, name):
        section = self.section(name)
        return self.data[section.offset : section.offset + section.size]

    def of_type(self, kind):
        return [s for s in self.segments if s.type == kind]

    def symbols(self, name):
        section = self.section(name)
        strings, found = self.content(self.sections[section.link].name), []
        for at in range(section.offset, section.offset + section.size, 24):
            text, info, other, index, value, size = struct.unpack_from("<IBBHQQ", self.data, at)
            found.append(Symbol(text_at(strings, text), info >> 4, info & 15, other & 3, index, value, size))
        return found

    def read(self, address, size):
        """Bytes of the memory image."""
        (one,) = [s for s in self.of_type(PT_LOAD) if s.address <= address < s.address + s.file_size]
        return self.data[one.offset + address - one.address :][:size]

    def notes(self):
        data, at, found = self.content(".note"), 0, []
        while at < len(data):
            name, size, kind = struct.unpack_from("<III", data, at)
            start = at + 12 + -(-name // 4) * 4
            found.append((data[at + 12 : at + 12 + name], kind, data[start : start + size]))
            at = start + -(-size // 4) * 4
        return found

    def metadata(self):
        (note,) = self.notes()
        assert note[:2] == (b"AMDGPU\0", 32)  # section "Code Object V3 and Above Note Records": NT_AMDGPU_METADATA
        return msgpack.unpackb(note[2])


# ---- what is looked at ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """One of the project's code objects. directives: the .amdhsa_ lines of its assembly, by kernel."""

    elf: Elf
    llvm_ir: str
    code_object: bytes
    object: bytes
    directives: dict


def built(compiled):
    directives = {}
    for name, lines in re.findall(r"\.amdhsa_kernel (\S+)\n(.*?)\.end_amdhsa_kernel", compiled.assembly, re.DOTALL):
        directives[name] = {key: int(value) for key, value in re.findall(r"\.amdhsa_(\w+) (\d+)\n", lines)}
        assert len(directives[name]) == len(lines.strip().splitlines()), "every directive is a number"
    assert set(directives) == set(compiled.resources)
    elf = Elf(compiled.code_object)
    assert text_section(assembled(compiled.assembly)) == elf.content(".text"), "the assembly is of another code"
    return Built(elf, compiled.llvm_ir, compiled.code_object, compiled.object, directives)


CACHE = {}


def of(name):
    """The code objects of a package or a probe."""
    if name not in CACHE:
        if name in PACKAGES:
            CACHE[name] = [built(kernel_package(name).compiled())]
        else:
            CACHE[name] = [built(one) for one in code_objects(list(probes()[name].steps(SIZES["quick"])))]
    return CACHE[name]


everywhere = pytest.mark.parametrize(
    "name", [*PACKAGES, *PROBES, *(pytest.param(n, marks=pytest.mark.slow) for n in ALL_PROBES)]
)


# ---- header, segments, sections, symbols ---------------------------------------------------------


@everywhere
def test_the_header(name):
    """Sections "Header" and "AMDGPU ELF Header e_flags for Code Object V4 and V5"."""
    for one in of(name):
        elf = one.elf
        assert elf.data[:9] == b"\x7fELF" + bytes([2, 1, 1, 64, 3])  # 64 bit, little-endian, AMDGPU_HSA, HSA_V5
        assert elf.data[9:16] == bytes(7)
        assert (elf.type, elf.machine, elf.version, elf.entry) == (3, 224, 1, 0)  # ET_DYN, EM_AMDGPU
        assert elf.flags & 0xFF == 0x4F  # EF_AMDGPU_MACH_AMDGCN_GFX950
        assert elf.flags & 0x300 == 0x100  # EF_AMDGPU_FEATURE_XNACK_ANY_V4
        assert elf.flags & 0xC00 == 0x400  # EF_AMDGPU_FEATURE_SRAMECC_ANY_V4
        assert elf.flags >> 12 == 0


@everywhere
def test_the_segments(name):
    for one in of(name):
        elf = one.elf
        kinds = [s.type for s in elf.segments]
        assert kinds == [PT_PHDR, PT_LOAD, PT_LOAD, PT_LOAD, PT_DYNAMIC, PT_GNU_RELRO, PT_GNU_STACK, PT_NOTE]
        loads = elf.of_type(PT_LOAD)
        assert [s.flags for s in loads] == [R, R | X, R | W]
        assert all(s.align == PAGE and s.offset % PAGE == s.address % PAGE for s in loads)
        assert (loads[0].offset, loads[0].address) == (0, 0), "the headers are loaded"
        pages = [(s.address // PAGE, (s.address + s.memory_size - 1) // PAGE) for s in loads]
        assert all(before[1] < after[0] for before, after in itertools.pairwise(pages)), "no page is shared"
        assert elf.of_type(PT_DYNAMIC)[0].flags == R | W
        assert elf.of_type(PT_GNU_STACK)[0].flags == R | W, "the stack is not executable"
        relro = elf.of_type(PT_GNU_RELRO)[0]
        assert (relro.flags, relro.address) == (R, loads[2].address)
        assert (relro.address + relro.memory_size) % PAGE == 0
        note, placed = elf.section(".note"), elf.of_type(PT_NOTE)[0]
        assert (placed.offset, placed.address, placed.file_size) == (note.offset, note.address, note.size)
        assert (placed.flags, placed.align) == (R, 4)


@everywhere
def test_the_sections(name):
    """Section "Sections": .note at 4 bytes; the rest as a dynamic loader wants them."""
    for one in of(name):
        elf = one.elf
        wanted = {".note": 7, ".dynsym": 11, ".gnu.hash": 0x6FFFFFF6, ".hash": 5, ".dynstr": 3, ".rodata": 1}
        for section, kind in wanted.items():
            assert (elf.section(section).type, elf.section(section).flags) == (kind, ALLOC), section
        text, dynamic = elf.section(".text"), elf.section(".dynamic")
        assert (text.type, text.flags, text.align) == (1, ALLOC | EXECUTE, 256)
        assert (dynamic.type, dynamic.flags) == (6, ALLOC | WRITE)
        assert (elf.section(".rodata").align, elf.section(".note").align) == (64, 4)
        assert not [s.name for s in elf.sections if s.type in (4, 9)], "no relocations: the loader has none to apply"
        assert elf.section(".symtab").flags == 0
        allocated = [s for s in elf.sections if s.flags & ALLOC]
        assert all(s.address % s.align == 0 for s in allocated)
        rodata = elf.section(".rodata")
        inside = {s.type: s for s in elf.of_type(PT_LOAD)[:1]}
        assert rodata.address + rodata.size <= inside[PT_LOAD].memory_size, "descriptors are read-only"


@everywhere
def test_the_dynamic_table(name):
    tags = {4: ".hash", 5: ".dynstr", 6: ".dynsym", 0x6FFFFEF5: ".gnu.hash"}
    for one in of(name):
        elf = one.elf
        pairs = list(struct.iter_unpack("<QQ", elf.content(".dynamic")))
        assert pairs[-1] == (0, 0)
        table = dict(pairs[:-1])
        for tag, section in tags.items():
            assert table.pop(tag) == elf.section(section).address
        assert table == {10: elf.section(".dynstr").size, 11: 24}, "DT_STRSZ, DT_SYMENT, and no relocations"


@everywhere
def test_the_dynamic_symbols(name):
    """Section "Symbols": NAME is the entry in .text, NAME.kd the descriptor in .rodata."""
    for one in of(name):
        elf = one.elf
        first, *symbols = elf.symbols(".dynsym")
        assert first == Symbol("", 0, 0, 0, 0, 0, 0)
        by_name = {s.name: s for s in symbols}
        assert set(by_name) == {n + end for n in one.directives for end in ("", ".kd")}
        text, rodata = (elf.sections.index(elf.section(n)) for n in (".text", ".rodata"))
        for kernel_name in one.directives:
            entry, descriptor = by_name[kernel_name], by_name[f"{kernel_name}.kd"]
            assert (entry.binding, entry.type, entry.section) == (STB_GLOBAL, STT_FUNC, text)
            # LLVM protects the code of a kernel of default visibility, whose descriptor then keeps the default.
            assert (entry.visibility, descriptor.visibility) == (STV_PROTECTED, STV_DEFAULT)
            assert entry.value % 256 == 0 < entry.size
            assert (descriptor.binding, descriptor.type, descriptor.section) == (STB_GLOBAL, STT_OBJECT, rodata)
            assert (descriptor.size, descriptor.value % 64) == (64, 0)


def sysv_hash(name):
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
    return value


def gnu_hash(name):
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def found_by_sysv(elf, name):
    words = [w for (w,) in struct.iter_unpack("<I", elf.content(".hash"))]
    buckets, chains = words[2 : 2 + words[0]], words[2 + words[0] :]
    index, symbols = buckets[sysv_hash(name) % words[0]], elf.symbols(".dynsym")
    assert len(chains) == words[1] == len(symbols)
    while index and symbols[index].name != name:
        index = chains[index]
    return index


def found_by_gnu(elf, name):
    data, hashed = elf.content(".gnu.hash"), gnu_hash(name)
    count, first, blooms, shift = struct.unpack_from("<IIII", data)
    (bloom,) = struct.unpack_from("<Q", data, 16 + 8 * (hashed // 64 % blooms))
    if not (bloom >> hashed % 64 & 1 and bloom >> (hashed >> shift) % 64 & 1):
        return 0
    (index,) = struct.unpack_from("<I", data, 16 + 8 * blooms + 4 * (hashed % count))
    chain, symbols = 16 + 8 * blooms + 4 * count, elf.symbols(".dynsym")
    while index:
        (word,) = struct.unpack_from("<I", data, chain + 4 * (index - first))
        if word | 1 == hashed | 1 and symbols[index].name == name:
            return index
        index = 0 if word & 1 else index + 1
    return 0


@everywhere
def test_both_hash_tables_find_every_symbol_and_no_other(name):
    for one in of(name):
        for index, symbol in enumerate(one.elf.symbols(".dynsym")[1:], 1):
            assert found_by_sysv(one.elf, symbol.name) == found_by_gnu(one.elf, symbol.name) == index
        for absent in ("k", "nothing.kd", f"{symbol.name}x"):
            assert found_by_sysv(one.elf, absent) == found_by_gnu(one.elf, absent) == 0


# ---- the kernel descriptor -----------------------------------------------------------------------

ZERO = 0  # "Reserved, must be 0", or filled in by the command processor, which wants 0
# Tables "Code Object V3 Kernel Descriptor", "compute_pgm_rsrc1", "compute_pgm_rsrc2" and "compute_pgm_rsrc3 for GFX90A,
# GFX940" [section "Kernel Descriptor"]: from bit 0 on, how many bits and what is in them; a text names a directive.
DESCRIPTOR = [
    (32, "group_segment_fixed_size"), (32, "private_segment_fixed_size"), (32, "kernarg_size"), (32, ZERO),
    (64, "entry"), (160, ZERO),
    # COMPUTE_PGM_RSRC3
    (6, "granulated_accum_offset"), (10, ZERO), (1, "tg_split"), (15, ZERO),
    # COMPUTE_PGM_RSRC1
    (6, "granulated_workitem_vgpr_count"), (4, "granulated_wavefront_sgpr_count"), (2, ZERO),
    (2, "float_round_mode_32"), (2, "float_round_mode_16_64"), (2, "float_denorm_mode_32"),
    (2, "float_denorm_mode_16_64"), (1, ZERO), (1, "dx10_clamp"), (1, ZERO), (1, "ieee_mode"), (2, ZERO),
    (1, "fp16_overflow"), (5, ZERO),
    # COMPUTE_PGM_RSRC2
    (1, "enable_private_segment"), (5, "user_sgpr_count"), (1, ZERO), (1, "system_sgpr_workgroup_id_x"),
    (1, "system_sgpr_workgroup_id_y"), (1, "system_sgpr_workgroup_id_z"), (1, "system_sgpr_workgroup_info"),
    (2, "system_vgpr_workitem_id"), (2, ZERO), (9, ZERO), (1, "exception_fp_ieee_invalid_op"),
    (1, "exception_fp_denorm_src"), (1, "exception_fp_ieee_div_zero"), (1, "exception_fp_ieee_overflow"),
    (1, "exception_fp_ieee_underflow"), (1, "exception_fp_ieee_inexact"), (1, "exception_int_div_zero"), (1, ZERO),
    # KERNEL_CODE_PROPERTIES: no private segment buffer and no flat scratch init, whose scratch is architected
    (1, ZERO), (1, "user_sgpr_dispatch_ptr"), (1, "user_sgpr_queue_ptr"), (1, "user_sgpr_kernarg_segment_ptr"),
    (1, "user_sgpr_dispatch_id"), (1, ZERO), (1, "user_sgpr_private_segment_size"), (3, ZERO), (1, ZERO),
    (1, "uses_dynamic_stack"), (4, ZERO), (7, "user_sgpr_kernarg_preload_length"),
    (9, "user_sgpr_kernarg_preload_offset"), (32, ZERO),
]  # fmt: skip
# VCC, FLAT_SCRATCH and XNACK_MASK at the top: all six count where flat scratch is architected, used or not.
EXTRA_SGPRS = 6
# The table has 2 * max(0, ceil(sgprs_used / 16) - 1) for GFX9. LLVM counts in eights, so the low bit may be set;
# half of it, rounded down, is the table's number of sixteens.


def granules(count, size):
    return max(0, -(-count // size) - 1)


def described(directives, entry):
    """The 64 bytes that a kernel's directives ask for."""
    values = directives | {
        "entry": entry % (1 << 64),
        "granulated_accum_offset": directives["accum_offset"] // 4 - 1,
        "granulated_workitem_vgpr_count": granules(directives["next_free_vgpr"], 8),
        "granulated_wavefront_sgpr_count": granules(directives["next_free_sgpr"] + EXTRA_SGPRS, 8),
    }
    word, at = 0, 0
    for bits, what in DESCRIPTOR:
        value = what if what == ZERO else values[what]
        assert 0 <= value < 1 << bits, what
        word |= value << at
        at += bits
    return word.to_bytes(64, "little")


def test_the_table_has_every_bit_and_every_directive_once():
    assert sum(bits for bits, _ in DESCRIPTOR) == 512
    named = [what for _, what in DESCRIPTOR if what != ZERO and not what.startswith(("granulated", "entry"))]
    others = {"next_free_vgpr", "next_free_sgpr", "accum_offset", "reserve_vcc", "reserve_xnack_mask"}
    assert sorted(named) == sorted(set(named))
    for directives in of(PACKAGES[0])[0].directives.values():
        assert set(directives) == set(named) | others


@everywhere
def test_every_bit_of_every_descriptor(name):
    for one in of(name):
        by_name = {s.name: s for s in one.elf.symbols(".dynsym")}
        for kernel_name, directives in one.directives.items():
            descriptor, entry = by_name[f"{kernel_name}.kd"].value, by_name[kernel_name].value
            assert one.elf.read(descriptor, 64) == described(directives, entry - descriptor), kernel_name


def registers(text, letter):
    """One more than the highest register of a kind that a listing names."""
    singles = [int(n) for n in re.findall(rf"(?<![\w.]){letter}(\d+)\b", text)]
    ranges = [int(n) for n in re.findall(rf"(?<![\w.]){letter}\[\d+:(\d+)\]", text)]
    return max([*singles, *ranges], default=-1) + 1


@everywhere
def test_the_register_counts_are_those_of_the_code(name):
    """Table "compute_pgm_rsrc1", GFX90A, GFX940: align(arch_vgprs, 4) + acc_vgprs, in granules of 8."""
    for one in of(name):
        by_name = {s.name: s for s in one.elf.symbols(".dynsym")}
        rows = {row[".name"]: row for row in one.elf.metadata()["amdhsa.kernels"]}
        for kernel_name, directives in one.directives.items():
            entry = by_name[kernel_name]
            code = one.elf.read(entry.value, entry.size)
            lines = "\n".join(line for _, _, line in listing(code, entry.value))
            vector, accumulators, scalar = (registers(lines, letter) for letter in "vas")
            offset, total, row = directives["accum_offset"], directives["next_free_vgpr"], rows[kernel_name]
            used, agprs = row[".vgpr_count"] - row[".agpr_count"], row[".agpr_count"]
            assert vector <= used <= max(1, vector if not agprs else -(-vector // 4) * 4), kernel_name
            assert offset == max(4, -(-used // 4) * 4) <= 256, kernel_name
            assert accumulators <= agprs <= max(0, total - offset), kernel_name
            assert scalar <= row[".sgpr_count"] - EXTRA_SGPRS <= directives["next_free_sgpr"] <= 102, kernel_name
            assert row[".vgpr_count"] <= total <= 512, kernel_name


# ---- metadata ------------------------------------------------------------------------------------

# Tables "AMDHSA Code Object V3 Kernel Metadata Map" and "... Kernel Argument Metadata Map": what is required.
KERNEL_KEYS = {
    ".name": str, ".symbol": str, ".kernarg_segment_size": int, ".kernarg_segment_align": int,
    ".group_segment_fixed_size": int, ".private_segment_fixed_size": int, ".wavefront_size": int, ".sgpr_count": int,
    ".vgpr_count": int, ".agpr_count": int, ".max_flat_workgroup_size": int,
}  # fmt: skip
ARGUMENT_KEYS = {".offset": int, ".size": int, ".value_kind": str}
TYPE_NAMES = {"void*": 8, "int": 4, "uint": 4, "long": 8, "ulong": 8, "float": 4}  # OpenCL C's, and their bytes
# What those tables and their V5 changes have beside them, as far as LLVM gives it here.
MORE_KERNEL_KEYS = {
    ".args", ".reqd_workgroup_size", ".sgpr_spill_count", ".vgpr_spill_count", ".uniform_work_group_size",
    ".uses_dynamic_stack",
}  # fmt: skip


@everywhere
def test_the_metadata(name):
    """Tables "AMDHSA Code Object V4 Metadata Map Changes" and "... V5 ...": version [1, 2], and the target."""
    for one in of(name):
        metadata = one.elf.metadata()
        assert set(metadata) == {"amdhsa.version", "amdhsa.target", "amdhsa.kernels"}
        assert metadata["amdhsa.version"] == [1, 2]
        assert metadata["amdhsa.target"] == "amdgcn-amd-amdhsa--gfx950"
        assert [k[".name"] for k in metadata["amdhsa.kernels"]] == list(one.directives)


def limited(one, row):
    """Whether fewer waves than eight a SIMD can be at work at once: the source or the LDS says so."""
    kernel_name, lds = row[".name"], row[".group_segment_fixed_size"]
    if lds and 160 * 1024 // lds * -(-row[".max_flat_workgroup_size"] // 64) < 4 * 8:
        return True
    (number,) = re.findall(rf"define amdgpu_kernel void @{kernel_name}\(.*\) #(\d+)", one.llvm_ir)
    return "amdgpu-waves-per-eu" in re.search(rf"^attributes #{number} = .*", one.llvm_ir, re.MULTILINE)[0]


@everywhere
def test_the_metadata_of_every_kernel(name):
    for one in of(name):
        for row in one.elf.metadata()["amdhsa.kernels"]:
            assert {key: type(row[key]) for key in KERNEL_KEYS} == KERNEL_KEYS
            assert set(row) <= set(KERNEL_KEYS) | MORE_KERNEL_KEYS, "unknown to the tables"
            directives = one.directives[row[".name"]]
            assert row[".symbol"] == f"{row['.name']}.kd"
            for key in ("group_segment_fixed_size", "private_segment_fixed_size"):
                assert row[f".{key}"] == directives[key]
            assert row[".kernarg_segment_size"] == directives["kernarg_size"]
            assert row[".wavefront_size"] == 64
            for kind, extra in (("s", EXTRA_SGPRS), ("v", 0)):
                count, allocated = row[f".{kind}gpr_count"], directives[f"next_free_{kind}gpr"] + extra
                # LLVM takes more than the kernel uses where that keeps away waves that there cannot or must not be.
                assert count == allocated or (count < allocated and limited(one, row))
            block = row[".reqd_workgroup_size"]
            assert row[".max_flat_workgroup_size"] == block[0] * block[1] * block[2] <= 1024
            assert row[".uniform_work_group_size"] == 1
            assert row[".uses_dynamic_stack"] == bool(directives["uses_dynamic_stack"])


@everywhere
def test_the_arguments_of_every_kernel(name):
    for one in of(name):
        for row in one.elf.metadata()["amdhsa.kernels"]:
            end = 0
            for argument in row.get(".args", ()):
                assert {key: type(argument[key]) for key in ARGUMENT_KEYS} == ARGUMENT_KEYS
                pointer = argument[".value_kind"] == "global_buffer"
                assert pointer or argument[".value_kind"] == "by_value", "no hidden argument is asked for"
                assert argument.get(".address_space") == ("global" if pointer else None)
                assert argument[".size"] == TYPE_NAMES[argument[".type_name"]]
                assert pointer == (argument[".type_name"] == "void*")
                assert argument[".size"] in ((8,) if pointer else (1, 2, 4, 8))
                assert argument[".offset"] >= end
                assert argument[".offset"] % argument[".size"] == 0
                assert argument[".offset"] - end < argument[".size"], "no more padding than the alignment needs"
                end = argument[".offset"] + argument[".size"]
            assert row[".kernarg_segment_size"] == end
            align = row[".kernarg_segment_align"]
            assert align >= max((a[".size"] for a in row.get(".args", ())), default=1)
            assert align & (align - 1) == 0


# ---- what others link ----------------------------------------------------------------------------


def drivers_line(*options):
    """The command line of the linker that clang's driver would start for a HIP device or an OpenCL-like program."""
    done = subprocess.run([*ZIG, "clang", *options, "-nogpulib", "-###"], capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stderr.splitlines() if re.match(r'\s*"[^"]*lld"', line)]
    return shlex.split(line)[1:]


def linked_by(arguments, data, folder):
    """What ld.lld makes of an object with the driver's arguments, the input's and output's names replaced."""
    source, target = folder / "k.o", folder / "other.hsaco"
    source.write_bytes(data)
    words = iter(arguments)
    words = [w for w in words if w != "-flavor" or not next(words)]  # which of lld's programs: ld.lld is it
    words[words.index("-o") + 1] = str(target)
    (place,) = [i for i, w in enumerate(words) if w.endswith(".o") and i and words[i - 1] != "-o"]
    words[place] = str(source)
    run_tool("ld.lld", *words)
    return target.read_bytes()


@pytest.mark.parametrize("name", [*PACKAGES, "P12"])
def test_the_link_is_byte_for_byte_what_clang_s_drivers_ask_ld_lld_for(name, tmp_path):
    """hipcc is this driver with `-x hip`; LLVM's own for amdgcn has another line."""
    (tmp_path / "k.hip").write_text("void f() {}")
    (tmp_path / "k.o").write_bytes(b"")
    hip = drivers_line(
        "-x", "hip", "--offload-arch=gfx950", "--offload-device-only", "-nogpuinc", f"{tmp_path}/k.hip", "-o", "x.hsaco"
    )
    assert "--whole-archive" in hip
    plain = drivers_line("-target", "amdgcn-amd-amdhsa", "-mcpu=gfx950", f"{tmp_path}/k.o", "-o", "x.hsaco")
    for one in of(name):
        for line in (hip, plain):
            assert linked_by(line, one.object, tmp_path) == one.code_object


def without_comment(data):
    """A file with the linker's name in .comment blanked, which lies outside all segments."""
    section = Elf(data).section(".comment")
    return data[: section.offset] + bytes(section.size) + data[section.offset + section.size :]


def other_linkers():
    """ld.lld of other LLVMs, where there are some: LLVM 18's, of ROCm 6.1's age, gave the same but for its name."""
    roots = [Path(r) for r in (os.environ.get("ROCM_PATH"), "/opt/rocm") if r]
    places = [*(r / "llvm" / "bin" / "ld.lld" for r in roots), Path(shutil.which("ld.lld") or "/nowhere")]
    return [place for place in places if os.access(place, os.X_OK)]


@pytest.mark.skipif(not other_linkers(), reason="no ld.lld beside that of ziglang")
def test_other_linkers_make_the_same_but_for_their_name(tmp_path):
    (tmp_path / "k.o").write_bytes(of(PACKAGES[0])[0].object)
    for place in other_linkers():
        subprocess.run([place, "-shared", "--no-undefined", "k.o", "-o", "k.hsaco"], cwd=tmp_path, check=True)
        assert without_comment((tmp_path / "k.hsaco").read_bytes()) == without_comment(of(PACKAGES[0])[0].code_object)


def test_a_protected_kernel_of_hip_differs_in_its_descriptor_s_visibility_alone():
    """Clang's HIP marks kernels protected; then LLVM protects the descriptor too."""
    compiled = kernel_package(PACKAGES[0]).compiled()
    hip = compile_text(compiled.llvm_ir.replace("define amdgpu_kernel", "define protected amdgpu_kernel"),
                       list(compiled.resources))  # fmt: skip
    theirs, ours = Elf(hip.code_object), of(PACKAGES[0])[0].elf
    first, second = theirs.symbols(".dynsym")[1:3]
    # As `readelf -s` shows what hipcc made for gfx906, in public repositories:
    #   1: 0000000000001000   148 FUNC    GLOBAL PROTECTED    7 _Z15matrixTransposePfS_i
    #   2: 0000000000000540    64 OBJECT  GLOBAL PROTECTED    6 _Z15matrixTransposePfS_i.kd
    assert (first.type, first.binding, first.visibility, first.section) == (STT_FUNC, STB_GLOBAL, STV_PROTECTED, 7)
    assert (second.type, second.binding, second.visibility, second.section) == (
        STT_OBJECT,
        STB_GLOBAL,
        STV_PROTECTED,
        6,
    )
    assert (second.name, second.size) == (f"{first.name}.kd", 64)
    for mine, other in zip(ours.symbols(".dynsym")[1:], theirs.symbols(".dynsym")[1:], strict=True):
        assert other.visibility == STV_PROTECTED
        assert mine.visibility == (STV_DEFAULT if mine.name.endswith(".kd") else STV_PROTECTED)
        assert (mine.name, mine.value, mine.size) == (other.name, other.value, other.size)
    for section in (".text", ".rodata", ".note", ".dynamic", ".dynstr"):
        assert ours.content(section) == theirs.content(section), section


# ---- versions ------------------------------------------------------------------------------------


@kernel(block=64)
def halves(x: Pointer, n: I32) -> None:
    at = x + thread_id().to(U64) * 4
    store(at, (load(at).bits(F32) * 0.5).bits(U32))


def test_version_6_has_another_abi_version_and_the_same_code():
    """Table "AMDGPU ELF Header Enumeration Values": HSA_V6 is 4; V6 metadata adds nothing that gfx950 has."""
    five, six = (compile_kernels([trace(halves)], version=version) for version in (5, 6))
    assert compile_kernels([trace(halves)]).object == five.object, "V5 is the default"
    old, new = Elf(five.code_object), Elf(six.code_object)
    assert (old.data[8], new.data[8]) == (3, 4)
    assert old.flags == new.flags == 0x54F, "no generic version"
    assert old.content(".text") == new.content(".text")
    assert old.content(".rodata") == new.content(".rodata")
    assert new.metadata() == old.metadata()
    assert new.metadata()["amdhsa.version"] == [1, 2]


def test_there_is_no_version_4():
    with pytest.raises(EmitError, match="there is no code object version 4; expected one of 5, 6"):
        compile_kernels([trace(halves)], version=4)


def test_the_object_itself_is_linked_and_nothing_else():
    one = of(PACKAGES[0])[0]
    assert link(one.object) == one.code_object
