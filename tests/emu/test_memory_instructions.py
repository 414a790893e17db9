"""Loads, stores and atomics in whole kernels: both engines leave the same bytes, threads lose no update."""

import random
import struct

import numpy as np
import pytest
from llvm_tools import assembled

from emu.dispatch import Device, RunOptions
from emu.geometry import Geometry

KERNEL = """
.text
.globl k
.p2align 8
.type k,@function
k:
{body}
s_endpgm
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_group_segment_fixed_size 4096
  .amdhsa_kernarg_size 16
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_accum_offset 64
  .amdhsa_next_free_vgpr 64
  .amdhsa_next_free_sgpr 96
  .amdhsa_float_denorm_mode_32 3
.end_amdhsa_kernel
"""
START = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
v_lshlrev_b32 v1, 4, v0
v_lshlrev_b32 v2, 2, v0
global_load_dwordx4 v[16:19], v1, s[4:5]
s_waitcnt vmcnt(0)
ds_write_b128 v1, v[16:19]
v_mov_b32 v3, 0
v_mov_b32 v4, s4
v_mov_b32 v5, s5
v_add_co_u32 v4, vcc, v4, v1
v_addc_co_u32 v5, vcc, v5, v3, vcc
v_and_b32 v6, 28, v16
"""
BYTES = 64 * 1024
PARTIAL = "s_mov_b32 exec_lo, 0xf00f8001\ns_mov_b32 exec_hi, 0x7fff0f31"
FULL = "s_mov_b64 exec, -1"


def build(body):
    return assembled(KERNEL.format(body=body))


def run(code, engine, workgroups=1, threads=64, host_threads=1):
    """The kernel's two buffers after a run: random input, zeroed output."""
    device = Device(RunOptions(engine=engine, threads=host_threads))
    data = np.frombuffer(random.Random("data").randbytes(BYTES), dtype=np.uint8).copy()
    out = np.zeros(BYTES, dtype=np.uint8)
    arguments = struct.pack("<QQ", device.map(data), device.map(out))
    device.load(code)["k"].launch(Geometry.of_blocks(workgroups, threads), arguments)
    return data, out


def keep(registers):
    """Stores registers to the output, 256 bytes each, and moves on."""
    text = "s_waitcnt vmcnt(0) lgkmcnt(0)\n" + FULL + "\n"
    for register in registers:
        text += f"global_store_dword v2, {register}, s[6:7]\ns_add_u32 s6, s6, 256\ns_addc_u32 s7, s7, 0\n"
    return text


def case(instruction, results, old="v_mov_b32 v{0}, 0x12345678"):
    """One instruction under a partial EXEC, its result registers (numbers) prepared and kept."""
    prepared = "\n".join(old.format(r) for r in results)
    return f"{prepared}\n{PARTIAL}\n{instruction}\n{keep([f'v{r}' for r in results])}"


def target(words):
    return "v40" if words == 1 else f"v[40:{39 + words}]"


NARROW = ["ubyte", "sbyte", "ushort", "sshort", "ubyte_d16", "ubyte_d16_hi", "sbyte_d16", "sbyte_d16_hi"]
NARROW += ["short_d16", "short_d16_hi", "dword"]
WIDE = [("dwordx2", 2), ("dwordx3", 3), ("dwordx4", 4)]
LDS_NARROW = ["u8", "i8", "u16", "i16", "b32", "u8_d16", "u8_d16_hi", "i8_d16", "i8_d16_hi", "u16_d16", "u16_d16_hi"]
INTEGER = ["add", "sub", "smin", "umin", "smax", "umax", "and", "or", "xor", "inc", "dec", "swap"]
DS_INTEGER = ["add_rtn_u", "sub_rtn_u", "rsub_rtn_u", "inc_rtn_u", "dec_rtn_u", "min_rtn_i", "max_rtn_u", "and_rtn_b"]
DS_FLOAT = ["add_rtn_f32", "min_rtn_f32", "max_rtn_f32", "pk_add_rtn_f16", "pk_add_rtn_bf16"]


