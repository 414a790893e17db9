"""Tables of captured results: lossless for every input, read only when whole, and in force under the models that name
them. The oracle is a plain array of results beside the default's."""

import hashlib
import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfx950.arithmetic import result_table, transcendental
from gfx950.arithmetic.native import NATIVES, native_in_force
from gfx950.arithmetic.result_table import SCALING, TableError, fnv_digest, read_header, read_table, write_table
from gfx950.evidence import Evidence
from gfx950.instruction_rules import rules_of
from gfx950.isa.registry import load
from gfx950.models import DEFAULT, ModelError, make_model, read_model, using, write_model

CAME = {"device": "made up", "capture": "capture 0123", "mode": "0xf0"}
ONE = 0x3F800000
ODD_WORDS = np.array([0, 1, 0x7F800000, 0xFFC00001, 0x7FA00000, 0x80000000], np.uint32)


def run(name, bits, model=DEFAULT):
    padded = np.zeros(-(-len(bits) // 64) * 64, np.uint32)
    padded[: len(bits)] = bits
    with using(model):
        return native_in_force(name)(padded.reshape(-1, 1, 64)).reshape(-1)[: len(bits)]


def codes(first, count):
    return np.arange(first, first + count, dtype=np.uint32)


def disturbed(plain, seed, exceptions, limit=0xFFFFFFFF):
    """Results near the default's: half one off, some anything at all."""
    generator = np.random.default_rng(seed)
    found = plain + generator.choice(np.array([0, 0, 1, 0xFFFFFFFF], np.uint32), len(plain))
    found[generator.choice(len(plain), exceptions, replace=False)] = generator.integers(0, 1 << 32, exceptions)
    return found & np.uint32(limit)


def modelled(tmp_path, name, results, **options):
    """A model with a table of results, written to a file and read back."""
    path = tmp_path / f"{name}.results"
    write_table(path, name, results, **CAME, **options)
    return make_model("captured", tables={name: path})


# ---- nothing is lost -------------------------------------------------------------------------------------------------


F16 = [name for name in transcendental.DEFAULTS if name.endswith("f16")]


@pytest.mark.parametrize(("name", "exceptions"), [*((name, 300) for name in F16), (F16[0], 0), (F16[0], 1 << 16)])
def test_every_f16_input_gives_what_was_captured(tmp_path, name, exceptions):
    captured = disturbed(run(name, codes(0, 1 << 16)), 1, exceptions, 0xFFFF)
    model = modelled(tmp_path, name, [(0, captured)])
    assert np.array_equal(run(name, codes(0, 1 << 16), model), captured)
    assert np.array_equal(run(name, codes(0, 1 << 16) | np.uint32(0xABCD0000), model), captured), "bits 31:16"
    table = read_table(model.tables[name])
    assert table.header.complete
    assert table.header.differing == np.count_nonzero(captured != run(name, codes(0, 1 << 16)))
    transcendental.check_table(table)


@pytest.mark.parametrize("name", ["v_exp_f32", "v_log_f32", "v_rsq_f32", "v_sin_f32"])
def test_f32_inputs_give_what_was_captured(tmp_path, name):
    """They straddle a chunk's end, with one exception at each end of what was captured and many between."""
    first, count = 0x3E800000 - (1 << 22), 1 << 23
    captured = disturbed(run(name, codes(first, count)), 2, 5000)
    captured[[0, -1]] = 0xFFFFFFFF, 0x80000001
    model = modelled(tmp_path, name, [(first, captured)])
    assert np.array_equal(run(name, codes(first, count), model), captured)
    for outside in (codes(first - (1 << 16), 1 << 16), codes(first + count, 1 << 16), ODD_WORDS):
        assert np.array_equal(run(name, outside, model), run(name, outside))


def test_each_kind_of_chunk_takes_the_memory_it_should(tmp_path):
    """Same as the default: none; one off: two bits an input; nothing like it: a word an input."""
    binade, name = 1 << 23, "v_exp_f32"
    plain = run(name, codes(ONE, 3 * binade))
    captured = plain.copy()
    captured[binade : 2 * binade] += 1
    captured[2 * binade :] = codes(5, binade)
    model = modelled(tmp_path, name, [(ONE, captured)])
    assert np.array_equal(run(name, codes(ONE, 3 * binade), model), captured)
    table = read_table(model.tables[name])
    assert [chunk.kind for chunk in table.header.chunks] == [0, 1, 2]
    assert len(table.words) == 4 * 512 + binade // 16 + binade
    assert model.tables[name].stat().st_size < 1 << 24


@settings(max_examples=8, deadline=None)
@given(
    ranges=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000)), min_size=1, max_size=8),
    seed=st.integers(0, 1 << 30),
)
def test_any_ranges_are_kept(tmp_path_factory, ranges, seed):
    name, at, results = "v_sin_f16", 0, []
    expected = run(name, codes(0, 1 << 16))
    for gap, count in ranges:
        first = at + gap
        captured = disturbed(expected[first : first + count], seed + first, count // 10, 0xFFFF)
        results.append((first, captured))
        expected[first : first + count] = captured
        at = first + count
    path = tmp_path_factory.mktemp("any") / "table"
    write_table(path, name, results, **CAME)
    table = read_table(path)
    got = transcendental.TableNative(name, table)(codes(0, 1 << 16).reshape(-1, 1, 64)).reshape(-1)
    assert np.array_equal(got, expected)
    assert table.header.covered == sum(count for _, count in ranges)
    assert len(table.header.ranges) <= len(ranges)


@pytest.mark.slow
def test_all_inputs_of_an_f32_instruction(tmp_path):
    """2^32 results: one off in every fourth place, an exception every 65536, one binade that has nothing in common."""
    name, binade = "v_exp_f32", codes(0, 1 << 23)
    one_off, exceptions = (binade & np.uint32(3) == 0).astype(np.uint32), slice(7, None, 1 << 16)

    def captured(number):
        bits = binade + np.uint32(number << 23)
        if number == 300:
            return bits
        result = run(name, bits) + one_off
        result[exceptions] ^= np.uint32(0xDEADBEEF)
        return result

    model = modelled(tmp_path, name, ((number << 23, captured(number)) for number in range(512)))
    for number in range(512):
        assert np.array_equal(run(name, binade + np.uint32(number << 23), model), captured(number)), hex(number)
    header = read_header(model.tables[name])
    assert header.complete
    assert {chunk.kind for chunk in header.chunks} == {1, 2}


# ---- powers of two ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCALING)
def test_a_period_of_the_default_is_the_default_everywhere(tmp_path, name):
    period = SCALING[name][0]
    model = modelled(tmp_path, name, [(ONE, run(name, codes(ONE, period << 23)))], period=period)
    random = np.random.default_rng(5).integers(0, 1 << 32, 200000, dtype=np.uint32)
    bits = np.concatenate([ODD_WORDS, random, codes(0x007FFF00, 512), codes(0x7F7FFF00, 512), codes(0xFF7FFF00, 512)])
    assert np.array_equal(run(name, bits, model), run(name, bits))


@pytest.mark.parametrize("name", SCALING)
def test_a_period_moves_to_other_binades(tmp_path, name):
    """By doubles: f(x * 2^p) is the table's result for x times a power of two, zero below 2^-126."""
    period, slope = SCALING[name]
    captured = run(name, codes(ONE, period << 23)) + np.uint32(1)
    captured[777] = 0x3F123456
    model = modelled(tmp_path, name, [(ONE, captured)], period=period)
    for shift in range(-126, 128 - period, period):
        place = np.concatenate(
            [[777, 0, (period << 23) - 1], np.random.default_rng(shift + 200).integers(0, 1 << 23, 50)]
        )
        bits = (place + ONE + (shift << 23)).astype(np.uint32)
        if shift < -126 + period and period == 2:
            bits = bits[bits >= 0x00800000]
            place = place[: len(bits)]
        moved = captured[place].view(np.float32).astype(np.float64) * 2.0 ** (slope * shift // period)
        want = np.where(moved >= 2.0**-126, moved, 0).astype(np.float32).view(np.uint32)
        assert np.array_equal(run(name, bits, model), want), shift
        negative = bits | np.uint32(1 << 31)
        wanted = want | np.uint32(1 << 31) if period == 1 else run(name, negative)
        assert np.array_equal(run(name, negative, model), wanted), shift


def test_a_table_with_a_period_may_hold_what_follows_from_nothing(tmp_path):
    """Subnormals, infinities, NaNs and, where the function is not odd, negative numbers."""
    binades, name = run("v_rsq_f32", codes(ONE, 1 << 24)), "v_rsq_f32"
    captured = [(0, ODD_WORDS), (ONE, binades), (0x7F800000, ODD_WORDS), (0xBF800000, ODD_WORDS)]
    model = modelled(tmp_path, name, captured, period=2)
    for first in (0, 0x7F800000, 0xBF800000):
        assert np.array_equal(run(name, codes(first, len(ODD_WORDS)), model), ODD_WORDS)


# ---- what cannot be written ------------------------------------------------------------------------------------------


def f16(count):
    return np.zeros(count, np.uint32)


@pytest.mark.parametrize(
    ("name", "results", "period", "error", "message"),
    [
        ("v_tan_f32", [], None, ValueError, "there are v_exp_f32"),
        ("v_exp_f16", [(0, np.zeros(1))], None, TypeError, "use .view"),
        ("v_exp_f16", [(0, np.zeros((1, 1), np.uint32))], None, TableError, "one-dimensional and not empty"),
        ("v_exp_f16", [(0, f16(0))], None, TableError, "one-dimensional and not empty"),
        ("v_exp_f16", [(0xFFFF, f16(2))], None, TableError, "and 0x10000; give ranges in ascending order"),
        ("v_exp_f16", [(4, f16(2)), (5, f16(2))], None, TableError, "between 0x6, where the one before"),
        ("v_exp_f16", [(0, np.full(2, 0x10000, np.uint32))], None, TableError, "bits 31:16 zero; got 0x00010000"),
        ("v_exp_f32", [], 1, TableError, "leave `period` out"),
        ("v_rsq_f32", [], 1, TableError, "repeats every 2 binades, not 1"),
        ("v_rcp_f32", [(ONE, np.full(1, ONE + (1 << 24), np.uint32))], 1, TableError, r"lie in \[0.25, 4\)"),
        ("v_rcp_f32", [(0x40000000, f16(1))], 1, TableError, "goes beyond: leave `period` out"),
        ("v_rcp_f32", [(0xBF800000, f16(1))], 1, TableError, "goes beyond: leave `period` out"),
    ],
)
def test_what_cannot_be_written(tmp_path, name, results, period, error, message):
    with pytest.raises(error, match=message):
        write_table(tmp_path / "table", name, results, **CAME, period=period)
    assert not (tmp_path / "table").exists()


def test_a_table_is_of_ranges_not_of_scattered_inputs(tmp_path, monkeypatch):
    monkeypatch.setattr(result_table, "MOST_RANGES", 3)
    scattered = [(2 * i, np.zeros(1, np.uint32)) for i in range(4)]
    write_table(tmp_path / "table", "v_exp_f16", scattered[:3], **CAME)
    with pytest.raises(TableError, match="at most 3 ranges; capture consecutive inputs"):
        write_table(tmp_path / "table", "v_exp_f16", scattered, **CAME)


# ---- what cannot be read ---------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "table"
    write_table(path, "v_exp_f16", [(0, disturbed(run("v_exp_f16", codes(0, 4096)), 3, 20, 0xFFFF))], **CAME)
    return path


def test_a_change_of_any_byte_is_seen(written):
    content = written.read_bytes()
    read_table(written)
    for at in [*range(120), *range(120, len(content), 37), len(content) - 1]:
        written.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        with pytest.raises(TableError, match=r"damaged or truncated|no table of results|header is wrong"):
            read_table(written)


def test_a_file_that_ends_early_or_late_is_seen(written):
    content = written.read_bytes()
    for changed in (*(content[:count] for count in range(0, len(content), 53)), content + b"\0"):
        written.write_bytes(changed)
        with pytest.raises(TableError, match="table"):
            read_table(written)


def test_messages_of_what_cannot_be_read(tmp_path, written):
    content = written.read_bytes()
    written.write_bytes(content[:-1])
    with pytest.raises(TableError, match=r"is damaged or truncated: its content has SHA-256 .* capture it again"):
        read_table(written)
    (tmp_path / "foreign").write_bytes(b"\x7fELF\0\1\2\n\n")
    for read in (read_table, read_header):
        with pytest.raises(
            TableError, match=r"foreign is no table of results: it does not begin with 'gfx950.results/1'"
        ):
            read(tmp_path / "foreign")
        with pytest.raises(TableError, match="absent is no table of results: No such file"):
            read(tmp_path / "absent")


def forged(path, change):
    """The file with another header and a digest that fits it."""
    head, _, payload = path.read_bytes().partition(b"\n")[2].partition(b"\n")
    content = json.loads(head)
    payload = change(content, payload) or payload
    body = json.dumps(content).encode() + b"\n" + payload
    path.write_bytes(b"gfx950.results/1 " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    return path


def set_chunk(field, value):
    def change(content, _):
        content["chunks"][0][field] = value

    return change


def exchange(content, payload):
    """The first chunk's blob with its first two exceptions in the wrong order."""
    _, _, length, exceptions, _ = content["chunks"][0]
    words = np.frombuffer(zlib.decompress(payload[:length]), "<u4").copy()
    assert exceptions > 1
    words[64], words[65] = words[65], words[64]
    blob = zlib.compress(words.tobytes())
    content["chunks"][0][2] = len(blob)
    return blob + payload[length:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content, _: content.pop("mnemonic") and None, "header is wrong: KeyError: 'mnemonic'"),
        (lambda content, _: content.update(chunk_bits=9), "chunks of v_exp_f16 are binades"),
        (lambda content, _: content.update(period=1), "leave `period` out"),
        (lambda content, _: content.update(ranges=[[0, "many"]]), "'many' is no natural number"),
        (lambda content, _: content["chunks"].reverse(), "in order, each once"),
        (set_chunk(0, 64), "in order, each once"),
        (set_chunk(1, 7), "a kind or a number of exceptions that there is not"),
        (set_chunk(3, 1 << 40), "a kind or a number of exceptions that there is not"),
        (set_chunk(2, 1), "does not describe the"),
        (set_chunk(3, 1), "has other than the"),
        (lambda content, payload: b"\0" + payload[1:], "cannot be decompressed"),
        (exchange, "exceptions that do not fit its codes"),
    ],
)
def test_a_header_that_does_not_fit_its_payload_is_an_error(written, change, message):
    with pytest.raises(TableError, match=message):
        read_table(forged(written, change))


@pytest.mark.parametrize(
    "head", [b"[]", b"{", b"\xff", b"[" * 100000, b"3", b'{"mnemonic": "v_exp_f32", "period": []}']
)
def test_a_header_that_is_none_is_an_error(written, head):
    digest = hashlib.sha256(head + b"\n").hexdigest().encode()
    written.write_bytes(b"gfx950.results/1 " + digest + b"\n" + head + b"\n")
    for read in (read_header, read_table):
        with pytest.raises(TableError, match="table: its header is wrong: "):
            read(written)


def test_a_table_against_another_default_is_found(written):
    table = read_table(written)
    transcendental.check_table(table)
    chunks = table.header.chunks
    other = replace(table.header, chunks=(chunks[0]._replace(check=chunks[0].check ^ 1), *chunks[1:]))
    with pytest.raises(TableError, match="of inputs 0x0 to 0x3ff: write it again from the capture"):
        transcendental.check_table(replace(table, header=other))


# ---- models ----------------------------------------------------------------------------------------------------------


def test_a_model_has_its_table_and_no_other_has(tmp_path):
    model = modelled(tmp_path, "v_exp_f32", [(ONE, ODD_WORDS)])
    inputs = codes(ONE, len(ODD_WORDS))
    before = run("v_exp_f32", inputs)
    assert np.array_equal(run("v_exp_f32", inputs, model), ODD_WORDS)
    assert np.array_equal(run("v_exp_f32", inputs), before)
    assert NATIVES["v_log_f32"].under(model) is NATIVES["v_log_f32"]
    assert NATIVES["v_exp_f32"].under(model) is NATIVES["v_exp_f32"].under(model)


def test_models_are_known_by_what_their_tables_hold(tmp_path):
    one = modelled(tmp_path, "v_exp_f32", [(ONE, ODD_WORDS)])
    (tmp_path / "copy").write_bytes(one.tables["v_exp_f32"].read_bytes())
    copy = make_model("copy", tables={"v_exp_f32": tmp_path / "copy"})
    assert one.digest == copy.digest != DEFAULT.digest
    write_table(tmp_path / "copy", "v_exp_f32", [(ONE, ODD_WORDS[::-1].copy())], **CAME)
    assert make_model("copy", tables={"v_exp_f32": tmp_path / "copy"}).digest != one.digest


def test_a_file_that_changes_under_a_model_is_an_error(tmp_path):
    model = modelled(tmp_path, "v_exp_f32", [(ONE, np.array([123], np.uint32))])
    write_table(model.tables["v_exp_f32"], "v_exp_f32", [(ONE, np.array([124], np.uint32))], **CAME)
    with pytest.raises(TableError, match="has changed since model 'captured' read its digest"):
        run("v_exp_f32", ODD_WORDS, model)


def test_models_with_tables_are_kept_in_files(tmp_path):
    made = modelled(tmp_path, "v_exp_f32", [(ONE, ODD_WORDS)])
    made = make_model("kept", tables=made.tables, measured={"v_exp_f32": "capture 0123 of an MI355X"})
    write_model(made, tmp_path / "model.json")
    assert json.loads((tmp_path / "model.json").read_text())["tables"] == {"v_exp_f32": "v_exp_f32.results"}
    found = read_model(tmp_path / "model.json")
    assert (found.digest, found.measured) == (made.digest, made.measured)
    assert np.array_equal(run("v_exp_f32", codes(ONE, len(ODD_WORDS)), found), ODD_WORDS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v_add_f32", "the table of v_add_f32: 'v_add_f32' is no transcendental instruction"),
        ("v_log_f32", "the table of v_log_f32: .* holds results of v_exp_f16, not of v_log_f32"),
    ],
)
def test_a_model_with_a_wrong_table_is_an_error(written, name, message):
    with pytest.raises(ModelError, match=message):
        make_model("wrong", tables={name: written})
    with pytest.raises(ModelError, match=r"the table of v_exp_f16: .*absent is no table of results"):
        make_model("wrong", tables={"v_exp_f16": written.parent / "absent"})


