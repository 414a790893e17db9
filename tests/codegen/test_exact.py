"""Exact instructions: LLVM emits just the one asked for, and the source's bits are the machine code's."""

import re

import numpy as np
import pytest

from codegen.compile import compile_kernels
from codegen.ir import Argument, VerifyError
from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    Kernel,
    Pointer,
    barrier,
    clock,
    constant,
    exact,
    kernel,
    lane_id,
    lds_write,
    load,
    loop,
    masked,
    set_mode,
    set_mode_register,
    store,
    thread_id,
    trace,
)
from codegen.machine_text import unusable
from codegen.run_source import run_source
from emu import code_object
from emu.dispatch import Device, RunOptions
from gfx950.isa.registry import load as load_registry
from gfx950.isa.vop1 import v_exp_f32
from gfx950.lanes import in_registers, registers_of, split
from tests.codegen.exact_kernels import Form, code_lines, over_registers, plain, random_words

VECTORS = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P", "MAI", "MAI_SCALE")
# What cannot be an exact instruction of a kernel, by the reason.
LEFT_OUT = {
    "they move a-registers, which kernels do not use": {
        "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32",
    },
    "they have no result": {"v_nop", "v_clrexcp", "v_mfma_ld_scale_b32"},
    "they write EXEC": {name for name in load_registry() if name.startswith("v_cmpx_")},
}  # fmt: skip
ALSO_OF_LLVM = {
    "v_lshrrev_b64", "v_lshlrev_b32", "v_and_b32", "v_cmp_eq_u32", "v_cmp_ne_u32", "v_cndmask_b32", "v_mov_b32",
    "v_readfirstlane_b32",
}  # fmt: skip
NAMES = [
    name
    for name, instruction in load_registry().items()
    if instruction.encoding in VECTORS and not any(name in names for names in LEFT_OUT.values())
]


def exact_lines(lines, form):
    """What stands between the waits of exact instructions, registers replaced by their widths.

    LLVM's own code may use a mnemonic too (a shift, for an address).
    """
    before, after = form.plan.waits
    found = [
        n
        for n in range(len(before), len(lines) - len(after))
        if tuple(lines[n - len(before) : n]) == before and tuple(lines[n + 1 : n + 1 + len(after)]) == after
    ]
    of_this = [line for line in lines if plain(line.split()[0]) == form.name]
    assert len(of_this) == 1 or form.name in ALSO_OF_LLVM, of_this
    return [over_registers(lines[n]) for n in found]


def check(forms, engine="numpy"):
    """Compiles all forms in one module; each has one such instruction, and its bits are those of the source."""
    labelled = {f"k{number}": form for number, form in enumerate(forms)}
    programs = {label: form.program(label) for label, form in labelled.items()}
    compiled = compile_kernels(list(programs.values()))
    loaded = code_object.load(compiled.object)
    module = Device(RunOptions(engine=engine)).load(compiled.object)
    for label, form in labelled.items():
        assert exact_lines(code_lines(loaded, label), form) == [over_registers(form.plan.text)], form.name
        given = random_words(np.random.default_rng(len(form.name)), form.words_in)
        source, machine = (np.zeros((form.words_out, 64), np.uint32) for _ in range(2))
        run_source(programs[label], (1,), [given, source])
        module[label][1, 64](given, machine)
        np.testing.assert_array_equal(source, machine, err_msg=f"{form.name} {form.fields} {form.extra}")


def test_every_vector_instruction_is_emitted_or_left_out_for_a_reason():
    for name, instruction in load_registry().items():
        if instruction.encoding in VECTORS:
            assert bool(unusable(instruction)) == any(name in names for names in LEFT_OUT.values()), name


@pytest.mark.parametrize("part", range(4))
def test_every_instruction(part):
    check([Form(name) for name in NAMES[part::4]])


