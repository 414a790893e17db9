"""The functions behind emu.host_memory, as LLVM text (its names: see emu.host_memory_moves).

The usual case is quick: the lowest and the highest address of the active lanes lie in one buffer, so no lane needs a
check of its own. Anything else is done lane by lane, exactly.
"""

from __future__ import annotations

from emu.host_layout import (
    CHANGES,
    FAULT_ADDRESS,
    FAULT_BYTES,
    FAULT_KIND,
    FAULT_LANE,
    FAULT_LANES,
    LATE_ACTIVE,
    LATE_ADDRESSES,
    LATE_BYTES,
    LATE_DATA,
    LATE_FIRST,
    LATE_NBYTES,
    LATE_NEXT,
    LATE_NUMBER,
    LATE_RING,
    LDS,
    LDS_BYTES,
    OWN_LDS,
    OWN_SCRATCH,
    TABLE,
    UNALIGNED,
    WATCH_HIGH,
    WATCH_LANE,
    WATCH_LOW,
    WATCH_PC,
    WATCH_SEEN,
    WATCH_WAVE,
    WAVE,
)
from emu.host_memory_moves import (
    ADDRESS,
    MOVER,
    MOVERS,
    PLACE,
    WORD_OF_LANE,
    WORDS,
    each_active,
    element,
    load,
    loop,
    numbers,
    splat,
    store,
)
from emu.memory import FLAGS, HOST_BASE, LENGTH, READABLE, WRITABLE
from emu.state import LATE_ENTRIES


def field(word: int) -> str:
    """A word of the context."""
    return element("%context", "i64", word)


# ---- lanes together ----------------------------------------------------------------------------------------------

# Whether each of sixteen lanes from %lane on is active. What follows masks with "and": of a select between a load and a
# store LLVM makes a masked store, which takes some hosts ten times as long.
SIXTEEN_ON = f"""  %active.from = lshr i64 %active, %lane
  %active.low = trunc i64 %active.from to i32
{splat("active.low", "i32", 16)}
  %own.bits = and <16 x i32> %active.low.all, <{numbers("i32", (1 << i for i in range(16)))}>
  %on = icmp ne <16 x i32> %own.bits, zeroinitializer"""
SETTLE_SIXTEEN = f"""{SIXTEEN_ON}
{load("given", "<16 x i64>", element("%addresses", "i64", "%lane"), align=8)}
  %mask = sext <16 x i1> %on to <16 x i64>
  %difference = xor <16 x i64> %given, %first.all
  %own = and <16 x i64> %difference, %mask
  %settled = xor <16 x i64> %own, %first.all
  store <16 x i64> %settled, ptr %given.at, align 8"""
KEEP_SIXTEEN = f"""{SIXTEEN_ON}
{load("loaded", "<16 x i32>", element("%row", "i32", "%lane"), align=4)}
  %mask = sext <16 x i1> %on to <16 x i32>
  %kept = and <16 x i32> %loaded, %mask
  store <16 x i32> %kept, ptr %loaded.at, align 4"""
KEEP_WORD = f"""  %row.index = shl i64 %word, 6
  %row = {element("%data", "i32", "%row.index")}
{loop("lane", 64, KEEP_SIXTEEN, step=16)}"""
ZERO_WORD = f"""  %row = shl i64 %word, 6
{store("zero", "<64 x i32> zeroinitializer", element("%data", "i32", "%row"), align=4)}"""
LANES = f"""
; Gives inactive lanes the address of the first active one. %active is not 0.
define internal void @settle(ptr %addresses, i64 %active) {{
  %is.full = icmp eq i64 %active, -1
  br i1 %is.full, label %done, label %some
some:
  %first.lane = call i64 @llvm.cttz.i64(i64 %active, i1 true)
{load("first", "i64", element("%addresses", "i64", "%first.lane"))}
{splat("first", "i64", 16)}
{loop("lane", 64, SETTLE_SIXTEEN, step=16)}
  br label %done
done:
  ret void
}}

; Zeros in inactive lanes.
define internal void @keep_active(ptr %data, i64 %active, i64 %nbytes) {{
  %is.full = icmp eq i64 %active, -1
  br i1 %is.full, label %done, label %some
some:
{WORDS}
{loop("word", "%words", KEEP_WORD)}
  br label %done
done:
  ret void
}}

define internal void @zero(ptr %data, i64 %nbytes) {{
{WORDS}
{loop("word", "%words", ZERO_WORD)}
  ret void
}}

define internal i32 @read(ptr %place, i64 %size) {{
  switch i64 %size, label %word [ i64 1, label %byte  i64 2, label %half ]
byte:
  %b = load i8, ptr %place
  %wide.b = zext i8 %b to i32
  ret i32 %wide.b
half:
  %h = load i16, ptr %place, align 1
  %wide.h = zext i16 %h to i32
  ret i32 %wide.h
word:
  %w = load i32, ptr %place, align 1
  ret i32 %w
}}

define internal void @write(ptr %place, i32 %value, i64 %size) {{
  switch i64 %size, label %word [ i64 1, label %byte  i64 2, label %half ]
byte:
  %b = trunc i32 %value to i8
  store i8 %b, ptr %place
  ret void
half:
  %h = trunc i32 %value to i16
  store i16 %h, ptr %place, align 1
  ret void
word:
  store i32 %value, ptr %place, align 1
  ret void
}}
"""
EVERY_ADDRESS = "  %every = load <64 x i64>, ptr %addresses, align 8"
LOWEST = "  %low = call i64 @llvm.vector.reduce.umin.v64i64(<64 x i64> %every)"
HIGHEST = "  %high = call i64 @llvm.vector.reduce.umax.v64i64(<64 x i64> %every)"

