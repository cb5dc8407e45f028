"""Wrapper tensor subclasses (`tracer/shapes/wrapper_subclasses.py`): nodes of the graph like any tensor. Their fakes
are wrappers of fakes, so an operator on them runs the class's own `__torch_dispatch__`; the engine unwraps them
(`engine/aot/subclasses/`)."""
from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...runtime.global_modes import without_overrides
from ...shapes.fake_wrappers import fake_of
from ...shapes.wrapper_subclasses import Layout, has_torchs_overrides, is_wrapper_class
from ...sources.source import Source
from ..core.attributes import lookup
from ..core.base import Value
from ..core.constant import constant
from ..core.late import late
from ..core.registry import CONSTANT_TYPES, RESULTS, from_python
from .tensor import NodeValue
from .tensor_subclasses import SubclassValue
from .torch_function_overrides import note_class

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


class WrapperValue(SubclassValue):
    """A tensor that consists of other tensors."""

    __slots__ = ()

    def getattr(self, tx: Translator, name: str) -> Value:
        """Inner tensors are nodes."""
        found: Value | None = late.wrapper_attribute(tx, self, name)
        if found is not None:
            return found
        if name in _inner_names(self.fake):
            return tx.graph.call(builtins.getattr, [NodeValue(self.node), constant(name)], {}, tx)
        if name == "_is_param" and self.real is None:
            return super().getattr(tx, name)
        if isinstance(lookup(self.kind, name), MemberDescriptorType):
            return self._instance_attr(tx, name)
        return super().getattr(tx, name)

    def _has_own(self, tx: Translator, name: str) -> bool:
        if super()._has_own(tx, name):
            return True
        return not tx.effects.has_pending(self, name) and name in self.fake.__dict__

    def _instance_attr(self, tx: Translator, name: str) -> Value:
        stored = tx.effects.load_attr(self, name)
        if stored is not None:
            return stored
        if self.real is not None and name in self.real.__dict__:
            return super()._instance_attr(tx, name)
        found = getattr(self.fake, name)
        if not _is_plain(found):
            raise Unsupported(
                Reason.ATTRIBUTE, detail=f"{name} of {self.describe()}, which is {type(found).__qualname__}"
            )
        return from_python(tx, found)

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """Attributes are part of what a later operator reads."""
        raise Unsupported(Reason.SET_ATTRIBUTE, self.kind, name)


def _inner_names(fake: Any) -> list[str]:
    names: list[str] = fake.__tensor_flatten__()[0]
    return names


def _is_plain(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))
    return type(value) in CONSTANT_TYPES or type(value) is torch.Size


def is_parameter(tx: Translator, value: WrapperValue) -> bool:
    """nn.Parameter's isinstance check for a tensor whose class does not derive from it."""
    if value.real is None or value.source is None:
        return bool(value.fake.__dict__.get("_is_param"))
    now = bool(value.real.__dict__.get("_is_param"))
    same = without_overrides(lambda tensor: bool(tensor.__dict__.get("_is_param")) is now)
    tx.guards.add(value.source, "LAMBDA", (same, f"{{}} is {'a' if now else 'no'} parameter"))
    return now


def build_wrapper(tx: Translator, obj: torch.Tensor, source: Source) -> Value:
    """An input of the graph."""
    cls = type(obj)
    if torch._C._functorch.peek_interpreter_stack() is not None or obj.is_inference():
        why = "in a transform, or of inference mode,"
        raise Unsupported(Reason.UNKNOWN_TYPE, cls, detail=f"{why}")
    with torch._C.DisableTorchFunctionSubclass(), torch.inference_mode(False), torch.no_grad():
        try:
            fake = fake_of(tx.graph.shapes, obj, source, lambda *found: _guard(tx, *found))
        except Unsupported:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise Unsupported(Reason.UNKNOWN_TYPE, cls, detail=f"({why})") from error
        fake = _with_history(tx, fake, obj)
    _note(tx, cls)
    node = tx.graph.add_placeholder(source, fake)
    value = WrapperValue(node, fake, cls, source, obj)
    tx.trace.values_by_id[id(fake)] = value
    return value


