"""Tables of captured results of the transcendental instructions: what a unit returns, told as its difference from the
correctly rounded value, without loss.

A file begins with a line that has the SHA-256 of all that follows it; then a line of JSON, the header; then the blobs
of the chunks, one after another. A chunk is 2^chunk_bits consecutive input codes: a binade of positive or negative
numbers. Chunks that the captured ranges do not touch, and those where every result is the correctly rounded one, have
no blob. The others are compressed with zlib, all words being little-endian:

- close: two bits an input, lowest first: 0 the same, 1 and 2 the bits plus and minus one, 3 an exception; then the
  places of the exceptions in the chunk as u32, ascending; then their results as u32.
- whole: every result as u32, where that is smaller (subnormals that the default flushes, say).

With a `period` the ranges lie in [1, 2^period), and other binades follow by powers of two (`SCALING`). In memory a
table is one block of words (`ResultTable.words`), which `transcendental_lanes.table_result` reads.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gfx950.whole_files import write_whole

Words = npt.NDArray[np.uint32]
Ranges = tuple[tuple[int, int], ...]

SCHEMA = "gfx950.results/1"
# f(x * 2^period) = f(x) * 2^slope
SCALING = {"v_rcp_f32": (1, -1), "v_rcp_iflag_f32": (1, -1), "v_rsq_f32": (2, -1), "v_sqrt_f32": (2, 1)}
SAME, CLOSE, WHOLE = 0, 1, 2
CHUNK_WORDS = 4  # of the directory at the head of the words: kind, first word, exceptions, 0
_PROVENANCE = ("device", "capture", "mode")
_ESCAPE = 3
_CODES = np.array([2, 0, 1, _ESCAPE], np.uint8)  # of the differences -1, 0, 1 and all others
MOST_RANGES = 1 << 16
PACKED_AT_MOST = 1040  # bytes that one byte of zlib's can hold, a little more than its 1032
_ONE, _TWO_BINADES = 0x3F800000, 0x40800000
_FNV_START, _FNV_FACTOR = 14695981039346656037, 1099511628211


class TableError(ValueError):
    """A table of results that cannot be written or read."""


class Chunk(NamedTuple):
    """One chunk of a file. number: its first input code >> chunk_bits. kind: SAME, CLOSE or WHOLE. length: bytes of its
    blob. exceptions: how many. check: CRC-32 of all its results as little-endian u32."""

    number: int
    kind: int
    length: int
    exceptions: int
    check: int


@dataclass(frozen=True)
class Header:
    """What a file says of itself. ranges: input codes captured, as (first, count), ascending. differing: how many of
    them have another result than the correctly rounded one. provenance: `device`, `capture` (its digest), `mode`.
    digest: SHA-256 of the file but for its first line, hexadecimal."""

    mnemonic: str
    period: int | None
    chunk_bits: int
    ranges: Ranges
    differing: int
    provenance: Mapping[str, str]
    chunks: tuple[Chunk, ...]
    digest: str

    @property
    def covered(self) -> int:
        """The number of input codes captured."""
        return sum(count for _, count in self.ranges)

    @property
    def space(self) -> int:
        """The number of input codes there are."""
        return input_space(self.mnemonic)

    @property
    def complete(self) -> bool:
        """Whether every input code was captured itself, so that no other rule decides a result."""
        return self.covered == self.space


@dataclass(frozen=True)
class ResultTable:
    """A table in memory. words: uint32, a directory of CHUNK_WORDS a chunk of the input space, then the chunks."""

    header: Header
    words: Words


def input_space(mnemonic: str) -> int:
    """The number of input codes of an instruction, by the type at the end of its name."""
    return 1 << 16 if mnemonic.endswith("f16") else 1 << 32


def fnv_digest(results: Words, digest: int = _FNV_START) -> int:
    """The 64-bit FNV-style digest that public models of RDNA's units are published with: for each result word in order
    digest = (digest ^ word) * 1099511628211. digest: what words before these gave. Raises TypeError for another dtype.
    """
    if results.dtype != np.uint32:
        raise TypeError(f"a digest is of result bits as uint32, got {results.dtype}; use .view(numpy.uint32)")
    from gfx950.arithmetic.transcendental_lanes import fnv_words

    return int(fnv_words(np.ascontiguousarray(results).reshape(-1), np.uint64(digest), np.uint64(_FNV_FACTOR)))


class PublishedDigest(NamedTuple):
    """A digest that somebody published of another chip's results. inputs: gives the input bits, in order."""

    mnemonic: str
    text: str
    inputs: Callable[[], Words]
    digest: int


