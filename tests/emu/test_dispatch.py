"""Compiled C kernels on both engines and every schedule: the same bits as the same C on the host, or as numpy."""

import ctypes
import itertools

import numpy as np
import pytest
from kernel_builds import compile_c, compile_for_host

from emu.dispatch import Device, RunOptions
from emu.geometry import Geometry
from gfx950.arithmetic.result_table import write_table
from gfx950.models import make_model

# uint32 f(uint32 x, uint32 i): x the input of work-item i. Both sides compile the very same text.
FUNCTIONS = """
static inline u32 bits(float x) { union { float f; u32 u; } v; v.f = x; return v.u; }
static inline float small(u32 x) { return (float)((int)(x & 0xffff) - 0x7fff) / 64.0f; }
static inline u32 hash(u32 x, u32 i) {
  x += i; x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; return x ^ x >> 16; }
static inline u32 polynomial(u32 x, u32 i) {
  float t = small(x), y = 0.25f; for (int k = 0; k < 6; k++) y = y * t + (float)k * 1.5f; return bits(y); }
static inline u32 divergent(u32 x, u32 i) {
  u32 n = x % 97 + 1, steps = 0;
  while (n != 1) {
    if (n & 1) { n = 3 * n + 1; for (u32 k = 0; k < n % 3; k++) steps += k ^ i; } else n >>= 1;
    steps++; }
  return steps; }
static inline u32 wide(u32 x, u32 i) {
  u64 a = (u64)x * 0x9e3779b97f4a7c15ull + i; i64 b = (i64)(a ^ a << 17) >> 5; a = a / ((x & 0xff) + 3);
  return (u32)(a ^ b ^ (u64)b >> 32) + (u32)((u64)b % 1000003u); }
static inline u32 tricks(u32 x, u32 i) {
  return __builtin_popcount(x) + (x ? __builtin_clz(x) * 64 : 7)
       + (__builtin_bitreverse32(x) ^ __builtin_bswap32(x + i)) + (x ? __builtin_ctz(x) : 3); }
static inline u32 divide(u32 x, u32 i) { return bits(small(x) / (small(x >> 11) + 1000.125f)); }
static inline u32 root(u32 x, u32 i) { return bits(__builtin_sqrtf((float)(x >> 3) * 0.37f)); }
static inline u32 doubles(u32 x, u32 i) {
  union { double f; u64 u; } v; v.f = (double)(int)x * 1.0000001 + (double)i / 3.0; return (u32)(v.u ^ v.u >> 32); }
static inline u32 rounding(u32 x, u32 i) {
  float t = small(x); return (u32)(int)__builtin_floorf(t) * 31 + (u32)(int)__builtin_rintf(t) + (u32)(int)(t * 3.0f); }
"""
NAMES = ("hash", "polynomial", "divergent", "wide", "tricks", "divide", "root", "doubles", "rounding")


def both_sides(name):
    return f"""
#ifdef __AMDGCN__
KERNEL k_{name}(GLOBAL const u32 *in, GLOBAL u32 *out, u32 n) {{
  u32 i = GROUP * ITEMS + ITEM; if (i < n) out[i] = {name}(in[i], i); }}
#else
void k_{name}(const u32 *in, u32 *out, u32 n) {{ for (u32 i = 0; i < n; i++) out[i] = {name}(in[i], i); }}
#endif
"""


SOURCE = FUNCTIONS + "".join(both_sides(name) for name in NAMES)
SCHEDULES = [
    RunOptions(engine=engine, threads=threads, quantum=quantum)
    for engine, threads, quantum in [
        *itertools.product(["host"], [1, 2], [1, 8, 32, 1 << 70]),
        ("numpy", 1, 1),
        ("numpy", 1, 1 << 70),
    ]
]


def inputs(count=200):
    values = np.random.default_rng(3).integers(0, 1 << 32, count, dtype=np.uint32)
    values[:4] = 0, 1, 0xFFFFFFFF, 0x80000000
    return values


def on_host(name, values):
    out = np.zeros_like(values)
    function = getattr(compile_for_host(SOURCE), f"k_{name}")
    function(*(ctypes.c_void_p(a.ctypes.data) for a in (values, out)), len(values))
    return out


def launch(data, name, grid, block, *arguments, options=None):
    return Device().load(data)[name][grid, block](*arguments, options=options)


@pytest.mark.parametrize("level", ["-O1", "-O2", "-O3"])
def test_compiled_functions_give_the_bits_of_the_same_c_on_the_host(level):
    values = inputs()
    module = Device().load(compile_c(SOURCE, level))
    for name in NAMES:
        out = np.full_like(values, 0xDEADBEEF)
        report = module[f"k_{name}"][3, 96](values, out, np.uint32(len(values) - 5))
        expected = on_host(name, values)
        assert np.array_equal(out[:-5], expected[:-5]), name
        assert (out[-5:] == 0xDEADBEEF).all(), f"{name}: the tail was written"
        assert report.workgroups == 3
        assert report.instructions > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_numpy_engine_gives_the_same_bits_and_takes_the_same_instructions(name):
    values = inputs(70)
    module = Device().load(compile_c(SOURCE))
    results = []
    for engine in ("host", "numpy"):
        out = np.zeros_like(values)
        report = module[f"k_{name}"][1, 128](values, out, np.uint32(70), options=RunOptions(engine=engine))
        results.append((out.tobytes(), report.instructions, report.workgroups))
    assert results[0] == results[1]
    assert results[0][0] == on_host(name, values).tobytes()


