"""Buffer instructions in whole kernels: both engines leave the same bytes under random descriptors, compiled C too."""

import random
import struct

import numpy as np
import pytest
from kernel_builds import assemble_kernel, compile_c
from llvm_tools import linked, object_of

from emu.dispatch import Device, RunOptions
from emu.errors import MemoryFault
from emu.geometry import Geometry
from gfx950.isa.registry import load
from gfx950.models import make_model, using

LANES = 64
ENGINES = ("numpy", "host")
DATA_BYTES = 8 << 20
BASE = 1 << 19
FULL = "s_mov_b64 exec, -1"
PARTIAL = "s_mov_b32 exec_lo, 0xf00f8001\ns_mov_b32 exec_hi, 0x7fff0f31"
LDS_BYTES = 4096
# s[4:5] descriptors, 32 bytes an instruction; s[6:7] index and offset of each lane, 512 bytes; s[16:17] results.
START = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
s_load_dwordx2 s[16:17], s[0:1], 0x10
v_lshlrev_b32 v1, 3, v0
v_lshlrev_b32 v4, 4, v0
s_waitcnt lgkmcnt(0)
"""
KEEP = """
s_waitcnt vmcnt(0)
s_mov_b64 exec, -1
global_store_dwordx4 v4, v[40:43], s[16:17]
s_add_u32 s16, s16, 1024
s_addc_u32 s17, s17, 0
s_add_u32 s6, s6, 512
s_addc_u32 s7, s7, 0
s_add_u32 s4, s4, 32
s_addc_u32 s5, s5, 0
"""


def prepare(full):
    lines = ["s_load_dwordx4 s[8:11], s[4:5], 0x0", "s_load_dwordx2 s[12:13], s[4:5], 0x10"]
    lines += ["global_load_dwordx2 v[2:3], v1, s[6:7]", "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_mov_b32 m0, s13"]
    lines += [f"v_mul_u32_u24 v{40 + n}, 0x{0x3F01 + 77 * n:x}, v1" for n in range(4)]
    lines += [f"v_add_u32 v{40 + n}, 0x{0x3F800000 - 9000 * n:x}, v{40 + n}" for n in range(4)]
    return "\n".join([*lines, FULL if full else PARTIAL])


def registers(instruction):
    given = instruction.parameter("data0") or instruction.parameter("vdst")
    return given.registers if given else instruction.results[0].registers


def instruction_text(instruction, rng):
    """One instruction with random modifiers."""
    idxen, offen = rng.choice([(0, 0), (1, 0), (0, 1), (1, 1)])
    address = ["off", "v2", "v[2:3]"][idxen + offen]
    tail = f"{address}, s[8:11], s12{' idxen' * idxen}{' offen' * offen} offset:{rng.choice([0, 8, 64])}"
    if instruction.encoding == "MUBUF_LDS":
        return f"{instruction.name.removesuffix('_lds')} {tail} lds", idxen
    count = registers(instruction)
    data = f"v[40:{39 + count}]" if count > 1 else "v40"
    if instruction.encoding == "MTBUF":
        form = f"dfmt:{rng.randrange(1, 15)}, nfmt:{rng.choice([0, 1, 2, 3, 4, 5, 7])}"
        tail = tail.replace("s12", f"{form}, s12")
    returned = " sc0" if instruction.parameter("sc0") and rng.random() < 0.7 else ""
    return f"{instruction.name} {data}, {tail}{returned}", idxen


def program(part):
    """The kernel of some definitions, and for each whether it is an atomic and has an index."""
    rng = random.Random(part)
    wanted = [i for i in load().values() if i.encoding in ("MUBUF", "MUBUF_LDS", "MTBUF") and i.parameter("buffer")]
    body, kinds = [START], []
    for number, instruction in enumerate(wanted[part::PARTS]):
        text, idxen = instruction_text(instruction, rng)
        kinds.append(("atomic" in instruction.name, bool(idxen)))
        body.append(f"{prepare(number % 3 == 0)}\n{text}\n{KEEP}")
    lds = "s_waitcnt vmcnt(0)\n" + "".join(
        f"ds_read_b128 v[40:43], v4 offset:{1024 * n}\ns_waitcnt lgkmcnt(0)\n{KEEP}" for n in range(LDS_BYTES // 1024)
    )
    return "\n".join([*body, lds, "s_endpgm"]), kinds


PARTS = 4


def random_case(rng, base, atomic, idxen):
    """The words of a descriptor, SOFFSET and M0, and the lanes' registers, such that covered bytes are mapped."""
    unit = 8 if atomic else 1
    add_tid = rng.random() < 0.4
    swizzle = 0 if atomic else int(rng.random() < 0.5)
    dfmt = rng.randrange(3) if add_tid else rng.randrange(16)
    stride = rng.choice([0, 8, 24, 64, 104] if atomic else [0, 4, 12, 20, 64, 100])
    records = rng.choice([0, 16, 60, 1000, 4100])
    select = sum(rng.randrange(8) << 3 * n for n in range(4))
    word3 = select | rng.randrange(8) << 12 | dfmt << 15 | rng.randrange(4) << 21 | add_tid << 23
    words = [base & 0xFFFFFFFF, base >> 32 | stride << 16 | swizzle << 31, records, word3]
    words += [rng.choice([0, 0, 8, 1000]), rng.randrange(0, 2048) * 4 | rng.getrandbits(12) << 20, 0, 0]
    first = [rng.randrange(60) for _ in range(LANES)] if idxen else [unit * rng.randrange(128) for _ in range(LANES)]
    if idxen and not add_tid and stride:
        first = [n if rng.random() < 0.9 else 2**32 - 1 - n for n in first]
    second = [unit * rng.randrange(128) for _ in range(LANES)]
    return words, np.array([first, second], dtype=np.uint32).T


