"""torch.autograd.Function: its forward is interpreted; where gradients flow, so is its backward, each into a graph of
its own, and the node calls a Function made of the two. Where none flow, the forward is inlined in the graph.

The backward runs later, if at all, and perhaps twice: its side effects are left to eager.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch._C import _functorch

from .....operators.autograd_plans import FunctionPlan
from ....breaks.reasons import Reason
from ....breaks.unsupported import Unsupported
from ....shapes.wrapper_subclasses import is_wrapper_class
from ...containers.sequences import TupleValue
from ...core.attributes import method_of
from ...core.base import ObservedException, Value
from ...core.constant import BoundBuiltin, constant
from ...core.handlers import handles
from ...core.registry import from_python
from ..context_manager import set_grad_mode
from ..tensor import NodeValue, TensorValue

if TYPE_CHECKING:
    from ....fx.subgraphs import Scope
    from ...core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]
_Function = torch.autograd.Function
Forward = Callable[["ContextValue", Args], Value]


class ContextValue(Value):
    """The `ctx` of a forward and its backward."""

    __slots__ = ("attributes", "cls", "dirty", "fixed", "materialized", "needs", "saved")

    def __init__(self, cls: type, needs: tuple[bool, ...]) -> None:
        super().__init__()
        self.cls = cls
        self.needs = needs
        self.attributes: dict[str, Value] = {}
        self.saved: tuple[Value, ...] = ()
        self.dirty: tuple[Value, ...] = ()
        self.fixed: tuple[Value, ...] = ()
        self.materialized = True

    def python_type(self) -> type:
        """The class of contexts that torch makes for the Function."""
        return self.cls._backward_cls  # type: ignore[attr-defined]

    def getattr(self, tx: Translator, name: str) -> Value:
        """What the forward set; `saved_tensors`, `needs_input_grad`; the methods."""
        if name in self.attributes:
            return self.attributes[name]
        if name == "saved_tensors":
            return TupleValue(self.saved, tuple)
        if name == "needs_input_grad":
            if tx.graph.reentrant:  # the forward runs without gradients, too
                raise Unsupported(Reason.ATTRIBUTE, detail="ctx.needs_input_grad")
            return from_python(tx, self.needs)
        if name in _CONTEXT_METHODS:
            return BoundBuiltin(self, name)
        if hasattr(_Function, name):
            raise Unsupported(Reason.ATTRIBUTE, detail=f"ctx.{name}")
        return tx.raise_observed(AttributeError, f"'{self.cls.__name__}Backward' object has no attribute '{name}'")

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """An attribute for the backward."""
        if hasattr(_Function, name):
            raise Unsupported(Reason.SET_ATTRIBUTE, detail=f"ctx.{name}")
        self.attributes[name] = value

    def call_method(self, tx: Translator, name: str, args: Args, kwargs: Kwargs) -> Value:
        """The methods of contexts."""
        field = _CONTEXT_METHODS.get(name)
        if field is None or kwargs:
            raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, detail=f"ctx.{name}")
        if field:
            setattr(self, field, tuple(args))
        else:
            self.materialized = args[0].truth(tx)
        return constant(None)

    def describe(self) -> str:
        """For messages."""
        return f"the ctx of {self.cls.__name__}"


_CONTEXT_METHODS = {
    "save_for_backward": "saved",
    "mark_dirty": "dirty",
    "mark_non_differentiable": "fixed",
    "set_materialize_grads": "",
}
"""Method, and the field that stores its arguments."""


_PLAIN = (torch.Tensor, torch.nn.Parameter)  # results of others have their class, and nodes of the backward do not


@dataclass(frozen=True)
class _Traced:
    """The traced forward of a Function: the results, and the tensors among them."""

    returned: Value
    tensors: tuple[TensorValue, ...]

    def items(self, tx: Translator) -> Args:
        """The results of the forward, one by one."""
        return [self.returned] if isinstance(self.returned, TensorValue) else self.returned.iterate(tx)


@handles(getattr(_Function.__dict__["apply"], "__func__", _Function.__dict__["apply"]))
def _apply(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    cls, inputs = args[0].as_constant(), args[1:]
    if kwargs or issubclass(cls, torch.autograd.function.InplaceFunction):
        raise Unsupported(
            Reason.AUTOGRAD_FUNCTION,
            detail=f"{cls.__qualname__}.apply {'gets keywords' if kwargs else 'changes what it gets'}",
        )
    if not _is_followed(cls, inputs):
        raise Unsupported(
            Reason.AUTOGRAD_FUNCTION,
            detail=f"{cls.__qualname__}.apply is called inside of a transform (torch.func, vmap)",
        )
    needs = tuple([isinstance(value, TensorValue) and value.fake.requires_grad for value in inputs])
    if torch.is_grad_enabled() and any(needs):
        return apply_function(tx, cls, inputs)
    context = ContextValue(cls, needs)
    enabled = torch.is_grad_enabled()
    set_grad_mode(tx, False)
    try:
        result = _as_outputs(tx, _traced(tx, cls, _run_forward(tx, cls, context, inputs)), context, inputs)
    finally:
        set_grad_mode(tx, enabled)
    return result


def _is_followed(cls: Any, inputs: Args) -> bool:
    """Whether no transform is active, or only ones whose rule for the Function is its own forward: vmap, where torch
    generates that rule, and nothing needs gradients."""
    levels = _functorch.get_interpreter_stack() or ()
    mapped = all(level.key() == _functorch.TransformType.Vmap for level in levels)
    made = cls.generate_vmap_rule and cls.vmap is _Function.vmap and cls.setup_context is not _Function.setup_context
    if not levels or not mapped or not made:
        return not levels
    return not any(_inside(value.fake).requires_grad for value in inputs if isinstance(value, TensorValue))


def _inside(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor inside vmap's batched tensors, which report that they require no gradients."""
    while _functorch.is_batchedtensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def _run_forward(tx: Translator, cls: type, context: ContextValue, inputs: Args) -> Value:
    """Interpret the forward (and `setup_context`)."""
    forward = method_of(tx, cls, "forward", cls.forward)  # type: ignore[attr-defined]
    if cls.setup_context is _Function.setup_context:  # type: ignore[attr-defined]
        returned = forward.call(tx, [context, *inputs], {})
    else:
        returned = forward.call(tx, inputs, {})
        setup = method_of(tx, cls, "setup_context", cls.setup_context)  # type: ignore[attr-defined]
        setup.call(tx, [context, TupleValue(inputs, tuple), returned], {})
    return returned


