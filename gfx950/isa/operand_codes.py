"""What the numbers in operand fields stand for, as far as more than one module asks. [CDNA4 ISA 5.2, 6.1]"""

from __future__ import annotations

VCC, M0, EXEC = 106, 124, 126  # scalar registers; VCC and EXEC are the first of a pair
INLINE_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
TWO_PI = 248  # 1 / (2 pi)
TWO_PI_BITS = {
    "f16": 0x3118,
    "bf16": 0x3E22,
    "f32": 0x3E22F983,
    "f64": 0x3FC45F306DC9C882,
}  # as LLVM has it
SDWA, DPP, LITERAL = 249, 250, 255  # in SRC0 and SSRC: a dword follows, with the operand in it
VGPR_FIRST = 256
FORMAT_REGISTERS = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}  # of an F8F6F4 operand, by CBSZ or BLGP. [7.1.5]
