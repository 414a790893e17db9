"""Runs a Python module in a process that has the stand-in: `python with_stand_in.py [OPTIONS] gfx950 check ...`.

    --arch NAME  --devices N  --memory BYTES          as `stand_in` takes them
    --fault KERNEL:OFFSET:REGISTER:BIT[:LANE[:EXECUTION]]   repeatable; OFFSET as Python writes numbers

The code is the module's own; 1 where it leaves something on the device.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "toolchain")]

from hip_stand_in import Fault, stand_in  # noqa: E402


def fault(text: str) -> Fault:
    """A fault as the command line has it."""
    kernel, offset, register, *numbers = text.split(":")
    bit, lane, execution = (*map(int, numbers), *[None] * (3 - len(numbers)))
    return Fault(kernel, int(offset, 0), register, bit or 0, lane or 0, execution)


def main() -> None:
    """Starts the stand-in, then the module, as `python -m` would."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="gfx950:sramecc+:xnack-")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--memory", type=int)
    parser.add_argument("--fault", type=fault, action="append", default=[])
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    sys.argv = [chosen.module, *chosen.arguments]
    with stand_in(chosen.arch, chosen.devices, chosen.memory, chosen.fault, check_leaks=False) as s:
        try:
            runpy.run_module(chosen.module, run_name="__main__", alter_sys=True)
        finally:
            if s.leaks():
                print(f"left on the device: {s.leaks()}", file=sys.stderr)
                sys.exit(1)


if __name__ == "__main__":
    main()