def _fractions(sign: int) -> Words:
    return (np.arange(1 << 24, dtype=np.float32) * np.float32(2.0**-24)).view(np.uint32) | np.uint32(sign)


# As the tests of AMD's emulator rocjitsu have them: exp captured on gfx1100 and gfx1201, log on gfx1201. What gfx950
# gives is not known: a capture that matches them has RDNA's tables, one that does not has others.
PUBLISHED_DIGESTS = (
    PublishedDigest("v_exp_f32", "i * 2^-24, i from 0 to 2^24 - 1", lambda: _fractions(0), 0x68959BB684F42E5F),
    PublishedDigest("v_exp_f32", "-i * 2^-24, i from 0 to 2^24 - 1", lambda: _fractions(1 << 31), 0x88B75684494DB8D3),
    PublishedDigest(
        "v_log_f32", "[0.5, 2)", lambda: np.arange(0x3F000000, 1 << 30, dtype=np.uint32), 0xC33A54EFBAE098BE
    ),
)


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_table(
    path: str | PathLike[str],
    mnemonic: str,
    results: Iterable[tuple[int, Words]],
    *,
    device: str,
    capture: str,
    mode: str,
    period: int | None = None,
) -> str:
    """Writes captured results and returns the digest of the table.

    results: pairs of a first input code and the results of consecutive codes from there on, one-dimensional uint32
    (f16 results in the low half), pairs in ascending order; a binade of f32 at a time keeps memory small. device,
    capture, mode: where they come from: the chip, the digest of the capture file, the MODE they were taken under.
    period: for rcp, rsq and sqrt in f32: the results of [1, 2^period), zeros, subnormals, infinities and NaNs stand for
    those of all binades.

    Raises TableError for ranges out of order or out of the input space, results that do not fit their type, or a period
    that the instruction does not have; ValueError for an unknown mnemonic; TypeError for another dtype.
    """
    from gfx950.arithmetic.transcendental import DEFAULTS, check_mnemonic

    check_mnemonic(mnemonic)
    _check_period(mnemonic, period)
    default = DEFAULTS[mnemonic]
    covered: list[list[int]] = []
    encoder = _Encoder(chunk_bits_of(mnemonic), lambda bits: default(bits.reshape(-1, 1, 64)).reshape(-1))
    for begin, words in results:
        first = _first_input(mnemonic, begin)
        _check_range(mnemonic, period, first, words, covered[-1] if covered else [0, 0])
        if covered and sum(covered[-1]) == first:
            covered[-1][1] += len(words)
        elif len(covered) == MOST_RANGES:
            raise TableError(f"{mnemonic}: a table has at most {MOST_RANGES} ranges; capture consecutive inputs")
        else:
            covered.append([first, len(words)])
        encoder.add(first, words)
    encoder.finish()
    fields = {"schema": SCHEMA, "mnemonic": mnemonic, "period": period, "chunk_bits": encoder.chunk_bits}
    found = {"ranges": covered, "covered": sum(count for _, count in covered), "differing": encoder.differing}
    provenance = {"device": device, "capture": capture, "mode": mode}
    _check_provenance(mnemonic, provenance)
    header = json.dumps(fields | found | {"provenance": provenance, "chunks": encoder.chunks})
    body = b"".join((header.encode(), b"\n", *encoder.blobs))
    digest = hashlib.sha256(body).hexdigest()
    write_whole(Path(path), b"%s %s\n" % (SCHEMA.encode(), digest.encode()) + body)
    return digest


def chunk_bits_of(mnemonic: str) -> int:
    """The size of a chunk as a power of two: the mantissa, so that a chunk is a binade."""
    return 10 if mnemonic.endswith("f16") else 23


def chunk_inputs(number: int, chunk_bits: int) -> Words:
    """The input codes of a chunk."""
    return np.arange(1 << chunk_bits, dtype=np.uint32) + np.uint32(number << chunk_bits)


