"""The page of a comparison: one offline file, readable without scripts, of bounded size, with all that was found."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from diff_kernels import DEVICE, SHAPE, changed_results, instruction, subject
from hip_stand_in import Fault, stand_in

from codegen.kernel_package import Output
from emu.dispatch import Watch
from golden.compare import compare
from golden.diff import ArrayDiff, Comparison, Plan, Unstable, diff
from golden.first_wrong import find_first_wrong
from golden.html_report import html_report
from golden.provenance import Provenance
from golden.writers import writers_of

FOUND = Provenance(
    subject="k & <k>",
    code={"host": "ab" * 32, "device": "cd" * 32},
    model="gfx950",
    model_digest="1234",
    versions={"python": "3", "numpy": "2"},
    device={"name": "gfx950 stand-in", "firmware": ""},
    instructions=dict.fromkeys(("measured", "published", "carried", "vendor", "chosen", "spec"), 1),
    rules={"float.ends": "chosen"},
)
VOID = {"meta", "br", "img", "link"}


class Page(HTMLParser):
    """The tags of a page, and that each is closed where it must be."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def comparison(a, b, form="u8", describe=lambda index: "", **more):
    array = ArrayDiff(Output("o", form, True, describe), a, b, difference=compare("o", a, b, form), **more)
    return Comparison("case", ("host", "device"), 1, [array])


def page(*comparisons):
    return Page(html_report(comparisons, FOUND))


