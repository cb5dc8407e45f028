"""Lowerings that concatenate or pad: cat, stack, constant padding, slice_scatter."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..ir.affine import Linear, Size, constant, less, size
from ..unsupported import NoLowering
from .body import BodyBuilder
from .lazy_tensors import Index, Value, offset
from .registry import GATHER, lowering
from .views import slice_start

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten
MASKED_PARTS = 4  # a cat of more parts is written part by part


@lowering(aten.cat.default, kind=GATHER)
def _cat(graph: GraphLowering, node: torch.fx.Node, tensors: Sequence[Value], dim: int = 0) -> Value:
    fake = node.meta["val"]
    at = dim % fake.dim()
    parts = [t for t in tensors if not (t.size == (0,) and fake.dim() != 1)]  # torch's legacy: skipped
    return joined(graph, node, parts, at)


@lowering(aten.stack.default, kind=GATHER)
def _stack(graph: GraphLowering, node: torch.fx.Node, tensors: Sequence[Value], dim: int = 0) -> Value:
    at = dim % node.meta["val"].dim()

    def lifted(t: Value) -> Value:
        return t.through(t.size[:at] + (1,) + t.size[at:], lambda index: index[:at] + index[at + 1:])

    return joined(graph, node, [lifted(t) for t in tensors], at)


def joined(graph: GraphLowering, node: torch.fx.Node, parts: Sequence[Value], at: int) -> Value:
    """The parts one after the other along dimension `at`: read under masks, or written part by part (a decision)."""
    dtype = node.meta["val"].dtype
    if _bits_are_seen(dtype, parts):
        default, why = "parts", "some inputs are copied and some converted: a copy keeps the bits of NaNs"
    elif len(parts) <= MASKED_PARTS and node.name not in graph.leaving:
        default, why = "masked", "few inputs, and loops read the result: each element selects its input"
    else:
        default, why = "parts", "many inputs, or read by an extern kernel: each input is written by its own loop"
    origins = (f"forward#{node.name}",)
    chosen = graph.context.decide("concat", node.name, ("masked", "parts"), default, why, origins=origins)
    starts: list[Size] = []
    end: Size = 0
    for part in parts:
        starts.append(end)
        end = size(end + part.size[at])
    if chosen == "parts":
        return _written_by_parts(graph, node, parts, starts, at)
    for part in parts:
        if part.base.heavy and not part.base.buffer and part.device.type == "cpu":
            graph.decide_stored(part.base, "each point of a cat computes all parts, and picks one")

    def pick(e: BodyBuilder, index: Index, n: int) -> str:
        def element() -> str:
            moved = index[:at] + (index[at] - starts[n],) + index[at + 1:]
            return e.rounded(parts[n].load(e, moved), dtype) if parts[n].dtype is not dtype else parts[n].load(e, moved)

        if n == len(parts) - 1:
            return element() if n == 0 else e.masked(_inside(e, index[at], starts[n], None), element, 0)
        rest = pick(e, index, n + 1)
        here = _inside(e, index[at], starts[n] if n else None, starts[n + 1])  # nothing before it may be read
        return e.masked(here, element, rest)

    return graph.gather(node, parts, lambda e, index: pick(e, index, 0))


def _bits_are_seen(dtype: torch.dtype, parts: Sequence[Value]) -> bool:
    """Whether 16-bit floats are concatenated with others that are converted (see `scheduler/cpu/bitwise_copies.py`)."""
    same = [part.dtype is dtype for part in parts]
    return dtype in (torch.float16, torch.bfloat16) and any(same) and not all(same)


def _inside(e: BodyBuilder, place: Linear, start: Size | None, end: Size | None) -> str:
    """Whether start <= place < end; constant where the bounds of `place` decide it."""
    conditions = []
    low, high = place.bounds
    if start is not None and not (low is not None and not less(low, start) and less(size(start - 1), low)):
        conditions.append(e("ge", e.index_value(place), e.index_value(constant(start))))
    if end is not None and not (high is not None and less(high, end)):
        conditions.append(e("lt", e.index_value(place), e.index_value(constant(end))))
    if not conditions:
        return e.constant(True, torch.bool)
    return conditions[0] if len(conditions) == 1 else e("logical_and", *conditions)


def _written_by_parts(graph: GraphLowering, node: torch.fx.Node, parts: Sequence[Value], starts: Sequence[Size],
                      at: int) -> Value:
    base = graph.base_of(node.meta["val"], node.name)
    name = graph.new_buffer(base)
    for part, start in zip(parts, starts):
        if 0 in part.size:
            continue

        def emit(e: BodyBuilder, index: Index, _: Index, part: Value = part, start: Size = start) -> None:
            e.origin = node.name
            there = index[:at] + (index[at] + start,) + index[at + 1:]
            e.store(name, offset(there, base.stride), part.load(e, index), base.dtype)

        graph.loops(part.size, base.stride, (), emit)
    base.buffer = name
    return Value(base, base.size)


# ---- padding and scatter by slices
@lowering(aten.constant_pad_nd.default, kind=GATHER)
def _constant_pad_nd(graph: GraphLowering, node: torch.fx.Node, x: Value, pad: Sequence[Size], value: Any = 0) -> Value:
    rank = len(x.size)
    before = {rank - 1 - i // 2: pad[i] for i in range(0, len(pad), 2)}

    def compute(e: BodyBuilder, index: Index) -> str:
        moved = tuple([i - before[d] if d in before else i for d, i in enumerate(index)])
        conditions = [_inside(e, moved[d], 0, x.size[d]) for d in before]
        return e.masked(_all(e, conditions), lambda: x.load(e, moved), value)

    padded = graph.gather(node, (x,), compute)
    if len(node.users) > 1 and x.device.type == "cpu" and not padded.base.buffer and _is_turned(node):
        graph.decide_stored(padded.base, "several of its elements are read, and they are strided in the padded tensor")
    return padded


def _is_turned(node: torch.fx.Node) -> bool:
    """Whether rows are contiguous in a node's value, and strided in its first argument."""
    source: Any = node.args[0]
    before, after = (value.meta["val"].stride()[-1:] for value in (source, node))
    return bool(after == (1,) and type(before[0]) is int and before[0] > 1)