FORMS = [
    ("v_add_f32", {"neg": 0b01, "abs": 0b10, "clamp": 1}),
    ("v_mul_f16", {"neg": 0b10}),
    ("v_fma_f64", {"neg": 0b101, "abs": 0b010}),
    ("v_fma_f16", {"op_sel": 0b1010}),
    ("v_mad_u16", {"op_sel": 0b0101, "clamp": 1}),
    ("v_cvt_f32_fp8", {}, "src0_sel:BYTE_2"),
    ("v_cvt_pk_fp8_f32", {"op_sel": 0b1000}),
    ("v_cvt_sr_bf8_f32", {"op_sel": 0b1100}),
    ("v_cvt_f16_f32", {}, "dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD"),
    ("v_add_f32", {}, "row_shr:1 row_mask:0xf bank_mask:0x5"),
    ("v_add_f32", {"neg": 1}, "quad_perm:[3,1,0,2] row_mask:0x7 bank_mask:0xf bound_ctrl:1"),
    ("v_exp_f32", {}, "row_newbcast:3 row_mask:0xf bank_mask:0xf"),
    ("v_addc_co_u32", {}, "quad_perm:[0,1,2,2]"),
    ("v_pk_fma_f32", {"op_sel": 0b010, "op_sel_hi": 0b01, "neg": 0b001, "neg_hi": 0b100}),
    ("v_pk_add_f16", {"op_sel": 0b01, "op_sel_hi": 0b10, "clamp": 1}),
    ("v_fma_mix_f32", {"op_sel": 0b010, "op_sel_hi": 0b11}),
    ("v_cvt_scalef32_pk_f32_fp4", {"op_sel": 0b11}),
    ("v_cvt_scalef32_pk_fp4_f32", {"op_sel": 0b1000}),
    ("v_bitop3_b32", {"neg": 0b101, "abs": 0b011, "omod": 2}),
    ("v_mfma_f32_32x32x4_2b_f16", {"cbsz": 1, "abid": 1, "blgp": 2}),
    ("v_mfma_f32_4x4x4_16b_bf16", {"cbsz": 3, "abid": 5, "blgp": 4}),
    ("v_mfma_f64_16x16x4_f64", {"blgp": 0b101}),
    ("v_smfmac_f32_16x16x32_f16", {"cbsz": 0, "abid": 2}),
    ("v_mfma_f32_32x32x64_f8f6f4", {"cbsz": 2, "blgp": 4}),
    ("v_mfma_scale_f32_16x16x128_f8f6f4", {"cbsz": 4, "blgp": 3, "scale_op_sel": 0b01, "scale_op_sel_hi": 0b10}),
    ("v_fmamk_f32", {"literal": 0x40490FDB}),
    ("v_permlane32_swap_b32", {}),
    ("ds_swizzle_b32", {"offset": 0x8039}),
    ("ds_swizzle_b32", {"offset": 0x5155}),  # BITMASK_PERM, whose text has quotes
    ("ds_bpermute_b32", {"offset": 12}),
    ("ds_permute_b32", {"offset": 12}),
]


def test_modifiers():
    check([Form(*form) for form in FORMS])


@pytest.mark.parametrize("mask", [0x00FF_3333_0F0F_0001, 0])
def test_under_a_mask_the_other_lanes_keep_their_registers(mask):
    names = ["v_exp_f32", "v_mul_f16", "v_add_f64", "v_cvt_pk_fp8_f32", "v_mad_u64_u32", "v_swap_b32"]
    names += ["v_permlane16_swap_b32", "v_mfma_f32_4x4x1_16b_f32", "v_smfmac_i32_16x16x64_i8", "v_div_fmas_f32"]
    names += ["v_cvt_scalef32_pk32_f16_fp6", "v_pk_mul_f32", "v_cmp_lt_f32", "ds_bpermute_b32"]
    check([Form(name, mask=mask) for name in names])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_every_instruction_under_a_mask_translated(part):
    check([Form(name, mask=0x8001_7FFE_1234_5678) for name in NAMES[part::4]], engine="host")


def test_masked_keeps_what_it_is_given():
    @kernel(block=64)
    def half(out: Pointer) -> None:
        made = masked(lane_id() < 32, load_registry()["v_mul_f32"], 7, constant(F32, 3.0), constant(F32, 0.5))
        store(out + lane_id().to(U64) * 4, made.bits(U32))

    for result in both(half, [], 64):
        np.testing.assert_array_equal(result, np.repeat(np.array([0x3FC00000, 7], np.uint32), 32))