SHARED_SOURCE = """
SHARED(u32, tile, 1024);
KERNEL reduce(GLOBAL const u32 *in, GLOBAL u32 *out) {
  u32 i = ITEM; tile[i] = in[GROUP * ITEMS + i] * 3u + i; BARRIER();
  for (u32 half = ITEMS / 2; half; half >>= 1) { if (i < half) tile[i] += tile[i + half]; BARRIER(); }
  out[GROUP * ITEMS + i] = tile[0] ^ i; }
SHARED(u8, rows, 2048);
KERNEL bytes(GLOBAL const u8 *in, GLOBAL u8 *out, GLOBAL const i16 *halves, GLOBAL i16 *more) {
  u32 i = ITEM; rows[i * 2 + 1] = in[i]; rows[i * 2] = (u8)(in[i] + i); BARRIER();
  u32 j = (i * 37 + 11) % ITEMS; out[i] = rows[2 * j] ^ rows[2 * j + 1];
  more[i] = (i16)(halves[ITEMS - 1 - i] * 5 - (i8)in[i]); }
KERNEL early(GLOBAL u32 *out) {
  u32 i = ITEM;
  if (i / 64 == 1) { out[i] = 5; return; }
  tile[i] = i * i; BARRIER(); out[i] = tile[(i + 192) % 256]; BARRIER(); tile[i] = 0; }
"""


@pytest.mark.parametrize("options", SCHEDULES, ids=lambda o: f"{o.engine}-{o.threads}-{o.quantum}")
def test_a_reduction_over_barriers_gives_the_same_bits_under_every_schedule(options):
    items, groups = (128, 2) if options.engine == "numpy" else (1024, 3)
    values = np.random.default_rng(5).integers(0, 1 << 32, items * groups, dtype=np.uint32)
    out = np.zeros_like(values)
    launch(compile_c(SHARED_SOURCE), "reduce", groups, items, values, out, options=options)
    lane = np.arange(items, dtype=np.uint32)
    totals = (values.reshape(groups, items) * np.uint32(3) + lane).sum(axis=1, dtype=np.uint32)
    assert np.array_equal(out.reshape(groups, items), totals[:, None] ^ lane)


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_bytes_and_halves_in_lds_and_memory(engine):
    items = 256
    rng = np.random.default_rng(6)
    values, halves = rng.integers(0, 256, items, dtype=np.uint8), rng.integers(-30000, 30000, items, dtype=np.int16)
    out, more = np.zeros_like(values), np.zeros_like(halves)
    options = RunOptions(engine=engine)
    launch(compile_c(SHARED_SOURCE), "bytes", 1, items, values, out, halves, more, options=options)
    i = np.arange(items)
    j = (i * 37 + 11) % items
    assert np.array_equal(out, (values[j] + j).astype(np.uint8) ^ values[j])
    assert np.array_equal(more, (halves[::-1].astype(np.int32) * 5 - values.view(np.int8)).astype(np.int16))


