"""Lowerings that create tensors, and dtype conversions."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy
import torch
import torch._prims  # registers the operators that are named here
import torch.fx

from ..ir.affine import constant, size
from ..unsupported import EngineUnsupported, NoLowering
from .body import LOW_PRECISION, BodyBuilder, compute_dtype
from .lazy_tensors import Index, Value
from .pointwise import apply, number_in
from .registry import POINTWISE, lowering

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten


def filled(graph: GraphLowering, node: torch.fx.Node, value: Any) -> Value:
    """A tensor with the node's metadata, all `value` (a Python number or an integer expression)."""
    fake = node.meta["val"]
    if isinstance(value, sympy.Expr) and not value.is_integer:
        raise NoLowering("a symbolic number that is not an integer")

    def compute(e: BodyBuilder, index: Index) -> str:
        if isinstance(value, sympy.Expr):
            return e.cast(e.index_value(constant(value)), compute_dtype(fake.dtype))
        return e.constant(number_in(value, fake.dtype) if fake.dtype in LOW_PRECISION else value, fake.dtype)

    return graph.pointwise(node, fake, (), compute)


@lowering(aten.full.default, kind=POINTWISE)
def _full(graph: GraphLowering, node: torch.fx.Node, shape: Any, value: Any, **_: Any) -> Value:
    return filled(graph, node, value)


@lowering(aten.full_like.default, aten.new_full.default, kind=POINTWISE)
def _full_like(graph: GraphLowering, node: torch.fx.Node, x: Any, *rest: Any, **_: Any) -> Value:
    return filled(graph, node, rest[-1])


@lowering(
    aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default, aten._efficientzerotensor.default,
    kind=POINTWISE,
)
def _zeros(graph: GraphLowering, node: torch.fx.Node, *_: Any, **__: Any) -> Value:
    return filled(graph, node, 0)


def _check_undefined() -> None:
    """Raises NoLowering where what is in new memory is defined: torch's deterministic mode fills it."""
    if torch.are_deterministic_algorithms_enabled() and torch._C._get_deterministic_fill_uninitialized_memory():
        raise NoLowering("the deterministic mode fills new memory")


@lowering(aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default, kind=POINTWISE)
def _empty(graph: GraphLowering, node: torch.fx.Node, *_: Any, **__: Any) -> Value:
    """What `empty` leaves undefined is zero."""
    _check_undefined()
    return filled(graph, node, 0)


@lowering(aten.empty_strided.default, aten.new_empty_strided.default, kind=POINTWISE)
def _empty_strided(graph: GraphLowering, node: torch.fx.Node, *_: Any, **__: Any) -> Value:
    fake = node.meta["val"]
    if any(stride == 0 and length != 1 for length, stride in zip(fake.shape, fake.stride())):
        raise EngineUnsupported(f"several elements of {node.name} share memory")
    _check_undefined()
    return filled(graph, node, 0)


@lowering(aten.ones.default, aten.ones_like.default, aten.new_ones.default, kind=POINTWISE)
def _ones(graph: GraphLowering, node: torch.fx.Node, *_: Any, **__: Any) -> Value:
    return filled(graph, node, 1)


@lowering(aten.scalar_tensor.default, kind=POINTWISE)
def _scalar_tensor(graph: GraphLowering, node: torch.fx.Node, value: Any, **_: Any) -> Value:
    return filled(graph, node, value)


@lowering(aten.fill.Scalar, aten.fill.Tensor, kind=POINTWISE)
def _fill(graph: GraphLowering, node: torch.fx.Node, x: Value, value: Any) -> Value:
    return apply(graph, node, lambda e, v: v, (value,)) if isinstance(value, Value) else filled(graph, node, value)


@lowering(aten.arange.default, kind=POINTWISE)
def _arange(graph: GraphLowering, node: torch.fx.Node, end: Any, **_: Any) -> Value:
    return ramp(graph, node, 0, 1)


@lowering(aten.arange.start, kind=POINTWISE)
def _arange_start(graph: GraphLowering, node: torch.fx.Node, start: Any, end: Any, **_: Any) -> Value:
    return ramp(graph, node, start, 1)


@lowering(aten.arange.start_step, kind=POINTWISE)
def _arange_step(graph: GraphLowering, node: torch.fx.Node, start: Any, end: Any, step: Any = 1, **_: Any) -> Value:
    return ramp(graph, node, start, step)


