"""LDS: transposing reads (of P13), accesses and atomics at the edges of what is documented (P13b). P14 is lds_clocks.

P13b stands apart because a chip may end a launch over an access that reaches beyond an allocation or is not aligned;
what the other probes gave is kept then.

Not asked, because a kernel cannot name M0 or store instructions by themselves: loads to LDS (buffer_load ... lds and
global_load_lds, partial EXEC, M0 beyond 64 KB, lanes out of bounds), the add-tid forms, ds_append and ds_consume;
global D16 loads and atomics, which the language has no form of; unaligned atomics, which may end the launch anywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.lane_forms import (
    EXEC_PATTERNS,
    ROW,
    Form,
    Words,
    fill_lds,
    forms_step,
    lane_ids,
    shown_lds,
    under_patterns,
)
from codegen.kernels.probes.probe import Probe, Size, Step
from codegen.language import U64, Kernel, Pointer, kernel, lds_write, load, store, thread_id, when, workgroup_id
from gfx950.lanes import LANES
from gfx950.lds import GRANULE_BYTES

TRANSPOSES = {"ds_read_b64_tr_b4": 8, "ds_read_b96_tr_b6": 12, "ds_read_b64_tr_b8": 8, "ds_read_b64_tr_b16": 8}
PLANES = 13  # bits of a bit's number in the kilobyte that transposing reads read
FULL = {"full": EXEC_PATTERNS["full"]}
ONE_WRITE = {1: 4, 2: 8, 3: 16, 4: 16}  # the alignment that LLVM must believe in to write some words at once
GRANTED = GRANULE_BYTES  # bytes of LDS, all of one block, so that nothing behind them is granted
ATOMICS = {"ds_add_rtn_f32": "f4", "ds_min_rtn_f32": "f4", "ds_max_rtn_f32": "f4", "ds_cmpst_rtn_f32": "f4",
           "ds_pk_add_rtn_f16": "f2", "ds_pk_add_rtn_bf16": "bf2", "ds_add_rtn_f64": "f8", "ds_min_rtn_f64": "f8",
           "ds_max_rtn_f64": "f8"}  # fmt: skip
# MODE: denormals flushed, of inputs, of outputs, kept, and rounding up.
MODES = {"flush": 0x00, "inputs": 0x50, "outputs": 0xA0, "kept": 0xF0, "up": 0xF5}
# What atomics meet, as high halves: zeros, denormals, ones, near ones, infinities, NaNs quiet and signalling.
SPECIAL = {
    "f4": [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800001, 0x3F800000, 0xBF800001,
           0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC01234, 0xFFA05678],
    "f2": [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8401, 0x3C00, 0xBC01, 0x7BFF, 0xFBFF, 0x7C00,
           0xFC00, 0x7E12, 0xFD34],
    "bf2": [0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x807F, 0x0080, 0x8081, 0x3F80, 0xBF81, 0x7F7F, 0xFF7F, 0x7F80,
            0xFF80, 0x7FC1, 0xFFA2],
    "f8": [0, 1 << 63, 1, 1 << 63 | 1, (1 << 52) - 1, 1 << 63 | (1 << 52) - 1, 1 << 52, 1 << 63 | 1 << 52 | 1,
           0x3FF0000000000000, 0xBFF0000000000001, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000,
           0xFFF0000000000000, 0x7FF8000000001234, 0xFFF4000000005678],
}  # fmt: skip

EXCHANGES: dict[str, tuple[str, dict[str, int]]] = {
    "two": ("ds_wrxchg2_rtn_b32", {"offset0": 1, "offset1": 2}),
    "equal": ("ds_wrxchg2_rtn_b32", {"offset0": 3, "offset1": 3}),
    "equal_64": ("ds_wrxchg2_rtn_b64", {"offset0": 1, "offset1": 1}),
    "conditional": ("ds_condxchg32_rtn_b64", {}),
    "wrap": ("ds_wrap_rtn_b32", {}),
    "masked": ("ds_mskor_rtn_b32", {}),
}


# ---- transposing reads -----------------------------------------------------------------------------------------------


def bit_planes(nbytes: int, planes: int) -> Words:
    """LDS contents (planes, words) in which bit n of LDS is bit p of n in plane p, so that all planes together say of
    every bit that is read which one it is."""
    numbers = np.arange(8 * nbytes) >> np.arange(planes)[:, None] & 1
    return np.packbits(numbers.astype(np.uint8), axis=1, bitorder="little").view(np.uint32)


def transposes(size: Size) -> Iterator[Step]:
    """Transposing reads of numbered bits: lanes in order, in reverse, spread; in order under every EXEC."""
    planes = bit_planes(1024, PLANES)
    for mnemonic, width in TRANSPOSES.items():
        form, lanes = Form(mnemonic), np.arange(LANES, dtype=np.uint32)
        olds = [lane_ids(0xF0000 + 0x1000 * i) for i in range(form.results)]
        orders = [(lanes, EXEC_PATTERNS), (lanes[::-1], FULL), ((lanes * 37 + 5) % LANES, FULL)]
        orders += [(lanes // 16 * 16 + lanes % 4 * 4 + lanes % 16 // 4, FULL)]
        items = [under_patterns([width * order, *olds], patterns) for order, patterns in orders]
        items += [under_patterns([16 * lanes, *olds], FULL)] * (width == 12)
        registers = np.concatenate(items)
        every = np.repeat(registers, PLANES, axis=0), np.tile(planes, (len(registers), 1))
        yield forms_step(f"P13/{mnemonic}", [form], *every)


# ---- the edges of LDS ------------------------------------------------------------------------------------------------


def _contents(items: int, nbytes: int = GRANTED, seed: int = 0) -> Words:
    random = np.random.default_rng([seed, nbytes])
    return np.tile(random.integers(0, 1 << 32, nbytes // 4, dtype=np.uint32), (items, 1))


def _reading(name: str, mnemonics: Mapping[str, dict[str, int]], addresses: Words) -> Iterator[Step]:
    """A step for each mnemonic, with its static fields, at rows of addresses, all lanes active."""
    for mnemonic, static in mnemonics.items():
        form = Form(mnemonic, tuple(sorted(static.items())))
        olds = [lane_ids(0xF000 + 0x100 * i) for i in range(form.rows - 2)]
        registers = np.concatenate([under_patterns([row, *olds], FULL) for row in addresses])
        yield forms_step(f"P13b/{name}/{mnemonic}", [form], registers, _contents(len(registers)))


READS: dict[str, dict[str, int]] = {
    "ds_read_b32": {}, "ds_read_u16": {}, "ds_read_i8": {}, "ds_read_b64": {}, "ds_read_b96": {}, "ds_read_b128": {},
    "ds_read2_b32": {"offset1": 1}, "ds_read2_b64": {"offset1": 1}, "ds_read_u16_d16_hi": {},
}  # fmt: skip


def edge_addresses() -> Words:
    """Two rows of addresses: every byte around the end of what is granted; and far beyond it, around 64 KB, 160 KB, and
    where 16, 17 and 32 bits wrap."""
    near = np.arange(GRANTED - 32, GRANTED + 32, dtype=np.uint32)
    far = [base + step for base in (0x10000, 0x20000, 0x28000, 0x10000000, 0x80000000, 1 << 32) for step in (-8, 0, 8)]
    whole = [n & 0xFFFFFFFF for n in far]
    return np.stack([near, np.resize(np.array(whole, np.uint32), LANES)])


def unaligned_addresses() -> Words:
    """Two rows of addresses within what is granted, of every residue of 16."""
    lanes = np.arange(LANES, dtype=np.uint32)
    return np.stack([17 * lanes, 1 + lanes * 19 % 1259])


def reads(size: Size) -> Iterator[Step]:
    """Reads beyond the end, unaligned ones, D16 reads, offsets that carry out of the address, equal offsets."""
    yield from _reading("read_range", READS, edge_addresses())
    yield from _reading("read_unaligned", READS, unaligned_addresses())
    wrapping = np.arange(LANES, dtype=np.uint32) * 4 - np.uint32(128)
    yield from _reading("read_wrap", {"ds_read_b32": {"offset": 128}, "ds_read2_b32": {"offset1": 32}}, wrapping[None])
    equal = {"ds_read2_b64": {"offset0": 3, "offset1": 3}, "ds_read2st64_b32": {"offset0": 1, "offset1": 1}}
    yield from _reading("read_equal", equal, unaligned_addresses()[:1] & np.uint32(0x1F8))
    halves = [Form(f"ds_read_{kind}_d16{half}") for kind in ("u8", "i8", "u16") for half in ("", "_hi")]
    registers = under_patterns([np.arange(LANES, dtype=np.uint32) * 6, lane_ids(0xABCD00)])
    yield forms_step("P13b/d16", halves, registers, _contents(len(registers)))


@functools.cache
def store_kernel(words: int, to_lds: bool) -> Kernel:
    """Lanes that EXEC has store 1 to 4 words each at their byte offset, into LDS that is shown afterwards, or into the
    output itself. Rows: EXEC, offsets, words."""
    rows, shown = 2 + words, GRANTED // ROW

    def body(inputs: Pointer, contents: Pointer, outputs: Pointer) -> None:
        item, lane = workgroup_id().to(U64), thread_id().to(U64)
        at, to = inputs + item * (ROW * rows) + lane * 4, outputs + item * GRANTED
        address, data = load(at + ROW), [load(at + ROW * (2 + i)) for i in range(words)]
        if to_lds:
            fill_lds(contents + item * GRANTED, shown)
        with when(load(at) != 0):
            if to_lds:
                lds_write(address, *data, align=ONE_WRITE[words])
            else:
                store(to + address.to(U64), *data)
        for i, word in enumerate(shown_lds(shown) if to_lds else ()):
            store(to + lane * 4 + ROW * i, word)

    name = f"P13b_store_{'lds' if to_lds else 'global'}_{words}"
    return kernel(block=LANES, lds=GRANTED if to_lds else 0, name=name)(body)


def _stores(name: str, to_lds: bool, offsets: Callable[[int], Words]) -> Iterator[Step]:
    """Stores of 1 to 4 words at rows of offsets, which may depend on the number of words, under every EXEC."""
    for words in range(1, 5):
        data = [lane_ids(0x1000 * (i + 1)) for i in range(words)]
        registers = np.concatenate([under_patterns([row, *data]) for row in offsets(words)])
        inputs = (registers, _contents(len(registers)))
        output = ((len(registers), GRANTED // ROW, LANES), "<u4")
        yield Step(f"P13b/{name}/x{words}", store_kernel(words, to_lds), len(registers), inputs, output)


def overlapping_offsets(words: int) -> Words:
    """Rows of byte offsets at which lanes overlap: all alike, a dword apart, back and forth, in pairs."""
    lanes = np.arange(LANES, dtype=np.uint32)
    return np.stack([0 * lanes + 64, 4 * lanes, 4 * (63 - lanes), 4 * (lanes * 29 % LANES), lanes // 2 * 4 * words])


def writes(size: Size) -> Iterator[Step]:
    """Stores of lanes that overlap, in LDS and in memory; writes beyond the end of LDS, and unaligned ones."""
    yield from _stores("overlap_lds", True, overlapping_offsets)
    yield from _stores("overlap_global", False, overlapping_offsets)
    yield from _stores("write_range", True, lambda _: edge_addresses())
    yield from _stores("write_unaligned", True, lambda _: unaligned_addresses())


# ---- atomics ---------------------------------------------------------------------------------------------------------


def _pairs_of(kind: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Every two special values, as (items, 64) data in memory and operands; packed ones with another pair above."""
    values = np.array(SPECIAL[kind], np.uint64)
    memory, operand = (n.reshape(-1, LANES) for n in np.meshgrid(values, values))
    if kind in ("f2", "bf2"):
        memory, operand = memory | np.roll(memory, 7, 1) << np.uint64(16), operand | operand[::-1] << np.uint64(16)
    return memory, operand


