"""The conversions of narrow floats in FlyDSL's `rocdl` for gfx950, for the kernels and for their tests."""

WIDE = ("f32", "f16", "bf16")
F8 = ("fp8", "bf8")
F6 = ("fp6", "bf6")

# name, type of the result, types of the operands, further constants
CONVERSIONS = [
    ("cvt_pkrtz", "2xf16", ("f32", "f32"), ()),
    *((f"cvt_f32_{kind}", "f32", ("i32",), (2,)) for kind in F8),
    *((f"cvt_pk_f32_{kind}", "2xf32", ("i32",), (True,)) for kind in F8),
    *((f"cvt_pk_{kind}_f32", "i32", ("f32", "f32", "i32"), (True,)) for kind in F8),
    *((f"cvt_sr_{kind}_f32", "i32", ("f32", "i32", "i32"), (3,)) for kind in F8),
    *((f"cvt_scalef32_f16_{kind}", "2xf16", ("2xf16", "i32", "scale"), (1, True)) for kind in F8),
    *((f"cvt_scalef32_f32_{kind}", "f32", ("i32", "scale"), (3,)) for kind in F8),
    *((f"cvt_scalef32_pk_{wide}_{kind}", f"2x{wide}", ("i32", "scale"), (True,)) for kind in F8 for wide in WIDE),
    *((f"cvt_scalef32_pk_{wide}_fp4", f"2x{wide}", ("i32", "scale"), (2,)) for wide in WIDE),
    *((f"cvt_scalef32_pk_{kind}_f32", "2xi16", ("2xi16", "f32", "f32", "scale"), (True,)) for kind in F8),
    *(
        (f"cvt_scalef32_pk_{kind}_{wide}", "2xi16", ("2xi16", f"2x{wide}", "scale"), (True,))
        for kind in F8
        for wide in WIDE[1:]
    ),
    ("cvt_scalef32_pk_fp4_f32", "i32", ("i32", "f32", "f32", "scale"), (1,)),
    *((f"cvt_scalef32_pk_fp4_{wide}", "i32", ("i32", f"2x{wide}", "scale"), (3,)) for wide in WIDE[1:]),
    *((f"cvt_scalef32_sr_{kind}_{wide}", "i32", ("i32", wide, "i32", "scale"), (2,)) for kind in F8 for wide in WIDE),
    *((f"cvt_scalef32_sr_pk_fp4_{wide}", "i32", ("i32", f"2x{wide}", "i32", "scale"), (2,)) for wide in WIDE),
    *((f"cvt_scalef32_pk32_{wide}_{kind}", f"32x{wide}", ("6xi32", "scale"), ()) for kind in F6 for wide in WIDE),
    *((f"cvt_scalef32_pk32_{kind}_{wide}", "6xi32", (f"32x{wide}", "scale"), ()) for kind in F6 for wide in WIDE[1:]),
    *((f"cvt_scalef32_2xpk16_{kind}_f32", "6xi32", ("16xf32", "16xf32", "scale"), ()) for kind in F6),
    *(
        (f"cvt_scalef32_sr_pk32_{kind}_{wide}", "6xi32", (f"32x{wide}", "i32", "scale"), ())
        for kind in F6
        for wide in WIDE
    ),
]
