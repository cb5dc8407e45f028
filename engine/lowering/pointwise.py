"""Lowerings of element-wise operators: tables where an operator is one IR operation, functions where it is more.

A rule is `rule(e, *operands, **options) -> name`: `e` emits (see body.py), tensor operands come as names of statements
in the compute dtype, numbers as Python numbers. To add an operator, add a line to a table or a rule.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
import torch.fx

from ..unsupported import NoLowering
from .body import LOW_PRECISION, BodyBuilder, compute_dtype
from .lazy_tensors import Compute, Index, Value
from .registry import POINTWISE, lowering, promoted

if TYPE_CHECKING:
    from ...artifacts.context import CompileContext
    from .graph import GraphLowering

aten = torch.ops.aten
Rule = Callable[..., str]

HEAVY = frozenset(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
                   "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma",
                   "sigmoid", "pow", "atan2", "gelu", "silu", "sqrt", "rsqrt", "softplus", "elu"))

JUMPING = frozenset("floor ceil trunc round frac sign remainder fmod threshold".split())
"""Discontinuous operators: their 16-bit operands are rounded as in eager, since unrounded ones could jump."""

WIDE_NUMBERS = frozenset(("mul", "div", "lerp"))
"""For 16-bit floats on a CPU: operators that take a number unrounded; others round it to 16 bits, as ATen does."""

SAME_NAME_UNARY = (
    "neg", "abs", "sign", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin",
    "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
    "lgamma", "sigmoid", "bitwise_not",
)
ROUNDING = ("floor", "ceil", "trunc")  # on integers: nothing to do
SAME_NAME_BINARY = ("atan2", "hypot", "copysign", "nextafter", "minimum", "maximum", "fmin", "fmax")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")


def overloads(name: str, *which: str) -> list[Any]:
    """The overloads of `aten.name` that exist among `which` (all tensor forms when none is named)."""
    packet = getattr(aten, name)
    wanted = which or ("default", "Tensor", "Scalar", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor", "int", "other")
    found = [getattr(packet, o) for o in wanted if o in packet.overloads()]
    return [o for o in found if "Tensor" in str(o._schema.returns[0].type)]


def pointwise(*targets: Any, operands: int = 1, dtype: str = "result",
              check: Callable[..., None] | None = None) -> Callable[[Rule], Rule]:
    """Register a rule. The first `operands` arguments are tensors or numbers; the others are passed on.

    `dtype` is what the rule computes in: the "result"'s dtype; the operands' "promoted" dtype (comparisons); or each
    operand as it is ("own"). `check(dtype of the result, *args)` raises NoLowering for what the rule cannot do.
    """

    def register(rule: Rule) -> Rule:
        def lower(graph: GraphLowering, node: torch.fx.Node, *args: Any, **kwargs: Any) -> Value:
            if check is not None:
                check(node.meta["val"].dtype, *args)
            return apply(graph, node, rule, args[:operands], dtype, args[operands:], kwargs)

        lowering(*targets, kind=POINTWISE)(lower)
        return rule

    return register


def apply(graph: GraphLowering, node: torch.fx.Node, rule: Rule, operands: tuple[Any, ...], dtype: str = "result",
          options: tuple[Any, ...] = (), named: dict[str, Any] | None = None, boolean: tuple[int, ...] = ()) -> Value:
    """The lazy result of `rule` on broadcast operands; those at the positions `boolean` are given as bools."""
    fake = node.meta["val"]
    named = named or {}
    for operand in operands:
        if isinstance(operand, Value) and operand.device != fake.device:
            if operand.size or operand.device.type != "cpu" or fake.device.type != "cuda":
                raise NoLowering("operands on two devices")
            graph.realize(operand.base)  # a number: computed there, read here
    packet = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    common = promoted(operands) if dtype == "promoted" else fake.dtype
    inner = None if dtype == "own" else compute_dtype(common)
    dtypes = [torch.bool if i in boolean else inner for i in range(len(operands))]
    exact = dtype != "result" or packet in JUMPING
    low = common if common in LOW_PRECISION and fake.device.type == "cpu" else None
    narrow = [low if d is inner and is_narrowed(o, packet) else None for o, d in zip(operands, dtypes)]
    operands = tuple([o if n is None else number_in(o, n) for o, n in zip(operands, narrow)])
    if low is not None and packet in ("add", "sub", "rsub"):  # what the second operand is multiplied by
        options = tuple([number_in(o, low) for o in options])
        named = {name: number_in(value, low) for name, value in named.items()}
    result, rounding = fake.dtype, keeps_rounding(graph.context, node, fake.dtype)

    def compute(e: BodyBuilder, index: Index) -> str:
        given = zip(operands, dtypes, narrow)
        names = [_operand(e, operand, index, d, n or _stored(operand, exact)) for operand, d, n in given]
        e.device = fake.device.type
        name = e.cast(rule(e, *names, *options, **named), compute_dtype(result))
        return e.rounded(name, result) if rounding else name

    return graph.pointwise(node, fake, operands, compute, heavy=packet in HEAVY)


def is_narrowed(operand: Any, packet: str) -> bool:
    """Whether eager rounds an operand to 16 bits before it computes in 16 bits, if it is wider."""
    if isinstance(operand, Value) and (operand.dtype in LOW_PRECISION or operand.dtype.itemsize == 1):
        return False
    return packet not in WIDE_NUMBERS or bool(isinstance(operand, Value) and operand.size)


def number_in(operand: Any, dtype: torch.dtype) -> Any:
    """A Python number as it is in `dtype`; anything else is given back."""
    if type(operand) not in (int, float):
        return operand
    return torch.tensor(operand, dtype=torch.float64 if type(operand) is float else None).to(dtype).item()


def _stored(operand: Any, exact: bool) -> torch.dtype | None:
    """The 16-bit dtype of an operand that must be rounded as in eager, for discontinuous operators and predicates
    (is it infinite, is it equal)."""
    return operand.dtype if exact and isinstance(operand, Value) and operand.dtype in LOW_PRECISION else None


def keeps_rounding(context: CompileContext, node: torch.fx.Node, dtype: torch.dtype) -> bool:
    """Whether a low-precision result is rounded although it stays in a register, as eager rounds each operator's."""
    if dtype not in LOW_PRECISION:
        return False
    return context.decide(
        "intermediate-precision", node.name, ("float32", "eager"), "float32",
        "intermediate values stay float32, which is more accurate than rounding each operator's result",
        origins=(f"forward#{node.name}",),
    ) == "eager"


