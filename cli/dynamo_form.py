"""A captured graph in the form in which Dynamo gives graphs to its backends.

Placeholders have Dynamo's names; a size that varies is an input of its own, before the first tensor that has it; nodes
carry `example_value`, `stack_trace`, `nn_module_stack` and `source_fn_stack`; the example inputs are the tensors of the
call. Around the backend stands a tracing context whose fake mode knows these tensors, so that AOTAutograd finds their
symbols, and what it specializes becomes a guard of the frame.
"""
from __future__ import annotations

import re
import traceback
import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import sympy
import torch
import torch._guards as guards
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from ..artifacts.context import CompileId
from ..artifacts.records import Location
from ..tracer.fx.backend_call import CapturedGraph, Compiled

STATIC = {"_dynamo_static_input_type": "unguarded"}
"""What Dynamo notes of a parameter or a buffer, whose address does not change from call to call."""


@dataclass(frozen=True)
class NamedSource:
    """Where an input comes from; `name` is the expression, as of Dynamo's sources."""

    name: str


@dataclass
class InputOrigin:
    """What `node.meta["grapharg"]` tells of a placeholder. It keeps no tensor alive."""

    source: NamedSource
    fake_tensor: Any
    value: Any = field(repr=False)
    is_tensor: bool = True
    pass_arg_as_tensor: bool = False

    @property
    def example(self) -> Any:
        """The value of the input at the call, while that lives."""
        return self.value() if isinstance(self.value, weakref.ref) else self.value


@dataclass(frozen=True)
class DynamoGraph:
    """The graph, its example inputs, and for each size among its inputs the tensor and dimension that it is read
    from."""

    module: torch.fx.GraphModule
    example_inputs: list[Any]
    sizes: dict[int, tuple[int, int]]
    fakes: list[Any]

    def adapted(self, compiled: Compiled) -> Compiled:
        """`compiled`, which takes the inputs of this graph, as a callable of those of the captured one."""
        if not self.sizes:
            return compiled
        tensors = iter(range(len(self.example_inputs) - len(self.sizes)))
        plan = [self.sizes.get(i) or (next(tensors), -1) for i in range(len(self.example_inputs))]

        def call(*inputs: Any) -> Sequence[Any]:
            return compiled(*[inputs[i] if d < 0 else inputs[i].shape[d] for i, d in plan])

        return call


def in_dynamos_form(captured: CapturedGraph, compile_id: CompileId) -> DynamoGraph:
    """The graph as Dynamo would give it to a backend; the captured one is not changed."""
    writer = _Writer(captured)
    module = torch.fx.GraphModule(captured.module, writer.write())
    fqns = {s.removeprefix("L['").replace("']", "", 1): s for s in map(_shown, captured.input_names)}
    module.meta.update(
        dynamo_flat_name_to_original_fqn={}, dynamo_compile_id=_stock_id(compile_id),
        backend_id=f"__compiled_fn_{compile_id.frame}_{uuid.uuid4().hex}")
    module._param_name_to_source = {name: NamedSource(source) for name, source in fqns.items()}  # type: ignore[assignment]
    module._source_to_user_stacks = {}  # type: ignore[assignment]
    return DynamoGraph(module, writer.examples, writer.sizes, writer.fakes)


@contextmanager
def around_backend(graph: DynamoGraph, compile_id: CompileId) -> Iterator[None]:
    """What a backend finds around it: a tracing context with a fake mode for the example inputs, and the compile id."""
    mode = next((v.fake_mode for v in graph.fakes if isinstance(v, FakeTensor)), None)
    ours = FakeTensorMode(shape_env=mode.shape_env if mode is not None else None, allow_non_fake_inputs=False)
    known = [  # the mode refers to them weakly
        _introduce(real, fake, ours) for real, fake in zip(graph.example_inputs, graph.fakes)
        if isinstance(real, torch.Tensor) and not isinstance(real, FakeTensor)
    ]
    context = guards.CompileContext(_stock_id(compile_id))
    try:
        with guards.compile_context(context), guards.tracing(guards.TracingContext(ours)):
            yield
    finally:
        del known
        for node in graph.module.graph.find_nodes(op="placeholder"):  # torch swaps only tensors without weak references
            origin = node.meta.get("grapharg")
            if isinstance(origin, InputOrigin):
                node.meta["grapharg"] = replace(origin, value=None)


def _stock_id(compile_id: CompileId) -> guards.CompileId:
    return guards.CompileId(frame_id=compile_id.frame, frame_compile_id=compile_id.compile)