class _Encoder:
    """Gathers results into chunks, in order. default: correctly rounded results of input bits."""

    def __init__(self, chunk_bits: int, default: Callable[[Words], Words]) -> None:
        self.chunk_bits, self.default = chunk_bits, default
        self.chunks: list[Chunk] = []
        self.blobs: list[bytes] = []
        self.differing = 0
        self._number = -1
        self._plain = self._results = np.zeros(0, np.uint32)

    def add(self, first: int, words: Words) -> None:
        size = 1 << self.chunk_bits
        while len(words):
            number, place = divmod(first, size)
            if number != self._number:
                self.finish()
                self._number = number
                self._plain = self.default(chunk_inputs(number, self.chunk_bits))
                self._results = self._plain.copy()
            count = min(size - place, len(words))
            self._results[place : place + count] = words[:count]
            first, words = first + count, words[count:]

    def finish(self) -> None:
        """Closes the chunk at hand."""
        if self._number < 0:
            return
        codes = difference_codes(self._plain, self._results)
        kind, exceptions, blob = _blob(codes, self._results)
        self.chunks.append(Chunk(self._number, kind, len(blob), exceptions, results_check(self._results)))
        self.blobs.append(blob)
        self.differing += int(np.count_nonzero(codes))
        self._number = -1


def difference_codes(plain: Words, results: Words) -> npt.NDArray[np.uint8]:
    """The two-bit code of each result."""
    codes: npt.NDArray[np.uint8] = _CODES[np.minimum(results - plain + np.uint32(1), np.uint32(3))]
    return codes


def results_check(results: Words) -> int:
    """CRC-32 of results as little-endian words."""
    return zlib.crc32(results.astype("<u4").tobytes())


def _blob(codes: npt.NDArray[np.uint8], results: Words) -> tuple[int, int, bytes]:
    """Kind, number of exceptions and compressed content of a chunk."""
    if not codes.any():
        return SAME, 0, b""
    places = np.flatnonzero(codes == _ESCAPE).astype(np.uint32)
    if len(codes) // 4 + 8 * len(places) > 4 * len(codes):
        return WHOLE, 0, zlib.compress(results.astype("<u4").tobytes(), 6)
    packed = codes[0::4] | codes[1::4] << 2 | codes[2::4] << 4 | codes[3::4] << 6
    parts = packed, places.astype("<u4"), results[places].astype("<u4")
    return CLOSE, len(places), zlib.compress(b"".join(part.tobytes() for part in parts), 6)


def _check_period(mnemonic: str, period: int | None) -> None:
    if period is None or SCALING.get(mnemonic, (None,))[0] == period:
        return
    if mnemonic in SCALING:
        raise TableError(f"{mnemonic} repeats every {SCALING[mnemonic][0]} binades, not {period}: pass that period")
    raise TableError(f"{mnemonic} does not scale by powers of two ({', '.join(SCALING)} do); leave `period` out")


def _first_input(mnemonic: str, first: Any) -> int:
    """A first input code as a Python integer, which has no width to overflow."""
    if not isinstance(first, int | np.integer):
        raise TypeError(f"{mnemonic}: a range begins at an input code, a whole number; got {first!r}")
    return int(first)


def _check_provenance(mnemonic: str, provenance: Mapping[str, Any]) -> None:
    for part, text in provenance.items():
        if not isinstance(text, str) or not text.isprintable():
            raise TypeError(f"{mnemonic}: {part} is one line of text, got {text!r}")


def _check_range(mnemonic: str, period: int | None, first: int, words: Words, before: list[int]) -> None:
    """before: the range that ends where the next may begin."""
    if not isinstance(words, np.ndarray) or words.dtype != np.uint32:
        got = getattr(words, "dtype", type(words).__name__)
        raise TypeError(f"{mnemonic}: results are bits as uint32 in a numpy array, got {got}; use .view(numpy.uint32)")
    if words.ndim != 1 or not len(words):
        raise TableError(f"{mnemonic}: results of a range are one-dimensional and not empty; got shape {words.shape}")
    end, space = first + len(words), input_space(mnemonic)
    if not sum(before) <= first < end <= space:
        raise TableError(
            f"{mnemonic}: the range of {len(words)} results from input {first:#x} on must lie between {sum(before):#x},"
            f" where the one before it ends, and {space:#x}; give ranges in ascending order, each input once"
        )
    if space == 1 << 16 and int(words.max()) > 0xFFFF:
        raise TableError(f"{mnemonic}: an f16 result lies in bits 15:0, bits 31:16 zero; got {int(words.max()):#010x}")
    if period:
        _check_repeating(mnemonic, period, first, words)