def ramp(graph: GraphLowering, node: torch.fx.Node, start: Any, step: Any) -> Value:
    """start + step*i, in int64, or in float64 as ATen's kernel does for floats; for integers, both are truncated
    first."""
    fake = node.meta["val"]
    if any(isinstance(v, sympy.Expr) and not v.is_integer for v in (start, step)):
        raise NoLowering("a symbolic number that is not an integer")
    if not fake.dtype.is_floating_point:
        start, step = (int(v) if isinstance(v, float) else v for v in (start, step))

    def compute(e: BodyBuilder, index: Index) -> str:
        if isinstance(start, float) or isinstance(step, float):
            place = e.cast(e.index_value(index[0]), torch.float64)
            scaled = e("mul", place, _float(e, step)) if step != 1 else place
            value = e("add", scaled, _float(e, start)) if start != 0 else scaled
        else:
            value = e.index_value(index[0] * size(step) + constant(size(start)))
        return e.rounded(value, fake.dtype)

    return graph.pointwise(node, fake, (), compute)


def _float(e: BodyBuilder, value: Any) -> str:
    if isinstance(value, sympy.Expr):
        return e.cast(e.index_value(constant(value)), torch.float64)
    return e.constant(value, torch.float64)


@lowering(torch.ops.prims.iota.default, kind=POINTWISE)
def _iota(graph: GraphLowering, node: torch.fx.Node, length: Any, *, start: Any, step: Any, **_: Any) -> Value:
    return ramp(graph, node, start, step)


@lowering(aten.tril.default, aten.triu.default, kind=POINTWISE)
def _triangle(graph: GraphLowering, node: torch.fx.Node, x: Value, diagonal: Any = 0) -> Value:
    lower = node.target is aten.tril.default

    def compute(e: BodyBuilder, index: Index) -> str:
        row, column = e.index_value(index[-2] + size(diagonal)), e.index_value(index[-1])
        keep = e("ge" if lower else "le", row, column)
        value = x.load(e, index)
        return e("where", keep, value, 0)

    return graph.pointwise(node, node.meta["val"], (x,), compute)


# ---- conversions
@lowering(aten._to_copy.default, kind=POINTWISE)
def _to_copy(graph: GraphLowering, node: torch.fx.Node, x: Value, **_: Any) -> Value:
    return converted(graph, node, x)


@lowering(aten.copy.default, kind=POINTWISE)
def _copy(graph: GraphLowering, node: torch.fx.Node, x: Value, source: Value, non_blocking: bool = False) -> Value:
    """The source in the shape, layout and dtype of `x`."""
    fake = node.meta["val"]
    if source.device != fake.device:
        raise NoLowering("a copy between devices")
    same = source.dtype is fake.dtype

    def compute(e: BodyBuilder, index: Index) -> str:
        name = source.broadcast(e, index)
        if not same and node.meta.get("explicit"):
            name = e.rounded(name, source.dtype)
        return name if same else e.rounded(name, fake.dtype)

    return graph.pointwise(node, fake, (source,), compute)


@lowering(torch.ops.prims.convert_element_type.default, kind=POINTWISE)
def _convert(graph: GraphLowering, node: torch.fx.Node, x: Value, dtype: torch.dtype) -> Value:
    return converted(graph, node, x)


def converted(graph: GraphLowering, node: torch.fx.Node, x: Value) -> Value:
    """`x` in the dtype of the node: an explicit conversion always rounds, also to the dtype that it converts
    from."""
    fake = node.meta["val"]
    if x.device != fake.device:
        raise NoLowering("a copy between devices")

    def compute(e: BodyBuilder, index: Index) -> str:
        name = x.load(e, index)
        if node.meta.get("explicit") or not fake.dtype.is_floating_point:
            # of 16 bits, rounded as in eager: truncation jumps at integers
            name = e.rounded(name, x.dtype)
        return name if x.dtype is fake.dtype else e.rounded(name, fake.dtype)

    return graph.pointwise(node, fake, (x,), compute)


@lowering(aten.view.dtype, kind=POINTWISE)
def _bitcast(graph: GraphLowering, node: torch.fx.Node, x: Value, dtype: torch.dtype) -> Value:
    if x.dtype.itemsize != dtype.itemsize:
        raise NoLowering("view(dtype) that changes the size of elements")
    if x.dtype is dtype:
        return x

    def compute(e: BodyBuilder, index: Index) -> str:
        name = e.bitcast(e.cast(x.load(e, index), x.dtype), dtype)
        return e.cast(name, compute_dtype(dtype))

    return graph.pointwise(node, node.meta["val"], (x,), compute)
