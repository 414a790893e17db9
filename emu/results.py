"""The results of an instruction's body on their way to the registers: omod, clamp, halves, SDWA, EXEC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from emu.modifiers import apply_omod, sdwa_merge
from emu.operands import DESTINATION, INDEXED_ENCODINGS, MEMORY_FIELDS
from emu.register_checks import AGPR, check_even, check_scalar, check_scalar_run, check_vector_run
from emu.state import State, Transfer
from gfx950.isa.encoding import Decoded
from gfx950.isa.lane_arithmetic import clamped
from gfx950.isa.operand_codes import EXEC, M0, VCC
from gfx950.isa.registry import Instruction
from gfx950.lanes import U32, U64, Float, Lanes, Mask, Raw, Words, split

# FLAT_SCRATCH is read-only [3.1]; only a trap handler writes the trap registers, to others they read 0 [3.10].
READ_ONLY = (102, 103, *range(108, 124))


class Results:
    """Writes what the body of one instruction returns."""

    def __init__(self, decoded: Decoded, state: State, write_mask: Raw | None = None) -> None:
        """write_mask: the lanes a DPP form may write, beside EXEC (None: all)."""
        self.decoded = decoded
        self.state = state
        self.engine = state.engine
        self.fields = decoded.fields
        self.instruction: Instruction = decoded.instruction
        self.write_mask = write_mask

    def write(self, results: Any) -> Transfer | None:
        """Puts the body's results where the definition's annotations say."""
        if results is None:
            return None
        values: Sequence[Any] = results if isinstance(results, tuple) else (results,)
        transfer = None
        for place, value in zip(self.instruction.results, values, strict=True):
            if place.place == "pc":
                transfer = Transfer("jump", None, value.raw)
            elif place.place == "agpr":
                self._set_vgpr(self.fields["vdst"] + AGPR, value.raw)
            elif place.place in _IMPLICIT:
                _IMPLICIT[place.place](self, value)
            elif place.kind is Mask:
                self._write_mask_result(value)
            else:
                self._write_register(value)
        return transfer

    def write_packed(self, low: Lanes, high: Lanes) -> None:
        """The two results of a VOP3P instruction: halves of one register, or a pair of registers."""
        halves = [clamped(h) if self.fields["clamp"] and isinstance(h, Float) else h for h in (low, high)]
        if low.width == 32:
            words = [h.bits(U32) for h in halves]
        else:
            lower, upper = (U32(self.engine, self.engine.apply("zext", 32, h.raw)) for h in halves)
            words = [lower | (upper << 16)]
        check_even(self.fields["vdst"], len(words))
        for i, word in enumerate(words):
            self._set_vgpr(self.fields["vdst"] + i, word.raw)

    def _write_register(self, value: Any) -> None:
        form = self.decoded.form
        if form in ("SOP1", "SOP2", "SOPK", "SMEM"):
            self._set_scalar(self.fields["sdata" if form == "SMEM" else "sdst"], value)
            return
        index, words = self._destination(), self._result_words(value)
        check_vector_run(self.instruction.name, index, len(words))
        for i, word in enumerate(words):
            self._set_vgpr(index + i, word.raw)

    def _destination(self) -> int:
        """The vector register that a result begins in."""
        form = self.decoded.form
        in_agprs = self.fields.get("acc_cd") or (form in ("DS", "FLAT", "MUBUF", "MTBUF") and self.fields["acc"])
        return self.fields[MEMORY_FIELDS.get((form, "vdst"), "vdst")] + (AGPR if in_agprs else 0)

    def check_returned(self) -> None:
        """Refuses registers that a memory instruction cannot return to, before it touches memory."""
        instruction, fields = self.instruction, self.fields
        bit = next((name for name in ("sc0", "glc") if instruction.parameter(name) is not None), None)
        if not instruction.results or (bit is not None and not fields[bit]):  # an atomic that returns nothing
            return
        count = instruction.results[0].registers
        if self.decoded.form == "SMEM":
            check_scalar_run(fields["sdata"], count)
            for index in range(fields["sdata"], fields["sdata"] + count):
                check_scalar(index)
            return
        index = self._destination()
        check_vector_run(self.instruction.name, index, count)

    def _result_words(self, value: Any) -> Sequence[U32]:
        if isinstance(value, Words):
            return value.words
        value = self._output_modified(value)
        if value.width == 64:
            return split(value.bits(U64))
        if value.width == 32:
            return (value.bits(U32),)
        return (self._narrow_result(value),)

    def _output_modified(self, value: Lanes) -> Lanes:
        extra = self.fields if self.decoded.form in ("VOP3", "VOP3P") else self.decoded.sdwa or {}
        if isinstance(value, Float):
            value = apply_omod(value, extra.get("omod", 0), self.engine.mode)
            if extra.get("clamp"):
                value = clamped(value)
        if self.decoded.sdwa is not None and "dst_sel" in self.decoded.sdwa and value.width < 64:
            old = self._old()
            word = U32(self.engine, self.engine.apply("zext", 32, value.raw)) if value.width < 32 else value.bits(U32)
            return sdwa_merge(old, word, self.decoded.sdwa["dst_sel"], self.decoded.sdwa["dst_u"])
        return value

    def _narrow_result(self, value: Lanes) -> U32:
        """A 16-bit result: OP_SEL[3] puts it high and keeps the low half; low, native VOP3 instructions but the legacy
        ones keep the high half, the rest zero it. [12.11 V_MAD_F16, V_MAD_LEGACY_F16, V_MAC_F16]"""
        wide = U32(self.engine, self.engine.apply("zext", 32, value.raw))
        if self.decoded.form != "VOP3":
            return wide
        native, legacy = self.instruction.encoding == "VOP3", "_legacy_" in self.instruction.name
        old = self._old()
        if self.fields["op_sel"] >> 3 & 1 and (native or self.instruction.name == "v_mac_f16"):
            return (wide << 16) | (old & 0xFFFF)
        return wide | (old & 0xFFFF0000) if native and not legacy else wide

    def _write_mask_result(self, value: Mask) -> None:
        """A compare's or carry's bits: active lanes, zeros elsewhere, all 64 replaced. [3.9]"""
        active = value & Mask(self.engine, self.state.exec_mask())
        self._set_scalar(self._mask_destination(), active.ballot())

    def _mask_destination(self) -> int:
        if self.decoded.form == "VOP3":
            return self.fields["sdst"] if "sdst" in self.fields else self.fields["vdst"]
        if self.decoded.sdwa is not None and self.decoded.sdwa.get("sd"):
            return self.decoded.sdwa["sdst"]
        return VCC

    def _write_cmpx(self, value: Mask) -> None:
        active = (value & Mask(self.engine, self.state.exec_mask())).ballot()
        self._set_scalar(self._mask_destination(), active)
        self._set_scalar(EXEC, active)

    def _set_scalar(self, index: int, value: Any) -> None:
        if isinstance(value, Words):
            words: Sequence[U32] = value.words
        else:
            words = split(value.bits(U64)) if value.width == 64 else (value.bits(U32),)
        check_scalar_run(index, len(words))
        for i, word in enumerate(words):
            if index + i not in READ_ONLY:
                self.state.set_sgpr(index + i, word.raw)

    def _old(self) -> U32:
        """What the destination holds."""
        moved = DESTINATION if self.instruction.encoding in INDEXED_ENCODINGS else None
        return U32(self.engine, self.state.vgpr(self.fields["vdst"], moved))

    def _set_vgpr(self, index: int, raw: Raw, role: int = DESTINATION) -> None:
        moved = role if self.instruction.encoding in INDEXED_ENCODINGS else None
        if self.instruction.ignores_exec:
            self.state.set_vgpr(index, raw, None, moved)
            return
        mask = self.state.exec_mask()
        if self.write_mask is not None:
            mask = self.engine.apply("and", 1, mask, self.write_mask)
        self.state.set_vgpr(index, raw, mask, moved)


_IMPLICIT: dict[str | None, Callable[[Results, Any], None]] = {
    "scc": lambda r, v: r.state.set_scc(v.raw),
    "exec": lambda r, v: r._set_scalar(EXEC, v),
    "m0": lambda r, v: r._set_scalar(M0, v),
    "src0": lambda r, v: r._set_vgpr(r.fields["src0"] - 256, v.raw, 0),
    "scalar": lambda r, v: r._set_scalar(r.fields["vdst"], v),
    "cmpx": lambda r, v: r._write_cmpx(v),
}