# ---- LDS ---------------------------------------------------------------------------------------------------------

# Whether every lane's data are in range.
LDS_RANGE = f"""  call void @settle(ptr %addresses, i64 %active)
{EVERY_ADDRESS}
{HIGHEST}
{load("base", "ptr", field(LDS))}
{load("limit", "i64", field(LDS_BYTES))}
  %end = add i64 %high, %nbytes
  %in.range = icmp ule i64 %end, %limit"""
# Whether one word of a lane is.
LDS_WORD = f"""{WORD_OF_LANE}
  %word.address = add i64 %address, %offset
  %place = getelementptr i8, ptr %base, i64 %word.address
  %past = add i64 %word.address, %size
  %in.lds = icmp ule i64 %past, %limit"""
LOAD_LDS_WORD = f"""{LDS_WORD}
  store i32 0, ptr %register
  br i1 %in.lds, label %good, label %word.end
good:
  %datum = call i32 @read(ptr %place, i64 %size)
  store i32 %datum, ptr %register"""
STORE_LDS_WORD = f"""{LDS_WORD}
  br i1 %in.lds, label %good, label %word.end
good:
  %datum = load i32, ptr %register
  call void @write(ptr %place, i32 %datum, i64 %size)"""

LDS_PLACE = f"""{ADDRESS}
  %active.from = lshr i64 %active, %lane
  %on = trunc i64 %active.from to i1
  %end = add i64 %address, %nbytes
  %in.range = icmp ule i64 %end, %limit
  %good = and i1 %on, %in.range
  %host = add i64 %base, %address
  %place = select i1 %good, i64 %host, i64 0
  store i64 %place, ptr %address.at"""
LDS_FUNCTIONS = f"""
define i64 @lds_load(ptr %context, ptr %addresses, i64 %active, ptr %data, i64 %nbytes) {{
  %idle = icmp eq i64 %active, 0
  br i1 %idle, label %none, label %some
none:
  call void @zero(ptr %data, i64 %nbytes)
  ret i64 0
some:
{LDS_RANGE}
  br i1 %in.range, label %quick, label %apart
quick:
  call void @load({MOVER})
  br label %loaded
apart:
{WORDS}
{loop("lane", 64, ADDRESS + loop("word", "%words", LOAD_LDS_WORD))}
  br label %loaded
loaded:
  call void @keep_active(ptr %data, i64 %active, i64 %nbytes)
  ret i64 0
}}

define i64 @lds_store(ptr %context, ptr %addresses, i64 %active, ptr %data, i64 %nbytes) {{
  %idle = icmp eq i64 %active, 0
  br i1 %idle, label %done, label %some
some:
{LDS_RANGE}
  br i1 %in.range, label %quick, label %apart
quick:
  call void @store({MOVER})
  ret i64 0
apart:
{WORDS}
{each_active(loop("word", "%words", STORE_LDS_WORD))}
  br label %done
done:
  ret i64 0
}}

; LDS addresses of atomics become host addresses, 0 for lanes that take no part.
define i64 @lds_places(ptr %context, ptr %addresses, i64 %active, i64 %nbytes) {{
{load("base", "i64", field(LDS))}
{load("limit", "i64", field(LDS_BYTES))}
{loop("lane", 64, LDS_PLACE)}
  ret i64 0
}}
"""

# ---- memory ------------------------------------------------------------------------------------------------------

