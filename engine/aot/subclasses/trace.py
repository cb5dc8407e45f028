"""Traces what wrapper subclasses do in a captured graph, and in its derivative, as graphs of plain tensors."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ....artifacts.context import CompileContext
from ....artifacts.external_exceptions import came_from_outside
from ....operators.effects import is_random
from ...graphs.functional_graph import Captured
from ...unsupported import EngineUnsupported
from ..aten_graph import AtenTracer
from .inputs import Inputs
from .layout import Layout, below_overrides, is_wrapper, take_apart, varies
from .results import Made, Result, results_of
from .sizes import Sizes
from .views import views_of_inputs

Node = torch.fx.Node


def values_of(captured: Captured) -> Iterator[Any]:
    """The values of the graph."""
    return chain(captured.inputs, (node.meta.get("val") for node in captured.module.graph.nodes))


def has_wrappers(captured: Captured) -> bool:
    """Whether some value of the graph is a tensor that is made of others."""
    return any(map(is_wrapper, values_of(captured)))


@dataclass(frozen=True)
class PlainGraph:
    """The graph of plain tensors: what it takes of the inputs (`Inputs`), where the results come from, the wrappers
    among the inputs that autograd counts a write of, and the results that are made outside (`views.py`)."""

    captured: Captured
    takes: tuple[int, ...]
    results: tuple[Result, ...]
    written: tuple[int, ...]
    views: tuple[int, ...]


@dataclass(frozen=True)
class PlainHalves:
    """`forward` also returns, after its results, what `backward` reads, which then takes the tensors of which the
    gradients of the results at the positions `tangents` are made (of these `layouts`), and gives those of the `wanted`
    inputs. Of the inputs in `read` it reads the values."""

    forward: PlainGraph
    backward: Captured
    tangents: tuple[int, ...]
    layouts: tuple[Layout | None, ...]
    wanted: tuple[int, ...]
    gradients: tuple[Result, ...]
    saved: int
    read: tuple[int, ...]


class PlainTracer(AtenTracer):
    """Writes down what reaches it of operators on plain tensors; those on wrappers are left to their classes."""

    stage = "flat"

    def __init__(self, mode: FakeTensorMode, context: CompileContext) -> None:
        super().__init__(mode, context, ())
        self.draws = False
        self.sizes = Sizes(self.graph)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind is not FakeTensor and hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        if func.namespace == "prim":
            return func(*args, **kwargs)
        if isinstance(func, torch._ops.HigherOrderOperator):
            raise EngineUnsupported(f"the operator {func.name()} in a graph with wrapper subclasses")
        self.draws = self.draws or is_random(func)
        node_args, node_kwargs = self._argument(args), self._argument(kwargs)
        node = self.graph.create_node("call_function", func, name=func.overloadpacket.__name__)
        node.args, node.kwargs = node_args, node_kwargs
        made = func(*self._fake(args), **self._fake(kwargs))
        self._finish(node, made)
        if isinstance(made, (torch.SymInt, torch.SymFloat)):  # data-dependent
            self.sizes.learn(node, made)
        return made

    def leaf(self, fake: Any) -> tuple[Node, Any]:
        """An input of the plain graph; of a tensor, a new object."""
        node = self.graph.placeholder("arg")
        if isinstance(fake, torch.Tensor):
            if type(fake) is not FakeTensor:
                raise EngineUnsupported(f"a tensor of type {type(fake).__qualname__} inside of a wrapper subclass")
            with self.fake_mode, torch.no_grad():
                fake = fake.detach()
            self._remember(fake, node)
        self.sizes.learn(node, fake)
        node.meta["val"] = fake
        return node, fake

    def node_of(self, value: Any) -> Any:
        """The node of a value in the graph."""
        return self._argument(value)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return self.sizes.node_of(value)
        if isinstance(value, torch.SymBool):
            raise EngineUnsupported("a dynamic number in a graph with wrapper subclasses")
        return super()._argument(value)

    def run_captured(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run the captured graph, whose functions ask no `__torch_function__` any more."""
        values: dict[Node, Any] = {}
        supply = iter(inputs)
        for node in module.graph.nodes:
            self.enter(node)
            if node.op == "placeholder":
                values[node] = next(supply)
            elif node.op == "get_attr":
                values[node] = operator.attrgetter(str(node.target))(module)
            elif node.op == "output":
                found: Any = torch.fx.node.map_arg(node.args[0], values.__getitem__)
                self.current = None
                return tuple(found)
            else:
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                function: Any = node.target
                if node.op == "call_method":
                    function, args = getattr(args[0], function), args[1:]
                elif node.op == "call_module":
                    function = operator.attrgetter(function)(module)
                values[node] = function(*args, **kwargs)
        raise AssertionError("a graph without an output")