def test_rcp_iflag_takes_the_table_of_rcp_unless_it_has_its_own(tmp_path):
    rcp = modelled(tmp_path, "v_rcp_f32", [(ONE, np.array([5], np.uint32))])
    own = modelled(tmp_path, "v_rcp_iflag_f32", [(ONE, np.array([6], np.uint32))])
    one = np.array([ONE], np.uint32)
    assert run("v_rcp_iflag_f32", one, rcp) == [5]
    both = make_model("both", tables={**rcp.tables, **own.tables})
    assert (run("v_rcp_iflag_f32", one, both), run("v_rcp_f32", one, both)) == ([6], [5])
    assert "from a table of v_rcp_f32 with" in transcendental.rules("v_rcp_iflag_f32", rcp)[0].text


# ---- the ledger ------------------------------------------------------------------------------------------------------


def levels(name):
    return {rule.name: rule.evidence for rule in rules_of(load()[name])}


def test_a_table_of_all_inputs_decides_alone(tmp_path):
    model = modelled(tmp_path, "v_sqrt_f16", [(0, run("v_sqrt_f16", codes(0, 1 << 16)))])
    measured = make_model("measured", tables=model.tables, measured={"v_sqrt_f16": "an MI355X"})
    table = "transcendental.table.v_sqrt_f16"
    kept = {"transcendental.f16": Evidence.spec, "transcendental.f16_high_half": Evidence.chosen}
    with using(measured):
        found = {name: level for name, level in levels("v_sqrt_f16").items() if name.startswith("transcendental")}
        assert found == {table: Evidence.measured, **kept}
        first = transcendental.rules("v_sqrt_f16")[0]
        assert first.source == "an MI355X; capture 0123"
        assert first.text.endswith("65536 of 65536 inputs, 0 of them not correctly rounded; made up, MODE 0xf0.")
        assert "transcendental.value" in levels("v_rcp_f16")
    with using(model):
        assert levels("v_sqrt_f16")[table] == Evidence.chosen
    assert levels("v_sqrt_f16")["transcendental.value"] == Evidence.chosen


