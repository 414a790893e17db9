"""Every scalar, LDS and memory definition against LLVM's assembler: operand widths fit, bits decode back."""

import pytest

from gfx950.isa.encoding import ENCODINGS, decode
from gfx950.isa.registry import load
from gfx950.lanes import Mode

MODULES = {"sop1", "sop2", "sopk", "sopc", "sopp", "smem", "ds", "ds_atomics"}
MODULES |= {"fork", "global_memory", "global_atomics", "cross_lane"}
SCALAR = {"ssrc0": 8, "ssrc1": 16, "sdst": 4}
IMMEDIATES = {"s_nop": "3", "s_waitcnt": "0xf70", "s_sleep": "2", "s_setprio": "3", "s_sendmsg": "1"}
UNKNOWN_TO_LLVM = {"s_set_valu_coexec_mode"}
SPECIAL_SMEM = {f"s_dcache_discard{x}": "s[8:9], 0x1234" for x in ("", "_x2")}
SPECIAL_SMEM |= {"s_atc_probe": "7, s[8:9], 0x1234", "s_atc_probe_buffer": "7, s[8:11], 0x1234"}
IMMEDIATES |= {"s_incperflevel": "5", "s_decperflevel": "6"}


def ours():
    found = [i for i in load().values() if i.body.__module__.rsplit(".", 1)[-1] in MODULES]
    return [i for i in found if i.name not in UNKNOWN_TO_LLVM]


def registers(kind, first, count):
    return f"{kind}{first}" if count == 1 else f"{kind}[{first}:{first + count - 1}]"


def size(instruction, name):
    """Registers of an operand: of the parameter, or of the result for a destination."""
    plain = next((r for r in instruction.results if r.place is None), None)
    found = plain if name in ("sdst", "vdst") and plain is not None else instruction.parameter(name)
    return found.registers if found is not None else 0


def scalar_text(instruction):
    """Assembly text and the fields it must have, for SOP1, SOP2, SOPC and SOPK."""
    order = {
        "SOP1": ["sdst", "ssrc0"],
        "SOP2": ["sdst", "ssrc0", "ssrc1"],
        "SOPC": ["ssrc0", "ssrc1"],
        "SOPK": ["sdst"],
    }
    used = [name for name in order[instruction.encoding] if size(instruction, name)]
    parts = [registers("s", SCALAR[name], size(instruction, name)) for name in used]
    fields = {name: SCALAR[name] for name in used}
    if instruction.encoding == "SOPK":
        parts.append("0x1234")
        fields["simm16"] = 0x1234
    return f"{instruction.name} {', '.join(parts)}", fields


def flow_text(instruction):
    if instruction.flow == "branch":
        return f"{instruction.name} 7", {"simm16": 7}
    immediate = IMMEDIATES.get(instruction.name, "")
    return f"{instruction.name} {immediate}", {"simm16": int(immediate or "0", 0)}


def smem_text(instruction):
    base = "s[8:11]" if instruction.parameter("sbase") else "s[8:9]"
    if instruction.name in SPECIAL_SMEM:
        return f"{instruction.name} {SPECIAL_SMEM[instruction.name]}", {"sbase": 4, "imm": 1, "offset": 0x1234}
    if instruction.flow == "nothing":
        return instruction.name, {"op": instruction.opcode}
    if instruction.parameter("data0"):
        data, returns = registers("s", 16, size(instruction, "data0")), bool(instruction.parameter("glc"))
        text = f"{instruction.name} {data}, {base}, 0x1234{' glc' if returns else ''}"
        return text, {"sdata": 16, "sbase": 4, "imm": 1, "offset": 0x1234, "glc": int(returns)}
    count = instruction.results[0].registers
    if instruction.parameter("memory") is None:
        return f"{instruction.name} s[4:5]", {"sdata": 4}
    fields = {"sdata": 16, "sbase": 4, "imm": 1, "offset": 0x1234}
    return f"{instruction.name} {registers('s', 16, count)}, {base}, 0x1234", fields


def ds_text(instruction):
    parts, fields = [], {}
    places = {"vdst": 40, "addr": 2, "data0": 10, "data1": 20}
    for name in ("vdst", "addr", "data0", "data1"):
        count = size(instruction, name) if name != "vdst" or instruction.results else 0
        if count:
            parts.append(registers("v", places[name], count))
            fields[name] = places[name]
    text = f"{instruction.name} {', '.join(parts)}"
    if instruction.flow == "refused":
        return f"{text} offset:0x1234 gds", {**fields, "offset0": 0x34, "offset1": 0x12, "gds": 1}
    if instruction.parameter("offset0"):
        return f"{text} offset0:3 offset1:9", {**fields, "offset0": 3, "offset1": 9}
    if instruction.parameter("offset"):
        return f"{text} offset:0x1234", {**fields, "offset0": 0x34, "offset1": 0x12}
    return instruction.name, {}


SEGMENTS = {"FLAT": 0, "SCRATCH": 1, "GLOBAL": 2}


