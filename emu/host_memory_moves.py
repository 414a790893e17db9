"""Moving lanes' data between registers and memory, unchecked, as LLVM text; and the small pieces such text is made of.

The text goes to the code generator as it is, with no optimiser before it, so what has to be quick is written in vectors
and without small calls in loops.

Names in the text: %context, %addresses, %active, %data, %nbytes as in emu.host_memory; %base: what an address is added
to for a host address; %size, %words: a datum of 1 or 2 bytes is one word of that size, others are words of 4 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def loop(name: str, stop: int | str, body: str, step: int = 1) -> str:
    """The body for i64 %name = 0, step ... below stop, at least once. It may leave for %name.end early."""
    return f"""
  br label %{name}.begin
{name}.begin:
  br label %{name}.body
{name}.body:
  %{name} = phi i64 [ 0, %{name}.begin ], [ %{name}.next, %{name}.end ]
{body}
  br label %{name}.end
{name}.end:
  %{name}.next = add i64 %{name}, {step}
  %{name}.more = icmp ult i64 %{name}.next, {stop}
  br i1 %{name}.more, label %{name}.body, label %{name}.done
{name}.done:"""


def each_active(body: str) -> str:
    """The body for every active %lane, ascending; %address is the lane's. It may leave for %lane.end early."""
    return f"""
  br label %lane.begin
lane.begin:
  br label %lane.test
lane.test:
  %left = phi i64 [ %active, %lane.begin ], [ %left.next, %lane.end ]
  %some.left = icmp ne i64 %left, 0
  br i1 %some.left, label %lane.body, label %lane.done
lane.body:
  %lane = call i64 @llvm.cttz.i64(i64 %left, i1 true)
{load("address", "i64", element("%addresses", "i64", "%lane"))}
{body}
  br label %lane.end
lane.end:
  %left.less = sub i64 %left, 1
  %left.next = and i64 %left, %left.less
  br label %lane.test
lane.done:"""


def element(base: str, kind: str, index: int | str) -> str:
    return f"getelementptr {kind}, ptr {base}, i64 {index}"


def load(name: str, kind: str, place: str, align: int = 0) -> str:
    """%name = what lies at a place; align: as the type wants it, unless given."""
    return f"  %{name}.at = {place}\n  %{name} = load {kind}, ptr %{name}.at{f', align {align}' * bool(align)}"


def store(name: str, value: str, place: str, align: int = 0) -> str:
    return f"  %{name}.at = {place}\n  store {value}, ptr %{name}.at{f', align {align}' * bool(align)}"


def numbers(kind: str, values: Iterable[int]) -> str:
    return ", ".join(f"{kind} {value}" for value in values)


def splat(name: str, kind: str, count: int) -> str:
    """%name.all: the scalar %name in every lane of a vector."""
    vector = f"<{count} x {kind}>"
    return f"""  %{name}.one = insertelement {vector} poison, {kind} %{name}, i64 0
  %{name}.all = shufflevector {vector} %{name}.one, {vector} poison, <{count} x i32> zeroinitializer"""


def shuffle(name: str, a: str, b: str, order: Sequence[int], width: int = 4) -> str:
    vector, mask = f"<{width} x i32>", f"<{len(order)} x i32> <{numbers('i32', order)}>"
    return f"  %{name} = shufflevector {vector} %{a}, {vector} %{b}, {mask}"


# What every function here takes, and what it is called with.
MOVER = "ptr %addresses, i64 %active, ptr %base, ptr %data, i64 %nbytes"
WORDS = """  %is.narrow = icmp ult i64 %nbytes, 4
  %size = select i1 %is.narrow, i64 %nbytes, i64 4
  %all.words = lshr i64 %nbytes, 2
  %words = select i1 %is.narrow, i64 1, i64 %all.words"""
