"""The kernel descriptor against LLVM's assembler, one directive at a time."""

import dataclasses

import pytest
from llvm_tools import assembled, kernel_source

from emu.code_object import load
from emu.kernel_descriptor import decode_descriptor

RAW = ("rsrc1", "rsrc2", "rsrc3", "properties", "entry_offset")
DIRECTIVES = [
    ("group_segment_fixed_size 163840", {"group_segment": 163840}),
    ("private_segment_fixed_size 1236", {"private_segment": 1236}),
    ("kernarg_size 77", {"kernarg_size": 77}),
    ("user_sgpr_count 11", {"user_sgpr_count": 11}),
    ("user_sgpr_dispatch_ptr 1", {"dispatch_ptr": True, "user_sgpr_count": 2}),
    ("user_sgpr_queue_ptr 1", {"queue_ptr": True, "user_sgpr_count": 2}),
    ("user_sgpr_kernarg_segment_ptr 1", {"kernarg_segment_ptr": True, "user_sgpr_count": 2}),
    ("user_sgpr_dispatch_id 1", {"dispatch_id": True, "user_sgpr_count": 2}),
    ("user_sgpr_private_segment_size 1", {"private_segment_size": True, "user_sgpr_count": 1}),
    ("user_sgpr_kernarg_preload_length 9", {"kernarg_preload_length": 9, "user_sgpr_count": 9}),
    ("user_sgpr_kernarg_preload_offset 5", {"kernarg_preload_offset": 5}),
    ("uses_dynamic_stack 1", {"uses_dynamic_stack": True}),
    ("enable_private_segment 1", {"enable_private_segment": True}),
    ("system_sgpr_workgroup_id_x 0", {"enable_workgroup_id_x": False}),
    ("system_sgpr_workgroup_id_y 1", {"enable_workgroup_id_y": True}),
    ("system_sgpr_workgroup_id_z 1", {"enable_workgroup_id_z": True}),
    ("system_sgpr_workgroup_info 1", {"enable_workgroup_info": True}),
    ("system_vgpr_workitem_id 1", {"workitem_id": 1}),
    ("system_vgpr_workitem_id 2", {"workitem_id": 2}),
    ("next_free_vgpr 512", {"vgprs": 512}),
    ("next_free_vgpr 137", {"vgprs": 144}),
    ("next_free_sgpr 40", {"sgprs": 48}),
    ("next_free_sgpr 96", {"sgprs": 112}),
    ("accum_offset 256\n.amdhsa_next_free_vgpr 300", {"accum_offset": 256, "vgprs": 304}),
    ("accum_offset 12\n.amdhsa_next_free_vgpr 16", {"accum_offset": 12, "vgprs": 16}),
    ("tg_split 1", {"tg_split": True}),
    ("float_round_mode_32 2", {"float_round_32": 2}),
    ("float_round_mode_16_64 3", {"float_round_16_64": 3}),
    ("float_denorm_mode_32 1", {"float_denorm_32": 1}),
    ("float_denorm_mode_16_64 2", {"float_denorm_16_64": 2}),
    ("dx10_clamp 0", {"dx10_clamp": False}),
    ("ieee_mode 0", {"ieee": False}),
    ("fp16_overflow 1", {"fp16_ovfl": True}),
    ("exception_fp_ieee_invalid_op 1", {"exceptions": 1}),
    ("exception_fp_denorm_src 1", {"exceptions": 2}),
    ("exception_fp_ieee_div_zero 1", {"exceptions": 4}),
    ("exception_fp_ieee_overflow 1", {"exceptions": 8}),
    ("exception_fp_ieee_underflow 1", {"exceptions": 16}),
    ("exception_fp_ieee_inexact 1", {"exceptions": 32}),
    ("exception_int_div_zero 1", {"exceptions": 64}),
]


def descriptor_of(directives: str) -> dict:
    fields = dataclasses.asdict(load(assembled(kernel_source(directives))).kernel().descriptor)
    return {name: value for name, value in fields.items() if name not in RAW}


@pytest.fixture(scope="module")
def plain_descriptor():
    return descriptor_of("")


@pytest.mark.parametrize(("directive", "changes"), DIRECTIVES, ids=[d for d, _ in DIRECTIVES])
def test_each_assembler_directive_changes_exactly_its_fields(directive, changes, plain_descriptor):
    found = descriptor_of(f".amdhsa_{directive}")
    assert {name: value for name, value in found.items() if value != plain_descriptor[name]} == changes


def test_the_assembler_defaults_are_decoded(plain_descriptor):
    expected = {"vgprs": 8, "accum_offset": 4, "sgprs": 16, "float_round_32": 0, "float_denorm_32": 0}
    expected |= {"float_denorm_16_64": 3, "dx10_clamp": True, "ieee": True, "enable_workgroup_id_x": True}
    assert {name: plain_descriptor[name] for name in expected} == expected
    with pytest.raises(ValueError, match="has 64 bytes, not 63"):
        decode_descriptor(bytes(63))