def traced(body):
    """The program of a kernel without arguments, its body's value left out."""

    def k():
        body()

    return trace(kernel(block=64)(k))


def both(made, arrays, words, *scalars):
    """The words of a source run and of the machine."""
    program = trace(made)
    outputs = [np.zeros(words, np.uint32) for _ in range(2)]
    run_source(program, (1,), [*arrays, outputs[0], *scalars])
    compiled = compile_kernels([program])
    Device().load(compiled.object)[program.name][1, program.block](*arrays, outputs[1], *scalars)
    return outputs


# ---- MODE ------------------------------------------------------------------------------------------------------------

OF_MODE = ["v_add_f32", "v_mul_f16", "v_add_f64", "v_cvt_f16_f32", "v_cvt_f32_f64", "v_exp_f32", "v_pk_mul_f16"]
OF_MODE += ["v_cvt_pk_fp8_f32", "v_fma_f32", "v_rcp_f32", "v_mfma_f32_4x4x1_16b_f32"]


@pytest.mark.parametrize("mode", [0xF0, 0xF1, 0xFA, 0x0F, 0x50, 0xA0, 0x8000F3])
def test_the_mode_of_an_argument(mode):
    forms = [Form(name) for name in OF_MODE]
    given = random_words(np.random.default_rng(mode), max(form.words_in for form in forms))
    given[:, ::3] &= 0x807FFFFF  # denormals
    made = [under_mode(form) for form in forms]
    for form, kernel_of in zip(forms, made, strict=True):
        source, machine = both(kernel_of, [given], 64 * form.words_out, mode)
        np.testing.assert_array_equal(source, machine, err_msg=form.name)


def under_mode(form):
    """The form's kernel with MODE from an argument."""

    def body(a, out, mode):
        set_mode_register(mode)
        form.body(a, out)

    arguments = (Argument("a", U64, True), Argument("out", U64, True), Argument("mode", U32))
    return Kernel(body, "k", arguments, 64, 0)


def test_nothing_moves_across_a_change_of_mode():
    @kernel(block=64)
    def rounds(out: Pointer) -> None:
        at = out + lane_id().to(U64) * 4
        one, tiny = constant(F32, 1.0), constant(F32, 2.0**-40)
        for code in range(4):
            set_mode(round32=code)
            store(at + 512 * code, exact(load_registry()["v_add_f32"], one, tiny).bits(U32))
            store(at + 512 * code + 256, exact(load_registry()["v_sub_f32"], one, tiny).bits(U32))

    program = trace(rounds)
    loaded = code_object.load(compile_kernels([program]).object)
    names = [plain(line.split()[0]) for line in code_lines(loaded, "rounds")]
    kept = [name for name in names if name in ("s_setreg_b32", "v_add_f32", "v_sub_f32")]
    assert kept == ["s_setreg_b32", "s_setreg_b32", "v_add_f32", "v_sub_f32"] * 4
    one, above, below = 0x3F800000, 0x3F800001, 0x3F7FFFFF
    for result in both(rounds, [], 512):
        assert result.reshape(8, 64)[:, 0].tolist() == [one, one, above, one, one, below, one, below]


def test_float_operators_are_refused_where_mode_is_set():
    def refused(body, message):
        with pytest.raises(VerifyError, match=message):
            trace(kernel(block=64)(body))

    def operator(out: Pointer) -> None:
        set_mode(round32=1)
        store(out, (load(out).bits(F32) + 1.0).bits(U32))

    def earlier(out: Pointer) -> None:
        store(out, v_exp_f32(load(out)).bits(U32))
        set_mode(round32=1)

    refused(operator, r"op `fadd` depends on MODE, which this kernel changes")
    refused(earlier, r"op `inst` depends on MODE.*under @kernel\(exact=True\), or by exact")


