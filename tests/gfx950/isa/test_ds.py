"""LDS loads and stores against plain byte slices; transposing reads against lists of elements."""

import random

import numpy as np
import pytest
from memory_loads import LOADS, number

from emu.register_checks import UnsupportedForm
from emu.wave import Wave
from gfx950.isa.encoding import decode
from gfx950.isa.registry import load

LANES = range(64)
NBYTES = 4096
PARTIAL = 0xF0F0_1234_FFFF_8001


def random_bytes(count, seed):
    return np.frombuffer(random.Random(seed).randbytes(count), dtype=np.uint8).copy()


def make_wave(addresses=None, nbytes=NBYTES):
    wave = Wave(lds=random_bytes(nbytes, "lds"))
    for index in range(10, 30):
        wave.vgprs[index] = random_bytes(256, index).view(np.uint32)
    drawn = [random.Random(f"a{n}").randrange(2000) for n in LANES]
    wave.vgprs[1] = np.array(addresses if addresses is not None else drawn, dtype=np.uint32)
    return wave


def run(wave, assemble, text):
    wave.step(decode(assemble(text), 0))


def on(mask, lane):
    return bool(mask >> lane & 1)


READS = {
    f"ds_read_{name}": LOADS[other]
    for name, other in {
        "u8": "ubyte", "i8": "sbyte", "u16": "ushort", "i16": "sshort", "b32": "dword", "u8_d16": "ubyte_d16",
        "u8_d16_hi": "ubyte_d16_hi", "i8_d16": "sbyte_d16", "i8_d16_hi": "sbyte_d16_hi", "u16_d16": "short_d16",
        "u16_d16_hi": "short_d16_hi",
    }.items()
}  # fmt: skip


@pytest.mark.parametrize("mask", [(1 << 64) - 1, PARTIAL])
@pytest.mark.parametrize("name", sorted(READS))
def test_narrow_reads(assemble, name, mask):
    wave = make_wave()
    wave.set_exec(mask)
    nbytes, expected = READS[name]
    old = wave.vgprs[20].tolist()
    run(wave, assemble, f"{name} v20, v1 offset:0x123")
    for n in LANES:
        at = int(wave.vgprs[1][n]) + 0x123
        want = expected(wave.lds[at : at + nbytes], old[n]) & 0xFFFFFFFF if on(mask, n) else old[n]
        assert wave.vgprs[20][n] == want


@pytest.mark.parametrize("mask", [(1 << 64) - 1, PARTIAL])
@pytest.mark.parametrize("words", [2, 3, 4])
@pytest.mark.parametrize("file", ["v", "a"])
def test_wide_reads(assemble, words, mask, file):
    wave = make_wave()
    wave.set_exec(mask)
    base = 20 + (256 if file == "a" else 0)
    old = wave.vgprs[base : base + words].copy()
    run(wave, assemble, f"ds_read_b{32 * words} {file}[20:{19 + words}], v1 offset:1")
    for n in LANES:
        at = int(wave.vgprs[1][n]) + 1
        want = wave.lds[at : at + 4 * words].copy().view(np.uint32) if on(mask, n) else old[:, n]
        assert (wave.vgprs[base : base + words, n] == want).all()


TWO = [  # name, words of one datum, bytes of one offset step
    ("ds_read2_b32", 1, 4),
    ("ds_read2st64_b32", 1, 256),
    ("ds_read2_b64", 2, 8),
    ("ds_read2st64_b64", 2, 512),
]


@pytest.mark.parametrize(("name", "words", "unit"), TWO)
@pytest.mark.parametrize("offsets", [(3, 1), (0, 5), (2, 2)])
def test_two_reads(assemble, name, words, unit, offsets):
    wave = make_wave([4 * n for n in LANES], 8192)
    wave.set_exec(PARTIAL)
    old = wave.vgprs[20:24].copy()
    run(wave, assemble, f"{name} v[20:{19 + 2 * words}], v1 offset0:{offsets[0]} offset1:{offsets[1]}")
    for n in LANES:
        data = [wave.lds[4 * n + o * unit :][: 4 * words].copy().view(np.uint32) for o in offsets]
        want = np.concatenate(data) if on(PARTIAL, n) else old[: 2 * words, n]
        assert (wave.vgprs[20 : 20 + 2 * words, n] == want).all()


