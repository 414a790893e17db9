"""The kernel descriptor: 64 bytes that set the registers, modes and preloaded values of a launch."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gfx950.evidence import Evidence, rule

rule(
    "code_object.descriptor",
    Evidence.spec,
    "LLVM AMDGPUUsage, 'Kernel Descriptor'; every field checked against LLVM's assembler",
    "The bits of the kernel descriptor set the registers, modes and preloaded values of a launch.",
)

DESCRIPTOR_BYTES = 64


@dataclass(frozen=True)
class KernelDescriptor:
    """The 64-byte kernel descriptor, decoded. Sizes in bytes; `vgprs` and `sgprs` are allocated counts.

    vgprs counts the unified file: v registers below `accum_offset`, a registers from there on.
    float_round_* are 0 nearest even, 1 up, 2 down, 3 to zero; float_denorm_* bit 0 keeps inputs, bit 1 keeps outputs.
    exceptions is the MODE.EXCP_EN field: bit 0 invalid, 1 denormal input, 2 division by zero, 3 overflow, 4 underflow,
    5 inexact, 6 integer division by zero, 7 address watch, 8 memory violation.
    workitem_id: 0 packs x into VGPR0, 1 x and y, 2 x, y and z. kernarg_preload_* are counted in dwords.
    """

    group_segment: int
    private_segment: int
    kernarg_size: int
    entry_offset: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    vgprs: int
    accum_offset: int
    tg_split: bool
    sgprs: int
    float_round_32: int
    float_round_16_64: int
    float_denorm_32: int
    float_denorm_16_64: int
    dx10_clamp: bool
    ieee: bool
    fp16_ovfl: bool
    exceptions: int
    enable_private_segment: bool
    user_sgpr_count: int
    enable_workgroup_id_x: bool
    enable_workgroup_id_y: bool
    enable_workgroup_id_z: bool
    enable_workgroup_info: bool
    workitem_id: int
    private_segment_buffer: bool
    dispatch_ptr: bool
    queue_ptr: bool
    kernarg_segment_ptr: bool
    dispatch_id: bool
    flat_scratch_init: bool
    private_segment_size: bool
    wave32: bool
    uses_dynamic_stack: bool
    kernarg_preload_length: int
    kernarg_preload_offset: int


def _bits(word: int, low: int, count: int = 1) -> int:
    return (word >> low) & ((1 << count) - 1)


def decode_descriptor(data: bytes) -> KernelDescriptor:
    """Decodes the 64 bytes of a kernel descriptor. Raises ValueError for another length."""
    if len(data) != DESCRIPTOR_BYTES:
        raise ValueError(f"a kernel descriptor has {DESCRIPTOR_BYTES} bytes, not {len(data)}")
    group, private, kernarg, entry = struct.unpack_from("<III4xq", data)
    rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", data, 44)
    return KernelDescriptor(
        group_segment=group,
        private_segment=private,
        kernarg_size=kernarg,
        entry_offset=entry,
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=rsrc3,
        properties=properties,
        vgprs=8 * (_bits(rsrc1, 0, 6) + 1),
        accum_offset=4 * (_bits(rsrc3, 0, 6) + 1),
        tg_split=bool(_bits(rsrc3, 16)),
        sgprs=16 * (_bits(rsrc1, 6, 4) // 2 + 1),
        float_round_32=_bits(rsrc1, 12, 2),
        float_round_16_64=_bits(rsrc1, 14, 2),
        float_denorm_32=_bits(rsrc1, 16, 2),
        float_denorm_16_64=_bits(rsrc1, 18, 2),
        dx10_clamp=bool(_bits(rsrc1, 21)),
        ieee=bool(_bits(rsrc1, 23)),
        fp16_ovfl=bool(_bits(rsrc1, 26)),
        exceptions=_bits(rsrc2, 24, 7) | _bits(rsrc2, 13, 2) << 7,
        enable_private_segment=bool(_bits(rsrc2, 0)),
        user_sgpr_count=_bits(rsrc2, 1, 5),
        enable_workgroup_id_x=bool(_bits(rsrc2, 7)),
        enable_workgroup_id_y=bool(_bits(rsrc2, 8)),
        enable_workgroup_id_z=bool(_bits(rsrc2, 9)),
        enable_workgroup_info=bool(_bits(rsrc2, 10)),
        workitem_id=_bits(rsrc2, 11, 2),
        private_segment_buffer=bool(_bits(properties, 0)),
        dispatch_ptr=bool(_bits(properties, 1)),
        queue_ptr=bool(_bits(properties, 2)),
        kernarg_segment_ptr=bool(_bits(properties, 3)),
        dispatch_id=bool(_bits(properties, 4)),
        flat_scratch_init=bool(_bits(properties, 5)),
        private_segment_size=bool(_bits(properties, 6)),
        wave32=bool(_bits(properties, 10)),
        uses_dynamic_stack=bool(_bits(properties, 11)),
        kernarg_preload_length=_bits(preload, 0, 7),
        kernarg_preload_offset=_bits(preload, 7, 9),
    )