def _introduce(real: torch.Tensor, fake: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """A fake tensor for `real`, which the mode knows from now on. It has the symbols of `fake`, which the trace may
    have written to since."""
    numbers = (*fake.shape, *fake.stride()) if fake.layout is torch.strided else ()
    if all(type(number) is int for number in numbers):
        with suppress(RuntimeError):  # a gradient of another dtype, which torch would not set
            return mode.from_tensor(real, static_shapes=True)
    with torch.inference_mode(real.is_inference()), mode, torch.no_grad():
        made = torch.empty_strided(fake.shape, fake.stride(), dtype=real.dtype, device=real.device)
    made.requires_grad_(real.requires_grad)
    mode.fake_tensor_converter.set_tensor_memo(real, made)  # type: ignore[arg-type]
    return made


class _Writer:
    """Copies the graph node by node."""

    def __init__(self, captured: CapturedGraph) -> None:
        self.captured = captured
        self.graph = torch.fx.Graph()
        self.copies: dict[torch.fx.Node, torch.fx.Node] = {}
        self.symbols: dict[Any, torch.fx.Node] = {}
        self.examples: list[Any] = []
        self.fakes: list[Any] = []
        self.sizes: dict[int, tuple[int, int]] = {}

    def write(self) -> torch.fx.Graph:
        """The whole graph."""
        reals = self.captured.examples() if self.captured.examples is not None else self.captured.inputs
        placeholders = [node for node in self.captured.module.graph.nodes if node.op == "placeholder"]
        given = {_symbol(fake) for fake in self.captured.inputs}
        for position, (node, real) in enumerate(zip(placeholders, reals, strict=True)):
            self._placeholder(node, real, position, given)
        for node in self.captured.module.graph.nodes:
            if node.op == "placeholder":
                continue
            known = self.symbols.get(_symbol(node.meta.get("val")))
            self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__) if known is None else known
            if known is None:
                self.copies[node].meta = _meta(node)
        _tell_inner(self.captured.module)
        return self.graph

    def _placeholder(self, node: torch.fx.Node, real: Any, position: int, given: set[Any]) -> None:
        fake, expression = self.captured.inputs[position], self.captured.input_names[position]
        for d, size in enumerate(fake.shape if isinstance(fake, torch.Tensor) else ()):
            symbol = _symbol(size)
            if symbol is not None and symbol not in self.symbols and symbol not in given:
                self.sizes[len(self.examples)] = position, d
                self.symbols[symbol] = self._input(str(symbol), size, size, f"{expression}.size()[{d}]")
        made = self._input(re.sub(r"[^a-zA-Z0-9]+", "_", expression), fake, real, expression)
        self.copies[node] = made
        symbol = _symbol(fake)
        if symbol is not None:
            self.symbols[symbol] = made

    def _input(self, name: str, fake: Any, real: Any, expression: str) -> torch.fx.Node:
        source, is_tensor = NamedSource(_shown(expression)), isinstance(fake, torch.Tensor)
        node = self.graph.placeholder(name, type_expr=torch.Tensor if is_tensor else type(fake))
        if any(other.target == name for other in self.graph.find_nodes(op="placeholder") if other is not node):
            node.target = f"{name}_{len(self.examples)}"  # sources may read alike: a function's default, and its dict's
        origin = InputOrigin(source, fake if is_tensor else None, weakref.ref(real) if is_tensor else real, is_tensor)
        node.meta.update(example_value=fake, grapharg=origin)
        if is_tensor:
            static = isinstance(real, torch.nn.Parameter) or "._buffers[" in expression
            node.meta["tensor_dict"] = dict(STATIC) if static else {}
        node._dynamo_source = source
        self.examples.append(real)
        self.fakes.append(fake)
        return node


def _symbol(value: Any) -> sympy.Symbol | None:
    """The symbol that a number is, where it is one."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat)):
        return None
    expression = getattr(value.node, "expr", None)  # the ragged size of a nested tensor has none
    return expression if isinstance(expression, sympy.Symbol) else None


def _tell_inner(module: torch.fx.GraphModule) -> None:
    """The same metadata for the subgraphs of higher-order operators, beside ptdebug's own."""
    for node in module.graph.find_nodes(op="get_attr"):
        inner = attrgetter(node.target)(module)
        if isinstance(inner, torch.fx.GraphModule):
            for own in inner.graph.nodes:
                own.meta.update(_meta(own))
            _tell_inner(inner)


def _meta(node: torch.fx.Node) -> dict[str, Any]:
    found: dict[str, Any] = {}
    modules = node.meta.get("modules", ())
    if modules:
        found["nn_module_stack"] = {str(number): (_shown(path), kind) for number, path, kind in modules}
    if node.op.startswith("call_"):
        of_torch = modules and modules[-1][2].__module__.startswith("torch.nn.")
        found["source_fn_stack"] = [(node.name, modules[-1][2] if of_torch else node.target)]
    if node.meta.get("stack"):
        found["stack_trace"] = _stack_trace(node.meta["stack"])
    if node.meta.get("val") is not None:
        found["example_value"] = node.meta["val"]
    return found


def _shown(expression: str) -> str:
    """An expression as Dynamo shows it: `L['self'].layers.0` where the modules' dicts are read."""
    return re.sub(r"\._(?:modules|parameters|buffers)\['([^']*)'\]", r".\1", expression)


def _stack_trace(stack: tuple[Location, ...]) -> str:
    known = lambda number: None if number < 0 else number
    frames = [
        traceback.FrameSummary(
            at.file, at.line, at.function.rpartition(".")[2], end_lineno=known(at.end_line), colno=known(at.column),
            end_colno=known(at.end_column))
        for at in stack
    ]
    return "".join(traceback.StackSummary.from_list(frames).format()).rstrip("\n")
