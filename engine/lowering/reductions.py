"""Lowerings of reductions: each is a body with reduction axes that stores one or more results."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
import torch.fx

from ..ir.affine import Size, constant, less, product, size, sizes
from ..unsupported import NoLowering
from .body import LOW_PRECISION, BodyBuilder, compute_dtype
from .lazy_tensors import Base, Index, Value, offset, weight
from .realization import rows_at_once
from .registry import COMPOSITE, REDUCTION, lowering
from .views import regroup

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten


def reduced_dims(x: Value, dims: Any) -> tuple[int, ...]:
    """The dimensions to reduce, non-negative and sorted; all of them for None or ()."""
    rank = len(x.size)
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return tuple(range(rank))
    given = [dims] if isinstance(dims, int) else dims
    return tuple(sorted({d % rank for d in given})) if rank else ()


def full_index(rank: int, dims: Sequence[int], index: Index, inner: Index, keepdim: bool) -> Index:
    """The input's index from the result's index and the reduction index."""
    outer = iter(index if not keepdim else [i for d, i in enumerate(index) if d not in dims])
    summed = dict(zip(dims, inner))
    return tuple([summed[d] if d in summed else next(outer) for d in range(rank)])


def along_memory(node: torch.fx.Node, dims: Sequence[int]) -> tuple[int, ...]:
    """`dims` of the input, the largest stride outermost: for reductions that may take elements in any order."""
    strides = sizes(node.all_input_nodes[0].meta["val"].stride())
    return tuple(sorted(dims, key=lambda d: weight(strides[d]), reverse=True))


def reduction(graph: GraphLowering, fakes: Sequence[torch.Tensor], x: Value, dims: tuple[int, ...], keepdim: bool,
              emit: Callable[[BodyBuilder, str], Sequence[str]]) -> list[Value]:
    """One body that reduces `x`: `emit(builder, element)` gives a statement for each result.

    The results, of one shape, are stored to buffers with the metadata of `fakes`.
    """
    node = graph.node
    bases = [graph.base_of(fake, node.name) for fake in fakes]
    first = bases[0]
    names = [graph.new_buffer(base) for base in bases]
    rank = len(x.size)

    def body(e: BodyBuilder, index: Index, inner: Index) -> None:
        e.origin = node.name
        element = x.load(e, full_index(rank, dims, index, inner, keepdim))
        for name, base, result in zip(names, bases, emit(e, element)):
            e.store(name, offset(index, base.stride), result, base.dtype)

    graph.loops(first.size, first.stride, [x.size[d] for d in dims], body)
    values = []
    for name, base in zip(names, bases):
        base.buffer = name
        values.append(Value(base, base.size))
    return values


OF_NOTHING = frozenset((aten.any.dims, aten.all.dims))
"""Reductions of which an empty list of dimensions reduces none; that of others is all of them."""


def _simple(kind: str, accumulate: Callable[[torch.dtype, torch.dtype], torch.dtype]) -> Callable[..., Value]:
    def lower(graph: GraphLowering, node: torch.fx.Node, x: Value, dims: Any = None, keepdim: bool = False,
              dtype: Any = None) -> Value:
        fake = node.meta["val"]
        none = dims is not None and node.target in OF_NOTHING and not dims
        over = () if none else along_memory(node, reduced_dims(x, dims))
        wide = compute_dtype(accumulate(x.dtype, fake.dtype))
        narrowed = fake.dtype in LOW_PRECISION and x.dtype is not fake.dtype  # each element, before the sum

        on_bool = {"max": "any", "min": "all"}.get(kind, kind) if wide is torch.bool else kind

        def emit(e: BodyBuilder, element: str) -> list[str]:
            element = e.rounded(element, x.dtype) if wide is torch.bool else element  # which may be zero then
            element = as_stored(e, node, element, x.dtype)
            element = e.rounded(element, fake.dtype) if narrowed else e.cast(element, wide)
            return [e.reduce(on_bool, element, wide)]

        return (_in_two_steps(graph, fake, x, over, on_bool, wide, lambda e, element: emit(e, element)[0])
                or reduction(graph, [fake], x, over, keepdim, emit)[0])

    return lower


def _in_two_steps(graph: GraphLowering, fake: torch.Tensor, x: Value, dims: tuple[int, ...], kind: str,
                  wide: torch.dtype, emit: Callable[[BodyBuilder, str], str],
                  finish: Callable[[BodyBuilder, str], str] = lambda e, result: result) -> Value | None:
    """`x` reduced to few columns, several rows as one, and then the results of these; None where rows are taken one by
    one (see `rows_at_once`). `emit` gives the first step's statement of `kind`, in `wide`."""
    node, columns = graph.node, x.size[-1] if x.size else 1
    taken = rows_at_once(node.all_input_nodes[0].meta["val"], dims) if x.device.type == "cpu" and dims else 1
    if taken == 1:
        return None
    shape = (product(x.size[:-1]) // taken, taken, columns)
    rows = x.through(shape, regroup(x.size, shape))
    parts = Base(node.name, shape[1:], (columns, 1), wide, x.device)
    name = graph.new_buffer(parts)

    def first(e: BodyBuilder, index: Index, inner: Index) -> None:
        e.origin = node.name
        e.store(name, offset(index, parts.stride), emit(e, rows.load(e, (*inner, *index))), wide)

    graph.loops(parts.size, parts.stride, (shape[0],), first)
    parts.buffer = name
    result = graph.base_of(fake, node.name)
    result_name = graph.new_buffer(result)

    def second(e: BodyBuilder, index: Index, inner: Index) -> None:
        e.origin = node.name
        part = e.load(name, offset((*inner, index[-1]), parts.stride), wide)
        e.store(result_name, offset(index, result.stride), finish(e, e.reduce(kind, part, wide)), result.dtype)

    graph.loops(result.size, result.stride, (taken,), second)
    result.buffer = result_name
    return Value(result, result.size)


lowering(aten.sum.dim_IntList, aten.sum.default, kind=REDUCTION)(_simple("sum", lambda source, result: result))
lowering(aten.amax.default, kind=REDUCTION)(_simple("max", lambda source, result: source))
lowering(aten.amin.default, kind=REDUCTION)(_simple("min", lambda source, result: source))
lowering(aten.max.default, kind=REDUCTION)(_simple("max", lambda source, result: source))
lowering(aten.min.default, kind=REDUCTION)(_simple("min", lambda source, result: source))
lowering(aten.any.default, aten.any.dim, aten.any.dims, kind=REDUCTION)(_simple("any", lambda s, r: torch.bool))
lowering(aten.all.default, aten.all.dim, aten.all.dims, kind=REDUCTION)(_simple("all", lambda s, r: torch.bool))
lowering(aten.prod.default, aten.prod.dim_int, kind=REDUCTION)(_simple("prod", lambda source, result: result))


@lowering(aten.mean.dim, aten.mean.default, kind=REDUCTION)
def _mean(graph: GraphLowering, node: torch.fx.Node, x: Value, dims: Any = None, keepdim: bool = False,
          dtype: Any = None) -> Value:
    fake = node.meta["val"]
    over = along_memory(node, reduced_dims(x, dims))
    count = product(x.size[d] for d in over)

    wide = compute_dtype(fake.dtype)

    def total(e: BodyBuilder, element: str) -> str:
        return e.reduce("sum", e.cast(as_stored(e, node, element, x.dtype), wide), wide)

    def divided(e: BodyBuilder, total: str) -> str:
        return e("truediv", total, number(e, count, wide))

    return (_in_two_steps(graph, fake, x, over, "sum", wide, total, divided)
            or reduction(graph, [fake], x, over, keepdim, lambda e, element: [divided(e, total(e, element))])[0])


@lowering(aten.linalg_vector_norm.default, kind=REDUCTION)
def _vector_norm(graph: GraphLowering, node: torch.fx.Node, x: Value, order: Any = 2, dims: Any = None,
                 keepdim: bool = False, dtype: Any = None) -> Value:
    """As ATen (aten/src/ATen/native/cpu/ReduceOpsKernel.cpp): the plain sum of powers, and its root."""
    fake = node.meta["val"]
    kind = {float("inf"): "max", float("-inf"): "min"}.get(order, "sum")
    over = along_memory(node, reduced_dims(x, dims))
    if not x.dtype.is_floating_point or 0 in x.size or isinstance(order, sympy.Expr):
        raise NoLowering(f"a norm of order {order}, of {x.dtype}, or of nothing")
    wide = compute_dtype(fake.dtype)

    def emit(e: BodyBuilder, element: str) -> list[str]:
        element = e.cast(as_stored(e, node, element, x.dtype), wide)
        if order == 0:
            part = e.cast(e("ne", element, 0), wide)
        elif order == 2:
            part = e("mul", element, element)
        else:
            part = e("abs", element)
            part = part if order == 1 or kind != "sum" else e("pow", part, float(order))
        total = e.reduce(kind, part, wide)
        if order == 2:
            return [e("sqrt", total)]
        return [total if order in (0, 1) or kind != "sum" else e("pow", total, 1.0 / order)]

    return reduction(graph, [fake], x, over, keepdim, emit)[0]


def as_stored(e: BodyBuilder, node: torch.fx.Node, element: str, dtype: torch.dtype) -> str:
    """An element of an operand of `dtype`, rounded as eager stores it, where the result's dtype is explicit."""
    converts = node.meta.get("explicit") and node.meta["val"].dtype is not dtype
    return e.rounded(element, dtype) if converts else element


def number(e: BodyBuilder, value: Size, dtype: torch.dtype) -> str:
    """A size as a value of `dtype`."""
    return e.cast(e.index_value(constant(value)), dtype) if type(value) is not int else e.constant(value, dtype)


def _arg(kind: str, plain: str) -> None:
    def find(e: BodyBuilder, element: str) -> str:
        if e.dtypes[element] is torch.bool:
            element = e.cast(element, torch.uint8)
        return e.reduce(kind, element, torch.int64)

    def position(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        return reduction(graph, [node.meta["val"]], x, reduced_dims(x, dim), keepdim,
                         lambda e, element: [find(e, element)])[0]

    def extreme(e: BodyBuilder, element: str) -> str:
        dtype = e.dtypes[element]
        on_bool = "any" if plain == "max" else "all"
        return e.reduce(on_bool if dtype is torch.bool else plain, element, dtype)

    def both(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, ...]:
        fakes, over = node.meta["val"], reduced_dims(x, dim)
        asked = {user.args[1] for user in node.users if user.users}
        if asked <= {0}:  # the index is unused
            value, = reduction(graph, [fakes[0]], x, over, keepdim, lambda e, element: [extreme(e, element)])
            return value, value
        return tuple(reduction(graph, list(fakes), x, over, keepdim,
                               lambda e, element: [extreme(e, element), find(e, element)]))

    lowering(getattr(aten, kind).default, kind=REDUCTION)(position)
    lowering(getattr(aten, plain).dim, kind=REDUCTION)(both)


_arg("argmax", "max")
_arg("argmin", "min")


# ---- variance
TWO_PASS_LIMIT = 65536  # elements of a row that stay in cache between two passes
IN_REGISTERS = 16384  # elements of a row that a GPU program keeps in registers
LONG_IN_REGISTERS = range(24577, 32769)  # with twice the warps; shorter ones would leave too many lanes without work


def moments(graph: GraphLowering, x: Value, dims: tuple[int, ...], mean_fake: Base, spread_fake: Base, keepdim: bool,
            finish: Callable[[BodyBuilder, str], str], corrected: bool = False) -> tuple[Value, Value]:
    """(mean, finish(sum of squared deviations)) over `dims`, as realized values with the given metadata.

    Two passes over short rows (as accurate as Welford's update, and vectorized better); one pass of Welford's
    algorithm over long ones: a decision. `corrected` adds in double, as eager's variance does, and also sums the
    deviations themselves, which takes the rounding of the mean out of the result (Chan, Golub and LeVeque, 1983).
    """
    node, rank = graph.node, len(x.size)
    count = product(x.size[d] for d in dims)
    on_cpu = x.device.type == "cpu"
    limit = TWO_PASS_LIMIT if on_cpu else IN_REGISTERS
    fits = on_cpu if type(count) is not int else count <= limit or (not on_cpu and count in LONG_IN_REGISTERS)
    short = fits and mean_fake.dtype not in LOW_PRECISION
    short = short and (on_cpu or not corrected)
    chosen = graph.context.decide(
        "variance", node.name, ("two-pass", "welford"), "two-pass" if short else "welford",
        f"rows of {count} elements " + ("stay in cache for a second pass" if short else
                                        "are too long to read twice" if on_cpu else "in one pass, as eager on a GPU"),
        origins=(f"forward#{node.name}",))
    wide = compute_dtype(spread_fake.dtype)
    sums = torch.float64 if corrected else wide
    mean_name, spread_name = graph.new_buffer(mean_fake), graph.new_buffer(spread_fake)
    reduced = [x.size[d] for d in dims]

    def element(e: BodyBuilder, index: Index, inner: Index) -> str:
        e.origin = node.name
        return e.cast(x.load(e, full_index(rank, dims, index, inner, keepdim)), wide)

    def store_mean(e: BodyBuilder, index: Index, value: str) -> None:
        e.store(mean_name, offset(index, mean_fake.stride), value, mean_fake.dtype)

    def store_spread(e: BodyBuilder, index: Index, value: str) -> None:
        e.store(spread_name, offset(index, spread_fake.stride), finish(e, value), spread_fake.dtype)

    def welford(e: BodyBuilder, index: Index, inner: Index) -> None:
        dtype = sums if on_cpu else wide  # as eager's on a GPU
        state = e.reduce("welford", e.cast(element(e, index, inner), dtype), dtype)
        store_mean(e, index, e.part(state, 0, dtype))
        store_spread(e, index, e.part(state, 1, dtype))

    def first_pass(e: BodyBuilder, index: Index, inner: Index) -> None:
        total = e.reduce("sum", e.cast(element(e, index, inner), sums), sums)
        store_mean(e, index, e("truediv", total, number(e, count, sums)))

    def second_pass(e: BodyBuilder, index: Index, inner: Index) -> None:
        value = element(e, index, inner)
        mean = e.load(mean_name, offset(index, mean_fake.stride), mean_fake.dtype)
        gap = e("sub", e.cast(value, sums), e.cast(mean, sums))
        squares = e.reduce("sum", e("mul", gap, gap), sums)
        if corrected:
            drift = e.reduce("sum", gap, sums)
            extra = e("mul", drift, e("truediv", drift, number(e, count, sums)))
            squares = e("where", e("lt", squares, math.inf), e("sub", squares, extra), squares)
        store_spread(e, index, squares)

    for emit in (welford,) if chosen == "welford" else (first_pass, second_pass):
        graph.loops(mean_fake.size, mean_fake.stride, reduced, emit)
    mean_fake.buffer, spread_fake.buffer = mean_name, spread_name
    return Value(mean_fake, mean_fake.size), Value(spread_fake, spread_fake.size)


def _variance(finish: Callable[[BodyBuilder, str], str]) -> Callable[..., tuple[Value, Value]]:
    def lower(graph: GraphLowering, node: torch.fx.Node, x: Value, dims: Any = None, correction: Any = None,
              keepdim: bool = False) -> tuple[Value, Value]:
        correction = 1 if correction is None else correction
        over = along_memory(node, reduced_dims(x, dims))
        count = product(x.size[d] for d in over)
        if (isinstance(correction, float) and not correction.is_integer()) or not x.dtype.is_floating_point:
            raise NoLowering("a variance with a fractional correction")
        degrees = size(count - int(correction))
        if type(degrees) is int and degrees < 0:
            degrees = 0
        if not x.base.buffer and x.base.heavy:
            graph.decide_stored(x.base, "both passes of the variance read it")
        fake = node.meta["val"]
        variance = graph.base_of(fake[0] if isinstance(fake, tuple) else fake, node.name)
        mean = graph.base_of(fake[1] if isinstance(fake, tuple) else fake, node.name)
        mean.dtype = mean.dtype if isinstance(fake, tuple) else compute_dtype(mean.dtype)

        def end(e: BodyBuilder, squares: str) -> str:
            count = number(e, degrees, e.dtypes[squares])
            if not less(-1, degrees):  # of a dynamic size: eager divides by 0 then
                count = e("maximum", count, 0.0)
            return finish(e, e("truediv", squares, count))

        middle, spread = moments(graph, x, over, mean, variance, keepdim, end, corrected=True)
        return spread, middle

    return lower


_var = _variance(lambda e, v: v)
_std = _variance(lambda e, v: e("sqrt", v))
lowering(aten.var_mean.correction, kind=COMPOSITE)(_var)
lowering(aten.std_mean.correction, kind=COMPOSITE)(_std)
lowering(aten.var.correction, kind=COMPOSITE)(lambda *args, **kwargs: _var(*args, **kwargs)[0])
lowering(aten.std.correction, kind=COMPOSITE)(lambda *args, **kwargs: _std(*args, **kwargs)[0])
