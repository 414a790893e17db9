"""C programs on the emulated chip give the bits of the same C on this machine, at every optimisation level.

Always run: every program at -O1, some at -O0, -O2 and -O3, and some with one lane a workgroup, where the compiler takes
scalar instructions. Slow: every program in all of these.
"""

import hashlib
import itertools
import zlib

import numpy as np
import pytest
from c_kernels import (
    Program,
    every_program,
    instruction_names,
    on_device,
    on_host,
    program_files,
    programs_of,
    raw_inputs,
)

from emu.dispatch import RunOptions

FILES = program_files()
PROGRAMS = every_program()
LARGE = ("huffman", "aes128", "sha256", "parser", "pattern_matcher")  # at -O0
AT_O2 = (
    "width_u64", "single_division_and_root", "double_division_and_root", "halves", "brains", "mandelbrot", "stacks",
)  # fmt: skip
UNIFORM = ("width_u16", "width_u32", "width_u64", "divisions", "bit_tricks", "modular_power", "loops", "switches")
MANY = [program.name for file in ("instructions.c", "integers.c", "floating.c") for program in programs_of(file)]
LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os")
COUNT = 150


def compare(program: Program, level: str, count: int = COUNT, seed: int = 1, **how) -> np.ndarray:
    values = raw_inputs(count, program.takes, seed)
    expected, found = on_host(program, values), on_device(program, level, values, **how)
    wrong = np.argwhere(found != expected)
    if len(wrong):
        item, word = wrong[0]
        inputs = " ".join(f"{v:#x}" for v in values[item])
        raise AssertionError(
            f"{program} {level}: {len(wrong)} words differ; item {item}, word {word}: {found[item, word]:#x}"
            f" instead of {expected[item, word]:#x} for {inputs}"
        )
    return found


def test_every_file_has_programs():
    assert len(FILES) >= 8
    assert len(PROGRAMS) == sum(len(programs_of(file)) for file in FILES) >= 50


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in (*MANY, "hash_table")])
def test_programs_at_O1(name):
    compare(PROGRAMS[name], "-O1")


@pytest.mark.parametrize("name", LARGE)
def test_large_programs_without_optimisation(name):
    compare(PROGRAMS[name], "-O0", count=100)


@pytest.mark.parametrize("name", LARGE)
def test_large_programs_have_thousands_of_instructions_of_every_kind(name):
    names = instruction_names(PROGRAMS[name], "-O0")
    assert sum(names.values()) >= 2000
    assert names["s_swappc_b64"] >= 2
    assert names["s_setpc_b64"] >= 2
    assert sum(count for mnemonic, count in names.items() if mnemonic.startswith("scratch_")) >= 10
    assert sum(count for mnemonic, count in names.items() if mnemonic.startswith("flat_")) >= 100


def test_values_beyond_the_registers_wait_in_scratch():
    names = instruction_names(PROGRAMS["many_values"], "-O1")  # which runs with the others
    assert names["scratch_store_dword"] > 50
    assert names["scratch_load_dword"] > 50


@pytest.mark.parametrize("name", AT_O2)
def test_programs_at_O2(name):
    compare(PROGRAMS[name], "-O2")


@pytest.mark.parametrize("name", UNIFORM)
def test_programs_in_scalar_instructions(name):
    compare(PROGRAMS[name], "-O2", uniform=True)


@pytest.mark.parametrize("name", ["recursion", "function_pointers", "local_arrays", "threaded_code", "single_basics"])
def test_programs_on_the_numpy_engine(name):
    compare(PROGRAMS[name], "-O1", count=20, options=RunOptions(engine="numpy"))


@pytest.mark.parametrize("name", MANY)
def test_arithmetic_over_many_inputs(name):
    compare(PROGRAMS[name], "-O1", count=1 << 17, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize(("level", "name"), list(itertools.product(LEVELS, PROGRAMS)))
def test_every_program_at_every_level(level, name):
    compare(PROGRAMS[name], level, count=400, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_in_scalar_instructions(name):
    compare(PROGRAMS[name], "-O2", uniform=True, seed=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_on_the_numpy_engine(name):
    compare(PROGRAMS[name], "-O1", count=70, seed=5, options=RunOptions(engine="numpy"))


# --- where Python's library knows the answer, it says the same ---


def test_the_digest_is_hashlibs():
    program = PROGRAMS["sha256"]
    values = raw_inputs(COUNT, program.takes)
    found = on_device(program, "-O1", values)
    for row, digest in zip(values, found, strict=True):
        message = row.tobytes()[: row[20] % 80]
        assert digest.astype(">u4").tobytes() == hashlib.sha256(message).digest()


def test_the_checksum_is_zlibs():
    values = raw_inputs(COUNT, 4)
    found = on_device(PROGRAMS["crc32"], "-O1", values)
    assert (found == np.array([zlib.crc32(row.tobytes()) for row in values], np.uint32)[:, None]).all()


def test_programs_that_undo_their_work_find_what_they_began_with():
    assert (on_device(PROGRAMS["aes128"], "-O1", raw_inputs(COUNT, 8))[:, 4] == 16).all()
    assert (on_device(PROGRAMS["huffman"], "-O1", raw_inputs(COUNT, 6))[:, 3] == 80).all()
    assert (on_device(PROGRAMS["compressor"], "-O1", raw_inputs(COUNT, 4))[:, 2] == 96).all()


def test_long_products_are_pythons():
    values = raw_inputs(COUNT, 12)
    found = on_device(PROGRAMS["long_integers"], "-O1", values)
    for row, product in zip(values, found, strict=True):
        a, b = (int.from_bytes(part.tobytes(), "little") for part in (row[:6], row[6:]))
        assert int.from_bytes(product[:12].tobytes(), "little") == a * b
        assert product[12] == a * b % (int(row[0]) | 1)


def test_the_block_cipher_gives_the_example_of_its_standard():
    """FIPS 197, appendix C.1."""
    key, text = bytes(range(16)), bytes(0x11 * k for k in range(16))
    values = np.frombuffer(key + text, np.uint32).reshape(1, 8)
    found = on_device(PROGRAMS["aes128"], "-O1", values)[0]
    assert found[:4].tobytes().hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"
