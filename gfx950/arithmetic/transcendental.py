"""The transcendental instructions: v_exp, v_log, v_rcp, v_rsq, v_sqrt, v_sin, v_cos for f32, f16, and v_rcp_iflag_f32.

Nobody has published what gfx950's units return, so the default of each is the correctly rounded value (nearest, ties to
even) inside the documented ranges. A capture replaces it: `use_table` and `use_binades` put results in its place, and
`use_default` takes them out. Every native takes one register and gives one; `parameters` is ignored, and so is MODE.
All of it is IEEE double and float + - * / and square root in a fixed order, and integer operations: the same bits on
any host.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from gfx950.arithmetic.native import NATIVES, Body, Native, declare
from gfx950.evidence import Evidence, Rule, rule

Words = npt.NDArray[np.uint32]

VALUE_RULE = rule(
    "transcendental.value",
    Evidence.chosen,
    "no capture of gfx950 is public; CDNA4 ISA 12.8 names only the functions",
    "The result is the correctly rounded value (nearest, ties to even) of 2^x, log2 x, 1/x, 1/sqrt x, sqrt x,"
    " sin(2 pi x) or cos(2 pi x).",
)
F32_RANGE_RULE = rule(
    "transcendental.f32_ranges",
    Evidence.spec,
    "CDNA4 ISA 12.8; the NaN code is that of its examples",
    "Whatever MODE says, f32 subnormal inputs count as zero and results below 2^-126 are zero; log of zero is -Inf, rcp"
    " and rsq of zero are infinite; log, rsq and sqrt of negative numbers are the NaN 0xffc00000.",
)
TURNS_RULE = rule(
    "transcendental.turns",
    Evidence.spec,
    "CDNA4 ISA 12.8, V_SIN_F32, V_COS_F32, V_SIN_F16, V_COS_F16: full range, denormals supported, and the examples;"
    " that every sine and cosine of 0 but that of -0 is +0 goes beyond the examples",
    "v_sin and v_cos take turns, at any magnitude; they take and give subnormals, which the instruction flushes where"
    " MODE does. An infinity gives 0xffc00000 (f16 0xfe00), sin of -0 is -0, other zeros are +0.",
)
EXP_RANGE_RULE = rule(
    "transcendental.exp_f32_ends",
    Evidence.chosen,
    "published exact models of RDNA4, measured there; CDNA4 ISA 12.8 says only that subnormal results are flushed",
    "v_exp_f32 gives +0 for x < -126 and +Inf for x >= 128.",
)
FLUSH_SIGN_RULE = rule(
    "transcendental.f32_flush_sign",
    Evidence.chosen,
    "CDNA4 ISA 12.8 is silent; the usual meaning of flushing",
    "Flushing keeps the sign: rsq and rcp of a negative subnormal are -Inf, sqrt of it is -0, rcp of x < -2^126 is -0.",
)
NAN_RULE = rule(
    "transcendental.nan",
    Evidence.chosen,
    "published exact models of RDNA4 do so for v_exp_f32; nothing is known for gfx950",
    "A NaN input comes back with its quiet bit set, sign and payload kept.",
)
F16_RULE = rule(
    "transcendental.f16",
    Evidence.spec,
    "CDNA4 ISA 12.8, of V_RCP_F16 by analogy, and the preface of 12: MODE holds where nothing else is said; the NaN"
    " code is that of the examples",
    "The f16 forms take and give subnormals, which the instruction flushes where MODE does; log, rsq and sqrt of"
    " negative numbers are 0xfe00.",
)
F16_HIGH_RULE = rule(
    "transcendental.f16_high_half",
    Evidence.chosen,
    "a convention of these functions: the instruction decides what becomes of the other half",
    "f16 forms read bits 15:0 of the input and give the result in bits 15:0 with bits 31:16 zero.",
)

_LANES_MODULE = "gfx950.arithmetic.transcendental_lanes"
_TURNS_MODULE = "gfx950.arithmetic.trigonometric_lanes"
_F32 = ("v_exp_f32", "v_log_f32", "v_rcp_f32", "v_rcp_iflag_f32", "v_rsq_f32", "v_sqrt_f32", "v_sin_f32", "v_cos_f32")
_F16 = ("v_exp_f16", "v_log_f16", "v_rcp_f16", "v_rsq_f16", "v_sqrt_f16", "v_sin_f16", "v_cos_f16")
_TURNS = ("v_sin_f32", "v_cos_f32", "v_sin_f16", "v_cos_f16")
# f(x * 2^period) = f(x) * 2^slope
_SCALING = {"v_rcp_f32": (1, -1), "v_rcp_iflag_f32": (1, -1), "v_rsq_f32": (2, -1), "v_sqrt_f32": (2, 1)}
_CALLER = "a table of the caller"


def _default_body(mnemonic: str) -> str:
    return f"{_TURNS_MODULE if mnemonic in _TURNS else _LANES_MODULE}:{mnemonic}"


DEFAULTS: dict[str, Native] = {
    mnemonic: declare(mnemonic, 1, 1, _default_body(mnemonic)) for mnemonic in (*_F32, *_F16)
}


class TableNative(Native):
    """A native that looks results up in a table of this process; compiled anew each time, since it holds an address."""

    kept = False

    def __init__(self, mnemonic: str, results: Words, evidence: Rule, kind: str, *numbers: int) -> None:
        super().__init__(mnemonic, 1, 1, _default_body(mnemonic))
        self.results, self.rule = results, evidence
        self._kind, self._numbers = kind, numbers

    def _function(self) -> Body:
        from gfx950.arithmetic import transcendental_lanes, trigonometric_lanes

        make = getattr(transcendental_lanes, self._kind)
        lane = (transcendental_lanes.LANE_FUNCTIONS | trigonometric_lanes.LANE_FUNCTIONS)[self.name]
        body: Body = make(lane, int(self.results.ctypes.data), *self._numbers)
        return body


def use_table(
    mnemonic: str, results: Words, first: int = 0, evidence: Evidence = Evidence.chosen, source: str = _CALLER
) -> Native:
    """Makes results[i] the result of `mnemonic` for input bits first + i in this process; other inputs keep theirs.

    results: uint32, one-dimensional; a `numpy.memmap` of all 2^32 results does as well. evidence and source say what
    the table rests on (`Evidence.measured` for a capture from an MI355X only). Returns the native that
    `NATIVES[mnemonic]` is now. Raises ValueError for an unknown mnemonic or a range that does not fit, TypeError for
    another dtype.
    """
    table = _checked_table(mnemonic, results)
    space = 1 << 16 if mnemonic in _F16 else 1 << 32
    if not 0 <= first <= first + len(table) <= space:
        raise ValueError(
            f"{mnemonic}: {len(table)} results from input {first:#x} on do not fit its {space:#x} inputs;"
            " shorten the table or lower `first`"
        )
    return _install(mnemonic, table, evidence, source, "range_body", first, len(table))


def use_binades(mnemonic: str, results: Words, evidence: Evidence = Evidence.chosen, source: str = _CALLER) -> Native:
    """As `use_table`, for rcp, rsq and sqrt in f32, from the results of [1, 2) (rcp: 2^23) or [1, 4) (rsq, sqrt: 2^24).

    The other positive normal inputs (rcp: negative ones too) follow by powers of two, which is itself an assumption
    about the unit; zeros, infinities and NaNs keep the documented behaviour.
    """
    table = _checked_table(mnemonic, results)
    if mnemonic not in _SCALING:
        raise ValueError(f"{mnemonic} does not scale by powers of two ({', '.join(_SCALING)} do); use `use_table`")
    period, slope = _SCALING[mnemonic]
    if len(table) != period << 23:
        raise ValueError(
            f"{mnemonic} needs the {period << 23} results of [1, {1 << period}), input bits 0x3f800000 on;"
            f" got {len(table)}"
        )
    return _install(mnemonic, table, evidence, source, "binade_body", period, slope)


def use_default(mnemonic: str) -> Native:
    """Puts the correctly rounded default back. Raises ValueError for an unknown mnemonic."""
    _check_mnemonic(mnemonic)
    NATIVES[mnemonic] = DEFAULTS[mnemonic]
    return DEFAULTS[mnemonic]


def rules(mnemonic: str) -> list[Rule]:
    """The rules that the results of `mnemonic` follow now, the table's first when there is one."""
    _check_mnemonic(mnemonic)
    current = NATIVES[mnemonic]
    value = current.rule if isinstance(current, TableNative) else VALUE_RULE
    if mnemonic in _TURNS:
        return [value, TURNS_RULE, *([F16_HIGH_RULE] if mnemonic in _F16 else []), NAN_RULE]
    if mnemonic in _F16:
        return [value, F16_RULE, F16_HIGH_RULE, NAN_RULE]
    ends = [EXP_RANGE_RULE] if mnemonic == "v_exp_f32" else []
    return [value, F32_RANGE_RULE, *ends, FLUSH_SIGN_RULE, NAN_RULE]