def trace_plain(captured: Captured, context: CompileContext) -> PlainGraph | PlainHalves:
    """The plain graph, or both halves where a result needs gradients. Raises EngineUnsupported for what they cannot
    express."""
    tracer = PlainTracer(_fake_mode(captured), context)
    with _tracing(captured), tracer.fake_mode:
        given = Inputs.of(captured, tracer.fake_mode, tracer.leaf)
        before = [_version(value) for value in given.values]
        returned = _raising(lambda: tracer.run_captured(captured.module, given.values), tracer)
        written = tuple([i for i, value in enumerate(given.values) if _version(value) != before[i]])
        views = views_of_inputs(returned, given.values)
        returned = [None if k in views else value for k, value in enumerate(returned)]
        values: list[Any] = []
        results = results_of(returned, given.values, values)
        outputs = [tracer.node_of(value) for value in values]
        made = [k for k, result in enumerate(results) if isinstance(result, Made)]
        tangents = tuple([k for k in made if returned[k].requires_grad])
        nodes = list(tracer.graph.nodes)
        if tangents:
            _refuse_in_training(tracer, returned, given.values, results, written)
            derivative = _differentiate(tracer, given.values, [returned[k] for k in tangents])
    if not tangents:
        counted = tuple([i for i in written if given.layouts[i] is not None])
        plain = _part(captured, tracer, nodes, [], outputs, given.names)
        return PlainGraph(plain, given.takes, results, counted, views)
    own = set(nodes)
    after = [node for node in tracer.graph.nodes if node not in own]
    saved = _saved(nodes, after, derivative.nodes)
    first = _part(captured, tracer, nodes, [], [*outputs, *saved], given.names)
    return PlainHalves(
        PlainGraph(first, given.takes, results, (), views),
        _part(captured, tracer, after, saved, derivative.nodes, ()),
        tangents, derivative.layouts, derivative.wanted, derivative.results, len(saved),
        read=tuple(sorted({i for node in saved for i in given.owners.get(node, ())})),
    )  # fmt: skip


@dataclass(frozen=True)
class _Derivative:
    """What the backward gives: the gradients of the `wanted` inputs, made of the values of `nodes`, for gradients of
    the results with these `layouts`."""

    wanted: tuple[int, ...]
    layouts: tuple[Layout | None, ...]
    results: tuple[Result, ...]
    nodes: tuple[Any, ...]


def _differentiate(tracer: PlainTracer, inputs: Sequence[Any], roots: list[Any]) -> _Derivative:
    wanted = tuple([i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor) and value.requires_grad])
    tracer.sizes.begin()
    cotangents = [_cotangent(tracer, value) for value in roots]
    found = _raising(lambda: _differentiated(roots, [inputs[i] for i in wanted], cotangents), tracer)
    values: list[Any] = []
    results = results_of(found, (), values)
    nodes = tuple([tracer.node_of(value) for value in values])
    return _Derivative(wanted, tuple([Layout.of(value) for value in cotangents]), results, nodes)


# ---- the trace -------------------------------------------------------------------------------------------------------
def _fake_mode(captured: Captured) -> FakeTensorMode:
    parts: list[Any] = []
    for value in values_of(captured):
        take_apart(value, parts)
    return next(part.fake_mode for part in parts if isinstance(part, FakeTensor))


@contextmanager
def _tracing(captured: Captured) -> Iterator[None]:
    """Modes as they are at the call; functions ask no `__torch_function__`: the tracer did. Nothing stays in the cache
    of autocast."""
    if any(isinstance(value, torch.Tensor) and value.is_inference() for value in captured.inputs):
        raise EngineUnsupported("wrapper subclasses beside tensors of the inference mode")
    torch.clear_autocast_cache()
    try:
        with torch.set_grad_enabled(captured.grad_enabled), below_overrides(values_of(captured)):
            yield
    finally:
        torch.clear_autocast_cache()


def _raising(run: Callable[[], Sequence[Any]], tracer: PlainTracer) -> Sequence[Any]:
    """`run()` under the tracer. What a class or autograd raises there is the program's own to raise."""
    try:
        with tracer:
            return run()
    except (EngineUnsupported, GuardOnDataDependentSymNode):
        raise
    except Exception as error:
        if came_from_outside(error):
            raise
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise EngineUnsupported(f"the operators of a wrapper subclass cannot be traced: {why}") from error


