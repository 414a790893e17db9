"""The matrix operations of FlyDSL's `rocdl` that LLVM makes for gfx950, for the kernels and for their tests."""

F8 = ("fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8")
# name, and how many 32-bit registers a lane has of A, of B and of C
DENSE = [
    *(("f32_4x4x1f32", 1, 1, 4), ("f32_16x16x1f32", 1, 1, 16), ("f32_32x32x1f32", 1, 1, 32)),
    *(("f32_16x16x4f32", 1, 1, 4), ("f32_32x32x2f32", 1, 1, 16)),
    *(("f32_4x4x4bf16_1k", 2, 2, 4), ("f32_16x16x4bf16_1k", 2, 2, 16), ("f32_32x32x4bf16_1k", 2, 2, 32)),
    *(("f32_16x16x16bf16_1k", 2, 2, 4), ("f32_32x32x8bf16_1k", 2, 2, 16)),
    *(("f32_4x4x4f16", 2, 2, 4), ("f32_16x16x4f16", 2, 2, 16), ("f32_32x32x4f16", 2, 2, 32)),
    *(("f32_16x16x16f16", 2, 2, 4), ("f32_32x32x8f16", 2, 2, 16)),
    *(("f32_16x16x32_f16", 4, 4, 4), ("f32_32x32x16_f16", 4, 4, 16)),
    *(("f32_16x16x32_bf16", 4, 4, 4), ("f32_32x32x16_bf16", 4, 4, 16)),
    *((f"f32_16x16x32_{kinds}", 2, 2, 4) for kinds in F8),
    *((f"f32_32x32x16_{kinds}", 2, 2, 16) for kinds in F8),
    *(("i32_4x4x4i8", 1, 1, 4), ("i32_16x16x4i8", 1, 1, 16), ("i32_32x32x4i8", 1, 1, 32)),
    *(("i32_16x16x32_i8", 2, 2, 4), ("i32_32x32x16_i8", 2, 2, 16)),
    *(("i32_16x16x64_i8", 4, 4, 4), ("i32_32x32x32_i8", 4, 4, 16)),
    *(("f64_4x4x4f64", 2, 2, 2), ("f64_16x16x4f64", 2, 2, 8)),
]
SPARSE = [
    *((f"f32_16x16x32_{kind}", 2, 4, 4) for kind in ("f16", "bf16")),
    *((f"f32_32x32x16_{kind}", 2, 4, 16) for kind in ("f16", "bf16")),
    *((f"f32_16x16x64_{kind}", 4, 8, 4) for kind in ("f16", "bf16")),
    *((f"f32_32x32x32_{kind}", 4, 8, 16) for kind in ("f16", "bf16")),
    *(("i32_16x16x64_i8", 2, 4, 4), ("i32_32x32x32_i8", 2, 4, 16)),
    *(("i32_16x16x128_i8", 4, 8, 4), ("i32_32x32x64_i8", 4, 8, 16)),
    *((f"f32_16x16x64_{kinds}", 2, 4, 4) for kinds in F8),
    *((f"f32_32x32x32_{kinds}", 2, 4, 16) for kinds in F8),
    *((f"f32_16x16x128_{kinds}", 4, 8, 4) for kinds in F8),
    *((f"f32_32x32x64_{kinds}", 4, 8, 16) for kinds in F8),
]