def _check_repeating(mnemonic: str, period: int, first: int, words: Words) -> None:
    """That a range lies within the binades of a period, or without normal numbers that follow from them."""
    end, last = first + len(words), _ONE + (period << 23)
    if first >= _ONE and end <= last:
        if int(words.min()) < 0x3E800000 or int(words.max()) >= _TWO_BINADES:
            raise TableError(f"{mnemonic}: with a period the results of [1, {1 << period}) lie in [0.25, 4)")
        return
    follows = [(0x00800000, 0x7F800000)] + [(0x80800000, 0xFF800000)] * (period == 1)
    for low, high in follows:
        if first < high and end > low:
            raise TableError(
                f"{mnemonic}: with period {period} the results of normal numbers are those of [1, {1 << period}), input"
                f" bits {_ONE:#x} to {last - 1:#x}; the range from {first:#x} to {end - 1:#x} goes beyond: leave"
                " `period` out"
            )


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_header(path: str | PathLike[str]) -> Header:
    """What a file says of itself, its digest unchecked. Raises TableError for a file that is no table."""
    try:
        with open(path, "rb") as file:
            return _parsed(str(path), file.readline(1 << 10), file.readline(1 << 26))
    except OSError as error:
        raise TableError(f"{path} is no table of results: {error.strerror}") from None
    except ValueError as error:
        raise error if isinstance(error, TableError) else TableError(f"{str(path)!r} names no file: {error}") from None


def read_table(path: str | PathLike[str]) -> ResultTable:
    """The table in a file. Raises TableError for a file that is none, is damaged or truncated, saying what is wrong."""
    try:
        first, _, body = Path(path).read_bytes().partition(b"\n")
    except OSError as error:
        raise TableError(f"{path} is no table of results: {error.strerror}") from None
    claimed = _claimed_digest(str(path), first)
    found = hashlib.sha256(body).hexdigest()
    if found != claimed:
        raise TableError(
            f"{path} is damaged or truncated: its content has SHA-256 {found[:16]}..., its first line says"
            f" {claimed[:16]}...; copy it or capture it again"
        )
    head, _, payload = body.partition(b"\n")
    header = _parsed(str(path), first, head)
    return ResultTable(header, _decoded(str(path), header, payload))


def _claimed_digest(path: str, line: bytes) -> str:
    parts = line.decode("ascii", "replace").split()
    if len(parts) != 2 or parts[0] != SCHEMA or len(parts[1]) != 64 or not set(parts[1]) <= set("0123456789abcdef"):
        raise TableError(f"{path} is no table of results: it does not begin with {SCHEMA!r} and a digest")
    return parts[1]


def _parsed(path: str, first: bytes, head: bytes) -> Header:
    digest = _claimed_digest(path, first)
    try:
        content = json.loads(head)
        header = _header_of(content, digest)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TableError(f"{path}: its header is wrong: {type(error).__name__}: {error}") from None
    return header


def _header_of(content: Any, digest: str) -> Header:
    """Raises ValueError, KeyError or TypeError for what does not hold together."""
    mnemonic, period = str(content["mnemonic"]), content["period"]
    _check_period(mnemonic, period)
    chunks = tuple(Chunk(*map(_natural, chunk)) for chunk in content["chunks"])
    ranges = tuple((_natural(first), _natural(count)) for first, count in content["ranges"])
    provenance = {part: str(content["provenance"][part]) for part in _PROVENANCE}
    bits = chunk_bits_of(mnemonic)
    if content["schema"] != SCHEMA:
        raise ValueError(f"its schema is {content['schema']!r}; this version reads {SCHEMA!r}")
    numbers = [chunk.number for chunk in chunks]
    if (
        content["chunk_bits"] != bits
        or numbers != sorted(set(numbers))
        or max(numbers, default=0) >= (input_space(mnemonic) >> bits)
    ):
        raise ValueError(f"the chunks of {mnemonic} are binades, in order, each once")
    if any(chunk.kind > WHOLE or chunk.exceptions > (1 << bits) * (chunk.kind == CLOSE) for chunk in chunks):
        raise ValueError(f"a chunk of {mnemonic} has a kind or a number of exceptions that there is not")
    _check_ranges(mnemonic, ranges, chunks)
    differing = _natural(content["differing"])
    if differing > sum(count for _, count in ranges):
        raise ValueError(f"{differing} results differ, of {sum(count for _, count in ranges)} captured")
    return Header(mnemonic, period, bits, ranges, differing, provenance, chunks, digest)


