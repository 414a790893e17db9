"""Garbage: instructions with any bits in their fields, legal or not, and bytes that are none."""

from __future__ import annotations

from gfx950.isa.encoding import ENCODINGS, LOAD_SCALE, MAI, VOP3_BASES, VOP3B, uses_vop3b
from gfx950.isa.operand_codes import DPP, LITERAL, SDWA
from gfx950.isa.registry import load

ROOM = 48  # dwords of random code
INSTRUCTIONS = list(load().values())
SCALARS = [4, 5, 6, 7, 8, 10, 12, 106, 124, 126, 128, 129, 240, 253, 255]


def field_value(rng, form, name, width):
    """A value that mostly means something."""
    value = int(rng.integers(0, 1 << width))
    if rng.random() < 0.05:
        return value
    if name in ("acc", "acc_cd", "seg", "lds", "sve", "nv", "gds", "soe"):
        return 0
    if name == "imm":
        return 1
    if name in ("cbsz", "blgp", "abid"):
        return value % 5 if rng.random() < 0.3 else 0
    if name == "sbase":
        return int(rng.choice([0, 2, 3]))
    if name == "saddr":
        return int(rng.choice([0x7F, 4]))
    if name == "sdata" or (name[0] == "s" and width == 7 and "dst" in name):
        return int(rng.integers(2, 9)) * 2
    if name.startswith(("src", "ssrc")) and (width == 8 or rng.random() < 0.2):
        return int(rng.choice(SCALARS))
    if name.startswith("src") and width == 9:
        return 256 + int(rng.integers(0, 12))
    if name.startswith(("vdst", "vsrc", "data", "addr", "src")):
        return int(rng.integers(0, 14))
    if name.startswith("offset"):
        return int(rng.integers(0, 16)) * 4
    if name == "simm16" and form == "SOPP":
        return int(rng.integers(-3, 8)) & 0xFFFF
    return value


def matrix_fields(instruction, form, fields):
    """Registers from an even one on, no broadcasts; scales where the instruction has them."""
    even = {name: fields[name] & ~1 for name in ("src0", "src1", "src2", "vdst")}
    return even | {"abid": int(form == "MAI_SCALE")} | ({} if "f8f6f4" in instruction.name else {"cbsz": 0})


def random_instruction(rng):
    """The bytes of a definition with values in its fields that mostly mean something."""
    instruction = INSTRUCTIONS[rng.integers(len(INSTRUCTIONS))]
    form = instruction.encoding
    if form in VOP3_BASES and rng.random() < 0.4 and not instruction.parameter("literal"):
        form = "VOP3"
    encoding = ENCODINGS.get({"MUBUF_LDS": "MUBUF"}.get(form, form), ENCODINGS["FLAT"])
    if form == "VOP3" and uses_vop3b(instruction):
        encoding = VOP3B
    elif form in ("MAI", "MAI_SCALE"):
        encoding = MAI
    fields = {n: field_value(rng, form, n, width) for n, (_, width) in encoding.fields.items()}
    fields["op"] = instruction.opcode + (VOP3_BASES.get(instruction.encoding, 0) if form == "VOP3" else 0)
    if form.startswith("MAI"):
        fields |= matrix_fields(instruction, form, fields)
    if form in ("FLAT", "SCRATCH", "GLOBAL"):
        fields["seg"] = ("FLAT", "SCRATCH", "GLOBAL").index(form)
    if form == "MUBUF_LDS":
        fields["lds"] = 1
    raw = encoding.pack(fields).to_bytes(encoding.nbytes, "little")
    if form == "MAI_SCALE":
        raw = (
            ENCODINGS["VOP3P"].pack({"op": LOAD_SCALE, "src0": 264, "src1": 265, "op_sel": 1}).to_bytes(8, "little")
            + raw
        )
    sources = {fields.get(n) for n in ("src0", "ssrc0", "ssrc1")}
    return raw + rng.bytes(4) if encoding.nbytes == 4 and sources & {SDWA, DPP, LITERAL} else raw


def random_code(rng):
    """A few of them, or bytes."""
    if rng.random() < 0.15:
        return rng.bytes(4 * int(rng.integers(1, ROOM)))
    code = b"".join(random_instruction(rng) for _ in range(int(rng.integers(1, 8))))
    return code[: 4 * ROOM]
