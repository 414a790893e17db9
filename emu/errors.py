"""What can go wrong in an emulated launch: each error says what happened, where, what was expected and what to do.

The layer that finds a fault rarely knows everything about it (memory knows the lane and the address, the wave knows its
program counter, the dispatcher the workgroup), so an error carries optional fields and `located` fills in the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypedDict, Unpack


@dataclass(frozen=True)
class Location:
    """Where in a launch something happened; `None` where nobody knows.

    kernel: name. workgroup: (x, y, z) id. wave: index in its workgroup. lane: 0..63. pc: virtual address in bytes.
    instruction: its text. address: the device address of a memory access in bytes.
    """

    kernel: str | None = None
    workgroup: tuple[int, int, int] | None = None
    wave: int | None = None
    lane: int | None = None
    pc: int | None = None
    instruction: str | None = None
    address: int | None = None

    def merged(self, other: Location) -> Location:
        """This location with its unknown fields taken from `other`."""
        unknown = [f.name for f in fields(self) if getattr(self, f.name) is None]
        return replace(self, **{name: getattr(other, name) for name in unknown})

    def __str__(self) -> str:
        numbers = [("kernel", self.kernel), ("workgroup", self.workgroup), ("wave", self.wave), ("lane", self.lane)]
        parts = [f"{name} {value}" for name, value in numbers if value is not None]
        if self.pc is not None:
            parts.append(f"pc {self.pc:#x}")
        if self.instruction is not None:
            parts.append(f"instruction `{self.instruction}`")
        if self.address is not None:
            parts.append(f"address {self.address:#x}")
        return ", ".join(parts)


class Where(TypedDict, total=False):
    """What `Location` is made of, as keywords."""

    kernel: str | None
    workgroup: tuple[int, int, int] | None
    wave: int | None
    lane: int | None
    pc: int | None
    instruction: str | None
    address: int | None


class EmulatorError(Exception):
    """Anything the emulated machine refuses to do.

    what: what happened, one sentence. expected: what would have been right. advice: what to do about it.
    The remaining keywords are the fields of `Location`.
    """

    def __init__(
        self,
        what: str,
        *,
        expected: str | None = None,
        advice: str | None = None,
        **where: Unpack[Where],
    ) -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.advice = advice
        self.location = Location(**where)

    def located(self, **where: Unpack[Where]) -> Self:
        """This same error with the fields nobody has filled yet; a field once known is kept."""
        self.location = self.location.merged(Location(**where))
        return self

    @property
    def kernel(self) -> str | None:
        """Name of the kernel."""
        return self.location.kernel

    @property
    def workgroup(self) -> tuple[int, int, int] | None:
        """Workgroup id (x, y, z)."""
        return self.location.workgroup

    @property
    def wave(self) -> int | None:
        """Index of the wave in its workgroup."""
        return self.location.wave

    @property
    def lane(self) -> int | None:
        """Lane 0..63."""
        return self.location.lane

    @property
    def pc(self) -> int | None:
        """Virtual address of the instruction."""
        return self.location.pc

    @property
    def instruction(self) -> str | None:
        """Text of the instruction."""
        return self.location.instruction

    @property
    def address(self) -> int | None:
        """Device address of the access."""
        return self.location.address

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what,), self.__dict__

    def __str__(self) -> str:
        where = str(self.location)
        parts = [("where", where or None), ("expected", self.expected), ("to do", self.advice)]
        return "\n".join([self.what, *(f"  {name}: {text}" for name, text in parts if text is not None)])


class CodeObjectError(EmulatorError):
    """The bytes are not a code object that gfx950 can run, or the kernel asked for is not in it."""


class UnknownInstruction(EmulatorError):
    """The program counter points at bytes that are no gfx950 instruction, or at one the emulator does not know."""


class MemoryFault(EmulatorError):
    """An access outside every mapped buffer, or a write to a read-only one."""

    def located(self, **where: Unpack[Where]) -> Self:
        """As any error; of a buffer instruction it says that the descriptor is what allowed the access."""
        super().located(**where)
        if (self.instruction or "").startswith(("buffer_", "tbuffer_")) and self.expected is not None:
            self.expected = self.expected.replace("all bytes of an access", BUFFER_BYTES)
        return self


BUFFER_BYTES = "all bytes that the descriptor covers (beyond num_records nothing is accessed and loads give 0)"


class LaunchError(EmulatorError):
    """The launch itself is impossible: geometry, arguments, LDS or registers that chip or kernel cannot have."""


class NoProgress(EmulatorError):
    """Every wave waits for something that cannot happen any more, or the instruction limit is reached."""


def left_the_code(base: int, code: bytes, where: dict[str, Any]) -> EmulatorError:
    """The error of a program counter that is no place in the code."""
    return EmulatorError(
        "the program counter left the code",
        expected=f"a multiple of 4 from {base:#x} to {base + len(code) - 4:#x}",
        advice="a jump went wrong, or the kernel has no s_endpgm at its end",
        **where,
    )


class Trapped(EmulatorError):
    """The kernel gave up by itself: S_TRAP, or a halt that nobody ends."""


def stopped_itself(trap: bool, instruction: str, where: dict[str, Any]) -> Trapped:
    """The error of a wave at a trap or a halt."""
    if trap:
        what, expected = "the kernel trapped", "no s_trap but 3: it is what an assertion or llvm.trap becomes"
    else:
        what, expected = "the wave halted", "no halt: nobody resumes the wave"
    return Trapped(
        what,
        expected=expected,
        advice="look at what the source checks right before this instruction",
        instruction=instruction,
        **where,
    )


def out_of_steps(limit: int, where: dict[str, Any]) -> NoProgress:
    """The error of a workgroup that takes more instructions than it may."""
    return NoProgress(
        f"the step limit of {limit} wave instructions is used up",
        advice="raise step_limit, or look for a wait that nobody ends",
        **where,
    )
