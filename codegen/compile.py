"""From traced programs to gfx950 code: LLVM text, assembly, object, linked code object, and what each kernel uses."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from codegen.emit_llvm import TRIPLE, VERSIONS, emit
from codegen.ir import Program
from codegen.llvm_text import EmitError

CPU = "gfx950"
INLINE_ASSEMBLY = " asm sideeffect "


@dataclass(frozen=True)
class Resources:
    """What one kernel uses, read from the assembly. instructions: how often each mnemonic stands in it.

    vgprs: registers a lane, accumulation registers (agprs) counted apart. lds, scratch: bytes (a workgroup, a lane).
    """

    vgprs: int
    agprs: int
    sgprs: int
    lds: int
    scratch: int
    vgpr_spills: int
    sgpr_spills: int
    instructions: dict[str, int] = field(default_factory=dict)

    @property
    def spills(self) -> int:
        """Registers spilled, vector and scalar."""
        return self.vgpr_spills + self.sgpr_spills


@dataclass(frozen=True)
class Compiled:
    """Kernels compiled for gfx950. llvm_ir: what LLVM was given. object: the relocatable ELF. resources: by kernel."""

    llvm_ir: str
    assembly: str
    object: bytes
    resources: dict[str, Resources]

    def __repr__(self) -> str:
        return f"Compiled({', '.join(self.resources)}: {len(self.object)} bytes)"

    @functools.cached_property
    def code_object(self) -> bytes:
        """The linked `.hsaco`. Raises codegen.link.NoLinker where no ld.lld is found."""
        from codegen.link import link

        return link(self.object)


def compile_kernels(programs: Sequence[Program], optimize: bool = True, version: int = VERSIONS[0]) -> Compiled:
    """Compiles programs into one code object. The same programs give the same bytes.

    optimize: whether the middle-end passes of `PASSES` run before code generation, which is always at level 3.
    version: of the code object, 5 or 6. Raises EmitError.
    """
    return compile_text(emit(programs, version), [p.name for p in programs], optimize)


def compile_text(llvm_ir: str, kernels: Sequence[str], optimize: bool = True) -> Compiled:
    """Compiles LLVM text that defines `kernels`. Raises EmitError with LLVM's words where the text is wrong.

    Text with inline assembly goes through a clang: codegen.clang.NoClang where there is none.
    """
    machine = _target_machine()
    module = _optimized(llvm_ir, machine, optimize)
    if INLINE_ASSEMBLY in llvm_ir:
        from codegen.clang import compile_with_clang

        assembly, target = compile_with_clang(str(module))
        return Compiled(llvm_ir, assembly, target, _all_resources(assembly, kernels))
    # Code generation rewrites the module it is given. A clone of it would not do for the other output: the order of its
    # use lists is another one, by which LLVM allocates other registers and orders instructions otherwise.
    assembly = machine.emit_assembly(_optimized(llvm_ir, machine, optimize))
    return Compiled(llvm_ir, assembly, machine.emit_object(module), _all_resources(assembly, kernels))


def _optimized(llvm_ir: str, machine: Any, optimize: bool) -> Any:
    """The module of a text, after the passes. Two of one text give the same code."""
    import llvmlite.binding as llvm

    try:
        module = llvm.parse_assembly(llvm_ir)
        module.verify()
    except RuntimeError as problem:
        raise EmitError(f"LLVM refuses the module: {problem}") from problem
    if optimize:
        _run_passes(module, machine)
    return module


@functools.cache
def _target_machine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=CPU, opt=3)


# Local clean-up only: nothing that reassociates, vectorizes, unrolls or speculates. Measured on the drafter's attention
# kernel these three give the fewest instructions; value numbering lengthens scalar lives until they spill.
PASSES = ("simplify_cfg", "instruction_combine", "aggressive_dce")


def _run_passes(module: Any, machine: Any) -> None:
    import llvmlite.binding as llvm

    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    manager = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(manager, f"add_{name}_pass")()
    manager.run(module, builder)


# ---- reading the assembly ------------------------------------------------------------------------

_INSTRUCTION = re.compile(r"^\t([a-z]\w+)", re.MULTILINE)
_METADATA = {
    "agprs": "agpr_count",
    "sgprs": "sgpr_count",
    "lds": "group_segment_fixed_size",
    "scratch": "private_segment_fixed_size",
    "vgpr_spills": "vgpr_spill_count",
    "sgpr_spills": "sgpr_spill_count",
}


def _all_resources(assembly: str, kernels: Sequence[str]) -> dict[str, Resources]:
    metadata = assembly.partition(".amdgpu_metadata")[2]
    entries = re.split(r"^  - (?=\.agpr_count)", metadata, flags=re.MULTILINE)[1:]
    by_name = {_entry_text(entry, "name"): entry for entry in entries}
    return {name: _resources(assembly, name, by_name[name]) for name in kernels}


def _entry_text(entry: str, key: str) -> str:
    """One field of a kernel's metadata entry (arguments, which are indented deeper, left out)."""
    found = re.search(rf"^(?:    )?\.{key}:\s+(\S+)", entry, flags=re.MULTILINE)
    if found is None:
        raise ValueError(f"the assembly's metadata entry has no .{key}: LLVM's format has changed")
    return found.group(1)


def _resources(assembly: str, name: str, entry: str) -> Resources:
    numbers = {ours: int(_entry_text(entry, theirs)) for ours, theirs in _METADATA.items()}
    start = assembly.index(f"\n{name}:")
    end = assembly.index("\n\t.section\t", start)
    counts = Counter(_INSTRUCTION.findall(assembly, start, end))
    vgprs = re.compile(rf"\.set {re.escape(name)}\.num_vgpr, (\d+)").search(assembly, end)
    if vgprs is None:
        raise ValueError(f"the assembly does not say how many VGPRs {name} uses: LLVM's format has changed")
    return Resources(vgprs=int(vgprs.group(1)), **numbers, instructions=dict(sorted(counts.items())))
