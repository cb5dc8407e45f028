"""The FX graph under construction.

Every node is made by `TraceGraph.call`, which runs the operation once on fake tensors and keeps the result in
`meta["val"]`. Values hold `torch.fx.Node`s directly: there is no proxy layer.
"""
from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import sympy
import torch
import torch.fx
from torch._C import _functorch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    free_unbacked_symbols,
    has_free_unbacked_symbols,
)
from torch.utils._sympy.functions import ToFloat
from torch.utils._sympy.symbol import SymT, symbol_is_type

from ...artifacts.external_exceptions import came_from_outside
from ...operators.custom_ops import hides_gradient, is_own, names_of
from ...operators.effects import (
    captured_may_raise,
    gives_itself,
    is_native_dropout,
    is_pure_method,
    moves_memory,
    raises_by_name,
)
from ...operators.refused_writes import may_be_refused, writes_lists
from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported
from ..fx.backend_call import CapturedGraph
from ..fx.subgraphs import Scope, Scopes, refuse_writes, refuse_writes_as_data, versions
from ..runtime.warning_filters import called_at
from ..shapes.conditions import says_not_negative
from ..sources.source import Source
from ..variables import build
from ..variables.core.base import Value
from ..variables.torch.custom_op_state import refuse_changed_state
from ..variables.torch.higher_order.registered_autograd import with_registered_gradient
from ..variables.torch.runtime_asserts import RuntimeAssert, check_at_run_time
from ..variables.torch.scalar_arguments import TAKE_SIZES, with_numbers
from ..variables.torch.torch_function_overrides import override_node
from .current_gpu import guard_current_gpu, with_numbered_gpu
from .data_dependent_errors import is_caught
from .nodes import as_code, as_written, fake_of, input_name, subject_of, target_name, tensors_in, unbacked_symbols

if TYPE_CHECKING:
    from ..runtime.global_modes import Modes
    from ..shapes.frame_shapes import FrameShapes
    from ..variables.core.base import Translator
    from ..variables.torch.scalar_tensor_index import RowCopy

_CHECKS = (torch.ops.aten._assert_scalar.default,)
"""Operators that themselves state a condition on numbers."""

_OUT_OF_PLACE: dict[Any, Any] = {
    getattr(operator, f"i{name}"): getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "xor")
}
"""`5 += tensor` makes a new object: with a constant on the left the in-place operator is the plain one."""


