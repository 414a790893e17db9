"""What the device of kernel tests loads, and what it says of the rest."""

import numpy as np
import pytest

from codegen.compile import compile_kernels
from codegen.language import I32, Pointer, kernel, store, trace
from emu import code_object
from emu.dispatch import Device, RunOptions
from golden.chosen_device import Choice, ChosenDevice, the_emulator


@kernel(block=64)
def put(out: Pointer, n: I32) -> None:
    store(out, n)


@pytest.mark.parametrize("device", [Device(), ChosenDevice(the_emulator())], ids=["Device", "ChosenDevice"])
def test_compiled_kernels_load_as_they_are(device):
    out = np.zeros(1, np.int32)
    for source in (compile_kernels([trace(put)]), compile_kernels([trace(put)]).object):
        device.load(source)["put"][1, 64](out, 7)
        assert out[0] == 7


def test_the_chip_gets_linked_code():
    class Made:
        object, code_object = b"relocatable", b"linked"

    assert ChosenDevice(Choice("device", "a chip")).code(Made()) == b"linked"
    assert Device(RunOptions(engine="device")).code(Made()) == b"linked"
    assert ChosenDevice(the_emulator()).code(Made()) == b"relocatable"
    assert Device().code(b"any") == b"any"


@pytest.mark.parametrize("device", [Device(), ChosenDevice(the_emulator())], ids=["Device", "ChosenDevice"])
def test_kernels_that_are_not_compiled_are_named(device):
    for source, kind in ((put, "Kernel"), (trace(put), "Program"), (5, "int")):
        message = f"its bytes or its path, not by a {kind}: `compile_kernels.*` is that of a function under @kernel"
        with pytest.raises(TypeError, match=message):
            device.load(source)


def test_the_reader_itself_wants_bytes():
    with pytest.raises(TypeError, match=r"not by a Compiled: pass its \.object$"):
        code_object.load(compile_kernels([trace(put)]))
