"""A wave of the numpy engine with something in its registers, and programs run on it step by step."""

import random

import numpy as np

from emu.memory import Memory
from emu.wave import Wave
from gfx950.isa.encoding import decode

LANES = range(64)
ALL = (1 << 64) - 1
PARTIAL = 0xF00F_8001_7FFF_0F30


def make_wave(mask=ALL):
    wave = Wave(lds=np.arange(4096, dtype=np.uint32).view(np.uint8).copy(), memory=Memory())
    for index in [*range(1, 9), *range(257, 265)]:
        wave.vgprs[index] = np.frombuffer(random.Random(index).randbytes(256), dtype=np.uint32)
    for index in range(30):
        wave.sgprs[index] = random.Random(-index).getrandbits(32)
    wave.set_exec(mask)
    return wave


def run(wave, assemble, text):
    code = assemble(text)
    pc = 0x1000
    while pc - 0x1000 < len(code):
        decoded = decode(code, pc, 0x1000)
        wave.step(decoded)
        pc += decoded.nbytes
    return wave


def pair(wave, index):
    return int(wave.sgprs[index]) | int(wave.sgprs[index + 1]) << 32
