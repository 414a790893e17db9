"""Where translated code, its driver, the memory functions and Python find things: the bytes of a wave, the words of the
context of a workgroup's call, and what a block returns."""

from __future__ import annotations

from typing import TypeVar

from gfx950.lanes import U32

B = TypeVar("B", U32, int)

# One wave in memory: vector registers, then scalar registers, then the words below, in bytes.
SGPRS = 512 * 256
SCC = SGPRS + 128 * 4
PC = SCC + 8
STATUS = PC + 8
COUNT = STATUS + 8
TABLES = COUNT + 8  # the address of the tables of translated blocks for the MODE in force (see emu.host_machine)
WINDOWS = {"lds": TABLES + 8, "scratch_bytes": TABLES + 16, "scratch": SGPRS + 1024}
ISSUED = TABLES + 24  # instructions that vmcnt counts
LATE_FIRST = ISSUED + 8  # loads to LDS on their way: the number of the oldest, of the next, and where they are kept
LATE_NEXT = LATE_FIRST + 8
LATE_RING = LATE_NEXT + 8
HARDWARE = LATE_RING + 8  # the hardware registers by number
WAVE_BYTES = SGPRS + 2048

# Status of a wave, and the kind in the top bits of what a block returns.
RUN, BARRIER, END, FAULT, STOPPED, TRAP, HALT = range(7)
KIND_SHIFT = 60

# Words of the context, uint64. LDS and TABLE are host addresses.
LDS, LDS_BYTES, TABLE = range(3)
FAULT_LANE, FAULT_ADDRESS, FAULT_BYTES, FAULT_KIND, FAULT_LANES = range(3, 8)
WATCH_LOW, WATCH_HIGH, WATCH_PC, WATCH_LANE, WATCH_SEEN, WATCH_WAVE = range(8, 14)
# The driver's own: the wave that runs, then the place of its turn in the round. LEFT: instructions it may still run.
WAVE, PLACE, SPENT, LEFT, RUNNING, WAITING = range(14, 20)
# The tables by mode key; how many instructions polled; how often global memory was changed; instructions of the turn
# that runs; the state of a random schedule, else 0.
MODE_TABLES, POLLS, CHANGES, TURN, RANDOM = range(20, 25)
OWN_LDS, OWN_SCRATCH = 25, 26  # the regions of memory that only the workgroup itself sees
ORDER = 27  # the waves of the round by place (see emu.schedule.Turns)
CONTEXT_WORDS = ORDER + 1
MODE_KEYS = 1 << 13

# A load to LDS on its way: its number among those that vmcnt counts, EXEC, bytes a lane, addresses, data; in bytes.
LATE_BYTES = 64 + 512 + 1024
LATE_NUMBER, LATE_ACTIVE, LATE_NBYTES, LATE_ADDRESSES, LATE_DATA = 0, 8, 16, 64, 64 + 512

UNALIGNED = 4  # an atomic off its alignment: a kind of fault beside what emu.memory says of a region

MEMORY_FUNCTIONS = (
    "lds_load",
    "lds_store",
    "global_load",
    "global_store",
    "scalar_load",
    "lds_places",
    "global_places",
    "store_late",
    "land",
)
SCRATCH_BYTES = 256 * 128  # what each thread has for addresses and data on their way to the memory functions


def mode_key(mode: B) -> B:
    """The bits of MODE that change translated code, packed: 9:0, 23, 28:27. [CDNA4 ISA 3.5]"""
    return mode & 0x3FF | (mode >> 13 & 0x400) | (mode >> 16 & 0x1800)
