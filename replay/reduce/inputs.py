"""Makes the inputs of a failing graph simpler: smaller sizes, simpler values, dtypes and layouts; sizes made static."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ...artifacts.records import Node, SavedInput, TensorMeta
from ...dependencies import msgspec
from ..failures.case import Case
from ..recorded.graphs import size_value
from ..recorded.inputs import bind_symbols
from .ddmin import Reduction
from .subgraph import computed, eager_values, meta_of, with_graph

Value = Callable[[torch.Tensor], torch.Tensor]


def reduce_inputs(reduction: Reduction[Case]) -> None:
    """Each kind of simplification, for all inputs at once and then for single ones."""
    made = static(reduction.best)
    if made is not None:
        reduction.first([made])
    _sizes(reduction)
    for simpler in (_contiguous, _float32, _without_gradient, *LEVELS):
        _each(reduction, simpler)


def _each(reduction: Reduction[Case], simpler: Value) -> None:
    case = reduction.best
    names = [node.id for node, record in _tensors(case) if not _is(case, node.id, simpler)]
    reduction.take(names, lambda chosen: changed(case, dict.fromkeys(chosen, simpler)))


def _tensors(case: Case) -> list[tuple[Node, SavedInput]]:
    pairs = zip(computed(case.graph, "placeholder"), case.inputs.records)
    return [(node, record) for node, record in pairs if record.meta is not None]


def _value(case: Case, name: str) -> torch.Tensor:
    names = [node.id for node in computed(case.graph, "placeholder")]
    value: torch.Tensor = case.inputs.values()[names.index(name)]
    return value


def _is(case: Case, name: str, simpler: Value) -> bool:
    """Whether an input is that already, or as simple."""
    value = _value(case, name)
    if simpler is _without_gradient:
        return not _requires(case, name)
    if simpler in (_contiguous, _float32):
        made = simpler(value)
        return made.dtype == value.dtype and made.stride() == value.stride()
    return any(torch.equal(level(value), value) for level in LEVELS[: LEVELS.index(simpler) + 1])


def _requires(case: Case, name: str) -> bool:
    records = {node.id: record for node, record in _tensors(case)}
    meta = records[name].meta
    return meta is not None and meta.requires_grad


# ---- values, dtypes, layouts ----------------------------------------------------------------------------------------
def _float32(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.is_floating_point() else value


def _without_gradient(value: torch.Tensor) -> torch.Tensor:
    return value


def _contiguous(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous()


def _zeros(value: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(value)


def _ones(value: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(value)


def _counting(value: torch.Tensor) -> torch.Tensor:
    if value.dtype is torch.bool or not value.numel():
        return value
    return (torch.arange(value.numel()) % 7 - (3 if value.is_floating_point() else 0)).to(value.dtype).view(value.shape)


def _rounded(value: torch.Tensor) -> torch.Tensor:
    return (value * 4).round() / 4 if value.is_floating_point() else value


LEVELS: tuple[Value, ...] = (_zeros, _ones, _counting, _rounded)
"""Ways to simplify values, the simplest result first."""


def changed(case: Case, how: Mapping[str, Value]) -> Case:
    """The case with other values for some inputs, each in memory of its own."""
    new, nodes = [], []
    for node, record, value in zip(computed(case.graph, "placeholder"), case.inputs.records, case.inputs.values()):
        simpler = how.get(node.id)
        if simpler is not None and record.meta is not None:
            made = simpler(value)
            strides = value.stride() if made.shape == value.shape and simpler is not _contiguous else None
            made = made if strides is None else torch.empty_strided(made.shape, strides, dtype=made.dtype).copy_(made)
            needs = record.meta.requires_grad and simpler is not _without_gradient and made.is_floating_point()
            meta = msgspec.structs.replace(meta_of(made, needs), device=record.meta.device)
            new.append((SavedInput(node.id, meta), made))
            node = msgspec.structs.replace(node, value=meta)
        nodes.append(node)
    rest = [node for node in case.graph.nodes if node.op != "placeholder"]
    return with_graph(case, [*nodes, *rest], new)


# ---- sizes ----------------------------------------------------------------------------------------------------------
def static(case: Case) -> Case | None:
    """The case with numbers in the place of dynamic sizes; None if it has none."""
    symbols = bind_symbols(case.graph, case.inputs.values())
    if not symbols:
        return None
    nodes = [
        msgspec.structs.replace(node, args=_bound(node.args, symbols), kwargs=_bound(node.kwargs, symbols),
                                value=_bound_value(node.value, symbols)) for node in case.graph.nodes
    ]  # fmt: skip
    return with_graph(case, nodes)


def _bound(tree: Any, symbols: Mapping[str, float]) -> Any:
    if isinstance(tree, (list, tuple)):
        return type(tree)(_bound(part, symbols) for part in tree)
    if isinstance(tree, dict):
        if set(tree) == {"symbol"}:
            return size_value(tree["symbol"], symbols)
        return {key: _bound(part, symbols) for key, part in tree.items()}
    return tree


def _bound_value(value: Any, symbols: Mapping[str, float]) -> Any:
    if isinstance(value, tuple):
        return tuple(_bound_value(part, symbols) for part in value)
    if not isinstance(value, TensorMeta):
        return value
    shape, stride = (tuple(int(size_value(n, symbols)) for n in numbers) for numbers in (value.shape, value.stride))
    return msgspec.structs.replace(value, shape=shape, stride=stride, offset=int(size_value(value.offset, symbols)))


def _sizes(reduction: Reduction[Case]) -> None:
    """Each size becomes smaller wherever it occurs: in the shapes of inputs and in arguments."""
    tried: set[int] = set()
    while True:
        case = reduction.best
        sizes = {int(n) for _, record in _tensors(case) if record.meta for n in record.meta.shape} - tried
        size = max((n for n in sizes if n > 1), default=0)
        if not size:
            return
        tried.add(size)
        reduction.first(resized(case, size, smaller) for smaller in _smaller(size))


def _smaller(size: int) -> Iterator[int]:
    yield from (n for n in (1, 2, 3, 4, 8, 16, 32) if n < size)
    if size > 8:
        yield from (n for n in (size // 4, size // 2) if n > 4)


def resized(case: Case, size: int, smaller: int) -> Case:
    """The case in which every dimension of `size` is `smaller`."""
    def cut(value: torch.Tensor) -> torch.Tensor:
        for dim, n in enumerate(value.shape):
            if n == size:
                value = value.narrow(dim, 0, smaller)
        return value.contiguous()

    small = changed(case, {
        node.id: cut for node, record in _tensors(case) if record.meta is not None and size in record.meta.shape})
    nodes = [
        node if node.op == "placeholder" else msgspec.structs.replace(
            node, args=_renumbered(node.args, size, smaller), kwargs=_renumbered(node.kwargs, size, smaller))
        for node in small.graph.nodes
    ]  # fmt: skip
    return with_graph(small, nodes)


def _renumbered(tree: Any, size: int, smaller: int) -> Any:
    if isinstance(tree, (list, tuple)):
        return type(tree)(_renumbered(part, size, smaller) for part in tree)
    if isinstance(tree, dict) and "tensor" not in tree:
        return {key: _renumbered(part, size, smaller) for key, part in tree.items()}
    return smaller if type(tree) is int and tree == size else tree


def refreshed(case: Case) -> Case:
    """The case with the metadata of all nodes as eager has them now."""
    values = eager_values(case)
    nodes = []
    for node in case.graph.nodes:
        value = values.get(node.id)
        if isinstance(value, torch.Tensor) and node.op not in ("placeholder", "output"):
            needs = isinstance(node.value, TensorMeta) and node.value.requires_grad
            node = msgspec.structs.replace(node, value=meta_of(value, needs))
        nodes.append(node)
    return with_graph(case, nodes)
