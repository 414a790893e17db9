"""Kernels that use everything a dump must save and everything that can stand at a point, and how to look at them."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from kernel_builds import HEADER
from llvm_tools import assembled, compiled, linked

from emu.dispatch import RunOptions
from emu.geometry import Geometry
from emu.instrument import Point
from emu.instrument_registers import Registers, layout_of
from emu.instrument_run import Job, run
from emu.observers import Observer
from gfx950.isa.mode_registers import MODE
from gfx950.isa.operand_codes import EXEC, M0, VCC

C_SOURCE = """
KERNEL loops(GLOBAL u32 *out, u32 n) {
  u32 i = GROUP * 128 + ITEM, x = i * 3;
  for (u32 j = 0; j < (i & 7) + n; j++) x = x & 1 ? x * 1664525u + j : x / (j + 3) ^ 0xdeadbeef;
  out[i] = x;
}
KERNEL shared(GLOBAL u32 *out, u32 n) {
  SHARED(u32, box, 128);
  u32 sum = 0;
  for (u32 round = 0; round < n; round++) {
    box[ITEM] = ITEM * 7 + round; BARRIER();
    sum += box[ITEM ^ 65] * (round + 1); BARRIER();
  }
  out[GROUP * 128 + ITEM] = sum;
}
typedef u32 (*function)(u32);
__attribute__((noinline)) static u32 twice(u32 x) { return x < 9 ? x * 2 : twice(x - 9) + 5; }
__attribute__((noinline)) static u32 other(u32 x) { return x ^ twice(x & 15); }
KERNEL calls(GLOBAL u32 *out, u32 n) {
  function table[2] = {twice, other};
  u32 words[8]; for (u32 k = 0; k < 8; k++) words[k] = k * n + ITEM;
  out[GROUP * 128 + ITEM] = table[n & 1](ITEM & 31) + words[ITEM & 7] + twice(n);
}
KERNEL no_ids(GLOBAL u32 *out, u32 n) { out[ITEM] = ITEM * n + 5; }
KERNEL three(GLOBAL u32 *out, u32 n) {
  u32 y = __builtin_amdgcn_workitem_id_y(), z = __builtin_amdgcn_workitem_id_z();
  u32 gy = __builtin_amdgcn_workgroup_id_y(), at = ((z * 5 + y) * 7 + ITEM);
  double d = at + 0.25; for (u32 k = 0; k < n; k++) d = d * 1.5 / (d + 3.0);
  out[gy * 105 + at] = (u32)(d * 1e6);
}
KERNEL only_x(GLOBAL u32 *out, u32 n) { out[__builtin_amdgcn_workgroup_id_z() * 7 + ITEM] = n + ITEM; }
"""

METADATA = """
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: 12
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 32
    .vgpr_count: {vgprs}
    .max_flat_workgroup_size: {items}
    .args:
      - {{.name: out, .size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}}
      - {{.name: n, .size: 4, .offset: 8, .value_kind: by_value}}
...
.end_amdgpu_metadata
"""

ENDING = """
  v_lshlrev_b32 v2, 2, v1
  s_waitcnt lgkmcnt(0)
  global_store_dword v2, v3, s[4:5]
  s_endpgm
"""
BEGINNING = """
  s_load_dwordx2 s[4:5], s[0:1], 0
  s_load_dword s6, s[0:1], 8
  s_lshl_b32 s7, s2, 7
  v_add_u32_e32 v1, s7, v0
"""

# Every kind of instruction whose meaning depends on where it stands, both ways of every branch.
PLACES = (
    BEGINNING
    + """
  s_mov_b32 s8, 0
  s_waitcnt lgkmcnt(0)
  v_mov_b32_e32 v3, 0x12345678
loop:
  s_call_b64 s[10:11], function
  s_getpc_b64 s[12:13]
near:
  s_add_u32 s12, s12, function-near
  s_addc_u32 s13, s13, 0
  s_swappc_b64 s[10:11], s[12:13]
  s_cmp_eq_u32 s8, 1
  s_cbranch_scc1 one
  v_xor_b32_e32 v3, 0xabcdef, v3
one:
  s_cselect_b32 s14, 3, 4
  v_cmp_lt_u32_e32 vcc, 5, v0
  s_cbranch_vccz none
  v_cndmask_b32_e32 v3, v3, v1, vcc