COUNT_FAULT = """  %shift = call i64 @room(ptr %context, i64 %address, i64 %address, i64 %nbytes, i64 %need)
  %good = icmp ne i64 %shift, 0
  br i1 %good, label %lane.end, label %bad
bad:
  %before = load i64, ptr %none.at
  %is.first = icmp eq i64 %before, 0
  br i1 %is.first, label %first, label %further
first:
  call void @fault(ptr %context, i64 %lane, i64 %address, i64 %nbytes, i64 %need)
  br label %lane.end
further:
  %now = add i64 %before, 1
  store i64 %now, ptr %none.at"""
NOTE_WATCHED = f"""  %end = add i64 %address, %nbytes
  %begins = icmp ult i64 %address, %high
  %reaches = icmp ugt i64 %end, %low
  %inside = and i1 %begins, %reaches
  br i1 %inside, label %note, label %lane.end
note:
  %seen = load i64, ptr %seen.at
  %seen.now = add i64 %seen, 1
  store i64 %seen.now, ptr %seen.at
{store("pc", "i64 %pc", field(WATCH_PC))}
{store("lane", "i64 %lane", field(WATCH_LANE))}
{store("wave.noted", "i64 %wave", field(WATCH_WAVE))}"""
CHECKS = f"""
; What makes addresses from %address to %last (its %nbytes too) host addresses; 0 when not all are allowed.
define internal i64 @room(ptr %context, i64 %address, i64 %last, i64 %nbytes, i64 %need) {{
  %both = or i64 %address, %last
  %beyond = lshr i64 %both, 48
  %is.beyond = icmp ne i64 %beyond, 0
  %backwards = icmp ult i64 %last, %address
  %nowhere = or i1 %is.beyond, %backwards
  br i1 %nowhere, label %no, label %look
look:
{load("table", "ptr", field(TABLE))}
  %region = lshr i64 %address, 32
  %start = shl i64 %region, 32
  %row = getelementptr [4 x i64], ptr %table, i64 %region
{load("host", "i64", element("%row", "i64", HOST_BASE))}
{load("length", "i64", element("%row", "i64", LENGTH))}
{load("flags", "i64", element("%row", "i64", FLAGS))}
  %flag = and i64 %flags, %need
  %allowed = icmp ne i64 %flag, 0
  %offset = sub i64 %last, %start
  %end = add i64 %offset, %nbytes
  %fits = icmp ule i64 %end, %length
  %good = and i1 %allowed, %fits
  %shift = sub i64 %host, %start
  %answer = select i1 %good, i64 %shift, i64 0
  ret i64 %answer
no:
  ret i64 0
}}

define internal void @fault(ptr %context, i64 %lane, i64 %address, i64 %nbytes, i64 %kind) {{
{store("lane", "i64 %lane", field(FAULT_LANE))}
{store("address", "i64 %address", field(FAULT_ADDRESS))}
{store("nbytes", "i64 %nbytes", field(FAULT_BYTES))}
{store("kind", "i64 %kind", field(FAULT_KIND))}
{store("lanes", "i64 1", field(FAULT_LANES))}
  ret void
}}

; Checks lane by lane. Whether a lane may not do this; the lowest of them is noted, and how many there are.
define internal i1 @any_fault(ptr %context, ptr %addresses, i64 %active, i64 %nbytes, i64 %need) {{
{store("none", "i64 0", field(FAULT_LANES))}
{each_active(COUNT_FAULT)}
  %lanes = load i64, ptr %none.at
  %any = icmp ne i64 %lanes, 0
  ret i1 %any
}}

; Notes stores into the watched bytes.
define internal void @watch(ptr %context, ptr %addresses, i64 %active, i64 %nbytes, i64 %pc) {{
{load("high", "i64", field(WATCH_HIGH))}
  %unwatched = icmp eq i64 %high, 0
  br i1 %unwatched, label %done, label %look
look:
{load("low", "i64", field(WATCH_LOW))}
{load("wave", "i64", field(WAVE))}
  %seen.at = {field(WATCH_SEEN)}
{each_active(NOTE_WATCHED)}
  br label %done
done:
  ret void
}}
"""


def room(need: int) -> str:
    """%shift: what the lanes' addresses need when they are all in one buffer, else 0."""
    return f"""  call void @settle(ptr %addresses, i64 %active)
{EVERY_ADDRESS}
{LOWEST}
{HIGHEST}
  %shift = call i64 @room(ptr %context, i64 %low, i64 %high, i64 %nbytes, i64 {need})
  %base = inttoptr i64 %shift to ptr
  %together = icmp ne i64 %shift, 0
  br i1 %together, label %quick, label %check
check:
  %refused = call i1 @any_fault(ptr %context, ptr %addresses, i64 %active, i64 %nbytes, i64 {need})
  br i1 %refused, label %fault, label %apart
fault:
  ret i64 1"""