WRITES = {  # name: (register text, bytes, f(registers of a lane) -> integer)
    "ds_write_b8": ("v20", 1, lambda r: r[0]),
    "ds_write_b16": ("v20", 2, lambda r: r[0]),
    "ds_write_b32": ("v20", 4, lambda r: r[0]),
    "ds_write_b8_d16_hi": ("v20", 1, lambda r: r[0] >> 16),
    "ds_write_b16_d16_hi": ("v20", 2, lambda r: r[0] >> 16),
    "ds_write_b64": ("v[20:21]", 8, lambda r: r[0] | r[1] << 32),
    "ds_write_b96": ("v[20:22]", 12, lambda r: r[0] | r[1] << 32 | r[2] << 64),
    "ds_write_b128": ("v[20:23]", 16, lambda r: r[0] | r[1] << 32 | r[2] << 64 | r[3] << 96),
}


@pytest.mark.parametrize("mask", [(1 << 64) - 1, PARTIAL])
@pytest.mark.parametrize("name", sorted(WRITES))
@pytest.mark.parametrize("spread", [2000, 7, 1])
def test_writes_in_ascending_lanes(assemble, name, mask, spread):
    """Overlapping stores: the highest lane's bytes stay."""
    registers, nbytes, value = WRITES[name]
    wave = make_wave([random.Random(n).randrange(spread) for n in LANES])
    wave.set_exec(mask)
    expected = wave.lds.copy()
    for n in LANES:
        if on(mask, n):
            datum = value([int(wave.vgprs[20 + i][n]) for i in range(4)]) & (1 << 8 * nbytes) - 1
            at = int(wave.vgprs[1][n]) + 0x21
            expected[at : at + nbytes] = np.frombuffer(datum.to_bytes(nbytes, "little"), dtype=np.uint8)
    run(wave, assemble, f"{name} v1, {registers} offset:0x21")
    assert (wave.lds == expected).all()


@pytest.mark.parametrize(("name", "words", "unit"), TWO)
@pytest.mark.parametrize("offsets", [(3, 1), (0, 5), (2, 2)])
def test_two_writes(assemble, name, words, unit, offsets):
    wave = make_wave([8 * n for n in LANES], 8192)
    wave.set_exec(PARTIAL)
    expected = wave.lds.copy()
    for o, register in zip(offsets, (20, 24), strict=True):
        for n in LANES:
            if on(PARTIAL, n) and (register == 20 or offsets[0] != offsets[1]):
                data = np.ascontiguousarray(wave.vgprs[register : register + words, n]).view(np.uint8)
                expected[8 * n + o * unit :][: 4 * words] = data
    text = [f"v[{r}:{r + 1}]" if words == 2 else f"v{r}" for r in (20, 24)]
    run(
        wave,
        assemble,
        f"{name.replace('read', 'write')} v1, {text[0]}, {text[1]} offset0:{offsets[0]} offset1:{offsets[1]}",
    )
    assert (wave.lds == expected).all()


def test_out_of_range_reads_zero_and_drops_writes(assemble):
    addresses = [NBYTES - 8, NBYTES - 4, NBYTES - 2, NBYTES, 0x80000000, 0xFFFFFFFF, NBYTES - 16, 0] + [0] * 56
    wave = make_wave(addresses)
    wave.set_exec(0xFF)
    before = wave.lds.copy()
    run(wave, assemble, "ds_read_b128 v[20:23], v1")
    for n in range(8):
        for word in range(4):
            at = addresses[n] + 4 * word
            want = before[at : at + 4].view(np.uint32)[0] if at + 4 <= NBYTES else 0
            assert wave.vgprs[20 + word][n] == want, (n, word)
    wave.vgprs[24:28, :8] = 0xABABABAB
    run(wave, assemble, "ds_write_b128 v1, v[24:27]")
    expected = before.copy()
    expected[NBYTES - 16 :] = 0xAB
    expected[:16] = 0xAB
    assert (wave.lds == expected).all()


def test_addresses_wrap_at_32_bits(assemble):
    wave = make_wave([0xFFFFFFFC] * 64)
    run(wave, assemble, "ds_read_b32 v20, v1 offset:12")
    assert (wave.vgprs[20] == wave.lds[8:12].copy().view(np.uint32)[0]).all()


def test_no_lds_allocated(assemble):
    wave = Wave()
    wave.vgprs[20] = 7
    run(wave, assemble, "ds_write_b32 v1, v20")
    run(wave, assemble, "ds_read_b32 v20, v1")
    assert not wave.vgprs[20].any()


def test_m0_does_not_limit_addresses(assemble):
    wave = make_wave()
    wave.sgprs[124] = 0
    run(wave, assemble, "ds_read_u8 v20, v1")
    assert (wave.vgprs[20] == wave.lds[wave.vgprs[1]]).all()


