"""Captured torch-level graph in; functionalized, decomposed ATen graph out.

The graph runs once over its fake inputs, wrapped as functional tensors (C++ functionalization, the mechanism behind
`torch.func.functionalize`), under a dispatch mode that sees each ATen operator without mutation and records it as a
node. Nothing is copied: dynamic sizes appear in the nodes' arguments as torch.SymInt.

What a functional graph cannot express is kept beside it (`output_aliasing.py`): `mutations` (graph output i is the new
value of that input) and `outputs` (where each result of the user's function comes from: the input itself, a view of an
input, a graph output, or a constant).
"""
from __future__ import annotations

import keyword
import operator
from collections.abc import Container, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import islice
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ...artifacts.context import CompileContext
from ...artifacts.external_exceptions import came_from_outside
from ...operators import effects, meta, probing
from ...operators.overlap import repeats
from ..graphs.functional_graph import AtenGraph, Captured, fake_mode_of
from ..graphs.random_fills import fill_of
from ..unsupported import EngineUnsupported
from .attention import FUNCTIONS, attend, attend_as_one, written_out
from .decompositions import OWN, REPLACED, described, python_rules, rule_for
from .mutation_layout import Written, functional_form, versions
from .output_aliasing import further_writes, mutated_inputs, results_of, uncounted_writes

METADATA = frozenset(getattr(torch.ops.aten, name).default for name in ("size", "stride", "storage_offset"))
"""What kernels ask of a tensor whose sizes vary, if they need numbers: those are assumed from then on."""

SYMBOLS_REFUSED = ("SymIntArrayRef expected to contain only concrete integers", "dispatch_on_subclass called with NO")
"""What torch's own check of a write in place says, which runs on tensors without data, where Python makes the check."""


def trace(captured: Captured, context: CompileContext, lowered: Container[Any] = ()) -> AtenGraph:
    """Functionalize and decompose `captured`; operators in `lowered` are kept as they are.

    Raises EngineUnsupported for what an inference graph cannot express: results that need gradients, inputs whose
    metadata (not data) changes, operators that mutate in ways functionalization does not know.
    """
    fake_mode = fake_mode_of(captured)
    tracer = AtenTracer(fake_mode, context, lowered)
    with _inference_tracing(), fake_mode:
        wrapped = tuple(tracer.placeholder(i, value) for i, value in enumerate(captured.inputs))
        with tracer, functionalization():
            results = tracer.run(captured.module, wrapped)
        # Outside the functionalization scope but still under the tracer: regenerating views emits operators.
        with tracer:
            mutations = mutated_inputs(captured.inputs, wrapped)
            outputs, values = results_of(captured, wrapped, results, mutations)
    uncounted = uncounted_writes(captured, wrapped, mutations)
    tracer.output(values)
    module = torch.fx.GraphModule(tracer.constants, tracer.graph, "AtenGraph")
    further = further_writes(captured, wrapped, mutations)
    return AtenGraph(
        module, captured.inputs, dict(enumerate(mutations)), outputs, uncounted=uncounted, further=further
    )


