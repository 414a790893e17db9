"""The transcendental instructions: v_exp, v_log, v_rcp, v_rsq, v_sqrt, v_sin, v_cos for f32, f16, and v_rcp_iflag_f32.

Nobody has published what gfx950's units return; the manual promises results within one unit in the last place. The
default of each is the correctly rounded value (nearest, ties to even) inside the documented ranges. A capture replaces
it: a model whose `tables` name a file of results (`gfx950.arithmetic.result_table`) takes them from there. Every native
takes one register and gives one; `parameters` is ignored, and so is MODE. All of it is IEEE double and float + - * /
and square root in a fixed order, and integer operations: the same bits on any host.
"""

from __future__ import annotations

import functools
import itertools
import threading

from gfx950.arithmetic.native import Native, add_host_function, enter, function_address
from gfx950.arithmetic.result_table import (
    SCALING,
    Header,
    ResultTable,
    TableError,
    chunk_inputs,
    read_header,
    read_table,
    results_check,
)
from gfx950.evidence import Evidence, Rule, rule
from gfx950.models import Model, in_force

VALUE_RULE = rule(
    "transcendental.value",
    Evidence.chosen,
    "no capture of gfx950 is public; CDNA4 ISA 12.8 promises 1 ULP of exp, log, rcp, rsq and sqrt, nothing of sin, cos",
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
    "CDNA4 ISA 12.8, V_SIN_F32, V_COS_F32, V_SIN_F16, V_COS_F16: full range, denormals supported, and the examples",
    "v_sin and v_cos take turns, at any magnitude; they take and give subnormals, which the instruction flushes where"
    " MODE does. An infinity gives 0xffc00000 (f16 0xfe00), sin of -0 is -0.",
)
TURNS_ZERO_RULE = rule(
    "transcendental.turns_zeros",
    Evidence.chosen,
    "CDNA4 ISA 12.8 shows it in examples alone: of sin at the largest numbers, of cos at a quarter turn",
    "Every sine or cosine that is zero is +0, but for sin of -0: of negative whole and half turns too.",
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
    "published exact models of RDNA4 do so for v_exp_f32 and v_log_f32; nothing is known for gfx950",
    "A NaN input comes back with its quiet bit set, sign and payload kept.",
)
F16_RULE = rule(
    "transcendental.f16",
    Evidence.spec,
    "CDNA4 ISA 12.8, and the preface of 12: MODE holds where nothing else is said; the NaN code is that of the"
    " examples",
    "The f16 forms take and give subnormals, which the instruction flushes where MODE does; log, rsq and sqrt of"
    " negative numbers are 0xfe00.",
)
F16_RCP_RULE = rule(
    "transcendental.f16_rcp_subnormals",
    Evidence.chosen,
    "CDNA4 ISA 12.8 says of the other f16 forms that denormals are supported, of V_RCP_F16 nothing, and that V_RCP_F32"
    " flushes them",
    "v_rcp_f16 takes and gives subnormals as the other f16 forms do.",
)
F16_HIGH_RULE = rule(
    "transcendental.f16_high_half",
    Evidence.chosen,
    "a convention of these functions: the instruction decides what becomes of the other half",
    "f16 forms read bits 15:0 of the input and give the result in bits 15:0 with bits 31:16 zero.",
)
SCALING_RULE = rule(
    "transcendental.scaling",
    Evidence.chosen,
    "an assumption about the unit; the published exact models of RDNA's rcp, rsq and sqrt are built so",
    "Where a table has one period of rcp, rsq or sqrt, other binades have the same mantissas, and rcp is odd; results"
    " below 2^-126 are zero.",
)

_F32 = ("v_exp_f32", "v_log_f32", "v_rcp_f32", "v_rcp_iflag_f32", "v_rsq_f32", "v_sqrt_f32", "v_sin_f32", "v_cos_f32")
_F16 = ("v_exp_f16", "v_log_f16", "v_rcp_f16", "v_rsq_f16", "v_sqrt_f16", "v_sin_f16", "v_cos_f16")
_TURNS = ("v_sin_f32", "v_cos_f32", "v_sin_f16", "v_cos_f16")
# [CDNA4 ISA 12.8: V_RCP_IFLAG_F32 differs from V_RCP_F32 in the exceptions it raises]
_TABLE_OF_ANOTHER = {"v_rcp_iflag_f32": "v_rcp_f32"}


def _module_of(mnemonic: str) -> str:
    return f"gfx950.arithmetic.{'trigonometric_lanes' if mnemonic in _TURNS else 'transcendental_lanes'}"


class Transcendental(Native):
    """The correctly rounded default of an instruction; a model with a table for it has a native of its own."""

    def __init__(self, mnemonic: str) -> None:
        super().__init__(mnemonic, 1, 1, f"{_module_of(mnemonic)}:{mnemonic}")

    def under(self, model: Model) -> Native:
        """Raises TableError when the model's file is damaged or no longer the one that the model was made with."""
        if not model.tables or (source := table_of(self.name, model)) is None:
            return self
        return _table_native(self.name, source, model)


_TABLE_KINDS = ("words", "words", "words", "number", "number", "number", "number")
_WITH_TABLE = """
define void @{symbol}(ptr %inputs, ptr %outputs, i64 %parameters) {{
  %function = inttoptr i64 {function} to ptr
  %table = inttoptr i64 {table} to ptr
  call void %function(ptr %inputs, ptr %outputs, ptr %table, {numbers})
  ret void
}}
"""
_COUNT = itertools.count()


