"""Short programs from given registers, LDS and memory, on both engines, which must leave the same bits everywhere.

The programs of all test files are assembled by LLVM in one go, when the first of them runs.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from kernel_builds import assemble_kernel, with_code
from llvm_tools import LlvmError, assembled_pieces
from wave_registers import WaveRegisters, Workgroup, put_scc_and_mode, registers_of

from emu.dispatch import Device, RunOptions, RunReport
from emu.geometry import Geometry
from emu.host_machine import HostWorkgroup
from emu.launch import prepare
from emu.numpy_machine import NumpyWorkgroup
from gfx950.isa.encoding import ENCODINGS, MAI
from gfx950.isa.mode_registers import MODE
from gfx950.isa.operand_codes import EXEC, M0, VCC
from gfx950.lanes import ALL_LANES, Mode

ROOM = 256  # dwords that a program may take
LIMIT = 1 << 20
DIRECTIVES = ".amdhsa_group_segment_fixed_size {lds}\n.amdhsa_private_segment_fixed_size {scratch}\n"
DIRECTIVES += ".amdhsa_next_free_vgpr 512\n.amdhsa_accum_offset 256\n"
LANES = np.arange(64, dtype=np.uint32)
Value = int | Sequence[int] | np.ndarray
ENGINES = ("numpy", "host")


KEPT = np.r_[0:102, 104:128]  # the scalar registers that a program is given; FLAT_SCRATCH is the launch's
PLAIN = Mode()


class Assembler:
    """Texts that are assembled together."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.made: dict[str, bytes] = {}

    def expect(self, text: str) -> str:
        """A text that will be asked for."""
        self.waiting.append(text)
        return text

    def bytes_of(self, text: str) -> bytes:
        """Its machine code, with an S_ENDPGM behind it. Raises LlvmError."""
        if text not in self.made:
            texts, self.waiting = list(dict.fromkeys([*self.waiting, text])), []
            try:
                self._assemble(texts)
            except LlvmError:  # one of them is wrong; the test that asks for it says so
                self._assemble([text])
        return self.made[text]

    def _assemble(self, texts: Sequence[str]) -> None:
        codes = assembled_pieces([f"{text}\ns_endpgm" for text in texts])
        self.made.update(zip(texts, codes, strict=True))


ASSEMBLER = Assembler()
expect = ASSEMBLER.expect


def mode_bits(mode: Mode) -> int:
    """The word that Mode.from_bits reads."""
    low = mode.round32 | mode.round16_64 << 2 | mode.denorm32 << 4 | mode.denorm16_64 << 6
    return low | mode.dx10_clamp << 8 | mode.ieee << 9 | mode.fp16_ovfl << 23 | mode.gpr_idx << 27 | mode.vskip << 28


