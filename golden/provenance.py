"""Where compared bits come from: code object, model of arithmetic, versions, device, and what they rest on."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from emu.contained_rules import KernelEvidence
from gfx950.evidence import Evidence
from golden.store import sha256

PACKAGES = ("gfx950", "numpy", "llvmlite", "numba")


@dataclass(frozen=True)
class Provenance:
    """subject: the kernel's name or the file. code: the sha256 of the code object by engine. model: the name of the
    model in force, and its digest. versions: by package. device: what HIP says of it, empty where there is none.
    instructions: how many have each level of evidence; rules: those below `spec` with their levels."""

    subject: str
    code: dict[str, str]
    model: str
    model_digest: str
    versions: dict[str, str]
    device: dict[str, str]
    instructions: dict[str, int]
    rules: dict[str, str]


def describe_device(engines: Sequence[str]) -> dict[str, str]:
    """What HIP says of the device, where an engine is one. Raises NoDevice where there is none."""
    if "device" not in engines:
        return {}
    from gfx950.hip import Hip

    with Hip() as hip:
        return hip.describe()


def provenance(subject: str, code: dict[str, bytes], found: KernelEvidence, device: dict[str, str]) -> Provenance:
    """Of a comparison. device: as `describe_device` gives it."""
    return Provenance(
        subject=subject,
        code={engine: sha256(data) for engine, data in code.items()},
        model=found.model.name,
        model_digest=found.model.digest,
        versions={"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        device=device,
        instructions=dict(found.counts),
        rules={rule.name: rule.evidence.name for rule in found.below(Evidence.spec)},
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