def cells(text):
    """Rows and columns of the cells of the maps, map by map."""
    maps = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    found = []
    for one in maps:
        tree = ElementTree.fromstring(one)
        found.append({(int(c.get("y")) // 8, int(c.get("x")) // 8): float(c.get("fill-opacity")) for c in tree})
    return found


def test_a_page_of_a_real_run():
    offset, register = instruction("v_add_f32")
    with stand_in(faults=[Fault("k", offset, register, bit=12, lane=9)]):
        own = subject()
        found = diff(own, DEVICE)
        found.first_wrong = find_first_wrong(own, DEVICE, found)
    text = html_report([found], FOUND)
    read = Page(text).text
    for words in (
        "gfx950 diff: k & <k>: 1 of 1 differ", "16 of 1024 elements", "arg0[0][9]", "4096 ulp of f32",
        "bit 12 (mantissa) is flipped in each", "only lane 9", "global_store_dword v[0:1], v2, off", "float.ends",
        "v_add_f32_e32 v2, 1.0, v2", "ab" * 32, "cd" * 32, "gfx950 (1234)", "gfx950 stand-in",
        "the system does not say", "version of numpy",
    ):  # fmt: skip
        assert words in read, words
    by_index, by_lane = cells(text)
    assert by_index == {(row, 9): 1.0 for row in range(16)}
    assert by_lane == {(group, 9): 1.0 for group in range(8)}


def test_it_needs_nothing_outside_itself_and_no_scripts():
    a = np.zeros((4, 4), np.uint8)
    text = html_report([comparison(a, a + 1)], FOUND)
    tags = Page(text).tags
    assert {tag for tag, _ in tags} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "h4", "p", "div", "table", "thead", "tbody",
        "tr", "th", "td", "figure", "figcaption", "svg", "rect", "pre",
    }  # fmt: skip
    names = {name for _, attributes in tags for name in attributes}
    assert not names & {"src", "href", "srcset", "data", "action"}
    assert not [name for name in names if name.startswith("on")]
    assert not re.search(r"https?:|url\(|@import", text)


def test_what_is_the_same_is_said_so():
    a = np.zeros((4, 4), np.uint8)
    one = Comparison("case", ("host", "device"), 1, [ArrayDiff(Output("o", "u8", True, str), a, a)])
    read = page(one).text
    assert "all 1 the same" in read
    assert "case o u8 [4, 4] host : device same one run" in read
    assert "<h2" not in html_report([one], FOUND).split("What the emulator")[0].replace("<h2>", "")


def test_names_are_text_and_nothing_else():
    a = np.zeros((4, 4), np.uint8)
    found = comparison(a, a + 1, describe=lambda index: "<script>alert(1)</script> & more")
    text = html_report([found], FOUND)
    assert "<script" not in text
    assert "<script>alert(1)</script> & more" in Page(text).text


@pytest.mark.parametrize("shape", [(1,), (5,), (100_003,), (1000, 3000), (7, 11, 130), (4096, 16), (3, 100_000)])
def test_the_map_by_index_is_bounded_and_says_where(shape):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 255, shape, dtype=np.uint8)
    b = a.copy()
    at = rng.choice(a.size, min(a.size, 5), replace=False)
    b.reshape(-1)[at] += 1
    (found,) = cells(html_report([comparison(a, b)], FOUND))
    rows, columns = (a.size // shape[-1], shape[-1]) if len(shape) > 1 else (None, None)
    assert len(found) <= 5
    assert all(0 <= row < 64 and 0 <= column < 64 for row, column in found)
    if rows is not None:
        high, wide = -(-rows // 64), -(-columns // 64)
        assert set(found) == {(int(n) // columns // high, int(n) % columns // wide) for n in at}


def test_a_large_array_makes_no_large_page():
    a = np.zeros((2048, 4096), np.uint8)
    b = np.random.default_rng(0).integers(1, 200, a.shape, dtype=np.uint8)
    text = html_report([comparison(a, b)], FOUND)
    assert len(text) < 1 << 20
    assert len(cells(text)[0]) == 64 * 64
    assert f"and {2048 * 4096 - 40} more" in text


def test_the_shade_is_the_share():
    a = np.zeros((64, 128), np.uint8)
    b = a.copy()
    b[0, 0:2] = b[1, 0] = 1  # two columns a cell: all of the first, half of the one below
    (found,) = cells(html_report([comparison(a, b)], FOUND))
    assert found == {(0, 0): 1.0, (1, 0): 0.5}


def test_many_workgroups_share_rows():
    a = np.zeros(64 * 200, np.uint8)
    b = a.copy()
    b[64 * 100 + 7] = 1
    watch = lambda n: Watch((n // 64, 0, 0), 0, n % 64, 0, "global_store_byte", "k", 0)  # noqa: E731
    writers = writers_of([(n, watch(n), bool(b[n])) for n in range(a.size)], 1, a.size)
    _, by_lane = cells(html_report([comparison(a, b, writers=writers)], FOUND))
    assert list(by_lane) == [(100 // 4, 7)]


def test_unstable_elements_have_a_map_of_their_own():
    a = np.zeros((8, 64), np.float32)
    mask = np.zeros(a.shape, bool)
    mask[3, 5] = True
    one = Comparison("case", ("host", "device"), 7, [])
    one.arrays.append(
        ArrayDiff(Output("o", "f32", True, str), a, a, unstable=Unstable(mask, 1, (3, 5), {"0x1": 7}, ""))
    )
    text = html_report([one], FOUND)
    assert cells(text) == [{(3, 5): 1.0}]
    assert "1 elements are not the same in all 7 runs of device; first o[3][5]" in Page(text).text


def test_a_page_of_runs_that_change(monkeypatch):
    with changed_results(lambda data, number: data.__setitem__(0, number), monkeypatch=monkeypatch):
        found = diff(subject(), Plan(repeat=2))
    assert "elements are not the same in all 2 runs" in page(found).text
    assert found.arrays[0].a.shape == SHAPE


def test_outputs_that_cannot_be_compared():
    array = ArrayDiff(Output("o", "u8", True, str), np.zeros(3), np.zeros(4), problem="float64[3] against float64[4]")
    read = page(Comparison("case", ("host", "device"), 1, [array])).text
    assert "cannot be compared: float64[3] against float64[4]" in read
