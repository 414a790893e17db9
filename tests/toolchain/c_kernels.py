"""C programs that run per work-item on the emulated chip and in a loop on this machine: one source, two compilers.

A program is `PROGRAM(name, takes, gives) { ... }`: it reads `takes` words of `in`, writes `gives` words of `out`, and
may ask for its number, `item`. On gfx950 it becomes the kernel `name`, on the host the function of the same name.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from kernel_builds import compile_c, compile_for_host
from llvm_tools import run_tool

from emu.code_object import CodeObject
from emu.dispatch import Device, Module, RunOptions
from emu.elf_image import Symbol
from emu.geometry import Geometry
from gfx950.isa.encoding import Decoded, decode

FOLDER = Path(__file__).parent.parent / "c_programs"
BLOCK = 96  # two waves, the second one half full

PRELUDE = """
#ifdef __AMDGCN__
#define CONSTANT __attribute__((address_space(4)))
#ifdef UNIFORM
#define NUMBER GROUP
#else
#define NUMBER (GROUP * ITEMS + ITEM)
#endif
#define PROGRAM(name, takes, gives) \\
  static void name##_item(GLOBAL const u32 *in, GLOBAL u32 *out, u32 item); \\
  KERNEL name(GLOBAL const u32 *in, GLOBAL u32 *out, u32 count) { \\
    u32 item = NUMBER; \\
    if (item < count) name##_item(in + item * takes, out + item * gives, item); } \\
  static void name##_item(GLOBAL const u32 *in, GLOBAL u32 *out, u32 item)
#else
#define GLOBAL
#define CONSTANT
#define PROGRAM(name, takes, gives) \\
  static void name##_item(const u32 *in, u32 *out, u32 item); \\
  void name(const u32 *in, u32 *out, u32 count) { \\
    for (u32 item = 0; item < count; item++) name##_item(in + item * takes, out + item * gives, item); } \\
  static void name##_item(const u32 *in, u32 *out, u32 item)
/* Called by the compiler for float to __bf16, and not in every runtime; both short floats return in one register. */
_Float16 __truncsfbf2(float x) {
  union { float f; u32 u; } s; union { _Float16 f; u16 u; } b; s.f = x;
  b.u = x != x ? 0x7fc0 : (s.u + 0x7fff + (s.u >> 16 & 1)) >> 16; return b.f; }
#endif
#define NOINLINE __attribute__((noinline))
static inline u64 wide_at(GLOBAL const u32 *in, u32 i) { return (u64)in[i] | (u64)in[i + 1] << 32; }
static inline void wide_to(GLOBAL u32 *out, u32 i, u64 value) { out[i] = (u32)value; out[i + 1] = (u32)(value >> 32); }
"""


@dataclass(frozen=True)
class Program:
    """One PROGRAM of a C file. takes, gives: its words of input and output for each work-item."""

    file: str
    name: str
    takes: int
    gives: int

    def __str__(self) -> str:
        return f"{self.file.removesuffix('.c')}-{self.name}"


def source_of(file: str) -> str:
    """The C of one file of the folder, ready for both compilers."""
    return PRELUDE + (FOLDER / file).read_text()


@functools.cache
def programs_of(file: str) -> tuple[Program, ...]:
    """The programs of one file in order, also those that its macros make."""
    text = run_tool("clang", "-E", "-P", "-x", "c", "-", source=(FOLDER / file).read_text()).decode()
    found = re.findall(r"PROGRAM\(\s*(\w+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)", text)
    return tuple(Program(file, name, int(takes), int(gives)) for name, takes, gives in found)


@functools.cache
def module_of(file: str, level: str, uniform: bool = False) -> Module:
    """The file's code object, loaded on a device of its own."""
    return Device().load(compile_c("#define UNIFORM\n" * uniform + source_of(file), level))


@functools.cache
def program_files() -> list[str]:
    """The C files that hold programs."""
    return sorted(path.name for path in FOLDER.glob("*.c") if "PROGRAM(" in path.read_text())


@functools.cache
def every_program() -> dict[str, Program]:
    """All programs of all files by name."""
    return {program.name: program for file in program_files() for program in programs_of(file)}


def on_device(
    program: Program, level: str, values: np.ndarray, options: RunOptions | None = None, uniform: bool = False
) -> np.ndarray:
    """What the kernel writes, uint32 (items, gives); untouched words keep 0xDEADBEEF. values: uint32 (items, takes).

    uniform: a workgroup of one lane for each item, so that the compiler takes scalar instructions where there are any.
    """
    items = len(values)
    out = np.full((items + 3, program.gives), 0xDEADBEEF, np.uint32)
    grid = Geometry.of_items(items + 3, 1 if uniform else BLOCK)
    module_of(program.file, level, uniform)[program.name].launch(grid, (values, out, np.uint32(items)), options)
    assert (out[items:] == 0xDEADBEEF).all(), "work-items past the count wrote"
    return out[:items]


def on_host(program: Program, values: np.ndarray) -> np.ndarray:
    """What the same C writes on this machine."""
    out = np.full((len(values), program.gives), 0xDEADBEEF, np.uint32)
    function = getattr(compile_for_host(source_of(program.file)), program.name)
    function(*(ctypes.c_void_p(array.ctypes.data) for array in (values, out)), ctypes.c_uint32(len(values)))
    return out


SPECIAL = np.array(
    [
        0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF,
        0xFFFFFFFE, 0x3F800000, 0xBF800000, 0x40490FDB, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x00800000,
        0x007FFFFF, 0x7F7FFFFF, 0x3C003C00, 0x7C00FC00, 0x04000001, 0x00010001, 0x3FF00000, 0x7FF00000, 0xFFF00000,
        0x7FEFFFFF, 0x00100000, 0x000FFFFF, 0x3F803F80, 0x7F7F0080, 0x55555555, 0xAAAAAAAA, 0x4F800000, 0x5F000000,
    ],
    np.uint32,
)  # fmt: skip


def raw_inputs(items: int, words: int, seed: int = 1) -> np.ndarray:
    """uint32 (items, words): random bits, a quarter of them values at the ends of formats, an eighth small numbers."""
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 1 << 32, (items, words), dtype=np.uint32)
    kind = generator.integers(0, 8, (items, words))
    values = np.where(kind < 2, generator.choice(SPECIAL, (items, words)), values)
    return np.where(kind == 2, values & np.uint32(255), values).astype(np.uint32)


def instruction_names(program: Program, level: str) -> Counter[str]:
    """How often each mnemonic stands in the kernel and in the functions that it may call."""
    code = module_of(program.file, level).code
    functions = {s.address: s for s in code.symbols.values() if s.kind == "function"}
    waiting, seen, names = [code.kernels[program.name].entry], set(), Counter()
    while waiting:
        address = waiting.pop()
        if address not in seen:
            seen.add(address)
            listing = _listing(code, functions[address])
            names += Counter(line.instruction.name for line in listing)
            waiting += [target for target in _addresses_taken(listing) if target in functions]
    return names


def _listing(code: CodeObject, function: Symbol) -> list[Decoded]:
    start = function.address - code.base
    text, at, found = code.image[start : start + function.size].tobytes(), function.address, []
    while at < function.address + function.size:
        found.append(decode(text, at, function.address))
        at += found[-1].nbytes
    return found


def _addresses_taken(listing: list[Decoded]) -> list[int]:
    """Where `s_getpc_b64` and the addition of a literal after it point."""
    found = []
    for first, second in itertools.pairwise(listing):
        if first.instruction.name == "s_getpc_b64" and second.instruction.name == "s_add_u32":
            offset = second.literal - (second.literal >> 31 << 32)
            found.append(first.pc + 4 + offset)
    return found
