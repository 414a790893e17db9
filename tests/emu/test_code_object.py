"""Code objects from LLVM's C compiler, LLVM's assembler and llvmlite, and damaged ones."""

import random
import struct

import llvm_tools
import msgpack
import numpy as np
import pytest
from llvm_tools import assembled, kernel_source, linked
from llvmlite import binding, ir

from emu.code_object import load
from emu.errors import CodeObjectError

C_SOURCE = r"""
#define space(n) __attribute__((address_space(n)))
static const space(4) float table[4] = {1, 2, 3, 4};
space(1) int counter = 7;
space(1) int *space(1) pointer = &counter;
space(1) int big[1000];
space(3) int lds[256] __attribute__((loader_uninitialized));
__attribute__((noinline)) static void helper(space(1) float *a) { a[1] = 1; }
__attribute__((amdgpu_kernel)) void first(space(1) float *a, int n) {
  a[__builtin_amdgcn_workitem_id_x()] = n + table[n & 3] + counter + *pointer + big[n];
  helper(a);
}
__attribute__((amdgpu_kernel)) void second(space(1) int *a, short s, double d) {
  lds[__builtin_amdgcn_workitem_id_y()] = 1;
  a[__builtin_amdgcn_workitem_id_x()] =
      lds[s] + __builtin_amdgcn_workgroup_id_z() + (int)d + __builtin_amdgcn_workgroup_size_x();
}
"""


def compiled(version: int = 5, *options: str) -> bytes:
    return llvm_tools.compiled(C_SOURCE, f"-mcode-object-version={version}", *options)


# --- good objects ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize("form", ["relocatable", "linked"])
def test_c_kernels_load_in_every_version_and_form(version, form):
    data = compiled(version) if form == "relocatable" else linked(compiled(version))
    code_object = load(data, base=0x7_0000_0000)
    assert (code_object.target, code_object.version, sorted(code_object.kernels)) == (
        "gfx950",
        version,
        ["first", "second"],
    )
    first, second = code_object.kernels["first"], code_object.kernels["second"]
    assert first.entry == code_object.symbols["first"].address
    assert first.entry % 256 == 0
    assert first.descriptor_address == code_object.symbols["first.kd"].address
    assert (first.kernarg_size, first.wavefront_size, first.max_flat_workgroup_size) == (12, 64, 1024)
    assert [(a.offset, a.size, a.value_kind, a.address_space) for a in first.arguments] == [
        (0, 8, "global_buffer", "global"),
        (8, 4, "by_value", ""),
    ]
    assert second.descriptor.group_segment == 1024
    assert second.descriptor.enable_workgroup_id_z
    assert second.descriptor.workitem_id == 1
    assert second.kernarg_size == (24 if version == 4 else 280)
    hidden = [a.value_kind for a in second.arguments if a.hidden]
    assert ("hidden_group_size_x" in hidden) == (version != 4)
    assert first.disagreements == second.disagreements == ()
    assert code_object.metadata["amdhsa.target"] == "amdgcn-amd-amdhsa--gfx950"


def test_code_is_the_text_section_at_its_address():
    data = compiled()
    code_object = load(data, base=0x10000)
    (text,) = code_object.code
    assert text.data == code_object.image[text.address - 0x10000 :][: len(text.data)].tobytes()
    assert text.address <= code_object.kernels["second"].entry < text.address + len(text.data)
    assert struct.pack("<I", 0xBF810000) in text.data  # s_endpgm


def read(code_object, name: str, offset: int, size: int, signed: bool = False) -> int:
    start = code_object.symbols[name].address + offset - code_object.base
    return int.from_bytes(code_object.image[start : start + size].tobytes(), "little", signed=signed)


RELOCATED = """
.data
.globl words
.p2align 3
words:
  .quad target + 5
  .quad target - .
  .long target@rel32@lo + 4
  .long target@rel32@hi + 8
  .long target@gotpcrel32@lo + 4
  .long target@gotpcrel32@hi + 8
  .long other@gotpcrel32@lo + 4
  .long other@gotpcrel32@hi + 8
  .long other@gotpcrel32@lo + 4 - 0x300000000
  .long other@gotpcrel32@hi + 8 - 0x300000000
  .long k@rel32@lo + 4
  .long k@rel32@hi + 8
  .quad free + 9
.bss
  .zero 20
.globl target
target:
  .zero 4
.globl other
other:
  .zero 4
.globl free
free:
  .zero 4
.protected words
.protected target
.protected k
"""


