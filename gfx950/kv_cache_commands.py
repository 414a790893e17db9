"""`gfx950 layout kv_cache`: where an element of the page-16 cache is, which one a byte belongs to, and a picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from gfx950 import terminal
from gfx950.evidence import Rule, weakest
from gfx950.kv_cache import (
    INDEX_KEY_RULE,
    ITEM_BYTES,
    PAGE_RULE,
    REBASE_RULE,
    SIDES,
    SIDES_RULE,
    Element,
    IndexKeyLayout,
    KvCacheLayout,
    Place,
    block_and_token,
    slot_of,
    unrebase_slot,
)

IndexKey = tuple[int, int, int]  # block, token, dim

_NUMBER = r"-?(?:0x[0-9a-f]+|\d+)"
_ELEMENT = re.compile(rf"(K|V|index)((?: ?\[(?:block|token|slot|head|dim) {_NUMBER}\])+)")
_INDEX = re.compile(rf"\[(\w+) ({_NUMBER})\]")
_PLACE = re.compile(rf"(?:(K|V|index) )?(?:(page|flattened page) ({_NUMBER}) )?(?:head ({_NUMBER}) )?byte ({_NUMBER})")
LONGEST_NUMBER = 1000  # characters; Python shows no whole number of more than 4300 digits
_SLOT = re.compile(rf"(writer(?:'s)? )?slot ({_NUMBER})")
_FORMS = (
    "an element as K[block 3][token 17][head 0][dim 5] or V[slot 401][dim 5], a place as 'V page 54 byte 0x123', or"
    " 'slot 401' or \"writer's slot 785\" alone"
)
_SHORT = {
    PAGE_RULE: "AITER's cache kernels",
    SIDES_RULE: "vLLM's views",
    REBASE_RULE: "vLLM's test of the rebases",
    INDEX_KEY_RULE: "AITER's cache kernels",
}
"""Sources in few words; `gfx950 evidence` has them in full."""


@click.command()
@click.argument("element", required=False)
@click.option("--format", type=click.Choice(tuple(ITEM_BYTES)), default="fp8", show_default=True)
@click.option("--kv-heads", type=click.IntRange(1), default=1, show_default=True, help="Kv heads of a page.")
@click.option(
    "--packed/--dense",
    default=True,
    help="Both sides of a block in 16 consecutive pages (default), or a plane of pages for each side.",
)
@click.option("--blocks", type=click.IntRange(1), help="Blocks of the cache: its end, and where dense V begins.")
@click.option("--svg", type=click.Path(), metavar="FILE", help="Write a picture, with the element marked.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def kv_cache(
    element: str | None, format: str, kv_heads: int, packed: bool, blocks: int | None, svg: str | None, as_json: bool
) -> None:
    """Say where an element of the page-16 SHUFFLE KV cache is, or the reverse.

    ELEMENT is K or V with [block B][token T] or [slot S], [head H] where there are several, and [dim D]; or index with
    the same but a head, for an index key. Or it is a place: `K page P byte N`, with `head H` a byte of that head's part
    only, `K flattened page F byte N`, `K byte N` of K's view, `byte N` of the allocation, `index byte N`. Or it is
    `slot S`, or `writer's slot S` as the writer of a packed cache is given it: its block, token and page. Numbers may
    be hexadecimal. Without ELEMENT: a picture of a block and of a page of K and V.

    \b
    Examples:
      gfx950 layout kv_cache
      gfx950 layout kv_cache 'K[block 3][token 17][head 0][dim 5]'
      gfx950 layout kv_cache 'V[slot 401][head 2][dim 5]' --kv-heads 4 --format bf16
      gfx950 layout kv_cache 'V page 54 byte 0x123'
      gfx950 layout kv_cache 'byte 123456' --dense --blocks 8 --json
      gfx950 layout kv_cache 'index[slot 401][dim 5]'
      gfx950 layout kv_cache "writer's slot 785"
    """
    layout = KvCacheLayout(format, kv_heads, packed, blocks)
    try:
        found = None if element is None else find(layout, element)
    except (ValueError, IndexError) as error:
        raise click.UsageError(str(error)) from error
    if svg is not None:
        _write_picture(layout, found, Path(svg))
    written = {} if svg is None else {"svg": svg}
    if as_json:
        schema, document = _document(layout, found)
        terminal.show_json(schema, document | written)
        return
    _show(layout, found)
    for path in written.values():
        terminal.show_text(f"picture written to {path}")


# ---- questions -------------------------------------------------------------------------------------------------------


def find(layout: KvCacheLayout, question: str) -> Element | IndexKey | int:
    """The element, or of an index key the block, token and dim, or the slot, that a question names or asks for.

    Raises ValueError for what cannot be read or says too little, IndexError for what is outside the cache.
    """
    text = " ".join(question.split())
    if match := _ELEMENT.fullmatch(text):
        return _named(layout, match[1], match[2])
    if match := _PLACE.fullmatch(text):
        return _owner(layout, *match.groups())
    if match := _SLOT.fullmatch(text):
        number = _number(match[2])
        slot = unrebase_slot(number) if match[1] and layout.packed else number
        layout.page(*block_and_token(slot))
        return slot
    raise ValueError(f"cannot read {question!r}: write {_FORMS}")


def _named(layout: KvCacheLayout, what: str, indices: str) -> Element | IndexKey:
    given: dict[str, int] = {}
    for name, number in _INDEX.findall(indices):
        if name in given:
            raise ValueError(f"{what}{indices} gives its {name} twice")
        given[name] = _number(number)
    if "slot" in given:
        if more := sorted({"block", "token"} & given.keys()):
            raise ValueError(f"{what}{indices}: a slot is a block and a token; drop the {' and the '.join(more)}")
        given["block"], given["token"] = block_and_token(given.pop("slot"))
    if what == "index" and "head" in given:
        raise ValueError(f"{what}{indices}: an index key has no heads; drop the head")
    if what == "index" or layout.kv_heads == 1:
        given.setdefault("head", 0)
    if missing := [name for name in Element._fields[1:] if name not in given]:
        raise ValueError(f"{what}{indices} leaves out the {' and the '.join(missing)}: write {_FORMS}")
    if what == "index":
        key = given["block"], given["token"], given["dim"]
        _index_keys(layout).byte(*key)
        return key
    element = Element(what, **given)
    layout.place(element)
    return element


def _owner(
    layout: KvCacheLayout, what: str | None, kind: str | None, page: str | None, head: str | None, byte: str
) -> Element | IndexKey:
    number = _number(byte)
    if page is None and head is not None:
        raise ValueError(f"head {head} of which page? write K page P head H byte N")
    if what == "index" and page is None:
        return _index_keys(layout).element_at(number)
    if page is not None:
        if what not in SIDES:
            raise ValueError(f"page {page} of which side? write K page {page} or V page {page}")
        return _owner_in_page(layout, what, kind == "flattened page", _number(page), head, number)
    if what is not None:
        return layout.element_at_view_byte(what, number)
    if layout.blocks is None and not layout.packed:
        raise ValueError("how many blocks the cache has decides where V's plane begins; give --blocks")
    return layout.element_at(number)


def _owner_in_page(layout: KvCacheLayout, side: str, flat: bool, page: int, head: str | None, byte: int) -> Element:
    if flat:
        if head is not None:
            raise ValueError("a flattened page is of one head; drop the head")
        return layout.element(side, Place(*layout.page_and_head(page), byte))
    if head is not None:
        return layout.element(side, Place(page, _number(head), byte))
    if not 0 <= byte < layout.page_bytes:
        raise IndexError(f"byte {byte} is outside a page: give 0..{layout.page_bytes - 1}")
    return layout.element(side, Place(page, *divmod(byte, layout.head_bytes)))


def _index_keys(layout: KvCacheLayout) -> IndexKeyLayout:
    return IndexKeyLayout(layout.format, layout.blocks)


def _number(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"the number {text[:16]}... has {len(text)} characters; give one of at most {LONGEST_NUMBER}")
    return int(text, 16 if "0x" in text else 10)


# ---- answers ---------------------------------------------------------------------------------------------------------


def describe_element(layout: KvCacheLayout, element: Element) -> dict[str, Any]:
    """All places of an element as plain data. byte: in the allocation, None where only --blocks can tell."""
    place, slot = layout.place(element), slot_of(element.block, element.token)
    known = layout.packed or element.side == "K" or layout.blocks is not None
    return {
        **element._asdict(),
        "page": place.page,
        "flattened_page": layout.flattened_page(place.page, place.head),
        "byte_in_page": place.byte,
        "view_byte": layout.view_byte(element),
        "byte": layout.byte(element) if known else None,
        "bytes": layout.item_bytes,
        "slot": slot,
        "writer_slot": layout.writer_slot(slot),
    }


def describe_index_key(layout: KvCacheLayout, key: IndexKey) -> dict[str, Any]:
    """The byte of an index key in its cache, as plain data."""
    block, token, dim = key
    byte = _index_keys(layout).byte(*key)
    found = {"block": block, "token": token, "dim": dim, "byte": byte, "bytes": layout.item_bytes}
    return found | {"slot": slot_of(block, token)}


def describe_slot(layout: KvCacheLayout, slot: int) -> dict[str, Any]:
    """The block, token and page of a slot, as plain data."""
    block, token = block_and_token(slot)
    page = layout.page(block, token)
    return {"slot": slot, "block": block, "token": token, "page": page, "writer_slot": layout.writer_slot(slot)}


def describe_layout(layout: KvCacheLayout) -> dict[str, Any]:
    """The sizes of a cache, and the runs of 16 bytes in a page of each side, as plain data."""
    from gfx950.kv_cache_picture import runs

    sizes = {"x": layout.x, "page_stride": layout.page_stride, "block_bytes": layout.block_bytes}
    sides = {}
    for side in SIDES:
        parts = [
            {"byte": r.byte, "tokens": [r.tokens[0], r.tokens[-1]], "dims": [r.dims[0], r.dims[-1]]}
            for r in runs(layout, side)
        ]
        known = layout.blocks is not None
        sides[side] = {
            "view_start": layout.view_start(side) if known or layout.packed or side == "K" else None,
            "view_shape": layout.view_shape(side) if known else None,
            "view_strides": layout.view_strides(side),
            "page": parts,
        }
    return sizes | {"flattened_page_bytes": layout.head_bytes, "sides": sides}


def _document(layout: KvCacheLayout, found: Element | IndexKey | int | None) -> tuple[str, dict[str, Any]]:
    cache = {"format": layout.format, "kv_heads": layout.kv_heads, "packed": layout.packed, "blocks": layout.blocks}
    rest = _rests_on(found)
    if found is None:
        return "gfx950.kv-cache/1", cache | describe_layout(layout) | rest
    if isinstance(found, Element):
        return "gfx950.kv-cache-element/1", cache | describe_element(layout, found) | rest
    if isinstance(found, int):
        return "gfx950.kv-cache-slot/1", cache | describe_slot(layout, found) | rest
    index = {"format": layout.format, "blocks": layout.blocks}
    return "gfx950.index-key/1", index | describe_index_key(layout, found) | rest


def _rules(found: Element | IndexKey | int | None) -> tuple[Rule, ...]:
    if isinstance(found, int):
        return SIDES_RULE, REBASE_RULE
    of_keys = found is not None and not isinstance(found, Element)
    return (INDEX_KEY_RULE,) if of_keys else (PAGE_RULE, SIDES_RULE, REBASE_RULE)


def _rests_on(found: Element | IndexKey | int | None) -> dict[str, str]:
    rules = _rules(found)
    return {"evidence": weakest(rules).name, "source": "; ".join(rule.source for rule in rules)}


def _show(layout: KvCacheLayout, found: Element | IndexKey | int | None) -> None:
    if found is None:
        from gfx950.kv_cache_picture import text_picture

        click.echo("\n".join(text_picture(layout)))
        click.echo()
    elif isinstance(found, Element):
        _show_rows(*_element_rows(layout, describe_element(layout, found)))
    elif isinstance(found, int):
        _show_rows(*_slot_rows(describe_slot(layout, found)))
    else:
        _show_rows(*_index_key_rows(describe_index_key(layout, found)))
    rules = _rules(found)
    terminal.show_text(f"rests on: {weakest(rules).name} ({', '.join(_SHORT[rule] for rule in rules)})")


def _show_rows(name: str, rows: list[tuple[str, str]]) -> None:
    terminal.show_text(name)
    for line in terminal.table([(f"  {what}", value) for what, value in rows]):
        click.echo(line)


def _element_rows(layout: KvCacheLayout, found: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    side, size, heads = found["side"], found["bytes"], layout.kv_heads
    flat = f", flattened page {found['flattened_page']}" if heads > 1 else ""
    of_head = " and head" if heads > 1 else ""
    unknown = "how many blocks the cache has decides where V's plane begins; give --blocks"
    rows = [
        ("page", f"{found['page']}{flat}"),
        (f"in the page{of_head}", _bytes(found["byte_in_page"], size)),
        (f"in {side}'s view", _bytes(found["view_byte"], size)),
        ("in the allocation", unknown if found["byte"] is None else _bytes(found["byte"], size)),
        ("slot", f"{found['slot']}, the writer's {found['writer_slot']}"),
    ]
    name = f"{side}[block {found['block']}][token {found['token']}][head {found['head']}][dim {found['dim']}]"
    return name, rows


def _slot_rows(found: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    names = ("block", "token", "page")
    return f"slot {found['slot']}, the writer's {found['writer_slot']}", [(name, str(found[name])) for name in names]


def _index_key_rows(found: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    rows = [("in the index cache", _bytes(found["byte"], found["bytes"])), ("slot", f"{found['slot']}")]
    return f"index[block {found['block']}][token {found['token']}][dim {found['dim']}]", rows


def _bytes(first: int, size: int) -> str:
    """`byte 21 (0x15)`, or both bytes of a bf16."""
    if size == 1:
        return f"byte {first} (0x{first:x})"
    last = first + size - 1
    return f"bytes {first}..{last} (0x{first:x}..0x{last:x})"


def _write_picture(layout: KvCacheLayout, found: Element | IndexKey | int | None, path: Path) -> None:
    from gfx950.kv_cache_picture import svg_picture
    from gfx950.whole_files import write_whole

    if found is not None and not isinstance(found, Element):
        raise click.UsageError("the picture is of K and V; drop --svg or ask for an element of theirs")
    write_whole(path, svg_picture(layout, found).encode())
