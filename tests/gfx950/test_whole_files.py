"""Files that are there as a whole or not at all."""

import os

import pytest

from gfx950.whole_files import check_target, write_whole


def test_a_file_is_written_or_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"first")
    assert path.read_bytes() == b"first"
    assert not path.stat().st_mode & 0o111
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match=r"cannot write .*file: No space left"):
        write_whole(path, b"second")
    assert path.read_bytes() == b"first"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"x"


def test_what_is_no_place_for_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"")
    for path, text in {
        tmp_path: "it is a folder; give the name",
        tmp_path / "pipe": "it is no ordinary file",
        tmp_path / "none" / "x": "there is no folder .*none; make it first",
        tmp_path / "file" / "x": "there is no folder",
    }.items():
        with pytest.raises(OSError, match=f"cannot write {path}: .*{text}" if "there" not in text else text):
            check_target(path)
    with pytest.raises(OSError, match="no name of a file"):
        check_target(tmp_path.__class__(""))
    check_target(tmp_path / "file")
    check_target(tmp_path / "other")