def _check_ranges(mnemonic: str, ranges: Ranges, chunks: Sequence[Chunk]) -> None:
    """That the ranges are inputs of the instruction, each once, and lie in the chunks there are."""
    ends = [0, *(first + count for first, count in ranges)]
    ordered = all(end <= first for end, (first, _) in zip(ends, ranges, strict=False))
    if len(ranges) > MOST_RANGES or not ordered or ends[-1] > input_space(mnemonic) or any(not n for _, n in ranges):
        raise ValueError(f"the ranges of {mnemonic} are inputs it has, in ascending order, each once, none empty")
    bits, held = chunk_bits_of(mnemonic), {chunk.number for chunk in chunks}
    for first, count in ranges:
        if missing := set(range(first >> bits, (first + count - 1 >> bits) + 1)) - held:
            raise ValueError(f"the inputs of chunk {min(missing):#x} of {mnemonic} are captured, and there is no such")


def _natural(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no natural number")
    return value


def _decoded(path: str, header: Header, payload: bytes) -> Words:
    """The words of a table: the directory, then the contents of the chunks."""
    size, count = 1 << header.chunk_bits, header.space >> header.chunk_bits
    lengths = [_content_words(chunk, size) for chunk in header.chunks]
    most = PACKED_AT_MOST * len(payload)
    if 4 * sum(lengths) > most:
        raise TableError(f"{path} claims {4 * sum(lengths)} bytes of results; {len(payload)} packed ones hold {most}")
    words = np.zeros(count * CHUNK_WORDS + sum(lengths), np.uint32)
    at = count * CHUNK_WORDS
    for chunk, length, blob in zip(header.chunks, lengths, _blobs(path, header, payload), strict=True):
        if chunk.kind != SAME:
            words[at : at + length] = _inflated(f"{path}: chunk {chunk.number:#x}", blob, length)
            _check_exceptions(path, chunk, words[at : at + length], size)
        words[CHUNK_WORDS * chunk.number :][:3] = chunk.kind, at, chunk.exceptions
        at += length
    return words


def _content_words(chunk: Chunk, size: int) -> int:
    return {SAME: 0, CLOSE: size // 16 + 2 * chunk.exceptions, WHOLE: size}[chunk.kind]


def _blobs(path: str, header: Header, payload: bytes) -> Iterator[bytes]:
    if sum(chunk.length for chunk in header.chunks) != len(payload):
        raise TableError(f"{path}: its header does not describe the {len(payload)} bytes that follow it")
    view, at = memoryview(payload), 0
    for chunk in header.chunks:
        yield bytes(view[at : at + chunk.length])
        at += chunk.length


def _inflated(where: str, blob: bytes, length: int) -> Words:
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(blob, 4 * length + 1)
    except zlib.error as error:
        raise TableError(f"{where} cannot be decompressed: {error}") from None
    if len(content) != 4 * length or not inflater.eof:
        raise TableError(f"{where} has other than the {4 * length} bytes that its header asks for")
    return np.frombuffer(content, "<u4").astype(np.uint32)


def _check_exceptions(path: str, chunk: Chunk, content: Words, size: int) -> None:
    if chunk.kind != CLOSE:
        return
    codes, places = content[: size // 16], content[size // 16 :][: chunk.exceptions]
    both = codes & (codes >> np.uint32(1)) & np.uint32(0x55555555)
    escaped = np.count_nonzero(np.unpackbits(both.view(np.uint8)))
    ordered = bool(np.all(places[1:] > places[:-1])) and (not len(places) or int(places[-1]) < size)
    if escaped != chunk.exceptions or not ordered:
        raise TableError(f"{path}: chunk {chunk.number:#x} has exceptions that do not fit its codes")