@pytest.mark.parametrize(("fields", "message"), [({"round32": 4}, "round32=4"), ({"fp16_ovfl": 2}, "fp16_ovfl=2")])
def test_mode_fields_are_checked(fields, message):
    with pytest.raises(ValueError, match=message):
        traced(lambda: set_mode(**fields))


# ---- LDS, the clock, loops -------------------------------------------------------------------------------------------

TRANSPOSED = ["ds_read_b64_tr_b4", "ds_read_b96_tr_b6", "ds_read_b64_tr_b8", "ds_read_b64_tr_b16"]


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposing_reads_of_lds(name, exactly):
    @kernel(block=128, lds=4096, exact=exactly)
    def transposed(a: Pointer, out: Pointer) -> None:
        thread = thread_id()
        for part in range(8):
            lds_write(thread * 4 + 512 * part, load(a + thread.to(U64) * 4 + 512 * part))
        barrier()
        words = registers_of(load_registry()[name](thread * 16, offset=32))
        for index, word in enumerate(words):
            store(out + thread.to(U64) * 4 + 512 * index, word)

    given = np.random.default_rng(5).integers(0, 1 << 32, 1024, dtype=np.uint32)
    source, machine = both(transposed, [given], 384)
    assert source.any()
    np.testing.assert_array_equal(source, machine)
    assert compile_kernels([trace(transposed)]).resources["transposed"].instructions[name] == 1


def test_a_transposing_read_needs_lds():
    with pytest.raises(VerifyError, match=r"uses LDS, but the kernel has none"):
        traced(lambda: load_registry()["ds_read_b64_tr_b8"](lane_id(), offset=0))


def test_the_clock_grows():
    @kernel(block=64)
    def clocks(out: Pointer) -> None:
        before = clock()
        store(out, *split(before))
        after = clock()
        store(out + 8, *split(after))

    for result in both(clocks, [], 4):
        before, after = result.view(np.uint64)
        assert after > before


def test_a_digest_over_a_loop():
    @kernel(block=64, exact=True)
    def digests(out: Pointer, trips: I32) -> None:
        @loop(0, trips, carry=(constant(U64, 0xCBF29CE484222325),))
        def digest(i, so_far):
            bits = load_registry()["v_add_u32"](i, lane_id())
            return (so_far ^ bits.to(U64)) * 1099511628211

        store(out + lane_id().to(U64) * 8, *split(digest[0]))

    wanted = 0xCBF29CE484222325
    for i in range(1000):
        wanted = (wanted ^ i + 9) * 1099511628211 % (1 << 64)
    for result in both(digests, [], 128, 1000):
        assert int(result.view(np.uint64)[9]) == wanted


# ---- intrinsics of matrices ------------------------------------------------------------------------------------------


def test_matrix_intrinsics_need_no_clang(monkeypatch):
    """In ordinary kernels LLVM in this process emits them, with its own waits."""
    monkeypatch.setattr("codegen.clang.find_clang", None)
    names = [
        "v_mfma_f32_32x32x1_2b_f32",
        "v_mfma_f64_4x4x4_4b_f64",
        "v_mfma_i32_16x16x64_i8",
        "v_mfma_f32_4x4x4_16b_bf16",
    ]
    names += ["v_smfmac_f32_32x32x32_bf16", "v_smfmac_i32_32x32x64_i8", "v_smfmac_f32_16x16x64_bf8_fp8"]
    forms = [Form(name) for name in names]
    programs = [form.program(f"k{n}", ordinary=True) for n, form in enumerate(forms)]
    compiled = compile_kernels(programs)
    module = Device(RunOptions(engine="numpy")).load(compiled.object)
    for program, form in zip(programs, forms, strict=True):
        assert all(op.name != "exact" for op in program.operations())
        assert compiled.resources[program.name].instructions[form.name] == 1
        given = random_words(np.random.default_rng(3), form.words_in)
        source, machine = (np.zeros((form.words_out, 64), np.uint32) for _ in range(2))
        run_source(program, (1,), [given, source])
        module[program.name][1, 64](given, machine)
        np.testing.assert_array_equal(source, machine, err_msg=form.name)