def own_room(need: int) -> str:
    """Where a checked lane's data lie."""
    return f"""  %own = call i64 @room(ptr %context, i64 %address, i64 %address, i64 %nbytes, i64 {need})
  %host.address = add i64 %address, %own
  %host = inttoptr i64 %host.address to ptr"""


READ_WORD = f"""{WORD_OF_LANE}
{PLACE}
  %datum = call i32 @read(ptr %place, i64 %size)
  store i32 %datum, ptr %register"""
WRITE_WORD = f"""{WORD_OF_LANE}
{PLACE}
  %datum = load i32, ptr %register
  call void @write(ptr %place, i32 %datum, i64 %size)"""

SCALAR_WORD = f"""  %register = {element("%data", "i32", "%word")}
  %place = {element("%host", "i32", "%word")}
  %datum = load i32, ptr %place, align 1
  store i32 %datum, ptr %register"""
CHECK_ALIGNED = """  %off = and i64 %address, %low.bits
  %aligned = icmp eq i64 %off, 0
  br i1 %aligned, label %lane.aligned, label %unaligned
lane.aligned:"""
NO_PLACE = f"""  %active.from = lshr i64 %active, %any.lane
  %on = trunc i64 %active.from to i1
  br i1 %on, label %any.lane.end, label %off
off:
  %off.at = {element("%addresses", "i64", "%any.lane")}
  store i64 0, ptr %off.at"""
HOST_PLACE = own_room(WRITABLE) + "\n  store i64 %host.address, ptr %address.at"
LOAD_APART = ADDRESS + "\n" + own_room(READABLE) + loop("word", "%words", READ_WORD)
GLOBAL_FUNCTIONS = f"""
define i64 @global_load(ptr %context, ptr %addresses, i64 %active, ptr %data, i64 %nbytes) {{
  %idle = icmp eq i64 %active, 0
  br i1 %idle, label %none, label %some
none:
  call void @zero(ptr %data, i64 %nbytes)
  ret i64 0
some:
{room(READABLE)}
quick:
  call void @load({MOVER})
  br label %loaded
apart:
{WORDS}
{loop("lane", 64, LOAD_APART)}
  br label %loaded
loaded:
  call void @keep_active(ptr %data, i64 %active, i64 %nbytes)
  ret i64 0
}}

define i64 @global_store(ptr %context, ptr %addresses, i64 %active, ptr %data, i64 %nbytes, i64 %pc) {{
  %idle = icmp eq i64 %active, 0
  br i1 %idle, label %done, label %some
some:
{room(WRITABLE)}
quick:
  call void @store({MOVER})
  br label %stored
apart:
{WORDS}
{each_active(own_room(WRITABLE) + loop("word", "%words", WRITE_WORD))}
  br label %stored
stored:
  call void @watch(ptr %context, ptr %addresses, i64 %active, i64 %nbytes, i64 %pc)
{load("own.lds", "i64", field(OWN_LDS))}
{load("own.scratch", "i64", field(OWN_SCRATCH))}
{load("changes", "i64", field(CHANGES))}
  %stored.region = lshr i64 %low, 32
  %not.lds = icmp ne i64 %stored.region, %own.lds
  %not.scratch = icmp ne i64 %stored.region, %own.scratch
  %is.shared = and i1 %not.lds, %not.scratch
  %one.change = zext i1 %is.shared to i64
  %changes.now = add i64 %changes, %one.change
  store i64 %changes.now, ptr %changes.at
  ret i64 0
done:
  ret i64 0
}}

define i64 @scalar_load(ptr %context, i64 %address, ptr %data, i64 %words) {{
  %idle = icmp eq i64 %words, 0
  br i1 %idle, label %done, label %some
some:
  %nbytes = shl i64 %words, 2
  %shift = call i64 @room(ptr %context, i64 %address, i64 %address, i64 %nbytes, i64 {READABLE})
  %good = icmp ne i64 %shift, 0
  br i1 %good, label %quick, label %bad
bad:
  call void @fault(ptr %context, i64 0, i64 %address, i64 %nbytes, i64 {READABLE})
{store("lanes", "i64 0", field(FAULT_LANES))} ; no lane's
  ret i64 1
quick:
  %host.address = add i64 %address, %shift
  %host = inttoptr i64 %host.address to ptr
{loop("word", "%words", SCALAR_WORD)}
  br label %done
done:
  ret i64 0
}}

; Addresses of atomics on memory become host addresses, 0 for inactive lanes; all lanes are checked first.
define i64 @global_places(ptr %context, ptr %addresses, i64 %active, i64 %nbytes, i64 %pc) {{
  %low.bits = sub i64 %nbytes, 1
{each_active(CHECK_ALIGNED)}
  %refused = call i1 @any_fault(ptr %context, ptr %addresses, i64 %active, i64 %nbytes, i64 {WRITABLE})
  br i1 %refused, label %fault, label %good
fault:
  ret i64 1
good:
  call void @watch(ptr %context, ptr %addresses, i64 %active, i64 %nbytes, i64 %pc)
  call void @host_places(ptr %context, ptr %addresses, i64 %active, i64 %nbytes)
  ret i64 0
unaligned:
  call void @fault(ptr %context, i64 %lane, i64 %address, i64 %nbytes, i64 {UNALIGNED})
  ret i64 1
}}

define internal void @host_places(ptr %context, ptr %addresses, i64 %active, i64 %nbytes) {{
{loop("any.lane", 64, NO_PLACE)}
{each_active(HOST_PLACE)}
  ret void
}}
"""