def _traced(tx: Translator, cls: type, returned: Value) -> _Traced:
    if not isinstance(returned, (TensorValue, TupleValue)):
        raise Unsupported(
            Reason.AUTOGRAD_FUNCTION, detail=f"the forward of {cls.__qualname__} returns {returned.describe()}"
        )
    items = [returned] if isinstance(returned, TensorValue) else returned.iterate(tx)
    return _Traced(returned, tuple([item for item in items if isinstance(item, TensorValue)]))


def _rebuilt(tx: Translator, traced: _Traced, tensors: Sequence[Value]) -> Value:
    """The forward's return value, with these tensors."""
    supply = iter(tensors)
    if isinstance(traced.returned, TensorValue):
        return next(supply)
    items = traced.returned.iterate(tx)
    return TupleValue([next(supply) if isinstance(item, TensorValue) else item for item in items], tuple)


def _as_outputs(tx: Translator, traced: _Traced, context: ContextValue, inputs: Args) -> Value:
    """An input that the forward returns unchanged is returned as a view of itself, unless it is marked as dirty."""
    outputs: list[Value] = []
    for value in traced.tensors:
        is_input = any(value is given for given in inputs) and not any(value is dirty for dirty in context.dirty)
        outputs.append(tx.graph.call("view_as", [value, value], {}, tx, op="call_method") if is_input else value)
    return _rebuilt(tx, traced, outputs)