def _version(value: Any) -> int:
    return value._version if isinstance(value, torch.Tensor) else 0


def _refuse_in_training(
    tracer: PlainTracer, returned: Sequence[Any], inputs: Sequence[Any], results: Sequence[Result],
    written: Sequence[int],
) -> None:
    """Raises EngineUnsupported for what one autograd node cannot say, or could not repeat."""
    if tracer.draws:
        raise EngineUnsupported("random numbers in the forward of wrapper subclasses")
    if written:
        raise EngineUnsupported("a training graph with wrapper subclasses mutates its inputs")
    others = [value for value in (*inputs, *returned) if isinstance(value, torch.Tensor)]
    for value, result in zip(returned, results):
        if isinstance(result, Made) and value._is_view() and any(value._base is other for other in others):
            raise EngineUnsupported("a result of a training graph with wrapper subclasses is a view of another tensor")


def _cotangent(tracer: PlainTracer, like: torch.Tensor) -> torch.Tensor:
    """A tangent of a result: contiguous, made of inputs of the backward."""
    with torch.no_grad():
        like = torch.empty_like(like.detach(), memory_format=torch.contiguous_format)
        parts: list[Any] = []
        take_apart(like, parts)
        fresh = [tracer.leaf(part)[1] for part in parts]
        layout = Layout.of(like)
        if any(varies(n) for part in parts for n in part.stride()) and not all(part.is_contiguous() for part in parts):
            raise EngineUnsupported("the gradient of a result has dynamic strides")
        made: torch.Tensor = fresh[0] if layout is None else layout.put_together(iter(fresh))
        return made


def _differentiated(roots: list[Any], leaves: list[Any], cotangents: list[Any]) -> Sequence[Any]:
    if not leaves:
        raise EngineUnsupported("a result requires grad although no input does: a tensor created in the graph does")
    with torch.autograd.set_multithreading_enabled(False), torch._C._DisableAutocast():
        return torch.autograd.grad(roots, leaves, cotangents, allow_unused=True)


# ---- the graphs ------------------------------------------------------------------------------------------------------
def _saved(forward: Sequence[Node], backward: Sequence[Node], gradients: Sequence[Any]) -> list[Node]:
    """What the backward reads of the forward, or gives; each holds its own constants."""
    own = set(forward)
    needed = [given for node in backward for given in node.all_input_nodes]
    needed += [node for node in gradients if isinstance(node, Node)]
    saved = list(dict.fromkeys(node for node in needed if node in own and node.op != "get_attr"))
    if any(not isinstance(node.meta["val"], torch.Tensor) for node in saved):
        raise EngineUnsupported("a backward reads a number that the forward computes from wrapper subclasses")
    return saved


def _part(
    captured: Captured, tracer: PlainTracer, nodes: Sequence[Node], given: Sequence[Node], outputs: Sequence[Any],
    names: tuple[str, ...],
) -> Captured:
    """`nodes` as a graph, whose inputs are `given` and then those among them."""
    graph, copies = torch.fx.Graph(), dict[Node, Node]()
    placed = [*given, *(node for node in nodes if node.op == "placeholder")]
    for number, node in enumerate(placed):
        copies[node] = graph.placeholder(f"arg{number}")
        copies[node].meta = {"val": _untracked(node.meta["val"])}

    def copy_of(node: Node) -> Node:
        if node not in copies:  # a constant
            copies[node] = graph.node_copy(node)
        return copies[node]

    for node in nodes:
        if node.op != "placeholder":
            copies[node] = graph.node_copy(node, copy_of)
            copies[node].meta["val"] = _untracked(node.meta.get("val"))
    graph.output(tuple([copy_of(value) if isinstance(value, Node) else value for value in outputs]))
    module = torch.fx.GraphModule(tracer.constants, graph, "PlainGraph")
    fakes = tuple([copies[node].meta["val"] for node in placed])
    names = names or tuple([f"part {number} of what was saved, or of a gradient" for number in range(len(placed))])
    own = {"module": module, "inputs": fakes, "input_names": names, "grad_enabled": False}
    if hasattr(captured, "inference_mode"):  # the call is made in the mode that there is
        own["inference_mode"] = False
    made: Any = replace(captured, **own)  # type: ignore[type-var]
    return made


def _untracked(value: Any) -> Any:
    """A fake that autograd knows nothing of: what it records is above these graphs."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return value
    with torch.no_grad():
        return value.detach()
