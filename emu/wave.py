"""One wave on the numpy engine: the registers as plain arrays, one instruction at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.engines.numpy_engine import NumpyEngine
from emu.execute import execute
from emu.memory import Memory
from emu.numpy_memory import GlobalLanes, LdsLanes, ScalarReads
from emu.register_checks import AGPR, check_scalar, check_vector
from emu.registers import HARDWARE_REGISTERS
from emu.state import LATE_ENTRIES, Transfer
from gfx950.isa.encoding import Decoded
from gfx950.isa.mode_registers import MODE
from gfx950.isa.operand_codes import EXEC, M0
from gfx950.lanes import ALL_LANES, Engine, Mode


class Wave:
    """64 lanes. vgprs: (512, 64) uint32, v0.. then a0.. from row 256. sgprs: (128,) uint32 by scalar code (VCC 106,
    M0 124, EXEC 126). lds: the workgroup's bytes. memory: the address space."""

    def __init__(
        self, lds: NDArray[np.uint8] | None = None, memory: Memory | None = None, mode: Mode | None = None
    ) -> None:
        self.engine: Engine = NumpyEngine(mode)
        self.hardware = np.zeros(HARDWARE_REGISTERS, dtype=np.uint32)  # by number; MODE's word is only read and written
        self.windows = {
            "lds": np.zeros(1, np.uint64),
            "scratch": np.zeros(64, np.uint64),
            "scratch_bytes": np.zeros(1, np.uint64),
        }
        self.vgprs = np.zeros((512, 64), dtype=np.uint32)
        self.sgprs = np.zeros(128, dtype=np.uint32)
        self.scc_bit = False
        self.pc = 0
        self.lds = lds if lds is not None else np.zeros(0, dtype=np.uint8)
        self.address_space = memory if memory is not None else Memory()
        # Of the last instruction: (address, lane, bytes) of its global stores, (addresses, active) of its LDS accesses.
        self.last_stores: list[tuple[int, int, int]] = []
        self.last_lds: list[tuple[NDArray[np.int64], NDArray[np.bool_]]] = []
        self.count = 0  # instructions run
        self.issued = 0  # of those that vmcnt counts
        self.changes = 0  # of global memory
        self.late: list[tuple[int, Callable[[], None]]] = []  # loads to LDS on their way: their place in `issued`
        self.set_exec(ALL_LANES)

    def set_exec(self, bits: int) -> None:
        """Writes EXEC."""
        self.sgprs[EXEC], self.sgprs[EXEC + 1] = bits & 0xFFFFFFFF, bits >> 32

    def step(self, decoded: Decoded) -> Transfer | None:
        """Runs one instruction; does not move the program counter."""
        self.last_stores.clear()
        self.last_lds.clear()
        transfer = execute(decoded, self)
        self.count += 1
        return transfer

    # ---- the State protocol ---------------------------------------------------------------------------------------

    def sgpr(self, index: int) -> Any:
        check_scalar(index)
        return self.sgprs[index : index + 1].copy()

    def set_sgpr(self, index: int, value: Any) -> None:
        check_scalar(index)
        self.sgprs[index] = value[0]

    def sgpr_at(self, index: Any) -> Any:
        return self.sgpr(int(index[0]))

    def set_sgpr_at(self, index: Any, value: Any) -> None:
        self.set_sgpr(int(index[0]), value)

    def hardware_word(self, number: int) -> Any:
        return self.hardware[number : number + 1].copy()

    def set_hardware_word(self, number: int, value: Any) -> None:
        self.hardware[number] = value[0]

    def set_mode(self, value: Any) -> None:
        self.hardware[MODE] = value[0]
        self.engine = NumpyEngine(Mode.from_bits(int(value[0])))

    def clock(self) -> Any:
        return np.array([self.count], np.uint64)

    def issue(self) -> None:
        self.issued += 1

    def land(self, outstanding: int) -> None:
        while self.late and self.late[0][0] <= self.issued - outstanding:
            self.late.pop(0)[1]()

    def store_late(self, store: Callable[[], None]) -> None:
        """Keeps what a load to LDS stores until it lands [rule lds.late_landing]."""
        if len(self.late) == LATE_ENTRIES:
            self.late.pop(0)[1]()
        self.late.append((self.issued, store))

    def is_shared(self, addresses: Any) -> bool:
        """Whether a store to these addresses (uint64, the lowest counts) changes memory that other workgroups see."""
        if not addresses.size:
            return False
        own = {int(self.windows["lds"][0]) >> 32, int(self.windows["scratch"][0]) >> 32}
        return int(addresses.min()) >> 32 not in own

    def window(self, name: str) -> Any:
        return self.windows[name]

    def _indexed(self, index: int, role: int | None) -> int | None:
        """The register that VGPR indexing makes of one; None past the last. [rule valu.gpr_index]"""
        m0 = int(self.sgprs[M0])
        if role is None or not self.engine.mode.gpr_idx or not m0 >> (12 + role) & 1:
            return index
        moved = index + (m0 & 0xFF)
        return moved if moved // AGPR == index // AGPR else None

    def vgpr(self, index: int, role: int | None = None) -> Any:
        check_vector(index)
        moved = self._indexed(index, role)
        return self.vgprs[0 if moved is None else moved].copy()

    def set_vgpr(self, index: int, value: Any, mask: Any, role: int | None = None) -> None:
        check_vector(index)
        moved = self._indexed(index, role)
        if moved is None:
            return
        index = moved
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
