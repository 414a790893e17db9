"""What the command line says and which code it leaves with when something goes wrong."""

import signal
import sys

import click
import pytest

from gfx950 import __main__ as command_line
from gfx950 import layouts


@pytest.fixture
def failing(monkeypatch, capsys):
    """`failing(error)` -> (exit code, standard error) of a command that raises `error`."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["gfx950", "isa"])

    def call(error):
        def raises(*_, **__):
            raise error

        monkeypatch.setattr(command_line.cli, "main", raises)
        with pytest.raises(SystemExit) as stop:
            command_line.main()
        return stop.value.code, capsys.readouterr().err

    return call


def test_a_mistake_of_our_own_never_reads_as_differing_bits(failing):
    code, err = failing(ZeroDivisionError("seven"))
    assert code == 70
    assert "Traceback" in err
    assert "error: ZeroDivisionError is a mistake in gfx950 itself; please report" in err


def test_a_lack_of_memory_is_bad_input(failing):
    code, err = failing(MemoryError("Unable to allocate 7 EiB"))
    assert code == 2
    assert err == "error: this machine has not enough memory for what was asked: Unable to allocate 7 EiB\n"


def test_numbers_of_any_length_and_op_sel_without_scales():
    scaled = "v_mfma_scale_f32_16x16x128_f8f6f4"
    for text in (f"B[{'9' * 5000}][0]", f"B v{'9' * 5000} lane 1"):
        describe = layouts.describe_place if "lane" in text else layouts.describe_element
        with pytest.raises(ValueError, match=r"cannot read '.{57}'\.\.\. as ") as refused:
            describe(scaled, text)
        assert len(str(refused.value)) < 300
    with pytest.raises(ValueError, match=r"v_mfma_f32_16x16x32_bf16 takes no scales, .*: drop op_sel 2"):
        layouts.describe_element("v_mfma_f32_16x16x32_bf16", "B[0][0]", op_sel=2)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(2, "No such file or directory", "x.npy"), "error: No such file or directory: 'x.npy'"),
        (OSError(28, "No space left on device"), "error: No space left on device: standard output or a file"),
        (OSError("cannot write y.npy: it is a folder"), "error: cannot write y.npy: it is a folder"),
        (KeyError("no such rule"), "error: no such rule"),
        (ValueError(), "error: ValueError"),
    ],
)
def test_words_of_an_error(failing, error, text):
    code, err = failing(error)
    assert code == 2
    assert text in err
    assert "Errno" not in err


@pytest.mark.parametrize(("error", "code"), [(click.UsageError("bad"), 2), (click.Abort(), 130), (ValueError("x"), 2)])
def test_a_full_standard_error_does_not_change_the_code(monkeypatch, failing, error, code):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(click, "echo", full)
    monkeypatch.setattr(click.UsageError, "show", full)
    assert failing(error)[0] == code