def _halves(values: NDArray[np.uint64], count: int) -> list[Words]:
    return [(values >> np.uint64(32 * i)).astype(np.uint32) for i in range(count)]


def atomics(size: Size) -> Iterator[Step]:
    """Float atomics of special values under settings of MODE; then several lanes at one address, in any order."""
    for mnemonic, kind in ATOMICS.items():
        form, count = Form(mnemonic), 2 if kind == "f8" else 1
        memory, operand = _pairs_of(kind)
        contents = np.stack(_halves(memory, count), 2).reshape(len(memory), -1)
        address = np.arange(LANES, dtype=np.uint32) * (4 * count)
        rows = _halves(operand, count) + (_halves(operand[::-1], count) if "cmpst" in mnemonic else [])
        items = [[address, *(row[i] for row in rows), *[lane_ids(0xF000)] * count] for i in range(len(memory))]
        registers = np.concatenate([under_patterns(item, FULL) for item in items])
        for mode, bits in MODES.items():
            yield forms_step(f"P13b/{mnemonic}/mode_{mode}", [form], registers, contents, shows=True, mode=bits)
    yield from _crowded()
    yield from _beyond()
    yield from _exchanges()


def _beyond() -> Iterator[Step]:
    """Aligned atomics around the end of LDS and far beyond it."""
    for mnemonic, count in (("ds_add_rtn_u32", 1), ("ds_add_rtn_u64", 2)):
        addresses = edge_addresses() & np.uint32(0xFFFFFFFF - 4 * count + 1)
        data = [lane_ids(0x1000 * i) for i in range(2 * count)]
        registers = np.concatenate([under_patterns([row, *data], FULL) for row in addresses])
        contents = _contents(len(registers))
        yield forms_step(f"P13b/atomic_range/{mnemonic}", [Form(mnemonic)], registers, contents, shows=True)