class TraceGraph:
    """The nodes captured so far, their fake values, and the inputs by source."""

    def __init__(self, shapes: FrameShapes) -> None:
        self.shapes = shapes
        self.scopes = Scopes()
        self.checkpoint = 0  # the checkpointed region that new nodes belong to; 0: none
        self.reentrant = False  # whether that region is a reentrant checkpoint's
        self.fake_mode = shapes.fake_mode
        self.inputs: dict[Source, torch.fx.Node] = {}
        self.caught = ""  # an operator that may raise in a `try` that handles it
        self.versions: dict[torch.fx.Node, int | None] = {}  # versions of inputs at entry; None: without one
        self.unchecked: list[sympy.Expr] = []  # what torch assumed for the operation that is being added
        self.runtime_assert: RuntimeAssert | None = None  # the first check that relies on a rerun in eager
        self.data_dependent: RuntimeAssert | None = None  # the first operation with a data-dependent result
        self.assigned: list[tuple[torch.Tensor, str]] = []  # what variables are since that attribute of them was set
        self.frozen: list[tuple[torch.Tensor, Callable[[], Unsupported]]] = []  # `p.detach()` of inputs
        self.leaves: list[tuple[torch.Tensor, Callable[[], Unsupported]]] = []  # the break if one leaves
        self.rows: list[RowCopy] = []  # copies that represent views
        self.called: Callable[..., Any]  # calls functions from the user's line of the next operation
        self.operations = 0
        self.sets_modes = False
        self.inside: dict[int, Source] = {}  # sources of tensors that others consist of, by id
        self.asks_overrides: bool | None = None  # whether nodes call overrides of wrapper subclasses

    @property
    def graph(self) -> torch.fx.Graph:
        """The graph that nodes are added to: the innermost open one."""
        return self.scopes.open[-1].graph

    @contextmanager
    def nested(self) -> Iterator[Scope]:
        """A graph inside the graph, open inside the block."""
        scope = Scope(torch.fx.Graph())
        self.scopes.open.append(scope)
        try:
            yield scope
        finally:
            self.scopes.open.pop()

    @contextmanager
    def nested_without_writes(self, what: str) -> Iterator[Scope]:
        """A graph inside the graph that runs later, or a data-dependent number of times. Raises Unsupported where it
        writes to tensors that exist before it."""
        around = self.scopes.graphs()
        before = versions(around)
        with self.nested() as scope:
            yield scope
        refuse_writes(around, before, what)
        refuse_writes_as_data(scope.graph, around, what)

    def make(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], op: str = "call_function"
    ) -> torch.fx.Node:
        """Add a node to the innermost graph; nodes of outer graphs among the arguments are lifted."""
        if len(self.scopes.open) > 1:
            args = torch.fx.node.map_arg(args, self.scopes.here)
            kwargs = torch.fx.node.map_arg(kwargs, self.scopes.here)
        node = self.graph.create_node(op, as_written(target, args), args, kwargs)
        if self.checkpoint:
            node.meta.update(recompute="always", checkpoint=self.checkpoint)
        return node

    def refuse_of_two_runs(self, what: str) -> None:
        """Raises Unsupported where the user asks autograd about `what` in a reentrant checkpoint, which eager runs
        twice: without gradients in the forward, and with gradients in the backward."""
        if self.reentrant and torch.is_grad_enabled():
            raise Unsupported(
                Reason.ATTRIBUTE, detail=f"{what} in torch.utils.checkpoint.checkpoint(use_reentrant=True)"
            )

    def refuse_of_rows(self, fake: torch.Tensor, member: str, unrecorded: bool = False) -> None:
        """Raises Unsupported where the program asks `member` of a view in whose place the graph has a copy
        (`unrecorded`: one that would require gradients, which the copy does not)."""
        if any(row.is_in_memory_of(fake) and row.unrecorded >= unrecorded for row in self.rows):
            raise Unsupported(Reason.UNSUPPORTED_METHOD, torch.Tensor, member)

    def make_number(self, function: Any, args: tuple[Any, ...]) -> torch.fx.Node:
        """Add a node that computes a number, in the graph of its arguments: the graph that needs it first may be nested
        in that one, and end before others need it too."""
        depth = self.scopes.home(args)
        args = torch.fx.node.map_arg(args, lambda node: self.scopes.here(node, depth))
        return self.scopes.open[depth].graph.call_function(as_written(function, args), args)

    @property
    def shape_env(self) -> Any:
        """The ShapeEnv of symbolic sizes; None while all sizes are static."""
        return self.shapes.shape_env

    def add_input(self, source: Source, real: Any) -> torch.fx.Node:
        """The placeholder for the tensor (or varying number) read from `source`; one per source."""
        node = self.inputs.get(source)
        if node is None:
            make: Any = self.shapes.fakify if isinstance(real, torch.Tensor) else self.shapes.symbolic_int
            node = self.add_placeholder(source, make(real, source))
        return node

    def add_placeholder(self, source: Source, fake: Any) -> torch.fx.Node:
        """A placeholder for an input whose fake value is known."""
        node = self.scopes.open[0].add_input(input_name(source), fake)
        if isinstance(fake, torch.Tensor):  # a snapshot: in-place operators change the fake tensor
            node.meta["autograd"] = (fake.requires_grad, fake.is_leaf)
            self.versions[node] = None if fake.is_inference() else fake._version
            self._check_assigned_attributes(fake)
        node.meta["source"] = source
        self.inputs[source] = node
        return node

    def call(
        self,
        target: Any,
        args: Sequence[Value],
        kwargs: Mapping[str, Value],
        tx: Translator,
        op: str = "call_function",
    ) -> Value:
        """Add the node `target(*args, **kwargs)` (a method call when `op` is "call_method") and wrap its result.

        Raises Unsupported when the result is data-dependent and unknown, and when the operator rejects its arguments:
        eager then runs it and the user sees the real error.
        """
        if tx.trace.overrides.may_ask and (answer := override_node(tx, target, op, args, kwargs)) is not None:
            return answer
        name = target_name(target)
        if name in TAKE_SIZES:
            args = with_numbers(tx, name, op == "call_method", args)
        node_args = tuple(arg.as_proxy() for arg in args)
        node_kwargs = {key: value.as_proxy() for key, value in kwargs.items()}
        node_kwargs |= tx.trace.modes.entered_device(target, node_kwargs)
        node_args, node_kwargs = with_numbered_gpu(target, op, node_args, node_kwargs)
        if node_args and not isinstance(node_args[0], torch.fx.Node):
            target = _OUT_OF_PLACE.get(target, target)
        caught = not self.caught and (captured_may_raise(name, node_args) or is_own(target)) and is_caught(tx)
        if caught and not tx.trace.options.run_again:  # the graph's error would bypass the user's handlers
            raise Unsupported(Reason.CAUGHT_ERROR, *subject_of(target))
        if is_own(target):
            refuse_changed_state(tx, names_of(target))
            if (derived := with_registered_gradient(tx, target, args, kwargs)) is not None:
                return derived
        self.called = called_at(tx.code, tx.info.location(tx.current).line, tx.f_globals)
        fake = self.run_fake(op, target, node_args, node_kwargs)
        guard_current_gpu(tx, fake, (*node_args, *node_kwargs.values()))
        if hidden := hides_gradient(target, (node_args, node_kwargs), fake):
            raise Unsupported(Reason.MISSING_GRADIENT, detail=hidden)
        if self.unchecked and isinstance(target, torch._ops.HigherOrderOperator):
            self.unchecked = self._known(self.unchecked, fake)
        if self.unchecked:
            why = Unsupported(Reason.DATA_DEPENDENT_SHAPE, *subject_of(target), detail=", valid for some sizes only")
            check_at_run_time(tx, self.unchecked, why)
            self.unchecked = []
        if self.shapes.shape_env.pending_fresh_unbacked_symbols:
            self._accept_unbacked(target, fake, tx)
        node = self.make(target, *torch.fx.node.map_aggregate((node_args, node_kwargs), as_code), op)
        node.meta |= {"val": fake, "stack": tx.stack_locations(), "module": tx.trace.module_path,
                      "modules": tx.trace.modules, "step": tx.trace.step}
        if caught:
            self.caught = name
        if tx.trace.context.recording:
            node.meta["origins"] = (str(tx.root().current.offset),)
        self.operations += 1
        for row in self.rows:
            row.is_used(node)
        if fake is not None and writes_lists(target):
            return args[0] if args else kwargs["self"]  # the list itself
        return build.wrap_result(tx, node, fake)

    def _known(self, conditions: Sequence[sympy.Expr], results: Sequence[Any]) -> list[sympy.Expr]:
        """The conditions whose symbols the graph has, or an operator's results are. The others are internal to the
        operator: how often a loop runs, which its backward reads."""
        values = [*results, *(node.meta.get("val") for scope in self.scopes.open for node in scope.graph.nodes)]
        sizes = [value.shape if isinstance(value, torch.Tensor) else (value,) for value in values]
        numbers = [number for size in sizes for number in size if isinstance(number, (torch.SymInt, torch.SymFloat))]
        known = set[sympy.Symbol]().union(*map(free_unbacked_symbols, numbers))
        return [condition for condition in conditions if free_unbacked_symbols(condition) <= known]

    def _accept_unbacked(self, target: Any, fake: Any, tx: Translator) -> None:
        """The operation has a data-dependent result. Raises Unsupported where the graph breaks instead."""
        self.shapes.shape_env.pending_fresh_unbacked_symbols.clear()
        size = isinstance(fake, (torch.Tensor, tuple, list))
        place = tx.own_location()
        subject = f"{target_name(target)}@{place.file.rpartition('/')[2]}:{place.line}"
        why = "the size is known when the operator has run" if size else "the number is known when the graph runs"
        reason = Reason.DATA_DEPENDENT_SHAPE if size else Reason.DATA_DEPENDENT_VALUE
        of_mask = target is operator.getitem
        refused = Unsupported(reason, detail="x[mask]") if of_mask else Unsupported(reason, *subject_of(target))
        if tx.trace.context.decide("unbacked", subject, ("symbol", "break"), "symbol", why) == "break":
            raise refused
        if self.data_dependent is None and len(self.scopes.open) == 1:
            found = {"location": place, "stack": tx.stack_locations()}
            self.data_dependent = RuntimeAssert(tx.trace.safe_step(), refused, found)

    def run_fake(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of the operation on the fake values of its arguments."""
        count = self.shapes.shape_env.num_deferred_runtime_asserts
        before = self.shapes.assertions() if count else set()
        run = partial(self._run_fake, op, target, args, kwargs)
        try:
            fake = run()
        except Unsupported as error:
            fake = self.shapes.shape_env.by_example(error, run)
        if self.shapes.shape_env.pending_fresh_unbacked_symbols:
            fake = self.shapes.shape_env.by_example(fake, run)
        if self.shapes.shape_env.num_deferred_runtime_asserts != count and target not in _CHECKS:
            # A condition that torch assumes of such sizes and that does not hold would be an internal error.
            self.unchecked = [e for e in self.shapes.assertions() - before if not says_not_negative(e)]
        if self.assigned or self.frozen:
            self._check_assigned_attributes(fake)
        return fake

    def _check_assigned_attributes(self, fake: Any) -> None:
        """Raises Unsupported where the operation that gave `fake` uses a variable with replaced data in a way that the
        graph cannot represent after `p.data = value`: it has given it a gradient, or taken a view, whose base would not
        be `p`. The same for `p.requires_grad = flag`, and where a view is an input."""
        results = fake if isinstance(fake, (tuple, list)) else (fake,)
        bases = [part._base for part in results if isinstance(part, torch.Tensor) and part._is_view()]
        for variable, name in (*self.assigned, *((variable, "requires_grad") for variable, _ in self.frozen)):
            written = not variable.is_leaf
            if written:
                variable.detach_()
            if written or (any(base is variable for base in bases) and not self._is_frozen(variable)):
                raise Unsupported(Reason.SET_ATTRIBUTE, torch.Tensor, name)

    def _run_fake(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fake_args = tuple([fake_of(arg) for arg in args])
        fake_kwargs = {name: fake_of(value) for name, value in kwargs.items()} if kwargs else kwargs
        if why := may_be_refused(op, target, fake_args, fake_kwargs):
            raise Unsupported(Reason.MEMORY_OVERLAP, detail=f"{target_name(target)}: {why}")
        try:
            with self.fake_mode, _in_cpp(target, fake_args, fake_kwargs), self._below_overrides():
                if op == "call_method":
                    before = fake_args[0].shape if target[-1] == "_" else None
                    fake = self.called(getattr(fake_args[0], target), fake_args[1:], fake_kwargs)
                    if before is not None and fake_args[0].shape != before:
                        raise Unsupported(Reason.METADATA_MUTATION, torch.Tensor, target)
                    return fake
                fake = self._called(target, fake_args, fake_kwargs)
                if is_native_dropout(target) and any(fake[0] is a for a in (*fake_args, *fake_kwargs.values())):
                    raise Unsupported(
                        Reason.UNSUPPORTED_ARGUMENT, *subject_of(target)
                    )  # eager copies, and drops for None
                if writes_lists(target):  # which fake tensors do not count
                    torch.autograd.graph.increment_version([part for part in fake_args[0] if not part.is_inference()])
                return fake
        except Unsupported:
            raise
        except DataDependentOutputException as error:
            read = error.func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default)
            reason = Reason.DATA_DEPENDENT_VALUE if read else Reason.VALUE_READ_BY_OPERATOR
            raise Unsupported(reason, error.func) from error
        except (DynamicOutputShapeException, GuardOnDataDependentSymNode) as error:
            condition = getattr(error, "cond", sympy.false)
            decided_by = condition.free_symbols
            if not self.shapes.shape_env.random_symbols.isdisjoint(decided_by):
                raise Unsupported(Reason.RANDOM_VALUE, *subject_of(target)) from error
            if condition.has(ToFloat) or any(symbol_is_type(symbol, SymT.UNBACKED_FLOAT) for symbol in decided_by):
                raise Unsupported(Reason.VALUE_READ_BY_OPERATOR, *subject_of(target)) from error
            raise Unsupported(Reason.DATA_DEPENDENT_SHAPE, *subject_of(target)) from error
        except Exception as error:
            if came_from_outside(error):
                raise
            if isinstance(error, (UnsupportedOperatorException, UnsupportedFakeTensorException, NotImplementedError)):
                raise Unsupported(Reason.MISSING_FAKE_KERNEL, *subject_of(target)) from error
            if target is operator.getitem and (unbacked := unbacked_symbols(fake_args[1])):  # refused by torch
                is_random = not self.shapes.shape_env.random_symbols.isdisjoint(unbacked)
                reason = Reason.RANDOM_VALUE if is_random else Reason.DATA_DEPENDENT_SHAPE
                raise Unsupported(reason, *subject_of(target)) from error
            first_line = str(error).partition("\n")[0]
            if "its data is not allocated yet" in first_line:  # raised by fake tensors where values are read
                raise Unsupported(Reason.VALUE_READ_BY_OPERATOR, *subject_of(target)) from error
            if "only concrete integers" in first_line:  # an operator whose sizes must be constants
                raise Unsupported(Reason.DATA_DEPENDENT_SHAPE, *subject_of(target)) from error
            if _is_of_forward_gradients(error, [*fake_args, *fake_kwargs.values()]):
                raise Unsupported(Reason.MISSING_FORWARD_GRADIENT, *subject_of(target)) from error
            if first_line.startswith("There was no fake impl registered"):  # torch.library.custom_op's
                raise Unsupported(Reason.MISSING_FAKE_KERNEL, *subject_of(target)) from error
            where: dict[str, Any] = _before_the_view(args) if "modified inplace" in first_line else {}
            raise Unsupported(Reason.OPERATOR_ERROR, detail=f"{target_name(target)}: {first_line}", **where) from error

    def _below_overrides(self) -> AbstractContextManager[Any]:
        """Around an operation on fake tensors of user-defined classes: their `__torch_function__` has been handled
        already."""
        return torch._C.DisableTorchFunctionSubclass() if self.asks_overrides is False else nullcontext()

    def _called(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a function on fake values. Raises Unsupported where it changes a tensor's memory or shape."""
        if moves_memory(target_name(function).partition(".")[0]):
            raise Unsupported(Reason.METADATA_MUTATION, *subject_of(function))
        given = [(tensor, tensor.shape) for tensor in tensors_in(kwargs.values())] if kwargs else ()
        result = self.called(function, args, kwargs)
        if any(tensor.shape != shape for tensor, shape in given):
            raise Unsupported(Reason.METADATA_MUTATION, *subject_of(function), detail="with out=")
        return result

    def finish(self, outputs: Sequence[torch.fx.Node], modes: Modes) -> CapturedGraph:
        """Close the graph with `outputs`, drop unused nodes, and return it. Raises Unsupported where an output belongs
        to an inner graph, or is an autograd leaf that the graph made, or a copy is distinguishable from the view that
        it represents."""
        self._keep_leaves(outputs)
        for row in self.rows:
            if not row.stays_unseen(self, outputs):
                raise row.refused()
        self.graph.output(tuple([self.scopes.here(node) for node in outputs]))
        self._drop_dead()
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        for node, version in self.versions.items():
            if version is not None:
                node.meta["writes"] = node.meta["val"]._version - version
        # The module's Python code is generated when it is first run.
        module = _LazyGraphModule(self.scopes.open[0].modules, self.graph)
        inputs = tuple(node.meta["val"] for node in placeholders)
        return CapturedGraph(
            module=module,
            inputs=inputs,
            input_names=tuple(node.meta["source"].expression for node in placeholders),
            grad_enabled=modes.grad,
            inference_mode=modes.inference,
            examples=partial(self.shapes.real_values, inputs),
        )

    def _is_frozen(self, variable: torch.Tensor) -> bool:
        return any(variable is frozen for frozen, _ in self.frozen)

    def _keep_leaves(self, outputs: Sequence[torch.fx.Node]) -> None:
        """Raises Unsupported where a tensor that was made to require gradients leaves the graph, or a view of it, or a
        view of one that was made not to require them, whose base would not be the user's tensor."""
        for variable, refused in self.frozen:
            found = [node.meta.get("val") for node in outputs]
            if any(isinstance(part, torch.Tensor) and part._is_view() and part._base is variable for part in found):
                raise refused()
        results = [node.meta.get("val") for node in outputs] if self.leaves else []
        recorded = [part for part in results if isinstance(part, torch.Tensor) and part.requires_grad]
        memory = {part.untyped_storage()._cdata for part in recorded}
        for leaf, leaves in self.leaves:
            if leaf.untyped_storage()._cdata in memory:
                raise leaves()
        if recorded and not self._reached_from_inputs(outputs):
            raise self.leaves[0][1]()

    def _reached_from_inputs(self, outputs: Sequence[torch.fx.Node]) -> bool:
        """Whether gradients of all results flow to inputs: those that end in tensors made here would be lost, and with
        them the results' requires_grad."""
        reached: dict[torch.fx.Node, bool] = {}
        for node in self.graph.nodes:
            value = node.meta.get("val")
            parts = value if isinstance(value, (tuple, list)) else [value]
            if any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts):
                reached[node] = node.op == "placeholder" or any(map(reached.get, node.all_input_nodes))
        return all(reached.get(node, True) for node in outputs)

    def used_inputs(self) -> list[Source]:
        """The sources of the placeholders that remain after `finish`, in order."""
        return [node.meta["source"] for node in self.graph.nodes if node.op == "placeholder"]

    def _drop_dead(self) -> None:
        """Drop unused nodes that are known to be pure, and unused inputs. The engine, which has the operators' schemas
        after functionalization, drops the rest."""
        symbols = self.shapes.shape_env is not None
        for node in reversed(list(self.graph.nodes)):
            if node.users or node.op == "output":
                continue
            if node.op == "placeholder":
                if not symbols:
                    self.graph.erase_node(node)
            elif _is_pure(node):
                self.graph.erase_node(node)


