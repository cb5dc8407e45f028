"""From a case to the captured graph that the engine compiles: fake inputs, and what is known of each node's value."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._guards import Source
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from ...artifacts.records import Graph, TensorMeta
from ..recorded.graphs import dtype, graph_module, size_value
from ..recorded.inputs import bind_symbols
from .case import Case


@dataclass(frozen=True)
class Rebuilt:
    """What the engine needs of a captured graph (see tracer/fx/backend_call.py)."""

    module: torch.fx.GraphModule
    inputs: tuple[Any, ...]
    input_names: tuple[str, ...]
    grad_enabled: bool
    inference_mode: bool = False


def rebuild(case: Case, values: tuple[Any, ...]) -> Rebuilt:
    """The captured graph of a case whose inputs are `values`. Dynamic sizes are symbols, as they were; where inputs
    share memory, or numbers vary that are no sizes, they are the numbers of these inputs."""
    mode = FakeTensorMode(shape_env=ShapeEnv(duck_shape=False))
    symbols: dict[str, Any] = dict(bind_symbols(case.graph, values))
    metas = [node.value for node in case.graph.nodes if node.op == "placeholder"]
    if symbols and _can_vary(case, symbols):
        symbols = {name: _symbol(mode, name, int(hint)) for name, hint in symbols.items()}
        fakes = tuple(_symbolic(mode, value, meta, symbols) for value, meta in zip(values, metas, strict=True))
    else:
        fakes = tuple(_static(mode, value, item.meta) for value, item in zip(values, case.inputs.records, strict=True))
    module = graph_module(case.graph, symbols, case.trust)
    for node, fake in zip(module.graph.find_nodes(op="placeholder"), fakes, strict=True):
        node.meta["val"] = fake
        if isinstance(fake, torch.Tensor):
            node.meta["autograd"] = (fake.requires_grad, False)  # so that it may be changed in place
    with mode, torch.set_grad_enabled(case.grad_enabled):
        _tell_values(module, case.graph, symbols, fakes)
    return Rebuilt(module, fakes, tuple(item.name for item in case.inputs.records), case.grad_enabled)


def _static(mode: FakeTensorMode, value: Any, meta: TensorMeta | None) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    fake = mode.from_tensor(value, static_shapes=True)
    return fake.requires_grad_(meta is not None and meta.requires_grad)


def _can_vary(case: Case, symbols: dict[str, Any]) -> bool:
    """Whether symbols can stand for these numbers: sizes of at least 2, of inputs with memory of their own."""
    whole = all(isinstance(value, int) and value > 1 for value in symbols.values())
    return whole and not any(item.alias_of for item in case.inputs.records)


@dataclass(frozen=True)
class _Source(Source):
    """Where torch believes a symbol to come from: a name, for its messages."""

    text: str

    @property
    def name(self) -> str:
        return self.text


def _symbol(mode: FakeTensorMode, name: str, hint: int) -> torch.SymInt:
    environment = mode.shape_env
    assert environment is not None
    source = _Source(name)
    symbol = environment.create_symbol(hint, source, DimDynamic.DYNAMIC, None)
    made: torch.SymInt = environment.create_symintnode(symbol, hint=hint, source=source)  # type: ignore[assignment]
    return made


def _symbolic(mode: FakeTensorMode, value: Any, meta: Any, symbols: dict[str, Any]) -> Any:
    """A fake input whose sizes are expressions of symbols; a number that varies is its symbol."""
    if not isinstance(meta, TensorMeta) or not isinstance(value, torch.Tensor):
        return size_value(meta, symbols) if isinstance(meta, str) else value
    size, stride = ([size_value(n, symbols) for n in numbers] for numbers in (meta.shape, meta.stride))
    with mode:
        fake = torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)
    return fake.requires_grad_(meta.requires_grad)


def _tell_values(
    module: torch.fx.GraphModule, record: Graph, symbols: dict[str, Any], inputs: Sequence[Any] | None
) -> None:
    """Set each node's `val`: by running the node on fake values, or where that cannot be, as was recorded."""
    recorded = {node.id: node for node in record.nodes}
    if inputs is not None:
        _run(module, inputs)
    for node in module.graph.nodes:
        held = record.inner.get(node.name)
        if isinstance(held, Graph):
            _tell_values(getattr(module, node.target), held, symbols, None)
        elif "val" not in node.meta and node.name in recorded:
            node.meta["val"] = _meta_value(recorded[node.name].value, symbols)


def _run(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Run the nodes as far as that goes: control flow and operators that ask for data end it."""
    live: dict[torch.fx.Node, Any] = {}
    supply = iter(inputs)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            live[node] = next(supply)
            continue
        if node.op == "output" or not all(n in live for n in node.all_input_nodes):
            continue
        try:
            live[node] = node.meta["val"] = _result(module, node, live)
        except Exception:
            continue  # its recorded metadata serves


def _result(module: torch.fx.GraphModule, node: torch.fx.Node, live: dict[torch.fx.Node, Any]) -> Any:
    target: Any = node.target
    if node.op == "get_attr":
        return getattr(module, target)
    args = torch.fx.node.map_arg(node.args, live.__getitem__)
    kwargs = torch.fx.node.map_arg(node.kwargs, live.__getitem__)
    if node.op == "call_method":
        return getattr(args[0], target)(*args[1:], **kwargs)
    return target(*args, **kwargs)


def _meta_value(value: Any, symbols: dict[str, Any]) -> Any:
    """A fake value of recorded metadata, under the fake mode that is on."""
    if isinstance(value, (tuple, list)):
        return tuple(_meta_value(part, symbols) for part in value)
    if not isinstance(value, TensorMeta):
        return None if value is None else size_value(value, symbols)
    shape, stride = ([size_value(n, symbols) for n in numbers] for numbers in (value.shape, value.stride))
    made = torch.empty_strided(shape, stride, dtype=dtype(value.dtype), device=value.device)
    return made.requires_grad_(value.requires_grad)
