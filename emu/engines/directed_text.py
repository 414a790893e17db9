"""Float operations rounded up, down or toward zero, in LLVM text: integers only, one lane after the other.

The same rules as gfx950.arithmetic.directed, on finite operands, for the translated code. A value is taken apart into
sign, magnitude (i256, so that exact sums and products fit) and exponent, and put together again by one function a
width and direction. Nothing of the host's floats is used, so neither its rounding control nor its libraries matter.
"""

from __future__ import annotations

from gfx950.arithmetic.directed import DOWN, UP, smallest_exponent
from gfx950.lanes import LANES, MANTISSA_BITS, infinity_bits


def _round(width: int, direction: int) -> str:
    """Puts +-magnitude * 2^exponent together; %more: the true magnitude lies above, by less than one unit."""
    mantissa, least, infinity = MANTISSA_BITS[width], smallest_exponent(width), infinity_bits(width)
    outward = {UP: "xor i1 %negative, true", DOWN: "or i1 %negative, false"}.get(direction, "or i1 false, false")
    parameters = "i1 %negative, i256 %magnitude, i32 %exponent, i1 %more"
    return f"""define internal i{width} @directed.round.{width}.{direction}({parameters}) {{
  %outward = {outward}
  %zeros = call i256 @llvm.ctlz.i256(i256 %magnitude, i1 false)
  %zeros32 = trunc i256 %zeros to i32
  %length = sub i32 256, %zeros32
  %top = add i32 %exponent, %length
  %natural = sub i32 %top, {mantissa + 1}
  %kept = call i32 @llvm.smax.i32(i32 %natural, i32 {least})
  %none = icmp eq i256 %magnitude, 0
  %step = select i1 %none, i32 {least}, i32 %kept
  %shift = sub i32 %step, %exponent
  %right = call i32 @llvm.smax.i32(i32 %shift, i32 0)
  %right.most = call i32 @llvm.smin.i32(i32 %right, i32 255)
  %left = sub i32 %right, %shift
  %left.most = select i1 %none, i32 0, i32 %left
  %right.wide = zext i32 %right.most to i256
  %left.wide = zext i32 %left.most to i256
  %cut = lshr i256 %magnitude, %right.wide
  %back = shl i256 %cut, %right.wide
  %lost = icmp ne i256 %back, %magnitude
  %steps = shl i256 %cut, %left.wide
  %inexact = or i1 %lost, %more
  %grows = and i1 %inexact, %outward
  %one = zext i1 %grows to i128
  %steps128 = trunc i256 %steps to i128
  %grown = add i128 %steps128, %one
  %above = sub i32 %step, {least}
  %field = zext i32 %above to i128
  %placed = shl i128 %field, {mantissa}
  %whole = add i128 %placed, %grown
  %limit = select i1 %outward, i128 {infinity}, i128 {infinity - 1}
  %inside = call i128 @llvm.umin.i128(i128 %whole, i128 %limit)
  %sign = zext i1 %negative to i128
  %sign.placed = shl i128 %sign, {width - 1}
  %bits = or i128 %inside, %sign.placed
  %result = trunc i128 %bits to i{width}
  ret i{width} %result
}}"""


def _parts(name: str, width: int) -> str:
    """Sign, magnitude (i256) and exponent of a finite float `name`."""
    mantissa = MANTISSA_BITS[width]
    kind = f"i{width}"
    return f"""  %{name}.negative = icmp slt {kind} %{name}, 0
  %{name}.positive = and {kind} %{name}, {(1 << width - 1) - 1}
  %{name}.field = lshr {kind} %{name}.positive, {mantissa}
  %{name}.fraction = and {kind} %{name}, {(1 << mantissa) - 1}
  %{name}.normal = icmp ne {kind} %{name}.field, 0
  %{name}.leading = select i1 %{name}.normal, {kind} {1 << mantissa}, {kind} 0
  %{name}.significand = or {kind} %{name}.fraction, %{name}.leading
  %{name}.magnitude = zext {kind} %{name}.significand to i256
  %{name}.stored = call {kind} @llvm.umax.{kind}({kind} %{name}.field, {kind} 1)
  %{name}.stored32 = {_to_i32(width, f"%{name}.stored")}
  %{name}.exponent = add i32 %{name}.stored32, {smallest_exponent(width) - 1}"""