def test_a_table_of_some_inputs_leaves_the_other_rules(tmp_path):
    model = modelled(tmp_path, "v_exp_f32", [(ONE, ODD_WORDS)])
    before = set(levels("v_exp_f32"))
    with using(model):
        assert set(levels("v_exp_f32")) == before | {"transcendental.table.v_exp_f32"}
        text = transcendental.rules("v_exp_f32")[0].text
        assert "6 of 4294967296 inputs, 6 of them" in text
        assert text.endswith("Other inputs follow the rules beside this one.")
        assert "transcendental.table.v_exp_f32" in levels("v_exp_legacy_f32")


def test_a_table_with_a_period_rests_on_scaling(tmp_path):
    model = modelled(tmp_path, "v_rcp_f32", [(ONE, run("v_rcp_f32", codes(ONE, 1 << 23)))], period=1)
    with using(model):
        assert levels("v_rcp_f32")["transcendental.scaling"] == Evidence.chosen
        assert levels("v_rcp_iflag_f32")["transcendental.scaling"] == Evidence.chosen


# ---- digests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("", 0xCBF29CE484222325),
        ("a", 0xAF63DC4C8601EC8C),
        ("b", 0xAF63DF4C8601F1A5),
        ("foobar", 0x85944171F73967E8),
    ],
)
def test_words_below_256_digest_as_the_published_bytes_of_fnv_1a(text, digest):
    """[the reference vectors of FNV-1a, 64 bits]"""
    assert fnv_digest(np.frombuffer(text.encode(), np.uint8).astype(np.uint32)) == digest