@pytest.mark.parametrize("base", [0, 0x7_FFFF_F000, 0x1234_5678_9000])
@pytest.mark.parametrize("form", ["relocatable", "linked"])
def test_relocations_point_where_the_symbols_are(base, form):
    """`other` and `free` are preemptible, so a linked object leaves them to symbolic dynamic relocations."""
    data = assembled(kernel_source() + RELOCATED)
    code_object = load(data if form == "relocatable" else linked(data), base)
    words, target, other, free = (code_object.symbols[n].address for n in ("words", "target", "other", "free"))
    assert read(code_object, "words", 0, 8) == target + 5
    assert words + 8 + read(code_object, "words", 8, 8, signed=True) == target
    assert words + 16 + read(code_object, "words", 16, 8, signed=True) == target + 4
    for offset, wanted in ((24, target), (32, other)):
        slot = words + offset + read(code_object, "words", offset, 8, signed=True) - 4
        assert int.from_bytes(code_object.image[slot - base : slot - base + 8].tobytes(), "little") == wanted
    near, far = (read(code_object, "words", offset, 8, signed=True) for offset in (32, 40))
    assert far == near - 8 - 0x3_0000_0000
    assert words + 48 + read(code_object, "words", 48, 8, signed=True) == code_object.kernels["k"].entry + 4
    assert code_object.kernels["k"].entry < words
    assert read(code_object, "words", 56, 8) == free + 9


def test_absolute_halves_in_code_are_relocated():
    moves = "s_nop 0\n s_mov_b32 s0, target@abs32@lo\n s_mov_b32 s1, target@abs32@hi\n s_endpgm"
    code_object = load(assembled(kernel_source(body=moves) + RELOCATED), 0x1234_5678_9000)
    start = code_object.kernels["k"].entry - code_object.base + 4
    low, high = struct.unpack("<4xI4xI", code_object.image[start : start + 16].tobytes())
    assert low | high << 32 == code_object.symbols["target"].address


def test_linked_objects_get_their_dynamic_relocations():
    for base in (0, 0x5_0000_0000):
        code_object = load(linked(compiled()), base)
        assert read(code_object, "pointer", 0, 8) == code_object.symbols["counter"].address
        assert read(code_object, "counter", 0, 4) == 7
        assert code_object.symbols["counter"].address > base


def test_the_same_object_can_be_laid_out_again_elsewhere():
    code_object = load(compiled())
    moved = code_object.at(0x9_0000_0000)
    assert moved.kernels["first"].entry == code_object.kernels["first"].entry + 0x9_0000_0000
    assert read(moved, "pointer", 0, 8) == moved.symbols["counter"].address
    assert moved.at(0x9_0000_0000) is moved
    assert moved.image.size == code_object.image.size


def elf_symbols(data: bytes) -> set[tuple[str, int, int]]:
    """(name, value, size) of the static symbol table, straight from the ELF specification."""
    start, size, count = struct.unpack_from("<Q10xHH", data, 40)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    found = set()
    for header in headers:
        if header[1] == 2:
            names = headers[header[6]][4]
            for at in range(header[4], header[4] + header[5], 24):
                name, info, _, section, value, extent = struct.unpack_from("<IBBHQQ", data, at)
                text = data[names + name : data.index(b"\0", names + name)].decode()
                if text and section and info & 15 not in (3, 4):
                    found.add((text, value, extent))
    return found


def test_symbols_equal_the_elf_symbol_table():
    data = linked(compiled(6))
    expected = elf_symbols(data)
    assert {"first", "second", "first.kd", "big", "helper"} <= {name for name, _, _ in expected}
    assert {(s.name, s.address, s.size) for s in load(data).symbols.values()} == expected
    assert load(data).symbols["big"].kind == "object"
    assert load(data).symbols["first"].kind == "function"


def test_an_object_without_section_headers_still_loads():
    data = bytearray(linked(compiled()))
    data[40:48] = bytes(8)
    data[58:64] = bytes(6)
    code_object = load(bytes(data))
    whole = load(linked(compiled()))
    assert code_object.kernels == whole.kernels
    assert code_object.at(0x3000).image[64:].tobytes() == whole.at(0x3000).image[64:].tobytes()


