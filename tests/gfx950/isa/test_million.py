"""Integer and conversion instructions on random raw bits against C compiled for the host.

2^14 lanes always, 2^20 in the slow runs, every value of a single 16-bit operand. The C of every instruction is an
expression of `c_meanings`.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import zlib

import c_meanings as meanings
import numpy as np
import pytest

from emu.engines.numpy_engine import NumpyEngine
from gfx950.isa.registry import Instruction, load, lookup
from gfx950.lanes import MANTISSA_BITS, Float, Lanes, Mask, infinity_bits

TABLE = {**meanings.VECTOR, **{n: ("", t) for n, t in meanings.COMPARES.items()}, **meanings.SCALAR}
TABLE |= meanings.CONVERSIONS
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
LONG = 1 << 20
SHORT = 1 << 14


def operands(definition: Instruction) -> list:
    """The parameters that are lanes; EXEC and VCC are no operands."""
    return [p for p in definition.parameters if isinstance(p.kind, type) and issubclass(p.kind, Lanes)]


def c_range(kind: type) -> tuple[str, str]:
    signed, width = kind.__name__[0] == "I", kind.width
    low = f"-((Wide)1 << {width - 1})" if signed else "0"
    return low, f"((Wide)1 << {width - signed}) - 1"


def c_function(name: str) -> str:
    """A C function over arrays of 64-bit words: operands in, result and mask out."""
    definition, entry = lookup(name), TABLE[name]
    result, mask = entry if isinstance(entry, tuple) else (entry, "")
    lines = []
    for letter, parameter in zip("abc", operands(definition), strict=False):
        kind = parameter.kind.__name__
        lines.append(f"{kind} {letter}; memcpy(&{letter}, {letter.upper()} + i, sizeof {letter});")
    plain = next((r.kind for r in definition.results if r.kind is not Mask), None)
    if result and plain is not None:
        low, high = c_range(plain) if not issubclass(plain, Float) else ("0", "0")
        lines.append(f"#define SAT(x) (clamp ? limit(x, {low}, {high}) : (Wide)(x))")
        lines.append(f"{plain.__name__} D = ({plain.__name__})({result}); R[i] = 0; memcpy(R + i, &D, sizeof D);")
        lines.append("#undef SAT")
    if mask:
        lines.append(f"M[i] = !!({mask});")
    body = "\n".join(lines)
    return f"""
void {name}(const U64 *A, const U64 *B, const U64 *C, U64 *R, U64 *M, long count, int clamp) {{
  for (long i = 0; i < count; i++) {{ int lane = i & 63; (void)lane;
{body}
  }}
}}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("meanings")
    source = meanings.PREAMBLE + "".join(c_function(name) for name in TABLE)
    (folder / "meanings.c").write_text(source)
    flags = ["-shared", "-fPIC", "-fwrapv", "-fno-sanitize=all", "-ffp-contract=off", "-w"]
    command = [sys.executable, "-m", "ziglang", "cc", *flags, str(folder / "meanings.c"), "-o", str(folder / "m.so")]
    subprocess.run(command, check=True, capture_output=True)
    return ctypes.CDLL(str(folder / "m.so"))


def random_bits(kind: type, count: int, seed: int) -> np.ndarray:
    """Raw bits of an operand: half of them all random, a quarter small numbers or floats near 1, a quarter the ends."""
    generator = np.random.default_rng(seed)
    if kind is Mask:
        return generator.integers(0, 2, count, dtype=np.uint64).astype(bool)
    width = kind.width
    bits = generator.integers(0, 1 << 64, count, dtype=np.uint64) >> np.uint64(64 - width)
    small = generator.integers(-70, 70, count).astype(np.uint64)
    if issubclass(kind, Float):
        mantissa = MANTISSA_BITS[width]
        exponents = generator.integers(-36, 36, count) + (1 << width - mantissa - 2)
        kept = np.uint64((1 << width) - 1 - infinity_bits(width))
        small = bits & kept | exponents.astype(np.uint64) << np.uint64(mantissa) & np.uint64(infinity_bits(width))
    ends = np.uint64(1 << width - 1) + generator.integers(-3, 3, count).astype(np.uint64)
    chosen = np.choose(generator.integers(0, 4, count), [small, ends, bits, bits])
    return (chosen & np.uint64((1 << width) - 1)).astype(UNSIGNED[width])


