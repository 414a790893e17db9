"""`gfx950 evidence`: what the bits of anything rest on. It lives in the last folder, for it looks into all of them."""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import pkgutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gfx950 import terminal
from gfx950.commands import describe_switch, find_instruction, switch_line
from gfx950.evidence import LEDGER, LEVELS, Rule, weakest_first
from gfx950.models import SWITCHES, Model, in_force, load_switches, rule_in_force, switches_of, using

if TYPE_CHECKING:
    from emu.contained_rules import KernelEvidence

FOLDERS = ("gfx950", "emu", "codegen", "golden")
SHOWN = 200  # characters of a WHAT that an error repeats
NEAREST = 3  # names of a kind that an error offers


@dataclass(frozen=True)
class Question:
    """What is asked about. heads: lines before the rules. rules: weakest first, as the model in force has them.
    kernels: those whose machine code is asked about, by name."""

    heads: tuple[str, ...]
    rules: tuple[Rule, ...]
    kernels: dict[str, KernelEvidence] = field(default_factory=dict)

    def following(self, rule: Rule) -> list[str]:
        """The instructions of the kernels that rest on a rule."""
        return sorted({name for kernel in self.kernels.values() for name in kernel.following(rule)})


@click.command()
@click.argument("what", required=False)
@click.option("--kernel", metavar="NAME", help="Of a code object: only this kernel.")
@click.option("--level", type=click.Choice(LEVELS), help="Only the rules of this level.")
@click.option("--model", default="gfx950", metavar="NAME|FILE", help="The rules as this model has them.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def evidence(what: str | None, kernel: str | None, level: str | None, model: str, as_json: bool) -> None:
    """List the rules that bits rest on, weakest first, with the switches that decide them.

    WHAT is an instruction, a code object file (all its kernels, or --kernel), a kernel of `gfx950 check`, a rule, or a
    pattern of rules or instructions with *, ? and [...], in quotes. Without WHAT: the whole ledger.

    chosen: nothing is known, a documented choice. vendor: AMD's own software for gfx950 does so or relies on it.
    carried: measured on gfx942 and assumed. published: somebody's measurement or test on gfx950. measured: a capture
    from an MI355X. spec: the ISA text, or the ABI of code objects.

    An instruction has the level of its weakest rule, and counts once for its mnemonic; those of a kernel are the
    instructions that direct branches reach. Of a switch: the answer in force, then the other answers; `*` marks an
    answer that is not the default, `+` one that the model measured.

    \b
    Examples:
      gfx950 evidence
      gfx950 evidence v_mfma_f32_16x16x32_bf16
      gfx950 evidence drafter_attention --level chosen
      gfx950 evidence 'mfma.*' --json
    """
    with using(model) as found:
        question = _question(what, kernel)
        rules = [r for r in question.rules if level is None or r.evidence.name == level]
        if as_json:
            terminal.show_json("gfx950.evidence/1", _document(question, rules, found))
            return
        for line in question.heads:
            terminal.show_text(line)
        for name in LEVELS if level is None else (level,):
            group = [r for r in rules if r.evidence.name == name]
            if group or level is not None:
                click.echo(f"{name}: {len(group)} rule{'s' * (len(group) != 1)}")
            for rule in group:
                _show_rule(rule, question, found)


# ---- what is asked ---------------------------------------------------------------------------------------------------


def _question(what: str | None, kernel: str | None) -> Question:
    if what is None or not _is_file(what):
        if kernel is not None:
            raise click.UsageError("--kernel is about a code object: give its file")
        return _all() if what is None else _named(what)
    return _code_object(what, kernel)


def _is_file(what: str) -> bool:
    try:
        return Path(what).is_file()
    except OSError:  # a name that no file can have
        return False


def _all() -> Question:
    for problem in import_rules():
        click.echo(f"not listed: {problem}", err=True)
    return Question((), weakest_first(rule_in_force(r) for r in LEDGER.values()))


def _code_object(path: str, kernel: str | None) -> Question:
    from emu.code_object import load
    from emu.contained_rules import contained_rules

    loaded = load(path)
    kernels = [loaded.kernel(kernel)] if kernel is not None else list(loaded.kernels.values())
    return _kernels({one.name: contained_rules(loaded, one) for one in kernels})


def _kernels(kernels: dict[str, KernelEvidence], own: Iterable[Rule] = ()) -> Question:
    heads = []
    for name, found in kernels.items():
        heads.append(f"{name}: {found}")
        heads += [f"  unknown instruction: {text}" for text in found.unknown]
        heads += ["  and what its jumps through registers reach, which is known after a run"] * found.indirect
    rules = weakest_first((*own, *(rule for found in kernels.values() for rule in found.rules)))
    return Question(tuple(heads), rules, kernels)


def _named(what: str) -> Question:
    from gfx950.instruction_rules import rules_of
    from gfx950.isa.registry import load

    if instruction := find_instruction(what):
        return _instruction(instruction.name, weakest_first(rules_of(instruction)))
    from codegen.kernel_package import kernel_names  # quick answers need not wait for it
    from emu.contained_rules import KernelEvidence

    if what in kernel_names():
        return _package(what)
    import_rules()
    if rules := [rule_in_force(r) for name, r in LEDGER.items() if fnmatch.fnmatchcase(name, what)]:
        return Question((), weakest_first(rules))
    if what in load_switches():
        return Question((f"the switch {what} decides",), weakest_first(map(rule_in_force, SWITCHES[what].rules)))
    if names := fnmatch.filter(load(), what):
        return _kernels({what: KernelEvidence({name: rules_of(load()[name]) for name in sorted(names)}, in_force())})
    raise click.UsageError(_unknown(what, load(), kernel_names()))


def _instruction(name: str, rules: tuple[Rule, ...]) -> Question:
    if not rules:
        return Question((f"{name} rests on the ISA text alone",), ())
    count = f"{len(rules)} rule{'s' * (len(rules) != 1)}"
    return Question((f"{name} rests on {count}, the weakest {rules[0].evidence.name}",), rules)


def _package(name: str) -> Question:
    from golden.check import kernel_evidence, own_rules

    return _kernels({name: kernel_evidence(name)}, own_rules(name))


def _unknown(what: str, instructions: Iterable[str], kernels: Sequence[str]) -> str:
    """What a WHAT that fits nothing could have been: the nearest of each kind."""
    files = _files_beside(what)
    kinds = {"instructions": instructions, "rules": LEDGER, "kernels": kernels, "files": files}
    shown = what if len(what) <= SHOWN else f"{what[:SHOWN]}..."
    lines = [f"{shown!r} is no instruction, rule, kernel or file, and no pattern that fits any; nearest:"]
    for kind, names in kinds.items():
        near = difflib.get_close_matches(what, list(names), n=NEAREST, cutoff=0.5)
        lines.append(f"  {kind:<12}  {', '.join(near) or 'none'}")
    lines.append("`gfx950 isa` lists the instructions, `gfx950 evidence` the rules, `gfx950 golden list` the kernels")
    return "\n".join(lines)


def _files_beside(what: str) -> list[str]:
    folder = Path(what).parent
    try:
        return [str(folder / p.name) for p in folder.iterdir() if p.is_file()]
    except OSError:
        return []


def import_rules() -> list[str]:
    """Imports every module that can declare rules. Returns a sentence for each that needs a package not installed."""
    problems = []
    for folder in FOLDERS:
        package = importlib.import_module(folder)
        for module in pkgutil.walk_packages(package.__path__, f"{folder}."):
            if module.name.endswith(("__main__", "commands")):
                continue
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] in FOLDERS:
                    raise
                problems.append(f"the rules of {module.name}, which needs the package {error.name}")
    return problems