def test_llvmlite_emits_what_we_load(tmp_path):
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    module = ir.Module("m")
    module.triple = "amdgcn-amd-amdhsa"
    flag = [ir.Constant(ir.IntType(32), 1), "amdhsa_code_object_version", ir.Constant(ir.IntType(32), 500)]
    module.add_named_metadata("llvm.module.flags", flag)
    pointer = ir.PointerType(addrspace=1)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer, ir.FloatType()]), "emitted")
    function.calling_convention = "amdgpu_kernel"
    builder = ir.IRBuilder(function.append_basic_block())
    builder.store(function.args[1], function.args[0])
    builder.ret_void()
    target = binding.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu="gfx950", opt=3)
    path = tmp_path / "emitted.o"
    path.write_bytes(target.emit_object(binding.parse_assembly(str(module))))
    code_object = load(path)
    assert code_object.version == 5
    kernel = code_object.kernel()
    assert kernel.name == "emitted"
    assert kernel.descriptor.kernarg_segment_ptr
    assert load(str(path)).kernels == code_object.kernels
    explicit = [(a.offset, a.size) for a in kernel.arguments if not a.hidden]
    assert explicit == [(0, 8), (8, 4)]


def test_a_bare_descriptor_is_a_kernel_with_unknown_arguments():
    kernel = load(assembled(kernel_source(".amdhsa_kernarg_size 40"))).kernel("k")
    assert not kernel.has_metadata
    assert kernel.arguments == ()
    assert kernel.kernarg_size == 40


def test_other_symbols_that_end_like_descriptors_are_no_kernels():
    decoy = ".globl decoy.kd\n.type decoy.kd,@object\n.size decoy.kd, 8\ndecoy.kd:\n.quad 0\n"
    assert list(load(assembled(kernel_source() + decoy)).kernels) == ["k"]


# --- metadata that contradicts the descriptor ------------------------------------------------------------------------


def with_metadata(kernarg: int, group: int, arguments: str = "", symbol: str = "k.kd", extra: str = "") -> bytes:
    return assembled(
        kernel_source(f".amdhsa_group_segment_fixed_size 512\n.amdhsa_kernarg_size {kernarg}")
        + f"""
.amdgpu_metadata
---
amdhsa.version: [1, 1]
amdhsa.kernels:
  - .name: k
    .symbol: {symbol}
    .kernarg_segment_size: 24
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {group}
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 8
    .vgpr_count: 8
    .max_flat_workgroup_size: 256
{extra}{arguments}
...
.end_amdgpu_metadata
"""
    )


def test_a_descriptor_without_kernarg_size_takes_the_metadatas():
    kernel = load(with_metadata(kernarg=0, group=512)).kernel()
    assert (kernel.kernarg_size, kernel.max_flat_workgroup_size, kernel.disagreements) == (24, 256, ())


def test_contradictions_are_reported_and_do_not_stop_loading():
    arguments = "    .args:\n      - {.offset: 20, .size: 8, .value_kind: by_value}"
    kernel = load(with_metadata(kernarg=40, group=1024, arguments=arguments)).kernel()
    assert kernel.disagreements == (
        "the metadata says 1024 bytes of LDS (.group_segment_fixed_size), the descriptor 512",
        "the metadata says 24 bytes of kernel arguments (.kernarg_segment_size), the descriptor 40",
        "the argument at offset 20 ends at 28, past the 24 bytes of kernel arguments",
    )
    kernel = load(with_metadata(kernarg=0, group=512, extra="    .reqd_workgroup_size: [32, 4, 2]\n")).kernel()
    assert kernel.reqd_workgroup_size == (32, 4, 2)


def test_metadata_without_its_descriptor_is_refused():
    with pytest.raises(CodeObjectError, match=r"lists kernel 'k', but its descriptor symbol 'gone.kd' does not exist"):
        load(with_metadata(kernarg=0, group=512, symbol="gone.kd"))


# --- what is refused -------------------------------------------------------------------------------------------------


def test_wave32_is_refused():
    data = bytearray(compiled())
    symbols = {name: value for name, value, _ in elf_symbols(bytes(data))}
    start, size, count = struct.unpack_from("<Q10xHH", data, 40)
    names = struct.unpack_from("<H", data, 62)[0]
    table = struct.unpack_from("<Q", data, start + names * size + 24)[0]
    for index in range(count):
        name, offset = struct.unpack_from("<I20xQ", data, start + index * size)
        if data[table + name :].startswith(b".rodata\0"):
            data[offset + symbols["second.kd"] + 57] |= 4
    with pytest.raises(CodeObjectError, match=r"kernel 'second' is compiled for wave32.*\n.*kernel second\n.*wave64"):
        load(data)


