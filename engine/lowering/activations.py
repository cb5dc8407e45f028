"""Activation functions and other element-wise operators of several operations, each by the formula of ATen's kernel."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from .body import BodyBuilder
from .lazy_tensors import Value
from .pointwise import apply, multiply_add, overloads, pointwise
from .registry import POINTWISE, lowering

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten


def _is_number(e: BodyBuilder, operand: Any) -> bool:
    """Whether an operand is a number, as such or as a constant's name, and not NaN; a truth value is none."""
    value = e.known(operand) if type(operand) is str else operand
    return type(value) in (int, float) and value == value


def _at_least(e: BodyBuilder, x: str, low: Any) -> str:
    """`x`, or `low` where that is greater. Against a number, NaN and -0.0 of `x` stay, as in ATen's vectors (`clamp`),
    and on a GPU from torch 2.13 on; before, its `max` takes 0.0 for greater than -0.0.

    One comparison is enough; `maximum` also checks whether `low` is NaN, which a GPU does in the same instruction.
    """
    return e("where", e("lt", x, low), low, x) if _keeps_zeros(e, low) else e("maximum", x, low)


def _at_most(e: BodyBuilder, x: str, high: Any) -> str:
    return e("where", e("gt", x, high), high, x) if _keeps_zeros(e, high) else e("minimum", x, high)


def _keeps_zeros(e: BodyBuilder, bound: Any) -> bool:
    return _is_number(e, bound) and not (e.device == "cuda" and _ORDERED_ZEROS)


_ORDERED_ZEROS = torch.__version__ < "2.13"  # compared as versions, not as text


def _within(e: BodyBuilder, x: str, low: Any, high: Any) -> str:
    return _at_most(e, _at_least(e, x, low), high)


@pointwise(aten.relu.default)
def _relu(e: BodyBuilder, x: str) -> str:
    return _at_least(e, x, 0)


@pointwise(aten.gelu.default)
def _gelu(e: BodyBuilder, x: str, approximate: str = "none") -> str:
    if approximate == "tanh":
        beta = math.sqrt(2) * (2 / math.sqrt(math.pi)) * 0.5
        cube = e("mul", e("mul", x, x), x)
        inner = e("mul", e("add", x, e("mul", cube, 0.044715)), beta)
        return e("mul", e("mul", x, 0.5), e("add", e("tanh", inner), 1.0))
    return e("mul", e("mul", x, 0.5), e("add", e("erf", e("mul", x, math.sqrt(0.5))), 1.0))


@pointwise(aten.silu.default)
def _silu(e: BodyBuilder, x: str) -> str:
    if e.dtypes[x] is torch.float64:  # a sigmoid takes less than an exp: it has one factor of a power of two
        return e("mul", x, e("sigmoid", x))
    return e("truediv", x, e("add", e("exp", e("neg", x)), 1.0))


@pointwise(aten.leaky_relu.default)
def _leaky_relu(e: BodyBuilder, x: str, negative_slope: float = 0.01) -> str:
    return e("where", e("gt", x, 0), x, e("mul", x, negative_slope))