class TableNative(Native):
    """A native that corrects the default's results by a table."""

    def __init__(self, mnemonic: str, table: ResultTable) -> None:
        super().__init__(mnemonic, 1, 1, f"{_module_of(mnemonic)}:{mnemonic}_by_table")
        self.table = table

    @functools.cached_property
    def address(self) -> int:
        """The address of a function of its own, which hands the table to the code that all tables of the instruction
        share."""
        header = self.table.header
        scaling = (header.period, SCALING[header.mnemonic][1]) if header.period else (0, 0)
        numbers = ", ".join(f"i64 {number}" for number in (header.chunk_bits, header.space - 1, *scaling))
        function, table = function_address(str(self._body), _TABLE_KINDS), self.table.words.ctypes.data
        symbol = f"{self.name}_table_{next(_COUNT)}"
        text = _WITH_TABLE.format(symbol=symbol, function=function, table=table, numbers=numbers)
        return add_host_function(text, symbol)


DEFAULTS: dict[str, Native] = {mnemonic: enter(Transcendental(mnemonic)) for mnemonic in (*_F32, *_F16)}

_TABLE_NATIVES: dict[tuple[str, str], TableNative] = {}  # by mnemonic and digest of the table
_LOADING = threading.RLock()


def _table_native(mnemonic: str, source: str, model: Model) -> TableNative:
    digest = model.table_digests[source]
    with _LOADING:
        if (mnemonic, digest) not in _TABLE_NATIVES:
            table = read_table(model.tables[source])
            if table.header.digest != digest:
                raise TableError(f"{model.tables[source]} has changed since model {model.name!r} read its digest")
            _TABLE_NATIVES[mnemonic, digest] = TableNative(mnemonic, table)
        return _TABLE_NATIVES[mnemonic, digest]


def table_of(mnemonic: str, model: Model) -> str | None:
    """The mnemonic whose table a model uses for an instruction, None when it has none."""
    names = (mnemonic, _TABLE_OF_ANOTHER.get(mnemonic, mnemonic))
    return next((name for name in names if name in model.tables), None)


def check_table(table: ResultTable) -> None:
    """Looks every chunk of a table up and compares the results with the check sum of those that were captured.

    Raises TableError when they differ: when the default is no longer the one that the table was written against.
    """
    native = TableNative(table.header.mnemonic, table)
    for chunk in table.header.chunks:
        bits = chunk_inputs(chunk.number, table.header.chunk_bits)
        if results_check(native(bits.reshape(-1, 1, 64)).reshape(-1)) != chunk.check:
            raise TableError(
                f"the table of {table.header.mnemonic} ({table.header.digest[:16]}) does not give the captured results"
                f" of inputs {int(bits[0]):#x} to {int(bits[-1]):#x}: write it again from the capture"
            )


def table_header(mnemonic: str, path: str) -> Header:
    """The header of a model's table. Raises TableError for a file that is none, or one of another instruction;
    ValueError for an unknown mnemonic."""
    check_mnemonic(mnemonic)
    header = read_header(path)
    if header.mnemonic != mnemonic:
        raise TableError(f"{path} holds results of {header.mnemonic}, not of {mnemonic}")
    return header


# ---- rules -----------------------------------------------------------------------------------------------------------


def rules(mnemonic: str, model: Model | None = None) -> list[Rule]:
    """The rules that the results of `mnemonic` follow under a model, the one in force unless given; the table's first
    when it has one. Raises ValueError for an unknown mnemonic."""
    check_mnemonic(mnemonic)
    model = model or in_force()
    source = table_of(mnemonic, model) if model.tables else None
    if source is None:
        return [VALUE_RULE, *_range_rules(mnemonic)]
    header = table_header(source, str(model.tables[source]))
    table = _table_rule(mnemonic, header, model.measured.get(source))
    if header.complete:  # every result of the unit is in it; what MODE does around the unit is not
        return [table, *(r for r in _range_rules(mnemonic) if r in (F16_RULE, F16_HIGH_RULE, TURNS_RULE))]
    return [table, *([SCALING_RULE] if header.period else []), VALUE_RULE, *_range_rules(mnemonic)]


def _range_rules(mnemonic: str) -> list[Rule]:
    if mnemonic in _TURNS:
        return [TURNS_RULE, TURNS_ZERO_RULE, *([F16_HIGH_RULE] if mnemonic in _F16 else []), NAN_RULE]
    if mnemonic in _F16:
        return [F16_RULE, *([F16_RCP_RULE] if mnemonic == "v_rcp_f16" else []), F16_HIGH_RULE, NAN_RULE]
    ends = [EXP_RANGE_RULE] if mnemonic == "v_exp_f32" else []
    return [F32_RANGE_RULE, *ends, FLUSH_SIGN_RULE, NAN_RULE]


def _table_rule(mnemonic: str, header: Header, measured: str | None) -> Rule:
    """measured: what the model says of the table's measurement, None when it says nothing."""
    where = f" of {header.mnemonic}" if header.mnemonic != mnemonic else ""
    came = header.provenance
    text = (
        f"{mnemonic} takes its results from a table{where} with SHA-256 {header.digest[:16]}: {header.covered} of"
        f" {header.space} inputs, {header.differing} of them not correctly rounded; {came['device']}, MODE"
        f" {came['mode']}." + ("" if header.complete else " Other inputs follow the rules beside this one.")
    )
    if measured is not None:
        return Rule(f"transcendental.table.{mnemonic}", Evidence.measured, f"{measured}; {came['capture']}", text)
    source = f"a table of the model's that it does not call measured; {came['capture']}"
    return Rule(f"transcendental.table.{mnemonic}", Evidence.chosen, source, text)


def check_mnemonic(mnemonic: str) -> None:
    """Raises ValueError for what is no transcendental instruction with a native."""
    if mnemonic not in DEFAULTS:
        raise ValueError(
            f"{mnemonic!r} is no transcendental instruction modelled here; there are {', '.join(DEFAULTS)}"
        )