# ---- what is shown ---------------------------------------------------------------------------------------------------


def _show_rule(rule: Rule, question: Question, model: Model) -> None:
    terminal.show_text(rule.name, "  ")
    terminal.show_text(rule.text, "      ")
    terminal.show_text(f"[{rule.source}]", "      ")
    for switch in switches_of(rule):
        terminal.show_text(f"switch {switch_line(describe_switch(switch, model))}", "      ")
    if names := question.following(rule):
        terminal.show_text(f"in {', '.join(names)}", "      ")


def _document(question: Question, rules: Iterable[Rule], model: Model) -> dict[str, Any]:
    document: dict[str, Any] = {"model": {"name": model.name, "digest": model.digest}}
    document["counts"] = {name: sum(r.evidence.name == name for r in question.rules) for name in LEVELS}
    document["kernels"] = [_kernel(name, found) for name, found in question.kernels.items()]
    document["rules"] = [_rule(rule, question, model) for rule in rules]
    return document


def _kernel(name: str, found: KernelEvidence) -> dict[str, Any]:
    return {
        "name": name,
        "instructions": found.counts,
        "mnemonics": list(found.mnemonics),
        "unknown": list(found.unknown),
        "indirect_jumps": found.indirect,
    }


def _rule(rule: Rule, question: Question, model: Model) -> dict[str, Any]:
    return {
        "name": rule.name,
        "evidence": rule.evidence.name,
        "source": rule.source,
        "text": rule.text,
        "switches": [describe_switch(s, model) for s in switches_of(rule)],
        "instructions": question.following(rule),
    }
