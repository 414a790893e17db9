"""Whole code objects that multiply matrices, under every model: each engine gives what `evaluate` gives."""

import itertools
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from kernel_builds import compile_c

from emu.dispatch import Device, RunOptions
from gfx950.arithmetic.mfma import Format, MfmaModel, evaluate, pack_parameters
from gfx950.arithmetic.mfma_shapes import SHAPES
from gfx950.models import find_model, load_switches, make_model, named_models, using

SOURCE = """
typedef __bf16 b8 __attribute__((ext_vector_type(8)));
typedef _Float16 h8 __attribute__((ext_vector_type(8)));
typedef _Float16 h16 __attribute__((ext_vector_type(16)));
typedef float f4 __attribute__((ext_vector_type(4)));
typedef double d4 __attribute__((ext_vector_type(4)));
typedef int i4v __attribute__((ext_vector_type(4)));
typedef int i8v __attribute__((ext_vector_type(8)));
#define MATRIX(NAME, A, B, C, D) \\
  KERNEL NAME(GLOBAL const A *as, GLOBAL const B *bs, GLOBAL const C *cs, GLOBAL const u32 *more, GLOBAL C *out) { \\
    u32 i = 64 * GROUP + ITEM; A a = as[i]; B b = bs[i]; C c = cs[i]; \\
    u32 first = more[2 * i], second = more[2 * i + 1]; out[i] = __builtin_amdgcn_##D; }
MATRIX(bf16, b8, b8, f4, mfma_f32_16x16x32_bf16(a, b, c, 0, 0, 0))
MATRIX(fp8, u64, u64, f4, mfma_f32_16x16x32_fp8_bf8(a, b, c, 0, 0, 0))
MATRIX(scaled, i8v, i8v, f4, mfma_scale_f32_16x16x128_f8f6f4(a, b, c, 0, 4, 1, first, 2, second))
MATRIX(sparse, h8, h16, f4, smfmac_f32_16x16x64_f16(a, b, c, first, 0, 0))
MATRIX(f32, float, float, f4, mfma_f32_16x16x4f32(a, b, c, 0, 0, 0))
MATRIX(f64, double, double, d4, mfma_f64_16x16x4f64(a, b, c, 0, 0, 0))
MATRIX(bytes, i4v, i4v, i4v, mfma_i32_16x16x64_i8(a, b, c, 0, 0, 0))
"""
GROUPS = 3
NEAR = (0x83FFFFFF, 0x3C000000)  # f32 around 2^-4, so that sums round and cancel
NEAR_HALVES = (0x87FF87FF, 0x38003800)


@dataclass(frozen=True)
class Kernel:
    """A kernel of SOURCE: its instruction, native and parameters, and which bits of A and B, and of C, are at random
    (the others are fixed)."""

    mnemonic: str
    native: str
    parameters: int
    inputs: tuple[int, int]
    c: tuple[int, int] = NEAR

    def random(self, seed):
        """Registers, (GROUPS, registers, 64)."""
        random, shape = np.random.default_rng(seed), SHAPES[self.native]
        words = random.integers(0, 2**32, (GROUPS, shape.input_registers, 64), dtype=np.uint32)
        _, b, c, _ = self.places()
        for place, (free, fixed) in ((slice(b.stop), self.inputs), (c, self.c)):
            words[:, place] = words[:, place] & np.uint32(free) | np.uint32(fixed)
        if self.native.endswith("f64"):  # whose low words hold no sign and exponent
            words[:, : c.stop : 2] = random.integers(0, 2**32, words[:, : c.stop : 2].shape)
        if shape.blocks:
            words[:, c.stop :] = words[:, c.stop :] & 0x03030303 | 0x7C7C7C7C
        return words

    def places(self):
        """Where A, B, C and what follows them are among the registers."""
        shape = SHAPES[self.native]
        ends = np.cumsum([0, shape.operand_registers, shape.b_shape.operand_registers, shape.c_registers, 2])
        return [slice(first, end) for first, end in itertools.pairwise(ends)]

    def wanted(self, words, model):
        """What the rule gives."""
        model = MfmaModel.of(find_model(model))
        return np.stack([evaluate(self.native, one, self.parameters, model) for one in words])