def _to_i32(width: int, value: str) -> str:
    if width == 32:
        return f"or i32 {value}, 0"
    return f"{'zext' if width < 32 else 'trunc'} i{width} {value} to i32"


_PRODUCT = """  %product.negative = xor i1 %a.negative, %b.negative
  %product.magnitude = mul i256 %a.magnitude, %b.magnitude
  %product.exponent = add i32 %a.exponent, %b.exponent"""


def _rounded(width: int, direction: int, name: str, more: str = "false") -> str:
    arguments = f"i1 %{name}.negative, i256 %{name}.magnitude, i32 %{name}.exponent, i1 {more}"
    return f"""  %result = call i{width} @directed.round.{width}.{direction}({arguments})
  ret i{width} %result"""


def _sum(a: str, b: str, direction: int) -> str:
    """%total of two values. The one with the higher exponent is moved left by up to 140 bits (its magnitude has at most
    106), what the other one still lacks it is moved right, and what that drops is remembered as %lost."""
    opposite_zero = "true" if direction == DOWN else "false"
    return f"""  %a.none = icmp eq i256 %{a}.magnitude, 0
  %b.none = icmp eq i256 %{b}.magnitude, 0
  %a.place = select i1 %a.none, i32 %{b}.exponent, i32 %{a}.exponent
  %b.place = select i1 %b.none, i32 %a.place, i32 %{b}.exponent
  %swap = icmp slt i32 %a.place, %b.place
  %high.negative = select i1 %swap, i1 %{b}.negative, i1 %{a}.negative
  %low.negative = select i1 %swap, i1 %{a}.negative, i1 %{b}.negative
  %high.magnitude = select i1 %swap, i256 %{b}.magnitude, i256 %{a}.magnitude
  %low.magnitude = select i1 %swap, i256 %{a}.magnitude, i256 %{b}.magnitude
  %high.place = call i32 @llvm.smax.i32(i32 %a.place, i32 %b.place)
  %low.place = call i32 @llvm.smin.i32(i32 %a.place, i32 %b.place)
  %gap = sub i32 %high.place, %low.place
  %left = call i32 @llvm.smin.i32(i32 %gap, i32 140)
  %remaining = sub i32 %gap, %left
  %right = call i32 @llvm.smin.i32(i32 %remaining, i32 255)
  %left.wide = zext i32 %left to i256
  %right.wide = zext i32 %right to i256
  %high = shl i256 %high.magnitude, %left.wide
  %low = lshr i256 %low.magnitude, %right.wide
  %low.back = shl i256 %low, %right.wide
  %lost = icmp ne i256 %low.back, %low.magnitude
  %differ = xor i1 %high.negative, %low.negative
  %added = add i256 %high, %low
  %apart = sub i256 %high, %low
  %borrow = zext i1 %lost to i256
  %apart.less = sub i256 %apart, %borrow
  %turned = icmp slt i256 %apart.less, 0
  %apart.negated = sub i256 0, %apart.less
  %apart.magnitude = select i1 %turned, i256 %apart.negated, i256 %apart.less
  %total.magnitude = select i1 %differ, i256 %apart.magnitude, i256 %added
  %total.exponent = sub i32 %high.place, %left
  %turns = and i1 %differ, %turned
  %sum.negative = xor i1 %high.negative, %turns
  %sum.none = icmp eq i256 %total.magnitude, 0
  %none.negative = select i1 %differ, i1 {opposite_zero}, i1 %high.negative
  %total.negative = select i1 %sum.none, i1 %none.negative, i1 %sum.negative"""