def lazily_rounded(graph: GraphLowering, node: torch.fx.Node, fake: torch.Tensor, inputs: Sequence[Any],
                   compute: Compute, heavy: bool = False) -> Value:
    """The lazy result of `compute`, whose last operation is wider than `fake` where that has 16 bits; rounded where
    `keeps_rounding` says so."""
    if not keeps_rounding(graph.context, node, fake.dtype):
        return graph.pointwise(node, fake, inputs, compute, heavy)
    return graph.pointwise(node, fake, inputs, lambda e, index: e.rounded(compute(e, index), fake.dtype), heavy)


def _operand(e: BodyBuilder, operand: Any, index: Index, dtype: torch.dtype | None, rounded: torch.dtype | None) -> Any:
    """The name of an operand in `dtype`, rounded to another before where one is given."""
    if not isinstance(operand, (Value, sympy.Expr)):
        return operand if dtype is None else e.constant(operand, dtype)
    name = operand.broadcast(e, index) if isinstance(operand, Value) else e.number(operand)
    name = name if rounded is None else e.rounded(name, rounded)
    return name if dtype is None else e.cast(name, dtype)


def _as_wide_as_computed(dtype: torch.dtype, *_: Any) -> None:
    """The next 16-bit float is not the next float32."""
    if dtype in LOW_PRECISION:
        raise NoLowering("nextafter of 16-bit floats is left to ATen")