def loads():
    for name in NARROW:
        yield case(f"global_load_{name} v40, v1, s[4:5] offset:5", [40])
        yield case(f"flat_load_{name} v40, v[4:5] offset:6", [40])
    for name, words in WIDE:
        yield case(f"global_load_{name} {target(words)}, v[4:5], off offset:-0", range(40, 40 + words))
    for name in LDS_NARROW:
        yield case(f"ds_read_{name} v40, v1 offset:7", [40])
    for bits in (64, 96, 128):
        yield case(f"ds_read_b{bits} {target(bits // 32)}, v1 offset:3070", range(40, 40 + bits // 32))
    for name, words in (("b64_tr_b16", 2), ("b64_tr_b8", 2), ("b64_tr_b4", 2), ("b96_tr_b6", 3)):
        yield case(f"ds_read_{name} {target(words)}, v1", range(40, 40 + words))
    yield case("ds_read2st64_b64 v[40:43], v1 offset0:1 offset1:0", range(40, 44))
    yield "s_load_dwordx8 s[40:47], s[4:5], 0x24\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v40, s43\n" + keep(["v40"])


def buffer_loads():
    yield "s_mov_b32 s12, s4\ns_and_b32 s13, s5, 0xffff\ns_mov_b32 s14, 20\ns_mov_b32 s15, 0x27000"
    yield "s_buffer_load_dwordx8 s[40:47], s[12:15], 0x8\ns_waitcnt lgkmcnt(0)"
    yield "".join(f"v_mov_b32 v40, s{n}\n{keep(['v40'])}" for n in range(40, 48))


def stores():
    for name, words in (("byte", 1), ("byte_d16_hi", 1), ("short", 1), ("short_d16_hi", 1), ("dword", 1), *WIDE):
        data = "v16" if words == 1 else f"v[16:{15 + words}]"
        yield f"{PARTIAL}\nglobal_store_{name} v6, {data}, s[6:7] offset:3\n{FULL}\n{keep([])}s_add_u32 s6, s6, 256"
    for bits in (8, 16, 32, 64, 96, 128):
        data = "v16" if bits <= 32 else f"v[16:{15 + bits // 32}]"
        yield f"{PARTIAL}\nds_write_b{bits} v6, {data} offset:{64 + bits}\n{FULL}"
    yield case("ds_read_b128 v[40:43], v1", range(40, 44))


def atomics():
    for name in INTEGER:
        yield case(f"global_atomic_{name} v40, v6, v17, s[4:5] sc0", [40])
        yield case(f"global_atomic_{name}_x2 v[40:41], v7, v[18:19], s[4:5] offset:64 sc0", [40, 41])
    for name in ("add_f32", "pk_add_f16", "pk_add_bf16"):
        yield case(f"global_atomic_{name} v40, v6, v17, s[4:5] sc0", [40])
    for name in ("add_f64", "min_f64", "max_f64"):
        yield case(f"global_atomic_{name} v[40:41], v7, v[18:19], s[4:5] sc0", [40, 41])
    yield case("global_atomic_cmpswap v40, v6, v[18:19], s[4:5] sc0", [40])
    yield case("global_atomic_add v6, v17, s[4:5]", [17])
    for name in DS_INTEGER:
        yield case(f"ds_{name}32 v40, v6, v17 offset:4", [40])
        yield case(f"ds_{name}64 v[40:41], v6, v[18:19] offset:64", [40, 41])
    for name in DS_FLOAT:
        yield case(f"ds_{name} v40, v6, v17", [40])
    yield case("ds_add_rtn_u32 v40, v1, v17 offset:3500", [40])  # the upper lanes lie beyond LDS
    yield case("ds_mskor_rtn_b64 v[40:41], v6, v[16:17], v[18:19]", [40, 41])
    yield case("ds_read_b128 v[40:43], v1", range(40, 44))


def scalar_stores():
    yield "s_mov_b32 s40, 5\ns_mov_b32 s41, 6\ns_mov_b32 s42, 7\ns_mov_b32 s43, 8\ns_mov_b64 exec, 0"
    yield "s_store_dwordx4 s[40:43], s[6:7], 0x10\ns_store_dword s43, s[6:7], 0x30"
    for number, name in enumerate(INTEGER):
        yield f"s_atomic_{name} s40, s[4:5], {4 * number:#x} glc"
        yield f"s_atomic_{name}_x2 s[42:43], s[4:5], {128 + 8 * number:#x} glc"
        yield f"s_waitcnt lgkmcnt(0)\ns_store_dwordx4 s[40:43], s[6:7], {64 + 16 * number:#x}"
    yield "s_atomic_cmpswap s[40:41], s[4:5], 0x100 glc\ns_atomic_add s42, s[4:5], 0x104"


def scalar_buffers():
    """Stores and atomics into a buffer of 84 bytes, some of them past its end, and scratch accesses."""
    yield "s_mov_b32 s12, s6\ns_and_b32 s13, s7, 0xffff\ns_movk_i32 s14, 0x54\ns_mov_b32 s15, 0x27000"
    yield "s_mov_b32 s40, 5\ns_mov_b32 s41, 6\ns_mov_b32 s42, 7\ns_mov_b32 s43, 8\ns_movk_i32 s44, 2"
    for offset in (0, 24, 72, 76, 80, 84):
        yield f"s_buffer_store_dwordx4 s[40:43], s[12:15], {offset:#x}\ns_buffer_store_dword s44, s[12:15], {offset:#x}"
    for number, name in enumerate(INTEGER):
        yield f"s_buffer_atomic_{name} s40, s[12:15], {8 * number:#x} glc"
        yield f"s_buffer_atomic_{name}_x2 s[42:43], s[12:15], {8 * number:#x} glc"
        yield f"s_waitcnt lgkmcnt(0)\ns_scratch_store_dwordx4 s[40:43], s[6:7], s44 offset:{16 * number:#x}"
    yield "s_buffer_atomic_cmpswap s[40:41], s[12:15], 0x50 glc\ns_buffer_atomic_cmpswap_x2 s[40:43], s[12:15], 0x50"
    yield "s_scratch_load_dwordx2 s[46:47], s[6:7], s44\ns_waitcnt lgkmcnt(0)\ns_store_dwordx2 s[46:47], s[6:7], 0x400"


def loads_to_lds():
    for number, name in enumerate(("ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx3", "dwordx4")):
        yield f"s_movk_i32 m0, {0x100 * number}\n{PARTIAL}\nglobal_load_lds_{name} v1, s[4:5] offset:{number}\n{FULL}"
        yield case("ds_read_b128 v[40:43], v1", range(40, 44))


FAMILIES = {
    "scalar stores": scalar_stores,
    "scalar buffers": scalar_buffers,
    "loads to lds": loads_to_lds,
    "loads": loads,
    "buffer loads": buffer_loads,
    "stores": stores,
    "atomics": atomics,
}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_both_engines_leave_the_same_bytes(family):
    code = build("\n".join([START, "v_and_b32 v7, 24, v17", *FAMILIES[family]()]))
    (data_a, out_a), (data_b, out_b) = run(code, "numpy"), run(code, "host")
    assert np.flatnonzero(out_a != out_b).tolist() == []
    assert (data_a == data_b).all()
    assert out_a.any()


def test_concurrent_workgroups_lose_no_update():
    """Every work-item adds 1 to a counter, 3 to a 64-bit one, 1.0 to a float: exact, so any order gives these bits."""
    body = f"""{START}
v_mov_b32 v8, 0
v_mov_b32 v10, 1
v_mov_b32 v12, 3
v_mov_b32 v13, 0
v_mov_b32 v14, 1.0
global_atomic_add v8, v10, s[6:7]
global_atomic_add_x2 v8, v[12:13], s[6:7] offset:8
global_atomic_add_f32 v8, v14, s[6:7] offset:16
"""
    code = build(body)
    for threads in (1, 2):
        _, out = run(code, "host", workgroups=200, host_threads=threads)
        count = 200 * 64
        assert out[:4].view(np.uint32)[0] == count
        assert out[8:16].view(np.uint64)[0] == 3 * count
        assert out[16:20].view(np.float32)[0] == count
