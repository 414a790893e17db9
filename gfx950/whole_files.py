"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def check_target(path: Path) -> None:
    """Raises OSError, with what to do, where no file can be written: a folder, a device, or in a folder that there is
    not or that cannot be written."""
    if not path.name:
        raise OSError(f"cannot write {str(path)!r}: it is no name of a file; give one")
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no ordinary file"
        raise OSError(f"cannot write {path}: it is {what}; give the name of a file")
    folder = path.parent
    if not folder.is_dir():
        raise OSError(f"cannot write {path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise OSError(f"cannot write {path}: the folder {folder} cannot be written; give another")


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file under another name beside it, then renames it. Raises OSError, with the file that was there as it
    was."""
    path = path.resolve() if path.is_symlink() else path  # a link stays one
    check_target(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror}") from error
    finally:
        Path(name).unlink(missing_ok=True)