def test_exact_instructions_wait_longer_for_matrix_intrinsics():
    """A result of 16 passes takes 20 wait states to where a vector or LDS instruction may read it."""

    @kernel(block=64, lds=4096)
    def after_matrix(a: Pointer, out: Pointer) -> None:
        words = [load(a + lane_id().to(U64) * 4 + 256 * n) for n in range(34)]
        names = load_registry()
        factors = (word.bits(F32) for word in words[:2])
        product = names["v_mfma_f32_32x32x1_2b_f32"](*factors, in_registers(words[2:]), cbsz=0, abid=0, blgp=0)
        first, second = registers_of(product)[:2]
        store(out, exact(names["v_exp_f32"], first.bits(F32)).bits(U32))
        store(out + 4, exact(names["ds_bpermute_b32"], first, second, offset=0))

    program = trace(after_matrix)
    lines = code_lines(code_object.load(compile_kernels([program]).object), "after_matrix")
    for name in ("v_exp_f32", "ds_bpermute_b32"):
        at = next(n for n, line in enumerate(lines) if plain(line.split()[0]) == name)
        assert lines[at - 2 : at] == ["s_nop 15", "s_nop 15"], lines[at - 4 : at + 1]


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("v_cmpx_eq_u32", {}, "v_cmpx_eq_u32 uses EXEC as a destination"),
        ("v_accvgpr_read_b32", {}, "uses a-registers, which kernels do not use"),
        ("v_nop", {}, "v_nop steers the wave"),
        ("s_mov_b32", {}, "is no vector instruction"),
        ("v_add_f32", {"extra": "row_shr:1 src0_sel:BYTE_0"}, "v_add_f32 has no form with row_shr:1 src0_sel:BYTE_0"),
        ("v_add_f32", {"extra": "row_shr:16"}, "row_shr must be 1..15"),
        ("v_add_f32", {"extra": "bound_ctrl:1"}, "v_add_f32_dpp needs one of quad_perm:"),
        ("v_cvt_f16_f32", {"op_sel": 8}, "has other bits"),
        ("v_add_f32", {"cbsz": 1}, "v_add_f32 has no field cbsz in its VOP3 form"),
        ("v_add_f32", {"neg": 1.0}, "field `neg` is static"),
        ("v_add_f32", {"vdst": 1}, "unexpected or repeated operand `vdst`"),
        ("v_add_f32", {"old": (1, 2)}, "operand `old` is U32 or a whole register, got tuple"),
    ],
)
def test_what_is_refused(name, fields, message):
    instruction = load_registry()[name]
    operands = [1.0] * len([p for p in instruction.parameters if p.name.startswith("src")])
    with pytest.raises(TypeError, match=re.escape(message)):
        traced(lambda: exact(instruction, *operands, **fields))


def test_operands_are_registers():
    def refuse(name, make, message):
        with pytest.raises(TypeError, match=message):
            traced(lambda: exact(load_registry()[name], *make()))

    refuse("v_add_f32", lambda: (1.0,), "v_add_f32 is missing src1")
    refuse("v_add_f32", lambda: (1.0, 2.0, 3.0), "takes 2 operands, got 3")
    refuse("v_add_f32", lambda: (1.0, constant(U64, 1)), "operand `src1` is F32 or a whole register, got U64")
    refuse("v_add_f64", lambda: (1.0, constant(U32, 1)), "operand `src1` is 2 registers, got U32")
    refuse("v_mfma_f32_4x4x1_16b_f32", lambda: (1, 1, [0] * 3), "operand `src2` is 4 registers, got list")
    with pytest.raises(TypeError, match="v_swap_b32 has 0 results whose old value can be given, got 1"):
        traced(lambda: exact(load_registry()["v_swap_b32"], 1, 2, old=3))
    refuse("v_cndmask_b32", lambda: (1, 2, 3), "operand `carry_in` is a Mask, got int")
    with pytest.raises(TypeError, match=r"expected an instruction of gfx950\.isa, got 'v_add_f32'"):
        traced(lambda: exact("v_add_f32", 1.0, 1.0))
