"""Code objects of every kind run: versions, forms, hidden and preloaded arguments, data with addresses, sections."""

import itertools
import struct

import llvm_tools
import numpy as np
import pytest
from kernel_builds import HEADER
from llvm_tools import assembled, kernel_source, linked

from emu.code_object import load
from emu.dispatch import Device, RunOptions
from emu.errors import LaunchError
from emu.geometry import Geometry
from emu.launch import place, prepare

VERSIONS, FORMS = (4, 5, 6), ("relocatable", "linked")
ENGINES = ("host", "numpy")


def built(source: str, *options: str, version: int = 5, form: str = "linked") -> bytes:
    data = llvm_tools.compiled(HEADER + source, f"-mcode-object-version={version}", *options)
    return linked(data) if form == "linked" else data


def run(data: bytes, name: str, geometry: Geometry, *arguments: object, **how: object) -> Device:
    device = Device()
    device.load(data)[name].launch(geometry, arguments, **how)
    return device


# --- every version and form: constants, data with addresses in it, functions in sections of their own, two kernels ---

SOURCE = """
#define CONSTANT __attribute__((address_space(4)))
#define APART(name) __attribute__((noinline, section(name)))
typedef u32 (*function)(u32);
static const CONSTANT u32 primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
GLOBAL u32 counter = 100;
GLOBAL u32 *GLOBAL pointer = &counter;
GLOBAL u32 *const GLOBAL inside[2] = {&counter, (GLOBAL u32 *)((GLOBAL char *)&pointer + 4)};
GLOBAL u32 zeros[600];
static const char *const words[3] = {"one", "fourteen", "sixty"};
APART(".text.cold") static u32 cold(u32 x) { return x * 3 + 1; }
APART(".text.hot") static u32 hot(u32 x) { return x ^ cold(x + 5); }
APART("functions") u32 elsewhere(u32 x) { return x - primes[x & 7]; }
static const function table[3] = {cold, hot, elsewhere};
KERNEL first(GLOBAL u32 *out) {
  u32 i = GROUP * ITEMS_HERE + ITEM, length = 0;
  for (const char *c = words[i % 3]; *c; c++) length++;
  zeros[i] += i;
  out[i] = primes[i & 7] + *pointer + (inside[0] == pointer ? 1000 : 0) + length * 10000 + zeros[599];
  __atomic_fetch_add(pointer, 0, __ATOMIC_RELAXED);
}
KERNEL second(GLOBAL u32 *out) {
  u32 i = GROUP * ITEMS_HERE + ITEM; out[i] = hot(i) + elsewhere(i) * table[i % 3](i); zeros[i] += 2; }
KERNEL third(GLOBAL u32 *out) { u32 i = GROUP * ITEMS_HERE + ITEM; out[i] = zeros[i]; }
"""


def wrapped(x):
    return x & 0xFFFFFFFF


@pytest.mark.parametrize(("version", "form"), list(itertools.product(VERSIONS, FORMS)))
def test_kernels_of_one_object_share_its_data_and_functions(version, form):
    source = SOURCE.replace("ITEMS_HERE", "96")
    module = Device().load(built(source, "-O1", version=version, form=form))
    assert module.kernels == ("first", "second", "third")
    i, out = np.arange(192), np.zeros(192, np.uint32)
    primes = np.array([2, 3, 5, 7, 11, 13, 17, 19])
    module["first"][2, 96](out)
    assert np.array_equal(out, primes[i & 7] + 1100 + np.array([3, 8, 5])[i % 3] * 10000)
    module["second"][2, 96](out)
    cold = i * 3 + 1
    hot, elsewhere = i ^ ((i + 5) * 3 + 1), i - primes[i & 7]
    chosen = np.where(i % 3 == 0, cold, np.where(i % 3 == 1, hot, elsewhere))
    assert np.array_equal(out, (hot + elsewhere * chosen).astype(np.uint32))
    module["third"][2, 96](out)
    assert np.array_equal(out, i + 2), "what one kernel stores in the object's data the next one finds there"


# --- hidden arguments and the packets that registers point at ---