def memory_text(instruction):
    """A load, store or atomic with its address in v[2:3], of scratch in v2, and an offset of -8 (FLAT: 8)."""
    segment = SEGMENTS[instruction.encoding]
    address, offset = "v2" if segment == 1 else "v[2:3]", -8 if segment else 8
    fields = {"addr": 2, "seg": segment, "sve": int(segment == 1), "offset": offset & 0x1FFF}
    data = registers("v", 8, size(instruction, "data0")) if instruction.parameter("data0") else ""
    parts, returns = [address, data] if data else [address], ""
    if instruction.results:
        parts.insert(0, registers("v", 6, instruction.results[0].registers))
        fields["vdst"] = 6
    if data:
        fields["data"] = 8
    if instruction.parameter("sc0"):
        fields["sc0"], returns = 1, " sc0"
    parts += ["off"] if segment else []
    return f"{instruction.name} {', '.join(parts)} offset:{offset}{returns}", fields


def text_of(instruction):
    encoding = instruction.encoding
    if encoding in ("SOP1", "SOP2", "SOPC", "SOPK"):
        return scalar_text(instruction)
    if encoding == "VOP1":
        return f"{instruction.name} v5, v6", {"vdst": 5, "src0": 256 + 6}
    by_encoding = {"SOPP": flow_text, "SMEM": smem_text, "DS": ds_text}
    return by_encoding.get(encoding, memory_text)(instruction)


def test_every_definition_assembles_and_decodes_back(assemble_lines):
    instructions = ours()
    assert len(instructions) > 400
    texts = [text_of(i) for i in instructions]
    for instruction, (text, fields), code in zip(
        instructions, texts, assemble_lines([t for t, _ in texts]), strict=True
    ):
        decoded = decode(code, 0)
        assert decoded.instruction is instruction, text
        assert decoded.nbytes == len(code), text
        assert {k: decoded.fields[k] for k in fields} == fields, text


def test_opcodes_match_the_packed_bits(assemble_lines):
    instructions = [i for i in ours() if i.encoding in ("SOP1", "SOP2", "SOPC", "SOPK")]
    texts = [text_of(i) for i in instructions]
    for instruction, (text, fields), code in zip(
        instructions, texts, assemble_lines([t for t, _ in texts]), strict=True
    ):
        packed = ENCODINGS[instruction.encoding].pack({"op": instruction.opcode, **fields})
        assert packed.to_bytes(4, "little") == code, text


SAMPLES = [  # text, low dword, high dword, as LLVM's assembler writes them
    ("s_load_dword s5, s[2:3], -4", 0xC0020141, 0x001FFFFC),
    ("s_load_dword s5, s[2:3], m0", 0xC0000141, 0x0000007C),
    ("s_load_dword s5, s[2:3], s7 offset:0x10", 0xC0024141, 0x0E000010),
    ("s_buffer_load_dwordx16 s[16:31], s[8:11], s7", 0xC0300404, 0x00000007),
    ("s_store_dword s5, s[2:3], m0", 0xC0400141, 0x0000007C),
    ("s_atomic_cmpswap s[6:7], s[2:3], 0x10 glc", 0xC2070181, 0x00000010),
    ("flat_store_dword v[2:3], a5", 0xDC700000, 0x00800502),
    ("global_load_dword v1, v[2:3], off offset:-4096", 0xDC509000, 0x017F0002),
    ("global_load_dword v1, v2, s[4:5] offset:-8", 0xDC509FF8, 0x01040002),
    ("global_load_dword v1, v2, s[4:5] sc0 sc1 nt", 0xDE538000, 0x01040002),
    ("global_load_lds_dword v[2:3], off", 0xDCA88000, 0x007F0002),
    ("global_load_lds_dwordx4 v2, s[4:5] offset:-16", 0xDDF49FF0, 0x00040002),
    ("global_load_lds_dwordx3 v[2:3], off", 0xDDF88000, 0x007F0002),
    ("ds_read_b32 a5, v1 offset:8", 0xDA6C0008, 0x05000001),
    ("ds_write_b64 v1, a[2:3] offset:16", 0xDA9A0010, 0x00000201),
    ("ds_read_b64_tr_b16 a[6:7], v1", 0xDBC60000, 0x06000001),
    ("ds_read_b96_tr_b6 v[5:7], v1", 0xD9C20000, 0x05000001),
    ("ds_write_addtid_b32 v2 offset:16", 0xD83A0010, 0x00000200),
    ("ds_bpermute_b32 v5, v1, v2 offset:4", 0xD87E0004, 0x05000201),
    ("ds_swizzle_b32 v5, v1 offset:0x8000", 0xD87A8000, 0x05000001),
]


@pytest.mark.parametrize(("text", "low", "high"), SAMPLES)
def test_sample_encodings(text, low, high):
    decoded = decode((low | high << 32).to_bytes(8, "little"), 0x100, 0x100)
    assert decoded.instruction.name == text.split()[0]
    assert ENCODINGS[decoded.form].pack(decoded.fields) == low | high << 32


def test_an_instruction_that_llvm_does_not_know():
    """SOPP 31 in AMD's machine-readable ISA."""
    assert decode((0xBF9F0002).to_bytes(4, "little"), 0).instruction.name == "s_set_valu_coexec_mode"


def test_bodies_take_no_modifiers():
    assert not [i.name for i in ours() if any(p.kind is Mode for p in i.parameters)]


def test_every_definition_says_what_it_does():
    assert not [i.name for i in ours() if "[" not in i.doc]