@dataclass
class State:
    """Registers of a wave, the LDS of its workgroup and memory (by the SGPR that held its address) around a program.

    instructions: how many the wave ran."""

    vgprs: np.ndarray = field(default_factory=lambda: np.zeros((512, 64), np.uint32))
    sgprs: np.ndarray = field(default_factory=lambda: np.zeros(128, np.uint32))
    scc: bool = False
    mode: int = 0
    lds: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))
    memory: dict[int, np.ndarray] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)
    hardware: dict[int, int] = field(default_factory=dict)
    instructions: int = 0

    def v(self, first: int, lane: int | None = None, count: int = 1) -> int | np.ndarray:
        """A vector register's (or several ones') lanes; one number where they are all the same, or of one lane."""
        rows = self.vgprs[first : first + count].astype(object)
        values = sum(row << 32 * i for i, row in enumerate(rows))
        if lane is not None:
            return int(values[lane])
        return int(values[0]) if (values == values[0]).all() else values.astype(np.uint64)

    def s(self, first: int, count: int = 1) -> int:
        """A scalar register, or several as one number."""
        return sum(int(n) << 32 * i for i, n in enumerate(self.sgprs[first : first + count]))

    @property
    def vcc(self) -> int:
        return self.s(VCC, 2)

    @property
    def exec(self) -> int:
        return self.s(EXEC, 2)

    @property
    def m0(self) -> int:
        return self.s(M0)

    def put_v(self, values: Mapping[int, Value]) -> None:
        """Vector registers by number; a number that 32 bits do not hold fills the next one too."""
        for number, value in values.items():
            column = [int(n) if n >= 0 else int(n) & 0xFFFFFFFF for n in np.resize(np.array(value, dtype=object), 64)]
            for i in range(max(1, -(-max(column).bit_length() // 32))):
                self.vgprs[number + i] = [n >> 32 * i & 0xFFFFFFFF for n in column]

    def put_s(self, values: Mapping[int, int]) -> None:
        """Scalar registers by number, likewise."""
        for number, value in values.items():
            for i in range(max(1, -(-value.bit_length() // 32))):
                self.sgprs[number + i] = value >> 32 * i & 0xFFFFFFFF


@functools.cache
def _template(lds: int, scratch: int) -> tuple[bytes, bytes]:
    """A code object and the bytes in it that programs replace."""
    room = "".join(f".long 0x{0xBF800000 + i % 16:08x}\n" for i in range(ROOM))
    data = assemble_kernel(room + "s_endpgm", DIRECTIVES.format(lds=lds, scratch=scratch))
    return data, b"".join((0xBF800000 + i % 16).to_bytes(4, "little") for i in range(ROOM))


@dataclass(frozen=True)
class Setting:
    """The kernel and the launch around a program. lds, scratch: bytes of a workgroup, of a lane."""

    waves: int = 1
    lds: int = 5120
    scratch: int = 0
    quantum: int = 32


class Outcome(list):
    """The states that the waves of a workgroup leave; what is asked of it is asked of the first wave."""

    def __getattr__(self, name: str) -> object:
        return getattr(self[0], name)


def run(
    text: str | bytes,
    *,
    v: Mapping[int, Value] | None = None,
    s: Mapping[int, int] | None = None,
    vcc: int = 0,
    exec: int = ALL_LANES,
    m0: int = 0,
    scc: bool = False,
    mode: Mode | int = PLAIN,
    lds: Sequence[int] | np.ndarray | None = None,
    memory: Mapping[int, np.ndarray] | None = None,
    hardware: Mapping[int, int] | None = None,
    setting: Setting = Setting(),
    engines: Sequence[str] = ENGINES,
) -> Outcome:
    """Runs a program (text, or its bytes) from these registers on both engines and compares all that they leave.

    memory: arrays by the SGPR pair that gets their address; the outcome's are copies. lds: dwords, or bytes. hardware:
    words of S_GETREG by number. EXEC, MODE and everything else not given: all lanes, denormals kept and IEEE and
    DX10_CLAMP set, 0.
    """
    code = text if isinstance(text, bytes) else ASSEMBLER.bytes_of(text)
    state = State(scc=scc, mode=mode if isinstance(mode, int) else mode_bits(mode))
    state.put_v(v or {})
    for number, value in {VCC: vcc, EXEC: exec, M0: m0}.items():
        state.put_s({number: value})
    state.given, state.hardware = dict(s or {}), dict(hardware or {})
    if lds is not None:
        data = np.asarray(lds)
        state.lds = data if data.dtype == np.uint8 else data.astype(np.uint32).view(np.uint8)
    found = [_run_on(engine, code, state, memory or {}, setting) for engine in engines]
    for one, other in zip(found[0], found[-1], strict=True):
        _compare(one, other)
    return Outcome(found[0])


def _compare(numpy_state: State, host_state: State) -> None:
    for part in ("vgprs", "sgprs", "lds"):
        x, y = getattr(numpy_state, part), getattr(host_state, part)
        if not np.array_equal(x, y):
            at = tuple(int(n) for n in np.argwhere(x != y)[0])
            raise AssertionError(f"{part}{list(at)}: numpy {x[at]:#x}, host {y[at]:#x}")
    for key, array in numpy_state.memory.items():
        assert array.tobytes() == host_state.memory[key].tobytes(), f"memory at s{key}"
    for part in ("scc", "mode", "instructions"):
        assert getattr(numpy_state, part) == getattr(host_state, part), part


def _run_on(engine: str, code: bytes, state: State, memory: Mapping[int, np.ndarray], setting: Setting) -> list[State]:
    template, room = _template(setting.lds, setting.scratch)
    options = RunOptions(engine=engine, step_limit=LIMIT, quantum=setting.quantum)
    device = Device(options)
    module = device.load(with_code(template, room, code))
    kernel = module.code.kernel("k")
    launch = prepare(kernel, Geometry.of_blocks(1, 64 * setting.waves), [b""], device.memory)
    machine = module.machine(kernel, options)
    arrays = {number: array.copy() for number, array in memory.items()}
    for number, array in arrays.items():
        state.put_s({number: device.map(array)})
    state.put_s(state.given)
    if engine == "host":
        group: Workgroup = HostWorkgroup(machine, launch, options)
    else:
        group = NumpyWorkgroup(machine, launch, options, RunReport())
    group.begin(0, (0, 0, 0))
    for one in registers_of(group):
        one.vectors[:], one.scalars[KEPT] = state.vgprs, state.sgprs[KEPT]
        one.hardware[list(state.hardware)] = list(state.hardware.values())
    put_scc_and_mode(group, state.scc, state.mode)
    group.windows.lds[: len(state.lds)] = state.lds
    group.advance(LIMIT)
    assert group.done
    lds = group.windows.lds[: launch.lds_bytes].copy()
    return [_left(one, lds, arrays) for one in registers_of(group)]


def _left(one: WaveRegisters, lds: np.ndarray, memory: dict[int, np.ndarray]) -> State:
    vectors, scalars = one.vectors.copy(), one.scalars.copy()
    return State(vectors, scalars, one.scc, int(one.hardware[MODE]), lds, memory, instructions=one.count)


def words(form: str, **fields: int) -> str:
    """Assembly text of an instruction by its fields, for forms that LLVM's assembler does not write."""
    encoding = MAI if form == "MAI" else ENCODINGS[form]
    bits = encoding.pack(fields)
    return ".long " + ", ".join(f"{bits >> 32 * i & 0xFFFFFFFF:#x}" for i in range(encoding.nbytes // 4))


def f16(low: float, high: float = 0.0) -> int:
    """Two halves in a register."""
    return int(np.array([low, high], np.float16).view(np.uint32)[0])


def f32(value: float) -> int:
    """The bits of a float."""
    return int(np.float32(value).view(np.uint32))


def f64(value: float) -> int:
    """The bits of a double."""
    return int(np.float64(value).view(np.uint64))
