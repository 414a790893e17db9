"""The kernels of a code object: what its metadata and its descriptors say of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgpack
from elftools.elf.elffile import ELFFile

from emu.elf_header import damaged
from emu.elf_image import Code, Image, Symbol
from emu.errors import CodeObjectError
from emu.kernel_descriptor import DESCRIPTOR_BYTES, KernelDescriptor, decode_descriptor

NT_AMDGPU_METADATA = 32
ENTRY_ALIGNMENT = 256


@dataclass(frozen=True)
class Argument:
    """One kernel argument of the metadata. offset and size in bytes of the kernarg block.

    value_kind: `global_buffer`, `by_value`, `hidden_block_count_x`, ... name, type and address_space may be empty.
    """

    offset: int
    size: int
    value_kind: str
    name: str = ""
    address_space: str = ""
    type: str = ""

    @property
    def hidden(self) -> bool:
        """Whether the launcher fills it in rather than the caller."""
        return self.value_kind.startswith("hidden_")


@dataclass(frozen=True)
class Kernel:
    """One kernel. entry and descriptor_address are virtual addresses; kernarg_size is in bytes, the metadata's first.

    disagreements: where the metadata and the descriptor contradict each other, one sentence each; the descriptor is
    what the hardware sees. reqd_workgroup_size is None when any size will do. has_metadata: False for a bare
    descriptor, whose arguments are unknown.
    """

    name: str
    entry: int
    descriptor_address: int
    descriptor: KernelDescriptor
    code_object_version: int
    kernarg_size: int
    arguments: tuple[Argument, ...] = ()
    wavefront_size: int = 64
    max_flat_workgroup_size: int = 1024
    reqd_workgroup_size: tuple[int, int, int] | None = None
    uniform_workgroup_size: bool = False
    has_metadata: bool = True
    disagreements: tuple[str, ...] = ()

    @property
    def explicit(self) -> list[Argument]:
        """The arguments that the caller gives."""
        return [a for a in self.arguments if not a.hidden]


def read_metadata(elf: ELFFile) -> dict[str, Any]:
    """The AMDGPU metadata note, decoded; empty when the object has none."""
    holders: list[Any] = [s for s in elf.iter_sections() if s["sh_type"] == "SHT_NOTE"]
    holders = holders or [s for s in elf.iter_segments() if s["p_type"] == "PT_NOTE"]
    for holder in holders:
        for note in holder.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] == NT_AMDGPU_METADATA:
                decoded = msgpack.unpackb(note["n_descdata"], strict_map_key=False)
                if not isinstance(decoded, dict):
                    raise damaged(f"its metadata is a {type(decoded).__name__}, not a map")
                return decoded
    return {}


def read_kernels(image: Image, symbols: dict[str, Symbol], metadata: dict[str, Any], version: int) -> Iterable[Kernel]:
    """The kernels the metadata lists, then those that have only a descriptor symbol."""
    listed = metadata.get("amdhsa.kernels", [])
    code = image.code()
    known = {_text(row, ".symbol"): row for row in listed}
    for name, row in known.items():
        yield _kernel(image, symbols, code, name, row, version)
    for name, symbol in symbols.items():
        if name.endswith(".kd") and name not in known and symbol.size == DESCRIPTOR_BYTES:
            yield _kernel(image, symbols, code, name, None, version)


def _kernel(
    image: Image,
    symbols: dict[str, Symbol],
    code: list[Code],
    symbol_name: str,
    row: dict[str, Any] | None,
    version: int,
) -> Kernel:
    facts = row or {}
    name = _text(facts, ".name", symbol_name.removesuffix(".kd"))
    if symbol_name not in symbols:
        raise CodeObjectError(
            f"the metadata lists kernel {name!r}, but its descriptor symbol {symbol_name!r} does not exist",
            expected=f"a 64-byte object symbol {symbol_name!r}",
            advice="in assembly, write an .amdhsa_kernel block for it; do not strip the symbols",
            kernel=name,
        )
    address = symbols[symbol_name].address
    descriptor = decode_descriptor(image.read(address, DESCRIPTOR_BYTES))
    if descriptor.wave32 or facts.get(".wavefront_size", 64) != 64:
        raise _wave32(name)
    required = facts.get(".reqd_workgroup_size")
    return Kernel(
        name=name,
        entry=_entry(name, address + descriptor.entry_offset, code),
        descriptor_address=address,
        descriptor=descriptor,
        code_object_version=version,
        kernarg_size=_count(facts, ".kernarg_segment_size", 0) or descriptor.kernarg_size,
        arguments=tuple(_argument(a) for a in facts.get(".args", ())),
        max_flat_workgroup_size=_count(facts, ".max_flat_workgroup_size", 1024),
        reqd_workgroup_size=(int(required[0]), int(required[1]), int(required[2])) if required else None,
        uniform_workgroup_size=bool(facts.get(".uniform_work_group_size", 0)),
        has_metadata=row is not None,
        disagreements=tuple(_disagreements(descriptor, facts)),
    )


def _wave32(name: str) -> CodeObjectError:
    return CodeObjectError(
        f"kernel {name!r} is compiled for wave32",
        expected="wave64, the only wave size of gfx950",
        advice="compile for gfx950 without -mwavefrontsize32",
        kernel=name,
    )


def _entry(name: str, address: int, code: list[Code]) -> int:
    if not any(run.address <= address < run.address + len(run.data) for run in code):
        raise CodeObjectError(
            f"kernel {name!r} starts at {address:#x}, which is not in executable code",
            expected="an entry inside .text",
            advice="the descriptor is damaged or was not relocated",
            kernel=name,
        )
    if address % ENTRY_ALIGNMENT:
        raise CodeObjectError(
            f"kernel {name!r} starts at {address:#x}, which is not a multiple of {ENTRY_ALIGNMENT}",
            expected="an aligned entry: the hardware drops the low 8 bits",
            advice="in assembly, write .p2align 8 before the kernel's label",
            kernel=name,
        )
    return address


def _count(facts: dict[str, Any], key: str, default: int) -> int:
    value = facts.get(key, default)
    if not isinstance(value, int) or value < 0:
        raise damaged(f"its metadata has {key} = {value!r}, which is no size")
    return value


def _argument(row: dict[str, Any]) -> Argument:
    return Argument(
        offset=_count(row, ".offset", 0),
        size=_count(row, ".size", 0),
        value_kind=_text(row, ".value_kind"),
        name=_text(row, ".name", ""),
        address_space=_text(row, ".address_space", ""),
        type=_text(row, ".type_name", ""),
    )


def _text(row: dict[str, Any], key: str, default: str | None = None) -> str:
    value = row.get(key, default)
    if not isinstance(value, str):
        raise damaged(f"its metadata has {key} = {value!r}, which is no name")
    return value


def _disagreements(descriptor: KernelDescriptor, facts: dict[str, Any]) -> Iterable[str]:
    pairs = [
        (".group_segment_fixed_size", descriptor.group_segment, "bytes of LDS"),
        (".private_segment_fixed_size", descriptor.private_segment, "bytes of scratch a lane"),
        (".kernarg_segment_size", descriptor.kernarg_size, "bytes of kernel arguments"),
    ]
    for key, low, what in pairs:
        high = facts.get(key, low)
        if high != low and not (key == ".kernarg_segment_size" and low == 0):
            yield f"the metadata says {high} {what} ({key}), the descriptor {low}"
    limits = [
        (".vgpr_count", descriptor.vgprs),
        (".agpr_count", descriptor.vgprs - descriptor.accum_offset),
        (".sgpr_count", descriptor.sgprs),
    ]
    for key, limit in limits:
        if facts.get(key, 0) > max(0, limit):
            yield f"the metadata says {facts[key]} registers ({key}), the descriptor allocates {limit}"
    used = [(a[".offset"] + a[".size"], a) for a in facts.get(".args", ()) if ".offset" in a and ".size" in a]
    size = facts.get(".kernarg_segment_size", 0)
    for end, row in used:
        if end > size:
            yield f"the argument at offset {row['.offset']} ends at {end}, past the {size} bytes of kernel arguments"