def _exchanges() -> Iterator[Step]:
    """Atomics whose text is short: two exchanges, also at one address, conditional ones, masks, wrapping."""
    random = np.random.default_rng(15)
    for name, (mnemonic, static) in EXCHANGES.items():
        form = Form(mnemonic, tuple(sorted(static.items())))
        address = random.permutation(LANES).astype(np.uint32) * 16
        others = random.integers(0, 1 << 32, (form.rows - 2, LANES), dtype=np.uint32)
        registers = under_patterns([address, *others])
        contents = _contents(len(registers))
        yield forms_step(f"P13b/exchange/{name}", [form], registers, contents, shows=True)


def _crowded() -> Iterator[Step]:
    random = np.random.default_rng(14)
    floats = (random.standard_normal(LANES) * 2.0 ** random.integers(-12, 12, LANES)).astype(np.float32)
    address = (random.integers(0, 3, LANES) * 64).astype(np.uint32)
    for mnemonic in ("ds_add_rtn_f32", "ds_pk_add_rtn_bf16", "ds_wrxchg_rtn_b32", "ds_inc_rtn_u32", "ds_sub_rtn_u32"):
        registers = under_patterns([address, floats.view(np.uint32), lane_ids(0xF000)])
        contents = np.zeros((len(registers), LANES), np.uint32)
        yield forms_step(f"P13b/crowd/{mnemonic}", [Form(mnemonic)], registers, contents, shows=True)


def edges(size: Size) -> Iterator[Step]:
    """All of P13b."""
    for part in (reads, writes, atomics):
        yield from part(size)


PROBES = (Probe("P13b", "LDS beyond its end and unaligned, D16, overlapping stores, atomics", edges),)
