"""The drafter attention problem: its constants, its input arrays and the named cases, the same bits on every host.

Every byte that a correct kernel must not use is poisoned: cache keys outside [lo, hi], the rows that the kernel itself
writes, unused cache blocks (among them the first and the last, which clamped block-table entries reach) and cos/sin
rows of positions that no token has hold NaNs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from codegen.kernels.inputs import ArrayInputs
from gfx950.random_bits import bell, bits32, integers, permutation

QPR = 7  # query rows of a request
Q_HEADS = 16
KV_HEADS = 1
HEAD_DIM = 128
QKV_WIDTH = (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM  # columns q | k | v
BLOCK = 128  # keys of a cache block
KEY_BYTES = 2 * HEAD_DIM  # K bytes, then V bytes
WINDOW = 4096
ROT = 64  # rotated dims of a head, and values of a cos_sin row: 32 cos, then 32 sin
MAXB = 34
THREADS = 512
EPS = 1e-6
SCALE_GROUP = 32  # dims that share an MXFP8 scale
PARTIAL_BYTES = 58368  # m f32[128] at 0, l f32[128] at 512, o f32[112][128] at 1024
MAX_PARTITIONS = 64  # what the 512 floats of the merge's (m, l) staging hold

_ROPE_RATIO = 0.6175  # close to 5e6 ** (-1/32), the frequency ratio of neighbouring dims
_FIRST_HALF_TANGENT = 0.5
_BF16_NAN = 0x7FC0
_GARBAGE_ENTRIES = (-1, -(2**31), 2**31 - 1, 10**6)


@dataclass(frozen=True)
class Request:
    """One request of a case.

    first_position: position of its first row (the rows are consecutive). seq_len: keys it claims; None means
    first_position + 7. writes: its rows have cache slots; otherwise the slots are -1 and the cache holds the keys.
    """

    first_position: int
    seq_len: int | None = None
    writes: bool = True

    @property
    def keys(self) -> int:
        """The sequence length as the kernel reads it."""
        return self.first_position + QPR if self.seq_len is None else self.seq_len

    @property
    def window(self) -> tuple[int, int]:
        """(lo, hi): first and last key that any row may see; hi < lo when there is none."""
        lo = max(self.first_position - (WINDOW - 1), 0)
        return lo, min(self.keys - 1, (lo // BLOCK + MAXB) * BLOCK - 1)

    @property
    def blocks(self) -> range:
        """Logical blocks of the window, empty when no key is visible."""
        lo, hi = self.window
        return range(lo // BLOCK, hi // BLOCK + 1) if hi >= lo else range(0)


@dataclass(frozen=True)
class DataStyle:
    """How the values are drawn: bell-shaped with these means and widths.

    gamma_*: of the norm weights (the norm multiplies by 1 + gamma). k, v: width of the cached keys and values. x: width
    of the QKV rows. zero_rows: every third QKV row is zero, with both signs. sink: every 97th key is 8 times larger.
    codes: the cache holds every finite E4M3 code alike, instead of bell-shaped values. opposed: the values of the first
    third of the keys are 448, of the second -448.
    """

    gamma_q: tuple[float, float] = (0.0, 0.125)
    gamma_k: tuple[float, float] = (0.0, 0.125)
    k: float = 1.0
    v: float = 1.0
    x: float = 1.0
    zero_rows: bool = False
    sink: bool = False
    codes: bool = False
    opposed: bool = False


@dataclass(frozen=True)
class Case:
    """A named problem. requests: in order. na: partitions of each request. why: its purpose. style: the values."""

    name: str
    requests: tuple[Request, ...]
    na: int
    why: str
    style: DataStyle = field(default_factory=DataStyle)


@dataclass(frozen=True)
class Inputs(ArrayInputs):
    """What the kernel reads, T = 7 * requests tokens; bf16 arrays hold their bits as uint16.

    qkv: bf16 [T][2304], columns q (16 heads of 128) | k | v. positions, slots: int64 [T]; a slot is
    physical block * 128 + row, or -1 (nothing is written). seq_lens: int32 [requests].
    block_table: int32 [requests][bt_width]. cache: E4M3 bytes uint8 [nblk][128][256], a key's K then V; the kernel
    writes the new rows into it. qn, kn: bf16 [128]. cos_sin: bf16 [positions][64]. na: partitions per request.
    eps: of the head norm.
    """

    case: str
    na: int
    qkv: NDArray[np.uint16]
    positions: NDArray[np.int64]
    slots: NDArray[np.int64]
    seq_lens: NDArray[np.int32]
    block_table: NDArray[np.int32]
    cache: NDArray[np.uint8]
    qn: NDArray[np.uint16]
    kn: NDArray[np.uint16]
    cos_sin: NDArray[np.uint16]
    eps: float = EPS

    @property
    def requests(self) -> int:
        return int(self.seq_lens.size)

    @property
    def tokens(self) -> int:
        return self.requests * QPR

    @property
    def partials_bytes(self) -> int:
        """Size of the partials buffer: partition i of request r starts at (r * na + i) * PARTIAL_BYTES."""
        return self.requests * self.na * PARTIAL_BYTES


def build(case: Case) -> Inputs:
    """The arrays of a case, a function of its contents and name. Raises ValueError when the case makes no sense."""
    _check(case)
    table, nblk = _block_table(case)
    cache = _cache(case, table, nblk)
    positions = np.concatenate([r.first_position + np.arange(QPR, dtype=np.int64) for r in case.requests])
    slots = _slots(case, table)
    written = slots[slots >= 0]
    cache.reshape(-1, KEY_BYTES)[written] = _poison(f"{case.name}/new rows", (written.size, KEY_BYTES))
    return Inputs(
        case=case.name,
        na=case.na,
        qkv=_qkv(case),
        positions=positions,
        slots=slots,
        seq_lens=np.array([r.keys for r in case.requests], dtype=np.int32),
        block_table=table,
        cache=cache,
        qn=_gamma(f"{case.name}/qn", case.style.gamma_q),
        kn=_gamma(f"{case.name}/kn", case.style.gamma_k),
        cos_sin=_cos_sin_rows(positions),
    )


def _check(case: Case) -> None:
    if not 1 <= case.na <= MAX_PARTITIONS:
        raise ValueError(f"case {case.name!r}: na = {case.na} is outside 1 .. {MAX_PARTITIONS}")
    if not case.requests:
        raise ValueError(f"case {case.name!r} has no requests; it needs at least one")
    for number, request in enumerate(case.requests):
        where, last = f"case {case.name!r}, request {number}", request.first_position + QPR - 1
        if request.first_position < 0:
            raise ValueError(f"{where}: first position {request.first_position} is negative")
        if request.writes and last > request.window[1]:
            raise ValueError(
                f"{where}: its row at position {last} is written but lies after its last key {request.window[1]}; "
                "raise seq_len or set writes=False"
            )


def _block_table(case: Case) -> tuple[NDArray[np.int32], int]:
    """int32 [requests][bt_width] and nblk: blocks 1 .. nblk-2 shuffled over the windows, garbage in other entries."""
    used = sum(len(r.blocks) for r in case.requests)
    nblk = used + 3
    garbage = np.array([*_GARBAGE_ENTRIES, 0, nblk - 1, nblk], dtype=np.int64)
    width = max([r.blocks.stop for r in case.requests]) + 2
    table = garbage[integers(f"{case.name}/garbage", (len(case.requests), width), 0, garbage.size)].astype(np.int32)
    free = iter((1 + permutation(f"{case.name}/blocks", used + 1)).tolist())
    for row, request in enumerate(case.requests):
        for block in request.blocks:
            table[row, block] = next(free)
    return table, nblk


def _slots(case: Case, table: NDArray[np.int32]) -> NDArray[np.int64]:
    slots = np.full(len(case.requests) * QPR, -1, dtype=np.int64)
    for row, request in enumerate(case.requests):
        for j in range(QPR if request.writes else 0):
            position = request.first_position + j
            slots[row * QPR + j] = int(table[row, position // BLOCK]) * BLOCK + position % BLOCK
    return slots


def _cache(case: Case, table: NDArray[np.int32], nblk: int) -> NDArray[np.uint8]:
    """uint8 [nblk][128][256]: values for the keys lo .. hi of each request, NaN bytes elsewhere."""
    cache = _poison(f"{case.name}/poison", (nblk, BLOCK, KEY_BYTES))
    for row, request in enumerate(case.requests):
        lo, hi = request.window
        keys = np.arange(lo, hi + 1)
        cache[table[row, keys // BLOCK], keys % BLOCK] = _cached_keys(case, row, keys.size)
    return cache


def _cached_keys(case: Case, row: int, count: int) -> NDArray[np.uint8]:
    name, style = f"{case.name}/keys {row}", case.style
    if style.codes:
        codes = integers(name, (count, KEY_BYTES), 0, 254)
        return (codes + (codes >= 127)).astype(np.uint8)  # 0x7f and 0xff are the NaNs
    width = np.repeat(np.array([style.k, style.v], dtype=np.float32), HEAD_DIM)
    values = bell(name, (count, KEY_BYTES)) * width
    if style.sink:
        values[::97, :HEAD_DIM] *= np.float32(8)
    if style.opposed:
        values[: count // 3, HEAD_DIM:], values[count // 3 : 2 * count // 3, HEAD_DIM:] = 448, -448
    return values.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def _poison(name: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """NaN bytes of both signs."""
    return (bits32(name, shape) & np.uint32(0x80)).astype(np.uint8) | np.uint8(0x7F)


def _qkv(case: Case) -> NDArray[np.uint16]:
    values = bell(f"{case.name}/qkv", (len(case.requests) * QPR, QKV_WIDTH)) * np.float32(case.style.x)
    if case.style.zero_rows:
        values[::3] *= np.float32(0)
    return _bf16(values)


def _gamma(name: str, mean_width: tuple[float, float]) -> NDArray[np.uint16]:
    mean, width = mean_width
    return _bf16(bell(name, HEAD_DIM) * np.float32(width) + np.float32(mean))


def _bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    return values.astype(ml_dtypes.bfloat16).view(np.uint16)


def _cos_sin_rows(positions: NDArray[np.int64]) -> NDArray[np.uint16]:
    """bf16 [max position + 1][64]: cos | sin for the positions that occur, NaN in all other rows."""
    table = np.full((int(positions.max()) + 1, ROT), _BF16_NAN, dtype=np.uint16)
    table[positions] = _rotations(1 << int(positions.max()).bit_length())[positions]
    return table


@lru_cache(maxsize=1)
def _rotations(count: int) -> NDArray[np.uint16]:
    """bf16 [count][64]: cos and sin of position * angle for 32 falling angles, `count` a power of two.

    No trigonometry: the first angle of each dim is a rational point of the circle, and the table doubles by rotating
    what it has by its next power, in float64 additions and multiplications only.
    """
    tangent = np.multiply.accumulate(np.array([_FIRST_HALF_TANGENT] + [_ROPE_RATIO] * (ROT // 2 - 1)))
    cos, sin = np.ones((1, ROT // 2)), np.zeros((1, ROT // 2))
    step_cos, step_sin = (1 - tangent * tangent) / (1 + tangent * tangent), 2 * tangent / (1 + tangent * tangent)
    while len(cos) < count:
        turned_cos, turned_sin = cos * step_cos - sin * step_sin, cos * step_sin + sin * step_cos
        cos, sin = np.concatenate([cos, turned_cos]), np.concatenate([sin, turned_sin])
        step_cos, step_sin = step_cos * step_cos - step_sin * step_sin, 2 * step_cos * step_sin
    return _bf16(np.concatenate([cos, sin], axis=1).astype(np.float32))


def _at(*positions: int) -> tuple[Request, ...]:
    return tuple(Request(p) for p in positions)


def _padded(position: int) -> Request:
    return Request(position, seq_len=0, writes=False)


_RAGGED = (0, 5, 100, 121, 122, 127, 128, 200, 250, 255, 256, 300, 383, 384, 400, 511)
_LARGE = DataStyle(gamma_q=(8.0, 1.0), gamma_k=(6.0, 1.0), k=8.0, v=16.0)
_TINY = DataStyle(gamma_q=(-0.984375, 0.0078125), gamma_k=(-0.984375, 0.0078125), k=0.015625, v=0.015625)

_ALL_CASES = [
    Case("small", _at(40), 1, "one request, one block, one partition: quick goldens"),
    Case("default", _at(300, 57, 1000, 129), 3, "four ragged requests, three partitions"),
    Case("first_tokens", _at(0), 2, "seven keys in all, an empty partition"),
    Case("hi_edge", _at(121, 122, 249, 250), 2, "the last key is the last or the first of its block"),
    Case("straddle", _at(124, 380, 127), 2, "the new rows lie in two blocks"),
    Case("blocks_34", _at(4222), 5, "lo % 128 = 127: 34 blocks, and the first block is masked for rows 1 to 6"),
    Case("partitions_34", _at(4222), 34, "a block a partition; the first is -inf, 0, 0 for rows 1 to 6"),
    Case("lo_edge", _at(4223), 17, "lo % 128 = 0"),
    Case("far", _at(8990), 8, "a window far from the start: the left part of the block table is garbage"),
    Case("one_partition", _at(1100, 700, 640), 1, "long online softmax, no merge"),
    Case("many_partitions", _at(30, 500), 7, "more partitions than blocks"),
    Case("ragged_16", _at(*_RAGGED), 2, "sixteen requests at every kind of block edge"),
    Case(
        "padded",
        (Request(200), _padded(0), Request(17), _padded(8000), _padded(4500), Request(126)),
        2,
        "graph padding between live requests: no keys, slots -1, stale positions and block tables",
    ),
    Case("all_padded", (_padded(0), _padded(6000)), 2, "no key at all: every output row is zero"),
    Case(
        "stale_lengths",
        (Request(5000, 901, False), Request(5000, 908, False), Request(5000, 880, False), Request(64, 60, False)),
        2,
        "lengths that end before or within the rows' windows: blocks and rows without a visible key",
    ),
    Case("clipped", (Request(100, 4400),), 9, "more keys than 34 blocks hold: hi is clipped to key 4351"),
    Case("large", _at(500, 90), 3, "scores of hundreds: one key takes nearly all", _LARGE),
    Case("tiny", _at(310), 2, "subnormal q, k and v: all keys weigh alike", _TINY),
    Case("zeros", _at(150, 260), 2, "zero QKV rows of both signs", DataStyle(zero_rows=True, x=0.001)),
    Case("codes", _at(450), 2, "every finite E4M3 code in the cache", DataStyle(codes=True, gamma_q=(-0.75, 0.0625))),
    Case(
        "opposed",
        _at(377),
        3,
        "equal scores; two partials cancel exactly, and the third shows the order of the merge",
        DataStyle(x=0.0, v=0.01, opposed=True),
    ),
    Case("sink", _at(400, 1500), 4, "a few dominant keys, P down to its subnormals", DataStyle(sink=True, v=4.0)),
]

CASES: dict[str, Case] = {case.name: case for case in _ALL_CASES}
