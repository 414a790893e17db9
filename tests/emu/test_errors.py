"""What the emulator's errors say and carry."""

import copy
import pickle

import pytest

from emu import errors
from emu.errors import EmulatorError, Location, MemoryFault

SUBCLASSES = ["CodeObjectError", "UnknownInstruction", "MemoryFault", "LaunchError", "NoProgress"]


@pytest.mark.parametrize("name", SUBCLASSES)
def test_all_errors_of_a_launch_can_be_caught_as_one(name):
    with pytest.raises(EmulatorError, match="it broke"):
        raise getattr(errors, name)("it broke")


def test_a_bare_error_is_one_line():
    assert str(EmulatorError("it broke")) == "it broke"


def test_the_message_has_what_where_expected_and_what_to_do():
    error = MemoryFault(
        "a lane loads 4 bytes nowhere",
        expected="a mapped buffer",
        advice="map it",
        kernel="k",
        workgroup=(1, 0, 2),
        wave=3,
        lane=17,
        pc=0x1_0000_0F00,
        instruction="global_load_dword v1, v[2:3], off",
        address=0x2_0000_0000,
    )
    assert str(error) == (
        "a lane loads 4 bytes nowhere\n"
        "  where: kernel k, workgroup (1, 0, 2), wave 3, lane 17, pc 0x100000f00, "
        "instruction `global_load_dword v1, v[2:3], off`, address 0x200000000\n"
        "  expected: a mapped buffer\n"
        "  to do: map it"
    )
    assert (error.kernel, error.workgroup, error.wave, error.lane) == ("k", (1, 0, 2), 3, 17)
    assert (error.pc, error.address) == (0x1_0000_0F00, 0x2_0000_0000)
    assert error.instruction == "global_load_dword v1, v[2:3], off"


def test_outer_layers_fill_in_what_inner_ones_did_not_know():
    error = MemoryFault("x", lane=0, address=0)
    assert error.located(wave=2, lane=9).located(kernel="k", wave=5, pc=0) is error
    assert error.location == Location(kernel="k", wave=2, lane=0, pc=0, address=0)
    assert str(error) == "x\n  where: kernel k, wave 2, lane 0, pc 0x0, address 0x0"


def test_errors_survive_copies_and_process_borders():
    error = MemoryFault("x", advice="y", lane=3)
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is MemoryFault
        assert str(other) == str(error) == "x\n  where: lane 3\n  to do: y"
