"""P13: which lane each lane's data comes from, where rows are swapped, shifted, pulled and pushed, under patterns of
EXEC, and what becomes of lanes that are not active or get nothing.

Operands say of which lane they are, old registers too, so that an output reads as a map of lanes. DPP on compares and
on 64-bit operands but for row_newbcast is not asked: the first have masks for results, the others do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from codegen.kernels.probes.lane_forms import Form, Words, forms_step, lane_ids, under_patterns
from codegen.kernels.probes.lds import transposes
from codegen.kernels.probes.probe import Probe, Size, Step
from gfx950.lanes import LANES

SOURCE, OLD, SECOND = 0x100, 0x200, 0x300  # what registers hold, the lane added
SHIFTS = range(1, 16)
# DPP's controls by the step that asks them.
CONTROLS = {
    "quad_perm": [f"quad_perm:[{quad}]" for quad in ("0,1,2,3", "3,2,1,0", "1,1,3,0", "2,0,0,2", "3,3,3,3", "0,0,1,1")],
    **{f"row_{kind}": [f"row_{kind}:{n}" for n in SHIFTS] for kind in ("shl", "shr", "ror")},
    "wave": ["wave_shl:1", "wave_rol:1", "wave_shr:1", "wave_ror:1"],
    "mirror": ["row_mirror", "row_half_mirror"],
    "broadcast": ["row_bcast:15", "row_bcast:31"],
    "newbcast": [f"row_newbcast:{n}" for n in range(16)],
}
ALL_ROWS = "row_mask:0xf bank_mask:0xf"
SOME_ROWS = [
    f"row_mask:{rows:#x} bank_mask:{banks:#x}"
    for rows, banks in ((0xA, 0xF), (0x5, 0xF), (0xF, 0x5), (0xF, 0x6), (0x3, 0xC), (0x0, 0xF))
]
MASKED_CONTROLS = ["quad_perm:[1,1,3,0]", "row_shl:3", "row_shr:1", "row_ror:5", "wave_shr:1", "wave_rol:1",
                   "row_mirror", "row_bcast:15", "row_bcast:31", "row_newbcast:6"]  # fmt: skip
# DS_SWIZZLE's offsets by the step that asks them; those of "bits" are xor, or and and masks of 5 bits each.
SWIZZLES = {
    "quads": [0x8000 | n for n in (0xE4, 0x1B, 0x4E, 0xB1, 0x00, 0xFF, 0x93, 0x39)],
    "fft": [0xE000 | n for n in (0, 1, 2, 3, 4, 7, 8, 15, 16, 21, 27, 30, 31)] + [0xE020, 0xFFE0],
    "rotate": [0xC000 | way << 10 | n << 5 | mask
               for way in (0, 1) for n, mask in ((0, 0), (1, 0), (5, 0), (16, 0), (31, 0), (1, 16), (3, 24), (2, 5))],
    "bits": [0x001F, 0x041F, 0x081F, 0x101F, 0x401F, 0x7C1F, 0x0000, 0x03E0, 0x0010, 0x001C, 0x0018, 0x00F8, 0x5155,
             0x2B4D],
}  # fmt: skip


def dpp(size: Size) -> Iterator[Step]:
    """Every control of DPP with both bound_ctrl; some of them under masks of rows and banks and in an instruction of
    two operands."""
    moves = under_patterns([lane_ids(SOURCE), lane_ids(OLD)])
    for name, controls in CONTROLS.items():
        yield forms_step(f"P13/dpp/{name}", _dpp_forms("v_mov_b32", controls, [ALL_ROWS]), moves)
    yield forms_step("P13/dpp/masks", _dpp_forms("v_mov_b32", MASKED_CONTROLS, SOME_ROWS), moves)
    sums = under_patterns([lane_ids(SOURCE), lane_ids(SECOND << 8), lane_ids(OLD << 16)])
    yield forms_step("P13/dpp/v_add_u32", _dpp_forms("v_add_u32", MASKED_CONTROLS, [ALL_ROWS, SOME_ROWS[4]]), sums)
    pairs = under_patterns([lane_ids(base) for base in (SOURCE, SECOND, OLD, OLD << 8)])
    yield forms_step("P13/dpp/v_mov_b64", _dpp_forms("v_mov_b64", CONTROLS["newbcast"][::5], [ALL_ROWS]), pairs)


def _dpp_forms(mnemonic: str, controls: Sequence[str], masks: Sequence[str]) -> list[Form]:
    bounds = ("", " bound_ctrl:1")
    return [Form(mnemonic, (), f"{c} {m}{bound}") for c in controls for m in masks for bound in bounds]


def swaps(size: Size) -> Iterator[Step]:
    """Row swaps with fi and bound_ctrl, which are OP_SEL's bits 0 and 1, and V_SWAP."""
    registers = under_patterns([lane_ids(SOURCE), lane_ids(SECOND)])
    for rows in (16, 32):
        mnemonic = f"v_permlane{rows}_swap_b32"
        yield forms_step(f"P13/{mnemonic}", [Form(mnemonic, (("op_sel", n),)) for n in range(4)], registers)
    yield forms_step("P13/v_swap_b32", [Form("v_swap_b32")], registers)