DUMP = """
typedef const __attribute__((address_space(4))) u32 *block;
#define FIRST (GROUP + __builtin_amdgcn_workgroup_id_y() + __builtin_amdgcn_workgroup_id_z() + ITEM == 0)
extern LDS u32 dynamic[];
KERNEL hidden(GLOBAL u32 *out, u32 words) {
  block p = (block)__builtin_amdgcn_implicitarg_ptr();
  dynamic[ITEM] = ITEM;
  if (FIRST) for (u32 k = 0; k < words; k++) out[k] = p[k]; }
KERNEL packet(GLOBAL u32 *out) {
  block p = (block)__builtin_amdgcn_dispatch_ptr();
  if (FIRST) for (u32 k = 0; k < 16; k++) out[k] = p[k]; }
KERNEL sizes(GLOBAL u32 *out) {
  u32 k = 3 * (__builtin_amdgcn_workgroup_id_z() * 6 + __builtin_amdgcn_workgroup_id_y() * 3 + GROUP);
  out[k] = __builtin_amdgcn_workgroup_size_x() | __builtin_amdgcn_grid_size_x() << 16;
  out[k + 1] = __builtin_amdgcn_workgroup_size_y() | __builtin_amdgcn_grid_size_y() << 16;
  out[k + 2] = __builtin_amdgcn_workgroup_size_z() | __builtin_amdgcn_grid_size_z() << 16; }
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("version", [5, 6])
def test_a_kernel_reads_every_hidden_argument(version, engine):
    out = np.full(64, 0xDEADBEEF, np.uint32)
    module = Device().load(built(DUMP, "-O1", version=version))
    geometry = Geometry.of_items((200, 7, 5), (64, 4, 2))
    hidden = {"hidden_hostcall_buffer": 0x1122334455667788, "hidden_heap_v1": 0x99AABBCCDDEEFF00}
    options = RunOptions(engine=engine)
    module["hidden"].launch(geometry, (out, np.uint32(64)), options, dynamic_lds=4096, hidden=hidden)
    block = out.tobytes()
    assert struct.unpack_from("<IIIHHHHHH", block) == (3, 1, 2, 64, 4, 2, 8, 3, 1)
    assert struct.unpack_from("<QQQH", block, 40) == (0, 0, 0, 3)
    kinds = {a.value_kind: a for a in module["hidden"].kernel.arguments if a.hidden}
    start = module["hidden"].kernel.arguments[1].offset + 4
    start += -start % 8
    assert kinds["hidden_block_count_x"].offset == start
    for kind, value in hidden.items():
        assert struct.unpack_from("<Q", block, kinds[kind].offset - start) == (value,)
    assert struct.unpack_from("<I", block, kinds["hidden_dynamic_lds_size"].offset - start) == (4096,)
    for kind, value in (("hidden_private_base", 2 << 16), ("hidden_shared_base", 1 << 16)):
        if kind in kinds:
            assert struct.unpack_from("<I", block, kinds[kind].offset - start) == (value,)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_kernel_reads_its_dispatch_packet(version, engine):
    out = np.zeros(16, np.uint32)
    geometry = Geometry.of_items((200, 7, 5), (64, 4, 2))
    run(
        built(DUMP, "-O1", version=version), "packet", geometry, out, options=RunOptions(engine=engine), dynamic_lds=512
    )
    header, dimensions, *rest = struct.unpack("<HHHHHHIIIIIQQQQ", out.tobytes())
    assert (header & 0xFF, dimensions) == (2, 3)
    assert rest[:9] == [64, 4, 2, 0, 200, 7, 5, 0, 512]


@pytest.mark.parametrize("version", VERSIONS)
def test_sizes_come_from_the_packet_in_v4_and_from_hidden_arguments_later(version):
    out = np.zeros((3, 2, 3, 3), np.uint32)
    geometry = Geometry.of_items((200, 7, 5), (80, 4, 2))
    run(built(DUMP, "-O2", version=version), "sizes", geometry, out)
    assert (out == np.array([80 | 200 << 16, 4 | 7 << 16, 2 | 5 << 16], np.uint32)).all()


# --- preloaded arguments ---

PRELOADED = """
KERNEL k(GLOBAL u32 *out, u32 a, u16 b, u8 c, u64 d, float e, GLOBAL const u32 *in, u32 f) {
  union { float f; u32 u; } v; v.f = e;
  out[GROUP * 64 + ITEM] = a + b * 3u + c * 5u + (u32)(d >> 13) + v.u + in[ITEM] + f * 7u + GROUP; }
