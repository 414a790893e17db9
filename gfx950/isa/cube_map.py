"""V_CUBE*: the face of a cube map that a direction (S0, S1, S2) = (x, y, z) points at, and the place there.

[CDNA4 ISA 12.11]
"""

from __future__ import annotations

from gfx950.evidence import Evidence, rule
from gfx950.isa.lane_arithmetic import ARITHMETIC, as_input, as_output
from gfx950.isa.registry import vop3
from gfx950.lanes import F32, FLOAT_DENORM, Mask

FACES = rule(
    "valu.cube",
    Evidence.spec,
    "CDNA4 ISA 12.11 V_CUBEID_F32, V_CUBESC_F32, V_CUBETC_F32, V_CUBEMA_F32",
    "The major axis is z where |z| >= |x| and |z| >= |y|, else y where |y| >= |x|, else x; comparisons with a NaN are"
    " false; the coordinates are operands with at most their sign changed.",
)
BITS = rule(
    "valu.cube_bits",
    Evidence.chosen,
    "CDNA4 ISA 12.11 V_CUBESC_F32 and V_CUBETC_F32 give values, not bits",
    "A coordinate that is a NaN keeps its bits but for the sign, signalling ones too.",
)


def _axes(x: F32, y: F32, z: F32) -> tuple[Mask, Mask]:
    """Whether z is the major axis; whether y is, where z is not."""
    return (abs(z) >= abs(x)) & (abs(z) >= abs(y)), abs(y) >= abs(x)


def _by_axis(x: F32, y: F32, z: F32, results: tuple[F32, F32, F32]) -> F32:
    """The result for the major axis, of those for x, y and z."""
    z_major, y_major = _axes(x, y, z)
    for_x, for_y, for_z = results
    return z_major.select(for_z, y_major.select(for_y, for_x))


def _face(axis: F32, positive: float) -> F32:
    number = F32.constant(axis.engine, positive)
    return (axis < 0.0).select(positive + 1.0, number)


@vop3("v_cubeid_f32", 0x1C4, intrinsic="llvm.amdgcn.cubeid", rules=(FACES, FLOAT_DENORM))
def v_cubeid_f32(src0: F32, src1: F32, src2: F32) -> F32:
    """The number of the face: 0, 2, 4 for x, y, z, one more where that is negative. [12.11]"""
    faces = (_face(src0, 0.0), _face(src1, 2.0), _face(src2, 4.0))
    return _by_axis(src0, src1, src2, faces)


@vop3("v_cubesc_f32", 0x1C5, intrinsic="llvm.amdgcn.cubesc", rules=(FACES, BITS, FLOAT_DENORM))
def v_cubesc_f32(src0: F32, src1: F32, src2: F32) -> F32:
    """The coordinate S on the face. [12.11]"""
    x, y, z = as_input(src0), as_input(src1), as_input(src2)
    return as_output(_by_axis(x, y, z, ((x < 0.0).select(z, -z), x, (z < 0.0).select(-x, x))))


@vop3("v_cubetc_f32", 0x1C6, intrinsic="llvm.amdgcn.cubetc", rules=(FACES, BITS, FLOAT_DENORM))
def v_cubetc_f32(src0: F32, src1: F32, src2: F32) -> F32:
    """The coordinate T on the face. [12.11]"""
    x, y, z = as_input(src0), as_input(src1), as_input(src2)
    return as_output(_by_axis(x, y, z, (-y, (y < 0.0).select(-z, z), -y)))


@vop3("v_cubema_f32", 0x1C7, intrinsic="llvm.amdgcn.cubema", rules=(FACES, *ARITHMETIC))
def v_cubema_f32(src0: F32, src1: F32, src2: F32) -> F32:
    """Twice the major axis. [12.11]"""
    return _by_axis(src0, src1, src2, (src0, src1, src2)) * 2.0