def run_body(definition: Instruction, inputs: list[np.ndarray], clamp: int) -> list[np.ndarray]:
    engine = NumpyEngine()
    lanes = iter(inputs)
    arguments = {}
    for parameter in definition.parameters:
        if parameter.kind is int:
            if parameter.name == "clamp":
                arguments["clamp"] = clamp
        else:
            arguments[parameter.name] = parameter.kind(engine, next(lanes).reshape(-1, 64))
    results = definition.body(**arguments)
    results = results if isinstance(results, tuple) else (results,)
    return [np.broadcast_to(r.raw, (inputs[0].size // 64, 64)).ravel() for r in results]


def run_c(library, name: str, inputs: list[np.ndarray], clamp: int) -> tuple[np.ndarray, np.ndarray]:
    count = inputs[0].size
    wide = [i.astype(np.uint64) for i in inputs] + [np.zeros(count, np.uint64)] * 3
    result, mask = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*wide[:3], result, mask)]
    library[name](*pointers, ctypes.c_long(count), ctypes.c_int(clamp))
    return result, mask


def compare(library, name: str, count: int) -> None:
    definition = lookup(name)
    kinds = [p.kind for p in operands(definition)]
    inputs = [random_bits(kind, count, zlib.crc32(f"{name} {i}".encode())) for i, kind in enumerate(kinds)]
    if [kind.width for kind in kinds] == [16]:
        inputs = [np.arange(1 << 16, dtype=np.uint16)]
    saturates = any(word in str(TABLE[name]) for word in ("SAT(", "clamp"))
    for clamp in (0, 1) if saturates and definition.parameter("clamp") else (0,):
        got = run_body(definition, inputs, clamp)
        result, mask = run_c(library, name, inputs, clamp)
        for value, place in zip(got, definition.results, strict=True):
            want = mask if place.kind is Mask else result
            wrong = np.flatnonzero(value.astype(np.uint64) != want)
            if len(wrong):
                i = wrong[0]
                shown = [hex(int(a[i])) for a in inputs]
                raise AssertionError(f"{name} {shown} {clamp=}: {int(value[i]):#x}, C says {int(want[i]):#x}")


@pytest.mark.parametrize("name", TABLE)
def test_random_bits_against_c(compiled, name):
    compare(compiled, name, SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_a_million_random_bits_against_c(compiled, name):
    compare(compiled, name, LONG)


ELSEWHERE = {  # integer instructions whose meaning is not one of lanes by themselves, or has tests of its own
    "s_movrels_b32", "s_movrels_b64", "s_movreld_b32", "s_movreld_b64", "s_set_gpr_idx_idx", "s_getreg_b32",
    "s_getpc_b64", "s_setpc_b64", "s_swappc_b64", "s_call_b64", "s_movk_i32", "s_cmovk_i32", "s_addk_i32",
    "s_mulk_i32", "s_andn1_wrexec_b64", "s_andn2_wrexec_b64", "s_bfe_i32", "s_bfe_i64",
    "v_permlane16_swap_b32", "v_permlane32_swap_b32", "v_accvgpr_mov_b32", "v_mov_b64", "v_readfirstlane_b32",
    "v_swap_b32", "v_screen_partition_4se_b32", "v_readlane_b32", "v_writelane_b32", "v_bitop3_b32", "v_bitop3_b16",
    "v_mqsad_u32_u8", "v_pk_mov_b32",
}  # fmt: skip


def is_integer(definition: Instruction) -> bool:
    if definition.encoding not in ("VOP1", "VOP2", "VOP3", "VOP3P", "VOPC", "SOP1", "SOP2", "SOPC", "SOPK"):
        return False
    kinds = [p for p in (*definition.parameters, *definition.results) if isinstance(p.kind, type)]
    floats = any(
        issubclass(p.kind, Float) or (p.place or "").startswith(("f16", "f32", "bf16", "mixed")) for p in kinds
    )
    return not definition.flow and not floats and "_cvt_" not in definition.name


def test_every_integer_instruction_is_here_or_named():
    integers = {name for name, definition in load().items() if is_integer(definition)}
    missing = {n for n in integers - set(TABLE) - ELSEWHERE if not n.startswith(("s_cmpk_", "v_mfma", "v_smfmac"))}
    assert missing - {n for n in missing if n.endswith("saveexec_b64")} == set()
    assert len(TABLE) > 300