"""
PRELOAD_VALUES = (0x12345678, 0xABCD, 0x5A, 0x123456789ABCDEF0, 1.5)


def preloaded(count: int, *options: str) -> bytes:
    return built(PRELOADED, "-O2", "-mllvm", f"-amdgpu-kernarg-preload-count={count}", *options)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 6, 7, 8, 16])
def test_any_number_of_preloaded_arguments_gives_the_same(count):
    a, b, c, d, e = PRELOAD_VALUES
    source, out = np.arange(64, dtype=np.uint32) * 9, np.zeros((3, 64), np.uint32)
    module = Device().load(preloaded(count))
    lengths = module["k"].kernel.descriptor.kernarg_preload_length
    assert (lengths > 0) == (count > 0)
    module["k"][3, 64](out, np.uint32(a), np.uint16(b), np.uint8(c), np.uint64(d), np.float32(e), source, np.uint32(11))
    fixed = a + b * 3 + c * 5 + (d >> 13) + int(np.float32(e).view(np.uint32)) + 77
    expected = [[wrapped(fixed + int(word) + group) for word in source] for group in range(3)]
    assert out.tolist() == expected


def test_the_prologue_for_old_firmware_loads_what_would_be_preloaded():
    """Started at the kernel's entry, with nothing preloaded, the 256 bytes in front load the same registers."""
    from emu.host_machine import HostMachine

    device = Device()
    code = place(load(preloaded(8)), device.memory)
    source, results = np.arange(64, dtype=np.uint32), []
    inputs = device.map(source)
    for prologue in (False, True):
        out = np.zeros(64, np.uint32)
        arguments = [device.map(out), *PRELOAD_VALUES, inputs, 11]
        launch = prepare(code.kernel(), Geometry.of_blocks(1, 64), arguments, device.memory, preload_prologue=prologue)
        HostMachine(device.memory, code, code.kernel(), 32).run(launch, RunOptions())
        results.append(out.tobytes())
    assert results[0] == results[1]
    assert any(results[0])


# --- objects as other tools write them ---

FOREIGN = """
.amdgpu_metadata
---
amdhsa.version: [1, {minor}]
{target}amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: {size}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {group}
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 16
    .vgpr_count: 8
    .max_flat_workgroup_size: 256
    .args:
{arguments}
...
.end_amdgpu_metadata
"""
ADD = """s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_load_dword s6, s[0:1], 0x8
  s_load_dword s7, s[0:1], 0x10
  v_lshlrev_b32_e32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  s_add_u32 s6, s6, s7
  v_add_u32_e32 v2, s6, v0
  global_store_dword v1, v2, s[4:5]
  s_endpgm"""
POINTER = "      - {.offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}\n"
SEPARATE = (
    POINTER
    + "      - {.offset: 8, .size: 4, .value_kind: by_value}\n      - {.offset: 16, .size: 4, .value_kind: by_value}"
)
BLOB = "      - {.offset: 0, .size: 24, .value_kind: by_value}"


def foreign(arguments: str, size: int, kernarg: int, minor: int = 0, target: str = "", group: int = 0) -> bytes:
    directives = f".amdhsa_user_sgpr_kernarg_segment_ptr 1\n.amdhsa_kernarg_size {kernarg}"
    source = kernel_source(directives, ADD, next_free_sgpr=16)
    notes = FOREIGN.format(minor=minor, target=target, size=size, arguments=arguments, group=group)
    return linked(assembled(source + notes))


@pytest.mark.parametrize("minor", [0, 1, 2])
@pytest.mark.parametrize("target", ["", "amdhsa.target: amdgcn-amd-amdhsa--gfx950\n"], ids=["nameless", "named"])
@pytest.mark.parametrize(("size", "kernarg"), [(24, 24), (24, 0), (12, 0), (24, 40), (24, 8)])
def test_sizes_that_disagree_do_not_keep_a_kernel_from_running(size, kernarg, minor, target):
    """A descriptor without a size, arguments past the segment that the metadata declare, either one too large."""
    out = np.zeros(64, np.uint32)
    run(foreign(SEPARATE, size, kernarg, minor, target), "k", Geometry.of_blocks(1, 64), out, 100, 23)
    assert out.tolist() == [123 + i for i in range(64)]


def test_one_blob_holds_all_arguments():
    device, out = Device(), np.zeros(64, np.uint32)
    block = struct.pack("<QIIII", device.map(out), 50, 0, 6, 0)
    kernel = device.load(foreign(BLOB, 24, 0))["k"]
    assert [(a.size, a.value_kind) for a in kernel.kernel.arguments] == [(24, "by_value")]
    kernel[1, 64](block)
    assert out.tolist() == [56 + i for i in range(64)]
    kernel.launch(Geometry.of_blocks(1, 64), block)
    with pytest.raises(LaunchError, match="exactly 24 bytes"):
        kernel[1, 64](block[:-1])


def test_a_kernel_without_metadata_takes_its_block():
    device, out = Device(), np.zeros(64, np.uint32)
    bare = kernel_source(".amdhsa_user_sgpr_kernarg_segment_ptr 1\n.amdhsa_kernarg_size 24", ADD, next_free_sgpr=16)
    kernel = device.load(assembled(bare))["k"]
    kernel[1, 64](struct.pack("<QIIII", device.map(out), 1, 0, 2, 0))
    assert out.tolist() == [3 + i for i in range(64)]