def apply_function(tx: Translator, cls: type, inputs: Args, run: Forward | None = None) -> Value:
    """`cls.apply(*inputs)`, where gradients flow; `run` is called instead of the forward, with its context."""
    needs = tuple([isinstance(value, TensorValue) and value.fake.requires_grad for value in inputs])
    kinds = [value.python_type() for value in inputs if isinstance(value, TensorValue)]
    if any(kind not in _PLAIN and not is_wrapper_class(kind) for kind in kinds):
        raise Unsupported(Reason.AUTOGRAD_FUNCTION, detail=f"{cls.__qualname__} gets a tensor subclass, for gradients")
    return _with_backward(tx, cls, ContextValue(cls, needs), inputs, run or partial(_run_forward, tx, cls))


# ---- where gradients flow --------------------------------------------------------------------------------------------
def _with_backward(tx: Translator, cls: type, context: ContextValue, inputs: Args, run: Forward) -> Value:
    tensors = [value for value in inputs if isinstance(value, TensorValue)]
    with tx.graph.nested() as forward:
        given = [_outside(tx, value) for value in tensors]
        for node in given:
            forward.lift_again(node)
        with torch.no_grad():
            traced = _traced(tx, cls, run(context, inputs))
        if not context.materialized and len(traced.tensors) > 1:  # only the backward knows which gradients are None
            raise Unsupported(
                Reason.AUTOGRAD_FUNCTION, detail=f"{cls.__qualname__} calls ctx.set_materialize_grads(False)"
            )
        if not traced.tensors or any(value not in traced.tensors for value in (*context.fixed, *context.dirty)):
            raise Unsupported(Reason.AUTOGRAD_FUNCTION, detail=f"{cls.__qualname__} marks what it does not return")
        if any(inputs.count(value) > 1 for value in context.dirty):
            raise Unsupported(
                Reason.AUTOGRAD_FUNCTION, detail=f"{cls.__qualname__}.apply gets one tensor twice, and changes it"
            )
        later = f"the backward of {cls.__qualname__}"
        with tx.graph.nested_without_writes(later) as backward, tx.effects.sealed(later), torch.no_grad():
            assumed = tx.trace.layouts_assumed
            gradients = _backward(tx, cls, context, traced, inputs, backward)
        materialized = context.materialized or not _passes_nothing(tx, cls, context, traced)
        saved = list(backward.lifted)
        results = [tx.graph.scopes.here(value.node) for value in traced.tensors]
    read = [node for node in forward.lifted if node not in given]
    position = {id(value): i for i, value in enumerate(traced.tensors)}
    plan = FunctionPlan(
        name=cls.__name__,
        forward=forward.close((tuple(results), tuple(saved))),
        backward=backward.close(tuple(gradients)),
        gradients=len(given),
        strides=strides_of([value.fake for value in traced.tensors]) if tx.trace.layouts_assumed > assumed else None,
        fixed=tuple([position[id(value)] for value in context.fixed]),
        dirty=tuple([position[id(value)] for value in context.dirty]),
        once=cls.backward.__code__.co_qualname.startswith("once_differentiable"),  # type: ignore[attr-defined]
        materialized=materialized,
    )
    target = plan.function()
    outputs = tx.graph.call(target, [NodeValue(node) for node in (*given, *read)], {}, tx)
    return _rebuilt(tx, traced, outputs.iterate(tx))


def strides_of(fakes: Sequence[torch.Tensor]) -> tuple[tuple[int, ...] | None, ...]:
    """The strides with which gradients of these are traced; None for contiguous ones."""
    if any(not fake.is_contiguous() and not all(isinstance(n, int) for n in fake.stride()) for fake in fakes):
        raise Unsupported(Reason.AUTOGRAD_FUNCTION, detail="a gradient may have strides that vary")
    return tuple([None if fake.is_contiguous() else fake.stride() for fake in fakes])