def test_whole_words_enter_the_digest():
    expected = 14695981039346656037
    for word in ODD_WORDS:
        expected = (expected ^ int(word)) * 1099511628211 % (1 << 64)
    assert fnv_digest(ODD_WORDS) == expected
    assert fnv_digest(ODD_WORDS[2:], fnv_digest(ODD_WORDS[:2])) == expected, "one after another"
    assert fnv_digest(ODD_WORDS.reshape(2, 3)) == expected
    with pytest.raises(TypeError, match=r"uint32, got float32; use .view"):
        fnv_digest(np.zeros(1, np.float32))


def test_the_published_digests_are_of_other_results_than_the_default_gives():
    """So that nobody takes the default for RDNA's tables. Ours are those of correct rounding, over 2^24 inputs each."""
    ours = (0xD015D661EC1C3ABB, 0x3C07B4738E0263CF, 0x4A7611BD9A252D0D)
    for published, digest in zip(result_table.PUBLISHED_DIGESTS, ours, strict=True):
        bits = published.inputs()
        assert len(bits) == 1 << 24
        assert fnv_digest(run(published.mnemonic, bits)) == digest != published.digest


def test_the_inputs_of_published_digests():
    plus, minus, log = (published.inputs() for published in result_table.PUBLISHED_DIGESTS)
    assert [hex(plus[i]) for i in (0, 1, 3, 1 << 23, -1)] == [
        "0x0",
        "0x33800000",
        "0x34400000",
        "0x3f000000",
        "0x3f7fffff",
    ]
    assert np.array_equal(minus, plus | np.uint32(1 << 31))
    assert log[[0, -1]].view(np.float32).tolist() == [0.5, 2 - 2.0**-23]


