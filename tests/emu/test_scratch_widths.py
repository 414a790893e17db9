"""Scratch loads and stores of every width against byte slices of what each lane had written, on both engines."""

from __future__ import annotations

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
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_mul_u32_u24 v1, v0, 64
  s_mov_b32 s6, 0x01f35079
  s_mov_b32 s7, 0x85ebca6b
  v_mul_lo_u32 v16, v0, s6
  v_add_u32 v16, 0x9e3779b9, v16
  v_mul_lo_u32 v17, v16, s7
  v_mul_lo_u32 v18, v17, s7
  v_mul_lo_u32 v19, v18, s7
  scratch_store_dwordx4 off, v[16:19], off offset:32
  s_mov_b32 m0, 0
  v_mov_b32 v40, 0x13572468
  v_mov_b32 v41, 0
  v_mov_b32 v42, 0
  v_mov_b32 v43, 0
  s_waitcnt vmcnt(0) lgkmcnt(0)
  {body}
  s_waitcnt vmcnt(0) lgkmcnt(0)
  global_store_dwordx4 v1, v[16:19], s[4:5]
  global_store_dwordx4 v1, v[40:43], s[4:5] offset:16
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_group_segment_fixed_size 4096
  .amdhsa_private_segment_fixed_size 256
  .amdhsa_kernarg_size 8
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_accum_offset 64
  .amdhsa_next_free_vgpr 64
  .amdhsa_next_free_sgpr 32
.end_amdhsa_kernel
"""
OLD = 0x13572468


def number(data, signed=False):
    return int.from_bytes(data, "little", signed=signed) & 0xFFFFFFFF


def low(value):
    return OLD & 0xFFFF0000 | value & 0xFFFF


def high(value):
    return OLD & 0xFFFF | (value & 0xFFFF) << 16


LOADS = {  # from byte 37 of the lane's scratch, 5 bytes into its data: what v40.. hold then
    "ubyte": lambda b: [number(b[5:6])],
    "sbyte": lambda b: [number(b[5:6], True)],
    "ushort": lambda b: [number(b[5:7])],
    "sshort": lambda b: [number(b[5:7], True)],
    "ubyte_d16": lambda b: [low(number(b[5:6]))],
    "ubyte_d16_hi": lambda b: [high(number(b[5:6]))],
    "sbyte_d16": lambda b: [low(number(b[5:6], True))],
    "sbyte_d16_hi": lambda b: [high(number(b[5:6], True))],
    "short_d16": lambda b: [low(number(b[5:7]))],
    "short_d16_hi": lambda b: [high(number(b[5:7]))],
    "dword": lambda b: [number(b[5:9])],
    "dwordx2": lambda b: [number(b[5:9]), number(b[9:13])],
}
WIDE = {"dwordx3": 3, "dwordx4": 4}
STORES = {  # of v40 at byte 37: the data then
    "byte": lambda b: b[:5] + bytes([OLD & 0xFF]) + b[6:],
    "byte_d16_hi": lambda b: b[:5] + bytes([OLD >> 16 & 0xFF]) + b[6:],
    "short": lambda b: b[:5] + struct.pack("<H", OLD & 0xFFFF) + b[7:],
    "short_d16_hi": lambda b: b[:5] + struct.pack("<H", OLD >> 16) + b[7:],
    "dword": lambda b: b[:5] + struct.pack("<I", OLD) + b[9:],
    "dwordx2": lambda b: b[:5] + struct.pack("<II", OLD, 0) + b[13:],
}
TO_LDS = {
    "ubyte": lambda b: number(b[4:5]),
    "sbyte": lambda b: number(b[4:5], True),
    "ushort": lambda b: number(b[4:6]),
    "sshort": lambda b: number(b[4:6], True),
    "dword": lambda b: number(b[4:8]),
}


@pytest.fixture(params=["numpy", "host"])
def run(request):
    """`run(body)` -> (the data each lane wrote as bytes, its v40..v43) after the body."""

    def launch(body):
        out = np.zeros((64, 16), np.uint32)
        device = Device(RunOptions(engine=request.param))
        pointer = struct.pack("<Q", device.map(out))
        device.load(assembled(KERNEL.format(body=body)))["k"].launch(Geometry.of_blocks(1, 64), pointer)
        return [row[:4].tobytes() for row in out], out[:, 4:8].tolist()

    return launch


def target(words):
    return "v40" if words == 1 else f"v[40:{39 + words}]"


@pytest.mark.parametrize("name", LOADS)
def test_loads(run, name):
    data, found = run(f"scratch_load_{name} {target(2 if name == 'dwordx2' else 1)}, off, off offset:37")
    for lane in range(64):
        wanted = LOADS[name](data[lane])
        assert found[lane][: len(wanted)] == wanted, lane


@pytest.mark.parametrize("name", WIDE)
def test_wide_loads(run, name):
    data, found = run(f"v_mov_b32 v2, 32\nscratch_load_{name} {target(WIDE[name])}, v2, off")
    for lane in range(64):
        assert found[lane][: WIDE[name]] == list(struct.unpack_from(f"<{WIDE[name]}I", data[lane]))


@pytest.mark.parametrize("name", STORES)
def test_stores(run, name):
    body = f"s_movk_i32 s8, 30\nscratch_store_{name} off, {target(2 if name == 'dwordx2' else 1)}, s8 offset:7"
    read = "s_waitcnt vmcnt(0)\nscratch_load_dwordx4 v[40:43], off, off offset:32"
    data, found = run(f"{body}\n{read}")
    for lane in range(64):
        assert struct.pack("<4I", *found[lane]) == STORES[name](data[lane]), lane


@pytest.mark.parametrize("name", TO_LDS)
def test_loads_to_lds(run, name):
    load = f"v_mov_b32 v2, 36\nscratch_load_lds_{name} v2, off\ns_waitcnt vmcnt(0)"
    data, found = run(f"{load}\nv_lshlrev_b32 v3, 2, v0\nds_read_b32 v40, v3")
    for lane in range(64):
        assert found[lane][0] == TO_LDS[name](data[lane]), lane
