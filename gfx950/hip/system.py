"""What the operating system says of the device and the software under it, beside what HIP says."""

from __future__ import annotations

import os
from pathlib import Path


def rocm_version() -> str:
    """The version of the installed ROCm; empty where its folder does not say."""
    return _first_line(Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / ".info" / "version")


def firmware(cards: Path = Path("/sys/class/drm")) -> str:
    """The versions of the first card's firmware parts."""
    for folder in sorted(cards.glob("card*/device/fw_version")):
        parts = ((part.name.removesuffix("_fw_version"), _first_line(part)) for part in sorted(folder.iterdir()))
        return ", ".join(f"{name} {number}" for name, number in parts if number)
    return ""


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
    except OSError:
        return ""