def _passes_nothing(tx: Translator, cls: type, context: ContextValue, traced: _Traced) -> bool:
    """Whether the backward returns None where no gradient arrives."""
    with tx.graph.nested(), tx.effects.sealed(f"the backward of {cls.__qualname__}"), torch.no_grad():
        try:
            returned = _called_backward(tx, cls, context, [constant(None) for _ in traced.items(tx)])
        except (Unsupported, ObservedException):
            return False
    gradients = returned.items if isinstance(returned, TupleValue) else [returned]
    return all(gradient.is_constant() and gradient.as_constant() is None for gradient in gradients)


def _called_backward(tx: Translator, cls: type, context: ContextValue, gradients: Args) -> Value:
    name = "backward" if cls.backward is not _Function.backward else "vjp"  # type: ignore[attr-defined]
    return method_of(tx, cls, name, getattr(cls, name)).call(tx, [context, *gradients], {})


def _outside(tx: Translator, value: TensorValue) -> torch.fx.Node:
    return tx.graph.scopes.here(value.as_proxy(), -2)


def _backward(
    tx: Translator, cls: type, context: ContextValue, traced: _Traced, inputs: Args, scope: Scope
) -> list[Any]:
    """Interpret the backward: the nodes of the gradients of the tensors among `inputs`. It receives one tensor for each
    result that is a tensor, None for the others."""
    arriving: dict[int, Value] = {}
    for i, tensor in enumerate(traced.tensors):
        fake = tensor.fake
        with tx.graph.fake_mode:
            like = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
        arriving[id(tensor)] = TensorValue(scope.add_input(f"gradient_{i}", like), like)
        tx.trace.values_by_id[id(like)] = arriving[id(tensor)]
        tx.trace.keep_alive.append(like)
    given = [arriving.get(id(item), constant(None)) for item in traced.items(tx)]
    asked = tx.trace.layouts_asked
    try:
        returned = _called_backward(tx, cls, context, given)
    except ObservedException as raised:
        raise Unsupported(Reason.RAISES, raised.value, **raised.context) from raised
    fakes = [value.fake for value in arriving.values() if isinstance(value, TensorValue)]
    if any(not fake.is_inference() and fake._version for fake in fakes):
        raise Unsupported(
            Reason.AUTOGRAD_FUNCTION, detail=f"the backward of {cls.__qualname__} changes a gradient in place"
        )
    if tx.trace.layouts_asked > asked:
        raise Unsupported(
            Reason.AUTOGRAD_FUNCTION, detail=f"the backward of {cls.__qualname__} reads the strides of a gradient"
        )
    gradients: list[Value] = list(returned.items) if isinstance(returned, TupleValue) else [returned]
    if len(gradients) < len(inputs):
        raise Unsupported(
            Reason.AUTOGRAD_FUNCTION, detail=f"the backward of {cls.__qualname__} returns too few gradients"
        )
    nodes: list[Any] = []
    for value, gradient in zip(inputs, gradients):
        is_none = gradient.is_constant() and gradient.as_constant() is None
        if not is_none and not isinstance(gradient, TensorValue):
            raise Unsupported(
                Reason.AUTOGRAD_FUNCTION, detail=f"the backward of {cls.__qualname__} returns {gradient.describe()}"
            )
        if isinstance(value, TensorValue):
            nodes.append(None if is_none else tx.graph.scopes.here(gradient.as_proxy()))
        elif not is_none:
            raise Unsupported(
                Reason.AUTOGRAD_FUNCTION,
                detail=f"the backward of {cls.__qualname__} returns a gradient of what is no tensor",
            )
    if any(not (g.is_constant() and g.as_constant() is None) for g in gradients[len(inputs) :]):
        raise Unsupported(
            Reason.AUTOGRAD_FUNCTION, detail=f"the backward of {cls.__qualname__} returns too many gradients"
        )
    return nodes