def test_a_chunk_is_a_binade():
    assert result_table.chunk_bits_of("v_exp_f32") == 23
    assert result_table.input_space("v_exp_f16") >> result_table.chunk_bits_of("v_exp_f16") == 64


@pytest.mark.parametrize(("change", "message"), [
    ({"ranges": [[0, 1 << 200]]}, "inputs it has, in ascending order"),
    ({"ranges": [[0, 65536], [0, 65536]]}, "in ascending order, each once"),
    ({"ranges": [[10, 2], [0, 2]]}, "in ascending order"),
    ({"ranges": [[0, 0]]}, "none empty"),
    ({"ranges": [[0, 65536]], "chunks": []}, "chunk 0x0 of .* captured, and there is no such"),
    ({"differing": 1 << 99}, "results differ, of"),
    ({"schema": "gfx950.results/2"}, "its schema is 'gfx950.results/2'; this version reads"),
], ids=str)  # fmt: skip
def test_a_header_of_claims_that_cannot_be(written, change, message):
    path = forged(written, lambda content, _: content.update(change))
    for read in (read_header, read_table):
        with pytest.raises(TableError, match=message):
            read(path)


def test_a_claim_beyond_what_the_bytes_can_hold_takes_no_memory(written):
    chunks = [[number, result_table.CLOSE, 0, 1 << 23, 0] for number in range(512)]
    change = {"mnemonic": "v_exp_f32", "chunk_bits": 23, "chunks": chunks, "ranges": [[0, 1 << 32]]}

    def claim(content, _):
        content.update(change)
        return b"x"

    with pytest.raises(TableError, match=r"claims \d+ bytes of results; 1 packed ones hold"):
        read_table(forged(written, claim))


@pytest.mark.parametrize(("first", "words", "message"), [
    (float("nan"), np.zeros(4, np.uint32), "begins at an input code, a whole number; got nan"),
    (1.0, np.zeros(4, np.uint32), "a whole number; got 1.0"),
    (0, [1, 2], "uint32 in a numpy array, got list"),
    (0, np.arange(4, dtype=">u4"), "got >u4"),
], ids=str)  # fmt: skip
def test_what_is_no_range_of_results(tmp_path, first, words, message):
    with pytest.raises(TypeError, match=message):
        write_table(tmp_path / "t", "v_exp_f16", [(first, words)], device="d", capture="c", mode="m")
    assert not list(tmp_path.iterdir())


def test_first_inputs_of_narrow_types_do_not_overflow(tmp_path):
    path, words = tmp_path / "t", np.zeros(4, np.uint32)
    write_table(path, "v_exp_f16", [(np.uint16(65532), words)], device="d", capture="c", mode="m")
    assert read_header(path).ranges == ((65532, 4),)
    with pytest.raises(TypeError, match="device is one line of text, got 5"):
        write_table(path, "v_exp_f16", [], device=5, capture="c", mode="m")