def _table() -> None:
    def unary(op: str) -> Rule:
        return lambda e, x: e(op, x)

    def binary(op: str) -> Rule:
        return lambda e, x, y: e(op, x, y)

    for name in SAME_NAME_UNARY:
        pointwise(*overloads(name))(unary(name))
    for name in ROUNDING:
        pointwise(*overloads(name))(lambda e, x, op=name: e(op, x) if e.dtypes[x].is_floating_point else x)
    for name in SAME_NAME_BINARY:
        check = _as_wide_as_computed if name == "nextafter" else None
        pointwise(*overloads(name), operands=2, check=check)(binary(name))
    for name in COMPARE:
        pointwise(*overloads(name), operands=2, dtype="promoted")(binary(name))
    for name in BITWISE:
        pointwise(*overloads(name), operands=2)(binary(name))


_table()


# ---- arithmetic
def multiply_add(e: BodyBuilder, x: str, y: Any, z: str) -> str:
    """x * y + z: of floats without rounding the product, as eager's vectors compute it."""
    return e("fma", x, y, z) if e.dtypes[x].is_floating_point else e("add", z, e("mul", x, y))


def _scaled(e: BodyBuilder, op: str, x: str, y: str, alpha: Any) -> str:
    """x + alpha * y, or the difference."""
    if not e.dtypes[x].is_floating_point:
        return e(op, x, e("mul", y, alpha))
    return multiply_add(e, y, -alpha if op == "sub" else alpha, x)


@pointwise(*overloads("add"), operands=2)
def _add(e: BodyBuilder, x: str, y: str, alpha: Any = 1) -> str:
    return e("add", x, y) if alpha == 1 else _scaled(e, "add", x, y, alpha)


@pointwise(*overloads("sub"), operands=2)
def _sub(e: BodyBuilder, x: str, y: str, alpha: Any = 1) -> str:
    return e("sub", x, y) if alpha == 1 else _scaled(e, "sub", x, y, alpha)


@pointwise(*overloads("rsub"), operands=2)
def _rsub(e: BodyBuilder, x: str, y: str, alpha: Any = 1) -> str:
    return e("sub", y, x) if alpha == 1 else _scaled(e, "sub", y, x, alpha)


@pointwise(*overloads("mul"), operands=2)
def _mul(e: BodyBuilder, x: str, y: str) -> str:
    return e("mul", x, y)


@pointwise(*overloads("div", "Tensor", "Scalar"), operands=2)
def _div(e: BodyBuilder, x: str, y: str) -> str:
    return e("truediv", x, y)


def _exact_quotient(dtype: torch.dtype, x: Any, y: Any, *_: Any) -> None:
    """Also: eager rounds a 16-bit quotient before it floors or truncates it, which is discontinuous."""
    _no_integer_division_by_zero(dtype, x, y)
    if dtype in LOW_PRECISION:
        raise NoLowering("a rounded quotient in 16 bits is left to ATen")


def _no_integer_division_by_zero(dtype: torch.dtype, x: Any, y: Any, *_: Any) -> None:
    """Eager raises where an integer divisor is zero: only divisors known to be nonzero are lowered."""
    if not dtype.is_floating_point and (isinstance(y, Value) or y == 0):
        raise NoLowering("an integer divisor that may be zero raises in eager")


def floor_division(e: BodyBuilder, x: str, y: str) -> str:
    """Floor division as ATen's `div_floor_floating`, or of integers."""
    if not e.dtypes[x].is_floating_point:
        return e("floordiv", x, y)
    quotient = e("truediv", x, y)
    rest = e("fmod", x, y)
    down = e("truediv", e("sub", x, rest), y)
    down = e("where", _other_sign(e, rest, y), e("sub", down, 1), down)
    floored = e("floor", down)
    floored = e("where", e("gt", e("sub", down, floored), 0.5), e("add", floored, 1), floored)
    exact = e("where", e("ne", down, 0), floored, e("copysign", e.constant(0, e.dtypes[x]), quotient))
    return e("where", e("eq", y, 0), quotient, exact)