def wave(offset: int) -> str:
    """A word of the wave, by its byte."""
    return f"getelementptr i8, ptr %wave, i64 {offset}"


def entry(offset: int) -> str:
    """A word of a load on its way, by its byte."""
    return f"getelementptr i8, ptr %late, i64 {offset}"


ENTRY = f"""  %ring.index = urem i64 %index, {LATE_ENTRIES}
{load("ring", "ptr", wave(LATE_RING))}
  %late = {element("%ring", f"[{LATE_BYTES} x i8]", "%ring.index")}
  %late.addresses = {entry(LATE_ADDRESSES)}
  %late.data = {entry(LATE_DATA)}"""
LATE_FUNCTIONS = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Keeps what a load to LDS stores; %number is the load's among those that vmcnt counts. A full ring lands its oldest.
define i64 @store_late(ptr %context, ptr %wave, i64 %number, ptr %addresses, i64 %active, ptr %data, i64 %nbytes) {{
{load("first", "i64", wave(LATE_FIRST))}
{load("index", "i64", wave(LATE_NEXT))}
  %on.way = sub i64 %index, %first
  %full = icmp uge i64 %on.way, {LATE_ENTRIES}
  br i1 %full, label %make.room, label %keep
make.room:
  call void @land_oldest(ptr %context, ptr %wave)
  br label %keep
keep:
{ENTRY}
{store("number", "i64 %number", entry(LATE_NUMBER))}
{store("active", "i64 %active", entry(LATE_ACTIVE))}
{store("nbytes", "i64 %nbytes", entry(LATE_NBYTES))}
  call void @llvm.memcpy.p0.p0.i64(ptr %late.addresses, ptr %addresses, i64 512, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %late.data, ptr %data, i64 1024, i1 false)
  %index.next = add i64 %index, 1
  store i64 %index.next, ptr %index.at
  ret i64 0
}}

define internal void @land_oldest(ptr %context, ptr %wave) {{
{load("index", "i64", wave(LATE_FIRST))}
{ENTRY}
{load("active", "i64", entry(LATE_ACTIVE))}
{load("nbytes", "i64", entry(LATE_NBYTES))}
  %status = call i64 @lds_store(ptr %context, ptr %late.addresses, i64 %active, ptr %late.data, i64 %nbytes)
  %index.next = add i64 %index, 1
  store i64 %index.next, ptr %index.at
  ret void
}}

; Lands every load whose number is at most %upto.
define i64 @land(ptr %context, ptr %wave, i64 %upto) {{
entry:
  br label %look
look:
{load("index", "i64", wave(LATE_FIRST))}
{load("next", "i64", wave(LATE_NEXT))}
  %none = icmp eq i64 %index, %next
  br i1 %none, label %done, label %oldest
oldest:
{ENTRY}
{load("number", "i64", entry(LATE_NUMBER))}
  %retired = icmp sle i64 %number, %upto
  br i1 %retired, label %lands, label %done
lands:
  call void @land_oldest(ptr %context, ptr %wave)
  br label %look
done:
  ret i64 0
}}
"""
TEXT = MOVERS + LANES + LDS_FUNCTIONS + CHECKS + GLOBAL_FUNCTIONS + LATE_FUNCTIONS