def permutes(size: Size) -> Iterator[Step]:
    """Pulls and pushes: one to one, to a few lanes, to lanes beyond 63, at addresses that are no multiple of 4."""
    random = np.random.default_rng(13)
    lanes = [
        random.permutation(LANES),
        random.integers(0, LANES, LANES),
        random.integers(0, 5, LANES) * 13,
        np.full(LANES, 21),
        random.integers(0, 1 << 30, LANES),
    ]
    addresses = [4 * n.astype(np.uint32) for n in lanes] + [random.integers(0, 1 << 32, LANES, dtype=np.uint32)]
    for mnemonic in ("ds_bpermute_b32", "ds_permute_b32"):
        forms = [Form(mnemonic, (("offset", n),)) for n in (0, 12, 0xFFFF)]
        items = [under_patterns([address, lane_ids(SOURCE), lane_ids(OLD)]) for address in addresses]
        yield forms_step(f"P13/{mnemonic}", forms, np.concatenate(items))


def swizzles(size: Size) -> Iterator[Step]:
    """All kinds of swizzles."""
    registers = under_patterns([lane_ids(SOURCE), lane_ids(OLD)])
    for name, offsets in SWIZZLES.items():
        forms = [Form("ds_swizzle_b32", (("offset", offset),)) for offset in offsets]
        yield forms_step(f"P13/ds_swizzle_b32/{name}", forms, registers)


def scalars(size: Size) -> Iterator[Step]:
    """Reads and writes of one lane, which EXEC may not have or which there is not."""
    chosen = [np.full(LANES, n, np.uint32) for n in (0, 21, 22, 63, 64, 127, 0xFFFFFFFF)]
    read = [under_patterns([lane_ids(SOURCE), lane]) for lane in chosen]
    yield forms_step("P13/v_readlane_b32", [Form("v_readlane_b32")], np.concatenate(read))
    yield forms_step("P13/v_readfirstlane_b32", [Form("v_readfirstlane_b32")], under_patterns([lane_ids(SOURCE)]))
    value = np.full(LANES, 0xABCD, np.uint32)
    written = [_writelane_rows(value, lane) for lane in chosen]
    yield forms_step("P13/v_writelane_b32", [Form("v_writelane_b32")], np.concatenate(written))


def _writelane_rows(value: Words, lane: Words) -> Words:
    rows = {"src0": value, "src1": lane, "vdst": lane_ids(OLD)}
    return under_patterns([rows[register.name] for register in Form("v_writelane_b32").plan.sources])


def steps(size: Size) -> Iterator[Step]:
    """All of P13."""
    for part in (dpp, swaps, permutes, swizzles, scalars, transposes):
        yield from part(size)


PROBES = (Probe("P13", "which lane data comes from: DPP, swaps, permutes, swizzles, transposing reads", steps),)