class AtenTracer(TorchDispatchMode):
    """Records each ATen operator that reaches it as a node of `graph`."""

    stage = "forward"  # where `graph` is recorded

    def __init__(self, fake_mode: FakeTensorMode, context: CompileContext, lowered: Container[Any]) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self.context = context
        self.lowered = lowered
        self.graph = torch.fx.Graph()
        self.constants = torch.nn.Module()
        self.nodes: dict[int, torch.fx.Node] = {}
        self.alive: list[Any] = []  # keeps every fake alive, so that ids in `nodes` stay unique
        self.real: dict[int, torch.Tensor] = {}  # id of a real tensor seen while tracing -> its fake
        self.current: torch.fx.Node | None = None
        self.rule = ""

    # ---- inputs, outputs, constants
    def placeholder(self, index: int, value: Any) -> Any:
        """The placeholder of input `index`; tensors come back wrapped as functional tensors."""
        return self.wrap(self.graph.placeholder(f"arg{index}"), value)

    def wrap(self, node: torch.fx.Node, value: Any) -> Any:
        """The functional tensor for a placeholder's fake value while the graph runs."""
        node.meta["val"] = value
        if not isinstance(value, torch.Tensor):
            return value
        if value.is_conj() or value.is_neg():
            raise EngineUnsupported("an input is lazily conjugated or negated")
        stand_in = _written_anywhere(value) if value.is_inference() else value
        self._remember(stand_in, node)
        return torch._to_functional_tensor(stand_in)

    def output(self, values: list[Any]) -> None:
        """Close the graph with the given fake tensors as its outputs."""
        self.graph.output(tuple(self._argument(v) for v in values))

    def _constant(self, tensor: torch.Tensor) -> torch.fx.Node:
        """A get_attr node for a real tensor met while tracing (`torch.tensor(3.0)` in the program)."""
        name = f"constant{sum(n.op == 'get_attr' for n in self.graph.nodes)}"
        setattr(self.constants, name, tensor)
        node = self.graph.get_attr(name)
        fake = self.real[id(tensor)] = node.meta["val"] = self.fake_mode.from_tensor(tensor, static_shapes=True)
        self._remember(tensor, node)
        self._remember(fake, node)
        return node

    def _remember(self, tensor: torch.Tensor, node: torch.fx.Node) -> None:
        self.nodes[id(tensor)] = node
        self.alive.append(tensor)

    # ---- running the captured graph
    def enter(self, node: torch.fx.Node) -> None:
        """The captured node whose operators come next."""
        self.current = node

    def source(self) -> torch.fx.Node | None:
        """The captured node that the operator being recorded belongs to."""
        return self.current

    def run(self, module: torch.fx.GraphModule, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run `module` node by node on functional inputs; returns its outputs."""
        values: dict[torch.fx.Node, Any] = {}
        written = Written()
        supply, attentions = iter(inputs), written_out(module.graph)
        result: Any = ()
        for node in module.graph.nodes:
            _check_node(node)
            self.enter(node)
            load = values.__getitem__
            before = versions(node, values)
            if node.op == "placeholder":
                values[node] = next(supply)
            elif node.op == "get_attr":
                values[node] = operator.attrgetter(node.target)(module)
            elif node.op == "output":
                result = torch.fx.node.map_arg(node.args[0], load)
            else:
                args = torch.fx.node.map_arg(node.args, load)
                kwargs = torch.fx.node.map_arg(node.kwargs, load)
                one = attend_as_one(self, attentions[node], values) if node in attentions else None
                if one is not None:
                    values[node] = one
                elif node.op == "call_function":
                    traced = len(self.graph.nodes)
                    with _outside_inference_mode(node), python_rules(node.target, args, kwargs):
                        values[node] = _call(self._traced_for(node.target), node.target, args, kwargs)
                    if effects.drops_between_layers(node.target, args, kwargs):
                        self._check_dropout(node.target, traced)
                elif node.op == "call_method":
                    method = getattr(type(args[0]), node.target)
                    with _outside_inference_mode(node), python_rules(method, args, kwargs):
                        values[node] = _call(REPLACED.get(method, method), node.target, args, kwargs)
                else:
                    values[node] = operator.attrgetter(node.target)(module)(*args, **kwargs)
            written.follow(node, values.get(node))
            written.keep_layouts(before, values)
        self.current = None
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    def _traced_for(self, function: Any) -> Any:
        """What is traced in the place of a function."""
        return partial(attend, self) if function in FUNCTIONS else REPLACED.get(function, function)

    def node_of(self, value: torch.Tensor) -> torch.fx.Node | None:
        """The node whose value a functional tensor has now."""
        torch._sync(value)
        return self.nodes.get(id(torch._from_functional_tensor(value)))

    def _check_dropout(self, target: Any, start: int) -> None:
        """Raises EngineUnsupported where nothing after the first `start` nodes is random: torch's own Python
        rule, which runs at sizes that vary, loses the dropout between layers (`_rnn_helper` in torch/_decomp)."""
        made = islice(reversed(self.graph.nodes), len(self.graph.nodes) - start)
        if not any(effects.is_random(node.target) for node in made):
            raise EngineUnsupported(f"torch.{target.__name__} with dropout between its layers, at dynamic sizes")

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from wrapping this mode's dispatch in a decorator that imports TorchDynamo on its first call."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = self._traced(func, args, kwargs or {})
        first = result[0] if isinstance(result, tuple) and result else result
        strides = meta.eager_strides(func, first, args, True) if isinstance(first, torch.Tensor) else None
        if strides is None and not meta.is_wrong_view(func, first, self._fake(args)):
            return result
        with self:
            if strides is None:
                first = torch.ops.aten.clone.default(first)
            else:  # a rule of several operators has made it
                window = torch.ops.aten.new_empty_strided.default(first, first.shape, strides)
                first = torch.ops.aten.copy.default(window, first)
        return (first, *result[1:]) if isinstance(result, tuple) else first

    def _traced(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func.namespace == "prim" or func in METADATA:
            return func(*args, **kwargs)
        if func is torch.ops.aten._conj.default and isinstance(args[0], complex):  # a factor, in a derivative
            with self:
                return torch.ops.aten.scalar_tensor.default(args[0].conjugate(), dtype=torch.complex128)
        _unsupported(meta.unsafe(func, args) or meta.untraceable(func, args))
        if func is torch.ops.aten.reshape.default and _reshape_copies(*self._fake(args)):
            return self._decompose(func, _copied_then_viewed, args, kwargs)
        if func is torch.ops.aten.view.default:
            return self._viewed(func, args, kwargs)
        if func not in self.lowered or func in OWN:
            composite = _is_composite(func)
            rule = rule_for(func) or (func.decompose if composite else None)
            if rule is not None:
                within = composite or self.rule
                if not within:
                    _unsupported(probing.refused(func, args, kwargs))
                result = (self._decompose if within else self._rewrite)(func, rule, args, kwargs)
                if result is not NotImplemented:
                    return result
        elif not self.rule:
            _unsupported(probing.refused(func, args, kwargs))
        return self._record(func, args, kwargs)

    def _viewed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A view, or a copy where there can be none: of what functionalization puts in the place of a view that is
        written. What computes that in functional form may lay it out in another way (`masked_fill`: row-major)."""
        last = self.graph._root.prev
        try:
            return self._record(func, args, kwargs)
        except ValueError:
            self._erase_after(last)
            return self._decompose(func, _copied_then_viewed, args, kwargs)

    def _rewrite(self, func: Any, rule: Any, args: Any, kwargs: Any) -> Any:
        """Apply the rule of an operator, which is a decision; NotImplemented to leave it to its lowering or to ATen."""
        source = self.source()
        subject = f"{func}@{source.name if source is not None else '?'}"
        origins: tuple[str, ...] = (f"capture#{source.name}",) if source is not None else ()
        when = "before its lowering sees it" if func in self.lowered else "as it has no lowering"
        options, why = ("rule", "keep"), f"{func} is decomposed by {described(rule)}, {when}"
        if self.context.override("decompose", subject) == "keep":
            self.context.decide("decompose", subject, options, "rule", why, origins=origins)
            return NotImplemented
        last = self.graph._root.prev  # the root itself in an empty graph
        try:
            result = self._decompose(func, rule, args, kwargs)
        except Exception as error:  # a rule that looks at data or writes in place; ATen's own kernel needs no rule
            if came_from_outside(error):
                raise
            self._erase_after(last)
            why = f"{why}; the rule cannot be traced: {type(error).__name__}: {error}"
            self.context.decide("decompose", subject, options, "keep", why, origins=origins)
            return NotImplemented
        if self.context.recording and result is not NotImplemented:
            made = []
            while (last := last.next).op != "root":
                made.append(last.name)
            origins += tuple(f"{self.stage}#{name}" for name in made)
            self.context.decide("decompose", subject, options, "rule", f"{why}: {', '.join(made)}", origins=origins)
        return result

    def _erase_after(self, last: torch.fx.Node) -> None:
        for node in reversed(self.graph.nodes):
            if node is last:
                return
            self.graph.erase_node(node)

    def _decompose(self, func: Any, rule: Any, args: Any, kwargs: Any) -> Any:
        outer, self.rule = self.rule, self.rule or str(func)
        try:
            with self:
                return rule(*args, **kwargs)
        finally:
            self.rule = outer

    def _record(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func._schema.is_mutable and any(True for _ in _written(func, args, kwargs)):
            raise EngineUnsupported(f"{func} mutates its arguments in a way that cannot be functionalized")
        if keyword.iskeyword(func._overloadname):
            raise EngineUnsupported(f"{func} cannot be a node of a graph: its name contains a Python keyword")
        if fill_of(func) is not None:
            args = (self._to_fill(func, args[0]), *args[1:])
        node_args, node_kwargs = self._argument(args), self._argument(kwargs)
        node = self.graph.create_node("call_function", func, name=func.overloadpacket.__name__)
        # Set afterwards: torch warns of SymInts among the arguments of a new node. Here they are sizes.
        node.args, node.kwargs = node_args, node_kwargs
        if self.real:
            args, kwargs = self._fake(args), self._fake(kwargs)
        out = meta.apart(func(*args, **kwargs))
        _unsupported(meta.wrong_result(func, out, args))
        first = out[0] if isinstance(out, tuple) else out
        strides = meta.eager_strides(func, first, args, True) if isinstance(first, torch.Tensor) else None
        if strides is not None:
            view = func is torch.ops.aten.expand.default
            make = args[0].as_strided if view else first.new_empty_strided
            first = make(first.shape, strides)
            out = (first, *out[1:]) if isinstance(out, tuple) else first
        self._finish(node, out)
        return out

    def _to_fill(self, fill: Any, like: torch.Tensor) -> torch.Tensor:
        """Memory with the strides in which eager fills `like`, whatever layout the graph will give to that."""
        source = self.source()
        asked = getattr(source.target, "__name__", source.target) if source is not None else ""
        by_name = str(asked).partition(".")[0] == fill.overloadpacket.__name__  # in functional form, by the program
        if repeats(like) or (by_name and not like.is_contiguous()):
            raise EngineUnsupported(f"{fill} fills a tensor that is not contiguous with random numbers")
        with self:
            return torch.ops.aten.empty_strided.default(
                like.shape, like.stride(), dtype=like.dtype, device=like.device
            )

    def _fake(self, value: Any) -> Any:
        """`value` with the fake of each real tensor in its place."""
        if isinstance(value, torch.Tensor):
            return self.real.get(id(value), value)
        if isinstance(value, (tuple, list)):
            return type(value)(self._fake(v) for v in value)
        if isinstance(value, dict):
            return {k: self._fake(v) for k, v in value.items()}
        return value

    def _finish(self, node: torch.fx.Node, out: Any) -> None:
        node.meta["val"] = out
        self._annotate(node)
        if isinstance(out, torch.Tensor):
            # An operator that returns its argument (x.to(same dtype)) must not steal the argument's node.
            if id(out) not in self.nodes:
                self._remember(out, node)
        elif isinstance(out, (tuple, list)):
            self.alive.append(out)
            for i, item in enumerate(out):
                if isinstance(item, torch.Tensor):
                    part = self.graph.call_function(operator.getitem, (node, i))
                    part.meta["val"] = item
                    self._annotate(part)
                    self._remember(item, part)

    def _annotate(self, node: torch.fx.Node) -> None:
        source = self.source()
        if source is not None:
            node.meta["origins"] = (source.name,)
            node.meta["stack"] = source.meta.get("stack", ())
            node.meta["module"] = source.meta.get("module", "")
        if self.rule:
            node.meta["rule"] = self.rule
        elif source is not None and _asks_for_a_dtype(source):
            node.meta["explicit"] = True

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            node = self.nodes.get(id(value))
            if node is not None:
                return node
            if isinstance(value, FakeTensor):
                real = value.constant
                if real is None:
                    raise EngineUnsupported("a fake tensor appeared that is not the result of an operator of the graph")
                node = self._constant(real)
                self._remember(value, node)
                return node
            return self._constant(value)
        if isinstance(value, (tuple, list)):
            return type(value)(self._argument(v) for v in value)
        if isinstance(value, dict):
            return {k: self._argument(v) for k, v in value.items()}
        return value


def _asks_for_a_dtype(node: torch.fx.Node) -> bool:
    """Whether the conversion is explicit in the user's code."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.partition(".")[0] in _CONVERSIONS or node.kwargs.get("dtype") is not None


_CONVERSIONS = frozenset({
    "to", "type", "type_as", "float", "double", "half", "bfloat16", "copy_", "_to_copy", "convert_element_type",
    "setitem", "__setitem__", "asarray", "as_tensor", "tensor",
})


def _reshape_copies(tensor: torch.Tensor, shape: Any) -> bool:
    made = torch.ops.aten.reshape.default(tensor, shape)
    return made.untyped_storage()._cdata != tensor.untyped_storage()._cdata


def _copied_then_viewed(tensor: torch.Tensor, shape: Any) -> torch.Tensor:
    """A reshape that copies, which only rules contain: as a view, it would have no memory to share with its views."""
    copy = torch.ops.aten.clone.default(tensor, memory_format=torch.contiguous_format)
    return torch.ops.aten._unsafe_view.default(copy, shape)


def _call(function: Any, target: Any, args: Any, kwargs: Any) -> Any:
    """The result of a call of the captured graph; what torch's check of a write refuses is computed, then copied."""
    try:
        return function(*args, **kwargs)
    except RuntimeError as error:
        computed = functional_form(target)
        if computed is None or not _refuses_symbols(error):
            raise
    return args[0].copy_(computed(*args, **kwargs))


def _refuses_symbols(error: RuntimeError) -> bool:
    return any(text in str(error) for text in SYMBOLS_REFUSED)


def _unsupported(why: str) -> None:
    if why:
        raise EngineUnsupported(why)


def _check_node(node: torch.fx.Node) -> None:
    """Refuses what only eager can run: operators, and another default dtype, which later ones do not say."""
    target: Any = node.target
    if target is torch.set_default_dtype and torch.get_default_dtype() not in (*node.args, *node.kwargs.values()):
        raise EngineUnsupported("the graph itself sets another default dtype")
    if isinstance(target, torch._ops.HigherOrderOperator):
        raise EngineUnsupported(f"the higher-order operator {target.name()} runs in eager")
    overload = getattr(target, "default", None) if isinstance(target, torch._ops.OpOverloadPacket) else target
    if isinstance(overload, torch._ops.OpOverload) and overload.namespace not in ("aten", "prims"):
        if overload._schema.is_mutable:
            raise EngineUnsupported(f"the custom operator {overload} mutates its arguments")


def needs_gradients(captured: Captured) -> bool:
    """Whether some value of the graph requires grad: autograd would record it.

    A leaf that is changed in place is the input itself, and was changed without autograd: else it would have raised.
    """
    inputs = set(map(id, captured.inputs))
    for node in captured.module.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        value = node.meta.get("val")  # None of `x[0] = y`, which changes what it is given
        values = [value] if value is not None else [given.meta.get("val") for given in node.all_input_nodes]
        for value in values:
            if isinstance(value, torch.Tensor) and value.requires_grad and not (value.is_leaf and id(value) in inputs):
                return True
    return False


@contextmanager
def _inference_tracing() -> Iterator[None]:
    with torch.inference_mode(False), torch.no_grad():
        yield


def _outside_inference_mode(node: torch.fx.Node) -> AbstractContextManager[Any]:
    """The context of a node of a captured graph, which may have turned the inference mode on: functionalization gives
    one tensor several inner ones in turn, and takes none of that mode for one of the other kind. The nodes that set
    modes know no tensors, and run as they are."""
    if not torch.is_inference_mode_enabled():
        return nullcontext()
    known = (other.meta.get("val") for other in (node, *node.all_input_nodes))
    tensors = any(isinstance(leaf, torch.Tensor) for value in known for leaf in tree_leaves(value))
    return _inference_tracing() if tensors else nullcontext()


def _written_anywhere(fake: torch.Tensor) -> torch.Tensor:
    """A fake like one of the inference mode, which may be written in place outside of that mode too."""
    offset = fake.storage_offset()
    extent = sum((n - 1) * s for n, s in zip(fake.shape, fake.stride())) + 1 if fake.numel() != 0 else 0
    with torch.inference_mode(False):
        return fake.new_empty(offset + extent).as_strided(fake.shape, fake.stride(), offset)


@contextmanager
def functionalization() -> Iterator[None]:
    torch._enable_functionalization(reapply_views=True)
    try:
        yield
    except RuntimeError as error:  # a write through as_strided or to elements that share memory
        if _refuses_symbols(error):
            raise EngineUnsupported("an operator that needs concrete sizes writes a tensor whose sizes vary") from error
        if "functionaliz" not in str(error) and "two bool tensors" not in str(error):
            raise
        raise EngineUnsupported(str(error).partition(". ")[0]) from error
    finally:
        torch._disable_functionalization()


def _is_composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            if (value := args[i] if i < len(args) else kwargs.get(argument.name)) is not None:
                yield value