ADDRESS = load("address", "i64", element("%addresses", "i64", "%lane"))
HOST = "  %host = getelementptr i8, ptr %base, i64 %address"
# Where word %word of lane %lane lies in registers, and how far from the lane's address.
WORD_OF_LANE = f"""  %row = shl i64 %word, 6
  %index = add i64 %row, %lane
  %register = {element("%data", "i32", "%index")}
  %offset = shl i64 %word, 2"""
PLACE = "  %place = getelementptr i8, ptr %host, i64 %offset"


def four_lanes(words: int) -> str:
    """%place0 ... %place3: where lanes %lane to %lane + 3 go. %register0 ...: where each of their words lies."""
    lines = []
    for i in range(4):
        lines.append(f"  %lane{i} = add i64 %lane, {i}")
        lines.append(load(f"address{i}", "i64", element("%addresses", "i64", f"%lane{i}")))
        lines.append(f"  %place{i} = getelementptr i8, ptr %base, i64 %address{i}")
    for w in range(words):
        lines += [f"  %index{w} = add i64 %lane, {64 * w}", f"  %register{w} = {element('%data', 'i32', f'%index{w}')}"]
    return "\n".join(lines)


def transposed(rows: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The columns of four by four words."""
    lines = []
    for k, interleaved in enumerate(((0, 4, 1, 5), (2, 6, 3, 7))):
        lines.append(shuffle(f"ab{k}", rows[0], rows[1], interleaved))
        lines.append(shuffle(f"cd{k}", rows[2], rows[3], interleaved))
        for i, halves in enumerate(((0, 1, 4, 5), (2, 3, 6, 7))):
            lines.append(shuffle(columns[2 * k + i], f"ab{k}", f"cd{k}", halves))
    return lines


FOUR = [f"four{i}" for i in range(4)]  # four words of a lane
ROWS = [f"row{i}" for i in range(4)]  # the words of a lane
COLUMNS = [f"column{i}" for i in range(4)]  # a word of each lane


def load_four(words: int) -> str:
    """2, 3 or 4 words of each of four lanes."""
    lines = [four_lanes(words)]
    lines += [f"  %row{i} = load <{words} x i32>, ptr %place{i}, align 1" for i in range(4)]
    if words == 2:
        lines += [shuffle("ab", "row0", "row1", range(4), width=2), shuffle("cd", "row2", "row3", range(4), width=2)]
        lines += [shuffle(f"column{w}", "ab", "cd", range(w, 8, 2)) for w in range(2)]
    else:
        lines += [shuffle(four, row, row, range(4), width=words) for four, row in zip(FOUR, ROWS, strict=True)]
        lines += transposed(FOUR, COLUMNS)
    lines += [f"  store <4 x i32> %column{w}, ptr %register{w}, align 4" for w in range(words)]
    return "\n".join(lines)


def store_four(words: int) -> str:
    """2, 3 or 4 words of each of four lanes, ascending."""
    lines = [four_lanes(words)]
    lines += [f"  %column{w} = load <4 x i32>, ptr %register{w}, align 4" for w in range(words)]
    if words == 2:
        lines += [shuffle(row, "column0", "column1", (i, 4 + i)) for i, row in enumerate(ROWS)]
    else:
        lines += transposed([*COLUMNS[:3], COLUMNS[words - 1]], FOUR)
        lines += [shuffle(row, four, four, range(words)) for four, row in zip(FOUR, ROWS, strict=True)]
    lines += [f"  store <{words} x i32> %row{i}, ptr %place{i}, align 1" for i in range(4)]
    return "\n".join(lines)


def load_four_of(bits: int) -> str:
    """A word of each of four lanes from its 8, 16 or 32 bits."""
    lines, vector = [four_lanes(1)], "poison"
    for i in range(4):
        lines.append(f"  %datum{i} = load i{bits}, ptr %place{i}, align 1")
        lines.append(f"  %column.{i} = insertelement <4 x i{bits}> {vector}, i{bits} %datum{i}, i64 {i}")
        vector = f"%column.{i}"
    if bits < 32:
        lines.append(f"  %wide = zext <4 x i{bits}> {vector} to <4 x i32>")
        vector = "%wide"
    return "\n".join([*lines, f"  store <4 x i32> {vector}, ptr %register0, align 4"])


def store_one(bits: int) -> str:
    """The low 8, 16 or 32 bits of one lane's word."""
    low = f"trunc i32 %wide to i{bits}" if bits < 32 else "add i32 %wide, 0"
    return f"""{HOST}
{load("wide", "i32", element("%data", "i32", "%lane"))}
  %datum = {low}
  store i{bits} %datum, ptr %host, align 1"""


LOAD_WORD = f"""  %offset = shl i64 %word, 2
  %row = shl i64 %word, 6
  %place = getelementptr i8, ptr %base, i64 %offset
  %register = {element("%data", "i32", "%row")}
  call void @load_4(ptr %addresses, i64 %active, ptr %place, ptr %register, i64 4)"""
STORE_WORD = f"""{WORD_OF_LANE}
{PLACE}
  %datum = load i32, ptr %register
  store i32 %datum, ptr %place, align 1"""
STORE_WORDS = HOST + loop("word", "%words", STORE_WORD)

# Dwords of all lanes that follow each other go as one.
STORE_ROW = f"""  %first = load i64, ptr %addresses
{splat("first", "i64", 64)}
  %row = add <64 x i64> %first.all, <{numbers("i64", range(0, 256, 4))}>
  %every = load <64 x i64>, ptr %addresses, align 8
  %apart.by = xor <64 x i64> %row, %every
  %apart = call i64 @llvm.vector.reduce.or.v64i64(<64 x i64> %apart.by)
  %is.row = icmp eq i64 %apart, 0
  br i1 %is.row, label %together, label %apart.all
apart.all:
  tail call void @store_some({MOVER})
  ret void
together:
  %words = load <64 x i32>, ptr %data, align 4
  %place = getelementptr i8, ptr %base, i64 %first
  store <64 x i32> %words, ptr %place, align 1"""
STORE = f"""  %is.full = icmp eq i64 %active, -1
  br i1 %is.full, label %full, label %some
full:
  tail call void @store_every({MOVER})
  ret void
some:
  tail call void @store_some({MOVER})"""


def mover(name: str, body: str) -> str:
    """A function that moves data between registers and memory."""
    return f"""
define internal void @{name}({MOVER}) {{
{body}
  ret void
}}
"""


def by_size(name: str, sizes: Sequence[int]) -> str:
    """The mover that calls the one for its size in bytes, or the one for any size."""
    cases = " ".join(f"i64 {size}, label %of.{size}" for size in sizes)
    calls = "  ret void\n".join(f"of.{size}:\n  tail call void @{name}_{size}({MOVER})\n" for size in (*sizes, "any"))
    return mover(name, f"  switch i64 %nbytes, label %of.any [ {cases} ]\n{calls}")


MOVERS = "".join(
    [
        *(mover(f"load_{bits // 8}", loop("lane", 64, load_four_of(bits), step=4)) for bits in (8, 16, 32)),
        *(mover(f"load_{4 * words}", loop("lane", 64, load_four(words), step=4)) for words in (2, 3, 4)),
        mover("load_any", f"{WORDS}\n{loop('word', '%words', LOAD_WORD)}"),
        by_size("load", (1, 2, 4, 8, 12, 16)),
        *(mover(f"store_some_{bits // 8}", each_active(store_one(bits))) for bits in (8, 16, 32)),
        mover("store_some_any", f"{WORDS}\n{each_active(STORE_WORDS)}"),
        by_size("store_some", (1, 2, 4)),
        *(mover(f"store_every_{4 * words}", loop("lane", 64, store_four(words), step=4)) for words in (2, 3, 4)),
        mover("store_every_any", f"  tail call void @store_some({MOVER})"),
        mover("store_every_4", STORE_ROW),
        by_size("store_every", (4, 8, 12, 16)),
        mover("store", STORE),
    ]
)
