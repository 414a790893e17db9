"""Models: which answers are in force where the chip's arithmetic is an open question.

A `Switch` is one such question, declared beside the code that asks it, with the answers that make sense and the ledger
rules it decides. A `Model` is a set of answers; what it leaves out keeps its default. One model is in force at a time
in a thread of control: the default `gfx950`, or what `using` put there.

    with using(find_model("exact")):
        D = mfma("v_mfma_f32_16x16x32_bf16", A, B)

A model that a fit took from a capture says of which switches the capture leaves no doubt: `measured`; the rules these
decide then count as measured.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gfx950.evidence import Evidence, Rule
from gfx950.whole_files import write_whole

Answer = int | str
SCHEMA = "gfx950.model/1"
# The modules that declare switches and named models.
HOMES = (
    "gfx950.arithmetic.mfma",
    "gfx950.isa.buffer_addressing",
    "gfx950.isa.buffer_formats",
    "gfx950.isa.conversions",
    "gfx950.isa.scaled_conversions",
    "gfx950.isa.vop1",
    "gfx950.isa.vop3p",
)


class ModelError(ValueError):
    """A model that cannot be: an unknown switch, answer, name or file."""


@dataclass(frozen=True)
class Switch:
    """One open question. name: dotted, as its rules are. default: the answer of the model `gfx950`. answers: those that
    make sense, the default among them, in the order a fit tries them. text: the question, and what each answer means.

    rules: what it decides. in_bodies: instruction bodies read it, so that translated code depends on it; else natives
    alone do.
    """

    name: str
    default: Answer
    answers: tuple[Answer, ...]
    text: str
    rules: tuple[Rule, ...] = ()
    in_bodies: bool = False

    @property
    def answer(self) -> Any:
        """The answer in force."""
        return in_force().values.get(self.name, self.default)


SWITCHES: dict[str, Switch] = {}
_DECIDED_BY: dict[str, list[str]] = {}  # switches by rule


def switch(
    name: str,
    default: Answer,
    answers: tuple[Answer, ...],
    text: str,
    *,
    rules: tuple[Rule, ...] = (),
    in_bodies: bool = False,
) -> Switch:
    """Declares a switch. Raises ValueError when the name is taken, an answer is neither a whole number nor a word, or
    the default is none of the answers."""
    if name in SWITCHES:
        raise ValueError(f"switch {name!r} is declared twice; a switch has one home")
    if any(type(answer) not in (int, str) for answer in answers):
        raise ValueError(f"switch {name!r}: the answers {answers} must be whole numbers or words")
    if default not in answers or len(set(answers)) != len(answers):
        raise ValueError(f"switch {name!r}: the default {default!r} must be one of the answers {answers}, each once")
    SWITCHES[name] = Switch(name, default, answers, text, rules, in_bodies)
    for rule in rules:
        _DECIDED_BY.setdefault(rule.name, []).append(name)
    return SWITCHES[name]


def body_switch(name: str, answers: tuple[Answer, ...], text: str, *rules: Rule) -> Switch:
    """Declares a switch that instruction bodies read; its first answer is the default."""
    return switch(name, answers[0], answers, text, rules=rules, in_bodies=True)


def load_switches() -> Mapping[str, Switch]:
    """All switches, after importing every module that declares any."""
    for home in HOMES:
        importlib.import_module(home)
    return MappingProxyType(SWITCHES)


def _no_values() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class Model:
    """A set of answers. values: by switch, those that are not the default. tables: files of transcendental results by
    mnemonic. measured: where the answer to a switch, or the table of a mnemonic, was measured, as the ledger cites it.

    Made by `make_model`, which checks. Models with the same answers and tables have the same `digest`, whatever their
    names and evidence.
    """

    name: str
    values: Mapping[str, Answer] = field(default_factory=_no_values)
    tables: Mapping[str, Path] = field(default_factory=_no_values)
    measured: Mapping[str, str] = field(default_factory=_no_values)

    @cached_property
    def digest(self) -> str:
        """Of all that changes bits."""
        return _digest([sorted(self.values.items()), sorted(self.table_digests.items())])

    @cached_property
    def table_digests(self) -> Mapping[str, str]:
        """By mnemonic, what the files of `tables` say their digests are. Raises ModelError for a file that is none."""
        if not self.tables:
            return _no_values()
        from gfx950.arithmetic.transcendental import table_header

        found = {}
        for mnemonic, path in self.tables.items():
            try:
                found[mnemonic] = table_header(mnemonic, str(path)).digest
            except ValueError as error:
                raise ModelError(f"the table of {mnemonic}: {error}") from None
        return MappingProxyType(found)

    @cached_property
    def body_digest(self) -> str:
        """Of the answers that instruction bodies read."""
        return _digest(sorted((k, v) for k, v in self.values.items() if SWITCHES[k].in_bodies))

    def with_values(self, values: Mapping[str, Answer], name: str | None = None) -> Model:
        """This model with other answers to some switches; of those that change nothing is measured any more.

        Raises ModelError as `make_model` does.
        """
        made = make_model(name or self.name, {**self.values, **values}, self.tables)
        changed = {key for key in {*self.values, *made.values} if self.values.get(key) != made.values.get(key)}
        return replace(made, measured=MappingProxyType({k: v for k, v in self.measured.items() if k not in changed}))

    def __reduce__(self) -> tuple[Any, ...]:
        """Models go to other processes with the options of a run."""
        return make_model, (self.name, dict(self.values), dict(self.tables), dict(self.measured))


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def make_model(
    name: str,
    values: Mapping[str, Answer] | None = None,
    tables: Mapping[str, str | PathLike[str]] | None = None,
    measured: Mapping[str, str] | None = None,
) -> Model:
    """A checked model. Raises ModelError for a switch or an answer that there is not, or a file that is no table of
    the mnemonic's results."""
    if not isinstance(name, str) or not name.isprintable():
        raise ModelError(f"the name of a model is one line of text, got {name!r}")
    for part, found in {"values": values, "tables": tables, "measured": measured}.items():
        if not isinstance(found or {}, Mapping) or not all(isinstance(key, str) for key in found or {}):
            raise ModelError(f"{part} of model {name} is not a mapping of names to {_PARTS[part]}: {found!r}")
    known, kept = load_switches(), {}
    for key, answer in (values or {}).items():
        if key not in known:
            raise ModelError(f"there is no switch {key!r}; {_nearest(key, known)}")
        if type(answer) not in (int, str) or answer not in known[key].answers:
            answers = ", ".join(map(str, known[key].answers))
            raise ModelError(f"switch {key} cannot be {answer!r}; its answers are {answers}")
        if answer != known[key].default:
            kept[key] = answer
    for key in measured or {}:
        if key not in known and key not in (tables or {}):
            raise ModelError(f"measured names {key!r}, which is neither a switch nor a table of the model")
    paths = {key: Path(path) for key, path in (tables or {}).items()}
    made = Model(name, MappingProxyType(kept), MappingProxyType(paths), MappingProxyType(dict(measured or {})))
    made.table_digests  # noqa: B018  a wrong file is an error here, not in the middle of a run
    return made


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    return f"nearest: {', '.join(near)}" if near else f"there are {', '.join(sorted(known))}"