def _install(mnemonic: str, table: Words, evidence: Evidence, source: str, kind: str, *numbers: int) -> Native:
    digest = hashlib.sha256(table.data).hexdigest()[:16]
    name = f"transcendental.{mnemonic}.{kind.removesuffix('_body')}.{'.'.join(map(str, numbers))}.{digest}"
    text = f"{mnemonic} takes its results from a table of {len(table)} words with SHA-256 {digest}."
    NATIVES[mnemonic] = TableNative(mnemonic, table, rule(name, evidence, source, text), kind, *numbers)
    return NATIVES[mnemonic]


def _checked_table(mnemonic: str, results: Words) -> Words:
    _check_mnemonic(mnemonic)
    if results.dtype != np.uint32:
        raise TypeError(
            f"{mnemonic}: a table holds result bits as uint32, got {results.dtype}; use .view(numpy.uint32)"
        )
    if results.ndim != 1:
        raise ValueError(f"{mnemonic}: a table is one-dimensional, ordered by input bits; got shape {results.shape}")
    return np.ascontiguousarray(results)


def _check_mnemonic(mnemonic: str) -> None:
    if mnemonic not in DEFAULTS:
        raise ValueError(
            f"{mnemonic!r} is no transcendental instruction modelled here; there are {', '.join(DEFAULTS)}"
        )