def remainder(e: BodyBuilder, x: str, y: str) -> str:
    """The remainder with the sign of the divisor, as ATen's `remainder`."""
    if not e.dtypes[x].is_floating_point:
        return e("mod", x, y)
    rest = e("fmod", x, y)
    return e("where", _other_sign(e, rest, y), e("add", rest, y), rest)


def _other_sign(e: BodyBuilder, rest: str, y: str) -> str:
    return e("logical_and", e("ne", rest, 0), e("ne", e("lt", y, 0), e("lt", rest, 0)))


@pointwise(*overloads("div", "Tensor_mode", "Scalar_mode"), operands=2, check=_exact_quotient)
def _div_mode(e: BodyBuilder, x: str, y: str, rounding_mode: str | None = None) -> str:
    if rounding_mode is None:
        return e("truediv", x, y)
    if rounding_mode == "floor":
        return floor_division(e, x, y)
    return e("trunc", e("truediv", x, y)) if e.dtypes[x].is_floating_point else e("truncdiv", x, y)


pointwise(*overloads("floor_divide"), operands=2, check=_exact_quotient)(floor_division)
pointwise(*overloads("remainder", "Tensor", "Scalar"), operands=2, check=_no_integer_division_by_zero)(remainder)


@pointwise(*overloads("fmod"), operands=2, check=_no_integer_division_by_zero)
def _fmod(e: BodyBuilder, x: str, y: str) -> str:
    return e("fmod", x, y)


@pointwise(aten.addcmul.default, operands=3)
def _addcmul(e: BodyBuilder, x: str, y: str, z: str, value: Any = 1) -> str:
    return multiply_add(e, e("mul", y, value) if value != 1 else y, z, x)


@pointwise(aten.addcdiv.default, operands=3)
def _addcdiv(e: BodyBuilder, x: str, y: str, z: str, value: Any = 1) -> str:
    return e("add", x, e("truediv", e("mul", y, value) if value != 1 else y, z))


@pointwise(aten.square.default)
def _square(e: BodyBuilder, x: str) -> str:
    return e("mul", x, x)


def _float_power(dtype: torch.dtype, x: Any, y: Any, *_: Any) -> None:
    if not dtype.is_floating_point:
        raise NoLowering("integer powers by a tensor are left to ATen")


@pointwise(*overloads("pow", "Tensor_Tensor", "Scalar"), operands=2, check=_float_power)
def _pow(e: BodyBuilder, x: str, y: str) -> str:
    return e("pow", x, y)


def _constant_exponent(dtype: torch.dtype, x: Any, exponent: Any) -> None:
    if isinstance(exponent, sympy.Expr):
        raise NoLowering("a symbolic exponent")
    if not dtype.is_floating_point and not (isinstance(exponent, int) and 0 <= exponent <= 64):
        raise NoLowering("an integer power that is not a small natural number")


@lowering(aten.pow.Tensor_Scalar, kind=POINTWISE)
def _pow_scalar(graph: GraphLowering, node: torch.fx.Node, x: Value, exponent: Any) -> Value:
    _constant_exponent(node.meta["val"].dtype, x, exponent)
    exponent = number_in(exponent, x.dtype) if x.dtype in LOW_PRECISION and x.device.type == "cpu" else exponent
    if x.dtype is torch.float32 and x.device.type == "cpu" and exponent in (4, 5, 6, 7, 8):
        return apply(graph, node, lambda e, name: _product_in_doubles(e, name, int(exponent)), (x,))
    return apply(graph, node, lambda e, name: _power(e, name, exponent, x.dtype), (x,))