def _before_the_view(args: Sequence[Any]) -> dict[str, int]:
    """Where the graph breaks for a write that autograd refuses because of how the view was made. A tensor that the
    graph returns for the view need not know that, so the break comes before the view is made."""
    steps = []
    node = args[0] if args else None
    while isinstance(node, torch.fx.Node) and "step" in node.meta:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor) and not value._is_view():
            break
        steps.append(node.meta["step"])
        node = node.args[0] if node.args else None
    return {"earlier": min(steps)} if steps else {}


def _is_pure(node: torch.fx.Node) -> bool:
    if node.op == "call_method":
        return is_pure_method(str(node.target)) and "out" not in node.kwargs
    module = getattr(node.target, "__module__", "")
    name = getattr(node.target, "__name__", "")
    if raises_by_name(name) and _has_unbacked_operand(node):
        return False
    return module == "_operator" and not name.startswith("i") and name not in ("setitem", "delitem")


def _has_unbacked_operand(node: torch.fx.Node) -> bool:
    """Whether an operator indexes with, or divides by, data-dependent integers."""
    found = list(node.all_input_nodes)
    if node.target is operator.getitem and node.args[0] in found:
        found.remove(node.args[0])  # type: ignore[arg-type]
    values = [other.meta.get("val") for other in found]
    return any(
        not value.is_floating_point() and value.dtype is not torch.bool if isinstance(value, torch.Tensor)
        else isinstance(value, (torch.SymInt, torch.SymFloat)) and has_free_unbacked_symbols(value)
        for value in values
    )


def _is_of_forward_gradients(error: Exception, args: Sequence[Any]) -> bool:
    """Whether only fake tensors raise `error`: torch's rules for forward-mode gradients are TorchScript, for which they
    are on the device "meta", like the tensor that holds their sizes."""
    leaves = torch.utils._pytree.tree_leaves(args)
    on_meta = any(isinstance(leaf, torch.Tensor) and leaf.is_meta for leaf in leaves)
    levels = _functorch.get_interpreter_stack() or ()
    forward = any(level.key() == _functorch.TransformType.Jvp for level in levels)
    return forward and not on_meta and re.search(r"FakeTensor|\bmeta\b|TorchScript", str(error)) is not None


def _in_cpp(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Around a function whose Python decomposition, used by torch with symbolic sizes, returns another object than
    eager."""
    return torch._C._DisablePythonDispatcher() if gives_itself(target, args, kwargs) else nullcontext()