@pytest.mark.parametrize("options", SCHEDULES, ids=lambda o: f"{o.engine}-{o.threads}-{o.quantum}")
def test_waves_that_end_before_a_barrier_do_not_hold_it_up(options):
    out = np.zeros(256, np.uint32)
    launch(compile_c(SHARED_SOURCE, "-O1"), "early", 1, 256, out, options=options)
    i = np.arange(256)
    source = (i + 192) % 256
    expected = np.where(i // 64 == 1, 5, source * source)
    seen = i // 64 != 2  # these read the tile of the wave that left
    assert np.array_equal(out[seen], expected[seen])
    assert (out[~seen] == 0).all()


MATRIX_SOURCE = """
typedef float f4 __attribute__((ext_vector_type(4)));
typedef int i8v __attribute__((ext_vector_type(8)));
KERNEL matrix(GLOBAL const u64 *a, GLOBAL const u64 *b, GLOBAL f4 *out) {
  out[ITEM] = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a[ITEM], b[ITEM], (f4)(0.0f), 0, 0, 0); }
KERNEL scaled(GLOBAL const i8v *a, GLOBAL const i8v *b, GLOBAL const int *s, GLOBAL f4 *out) {
  out[ITEM] = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
      a[ITEM], b[ITEM], (f4)(0.0f), 0, 0, 0, s[ITEM], 0, s[ITEM + 64]); }
KERNEL lanes(GLOBAL const u32 *in, GLOBAL u32 *out) {
  u32 x = in[ITEM];
  u32 pulled = __builtin_amdgcn_ds_bpermute(((ITEM * 5 + 3) & 63) * 4, x);
  u32 shifted = __builtin_amdgcn_update_dpp(7, x, 0x111, 0xf, 0xf, 0);
  __auto_type pair = __builtin_amdgcn_permlane32_swap(x, pulled, 0, 0);
  out[ITEM] = pulled; out[ITEM + 64] = shifted; out[ITEM + 128] = pair[0]; out[ITEM + 192] = pair[1]; }
"""
E4M3_SMALL = np.array([0x00, 0x38, 0x40, 0x30, 0xB8, 0xC0, 0x44, 0x3C], np.uint8)  # 0, 1, 2, .5, -1, -2, 3, 1.5
VALUES = np.array([0, 1, 2, 0.5, -1, -2, 3, 1.5])


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_the_fp8_matrix_intrinsic_multiplies(engine):
    rng = np.random.default_rng(8)
    a, b = rng.integers(0, 8, (16, 32)), rng.integers(0, 8, (16, 32))  # b: its columns
    operands = [
        np.ascontiguousarray(E4M3_SMALL[m].reshape(16, 4, 8).transpose(1, 0, 2)).view(np.uint64) for m in (a, b)
    ]
    out = np.zeros((64, 4), np.float32)
    launch(compile_c(MATRIX_SOURCE), "matrix", 1, 64, *operands, out, options=RunOptions(engine=engine))
    expected = (VALUES[a] @ VALUES[b].T).astype(np.float32)  # exact: few bits
    assert np.array_equal(out.reshape(4, 16, 4).transpose(0, 2, 1).reshape(16, 16), expected)


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_the_scaled_matrix_intrinsic_scales(engine):
    ones = np.full((64, 8), 0x38383838, np.uint32)
    scales = np.concatenate([np.full(64, 128), np.full(64, 126)]).astype(np.int32)  # 2 and 1/2 ...
    scales[:16] = 130  # ... but 8 for A's first block of 32
    out = np.zeros((64, 4), np.float32)
    launch(compile_c(MATRIX_SOURCE), "scaled", 1, 64, ones, ones, scales, out, options=RunOptions(engine=engine))
    assert (out == 32 * 8 / 2 + 96 * 2 / 2).all()


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_data_moves_between_lanes(engine):
    x = np.random.default_rng(9).integers(0, 1 << 32, 64, dtype=np.uint32)
    out = np.zeros((4, 64), np.uint32)
    launch(compile_c(MATRIX_SOURCE), "lanes", 1, 64, x, out, options=RunOptions(engine=engine))
    i = np.arange(64)
    pulled = x[(i * 5 + 3) & 63]
    assert np.array_equal(out[0], pulled)
    assert np.array_equal(out[1], np.where(i % 16 == 0, 7, x[i - 1]))
    assert np.array_equal(out[2], np.concatenate([x[:32], pulled[:32]]))
    assert np.array_equal(out[3], np.concatenate([x[32:], pulled[32:]]))


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_a_partial_workgroup_runs_only_its_lanes(engine):
    values, out = inputs(256), np.zeros(256, np.uint32)
    kernel = Device().load(compile_c(SOURCE))["k_hash"]
    report = kernel.launch(Geometry.of_items(150, 100), (values, out, np.uint32(256)), RunOptions(engine=engine))
    assert report.workgroups == 2
    expected = np.where(np.arange(256) < 150, on_host("hash", values), 0)
    assert np.array_equal(out, expected)


def test_arguments_by_name_and_as_a_finished_block():
    values = inputs(64)
    device = Device()
    kernel = device.load(compile_c(SOURCE))["k_hash"]
    addresses = [device.map(values, "in"), device.map(out := np.zeros(64, np.uint32), "out")]
    block = np.array(addresses, np.uint64).tobytes() + np.array([64, 0], np.uint32).tobytes()
    kernel.launch(Geometry.of_blocks(1, 64), block.ljust(kernel.kernel.kernarg_size, b"\0"))
    assert np.array_equal(out, on_host("hash", values))


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_a_watchpoint_names_the_last_writer(engine):
    values, out = inputs(200), np.zeros(200, np.uint32)
    kernel = Device().load(compile_c(SOURCE))["k_hash"]
    report = kernel[2, 100](values, out, np.uint32(200), options=RunOptions(engine=engine), watch=(out, 4 * 170))
    assert report.watch.workgroup == (1, 0, 0)
    assert report.watch.wave == 1
    assert report.watch.lane == 6
    assert report.watch.instruction.startswith("global_store_dword")


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_a_table_of_results_reaches_code_that_was_translated_before(tmp_path, engine):
    one, nine = (np.array([value], np.float32).view(np.uint32) for value in (1.0, 9.5))
    write_table(tmp_path / "exp", "v_exp_f32", [(int(one[0]), nine)], device="none", capture="none", mode="0")
    captured = make_model("captured", tables={"v_exp_f32": tmp_path / "exp"})
    text = "KERNEL k(GLOBAL float *x) { x[ITEM] = __builtin_amdgcn_exp2f(x[ITEM]); }"
    kernel = Device().load(compile_c(text, "-O2"))["k"][1, 64]
    found = []
    for model in (None, captured, "gfx950"):
        x = np.ones(64, np.float32)
        kernel(x, options=RunOptions(engine=engine, model=model))
        found.append(x[0])
    assert found == [2.0, 9.5, 2.0]
