"""Tensors: nodes of the graph, with a fake tensor that knows shape, dtype and device."""
from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.fx

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...runtime.global_modes import without_overrides
from ...sources.display_names import display_name, expression_of
from ...sources.roots import ModuleGlobalSource
from ...sources.source import AttrSource, Source
from ..containers.sequences import TupleValue
from ..core.base import Value
from ..core.constant import BoundBuiltin, SnapshotIterator, constant
from ..core.late import late
from ..core.operators import IN_PLACE, apply
from ..core.registry import RESULTS, build, builds, from_python, is_library
from ..python.partials import MethodValue
from ..python.symbolic_numbers import NumberValue, size_value
from .torch_function_overrides import call_method, has_override, override

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

_ATEN = torch.ops.aten


class TensorValue(Value):
    """A tensor. `node` computes it in the graph, `fake` has its metadata, `kind` is the type that traced code sees.
    `unrecorded`: the break, where the node is not what autograd would record as the tensor (`tensor_assignment.py`).
    `was_view`: whether it is a view, where `fake` is one of what it was before `y.t_()`."""

    __slots__ = ("fake", "kind", "node", "real", "shape", "unrecorded", "was_view")

    def __init__(
        self, node: torch.fx.Node, fake: torch.Tensor, source: Source | None = None, real: torch.Tensor | None = None
    ) -> None:
        super().__init__(source)
        self.node = node
        self.fake = fake
        self.real = real
        self.kind = type(real) if real is not None else torch.Tensor
        self.shape: Value | None = None
        self.unrecorded: Callable[[], Unsupported] | None = None
        self.was_view: bool | None = None

    def key(self) -> Any:
        """Tensors are keys by identity."""
        return self

    def python_type(self) -> type:
        """torch.Tensor, or nn.Parameter."""
        return self.kind

    def as_proxy(self) -> torch.fx.Node:
        """Its node. Raises Unsupported where autograd would record the tensor, and not the node."""
        if self.unrecorded is not None and torch.is_grad_enabled():
            raise self.unrecorded()
        return self.node

    def truth(self, tx: Translator) -> bool:
        """Depends on the data: the tracer stops here."""
        if self.fake.dim() and all(type(size) is int for size in self.fake.shape) and self.fake.numel() > 1:
            raise Unsupported(Reason.OPERATOR_ERROR, detail="bool() of a tensor of many values")
        raise Unsupported(Reason.DATA_DEPENDENT_BRANCH, self)

    # ---- attributes ------------------------------------------------------------------------------------------------
    def getattr(self, tx: Translator, name: str) -> Value:
        """Metadata as constants; views (`T`, `data`, `real`) as nodes; methods."""
        if tx.trace.overrides.may_ask:
            asked = override(tx, operator.attrgetter(name), [self], {})
            if asked is not None:
                return asked
        if tx.effects.has_pending(self, name) and name != "data":
            stored = tx.effects.load_attr(self, name)
            if stored is None:
                tx.raise_observed(AttributeError, f"'Tensor' object has no attribute '{name}'")
            return stored
        if name in _OF_AUTOGRAD:
            tx.graph.refuse_of_two_runs(f"Tensor.{name}")
        special = _ATTRIBUTES.get(name)
        if special is not None:
            return special(tx, self)
        if name in _CONSTANT_ATTRIBUTES:
            if name == "requires_grad":
                tx.graph.refuse_of_rows(self.fake, name, unrecorded=True)
            _guard_history(tx, self, name)
            return constant(getattr(self.fake, name))
        if name in _VIEW_ATTRIBUTES:
            owner = NodeValue(self.node) if name == "data" else self  # which autograd never records
            return tx.graph.call(builtins.getattr, [owner, constant(name)], {}, tx)
        if self.real is not None and self.source is not None and name in self.real.__dict__:
            return build(tx, self.real.__dict__[name], AttrSource(self.source, name))
        found = getattr(self.kind, name, None)
        if found is None:
            if self.source is not None:
                tx.guards.add(self.source, "NO_ATTR", name)
            tx.raise_observed(AttributeError, f"'{self.kind.__name__}' object has no attribute '{name}'")
        given = self._user_defined_method(name)
        if given is not None:
            cls, function = given
            where = ModuleGlobalSource(cls.__module__, cls.__name__)
            return MethodValue(build(tx, function, AttrSource(where, name)), self)
        if callable(found):
            return BoundBuiltin(self, name)
        raise Unsupported(Reason.ATTRIBUTE, torch.Tensor, name)

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """User-defined attributes; those of torch change the tensor and are left to eager."""
        if name in SETTERS and not tx.trace.overrides.may_ask:
            SETTERS[name](tx, self, value)
            return
        if hasattr(torch.Tensor, name):
            raise Unsupported(Reason.SET_ATTRIBUTE, torch.Tensor, name)
        if self.source is None:
            raise Unsupported(Reason.SET_ATTRIBUTE, detail=f"{name} of a tensor that the graph computes")
        tx.effects.store_attr(self, name, value)

    # ---- operators -------------------------------------------------------------------------------------------------
    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """A node."""
        if function in (operator.eq, operator.ne) and not _is_operand(right if left is self else left):
            return constant(function is operator.ne)
        if function in IN_PLACE and not isinstance(left, TensorValue):
            function = IN_PLACE[function]
        return tx.graph.call(function, [_without_numpy(tx, left), _without_numpy(tx, right)], {}, tx)

    def unary(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """A node; as an index it reads the data."""
        if function is operator.index:
            raise Unsupported(Reason.DATA_DEPENDENT_VALUE, detail="a tensor as an index")
        return tx.graph.call(function, [self], {}, tx)

    def getitem(self, tx: Translator, key: Value) -> Value:
        """Indexing: a node. As an index, a varying number would be specialized; `select` keeps it, but has another
        message where it is out of range."""
        if key.is_constant() and issubclass(key.python_type(), np.integer):
            key = key.call_method(tx, "__index__", [], {})
        if isinstance(key, NumberValue) and self.kind in (torch.Tensor, torch.nn.Parameter) and self.fake.dim():
            if not key.is_constant() and key.python_type() is int and key.is_backed() and self._has_row(key.symbol):
                return tx.graph.call(torch.select, [self, constant(0), key], {}, tx)
        key = late.arrays_as_places(tx, key)
        if isinstance(key, (TensorValue, TupleValue)) and (row := late.take_rows(tx, self, key)) is not None:
            return row
        return tx.graph.call(operator.getitem, [self, key], {}, tx)

    def _has_row(self, index: torch.SymInt) -> bool:
        size = self.fake.size(0)
        return bool(-size <= index) and bool(index < size)

    def setitem(self, tx: Translator, key: Value, value: Value) -> None:
        """Assignment to a part: a node that changes the tensor in place. torch refuses NumPy numbers, except those that
        are Python floats too."""
        if issubclass(value.python_type(), np.generic) and not issubclass(value.python_type(), float):
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"a tensor's part set to {value.describe()}")
        key = late.arrays_as_places(tx, key)
        tx.graph.call(operator.setitem, [self, *late.written_at(tx, self, key, value)], {}, tx)

    def contains(self, tx: Translator, item: Value) -> bool:
        """`in` reads the data."""
        raise Unsupported(Reason.DATA_DEPENDENT_BRANCH, detail=f"`in` {self.describe()}")

    def length(self, tx: Translator) -> Value:
        """Size of dimension 0."""
        if tx.trace.overrides.may_ask and (asked := override(tx, len, [self], {})) is not None:
            return asked
        if self.fake.dim() == 0:
            tx.raise_observed(TypeError, "len() of a 0-d tensor")
        return self.sizes(tx).items[0]

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """The slices along dimension 0."""
        if tx.trace.overrides.may_ask:
            self.call_method(tx, "dim", [], {})  # Tensor.__iter__ is two calls that may be overridden
        if self.fake.dim() == 0:
            tx.raise_observed(TypeError, "iteration over a 0-d tensor")
        return tx.graph.call("unbind", [self, constant(0)], {}, tx, op="call_method").iterate(tx)

    def hint(self, tx: Translator) -> None:
        """`__len__`, where a class may observe the call."""
        if tx.trace.overrides.may_ask:
            self.length(tx)

    def iter(self, tx: Translator) -> Value:
        """An iterator over the slices along dimension 0."""
        return SnapshotIterator(self.iterate(tx))

    # ---- methods ---------------------------------------------------------------------------------------------------
    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """From the table, else a node."""
        if tx.trace.overrides.may_ask and hasattr(torch.Tensor, name):
            asked = override(tx, call_method(name), [self, *args], kwargs)
            if asked is not None:
                return asked
        if self._user_defined_method(name) is not None:
            return self.getattr(tx, name).call(tx, args, kwargs)
        return self._called(tx, name, args, kwargs)

    def _user_defined_method(self, name: str) -> tuple[type, FunctionType] | None:
        """The function that user code made a method of all tensors (`torch.Tensor.double_up = ...`) or parameters, and
        that class. Raises Unsupported for another kind of method."""
        owner = next((base for base in self.kind.__mro__ if name in base.__dict__), None)
        found: Any = owner.__dict__[name] if owner in (torch.Tensor, torch.nn.Parameter) else None
        function = getattr(found, "__func__", getattr(found, "func", found))
        if owner is None or not isinstance(function, FunctionType) or is_library(function.__module__):
            return None
        if found is not function:  # a static method, a class method or a partial one
            raise Unsupported(Reason.ATTRIBUTE, torch.Tensor, name)
        return owner, function

    def _called(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if (args or kwargs) and name in _TAKES_NOTHING:
            raise Unsupported(Reason.RAISES, detail=f"TypeError: Tensor.{name}() takes no arguments")
        method = METHODS.get(name)
        if method is not None:
            result = method(tx, self, args, kwargs)
            if result is not None:
                return result
        elif not hasattr(torch.Tensor, name):
            return self.getattr(tx, name).call(tx, args, kwargs)
        return tx.graph.call(name, [self, *args], kwargs, tx, op="call_method")

    def base_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A method of torch.Tensor, bypassing overrides."""
        if self._user_defined_method(name) is not None:
            raise Unsupported(
                Reason.UNSUPPORTED_ARGUMENT,
                detail=f"torch's own Tensor.{name}, in the place of which the program put another,",
            )
        return self.call_method(tx, name, args, kwargs)

    def sizes(self, tx: Translator) -> TupleValue:
        """The torch.Size."""
        if self.shape is None:
            sizes = enumerate(self.fake.shape)
            items = [size_value(tx, size, self, _ATEN.sym_size.int, i) for i, size in sizes]
            self.shape = TupleValue(items, torch.Size)
        return self.shape  # type: ignore[return-value]

    def reconstruct(self, codegen: Codegen) -> None:
        """The result of the graph."""
        codegen.load_node(self.node)

    def describe(self) -> str:
        """The user's expression of which it is the value."""
        if self.source is not None:
            return f"the tensor `{display_name(self.source)}`"
        stack = self.node.meta.get("stack")
        text = expression_of(stack[-1]) if stack else ""
        return f"the tensor `{text or self.node.name}`"


class NodeValue(Value):
    """A node as an argument."""

    __slots__ = ("node",)

    def __init__(self, node: torch.fx.Node) -> None:
        super().__init__()
        self.node = node

    def as_proxy(self) -> torch.fx.Node:
        """The node."""
        return self.node


_CONSTANT_ATTRIBUTES = frozenset(
    "dtype device layout ndim requires_grad is_leaf is_cuda is_cpu is_sparse is_quantized is_meta is_mps is_xpu"
    " is_mkldnn is_nested itemsize is_sparse_csr is_ipu is_vulkan is_mtia is_maia is_xla output_nr".split()
)

_VIEW_ATTRIBUTES = frozenset("T mT H mH data real imag".split())


METHODS: dict[str, Callable[..., Value | None]] = {}
"""Methods whose result is no tensor: handler(tx, self, args, kwargs) -> Value, or None for a node; `tensor_methods.py`
has them."""

_TAKES_NOTHING = frozenset(
    "numel nelement get_device item tolist storage_offset dim ndimension is_floating_point is_complex is_signed detach"
    " detach_ element_size is_inference is_conj is_neg is_coalesced dense_dim sparse_dim is_nonzero data_ptr _is_view"
    " __len__ __iter__ __bool__ __int__ __float__ __index__ __complex__".split()
)
"""Methods without arguments, whose handlers ignore them."""

SETTERS: dict[str, Callable[[Any, TensorValue, Value], None]] = {}
"""Attributes of torch that may be set; `tensor_assignment.py` has them."""


def _shape(tx: Translator, self: TensorValue) -> Value:
    return self.sizes(tx)


def _grad(tx: Translator, self: TensorValue) -> Value:
    if self.real is not None and self.source is not None:
        if has_override(self.kind):  # the trace and the guards would call it, too
            raise Unsupported(
                Reason.ATTRIBUTE, detail=f"the gradient of {self.describe()}, of the class {self.kind.__qualname__}"
            )
        if not self.real.is_leaf and not self.real.retains_grad:
            raise Unsupported(Reason.ATTRIBUTE, detail=_NO_LEAF)
        return build(tx, self.real.grad, AttrSource(self.source, "grad"))
    if not self.fake.requires_grad or self.fake.retains_grad:
        return constant(None)
    raise Unsupported(Reason.ATTRIBUTE, detail='the gradient of a tensor' if self.fake.is_leaf else _NO_LEAF)


_NO_LEAF = "the gradient of a tensor that is no leaf: torch warns of that"


_OF_HISTORY = frozenset(("is_leaf", "output_nr", "retains_grad"))
"""Autograd attributes of a tensor, which TENSOR_MATCH does not compare."""

_OF_AUTOGRAD = _OF_HISTORY | {"requires_grad", "grad", "grad_fn"}
"""Attributes that say what autograd records."""


def _guard_history(tx: Translator, self: TensorValue, name: str) -> None:
    """What traced code has seen of an input's autograd history is guarded. Without gradients there is one answer."""
    if name not in _OF_HISTORY or self.source is None or self.real is None:
        return
    with torch._C.DisableTorchFunctionSubclass():
        now, recorded = getattr(self.real, name), self.real.requires_grad
    if recorded:
        unchanged = (without_overrides(lambda tensor: getattr(tensor, name) == now), f"{{}}.{name} is {now}")
        tx.guards.add(self.source, "LAMBDA", unchanged)


def _retains_grad(tx: Translator, self: TensorValue) -> Value:
    """fake tensors do not have what was set on an input before"""
    _guard_history(tx, self, "retains_grad")
    before = self.source is not None and self.real is not None and self.real.retains_grad
    return constant(before or self.fake.retains_grad)


def _grad_fn(tx: Translator, self: TensorValue) -> Value:
    if self.fake.grad_fn is None:
        _guard_history(tx, self, "is_leaf")
        return constant(None)
    raise Unsupported(Reason.ATTRIBUTE, torch.Tensor, "grad_fn")


def numel(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """How many elements there are."""
    return size_value(tx, self.fake.numel(), self, _ATEN.sym_numel.default)


_ATTRIBUTES: dict[str, Callable[[Any, TensorValue], Value]] = {
    "shape": _shape,
    "grad": _grad,
    "grad_fn": _grad_fn,
    "retains_grad": _retains_grad,
    "__class__": lambda tx, self: from_python(tx, self.kind),
    "nbytes": lambda tx, self: apply(tx, operator.mul, numel(tx, self, [], {}), constant(self.fake.itemsize)),
}


def _without_numpy(tx: Translator, value: Value) -> Value:
    """A NumPy number as a Python number, as torch treats it."""
    return value.call_method(tx, "item", [], {}) if issubclass(value.python_type(), np.number) else value


def _is_operand(value: Value) -> bool:
    """Whether a tensor can be compared with `value`."""
    if not value.is_constant():
        return True
    constant = value.as_constant()
    return isinstance(constant, (bool, int, float, complex)) or hasattr(type(constant), "__array__")


# ---- real and computed tensors -------------------------------------------------------------------------------------
PLAIN_TYPES = {torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor)}


@builds(torch.Tensor)
def build_tensor(tx: Translator, obj: torch.Tensor, source: Source | None) -> Value:
    """An input of the graph."""
    if type(obj) not in PLAIN_TYPES and source is not None:
        return late.build_tensor_subclass(tx, obj, source)
    if source is None:
        raise Unsupported(Reason.UNSUPPORTED_TENSOR, detail="a tensor that is no variable of the program")
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(obj)
    if wrapped:
        raise Unsupported(
            Reason.UNSUPPORTED_TENSOR, detail="a tensor of a transform (torch.func, vmap) that is in force"
        )
    for tensor in (obj, obj._base):  # the values of a sparse tensor are a view of it
        if tensor is not None:
            _check_layout(tensor)
    if obj._is_zerotensor():
        raise Unsupported(Reason.UNSUPPORTED_TENSOR, detail="a tensor of zeros without memory, as derivatives may be")
    if obj._is_view() and not tx.graph.shapes.has_base(obj):
        raise Unsupported(Reason.UNKNOWN_TYPE, detail="a view of a tensor that has other values or gradients since")
    node = tx.graph.add_input(source, obj)
    inside = tx.graph.inside.get(id(obj))
    tx.guards.add(source, *(("TENSOR_MATCH", obj) if inside is None else ("DUPLICATE_INPUT", inside)))
    fake = node.meta["val"]
    value = TensorValue(node, fake, source, obj)
    tx.trace.values_by_id[id(fake)] = value
    return value


def _check_layout(tensor: torch.Tensor) -> None:
    """Raises Unsupported for a tensor that is not strided."""
    if tensor.is_nested or tensor.is_quantized:
        raise Unsupported(Reason.UNSUPPORTED_TENSOR, detail=f"a {'nested' if tensor.is_nested else 'quantized'} tensor")
    if tensor.layout is not torch.strided:
        sparse = str(tensor.layout).startswith("torch.sparse")
        reason = Reason.SPARSE_TENSOR if sparse else Reason.UNSUPPORTED_TENSOR
        raise Unsupported(reason, detail=f"a tensor with layout {tensor.layout}")


def _wrap_tensor(tx: Translator, node: torch.fx.Node, fake: torch.Tensor) -> Value:
    _check_layout(fake)
    value = TensorValue(node, fake)
    tx.trace.values_by_id[id(fake)] = value
    return value


RESULTS.insert(0, (lambda fake: isinstance(fake, torch.Tensor), _wrap_tensor))