none:
  s_cbranch_vccnz some
  v_add_u32_e32 v3, 1, v3
some:
  v_cmp_gt_u32_e64 s[16:17], s8, v0
  s_and_saveexec_b64 s[18:19], s[16:17]
  s_cbranch_execz empty
  v_add_u32_e32 v3, 0x10001, v3
empty:
  s_cbranch_execnz active
  s_nop 0
active:
  s_mov_b64 exec, s[18:19]
  v_mov_b32_dpp v4, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
  v_add_u32_sdwa v3, v4, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
  s_mov_b32 m0, s8
  s_movk_i32 vcc_lo, 0x77
  s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 5
  s_cmp_lg_u32 s8, 0
  s_addc_u32 s15, s15, s14
  s_add_u32 s8, s8, 1
  s_cmp_lg_u32 s8, s6
  s_cbranch_scc1 loop
  s_branch over
  s_endpgm
over:
  v_add_u32_e32 v3, s15, v3
"""
    + ENDING
    + """
function:
  v_mul_lo_u32 v3, v3, v1
  s_cbranch_scc0 back
  v_add_u32_e32 v3, 7, v3
back:
  s_setpc_b64 s[10:11]
"""
)

# Matrix instructions right before points, accumulators, a scaled one of 16 bytes.
MATRICES = (
    BEGINNING
    + """
  v_cvt_f32_u32_e32 v4, v0
  v_mov_b32_e32 v5, 0x40490fdb
  v_mov_b32_e32 v3, 0
"""
    + "".join(f"  v_accvgpr_write_b32 a{k}, v{4 + k % 2}\n" for k in range(20))
    + "".join(f"  v_mov_b32_e32 v{8 + k}, v{4 + k % 2}\n" for k in range(16))
    + """
  s_nop 4
  v_mfma_f32_32x32x2_f32 a[0:15], v4, v5, a[0:15]
  v_mfma_f32_32x32x2_f32 a[0:15], v5, v4, a[0:15]
  v_mfma_scale_f32_16x16x128_f8f6f4 a[16:19], v[8:15], v[16:23], a[16:19], v4, v5
  s_nop 15
  s_nop 7
"""
    + "".join(f"  v_accvgpr_read_b32 v6, a{k}\n  v_xor_b32_e32 v3, v3, v6\n" for k in (0, 7, 15, 16, 19))
    + ENDING
)

# VGPR indexing and switched-off vector instructions, at points inside and outside.
MODES = (
    BEGINNING
    + "".join(f"  v_add_u32_e32 v{8 + k}, {k}, v0\n" for k in range(4))
    + """
  v_mov_b32_e32 v3, 0
  s_mov_b32 s8, 0
again:
  s_set_gpr_idx_on s8, gpr_idx(SRC0)
  v_mov_b32_e32 v4, v8
  v_mov_b32_e32 v5, v9
  s_set_gpr_idx_off
  v_mad_u32_u24 v3, v3, 5, v4
  v_add_u32_e32 v3, v3, v5
  s_add_u32 s8, s8, 1
  s_setvskip s8, 0
  s_nop 2
  v_add_u32_e32 v3, 0x1000, v3
  s_nop 0
  s_setvskip 0, 0
  s_nop 2
  s_cmp_lt_u32 s8, 3
  s_cbranch_scc1 again
"""
    + ENDING
)


def assembly_kernel(name: str, body: str, items: int = 256, **directives: int) -> bytes:
    """A linked kernel with the arguments (out, n), the kernarg address in s[0:1] and the workgroup's x in s2."""
    wanted = {
        "next_free_vgpr": 24, "accum_offset": 24, "next_free_sgpr": 32, "user_sgpr_kernarg_segment_ptr": 1,
        "system_sgpr_workgroup_id_x": 1, "kernarg_size": 12, **directives,
    }  # fmt: skip
    lines = "".join(f".amdhsa_{key} {value}\n" for key, value in wanted.items())
    lds, vgprs = wanted.get("group_segment_fixed_size", 0), wanted["next_free_vgpr"]
    source = (
        f".text\n.globl {name}\n.p2align 8\n.type {name},@function\n{name}:\n{body}\n.L{name}_end:\n"
        f".size {name}, .L{name}_end-{name}\n.rodata\n.p2align 6\n.amdhsa_kernel {name}\n{lines}.end_amdhsa_kernel\n"
    )
    return linked(assembled(source + METADATA.format(name=name, lds=lds, vgprs=vgprs, items=items)))