def _normalized(name: str, width: int) -> str:
    """%name.full: the significand with its leading one in place, as i64, and its exponent."""
    mantissa = MANTISSA_BITS[width]
    return f"""  %{name}.long = trunc i256 %{name}.magnitude to i64
  %{name}.zeros = call i64 @llvm.ctlz.i64(i64 %{name}.long, i1 false)
  %{name}.low = sub i64 %{name}.zeros, {63 - mantissa}
  %{name}.lack = call i64 @llvm.umin.i64(i64 %{name}.low, i64 63)
  %{name}.full = shl i64 %{name}.long, %{name}.lack
  %{name}.lack32 = trunc i64 %{name}.lack to i32
  %{name}.scale = sub i32 %{name}.exponent, %{name}.lack32"""


def _divide(width: int, direction: int) -> str:
    """Long division, one bit of the quotient a turn: a bit for each of the float, three more and a remainder."""
    turns = MANTISSA_BITS[width] + 4
    return f"""{_parts("a", width)}
{_parts("b", width)}
{_normalized("a", width)}
{_normalized("b", width)}
  br label %turn
turn:
  %count = phi i32 [ 0, %0 ], [ %count.next, %turn ]
  %rest = phi i64 [ %a.full, %0 ], [ %rest.next, %turn ]
  %digits = phi i64 [ 0, %0 ], [ %digits.next, %turn ]
  %fits = icmp uge i64 %rest, %b.full
  %taken = select i1 %fits, i64 %b.full, i64 0
  %rest.after = sub i64 %rest, %taken
  %rest.next = shl i64 %rest.after, 1
  %digits.up = shl i64 %digits, 1
  %digit = zext i1 %fits to i64
  %digits.next = or i64 %digits.up, %digit
  %count.next = add i32 %count, 1
  %again = icmp ult i32 %count.next, {turns}
  br i1 %again, label %turn, label %done
done:
  %more = icmp ne i64 %rest.next, 0
  %quotient.negative = xor i1 %a.negative, %b.negative
  %quotient.magnitude = zext i64 %digits.next to i256
  %scale = sub i32 %a.scale, %b.scale
  %quotient.exponent = sub i32 %scale, {turns - 1}
{_rounded(width, direction, "quotient", "%more")}"""


def _square_root(width: int, direction: int) -> str:
    """The root bit by bit, of the significand moved left by enough bits to leave an even exponent."""
    mantissa = MANTISSA_BITS[width]
    extra = mantissa + 6  # the root gets three bits more than the float has
    top = (mantissa + 1 + extra) // 2 * 2
    return f"""{_parts("a", width)}
{_normalized("a", width)}
  %parity = sub i32 %a.scale, {extra}
  %odd = and i32 %parity, 1
  %odd.wide = zext i32 %odd to i128
  %moved = add i128 %odd.wide, {extra}
  %start = zext i64 %a.full to i128
  %radicand = shl i128 %start, %moved
  br label %turn
turn:
  %bit = phi i128 [ {1 << top}, %0 ], [ %bit.next, %turn ]
  %rest = phi i128 [ %radicand, %0 ], [ %rest.next, %turn ]
  %root = phi i128 [ 0, %0 ], [ %root.next, %turn ]
  %try = add i128 %root, %bit
  %fits = icmp uge i128 %rest, %try
  %taken = select i1 %fits, i128 %try, i128 0
  %rest.next = sub i128 %rest, %taken
  %half = lshr i128 %root, 1
  %digit = select i1 %fits, i128 %bit, i128 0
  %root.next = add i128 %half, %digit
  %bit.next = lshr i128 %bit, 2
  %again = icmp ne i128 %bit.next, 0
  br i1 %again, label %turn, label %done
done:
  %more = icmp ne i128 %rest.next, 0
  %root.negative = or i1 %a.negative, false
  %root.magnitude = zext i128 %root.next to i256
  %moved32 = trunc i128 %moved to i32
  %twice = sub i32 %a.scale, %moved32
  %root.exponent = ashr i32 %twice, 1
{_rounded(width, direction, "root", "%more")}"""