def test_add_tid(assemble):
    wave = make_wave([0xDEADBEEF] * 64)
    wave.sgprs[124] = 0x00010040
    run(wave, assemble, "ds_write_addtid_b32 v20 offset:16")
    assert (wave.lds[0x50 : 0x50 + 256].view(np.uint32) == wave.vgprs[20]).all()
    run(wave, assemble, "ds_read_addtid_b32 v21 offset:20")
    assert (wave.vgprs[21] == wave.lds[0x54 : 0x54 + 256].view(np.uint32)).all()


TRANSPOSED = [
    ("ds_read_b64_tr_b16", 16, 8),
    ("ds_read_b64_tr_b8", 8, 8),
    ("ds_read_b64_tr_b4", 4, 8),
    ("ds_read_b96_tr_b6", 6, 12),
]


def transposed(data, width, nbytes):
    """16 lanes' bytes as one list of elements; lane q takes every sixteenth from q on."""
    bits = "".join(f"{number(lane):0{8 * nbytes}b}"[::-1] for lane in data)
    elements = [bits[i : i + width] for i in range(0, len(bits), width)]
    return [int("".join(elements[q::16])[::-1], 2) for q in range(16)]


@pytest.mark.parametrize(("name", "width", "nbytes"), TRANSPOSED)
def test_transposing_reads(assemble, name, width, nbytes):
    addresses = [16 * n for n in LANES]
    random.Random(name).shuffle(addresses)
    wave = make_wave(addresses)
    words = nbytes // 4
    run(wave, assemble, f"{name} v[20:{19 + words}], v1 offset:32")
    for block in range(4):
        lanes = range(16 * block, 16 * block + 16)
        want = transposed([wave.lds[addresses[n] + 32 :][:nbytes] for n in lanes], width, nbytes)
        got = [sum(int(wave.vgprs[20 + i][n]) << 32 * i for i in range(words)) for n in lanes]
        assert got == want


def test_transposing_read_of_a_tile_of_halves(assemble):
    """A 16 x 16 tile of b16, 4 rows a block: lane n reads 4 halves of row n / 4, lane q of the block gets column q."""
    wave = make_wave([8 * n for n in LANES])
    tile = np.arange(256, dtype=np.uint16).reshape(16, 16)
    wave.lds[:512] = tile.reshape(-1).view(np.uint8)
    run(wave, assemble, "ds_read_b64_tr_b16 v[20:21], v1")
    for n in LANES:
        got = np.ascontiguousarray(wave.vgprs[20:22, n]).view(np.uint16)
        assert got.tolist() == tile[4 * (n // 16) : 4 * (n // 16) + 4, n % 16].tolist()


def test_transposing_read_with_inactive_lanes(assemble):
    wave = make_wave([16 * n for n in LANES])
    old = wave.vgprs[20:22].copy()
    wave.set_exec(PARTIAL)
    run(wave, assemble, "ds_read_b64_tr_b8 v[20:21], v1")
    for block in range(4):
        lanes = range(16 * block, 16 * block + 16)
        data = [wave.lds[16 * n :][:8] if on(PARTIAL, n) else np.zeros(8, np.uint8) for n in lanes]
        for n, want in zip(lanes, transposed(data, 8, 8), strict=True):
            got = int(wave.vgprs[20][n]) | int(wave.vgprs[21][n]) << 32
            assert got == (want if on(PARTIAL, n) else int(old[0][n]) | int(old[1][n]) << 32)


GLOBAL_WAVE_SYNC = ("init v2", "barrier v2", "sema_br v2", "sema_v", "sema_p", "sema_release_all")


@pytest.mark.parametrize("text", GLOBAL_WAVE_SYNC)
def test_global_wave_sync_is_refused_by_its_rule(assemble, text):
    wave = make_wave()
    with pytest.raises(UnsupportedForm, match=rf"ds_gws_{text.split()[0]}: .*rule lds.global_wave_sync"):
        run(wave, assemble, f"ds_gws_{text} offset:7 gds")


def test_every_definition_is_tested():
    covered = {*READS, *WRITES, *(n for n, _, _ in TWO), *(n.replace("read", "write") for n, _, _ in TWO)}
    covered |= {n for n, _, _ in TRANSPOSED} | {"ds_read_b64", "ds_read_b96", "ds_read_b128", "ds_nop"}
    covered |= {"ds_read_addtid_b32", "ds_write_addtid_b32"}
    covered |= {f"ds_gws_{text.split()[0]}" for text in GLOBAL_WAVE_SYNC}
    assert {i.name for i in load().values() if i.body.__module__ == "gfx950.isa.ds"} - covered == set()
