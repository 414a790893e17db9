"""`gfx950 layout`, `gfx950 isa`, `gfx950 models`: questions about the chip, answered without running anything."""

from __future__ import annotations

import difflib
import fnmatch
import inspect
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from gfx950 import terminal
from gfx950.evidence import Rule

if TYPE_CHECKING:
    from gfx950.isa.registry import Instruction, Parameter
    from gfx950.models import Model, Switch

FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")

as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


# ---- layout ----------------------------------------------------------------------------------------------------------


class LayoutCommand(click.Command):
    """`layout INSTRUCTION`, and `layout kv_cache`, which has options and a help text of its own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """That of the command which answers."""
        if "kv_cache" not in args:
            return super().make_context(info_name, args, parent, **extra)
        from gfx950.kv_cache_commands import kv_cache

        rest = args.copy()
        rest.remove("kv_cache")
        return kv_cache.make_context(f"{info_name} kv_cache", rest, parent, **extra)


@click.command(cls=LayoutCommand)
@click.argument("instruction")
@click.argument("element", required=False)
@click.option("--a", "a_format", type=click.Choice(FORMATS), help="Format of A (f8f6f4 only). Default: fp8.")
@click.option("--b", "b_format", type=click.Choice(FORMATS), help="Format of B (f8f6f4 only). Default: fp8.")
@click.option(
    "--op-sel",
    type=click.IntRange(0, 3),
    default=0,
    show_default=True,
    help="Byte of a scale register, or set of a sparse index (ABID).",
)
@as_json
def layout(
    instruction: str, element: str | None, a_format: str | None, b_format: str | None, op_sel: int, as_json: bool
) -> None:
    """Say which register, lane and bits hold a matrix element, or the reverse.

    ELEMENT is A[m][k], B[k][n], C[m][n], D[m][n] (then `block N` where there are blocks), or scaleA[m][kb] and
    scaleB[n][kb], kb counting blocks of 32 along k. A sparse A is A[m][c], the stored elements: c stands at
    k = 4 * (c / 2) + index[m][c]. Or it is a place: an operand, a register counted from the operand's first, a lane,
    and bits (all of the register when left out). Without ELEMENT: the operands and their sizes.

    Instead of INSTRUCTION, kv_cache: the elements of a paged key-value cache; `gfx950 layout kv_cache --help`.

    \b
    Examples:
      gfx950 layout v_mfma_scale_f32_16x16x128_f8f6f4
      gfx950 layout v_mfma_scale_f32_16x16x128_f8f6f4 'B[100][3]'
      gfx950 layout v_mfma_scale_f32_16x16x128_f8f6f4 'B v3 lane 17 [7:4]' --b fp4
      gfx950 layout v_mfma_scale_f32_16x16x128_f8f6f4 'scaleB[3][3]' --op-sel 2
      gfx950 layout v_mfma_f32_16x16x32_bf16 'D[5][9]' --json
      gfx950 layout v_smfmac_f32_16x16x64_f16 'index[3][21]'
      gfx950 layout kv_cache 'V page 54 byte 0x123'
    """
    from gfx950.layouts import describe_element, describe_place

    if element is None:
        _show_operands(_operands(instruction, a_format, b_format), as_json)
        return
    describe = describe_place if "lane" in element else describe_element
    try:
        found = describe(instruction, element, a_format, b_format, op_sel)
    except (ValueError, IndexError) as error:
        raise click.UsageError(str(error)) from error
    scale = _scale_of(instruction, found, op_sel) if describe is describe_element else None
    if scale is not None:
        found["scale"] = scale
    if as_json:
        terminal.show_json("gfx950.layout/1", found)
        return
    lines = _place_lines(found) if "elements" in found else _element_lines(found)
    for line in (found["mnemonic"], *lines, f"rests on: {found['evidence']} ({found['source']})"):
        terminal.show_text(line)


def _operands(instruction: str, a_format: str | None, b_format: str | None) -> dict[str, Any]:
    """The size of every operand of a matrix instruction, as plain data."""
    from gfx950 import layouts

    try:
        shape = layouts.matrix_instruction(instruction)
        others = ("scaleA", "scaleB") if shape.has_scales else ("index",) if shape.sparse else ()
        found = [layouts.layout(instruction, name, a_format, b_format) for name in ("A", "B", "C", "D", *others)]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    keys = ("operand", "rows", "cols", "blocks", "element_bits", "registers")
    rows = [{key: getattr(one, key) for key in keys} | {"evidence": one.rule.evidence.name} for one in found]
    return {"mnemonic": instruction, "operands": rows}


def _show_operands(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        terminal.show_json("gfx950.layout-operands/1", found)
        return
    click.echo(found["mnemonic"])
    for line in terminal.table(
        [tuple(found["operands"][0]), *(tuple(map(str, row.values())) for row in found["operands"])]
    ):
        click.echo(line)


def _scale_of(instruction: str, found: dict[str, Any], op_sel: int) -> dict[str, Any] | None:
    """Where the block scale of an element of A or B is, for the scaled instructions."""
    from gfx950.layouts import SCALE_BLOCK, describe_element, matrix_instruction

    if not matrix_instruction(instruction).has_scales or found["operand"] not in ("A", "B"):
        return None
    line, k = (found["row"], found["col"]) if found["operand"] == "A" else (found["col"], found["row"])
    return describe_element(instruction, f"scale{found['operand']}[{line}][{k // SCALE_BLOCK}]", op_sel=op_sel)


def _element_lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{_written(found)}: {_places(found)}"
    if "scale" in found:
        yield f"its scale {_written(found['scale'])}: {_places(found['scale'])}"


def _place_lines(found: dict[str, Any]) -> Iterator[str]:
    bits = f"{found['high_bit']}:{found['low_bit']}"
    yield f"{found['operand']} v{found['register']}, lane {found['lane']}, bits {bits}:"
    for element in found["elements"]:
        yield f"  bits {element['high_bit']}:{element['low_bit']}  {_written(found | element)}"


def _written(found: dict[str, Any]) -> str:
    block = f" block {found['block']}" if found["block"] else ""
    return f"{found['operand']}[{found['row']}][{found['col']}]{block}"


def _places(found: dict[str, Any]) -> str:
    """'v5, lane 35, bits 7:0', with a second register where an element straddles two."""
    first, *rest = found["pieces"]
    more = "".join(f" and v{p['register']} bits {p['high_bit']}:{p['low_bit']}" for p in rest)
    return f"v{first['register']}, lane {found['lane']}, bits {first['high_bit']}:{first['low_bit']}{more}"


# ---- isa -------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("name", required=False)
@as_json
def isa(name: str | None, as_json: bool) -> None:
    """List the instructions, or describe one: encoding, operands, results, meaning, and what its bits rest on.

    NAME may be a pattern with *, ? and [...], in quotes: then it lists those that fit. A name may have the suffix of
    an encoding (_e32, _e64, _dpp, _sdwa), as disassembly writes it.

    \b
    Examples:
      gfx950 isa
      gfx950 isa 'v_cvt_*fp8*'
      gfx950 isa v_perm_b32
      gfx950 isa ds_read_b64_tr_b8 --json
    """
    from gfx950.isa.other_chips import why_unknown
    from gfx950.isa.registry import load

    known = load()
    if name is None or set(name) & set("*?["):
        found = [i for i in known.values() if name is None or fnmatch.fnmatchcase(i.name, name)]
        if not found:
            raise click.UsageError(f"no instruction fits {name!r}; `gfx950 isa` lists all {len(known)}")
        _list(sorted(found, key=lambda i: (i.encoding, i.opcode)), as_json)
        return
    instruction = find_instruction(name)
    if instruction is None:
        name = name.lower()
        if why := why_unknown(name):
            raise click.UsageError(why)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"nearest: {', '.join(near) or 'none'}; `gfx950 isa` lists them all"
        raise click.UsageError(f"no instruction {name!r} is defined; {hint}")
    facts = describe_instruction(instruction)
    if as_json:
        terminal.show_json("gfx950.instruction/1", facts)
    else:
        _show_instruction(facts)


def find_instruction(name: str) -> Instruction | None:
    """The instruction of a name in any case, with or without the suffix of an encoding (_e32, _e64, _dpp, _sdwa)."""
    from gfx950.isa.registry import load
    from gfx950.isa.text.catalog import SUFFIXES

    known, name = load(), name.lower()
    return known.get(name) or next((known[p] for s in SUFFIXES if (p := name.removesuffix(s)) in known), None)


def _list(instructions: list[Instruction], as_json: bool) -> None:
    rows = [{"name": i.name, "encoding": i.encoding, "opcode": i.opcode, "text": _first_line(i)} for i in instructions]
    if as_json:
        terminal.show_json("gfx950.isa/1", {"instructions": rows})
        return
    shown = [(str(r["encoding"]), str(r["opcode"]), str(r["name"])) for r in rows]
    for line in terminal.table([("encoding", "opcode", "name"), *shown]):
        click.echo(line)
    click.echo(f"{len(rows)} instruction{'s' * (len(rows) != 1)}; `gfx950 isa NAME` describes one")


def _first_line(instruction: Instruction) -> str:
    return instruction.doc.partition("\n")[0]


def describe_instruction(instruction: Instruction) -> dict[str, Any]:
    """All that the registry says of one instruction, as plain data.

    vop3_opcode: of the 64-bit form of a VOP1, VOP2 or VOPC instruction, else None. operands and results: name, type,
    32-bit registers (0 for masks, memories and static values), place (an implicit register or a memory, or None).
    """
    from gfx950.instruction_rules import rules_of
    from gfx950.isa.encoding import VOP3_BASES

    base = VOP3_BASES.get(instruction.encoding)
    return {
        "name": instruction.name,
        "encoding": instruction.encoding,
        "opcode": instruction.opcode,
        "vop3_opcode": None if base is None else base + instruction.opcode,
        "intrinsic": instruction.intrinsic,
        "operands": [_parameter(p) for p in instruction.parameters],
        "results": [_parameter(p) for p in instruction.results],
        "text": instruction.doc,
        "where": instruction.where,
        "source": textwrap.dedent(inspect.getsource(instruction.body)),
        "rules": [_rule(r) for r in sorted(rules_of(instruction), key=lambda r: (r.evidence, r.name))],
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    kind = parameter.kind.__name__ if isinstance(parameter.kind, type) else str(parameter.kind)
    return {"name": parameter.name, "type": kind, "registers": parameter.registers, "place": parameter.place}


def _rule(rule: Rule) -> dict[str, str]:
    return {"name": rule.name, "evidence": rule.evidence.name, "source": rule.source, "text": rule.text}


def _show_instruction(facts: dict[str, Any]) -> None:
    wide = "" if facts["vop3_opcode"] is None else f"; 64-bit form VOP3 opcode {facts['vop3_opcode']}"
    rows = [("encoding", f"{facts['encoding']} opcode {facts['opcode']} (0x{facts['opcode']:x}){wide}")]
    rows += [("operands" if i == 0 else "", _operand_text(p)) for i, p in enumerate(facts["operands"])]
    rows += [("results" if i == 0 else "", _operand_text(p)) for i, p in enumerate(facts["results"])]
    if facts["intrinsic"]:
        rows.append(("intrinsic", facts["intrinsic"]))
    rows += [("meaning", facts["text"]), ("defined at", facts["where"])]
    click.echo(facts["name"])
    for line in terminal.table(rows):
        click.echo(line)
    click.echo()
    for line in facts["source"].rstrip().splitlines():
        click.echo("\n".join(terminal.wrap_code(line)))
    click.echo()
    _show_rules(facts["rules"])


def _operand_text(parameter: dict[str, Any]) -> str:
    count = parameter["registers"]
    size = f", {count} register{'s' * (count > 1)}" if count else ""
    place = f", {parameter['place']}" if parameter["place"] else ""
    return f"{parameter['name']}: {parameter['type']}{size}{place}"


def _show_rules(rules: list[dict[str, str]]) -> None:
    if not rules:
        click.echo("rests on: spec (the ISA text alone)")
        return
    click.echo("rests on:")
    for rule in rules:
        terminal.show_text(f"{rule['evidence']}  {rule['name']}", "  ")
        terminal.show_text(rule["text"], "      ")
        terminal.show_text(f"[{rule['source']}]", "      ")


# ---- models ----------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("model", required=False)
@as_json
def models(model: str | None, as_json: bool) -> None:
    """List the models of arithmetic, and the switches: open questions of the chip that a model answers.

    Each switch with its answers (the default first), its question and the rules it decides. MODEL, a name or a file
    ending in .json: the answers of that model; `*` marks those that are not the default, `+` those it measured.

    \b
    Examples:
      gfx950 models
      gfx950 models gfx950 --json
    """
    from gfx950.models import find_model, load_switches, named_models

    found, named = find_model("gfx950" if model is None else model), named_models()
    switches = [describe_switch(s, found) for _, s in sorted(load_switches().items())]
    if as_json:
        head: dict[str, Any] = {"model": found.name, "digest": found.digest}
        head |= {"models": [{"name": name, "text": text} for name, text in named.items()]}
        tables = [{"mnemonic": name, "file": str(path)} for name, path in found.tables.items()]
        terminal.show_json("gfx950.models/1", head | {"tables": tables, "switches": switches})
        return
    if model is None:
        for line in terminal.table([("model", "what it is"), *named.items()]):
            click.echo(line)
    else:
        click.echo(f"model {found.name}, digest {found.digest}")
        for name, path in found.tables.items():
            terminal.show_text(f"table of {name}: {path}", "  ")
    click.echo(f"{len(switches)} switches; `gfx950 evidence RULE` says what a rule rests on")
    for switch in switches:
        _show_switch(switch)


def describe_switch(switch: Switch, model: Model) -> dict[str, Any]:
    """A switch as a model answers it, as plain data. measured: where its answer was measured, or None."""
    return {
        "name": switch.name,
        "answer": model.values.get(switch.name, switch.default),
        "default": switch.default,
        "answers": list(switch.answers),
        "text": switch.text,
        "measured": model.measured.get(switch.name),
        "rules": [r.name for r in switch.rules],
    }


def switch_line(switch: dict[str, Any]) -> str:
    """`mfma.half.length = 8 (or 1, 2, 4, 16)`, with a mark where the answer is measured or not the default."""
    marks = "*" * (switch["answer"] != switch["default"]) + "+" * (switch["measured"] is not None)
    others = ", ".join(f"{a}" for a in switch["answers"] if a != switch["answer"])
    return f"{switch['name']} = {switch['answer']}{marks} (or {others})"


def _show_switch(switch: dict[str, Any]) -> None:
    terminal.show_text(switch_line(switch), "  ")
    decides = f" Decides {', '.join(switch['rules'])}." if switch["rules"] else ""
    terminal.show_text(f"{switch['text']}{decides}", "      ")
