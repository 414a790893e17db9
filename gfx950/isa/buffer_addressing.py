"""Memory through a buffer descriptor: the addresses of MUBUF and MTBUF and what the descriptor covers. [CDNA4 ISA 9.1]

A descriptor (V#) is four SGPRs: base address, stride, number of records, format. `Buffer` is what an instruction's body
sees of it; its addresses and range checks are computed for all lanes at once, whatever the descriptor says. Where the
manual is silent or contradicts itself the reading is a switch, `buffer.*`.

    index   = VGPR index (IDXEN) + lane (add-tid)             offset = VGPR offset (OFFEN) + immediate, modulo 2^32
    linear    address = base + SOFFSET + index * stride + offset
    swizzled  address = base + SOFFSET + ((index / I) * stride + (offset / 4) * 4) * I + (index % I) * 4 + offset % 4
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from gfx950.evidence import Evidence, rule
from gfx950.lanes import ALL_LANES, B128, LANES, U32, U64, Engine, LaneMemory, Lanes, Mask, join, lanes_of, static_lanes
from gfx950.models import body_switch, switch

L = TypeVar("L", bound=Lanes)

_ON_GFX950 = "ROCm/rocm-systems pull request 10928, a simulator's rules fitted to gfx950 hardware"

ADDRESS = rule(
    "buffer.address",
    Evidence.spec,
    "CDNA4 ISA 9.1.5, table 48",
    "A buffer address is base + SOFFSET + index * stride + offset; swizzled, (index, offset) are laid out in tiles of"
    " index-stride elements, SOFFSET outside. MUBUF without FORMAT has 18 bits of stride with add-tid.",
)
SWIZZLE_ELEMENT = rule(
    "buffer.swizzle_element",
    Evidence.vendor,
    f"CDNA4 ISA 9.1.5 has 2, 4, 8 or 16 bytes by a field that table 48 does not have; {_ON_GFX950} has 4",
    "A swizzled buffer's element has 4 bytes; the dwords of a wider access lie a row of tiles apart.",
)
OFFSET_WRAP = rule(
    "buffer.offset_wrap",
    Evidence.published,
    _ON_GFX950,
    "VGPR offset plus immediate offset wrap at 32 bits, as do index plus lane; the sums after that do not.",
)
ADD_TID = rule(
    "buffer.add_tid",
    Evidence.published,
    f"{_ON_GFX950}; CDNA4 ISA 9.1.5 has neither exception",
    "The swizzle enable bit acts only with add-tid; add-tid does nothing on a linear buffer with IDXEN = 1.",
)
RANGE = rule(
    "buffer.range",
    Evidence.published,
    f"{_ON_GFX950}; CDNA4 ISA 9.1.5.1 has the same, its table 45 the units of num_records the other way round, and"
    " neither has stride 0 with IDXEN",
    "An access is unchecked with add-tid and IDXEN = 0, else in range by its VGPR index < num_records with IDXEN = 1"
    " and a stride, else by bytes. Beyond, loads give 0, stores and atomics do nothing.",
)
RANGE_BYTES = rule(
    "buffer.range_bytes",
    Evidence.published,
    f"{_ON_GFX950}; CDNA4 ISA 9.1.5.1 tests offset >= num_records",
    "The byte test covers SOFFSET and the whole access: offset + SOFFSET + size <= num_records. Every dword of x2, x3"
    " and x4 is tested by itself, FORMAT accesses and atomics as a whole.",
)
STORE_ORDER = rule(
    "buffer.store_order",
    Evidence.chosen,
    "the ISA text gives no order among the lanes of one store",
    "Of a store of x2, x3 or x4 the lanes whose dwords are all covered and lie together come first, then the others"
    " dword by dword; each time the highest lane's bytes stay where lanes overlap.",
)
ALIGNMENT = rule(
    "buffer.alignment",
    Evidence.vendor,
    "the Linux driver sets the unaligned access mode, on which compilers rely; CDNA4 ISA 9.1.7 drops address bits 1:0",
    "An access of a dword or more may have any address.",
)
UNBOUND = rule(
    "buffer.unbound",
    Evidence.spec,
    "CDNA4 ISA 9.1.4, 9.1.8",
    "A descriptor whose data format is 0 is unbound: every access is out of range, those that imply their own format"
    " too, unless the field is part of the stride.",
)
DESCRIPTOR_BITS = rule(
    "buffer.ignored_bits",
    Evidence.chosen,
    "CDNA4 ISA table 48",
    "Type, NV, cache swizzle and the user VM bits of a descriptor change nothing; memory that nobody mapped faults.",
)
RULES = (
    ADDRESS, SWIZZLE_ELEMENT, OFFSET_WRAP, ADD_TID, RANGE, RANGE_BYTES, STORE_ORDER, ALIGNMENT, UNBOUND,
    DESCRIPTOR_BITS,
)  # fmt: skip


SOFFSET_IN_RANGE = body_switch("buffer.soffset_in_range", (1, 0), "SOFFSET takes part in the byte test.", RANGE_BYTES)
RANGE_BY_END = body_switch(
    "buffer.range_by_end", (1, 0), "The whole access must lie below num_records, not its first byte alone.", RANGE_BYTES
)
ZERO_STRIDE_INDEX_IN_BYTES = body_switch(
    "buffer.zero_stride_index_in_bytes", (1, 0), "With IDXEN and stride 0 the byte test applies, not the index.", RANGE
)
RECORDS_BY_TABLE_45 = switch(
    "buffer.records_by_table_45",
    0,
    (1, 0),
    "num_records counts bytes with IDXEN = 1, which index * stride + offset must stay below, and strides with"
    " IDXEN = 0.",
    rules=(RANGE,),
    in_bodies=True,
)
SWIZZLE_NEEDS_ADD_TID = body_switch(
    "buffer.swizzle_needs_add_tid", (1, 0), "Swizzle enable acts with add-tid only.", ADD_TID
)
LINEAR_INDEX_DROPS_LANE = body_switch(
    "buffer.linear_index_drops_lane", (1, 0), "A linear buffer with IDXEN ignores add-tid.", ADD_TID
)
UNALIGNED = body_switch("buffer.unaligned", (1, 0), "Accesses of a dword or more keep address bits 1:0.", ALIGNMENT)
INVALID_IS_UNBOUND = body_switch(
    "buffer.invalid_is_unbound", (1, 0), "Data format 0 makes every access out of range.", UNBOUND
)


@dataclass(frozen=True)
class Buffer:
    """A buffer as one instruction sees it; methods load, store and operate, lanes out of range left out.

    descriptor: four scalars. index: the VGPR index, None without IDXEN. offset: VGPR plus immediate offset, 64 lanes.
    soffset: a scalar. instruction_format: DFMT and NFMT of an MTBUF instruction; else None: FORMAT instructions take
    the descriptor's. formatted: the access converts formats, so the stride has 14 bits whatever add-tid says.
    among: the lanes that take part, None for all.
    """

    memory: LaneMemory
    descriptor: B128
    index: U32 | None
    offset: U32
    soffset: U32
    instruction_format: tuple[int, int] | None = None
    formatted: bool = False
    among: Mask | None = None

    def only(self, lanes: Mask) -> Buffer:
        """This buffer for some of the lanes; the others are not accessed and load 0."""
        return replace(self, among=lanes)

    def as_format(self) -> Buffer:
        """This buffer for an instruction that converts formats."""
        return replace(self, formatted=True)

    # ---- the descriptor's fields, scalars [table 48] ---------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine of all values."""
        return self.offset.engine

    @cached_property
    def records(self) -> U32:
        """num_records."""
        return self.descriptor[2]

    @cached_property
    def data_format(self) -> U32:
        """DFMT, or the stride's top bits."""
        return self.descriptor[3].field(15, 4)

    @cached_property
    def number_format(self) -> U32:
        """NFMT."""
        return self.descriptor[3].field(12, 3)

    def select(self, component: int) -> U32:
        """dst_sel of component 0 (x) to 3 (w)."""
        return self.descriptor[3].field(3 * component, 3)

    @cached_property
    def add_tid(self) -> Mask:
        """Add-tid enable."""
        return self.descriptor[3].field(23, 1) == 1

    @cached_property
    def swizzled(self) -> Mask:
        """Whether the swizzled layout applies. [rule buffer.add_tid]"""
        enabled = self.descriptor[1].field(31, 1) == 1
        return enabled & self.add_tid if SWIZZLE_NEEDS_ADD_TID.answer else enabled

    @cached_property
    def adds_lane(self) -> Mask:
        """Whether the lane is added to the index. [rule buffer.add_tid]"""
        if self.index is None or not LINEAR_INDEX_DROPS_LANE.answer:
            return self.add_tid
        return self.add_tid & self.swizzled

    @cached_property
    def short_stride(self) -> U32:
        """The stride field alone, 14 bits."""
        return self.descriptor[1].field(16, 14)

    @cached_property
    def stride(self) -> U32:
        """Bytes from one index to the next: 14 bits, or 18."""
        short = self.short_stride
        return short if self.formatted else self.adds_lane.select(short | (self.data_format << 14), short)

    @cached_property
    def bound(self) -> Mask:
        """Whether there is a buffer at all. [rule buffer.unbound]"""
        always = Mask.constant(self.engine, 1)
        if not INVALID_IS_UNBOUND.answer:
            return always
        valid = self.data_format != 0
        return valid if self.formatted else valid | self.add_tid

    # ---- addresses -------------------------------------------------------------------------------------------------

    @cached_property
    def tile_shift(self) -> U32:
        """log2 of the swizzle's indices per tile, 0 for a linear buffer."""
        return self.swizzled.select(self.descriptor[3].field(21, 2) + 3, 0)

    @cached_property
    def address(self) -> U64:
        """The byte address of the first byte of each lane's access."""
        base = join(self.descriptor[0], self.descriptor[1] & 0xFFFF) + self.soffset.to(U64)
        inside = (U32.constant(self.engine, 1) << self.tile_shift) - 1  # the index's bits in a tile, none when linear
        lane = self.adds_lane.select(static_lanes(self.engine, range(LANES)), 0)
        index = lane if self.index is None else lane + self.index
        near = ((index & inside) << 2) + (self.offset & 3)
        far = (self.offset & ~3).to(U64) << self.tile_shift.to(U64)
        tile = index & ~inside
        if self.index is None:  # a lane times 18 bits: 32 bits are enough
            return (tile * self.stride + near).to(U64) + far + base
        return tile.to(U64) * self.stride.to(U64) + near.to(U64) + far + base

    def _kept(self, address: U64, nbytes: int) -> U64:
        """The address without its low two bits, if the model says so. [rule buffer.alignment]"""
        return address if UNALIGNED.answer or nbytes < 4 else address & ~3

    # ---- range -----------------------------------------------------------------------------------------------------

    def in_range(self, nbytes: int | U32, skipped: int = 0) -> Mask:
        """The lanes whose `nbytes` bytes, `skipped` bytes behind the access's first, are covered. [rule buffer.range]

        nbytes: a number or a scalar.
        """
        bound = self.bound if self.among is None else self.bound & self.among
        needed = self._needed(nbytes, skipped)
        if RECORDS_BY_TABLE_45.answer:
            tested = self._by_table_45(needed)
            return (tested | self.add_tid if self.index is None else tested) & bound
        records = self.records.to(U64)
        tested = (self.offset <= (records - needed).to(U32)) & (needed <= records)
        if self.index is None:
            return (tested | self.add_tid) & bound
        by_index = self.index < self.records
        if ZERO_STRIDE_INDEX_IN_BYTES.answer:
            structured = self.short_stride != 0
            by_index = (structured & by_index) | (~structured & tested)
        return by_index & bound

    def _needed(self, nbytes: int | U32, skipped: int) -> U64:
        """How far behind the offset the bytes that are tested end, a scalar. [rule buffer.range_bytes]"""
        size = nbytes if isinstance(nbytes, U32) else U32.constant(self.engine, nbytes)
        needed = (size + skipped if RANGE_BY_END.answer else U32.constant(self.engine, skipped + 1)).to(U64)
        return needed + self.soffset.to(U64) if SOFFSET_IN_RANGE.answer else needed

    def _by_table_45(self, needed: U64) -> Mask:
        """The other reading of num_records: bytes with IDXEN = 1, else strides, or bytes where that is 0."""
        stride, records, first = self.short_stride.to(U64), self.records.to(U64), self.offset.to(U64)
        if self.index is not None:
            return first + self.index.to(U64) * stride + needed <= records
        return first + needed <= (stride == 0).select(records, records * stride)

    # ---- accesses --------------------------------------------------------------------------------------------------

    def load(self, nbytes: int) -> tuple[U32, ...]:
        """1, 2, 4, 8, 12 or 16 bytes a lane, each dword checked by itself; 0 where the descriptor ends."""
        if nbytes <= 4:
            return self.memory.load(self._kept(self.address, nbytes), nbytes, self.in_range(nbytes))
        return self._load_dwords(nbytes, [self.in_range(4, 4 * n) for n in range(nbytes // 4)])

    def load_whole(self, nbytes: int, where: Mask) -> tuple[U32, ...]:
        """As `load`, of the lanes in `where`, whose range is checked."""
        if nbytes <= 4:
            return self.memory.load(self._kept(self.address, nbytes), nbytes, where)
        return self._load_dwords(nbytes, [where] * (nbytes // 4))

    def store(self, words: Sequence[U32], nbytes: int) -> None:
        """The counterpart of `load`."""
        if nbytes <= 4:
            self.memory.store(self._kept(self.address, nbytes), words, nbytes, self.in_range(nbytes))
        else:
            self._store_dwords(words, nbytes, [self.in_range(4, 4 * n) for n in range(nbytes // 4)])

    def store_whole(self, words: Sequence[U32], nbytes: int, where: Mask) -> None:
        """The counterpart of `load_whole`."""
        if nbytes <= 4:
            self.memory.store(self._kept(self.address, nbytes), words, nbytes, where)
        else:
            self._store_dwords(words, nbytes, [where] * (nbytes // 4))

    def atomic(self, operands: Sequence[L], operation: Callable[..., L]) -> L:
        """As the memory's, all or nothing; 0 from lanes that the descriptor does not cover."""
        return self.memory.atomic(self.address, operands, operation, self.in_range(operands[0].width // 8))

    def _step(self, number: int) -> U64:
        """How far behind the first a later dword of the access lies: in a swizzled buffer a row of tiles further."""
        return U32.constant(self.engine, 4 * number).to(U64) << self.tile_shift.to(U64)

    def _load_dwords(self, nbytes: int, covered: Sequence[Mask]) -> tuple[U32, ...]:
        """In one piece where all is covered and lies together, else dword by dword."""
        whole, rest = self._pieces(covered)
        address = self._kept(self.address, nbytes)
        words = self.memory.load(address, nbytes, whole)
        alone = [self.memory.load(address, 4, mask, self._step(n))[0] for n, mask in enumerate(rest)]
        return tuple(word | other for word, other in zip(words, alone, strict=True))

    def _store_dwords(self, words: Sequence[U32], nbytes: int, covered: Sequence[Mask]) -> None:
        whole, rest = self._pieces(covered)
        address = self._kept(self.address, nbytes)
        self.memory.store(address, words, nbytes, whole)
        for n, mask in enumerate(rest):
            self.memory.store(address, [words[n]], 4, mask, self._step(n))

    def _pieces(self, covered: Sequence[Mask]) -> tuple[Mask, list[Mask]]:
        """The lanes whose dwords are all covered and lie together, and for each dword the others that have it.

        (The last dword covered: then all are.) Worked out on 64-bit scalars, for speed.
        """
        together = self.swizzled.select(U64.constant(self.engine, 0), ALL_LANES)
        bits = [mask.ballot() for mask in covered]
        whole = bits[-1] & together
        return lanes_of(whole), [lanes_of(one & ~whole) for one in bits]
