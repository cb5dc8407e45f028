"""What a functional graph cannot express: which results are inputs, views of inputs, or outputs of the graph, and which
inputs are mutated."""
from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ...operators.overlap import may_repeat
from ...operators.unbacked import unbacked_in
from ..graphs.functional_graph import (
    LAZY_VIEWS,
    Captured,
    Constant,
    FromGraph,
    FromInput,
    Output,
    ViewOfInput,
    check_view_layout,
    creation,
    is_view,
    pairs_numbers,
)
from ..unsupported import EngineUnsupported


def mutated_inputs(inputs: tuple[Any, ...], wrapped: tuple[Any, ...]) -> list[int]:
    """Indices of the inputs whose data changed."""
    mutated = []
    for i, value in enumerate(wrapped):
        if not isinstance(inputs[i], torch.Tensor):
            continue
        torch._sync(value)
        if torch._functionalize_has_metadata_mutation(value):
            raise EngineUnsupported("an input's shape or strides change in place")
        if torch._functionalize_has_data_mutation(value):  # type: ignore[attr-defined]
            if may_repeat(inputs[i]):
                raise EngineUnsupported("an input is written whose elements share memory")
            mutated.append(i)
    return mutated


def uncounted_writes(captured: Captured, wrapped: tuple[Any, ...], mutations: list[int]) -> tuple[int, ...]:
    """Those of the mutated inputs whose writes autograd does not count: of `x.data`, and a batch norm's."""
    counts = _counts(captured, wrapped)
    return tuple(i for i in mutations if counts[i] == 0)


def further_writes(captured: Captured, wrapped: tuple[Any, ...], mutations: list[int]) -> tuple[int, ...]:
    """The mutated inputs that autograd sees written more than once, each as often again."""
    counts = _counts(captured, wrapped)
    return tuple(i for i in mutations for _ in range((counts[i] or 1) - 1))


def _counts(captured: Captured, wrapped: tuple[Any, ...]) -> list[int | None]:
    """How often autograd sees each input written; None for one that it does not count. Capture ran the program's
    operators, as eager does; functionalization's own count stands in for a graph that capture did not make. Which
    writes of a tensor that is also written as `x.data` autograd does not see is not known then: they count as one."""
    counts: list[int | None] = []
    nodes = captured.module.graph.find_nodes(op="placeholder")
    plain = _read_as_data(captured)
    for i, (node, given, value) in enumerate(zip(nodes, captured.inputs, wrapped)):
        if not isinstance(given, torch.Tensor) or given.is_inference() or value.is_inference():
            counts.append(None)
        elif "writes" in node.meta:
            counts.append(node.meta["writes"])
        elif i in plain:
            counts.append(min(value._version, 1))
        else:
            counts.append(torch._functionalize_mutation_counter(value))
    return counts


def _read_as_data(captured: Captured) -> set[int]:
    """The inputs whose `data` the graph reads."""
    positions = {node: i for i, node in enumerate(captured.module.graph.find_nodes(op="placeholder"))}
    reads = captured.module.graph.find_nodes(op="call_function", target=getattr)
    return {positions[node.args[0]] for node in reads if node.args[1] == "data" and node.args[0] in positions}


def results_of(
    captured: Captured, wrapped: tuple[Any, ...], results: tuple[Any, ...], mutations: list[int]
) -> tuple[tuple[Output, ...], list[torch.Tensor]]:
    """Where each result comes from, and the values that the ATen graph returns."""
    returned: Any = captured.module.graph.output_node().args[0]
    seen_by_program = [_fake_result(node) for node in returned]
    tensors = [(i, value) for i, value in enumerate(wrapped) if isinstance(value, torch.Tensor)]
    storages = {value.untyped_storage()._cdata: i for i, value in reversed(tensors)}
    values = [torch._from_functional_tensor(wrapped[i]) for i in mutations]
    seen: dict[int, Output] = {}
    outputs: list[Output] = []
    for result, fake in zip(results, seen_by_program):
        if not isinstance(result, torch.Tensor):
            if isinstance(result, (tuple, list, dict)):
                raise EngineUnsupported("the captured graph returns nested values")
            outputs.append(Constant(result))
            continue
        if id(result) not in seen:
            seen[id(result)] = _output(captured, wrapped, storages, result, values, fake)
        outputs.append(seen[id(result)])
    return tuple(outputs), values


def _has_own_symbols(fake: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether sizes of the captured view are unbacked: in the engine's graph they are other symbols."""
    if not unbacked_in(fake):
        return False
    if torch._functionalize_has_data_mutation(base):  # type: ignore[attr-defined]
        raise EngineUnsupported("a view of a mutated input with a data-dependent size is returned")
    return True


def _output(
    captured: Captured, wrapped: tuple[Any, ...], storages: dict[int, int], result: torch.Tensor,
    values: list[torch.Tensor], fake: torch.Tensor | None,
) -> Output:
    for i, value in enumerate(wrapped):
        if value is result:
            return FromInput(i)
    if not torch._is_functional_tensor(result):  # a constant that the graph returns as it is
        values.append(result)
        return FromGraph(len(values) - 1)
    torch._sync(result)
    base = storages.get(result.untyped_storage()._cdata)
    inner = torch._from_functional_tensor(result)
    if base is not None:
        # Not the functional tensor's layout: a view of a mutated input has that of the new value there.
        layout = inner if fake is None or _has_own_symbols(fake, wrapped[base]) else fake
        check_view_layout(wrapped[base], inner, layout)
        given = captured.inputs[base]
        detached = given.requires_grad and not layout.requires_grad
        differentiable = fake is not None and fake.grad_fn is not None
        if differentiable:
            check_view(given, layout.dtype)
        made = creation(fake, captured.grad_enabled or differentiable, given)
        return ViewOfInput(
            base, tuple(layout.size()), tuple(layout.stride()), layout.storage_offset(), layout.dtype, detached,
            lazy_kind(inner), differentiable, is_view(fake), made,
        )
    lazily = lazy_kind(inner)
    values.append(LAZY_VIEWS[lazily](inner) if lazily else inner)
    return FromGraph(len(values) - 1, lazily=lazily)


def check_view(base: torch.Tensor, view: torch.dtype) -> None:
    """Raises EngineUnsupported for a view, of dtype `view`, through which gradients flow that autograd cannot follow.

    It is made by strides: where elements share memory, the gradient of `as_strided` is their mean for all of them.
    """
    if view != base.dtype and not pairs_numbers(base.dtype, view):
        raise EngineUnsupported("gradients flow through a view in another dtype")
    if may_repeat(base):
        raise EngineUnsupported("gradients flow through a view of elements that share memory")


def lazy_kind(view: torch.Tensor) -> str:
    """The key of LAZY_VIEWS that makes `view` of what it is a view of, "" for none."""
    if view.is_conj() and view.is_neg():
        raise EngineUnsupported("a result is lazily conjugated and negated")
    return "conj" if view.is_conj() else "neg" if view.is_neg() else ""


def _fake_result(node: Any) -> torch.Tensor | None:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None