@pointwise(aten.elu.default)
def _elu(e: BodyBuilder, x: str, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> str:
    below = e("mul", e("expm1", e("mul", x, input_scale) if input_scale != 1 else x), alpha * scale)
    return e("where", e("le", x, 0), below, e("mul", x, scale) if scale != 1 else x)


@pointwise(aten.hardtanh.default)
def _hardtanh(e: BodyBuilder, x: str, min_val: Any = -1, max_val: Any = 1) -> str:
    return _within(e, x, min_val, max_val)


@pointwise(aten.hardsigmoid.default)
def _hardsigmoid(e: BodyBuilder, x: str) -> str:
    return e("truediv", _within(e, e("add", x, 3.0), 0.0, 6.0), 6.0)


@pointwise(aten.hardswish.default)
def _hardswish(e: BodyBuilder, x: str) -> str:
    return e("truediv", e("mul", x, _within(e, e("add", x, 3.0), 0.0, 6.0)), 6.0)


@pointwise(aten.softplus.default)
def _softplus(e: BodyBuilder, x: str, beta: Any = 1, threshold: Any = 20) -> str:
    scaled = e("mul", x, beta) if beta != 1 else x
    soft = e("log1p", e("exp", scaled))
    return e("where", e("gt", scaled, threshold), x, e("truediv", soft, beta) if beta != 1 else soft)


@pointwise(aten.softshrink.default)
def _softshrink(e: BodyBuilder, x: str, width: Any = 0.5) -> str:
    below = e("where", e("lt", x, -width), e("add", x, width), 0)
    return e("where", e("logical_or", e("gt", x, width), e("isnan", x)), e("sub", x, width), below)


@pointwise(aten.threshold.default)
def _threshold(e: BodyBuilder, x: str, threshold: Any, value: Any) -> str:
    return e("where", e("le", x, threshold), value, x)


@lowering(aten.nan_to_num.default, kind=POINTWISE)
def _nan_to_num(graph: GraphLowering, node: torch.fx.Node, x: Value, nan: float | None = None,
                posinf: float | None = None, neginf: float | None = None) -> Value:
    def rule(e: BodyBuilder, name: str) -> str:
        if not x.dtype.is_floating_point:
            return name
        limits, name = torch.finfo(x.dtype), e.rounded(name, x.dtype)  # which may overflow
        clean = e("where", e("isnan", name), 0.0 if nan is None else nan, name)
        clean = e("where", e("eq", name, math.inf), limits.max if posinf is None else posinf, clean)
        return e("where", e("eq", name, -math.inf), limits.min if neginf is None else neginf, clean)

    return apply(graph, node, rule, (x,))


@pointwise(aten.lerp.Scalar, aten.lerp.Tensor, operands=3)
def _lerp(e: BodyBuilder, x: str, y: str, weight: str) -> str:
    near = e("lt", e("abs", weight), 0.5)  # from the start: interpolating from the nearer end is exact there
    share = e("where", near, weight, e("sub", weight, 1))
    return multiply_add(e, share, e("sub", y, x), e("where", near, x, y))


# ---- choice
def _clamp(e: BodyBuilder, x: str, *bounds: Any) -> str:
    """Bounds come as (low, high), each a name or None."""
    low, high = bounds
    x = x if low is None else _at_least(e, x, low)
    return x if high is None else _at_most(e, x, high)


@lowering(*overloads("clamp", "default", "Tensor"), kind=POINTWISE)
def _clamp_lowering(graph: GraphLowering, node: torch.fx.Node, x: Value, min: Any = None, max: Any = None) -> Value:
    given = tuple(b for b in (min, max) if b is not None)

    def rule(e: BodyBuilder, x: str, *names: str) -> str:
        rest = list(names)
        return _clamp(e, x, None if min is None else rest.pop(0), None if max is None else rest.pop(0))

    return apply(graph, node, rule, (x, *given))


@pointwise(*overloads("clamp_min", "default", "Tensor"), operands=2)
def _clamp_min(e: BodyBuilder, x: str, low: str) -> str:
    return _at_least(e, x, low)


@pointwise(*overloads("clamp_max", "default", "Tensor"), operands=2)
def _clamp_max(e: BodyBuilder, x: str, high: str) -> str:
    return _at_most(e, x, high)


@lowering(*overloads("where", "self", "Scalar", "ScalarOther", "ScalarSelf"), kind=POINTWISE)
def _where(graph: GraphLowering, node: torch.fx.Node, condition: Value, x: Any, y: Any) -> Value:
    return choice(graph, node, condition, x, y)


@lowering(*overloads("masked_fill", "Scalar", "Tensor"), kind=POINTWISE)
def _masked_fill(graph: GraphLowering, node: torch.fx.Node, x: Value, mask: Value, value: Any) -> Value:
    return choice(graph, node, mask, value, x)


def choice(graph: GraphLowering, node: torch.fx.Node, condition: Value, x: Any, y: Any) -> Value:
    """`x` where the condition holds, else `y`, in the result's dtype."""

    def rule(e: BodyBuilder, x: str, y: str, c: str) -> str:
        return e("where", c, x, y)

    return apply(graph, node, rule, (x, y, condition), boolean=(2,))