def run(code, kinds, engine, seed):
    """Data and results of one launch."""
    rng = random.Random(seed)
    data = np.random.default_rng(seed).integers(0, 256, DATA_BYTES, dtype=np.uint8)
    data.view(np.uint32)[::3] &= 0xBFFFFFFF  # some numbers of moderate size
    device = Device(RunOptions(engine=engine))
    base = device.map(data) + BASE
    cases = [random_case(rng, base, *kind) for kind in kinds]
    table = np.array([words for words, _ in cases], dtype=np.uint32)
    lanes = np.concatenate([registers for _, registers in cases] + [np.zeros((LANES * 4, 2), np.uint32)])
    out = np.zeros((len(kinds) + LDS_BYTES // 1024) * 1024, dtype=np.uint8)
    table = np.concatenate([table, np.zeros((4, 8), np.uint32)])
    arguments = struct.pack("<QQQ", *(device.map(np.ascontiguousarray(a)) for a in (table, lanes)), device.map(out))
    device.load(code)["k"].launch(Geometry.of_blocks(1, LANES), arguments)
    return data, out


@pytest.mark.parametrize("part", range(PARTS))
def test_engines_agree(part):
    text, kinds = program(part)
    directives = f".amdhsa_group_segment_fixed_size {LDS_BYTES}\n.amdhsa_float_denorm_mode_32 0\n"
    code = assemble_kernel(text, directives)
    changed = 0
    for seed in range(10 * part, 10 * part + 4):
        (numpy_data, numpy_out), (host_data, host_out) = (run(code, kinds, engine, seed) for engine in ENGINES)
        differs = np.flatnonzero(numpy_out != host_out)
        assert not differs.size, (seed, text.split(KEEP)[differs[0] // 1024].strip().splitlines()[-1])
        assert (numpy_data == host_data).all(), seed
        fresh = np.random.default_rng(seed).integers(0, 256, DATA_BYTES, dtype=np.uint8)
        fresh.view(np.uint32)[::3] &= 0xBFFFFFFF
        changed += (fresh != host_data).sum()
    assert changed > 1000  # stores and atomics did something


# ---- compiled code ---------------------------------------------------------------------------------------------------

COPY = """
typedef u32 v4 __attribute__((ext_vector_type(4))); typedef u32 v3 __attribute__((ext_vector_type(3)));
typedef u32 v2 __attribute__((ext_vector_type(2)));
SHARED(u32, shared, 64);
KERNEL k(GLOBAL u8 *in, GLOBAL u8 *out, int in_bytes, int out_bytes, int soffset) {
  __amdgpu_buffer_rsrc_t a = __builtin_amdgcn_make_buffer_rsrc((void *)in, 0, in_bytes, 0x27000);
  __amdgpu_buffer_rsrc_t b = __builtin_amdgcn_make_buffer_rsrc((void *)out, 0, out_bytes, 0x27000);
  u32 i = ITEM;
  v4 x = __builtin_amdgcn_raw_buffer_load_b128(a, i * 16, soffset, 0);
  v3 y = __builtin_amdgcn_raw_buffer_load_b96(a, i * 12 + 4, soffset, 0);
  v2 z = __builtin_amdgcn_raw_buffer_load_b64(a, i * 8, 0, 0);
  u32 w = __builtin_amdgcn_raw_buffer_load_b32(a, i * 4 + 12, 0, 0);
  u16 h = __builtin_amdgcn_raw_buffer_load_b16(a, i * 2 + 2, 0, 0);
  u8 c = __builtin_amdgcn_raw_buffer_load_b8(a, i, 0, 0);
  __builtin_amdgcn_raw_ptr_buffer_load_lds(a, shared, 4, i * 4, soffset, 16, 0);
  __builtin_amdgcn_raw_buffer_store_b128(x, b, i * 16, 0, 0);
  __builtin_amdgcn_raw_buffer_store_b96(y, b, i * 12, 1024, 0);
  __builtin_amdgcn_raw_buffer_store_b64(z, b, i * 8, 2048, 0);
  __builtin_amdgcn_raw_buffer_store_b32(w, b, i * 4, 3072, 0);
  __builtin_amdgcn_raw_buffer_store_b16(h, b, i * 2, 4096, 0);
  __builtin_amdgcn_raw_buffer_store_b8(c, b, i, 5120, 0);
  __builtin_amdgcn_s_waitcnt(0);
  __builtin_amdgcn_raw_buffer_store_b32(i < 60 ? shared[i + 4] : 7, b, i * 4, 6144, 0);
}
KERNEL atomics(GLOBAL int *sums, GLOBAL float *floats, GLOBAL int *old, int bytes) {
  __amdgpu_buffer_rsrc_t a = __builtin_amdgcn_make_buffer_rsrc((void *)sums, 0, bytes, 0x27000);
  __amdgpu_buffer_rsrc_t b = __builtin_amdgcn_make_buffer_rsrc((void *)floats, 0, bytes, 0x27000);
  u32 i = GROUP * ITEMS + ITEM;
  old[i] = __builtin_amdgcn_raw_ptr_buffer_atomic_add_i32(i, a, (i % 20) * 4, 0, 0);
  __builtin_amdgcn_raw_ptr_buffer_atomic_fadd_f32((float)i, b, (i % 20) * 4, 0, 0);
}
"""


def window(data, offset, limit, nbytes):
    """Bytes from an offset on, dword by dword: 0 where not all of a dword lies below the limit."""
    taken = b""
    for at in range(offset, offset + nbytes, 4):
        size = min(4, nbytes)
        taken += bytes(data[at : at + size]) if at + size <= limit else bytes(size)
    return taken


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("in_bytes", "soffset"), [(4096, 0), (701, 48), (16, 0), (0, 0), (700, 701)])
def test_compiled_loads_and_stores(engine, in_bytes, soffset):
    data = np.frombuffer(random.Random("copy").randbytes(4096), dtype=np.uint8).copy()
    out = np.full(6144 + 256, 0xEE, dtype=np.uint8)
    kernel = Device(RunOptions(engine=engine)).load(compile_c(COPY))["k"]
    kernel[1, 64](data, out, np.int32(in_bytes), np.int32(6144 + 100), np.int32(soffset))
    want = np.full_like(out, 0xEE)
    pieces = [(0, 16, 16, soffset), (1024, 12, 12, 4 + soffset), (2048, 8, 8, 0), (3072, 4, 4, 12)]
    pieces += [(4096, 2, 2, 2), (5120, 1, 1, 0), (6144, 4, 4, 16 + soffset)]
    for start, size, step, offset in pieces:
        for n in range(64):
            at = start + step * n
            value = window(data, step * n + offset, in_bytes, size)
            if start == 6144 and n >= 60:
                value = bytes([7, 0, 0, 0])
            if at + size <= 6144 + 100:
                want[at : at + size] = list(value)
    assert (out == want).all(), np.flatnonzero(out != want)


@pytest.mark.parametrize("engine", ENGINES)
def test_compiled_atomics(engine):
    count = 256
    sums, floats, old = np.zeros(20, np.int32), np.zeros(20, np.float32), np.full(count, -1, np.int32)
    kernel = Device(RunOptions(engine=engine)).load(compile_c(COPY))["atomics"]
    kernel[2, 128](sums, floats, old, np.int32(64))
    expected = [sum(range(n, count, 20)) if n < 16 else 0 for n in range(20)]
    assert sums.tolist() == expected
    assert floats.tolist() == [float(x) for x in expected]
    assert all(old[n] == (sum(range(n % 20, n, 20)) if n % 20 < 16 else 0) for n in range(count))


@pytest.mark.parametrize("engine", ENGINES)
def test_covered_but_unmapped(engine):
    """The report says that the descriptor covers the address; what it does not cover is no fault."""
    data, out = np.zeros(1024, dtype=np.uint8), np.zeros(6144 + 256, dtype=np.uint8)
    kernel = Device(RunOptions(engine=engine)).load(compile_c(COPY))["k"]
    with pytest.raises(MemoryFault) as error:
        kernel[1, 64](data, out, np.int32(4096), np.int32(6144 + 256), np.int32(128))
    assert error.value.lane == 56
    assert error.value.instruction.startswith("buffer_load_dwordx4 v")
    assert "the descriptor covers" in str(error.value)
    kernel[1, 64](data, out, np.int32(1024), np.int32(6144 + 256), np.int32(128))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_switch_reaches_the_kernel(engine):
    """The first load's SOFFSET counts by default; a launch under another model does not count it."""
    results = []
    kernel = Device(RunOptions(engine=engine)).load(compile_c(COPY))["k"]
    for soffset_in_range in (1, 0):
        data = np.arange(1, 1025, dtype=np.uint32)
        out = np.zeros(6144 + 256, dtype=np.uint8)
        with using(make_model("test", {"buffer.soffset_in_range": soffset_in_range})):
            kernel[1, 64](data, out, np.int32(512), np.int32(6400), np.int32(64))
        loaded = out[:1024].view(np.uint32)
        results.append([int(x) for x in loaded])
    assert results[0] == [n + 17 if n < 112 else 0 for n in range(256)]
    assert results[1] == [n + 17 if n < 128 else 0 for n in range(256)]


PAST_THE_END = f"""
s_load_dwordx4 s[8:11], s[0:1], 0x0
s_load_dwordx2 s[16:17], s[0:1], 0x10
v_lshlrev_b32 v1, 2, v0
v_cmp_gt_u32 vcc, 48, v0
v_bfrev_b32 v3, 1
v_cndmask_b32 v2, v3, v1, vcc
s_mov_b32 m0, {1280 - 48 * 4}
s_waitcnt lgkmcnt(0)
buffer_load_dword v2, s[8:11], 0 offen lds
s_waitcnt vmcnt(0)
v_lshlrev_b32 v4, 4, v0
ds_read_b128 v[40:43], v4 offset:256
s_waitcnt lgkmcnt(0)
global_store_dwordx4 v4, v[40:43], s[16:17]
s_endpgm
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_lanes_whose_lds_place_does_not_exist_are_not_read(engine):
    """48 lanes fill the last 192 bytes of the LDS granted; the other 16 have addresses that nobody mapped."""
    code = assemble_kernel(PAST_THE_END, ".amdhsa_group_segment_fixed_size 1280")
    device = Device(RunOptions(engine=engine))
    data, out = np.arange(1, 257, dtype=np.uint32), np.full(1024, 0xEE, np.uint8)
    base = device.map(data)
    descriptor = (base & 0xFFFFFFFF, base >> 32, 0xFFFFFFFF, 0x27000)
    device.load(code)["k"].launch(Geometry.of_blocks(1, 64), struct.pack("<IIIIQ", *descriptor, device.map(out)))
    assert (out[:832] == 0).all()
    assert (out[832:].view(np.uint32) == data[:48]).all()


LATE = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
s_load_dwordx2 s[16:17], s[0:1], 0x10
v_lshlrev_b32 v2, 2, v0
s_mov_b32 m0, 0
s_waitcnt lgkmcnt(0)
buffer_load_dword v2, s[8:11], 0 offen lds
{}
s_waitcnt vmcnt(1)
ds_read_b32 v3, v2
s_waitcnt lgkmcnt(0)
global_store_dword v2, v3, s[16:17]
s_endpgm
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("second", "landed"), [("buffer_wbl2 sc1", True), ("buffer_inv sc1", False)])
def test_data_land_in_lds_when_vmcnt_says(engine, second, landed):
    """vmcnt(1) retires the load only if one more instruction that it counts was issued behind it."""
    code = assemble_kernel(LATE.format(second), ".amdhsa_group_segment_fixed_size 1024")
    device = Device(RunOptions(engine=engine))
    data, out = np.arange(1, 65, dtype=np.uint32), np.full(64, 7, np.uint32)
    base = device.map(data)
    arguments = struct.pack("<IIIIQ", base & 0xFFFFFFFF, base >> 32, data.nbytes, 0x27000, device.map(out))
    device.load(code)["k"].launch(Geometry.of_blocks(1, 64), arguments)
    assert (out == (data if landed else 0)).all()


# LLVM IR, for the intrinsics that C does not reach. 0x50fac: 8_8_8_8 unorm, identity; formats: DFMT | NFMT << 4.
FORMATS = """
target triple = "amdgcn-amd-amdhsa"
@shared = internal addrspace(3) global [1024 x i8] poison, align 16
declare i32 @AMD.workitem.id.x()
declare void @AMD.s.waitcnt(i32)
declare RSRC @AMD.make.buffer.rsrc.p8.p1(GLOBAL, i16, i64, i32)
declare <4 x float> @AMD.struct.ptr.buffer.load.format.v4f32(RSRC, i32, i32, i32, i32)
declare <4 x half> @AMD.struct.ptr.buffer.load.format.v4f16(RSRC, i32, i32, i32, i32)
declare void @AMD.struct.ptr.tbuffer.store.v4f32(<4 x float>, RSRC, i32, i32, i32, i32, i32)
declare void @AMD.struct.ptr.buffer.store.format.v4f16(<4 x half>, RSRC, i32, i32, i32, i32)
declare i32 @AMD.raw.ptr.buffer.atomic.cmpswap.i32(i32, i32, RSRC, i32, i32, i32)
declare void @AMD.raw.ptr.buffer.load.lds(RSRC, ptr addrspace(3), i32, i32, i32, i32, i32)

define amdgpu_kernel void @formats(GLOBAL %in, GLOBAL %wide, GLOBAL %same, i32 %n) #0 {
  %i = call i32 @AMD.workitem.id.x()
  %records = zext i32 %n to i64
  %a = call RSRC @AMD.make.buffer.rsrc.p8.p1(GLOBAL %in, i16 4, i64 %records, i32 331692)
  %b = call RSRC @AMD.make.buffer.rsrc.p8.p1(GLOBAL %wide, i16 8, i64 64, i32 331692)
  %c = call RSRC @AMD.make.buffer.rsrc.p8.p1(GLOBAL %same, i16 4, i64 64, i32 331692)
  %x = call <4 x float> @AMD.struct.ptr.buffer.load.format.v4f32(RSRC %a, i32 %i, i32 0, i32 0, i32 0)
  %h = call <4 x half> @AMD.struct.ptr.buffer.load.format.v4f16(RSRC %a, i32 %i, i32 0, i32 0, i32 0)
  call void @AMD.struct.ptr.tbuffer.store.v4f32(<4 x float> %x, RSRC %b, i32 %i, i32 0, i32 0, i32 124, i32 0)
  call void @AMD.struct.ptr.buffer.store.format.v4f16(<4 x half> %h, RSRC %c, i32 %i, i32 0, i32 0, i32 0)
  ret void
}
define amdgpu_kernel void @others(GLOBAL %in, GLOBAL %out, GLOBAL %word, i32 %n) #0 {
  %i = call i32 @AMD.workitem.id.x()
  %bytes = zext i32 %n to i64
  %a = call RSRC @AMD.make.buffer.rsrc.p8.p1(GLOBAL %in, i16 0, i64 %bytes, i32 159744)
  %w = call RSRC @AMD.make.buffer.rsrc.p8.p1(GLOBAL %word, i16 0, i64 4, i32 159744)
  %at = mul i32 %i, 16
  call void @AMD.raw.ptr.buffer.load.lds(RSRC %a, ptr addrspace(3) @shared, i32 16, i32 %at, i32 0, i32 0, i32 0)
  %next = add i32 %i, 1
  %old = call i32 @AMD.raw.ptr.buffer.atomic.cmpswap.i32(i32 %next, i32 %i, RSRC %w, i32 0, i32 0, i32 0)
  call void @AMD.s.waitcnt(i32 0)
  %from = getelementptr i8, ptr addrspace(3) @shared, i32 %at
  %data = load <4 x i32>, ptr addrspace(3) %from, align 16
  %sum = insertelement <4 x i32> %data, i32 %old, i32 3
  %to = getelementptr i8, GLOBAL %out, i32 %at
  store <4 x i32> %sum, GLOBAL %to, align 16
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
"""


def compiled_ir():
    text = FORMATS
    for short, long in (("RSRC", "ptr addrspace(8)"), ("GLOBAL", "ptr addrspace(1)"), ("AMD.", "llvm.amdgcn.")):
        text = text.replace(short, long)
    return linked(object_of(text, "-mcpu=gfx950", "-O2", "-nogpulib", language="ir"))


@pytest.mark.parametrize("engine", ENGINES)
def test_compiled_format_intrinsics(engine):
    """Bytes as unorm to f16 and back: f16 holds every n / 255 well enough to give n again."""
    data = np.frombuffer(random.Random("texels").randbytes(256), dtype=np.uint8).copy()
    wide, same = np.zeros(256, np.float16), np.full(256, 0xEE, np.uint8)
    kernel = Device(RunOptions(engine=engine)).load(compiled_ir())["formats"]
    kernel[1, 64](data, wide, same, np.int32(50))
    known = np.where(np.arange(256) < 200, data, 0)
    ratio = (known.astype(np.float32) / np.float32(255)).astype(np.float16)
    assert (wide.view(np.uint16) == ratio.view(np.uint16)).all()
    assert (same == known).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_compiled_loads_to_lds_and_compare_exchange(engine):
    """Lane after lane finds the number that the one before left."""
    data = np.arange(1000, 1256, dtype=np.uint32)
    out, word = np.zeros(256, np.uint32), np.zeros(1, np.uint32)
    kernel = Device(RunOptions(engine=engine)).load(compiled_ir())["others"]
    kernel[1, 64](data, out, word, np.int32(1024 - 12))
    want = np.where(np.arange(256) < 253, data, 0)
    want[3::4] = np.arange(64)
    assert out.tolist() == want.tolist()
    assert word[0] == 64