# ---- the model in force ----------------------------------------------------------------------------------------------

DEFAULT = Model("gfx950")
_IN_FORCE: ContextVar[Model] = ContextVar("model in force", default=DEFAULT)
_NAMED: dict[str, tuple[Mapping[str, Answer], str]] = {}


def in_force() -> Model:
    """The model in force."""
    return _IN_FORCE.get()


@contextmanager
def using(model: Model | str | PathLike[str] | None) -> Iterator[Model]:
    """Puts a model (as `find_model` takes it) in force for the body of a `with`, in this thread of control."""
    found = find_model(model)
    token = _IN_FORCE.set(found)
    try:
        yield found
    finally:
        _IN_FORCE.reset(token)


def name_model(name: str, values: Mapping[str, Answer], text: str) -> None:
    """Gives a set of answers a name. Raises ValueError when the name is taken."""
    if name in _NAMED or name == DEFAULT.name:
        raise ValueError(f"model {name!r} is named twice")
    _NAMED[name] = values, text


def named_models() -> dict[str, str]:
    """What each named model is, by its name."""
    load_switches()
    return {DEFAULT.name: "The defaults of all switches."} | {name: text for name, (_, text) in _NAMED.items()}


def find_model(model: Model | str | PathLike[str] | None) -> Model:
    """A model itself, one by its name, one in a file, or with None the one in force. Raises ModelError for anything
    else."""
    if model is None:
        return in_force()
    if isinstance(model, Model):
        return model
    text = str(model)
    if text == DEFAULT.name:
        return DEFAULT
    load_switches()
    if text in _NAMED:
        return make_model(text, _NAMED[text][0])
    if Path(text).suffix == ".json":
        return read_model(text)
    raise ModelError(f"there is no model {text!r}; named ones: {', '.join(named_models())}; a file ends in .json")


