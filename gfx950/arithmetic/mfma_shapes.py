"""The shapes of the matrix natives, by the native's name: `mfma_<shape>_<kind>` and `smfmac_<shape>_<kind>`.

Kinds: f16 (bf16 too), f8 (fp8 and bf8), f8f6f4, f32, f64, i8. A native's inputs are the registers of A, of B, of C,
then the scale registers of A and B where the shape has scale blocks, or the index register of a sparse one; its outputs
are those of D. F8F6F4 always passes 8 registers an operand, of which fp6 and bf6 use the first 6, fp4 the first 4.
"""

from __future__ import annotations

from typing import NamedTuple


class Shape(NamedTuple):
    """One shape. rows: M and N. depth: products of an element of D. lane_items: elements a lane holds of A.

    operand_registers: registers reserved for A, and for B where it is dense. blocks: K blocks with their own scale, 0
    where there are none. copies: independent products side by side, the ISA's blocks. element_registers: of C and D.
    sparse: A holds two of every four k, so B is twice as deep. chosen: this is the B of a sparse one. two_runs: a
    lane's items are two runs of k, the second half the depth behind the first.
    """

    rows: int
    depth: int
    lane_items: int
    operand_registers: int
    blocks: int = 0
    copies: int = 1
    element_registers: int = 1
    sparse: bool = False
    chosen: bool = False
    two_runs: bool = False

    @property
    def c_registers(self) -> int:
        return self.rows * self.rows * self.copies * self.element_registers // 64

    @property
    def input_registers(self) -> int:
        """Registers a native reads."""
        b_registers = self.operand_registers * (1 + self.sparse)
        return self.operand_registers + b_registers + self.c_registers + (2 if self.blocks else int(self.sparse))

    @property
    def b_shape(self) -> Shape:
        """The shape as the operand B sees it. Of a sparse one: twice as deep, in two runs where A has four registers.

        [rule layout.sparse]
        """
        if not self.sparse:
            return self
        return self._replace(
            depth=2 * self.depth,
            lane_items=2 * self.lane_items,
            operand_registers=2 * self.operand_registers,
            sparse=False,
            chosen=True,
            two_runs=self.operand_registers == 4,
        )


def _dense(kind: str, item_bits: int, m: int, k: int, copies: int = 1) -> tuple[str, Shape]:
    items = k * m * copies // 64
    name = f"mfma_{m}x{m}x{k}" + f"_{copies}b" * (copies > 1) + f"_{kind}"
    return name, Shape(m, k, items, items * item_bits // 32, 0, copies, 2 if kind == "f64" else 1)


def _sparse(kind: str, item_bits: int, m: int, k: int) -> tuple[str, Shape]:
    items = k // 2 * m // 64
    return f"smfmac_{m}x{m}x{k}_{kind}", Shape(m, k // 2, items, items * item_bits // 32, sparse=True)


_HALF_BLOCKS = ((32, 4, 2), (16, 4, 4), (4, 4, 16))
_HALF_SHAPES = ((16, 32), (32, 16), (16, 16), (32, 8))
_F32_SHAPES = ((32, 1, 2), (16, 1, 4), (4, 1, 16), (32, 2, 1), (16, 4, 1))
_I8_SHAPES = (*_HALF_BLOCKS, (16, 32, 1), (32, 16, 1), (16, 64, 1), (32, 32, 1))
_SPARSE_BYTES = ((16, 64), (32, 32), (16, 128), (32, 64))

SHAPES: dict[str, Shape] = dict(
    [
        ("mfma_f8f6f4_16x16x128", Shape(16, 128, 32, 8, 4)),
        ("mfma_f8f6f4_32x32x64", Shape(32, 64, 32, 8, 2)),
        *(_dense("f8", 8, *shape) for shape in ((16, 32), (32, 16))),
        *(_dense("f16", 16, *shape) for shape in (*_HALF_SHAPES, *_HALF_BLOCKS)),
        *(_dense("f32", 32, *shape) for shape in _F32_SHAPES),
        *(_dense("f64", 64, *shape) for shape in ((16, 4, 1), (4, 4, 4))),
        *(_dense("i8", 8, *shape) for shape in _I8_SHAPES),
        *(_sparse("f16", 16, *shape) for shape in ((16, 32), (32, 16), (16, 64), (32, 32))),
        *(_sparse("f8", 8, *shape) for shape in _SPARSE_BYTES),
        *(_sparse("i8", 8, *shape) for shape in _SPARSE_BYTES),
    ]
)


def kind_of(name: str) -> str:
    """The kind of a native: f16, f8, f8f6f4, f32, f64, i8."""
    return "f8f6f4" if "f8f6f4" in name else name.rpartition("_")[2]


def is_deep(name: str) -> bool:
    """Whether gfx942 has no floating-point shape of this depth: F8F6F4, and those of twice the K."""
    shape, kind = SHAPES[name], kind_of(name)
    if kind not in ("f8f6f4", "f8", "f16"):
        return False
    return shape.depth * shape.rows * shape.copies >= {"f16": 512, "f8": 1024, "f8f6f4": 0}[kind]
