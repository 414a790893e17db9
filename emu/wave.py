"""One wave on the numpy engine: the registers as plain arrays, one instruction at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.engines.numpy_engine import NumpyEngine
from emu.execute import EXEC, Transfer, check_scalar, check_vector, execute
from emu.memory import Memory
from emu.numpy_memory import GlobalLanes, LdsLanes, ScalarReads
from gfx950.isa.encoding import Decoded
from gfx950.lanes import ALL_LANES, Engine, Mode


class Wave:
    """64 lanes. vgprs: (512, 64) uint32, v0.. then a0.. from row 256. sgprs: (128,) uint32 by scalar code (VCC 106,
    M0 124, EXEC 126). lds: the workgroup's bytes. memory: the address space."""

    def __init__(
        self, lds: NDArray[np.uint8] | None = None, memory: Memory | None = None, mode: Mode | None = None
    ) -> None:
        self.engine: Engine = NumpyEngine(mode)
        self.vgprs = np.zeros((512, 64), dtype=np.uint32)
        self.sgprs = np.zeros(128, dtype=np.uint32)
        self.scc_bit = False
        self.pc = 0
        self.lds = lds if lds is not None else np.zeros(0, dtype=np.uint8)
        self.address_space = memory if memory is not None else Memory()
        # Of the last instruction: (address, lane, bytes) of its global stores, (addresses, active) of its LDS accesses.
        self.last_stores: list[tuple[int, int, int]] = []
        self.last_lds: list[tuple[NDArray[np.int64], NDArray[np.bool_]]] = []
        self.set_exec(ALL_LANES)

    def set_exec(self, bits: int) -> None:
        """Writes EXEC."""
        self.sgprs[EXEC], self.sgprs[EXEC + 1] = bits & 0xFFFFFFFF, bits >> 32

    def step(self, decoded: Decoded) -> Transfer | None:
        """Runs one instruction; does not move the program counter."""
        self.last_stores.clear()
        self.last_lds.clear()
        return execute(decoded, self)

    # ---- the State protocol ---------------------------------------------------------------------------------------

    def sgpr(self, index: int) -> Any:
        check_scalar(index)
        return self.sgprs[index : index + 1].copy()

    def set_sgpr(self, index: int, value: Any) -> None:
        check_scalar(index)
        self.sgprs[index] = value[0]

    def vgpr(self, index: int) -> Any:
        check_vector(index)
        return self.vgprs[index].copy()

    def set_vgpr(self, index: int, value: Any, mask: Any) -> None:
        check_vector(index)
        if mask is None:
            self.vgprs[index] = value
        else:
            np.copyto(self.vgprs[index], value, where=mask)

    def scc(self) -> Any:
        return np.array([self.scc_bit])

    def set_scc(self, value: Any) -> None:
        self.scc_bit = bool(value[0])

    def exec_mask(self) -> Any:
        return self.engine.apply("lanes_of", 1, self.sgprs[EXEC : EXEC + 2].view(np.uint64))

    def memory(self, space: str) -> Any:
        if space == "lds":
            return LdsLanes(self)
        return ScalarReads(self) if space == "scalar_memory" else GlobalLanes(self)