def test_missing_kernels_list_the_names_and_the_nearest():
    code_object = load(compiled())
    with pytest.raises(CodeObjectError, match="no kernel 'frist'") as caught:
        code_object.kernel("frist")
    assert "one of: first, second" in str(caught.value)
    assert "did you mean 'first'?" in str(caught.value)
    with pytest.raises(CodeObjectError, match="has 2 kernels, so name one: first, second"):
        code_object.kernel()
    with pytest.raises(CodeObjectError, match="has 0 kernels, so name one: none"):
        load(assembled(".text\ns_endpgm\n")).kernel()


def test_unresolved_symbols_and_misaligned_kernels_are_named():
    source = kernel_source(body="s_mov_b32 s0, missing@abs32@lo\n s_endpgm")
    with pytest.raises(CodeObjectError, match="needs the symbol 'missing', which it does not define"):
        load(assembled(source))
    shared = linked(assembled(kernel_source() + ".data\n.quad missing\n.weak perhaps\n.quad perhaps\n"))
    with pytest.raises(CodeObjectError, match="needs the symbol 'missing', which it does not define"):
        load(shared)
    weak = ".data\n.protected words\n.globl words\nwords:\n.weak perhaps\n.quad perhaps + 5\n"
    for data in (assembled(kernel_source() + weak), linked(assembled(kernel_source() + weak))):
        assert read(load(data, 0x5000), "words", 0, 8) == 5
    source = kernel_source().replace(".p2align 8", "s_nop 0")
    with pytest.raises(CodeObjectError, match=r"kernel 'k' starts at 0x4, .* multiple of 256(.|\n)*write .p2align 8"):
        load(assembled(source))


def test_the_base_must_be_a_page():
    with pytest.raises(ValueError, match=r"base 0x100 is not a multiple of 4096"):
        load(compiled(), 0x100)


def test_images_of_absurd_size_are_refused():
    damaged = bytearray(linked(compiled()))
    struct.pack_into("<Q", damaged, 64 + 56 + 40, 1 << 40)
    with pytest.raises(CodeObjectError, match="asks for 1099511627776 bytes of memory"):
        load(damaged)


@pytest.mark.parametrize("form", ["relocatable", "linked"])
def test_truncated_files_never_load(form):
    data = compiled() if form == "relocatable" else linked(compiled())
    generator = random.Random(11)
    for length in [0, 3, 17, 63, 64, len(data) - 1, *(generator.randrange(len(data)) for _ in range(100))]:
        with pytest.raises(CodeObjectError):
            load(data[:length])


@pytest.mark.parametrize("form", ["relocatable", "linked"])
def test_flipped_bytes_load_or_raise_the_projects_own_error(form):
    data = compiled() if form == "relocatable" else linked(compiled())
    generator = random.Random(12)
    start, _, count = struct.unpack_from("<Q10xHH", data, 40)
    refused = []
    for turn in range(300):
        damaged = bytearray(data)
        places = [range(64), range(start, start + 64 * count), range(len(data))][turn % 3]
        for _ in range(generator.randrange(1, 4)):
            damaged[generator.choice(places)] = generator.randrange(256)
        try:
            load(damaged)
        except CodeObjectError as problem:
            refused.append(str(problem))
    assert 50 < len(refused) < 300
    assert all(refused)


def test_metadata_of_any_shape_is_refused_politely():
    data = with_metadata(kernarg=0, group=512)
    note = data.index(b"AMDGPU\0\0") + 8
    original = msgpack.unpackb(data[note : note + struct.unpack_from("<I", data, note - 16)[0]])
    row = original["amdhsa.kernels"][0]
    rows = [3, {**row, ".symbol": 7}, {**row, ".kernarg_segment_size": "x"}, {".symbol": "k.kd", ".args": 1}]
    for broken in ([], 5, {"amdhsa.kernels": 3}, *({"amdhsa.kernels": [each]} for each in rows)):
        packed = msgpack.packb(broken)
        damaged = bytearray(data)
        struct.pack_into("<I", damaged, note - 16, len(packed))
        damaged[note : note + len(packed)] = packed
        with pytest.raises(CodeObjectError, match="damaged"):
            load(damaged)


def test_the_image_is_what_the_segments_say():
    data = linked(compiled())
    offset, size, count = struct.unpack_from("<Q14xHH", data, 32)
    image = load(data).image
    for index in range(count):
        kind, _, at, address, _, extent, memory = struct.unpack_from("<IIQQQQQ", data, offset + index * size)
        if kind == 1:
            same = image[address : address + extent] == np.frombuffer(data[at : at + extent], np.uint8)
            assert same.sum() >= extent - 8  # the one dynamic relocation
            assert not image[address + extent : address + memory].any()
