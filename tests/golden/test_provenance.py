"""Where compared bits come from."""

from __future__ import annotations

import ctypes

from hip_stand_in import stand_in

from golden.provenance import describe_device


def test_a_described_device_is_not_the_current_one_afterwards(monkeypatch):
    with stand_in(devices=2) as s:
        monkeypatch.setenv("GFX950_DEVICE", "1")
        assert describe_device(("host", "device"))["architecture"] == "gfx950:sramecc+:xnack-"
        current = ctypes.c_int(-1)
        s.library.hipGetDevice(ctypes.byref(current))
    assert current.value == 0


def test_nothing_is_asked_of_a_device_that_does_not_take_part():
    with stand_in(devices=0):
        assert describe_device(("host", "numpy")) == {}