# ---- files -----------------------------------------------------------------------------------------------------------


def write_model(model: Model, path: str | PathLike[str]) -> None:
    """Writes a model as JSON; files of tables are named relative to it where they lie beside or below it."""
    home = Path(path).resolve().parent
    tables = {name: _relative(table.resolve(), home) for name, table in model.tables.items()}
    content = {"schema": SCHEMA, "name": model.name, "values": dict(model.values), "tables": tables}
    content["measured"] = dict(model.measured)
    write_whole(Path(path), (json.dumps(content, indent=2) + "\n").encode())


def _relative(path: Path, home: Path) -> str:
    return str(path.relative_to(home) if path.is_relative_to(home) else path)


# What a file has by name, and what each is.
_PARTS = {"values": "answers (whole numbers or words)", "tables": "files", "measured": "sources"}


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError for a name that is in it twice, of which one would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it says {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def read_model(path: str | PathLike[str]) -> Model:
    """The model in a file. Raises ModelError for a file that is none, with its name and what is wrong."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=_each_once)
    except OSError as error:
        raise ModelError(f"{path} is no model: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no model: {error}") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ModelError(f"{path} is no model: its schema is not {SCHEMA!r}")
    if more := sorted(set(content) - {"schema", "name", *_PARTS}):
        raise ModelError(f"{path} is no model: it has {', '.join(more)}, which no model has")
    parts = {part: content.get(part, {}) for part in _PARTS}
    for part, found in parts.items():
        wanted = (int, str) if part == "values" else (str,)
        if not isinstance(found, dict) or not all(type(value) in wanted for value in found.values()):
            raise ModelError(f"{path} is no model: {part!r} is not a table of names and {_PARTS[part]}")
    home = Path(path).resolve().parent
    tables = {name: home / table for name, table in parts["tables"].items()}
    try:
        return make_model(content.get("name", Path(path).stem), parts["values"], tables, parts["measured"])
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


# ---- evidence --------------------------------------------------------------------------------------------------------


def rule_in_force(rule: Rule, model: Model | None = None) -> Rule:
    """A rule as the model has it: measured where the model's capture decided all its switches; chosen where one of
    them has another answer than the default that the rule states. A rule of the ISA text that a capture confirms stays
    one of the ISA text."""
    model = model or in_force()
    switches = _DECIDED_BY.get(rule.name, [])
    switched = {name: model.values[name] for name in switches if name in model.values}
    text = rule.text + "".join(f" Switched here: {name} = {answer}." for name, answer in switched.items())
    if switches and all(name in model.measured for name in switches):
        sources = "; ".join(dict.fromkeys(model.measured[name] for name in switches))
        if rule.evidence > Evidence.measured and not switched:
            return replace(rule, source=f"{rule.source}; as measured: {sources}")
        return replace(rule, evidence=Evidence.measured, source=sources, text=text)
    if switched:
        return replace(rule, evidence=Evidence.chosen, source=f"model {model.name}", text=text)
    return rule


def switches_of(rule: Rule) -> tuple[Switch, ...]:
    """The switches that decide a rule."""
    return tuple(SWITCHES[name] for name in _DECIDED_BY.get(rule.name, []))