@functools.cache
def c_kernels(level: str = "-O1") -> bytes:
    """C_SOURCE, linked."""
    return linked(compiled(HEADER + C_SOURCE, level))


def crowded(body: str) -> str:
    """The same code with every VGPR named, so that none is free."""
    return body.replace("s_endpgm", "v_mov_b32_e32 v255, v254\n s_endpgm")


@functools.cache
def jobs() -> dict[str, Job]:
    """Launches of all kernels, by a name for each."""
    long, one = Geometry.of_blocks(2, 128), np.zeros(1024, np.uint32)
    accumulators = {"next_free_vgpr": 48, "accum_offset": 24}
    made = {name: Job(c_kernels(), name, long, (one, 3)) for name in ("loops", "shared", "calls")}
    made["calls at -O0"] = Job(c_kernels("-O0"), "calls", long, (one, 3))
    preloaded = linked(compiled(HEADER + C_SOURCE, "-O1", "-mllvm", "-amdgpu-kernarg-preload-count=4"))
    made["preloaded"] = Job(preloaded, "loops", long, (one, 3))
    made["no_ids"] = Job(c_kernels(), "no_ids", Geometry.of_blocks(1, 128), (one, 3))
    made["three"] = Job(c_kernels(), "three", Geometry.of_blocks((1, 2, 1), (7, 5, 3)), (one, 2))
    made["only_x"] = Job(c_kernels(), "only_x", Geometry.of_blocks((1, 1, 3), (7, 10, 2)), (one, 3))
    made["places"] = Job(assembly_kernel("places", PLACES), "places", long, (one, 3))
    made["modes"] = Job(assembly_kernel("modes", MODES), "modes", long, (one, 3))
    made["matrices"] = Job(assembly_kernel("matrices", MATRICES, **accumulators), "matrices", long, (one, 3))
    full = {"next_free_vgpr": 280, "accum_offset": 256}
    made["crowded"] = Job(assembly_kernel("crowded", crowded(MATRICES), **full), "crowded", long, (one, 3))
    return made


def registers_of(one, layout) -> Registers:
    """The registers that a dump shows, of a wave on the numpy engine."""
    wave = one.wave
    scalars = [int(word) for word in wave.sgprs]
    return Registers(
        reached=True,
        vgprs=wave.vgprs[: layout.vgprs].copy(),
        agprs=wave.vgprs[256 : 256 + layout.agprs].copy(),
        sgprs=wave.sgprs[: layout.sgprs].copy(),
        vcc=scalars[VCC] | scalars[VCC + 1] << 32,
        exec=scalars[EXEC] | scalars[EXEC + 1] << 32,
        m0=scalars[M0],
        scc=int(wave.scc_bit),
        mode=int(wave.hardware[MODE]),
        entry=one.kernel.entry,
        lds=wave.lds[: layout.lds].copy(),
    )


@dataclass
class Seen(Observer):
    """Every instruction of some waves, with the registers before it. found: by (workgroup, wave), in order: the offset,
    the occurrence and the registers. lds: bytes to keep of it."""

    job: Job
    waves: tuple[tuple[tuple[int, int, int], int], ...]
    lds: int = 0
    found: dict = field(default_factory=dict)
    counts: Counter = field(default_factory=Counter)

    def before(self, one, decoded):
        key = tuple(one.workgroup), one.index
        if key in self.waves:
            offset = decoded.pc - one.kernel.entry
            self.counts[key, offset] += 1
            kept = registers_of(one, layout_of(self.job.code, self.job.kernel, self.lds))
            self.found.setdefault(key, []).append((offset, self.counts[key, offset], kept))


def moments(job: Job, waves, lds: int = 0) -> tuple[list[tuple[Point, Registers]], dict]:
    """All moments of some waves in the plain run on the numpy engine, and the arrays afterwards."""
    seen = Seen(job, tuple(waves), lds)
    done = run(job, None, RunOptions(engine="numpy", observers=(seen,)))
    rows = [(key, *row) for key, rows in seen.found.items() for row in rows]
    return [(Point(offset, nth, group, wave), kept) for (group, wave), offset, nth, kept in rows], done.arrays