def _power(e: BodyBuilder, x: str, exponent: Any, source: torch.dtype) -> str:
    """Constant exponents as ATen's own kernel treats them."""
    if not e.dtypes[x].is_floating_point:
        return _repeated_product(e, x, int(exponent))
    if source is torch.float16 and abs(exponent) == 0.5:  # there ATen calls pow, which differs at -inf and -0.0
        return e("pow", x, exponent)
    special = {
        0.5: lambda: e("sqrt", x), -0.5: lambda: e("rsqrt", x), -1: lambda: e("reciprocal", x), 1: lambda: x,
        2: lambda: e("mul", x, x), 3: lambda: e("mul", e("mul", x, x), x),
        -2: lambda: e("reciprocal", e("mul", x, x)), 0: lambda: e.constant(1, e.dtypes[x]),
    }
    return special[exponent]() if exponent in special else e("pow", x, exponent)


def _product_in_doubles(e: BodyBuilder, x: str, exponent: int) -> str:
    """A power of a float32: in doubles, which hold it, its products round as little as pow does, in a few cycles."""
    return e.cast(_repeated_product(e, e.cast(x, torch.float64), exponent), torch.float32)


def _repeated_product(e: BodyBuilder, x: str, exponent: int) -> str:
    result = e.constant(1, e.dtypes[x])
    while exponent:
        if exponent & 1:
            result = e("mul", result, x)
        x = e("mul", x, x)
        exponent >>= 1
    return result


@pointwise(*overloads("round", "default"))
def _round(e: BodyBuilder, x: str) -> str:
    return e("round", x) if e.dtypes[x].is_floating_point else x


@pointwise(aten.frac.default)
def _frac(e: BodyBuilder, x: str) -> str:
    return e("sub", x, e("trunc", x))


@pointwise(aten.logical_not.default, dtype="own")
def _logical_not(e: BodyBuilder, x: str) -> str:
    return e("logical_not", e.cast(x, torch.bool))


@pointwise(aten.isnan.default, dtype="own")
def _isnan(e: BodyBuilder, x: str) -> str:
    return e("isnan", x) if e.dtypes[x].is_floating_point else e.constant(False, torch.bool)


@pointwise(aten.isinf.default, dtype="own")
def _isinf(e: BodyBuilder, x: str) -> str:
    return e("isinf", x) if e.dtypes[x].is_floating_point else e.constant(False, torch.bool)


@pointwise(aten.signbit.default, dtype="own")
def _signbit(e: BodyBuilder, x: str) -> str:
    bits = {torch.float32: torch.int32, torch.float64: torch.int64}.get(e.dtypes[x])
    if e.dtypes[x] is torch.bool:
        return e.constant(False, torch.bool)
    return e("lt", x if bits is None else e.bitcast(x, bits), 0)


def _shift(op: str) -> Rule:
    """Shifts as ATen defines them: by a negative number or by all the bits gives 0, or the sign."""

    def rule(e: BodyBuilder, x: str, y: str) -> str:
        bits = torch.iinfo(e.dtypes[x]).bits
        known = e.known(y)
        last = bits - (1 if e.dtypes[x].is_signed else 0)
        if known is not None and 0 <= known < last:
            return e(op, x, y)
        inside = e("logical_and", e("ge", y, 0), e("lt", y, bits if op == "shl" else last))
        shifted = e(op, x, e("where", inside, y, e.constant(0, e.dtypes[x])))
        beyond = e("shr", x, last) if op == "shr" and e.dtypes[x].is_signed else e.constant(0, e.dtypes[x])
        return e("where", inside, shifted, beyond)

    return rule


pointwise(*overloads("bitwise_left_shift"), *overloads("__lshift__"), operands=2)(_shift("shl"))
pointwise(*overloads("bitwise_right_shift"), *overloads("__rshift__"), operands=2)(_shift("shr"))
