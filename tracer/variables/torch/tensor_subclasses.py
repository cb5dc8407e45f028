"""User-defined tensor subclasses: those with `__torch_function__` (also the default one), and kinds of parameters.

Their data is a plain tensor of the graph: an input is passed as a view of it without the class, and a result gets its
class when the graph has run, by `Tensor.as_subclass`, as in eager. Attributes of such a result are side effects.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
import torch.overrides

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...runtime.global_modes import without_overrides
from ...shapes.wrapper_subclasses import is_wrapper_class
from ...sources.computed import ComputedSource
from ...sources.source import AttrSource, Source
from ..containers.lists import ListValue, make_list
from ..containers.sequences import TupleValue
from ..core.attributes import MISSING, bind, is_python_method, lookup, type_source
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import handles
from ..core.identity_guards import guard_unchanged
from ..core.late import late
from ..core.operators import IN_PLACE, REFLECTED
from ..core.registry import build, from_python
from .tensor import TensorValue
from .tensor_methods import METHODS
from .torch_function_overrides import has_override, note_class, override, program_defines

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


class SubclassValue(TensorValue):
    """A tensor of a user-defined class. `plain` is the node of the tensor that it is a view of, for one made in the
    trace while gradients were `tracked` or not."""

    __slots__ = ("plain", "tracked")

    def __init__(
        self, node: torch.fx.Node, fake: torch.Tensor, cls: type, source: Source | None = None,
        real: torch.Tensor | None = None, plain: torch.fx.Node | None = None,
    ) -> None:  # fmt: skip
        super().__init__(node, fake, source, real)
        self.kind = cls
        self.plain = plain
        self.tracked = torch.is_grad_enabled()

    # ---- attributes ------------------------------------------------------------------------------------------------
    def own(self, tx: Translator, name: str) -> Value | None:
        """A user-defined class attribute `name`, bound; None where torch's classes come first."""
        found = lookup(self.kind, name)
        if found is MISSING or found is lookup(_own_base(self.kind), name):
            return None
        return bind(tx, found, name, self, self.kind, type_source(self))

    def getattr(self, tx: Translator, name: str) -> Value:
        """Attributes of user-defined classes or of the instance, then torch's attributes, then `__getattr__`."""
        found = lookup(self.kind, name)
        if found is not MISSING and found is not lookup(_own_base(self.kind), name):
            if isinstance(found, property) or not self._has_own(tx, name):
                return bind(tx, found, name, self, self.kind, type_source(self))
        if self._has_own(tx, name):
            return self._instance_attr(tx, name)
        if found is MISSING:
            if is_python_method(lookup(self.kind, "__getattr__")):
                return self.own(tx, "__getattr__").call(tx, [constant(name)], {})  # type: ignore[union-attr]
            if self.source is not None:
                tx.guards.add(self.source, "NO_ATTR", name)
            tx.raise_observed(AttributeError, f"'{self.kind.__name__}' object has no attribute '{name}'")
        if self.real is not None and name in _OF_THE_OBJECT:
            asked = override(tx, operator.attrgetter(name), [self], {})
            return constant(without_overrides(getattr)(self.real, name)) if asked is None else asked
        return super().getattr(tx, name)

    def _has_own(self, tx: Translator, name: str) -> bool:
        if tx.effects.has_pending(self, name):
            return not tx.effects.is_deleted(self, name)
        return self.real is not None and name in self.real.__dict__

    def _instance_attr(self, tx: Translator, name: str) -> Value:
        stored = tx.effects.load_attr(self, name)
        if stored is not None:
            return stored
        assert self.real is not None and self.source is not None
        return build(tx, self.real.__dict__[name], AttrSource(self.source, name))

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """A user-defined attribute; one made in the trace gets it when it is made."""
        found = lookup(self.kind, name)
        if found is not MISSING and (hasattr(torch.Tensor, name) or hasattr(type(found), "__set__")):
            raise Unsupported(Reason.SET_ATTRIBUTE, self.kind, name)
        if lookup(self.kind, "__setattr__") is not lookup(torch.Tensor, "__setattr__"):
            raise Unsupported(Reason.SET_ATTRIBUTE, self.kind, name)
        if self.source is None and not tx.effects.is_new(self):
            raise Unsupported(Reason.SET_ATTRIBUTE, detail=f"{name} of a tensor that the graph computes")
        tx.effects.store_attr(self, name, value)

    # ---- operators and methods -------------------------------------------------------------------------------------
    def call_method(self, tx: Translator, name: str, args: Args, kwargs: Kwargs) -> Value:
        """The user's method, or torch's."""
        if self._has_own(tx, name):
            return self._instance_attr(tx, name).call(tx, args, kwargs)
        own = self.own(tx, name)
        if own is not None:
            return own.call(tx, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def base_method(self, tx: Translator, name: str, args: Args, kwargs: Kwargs) -> Value:
        """A torch method that an override calls through super()."""
        if name.startswith("__") and program_defines(self.kind, name):
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, torch.Tensor, name, given=(self,))
        return TensorValue.call_method(self, tx, name, args, kwargs)

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """An operator; user-defined special methods are left to eager."""
        names = [*REFLECTED.get(IN_PLACE.get(function, function), ()), f"__{function.__name__}__"]
        if any(program_defines(self.kind, name) for name in names):
            raise Unsupported(Reason.OPERATOR, function, given=(self,))
        return super().binary(tx, function, left, right)

    def unary(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """An operator."""
        own = self.own(tx, f"__{function.__name__.strip('_')}__")
        return own.call(tx, [], {}) if own is not None else super().unary(tx, function)

    def getitem(self, tx: Translator, key: Value) -> Value:
        """Indexing."""
        own = self.own(tx, "__getitem__")
        return own.call(tx, [key], {}) if own is not None else super().getitem(tx, key)

    def setitem(self, tx: Translator, key: Value, value: Value) -> None:
        """Assignment to a part."""
        own = self.own(tx, "__setitem__")
        if own is not None:
            own.call(tx, [key, value], {})
        else:
            super().setitem(tx, key, value)

    def length(self, tx: Translator) -> Value:
        """len(tensor)."""
        own = self.own(tx, "__len__")
        return own.call(tx, [], {}) if own is not None else super().length(tx)

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """The slices along dimension 0."""
        own = self.own(tx, "__iter__")
        return own.call(tx, [], {}).iterate(tx) if own is not None else super().iterate(tx)

    def call(self, tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        """`__call__`, where the class has one."""
        own = self.own(tx, "__call__")
        return own.call(tx, args, kwargs) if own is not None else super().call(tx, args, kwargs)

    # ---- after the graph -------------------------------------------------------------------------------------------
    def create(self, codegen: Codegen, cls: type) -> None:
        """Another view of the tensor that it is a view of, with its class; where something was computed from it that
        autograd tracks, itself: a gradient of that may be asked for."""
        assert self.plain is not None
        if self.tracked and self.fake.requires_grad and self.node.users:
            if cls.__basicsize__ != torch.Tensor.__basicsize__:
                of = f"a tensor of the class {cls.__qualname__}, which has __slots__,"
                raise Unsupported(Reason.RECONSTRUCT, detail=of)
            codegen.push_function(given_class)
            codegen.load_node(self.node)
            codegen.const(cls)
            codegen.call(2)
            return
        codegen.push_function(with_class)
        codegen.load_node(self.plain)
        codegen.const(cls)
        codegen.const(self.tracked)
        codegen.call(3)


_OF_THE_OBJECT = frozenset(("is_leaf", "retains_grad", "output_nr"))
"""Attributes in which the view that the graph gets differs from the tensor."""


def _base(cls: type) -> type:
    """The first torch class among those that `cls` derives from."""
    return next(base for base in cls.__mro__ if base.__module__.partition(".")[0] == "torch")


def _own_base(cls: type) -> type:
    """torch.Tensor, or nn.Parameter."""
    return next(base for base in cls.__mro__ if base in (torch.Tensor, torch.nn.Parameter))


def without_class(tensor: torch.Tensor) -> torch.Tensor:
    """A view of the same data that is a plain tensor, with its history."""
    with torch.enable_grad(), torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def given_class(tensor: torch.Tensor, cls: Any) -> torch.Tensor:
    """A result of the graph that nothing else has, of class `cls` from now on."""
    tensor.__class__ = cls
    return tensor


def with_class(tensor: torch.Tensor, cls: Any, tracked: bool) -> torch.Tensor:
    """A view of the same data as a tensor of class `cls`, with its history where `tracked`."""
    with torch.set_grad_enabled(tracked), torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(cls)


# ---- existing tensors ------------------------------------------------------------------------------------------------
def build_subclass(tx: Translator, obj: torch.Tensor, source: Source) -> Value:
    """An input of the graph: the data of a tensor of a user-defined class."""
    cls = type(obj)
    if is_wrapper_class(cls):
        wrapper: Value = late.build_wrapper(tx, obj, source)
        return wrapper
    _refuse_unlike_data(cls)
    if obj.__dict__.get("_is_param") and not issubclass(cls, torch.nn.Parameter):
        raise Unsupported(Reason.UNKNOWN_TYPE, detail=f"a parameter of the tensor subclass {cls.__qualname__}")
    plain = without_class(obj)
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(plain)
    if wrapped or plain.is_nested or plain.is_quantized or plain.layout is not torch.strided or plain.is_inference():
        raise Unsupported(Reason.UNSUPPORTED_TENSOR, detail=f"a tensor of the class {cls.__qualname__}")
    _note_members(tx, cls)
    if has_override(cls):
        fake = tx.graph.shapes.fakify(plain, source)
        tx.graph.shapes.represents(plain, obj)
        node = tx.graph.add_placeholder(ComputedSource(without_class, (source,)), fake)
    else:
        node = tx.graph.add_input(source, obj)
    tx.guards.add(source, "TENSOR_MATCH", obj)
    fake = node.meta["val"]
    value = SubclassValue(node, fake, cls, source, obj)
    tx.trace.values_by_id[id(fake)] = value
    return value


def _refuse_unlike_data(cls: type) -> None:
    """Raises Unsupported for classes whose tensors are more than data: with `__torch_dispatch__`, and torch's own."""
    own = [base for base in cls.__mro__ if base.__module__.partition(".")[0] not in ("torch", "builtins")]
    if cls.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:  # type: ignore[attr-defined]
        raise Unsupported(Reason.UNKNOWN_TYPE, cls, detail=", which has __torch_dispatch__,")
    if not own or _base(cls) not in (torch.Tensor, torch.nn.Parameter):
        raise Unsupported(Reason.UNKNOWN_TYPE, cls)
    if any("__getattribute__" in base.__dict__ for base in own):
        raise Unsupported(Reason.UNKNOWN_TYPE, cls, detail=", which has __getattribute__,")


def _note_members(tx: Translator, cls: type) -> None:
    """A tensor of `cls` is in the trace. Guard which methods the user-defined classes have: a missing one is torch's,
    or what torch's code does."""
    note_class(tx, cls)
    known = tx.trace.overrides.classes
    if cls not in known:
        known.add(cls)
        now = _members(cls)
        guard_unchanged(tx, cls, lambda cls: _members(cls) == now, "what is defined in the body")


def _members(cls: type) -> list[frozenset[str]]:
    return [frozenset(base.__dict__) for base in cls.__mro__ if base.__module__.partition(".")[0] != "torch"]


def as_subclass(tx: Translator, value: TensorValue, cls: type) -> Value:
    """`tensor.as_subclass(cls)`: a view of the data, of that class. Overrides are not called any more."""
    if cls is not torch.Tensor:
        _refuse_unlike_data(cls)
    with tx.trace.overrides.set([], False):
        view = tx.graph.call(torch.ops.aten.alias.default, [value], {}, tx)
    assert isinstance(view, TensorValue)
    if cls is torch.Tensor:
        return view
    _note_members(tx, cls)
    plain = view.node.args[0]
    assert isinstance(plain, torch.fx.Node)
    made = SubclassValue(view.node, view.fake, cls, plain=plain)
    tx.trace.values_by_id[id(view.fake)] = made
    return tx.effects.track_new(made, cls)


def _as_subclass(tx: Translator, self: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    cls = [*args, *kwargs.values()][0].as_constant()
    return as_subclass(tx, self, cls)


METHODS["as_subclass"] = _as_subclass


def make_tensor(tx: Translator, cls: type, args: Args, kwargs: Kwargs) -> Value:
    """`cls(tensor)` for a subclass: its `__new__`, or a view of the tensor; then its `__init__`."""
    if is_wrapper_class(cls):
        wrapper: Value = late.make_wrapper(tx, cls, args, kwargs)
        return wrapper
    _refuse_unlike_data(cls)
    new = lookup(cls, "__new__")
    function = getattr(new, "__func__", new)
    if isinstance(function, FunctionType) and not function.__module__.startswith("torch"):
        made = from_python(tx, function).call(tx, [from_python(tx, cls), *args], kwargs)
    else:
        made = new_tensor(tx, cls, args)
    init = lookup(cls, "__init__")
    if isinstance(init, FunctionType) and issubclass(made.python_type(), cls):
        bind(tx, init, "__init__", made, cls, from_python(tx, cls).source).call(tx, args, kwargs)
    return made


def new_tensor(tx: Translator, cls: type, args: Args) -> Value:
    """torch.Tensor.__new__(cls, tensor)."""
    if len(args) != 1 or not isinstance(args[0], TensorValue) or issubclass(cls, torch.nn.Parameter):
        raise Unsupported(Reason.UNSUPPORTED_CLASS, cls)
    return as_subclass(tx, args[0], cls)


@handles(torch.Tensor._make_subclass)
def _make_subclass(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """torch.Tensor._make_subclass(cls, data, require_grad=False): detached data of another class."""
    given = dict(zip(("cls", "data", "require_grad"), args)) | dict(kwargs)
    data, cls = given["data"], given["cls"].as_constant()
    wanted = given.get("require_grad")
    if not isinstance(data, TensorValue) or len(given) > 3 or (wanted is not None and wanted.truth(tx)):
        raise Unsupported(Reason.UNSUPPORTED_TORCH_FUNCTION, torch.Tensor._make_subclass)
    _refuse_unlike_data(cls)
    with tx.trace.overrides.set([], False):
        detached = tx.graph.call("detach", [data], {}, tx, op="call_method")
    assert isinstance(detached, TensorValue)
    return as_subclass(tx, detached, cls)


# ---- what torch's own implementations do -----------------------------------------------------------------------------
@handles(torch.Tensor.__dict__["__torch_function__"].__func__)
def _default(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """Tensor.__torch_function__: calls the function with overrides disabled; tensors get the class."""
    given = dict(zip(("cls", "func", "types", "args", "kwargs"), args)) | dict(kwargs)
    cls = given["cls"].as_constant()
    if not all(issubclass(cls, kind.as_constant()) for kind in given["types"].iterate(tx)):
        return constant(NotImplemented)
    func = given["func"]
    result = _undisturbed(tx, given)
    if func.is_constant() and func.as_constant() in torch.overrides.get_default_nowrap_functions():
        return result
    return result if cls is torch.Tensor else _converted(tx, result, cls)


@handles(torch._C._disabled_torch_function_impl)
def _disabled(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """That of parameters: results are plain."""
    names = ("func", "types", "args", "kwargs") if len(args) < 5 else ("cls", "func", "types", "args", "kwargs")
    return _undisturbed(tx, dict(zip(names, args)) | dict(kwargs))


def _undisturbed(tx: Translator, given: Mapping[str, Value]) -> Value:
    """func(*args, **kwargs) with overrides disabled."""
    state = tx.trace.overrides
    words = given.get("kwargs")
    named = {} if words is None or words.is_constant() else {
        key.as_constant(): value for key, value in words.pairs(tx)  # type: ignore[attr-defined]
    }  # fmt: skip
    with state.set(state.modes, False):
        return given["func"].call(tx, given["args"].iterate(tx) if "args" in given else [], named)


def _converted(tx: Translator, result: Value, cls: type) -> Value:
    """torch/_tensor.py, _convert."""
    if isinstance(result, TensorValue):
        return result if issubclass(result.kind, cls) else as_subclass(tx, result, cls)
    if isinstance(result, ListValue):
        return make_list(tx, [_converted(tx, item, cls) for item in result.items])
    if isinstance(result, TupleValue):
        return TupleValue([_converted(tx, item, cls) for item in result.items], result.kind)
    return result


late.build_tensor_subclass = build_subclass
late.make_tensor = make_tensor
late.new_tensor = new_tensor