SCALED = pack_parameters(Format.fp8, Format.fp4, scaled=True, scale_byte_a=1, scale_byte_b=2)
KERNELS = {
    "bf16": Kernel(
        "v_mfma_f32_16x16x32_bf16", "mfma_16x16x32_f16", pack_parameters(Format.bf16, Format.bf16), NEAR_HALVES
    ),
    "fp8": Kernel(
        "v_mfma_f32_16x16x32_fp8_bf8",
        "mfma_16x16x32_f8",
        pack_parameters(Format.fp8, Format.bf8),
        (0xBFBFBFBF, 0),
    ),
    "scaled": Kernel("v_mfma_scale_f32_16x16x128_f8f6f4", "mfma_f8f6f4_16x16x128", SCALED, (0xBFBFBFBF, 0)),
    "sparse": Kernel(
        "v_smfmac_f32_16x16x64_f16", "smfmac_16x16x64_f16", pack_parameters(Format.f16, Format.f16), NEAR_HALVES
    ),
    "f32": Kernel("v_mfma_f32_16x16x4_f32", "mfma_16x16x4_f32", pack_parameters(0, 0), NEAR),
    "f64": Kernel(
        "v_mfma_f64_16x16x4_f64",
        "mfma_16x16x4_f64",
        pack_parameters(0, 0),
        (0x801FFFFF, 0x3FE00000),
        (0x801FFFFF, 0x3FE00000),
    ),
    "bytes": Kernel(
        "v_mfma_i32_16x16x64_i8", "mfma_16x16x64_i8", pack_parameters(0, 0), (0xFFFFFFFF, 0), (0x3FF, 0x7FFFFC00)
    ),
}


def random_model(seed):
    """Answers of its own to about half of the questions about matrices."""
    random = np.random.default_rng(seed)
    asked = {n: s for n, s in load_switches().items() if n.startswith("mfma.") and random.random() < 0.5}
    return make_model(f"random {seed}", {n: s.answers[int(random.integers(len(s.answers)))] for n, s in asked.items()})


RANDOM = [random_model(20), random_model(45)]
MODELS = [*named_models(), *RANDOM]
OPTIONS = [RunOptions(), RunOptions(threads=2), RunOptions(engine="numpy")]
every_kernel = pytest.mark.parametrize("name", KERNELS)


@pytest.fixture(scope="module")
def module():
    return Device().load(compile_c(SOURCE))


def launched(module, name, words, options=None):
    """D, (GROUPS, registers, 64)."""
    lanes = words.transpose(0, 2, 1)
    a, b, c, more = (np.ascontiguousarray(lanes[..., place]) for place in KERNELS[name].places())
    if more.shape[-1] < 2:  # one index, or nothing
        more = np.concatenate([more, np.zeros((GROUPS, 64, 2 - more.shape[-1]), np.uint32)], axis=-1)
    out = np.zeros_like(c)
    module[name][GROUPS, 64](a, b, c, more, out, options=options)
    return out.transpose(0, 2, 1)


@every_kernel
def test_the_kernels_have_their_instructions(module, name):
    assert KERNELS[name].mnemonic in module[name].evidence().mnemonics


@every_kernel
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: f"{o.engine}-{o.threads}")
def test_each_engine_gives_what_the_rule_gives(module, name, options):
    words = KERNELS[name].random(3)
    for model in MODELS:
        with using(model):
            np.testing.assert_array_equal(launched(module, name, words, options), KERNELS[name].wanted(words, model))


@every_kernel
def test_the_models_differ_on_these_operands(name):
    """So that the tests here can fail."""
    words = KERNELS[name].random(3)
    groups = name not in ("f32", "f64", "bytes")  # of products; chains and integers have no other exact sum
    told = [KERNELS[name].wanted(words, m).tobytes() for m in ("gfx950", *RANDOM, *["fma_chain", "exact"] * groups)]
    assert told[0] not in told[1:]


@every_kernel
def test_one_module_serves_one_model_after_another(module, name):
    """Of launches the options name the model, whatever is in force, and none stays behind."""
    words = KERNELS[name].random(4)
    for model in [*MODELS, *MODELS[::-1]]:
        got = launched(module, name, words, RunOptions(model=model))
        np.testing.assert_array_equal(got, KERNELS[name].wanted(words, model))
        np.testing.assert_array_equal(launched(module, name, words), KERNELS[name].wanted(words, "gfx950"))


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_two_threads_multiply_under_models_of_their_own_at_once(engine):
    module, ready, wrong = Device().load(compile_c(SOURCE)), threading.Barrier(2), []  # a module nobody has run yet

    def work(model):
        options = RunOptions(engine=engine)
        with using(model):
            for seed in range(3):
                for name, kernel in KERNELS.items():
                    words = kernel.random(seed)
                    wanted = kernel.wanted(words, model)
                    ready.wait(timeout=60)
                    if not np.array_equal(launched(module, name, words, options), wanted):
                        wrong.append((name, seed, model))

    threads = [threading.Thread(target=work, args=(model,)) for model in ("gfx950", RANDOM[0])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not ready.broken