def inside(e: BodyBuilder, index: Index, sizes: Sequence[Size]) -> str:
    """Whether an index lies inside a tensor of these sizes."""
    return _all(e, [_inside(e, i, 0, n) for i, n in zip(index, sizes)])


def _all(e: BodyBuilder, conditions: Sequence[str]) -> str:
    result = e.constant(True, torch.bool)
    for condition in conditions:
        if e.known(condition) is not True:
            result = condition if e.known(result) is True else e("logical_and", result, condition)
    return result


@lowering(aten.slice_scatter.default, kind=GATHER)
def _slice_scatter(graph: GraphLowering, node: torch.fx.Node, x: Value, source: Value, dim: int = 0, start: Any = None,
                   end: Any = None, step: Any = 1) -> Value:
    at = dim % len(x.size)
    begin, length = slice_start(node, start, x.size[at], at), source.size[at]
    if type(step) is not int or 0 in source.size:
        raise NoLowering("slice_scatter of nothing or with a symbolic step")

    def compute(e: BodyBuilder, index: Index) -> str:
        place = index[at] - begin
        within = _inside(e, place, 0, size((length - 1) * step + 1))
        if step != 1:
            on_step = e("eq", e.index_value(place % step), 0)
            within = _all(e, [within, on_step])
        moved = index[:at] + (place // step if step != 1 else place,) + index[at + 1:]
        return e.masked(within, lambda: e.rounded(source.load(e, moved), x.dtype), x.load(e, index))

    return graph.gather(node, (x, source), compute)


@lowering(aten.select_scatter.default, kind=GATHER)
def _select_scatter(graph: GraphLowering, node: torch.fx.Node, x: Value, source: Value, dim: int,
                    position: Any) -> Value:
    at = dim % len(x.size)
    if type(position) is not int:
        raise NoLowering("a symbolic position")
    where = constant(position if position >= 0 else size(x.size[at] + position))

    def compute(e: BodyBuilder, index: Index) -> str:
        here = e("eq", e.index_value(index[at]), e.index_value(where))
        rest = index[:at] + index[at + 1:]
        return e.masked(here, lambda: e.rounded(source.load(e, rest), x.dtype), x.load(e, index))

    return graph.gather(node, (x, source), compute)


@lowering(aten.diagonal_scatter.default, kind=GATHER)
def _diagonal_scatter(graph: GraphLowering, node: torch.fx.Node, x: Value, source: Value, shift: int = 0, dim1: int = 0,
                      dim2: int = 1) -> Value:
    rank = len(x.size)
    a, b = dim1 % rank, dim2 % rank

    def compute(e: BodyBuilder, index: Index) -> str:
        on_diagonal = e("eq", e.index_value(index[b] - index[a]), shift)
        along = index[a] + min(shift, 0)
        rest = tuple([i for d, i in enumerate(index) if d not in (a, b)])
        return e.masked(on_diagonal, lambda: e.rounded(source.load(e, (*rest, along)), x.dtype), x.load(e, index))

    return graph.gather(node, (x, source), compute)