def _body(op: str, width: int, direction: int, source: int) -> str:
    """The lines of the function of one lane."""
    if op == "fdiv":
        return _divide(width, direction)
    if op == "fsqrt":
        return _square_root(width, direction)
    if op == "fmul":
        return "\n".join((_parts("a", width), _parts("b", width), _PRODUCT, _rounded(width, direction, "product")))
    if op == "fma":
        parts = (*(_parts(name, width) for name in "abc"), _PRODUCT, _sum("product", "c", direction))
        return "\n".join((*parts, _rounded(width, direction, "total", "%lost")))
    if op == "fadd":
        parts = (_parts("a", width), _parts("b", width), _sum("a", "b", direction))
        return "\n".join((*parts, _rounded(width, direction, "total", "%lost")))
    if op == "fptrunc":
        return "\n".join((_parts("a", source), _rounded(width, direction, "a")))
    return "\n".join((_integer(op == "sitofp", source), _rounded(width, direction, "a")))


def _integer(signed: bool, source: int) -> str:
    kind = f"i{source}"
    negative = f"icmp slt {kind} %a, 0" if signed else "or i1 false, false"
    return f"""  %a.negative = {negative}
  %a.other = sub {kind} 0, %a
  %a.positive = select i1 %a.negative, {kind} %a.other, {kind} %a
  %a.magnitude = zext {kind} %a.positive to i256
  %a.exponent = add i32 0, 0"""


def _all_lanes(name: str, width: int, source: int, letters: str) -> str:
    """The function of 64 lanes: a loop around that of one."""
    parameters = ", ".join(f"<{LANES} x i{source}> %{x}" for x in letters)
    spaces = "\n".join(
        f"  %{x}.at = alloca <{LANES} x i{source}>\n  store <{LANES} x i{source}> %{x}, ptr %{x}.at" for x in letters
    )
    loads = "\n".join(
        f"  %{x}.one.at = getelementptr i{source}, ptr %{x}.at, i64 %lane\n  %{x}.one = load i{source}, ptr %{x}.one.at"
        for x in letters
    )
    arguments = ", ".join(f"i{source} %{x}.one" for x in letters)
    return f"""define internal <{LANES} x i{width}> @{name}.lanes({parameters}) {{
{spaces}
  %out = alloca <{LANES} x i{width}>
  br label %turn
turn:
  %lane = phi i64 [ 0, %0 ], [ %next, %turn ]
{loads}
  %one = call i{width} @{name}({arguments})
  %one.at = getelementptr i{width}, ptr %out, i64 %lane
  store i{width} %one, ptr %one.at
  %next = add i64 %lane, 1
  %again = icmp ult i64 %next, {LANES}
  br i1 %again, label %turn, label %done
done:
  %result = load <{LANES} x i{width}>, ptr %out
  ret <{LANES} x i{width}> %result
}}"""


def declarations(width: int, source: int) -> list[str]:
    """The intrinsics that the functions need."""
    counts = [f"declare i{n} @llvm.ctlz.i{n}(i{n}, i1)" for n in (64, 256)]
    pairs = [("smax", 32), ("smin", 32), ("umin", 64), ("umin", 128), ("umax", width), ("umax", source)]
    return [*counts, *(f"declare i{n} @llvm.{name}.i{n}(i{n}, i{n})" for name, n in pairs)]


def function(op: str, width: int, direction: int, source: int) -> tuple[str, list[str]]:
    """Name of the function of one lane (`.lanes` behind it: of 64) for a primitive, and the texts it needs.

    op: fadd, fmul, fdiv, fma, fsqrt on floats of `width` bits; fptrunc, sitofp, uitofp from `source` bits. Operands are
    finite, a divisor is not zero, a radicand not negative.
    """
    name = f"directed.{op}.{width}.{source}.{direction}"
    letters = "abc"[: {"fma": 3, "fsqrt": 1, "fptrunc": 1, "sitofp": 1, "uitofp": 1}.get(op, 2)]
    parameters = ", ".join(f"i{source} %{x}" for x in letters)
    one = f"define internal i{width} @{name}({parameters}) {{\n{_body(op, width, direction, source)}\n}}"
    lanes = _all_lanes(name, width, source, letters)
    return name, [*declarations(width, source), _round(width, direction), one, lanes]