# --- registers of the dispatcher that a kernel may ask for beside its arguments ---


@pytest.mark.parametrize("engine", ENGINES)
def test_pointers_before_the_arguments_move_them(engine):
    """Dispatch pointer, queue pointer, kernarg pointer, dispatch id and workgroup ids y and z, from s0 on."""
    body = """s_load_dwordx2 s[14:15], s[4:5], 0x0
  s_load_dwordx2 s[16:17], s[0:1], 0x28
  s_load_dword s18, s[2:3], 0x40
  v_mov_b32_e32 v2, s8
  v_mov_b32_e32 v3, s9
  v_mov_b32_e32 v4, s10
  v_mov_b32_e32 v5, s6
  v_mov_b32_e32 v9, 0
  s_waitcnt lgkmcnt(0)
  s_xor_b32 s16, s16, s4
  v_mov_b32_e32 v6, s16
  v_mov_b32_e32 v7, s18
  global_store_dwordx4 v9, v[2:5], s[14:15]
  global_store_dwordx2 v9, v[6:7], s[14:15] offset:16
  s_endpgm"""
    asked = ("dispatch_ptr", "queue_ptr", "kernarg_segment_ptr", "dispatch_id")
    directives = [f".amdhsa_user_sgpr_{name} 1" for name in asked] + [".amdhsa_kernarg_size 8"]
    directives += [f".amdhsa_system_sgpr_workgroup_id_{axis} 1" for axis in "yz"]
    device, out = Device(), np.full(6, 99, np.uint32)
    source = kernel_source("\n".join(directives), body, next_free_sgpr=24, next_free_vgpr=12, accum_offset=12)
    kernel = device.load(assembled(source))["k"]
    options = RunOptions(engine=engine)
    kernel.launch(Geometry.of_items((1, 1, 3), (1, 1, 1)), struct.pack("<Q", device.map(out)), options)
    assert out.tolist() == [0, 0, 2, 0, 0, 1 << 16]  # kernarg's own address stands in the packet; LDS aperture


# --- targets with features: error correction decides whether the compiler loads halves of registers ---

HALVES = """
typedef u16 pair __attribute__((ext_vector_type(2)));
typedef union { pair p; u32 u; } both;
KERNEL k(GLOBAL const u16 *in, GLOBAL const i8 *bytes, GLOBAL const u32 *old, GLOBAL u32 *out) {
  u32 i = ITEM; both r;
  r.p = (pair){in[i], in[3 * i + 1]}; out[i] = r.u;
  r.u = old[i]; r.p.y = in[i + 7]; out[i + 64] = r.u;
  r.u = old[i]; r.p.x = (u16)(i16)bytes[i]; out[i + 128] = r.u;
  r.u = old[i]; r.p.y = (u8)bytes[i + 9]; out[i + 192] = r.u;
  r.u = old[i] * 5; ((GLOBAL u16 *)out)[512 + i] = r.p.y; ((GLOBAL u8 *)out)[1152 + i] = (u8)r.p.y; }
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("features", ["", ":sramecc-", ":sramecc+", ":xnack+", ":sramecc-:xnack-"])
def test_targets_with_features_run(features, engine):
    data = built(HALVES, f"-mcpu=gfx950{features}")
    generator = np.random.default_rng(1)
    halves, old = generator.integers(0, 1 << 16, 256, dtype=np.uint16), generator.integers(0, 1 << 31, 64).astype("u4")
    values, out, i = generator.integers(-128, 128, 128, dtype=np.int8), np.zeros(304, np.uint32), np.arange(64)
    run(data, "k", Geometry.of_blocks(1, 64), halves, values, old, out, options=RunOptions(engine=engine))
    wide = halves.astype(np.uint32)
    assert np.array_equal(out[:64], wide[i] | wide[3 * i + 1] << 16)
    assert np.array_equal(out[64:128], old & 0xFFFF | wide[i + 7] << 16)
    assert np.array_equal(out[128:192], old & 0xFFFF0000 | values[i].astype(np.uint16))
    assert np.array_equal(out[192:256], old & 0xFFFF | values[i + 9].view(np.uint8).astype(np.uint32) << 16)
    high = (old * np.uint32(5)) >> 16
    assert np.array_equal(out.view(np.uint16)[512:576], high)
    assert np.array_equal(out.view(np.uint8)[1152:1216], high & 255)