def _guard(tx: Translator, tensor: torch.Tensor, source: Source, layout: Layout | None) -> None:
    """Guard a wrapper, or a tensor inside one: with the same layout as now, and the same object where it was seen
    before."""
    known = tx.trace.values_by_id.get(id(tensor))
    first = known.source if known is not None else tx.graph.inside.get(id(tensor))
    if first is not None:
        tx.guards.add(source, "DUPLICATE_INPUT", first)
        return
    if layout is not None:
        what = f"{{}} holds and says of itself what the {layout.cls.__qualname__} did that was traced"
        tx.guards.add(source, "LAMBDA", (without_overrides(layout.accepts), what))
    tx.guards.add(source, "TENSOR_MATCH", tensor)
    tx.graph.inside[id(tensor)] = source
    tx.trace.keep_alive.append(tensor)


def _note(tx: Translator, cls: Any) -> None:
    """A tensor of the class is in the trace. Raises Unsupported where operators would call its `__torch_function__`,
    and no other's."""
    note_class(tx, cls)
    asks = has_torchs_overrides(cls)
    if tx.graph.asks_overrides not in (None, asks):
        raise Unsupported(Reason.UNKNOWN_TYPE, cls, detail="beside one of another kind")
    tx.graph.asks_overrides = asks


def _with_history(tx: Translator, fake: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """`fake` with the autograd history of the real tensor: a leaf, or a result."""
    if fake.requires_grad:
        fake.requires_grad_(False)
    if not real.requires_grad:
        return fake
    fake.requires_grad_()
    if real.is_leaf:
        return fake
    with torch.enable_grad(), tx.graph.fake_mode:
        if real._is_view():
            return torch.ops.aten.alias.default(fake)
        # not a view of a leaf, which must not be written
        made: torch.Tensor = torch._C._functions.DelayedError("the history of an input", 1)(fake)
        return made


def _wrap(tx: Translator, node: torch.fx.Node, fake: torch.Tensor) -> Value:
    _note(tx, type(fake))
    value = WrapperValue(node, fake, type(fake))
    tx.trace.values_by_id[id(fake)] = value
    return value


class RaggedSize(Value):
    """A size of a nested tensor that differs between its parts: it can be passed on."""

    __slots__ = ("node",)

    def __init__(self, node: torch.fx.Node) -> None:
        super().__init__()
        self.node = node

    def python_type(self) -> type:
        """int, as far as traced code can observe."""
        return int

    def as_proxy(self) -> torch.fx.Node:
        """Its node."""
        return self.node

    def describe(self) -> str:
        """For messages."""
        return "a ragged size of a nested tensor"


def _ragged_size(tx: Translator, size: Any, owner: Value, function: Any, dimension: int | None) -> Value:
    args = (owner.as_proxy(),) if dimension is None else (owner.as_proxy(), dimension)
    node = tx.graph.make_number(function, args)
    node.meta.update(val=size, stack=tx.stack_locations(), module=tx.trace.module_path)
    return RaggedSize(node)


RESULTS.insert(0, (lambda fake: is_wrapper_class(type(fake)), _wrap))


def make_wrapper(tx: Translator, cls: type, args: Args, kwargs: Kwargs) -> Value:
    """`cls(inner, ...)`: a node. Gradients do not flow through it."""
    _note(tx, cls)
    made = tx.graph.call(cls, args, kwargs, tx)
    if not isinstance(made, WrapperValue) or made.fake.requires_grad:
        raise Unsupported(Reason.UNSUPPORTED_CLASS, cls, detail="of tensors that require gradients")
    return made


late.ragged_size = _ragged_size
late.make_wrapper = make_wrapper
late.build_wrapper = build_wrapper
late.is_parameter = is_parameter
