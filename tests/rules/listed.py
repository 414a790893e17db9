"""Rules whose proof is a test elsewhere, what is not kept of others, and rules that nothing can prove, with reasons."""

from __future__ import annotations

_ISA = "tests/gfx950/isa/"
_NO_CACHE = "there are no caches: every access reaches memory at once, in the order of the program and of the schedule"
_NO_FLAGS = "no arithmetic raises an exception flag: TRAPSTS has what a program wrote [rule salu.hardware_registers]"
_NO_HANDLER = "no trap handler runs"
_NO_LIMIT = (
    "the register file is not cut at what a kernel's descriptor asks for: registers past it hold what was put there."
    " A compiler never names them"
)

PROVED: dict[str, tuple[str, ...]] = {
    "RJ-056.2": ("tests/emu/test_wave_start.py::test_enabled_registers_are_packed_in_the_abis_order",),
    "RJ-061": (
        "tests/emu/test_fork.py::test_both_sides_run_once_the_smaller_first",
        "tests/emu/test_fork.py::test_six_deep",
        "tests/emu/test_fork.py::test_inactive_lanes_stay_out",
    ),
    "RJ-062": ("tests/emu/test_mode_registers.py::test_traps_and_halts_end_the_launch_with_an_error",),
    "RJ-016": (_ISA + "test_matrix.py::test_scales_that_are_constants",),
    "RJ-016.2": (_ISA + "test_matrix.py::test_a_scaled_instruction_whose_abid_is_clear_is_two",),
    "RJ-013": ("tests/gfx950/test_mfma_arithmetic.py::test_a_nan_scale_poisons_its_row_or_column_even_over_zeros",),
    "RJ-019": (_ISA + "test_matrix.py::test_operands_that_are_none_are_refused",),
    "RJ-020": (
        _ISA + "test_matrix.py::test_fp16_ovfl_clamps",
        "tests/gfx950/test_mfma_shapes.py::test_i8_is_what_numpy_says",
    ),
    "RJ-021": (_ISA + "test_matrix.py::test_broadcasts_beyond_the_blocks_are_refused",),
    "RJ-022": (
        _ISA + "test_matrix.py::test_sets_of_indices_by_the_table",
        _ISA + "test_matrix.py::test_cbsz_and_abid_choose_the_set_of_indices",
    ),
    "RJ-023": ("tests/gfx950/test_mfma_shapes.py::test_i8_is_what_numpy_says",),
    "RJ-024": (_ISA + "test_matrix.py::test_the_index_is_a_v_register_of_any_number",),
    "RJ-026": (_ISA + "test_matrix.py::test_f32_inputs_honour_mode_and_the_others_do_not",),
    "RJ-027.2": (
        _ISA + "test_smem.py::test_low_bits_of_every_address_part_are_ignored",
        _ISA + "test_smem.py::test_scratch_offsets_count_64_bytes",
    ),
    "RJ-014": ("tests/gfx950/isa/text/test_round_trip.py::test_llvm_assembles_our_text_to_the_same_bytes",),
    "RJ-032.2": (_ISA + "test_buffer_memory.py::test_loads_by_random_descriptors",),
    "RJ-033.2": (_ISA + "test_buffer_formats.py::test_loads_by_instruction",),
    "RJ-040": (_ISA + "test_global.py::test_loads_to_lds",),
    "RJ-090": (
        _ISA + "test_atomics.py::test_floats_in_lds",
        _ISA + "test_atomics.py::test_floats_on_memory_keep_denormals_in_any_mode",
    ),
    "RJ-032": (_ISA + "test_buffer_memory.py::test_loads_by_random_descriptors",),
    "RJ-033": (
        _ISA + "test_buffer_formats.py::test_every_value_of_every_field_loads",
        _ISA + "test_buffer_formats.py::test_loads_by_instruction",
        _ISA + "test_buffer_memory.py::test_switches",
    ),
    "RJ-045.3": ("tests/gfx950/test_lds.py::test_random_addresses_against_a_count_by_hand",),
    "RJ-098": (
        _ISA + "test_vop1_special.py::test_the_screen_table",
        _ISA + "test_vop1_special.py::test_legacy_forms_give_what_the_others_give",
    ),
    "P2.2": ("tests/gfx950/test_layouts.py::test_input_layout_of_one_block_shapes",),
    "P9.1": ("tests/emu/test_engines_agree.py::test_every_instruction_gives_the_same_bits_on_both_engines",),
}

_KEPT_DENORMALS = "but f32 adds in memory keep denormals [rule atomic.memory_denorm]"
NOTES: dict[str, str] = {
    "RJ-066": "but IN_BARRIER is not kept: nobody can read the flag of a wave that waits",
    "RJ-073": "but an odd register or M0 is not diagnosed: the pair begins there",
    "RJ-079": "but 16-bit denormals are kept, as measured [rule valu.dot_float_inputs]",
    "RJ-107": "DX10_CLAMP acts through the clamp bit [rule valu.minimum_maximum_nan]",
    "RJ-082.2": "what is added may carry into the exponent [rule convert.stochastic]",
    "RJ-011": "a scalar scale is taken too",
    "RJ-020": "by FP16_OVFL, as the rule says [rules mfma.overflow, mfma.i8_overflow]",
    "RJ-024": "but pairs of indices out of order are not diagnosed",
    "RJ-026": "the §7.4 reading [rule mfma.f32_denorm]",
    "RJ-032.2": "with a switch: by default SOFFSET counts, as on gfx950 [rule buffer.range_bytes]",
    "RJ-034": "with a switch: by default address bits 1:0 count, as drivers set it [rule buffer.alignment]",
    "RJ-042": _KEPT_DENORMALS,
    "RJ-090": _KEPT_DENORMALS,
    "RJ-050": "but inactive lanes and odd addresses are not diagnosed [rule lds.transpose_exec]",
    "RJ-063": "but the counters are not kept: IB_STS reads 0 [rule salu.hardware_registers]",
    "RJ-065": "there is no checker: every result is there at once",
    "RJ-065.2": "there is no checker: every result is there at once",
    "RJ-025": "there is no checker: every result is there at once",
    "RJ-006": "there is no checker: every result is there at once",
    "RJ-098": "they run [rules valu.screen_partition, transcendental.legacy]",
}

REASONS: dict[str, str] = {
    "RJ-055": f"{_NO_HANDLER}: S_TRAP 2 ends the launch with an error, S_TRAP 3 does nothing [rule salu.trap]",
    "RJ-055.2": _NO_FLAGS,
    "S1.1": _NO_LIMIT,
    "RJ-069": _NO_LIMIT,
    "RJ-017": "[C], and LLVM's assembler writes no modifier of C: NEG and ABS of the prefix are not read",
    "RJ-026.2": _NO_FLAGS,
    "RJ-029.2": "a diagnostic of code that compilers write: LLVM loads over its own base; the base is read first",
    "RJ-031": _NO_CACHE,
    "RJ-036": _NO_CACHE,
    "RJ-039.3": "the Linux driver sets 64-bit addresses; the manual has no rules for the others",
    "RJ-119": f"{_NO_CACHE}, which the relaxed model allows",
}
