"""NumPy's arrays while a frame is traced: each is the memory of a tensor of the graph, as `Tensor.numpy()` returns it.

An array that leaves the frame is made by that method, so it shares memory with the tensor, as in eager. The graph
computes NumPy's functions with torch's operators (`ufuncs.py`, `shapes.py`, `methods.py`, ...) in the dtypes that NumPy
itself determines. An item, or a sum, is a NumPy number (`np.float32(...)`), which is immutable: `NumpyNumber`, a tensor
without dimensions.
"""
from __future__ import annotations

import builtins
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.array_memory import tensor_of
from ...sources.display_names import display_name, expression_of
from ...sources.source import CallSource, Source
from ..containers.sequences import SequenceValue, TupleValue
from ..core.base import Value
from ..core.constant import BoundBuiltin, OneByOneIterator, constant
from ..core.handlers import handler_of, handles
from ..core.operators import IN_PLACE, apply
from ..core.registry import builds, from_python
from ..python.instances import build_object
from ..torch.tensor import TensorValue
from ..torch.tensor_methods import METHODS as TENSOR_METHODS
from . import scalars  # noqa: F401  (what its functions do with numbers stays)
from .dtypes import NUMPY_DTYPES, order_of

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]
Operator = Callable[["Translator", Args, "NdarrayValue | None"], Value]

OPERATORS: dict[Callable[..., Any], Operator] = {}
"""How functions of the `operator` module apply to arrays: (tx, operands, array to write to)."""

ATTRIBUTES: dict[str, Callable[[Translator, ArrayValue], Value]] = {}
METHODS: dict[str, Callable[[Translator, ArrayValue, Args, Kwargs], Value]] = {}
"""Shared by arrays and their numbers. `methods.py` fills both."""

INDEXING: dict[str, Callable[..., Any]] = {}
"""`get(tx, array, key) -> Value` and `set(tx, array, key, value)`, of `indexing.py`."""


class ArrayValue(Value):
    """What arrays and their numbers have in common. `tensor` has the memory; it never requires gradients."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: TensorValue, source: Source | None = None) -> None:
        super().__init__(source)
        self.tensor = tensor

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype."""
        return NUMPY_DTYPES[self.tensor.fake.dtype]

    @property
    def fake(self) -> torch.Tensor:
        """The tensor's metadata."""
        return self.tensor.fake

    def as_proxy(self) -> Any:
        """Operators of torch do not take arrays."""
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"torch's functions on {self.describe()}")

    def truth(self, tx: Translator) -> bool:
        """Depends on the data."""
        raise Unsupported(Reason.DATA_DEPENDENT_BRANCH, self)

    def key(self) -> Any:
        """Arrays are unhashable; numbers are found by value, which is not known."""
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, hash, given=(self,))

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """By NumPy's rules; `tensor * number` by torch's."""
        for number, other in ((left, right), (right, left)):
            if isinstance(number, NumpyNumber) and isinstance(other, TensorValue):
                plain = number.item(tx)
                return apply(tx, function, *((plain, other) if number is left else (other, plain)))
        in_place = function in IN_PLACE
        known = OPERATORS.get(IN_PLACE.get(function, function))
        if known is None:
            raise Unsupported(Reason.OPERATOR, function, given=(left, right))
        return known(tx, [left, right], left if in_place and isinstance(left, NdarrayValue) else None)

    def unary(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """By NumPy's rules."""
        known = OPERATORS.get(function)
        return known(tx, [self], None) if known is not None else super().unary(tx, function)

    def getitem(self, tx: Translator, key: Value) -> Value:
        """A view, a copy, or a number."""
        return INDEXING["get"](tx, self, key)

    def getattr(self, tx: Translator, name: str) -> Value:
        """From the tables; anything else is left to eager."""
        special = ATTRIBUTES.get(name)
        if special is not None:
            return special(tx, self)
        if not hasattr(self.python_type(), name):
            kind = self.python_type().__name__
            tx.raise_observed(AttributeError, f"'numpy.{kind}' object has no attribute '{name}'")
        if name in METHODS:
            return BoundBuiltin(self, name)
        raise Unsupported(Reason.ATTRIBUTE, np.ndarray, name)

    def call_method(self, tx: Translator, name: str, args: Args, kwargs: Kwargs) -> Value:
        """From the table."""
        method = METHODS.get(name)
        if method is None:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.ndarray, name)
        return method(tx, self, args, kwargs)

    def item(self, tx: Translator) -> Value:
        """The number of an array of one, in Python's type."""
        return self.tensor.call_method(tx, "item", [], {})

    def describe(self) -> str:
        """The user's expression of which it is the value."""
        kind = "an array" if isinstance(self, NdarrayValue) else f"a number ({self.dtype})"
        if self.source is not None:
            return f"{kind} of numpy `{display_name(self.source)}`"
        stack = self.tensor.node.meta.get("stack")
        text = expression_of(stack[-1]) if stack else ""
        return f"{kind} of numpy `{text or self.tensor.node.name}`"


class NdarrayValue(ArrayValue):
    """An array, exactly of type np.ndarray, writeable."""

    __slots__ = ()

    def python_type(self) -> type:
        """np.ndarray."""
        return np.ndarray

    def length(self, tx: Translator) -> Value:
        """Size of the first dimension."""
        if self.fake.dim() == 0:
            tx.raise_observed(TypeError, "len() of unsized object")
        return self.tensor.sizes(tx).items[0]

    def iter(self, tx: Translator) -> Value:
        """An iterator that reads each item when it is requested."""
        if self.fake.dim() == 0:
            tx.raise_observed(TypeError, "iteration over a 0-d array")
        return ArrayIterator(self)

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """The items along the first dimension."""
        return self.iter(tx).iterate(tx)

    def setitem(self, tx: Translator, key: Value, value: Value) -> None:
        """Writes into the memory."""
        INDEXING["set"](tx, self, key, value)

    def reconstruct(self, codegen: Codegen) -> None:
        """tensor.numpy()."""
        _refuse_tracked(self)
        codegen.call_const(torch.Tensor.numpy, [self.tensor])


class NumpyNumber(ArrayValue):
    """A NumPy number that is data-dependent."""

    __slots__ = ()

    def python_type(self) -> type:
        """np.float32, np.int64, ...; one that requires gradients is an array without dimensions."""
        return np.ndarray if self.fake.requires_grad else self.dtype.type

    def reconstruct(self, codegen: Codegen) -> None:
        """The tensor's only item."""
        _refuse_tracked(self)
        codegen.call_const(number_of, [self.tensor])


class ArrayIterator(OneByOneIterator):
    """iter(array)."""

    __slots__ = ("array", "index")

    def __init__(self, array: NdarrayValue) -> None:
        super().__init__()
        self.array = array
        self.index = 0

    def python_type(self) -> type:
        """The type of iterators over objects with __getitem__."""
        return type(iter(np.ones(1)))

    def next(self, tx: Translator) -> Value | None:
        """array[index]."""
        size = self.array.length(tx)
        if not apply(tx, operator.lt, constant(self.index), size).truth(tx):
            return None
        self.index += 1
        return self.array.getitem(tx, constant(self.index - 1))

    def reconstruct(self, codegen: Codegen) -> None:
        """An iterator over the same array, at the same position."""
        codegen.call_const(iterator_at, [self.array, constant(self.index)])


def _refuse_tracked(array: ArrayValue) -> None:
    """Raises Unsupported for an array that requires gradients: it exists only in the trace."""
    if array.fake.requires_grad:
        raise Unsupported(Reason.RECONSTRUCT, array)


def number_of(tensor: torch.Tensor) -> Any:
    """The number in a tensor without dimensions, as NumPy's."""
    return tensor.numpy()[()]


def iterator_at(array: np.ndarray[Any, Any], index: int) -> Any:
    """iter(array) whose next item is number `index`."""
    iterator = iter(array)
    iterator.__setstate__(index)  # type: ignore[attr-defined]
    return iterator


# ---- inputs --------------------------------------------------------------------------------------------------------
@builds(np.ndarray)
def build_ndarray(tx: Translator, obj: np.ndarray[Any, Any], source: Source | None) -> Value:
    """An input of the graph: a tensor over the array's memory, guarded like one."""
    real = tensor_of(obj) if source is not None else None
    if source is None or real is None or real.dtype not in NUMPY_DTYPES:
        return build_object(tx, obj, source)
    tx.guards.add(source, "TYPE_MATCH", np.ndarray)
    memory = CallSource(source, "tensor_of")
    node = tx.graph.add_input(memory, real)
    tx.guards.add(memory, "TENSOR_MATCH", real)
    tx.trace.keep_alive.append(real)
    tensor = TensorValue(node, node.meta["val"], memory, real)
    return NdarrayValue(tensor, source)


# ---- between tensors and arrays ------------------------------------------------------------------------------------
def same_memory(tx: Translator, tensor: TensorValue) -> TensorValue:
    """Another tensor over the same memory, with its own version and gradients."""
    result = tx.graph.call(builtins.getattr, [tensor, constant("data")], {}, tx)
    assert isinstance(result, TensorValue)
    return result


def array_of(tx: Translator, tensor: TensorValue, what: str) -> NdarrayValue:
    """tensor.numpy(). Raises Unsupported (`what`) where that raises, or where no graph could hold the array. In
    functions wrapped by torch.compiler.wrap_numpy, compiled code lets gradients flow through the array (where eager
    raises)."""
    fake = tensor.fake
    wrapped = tx.f_globals.get("__name__") == "torch._dynamo.external_utils"
    known = fake.dtype in NUMPY_DTYPES and fake.device.type == "cpu" and (wrapped or not fake.requires_grad)
    if not known or fake.is_conj() or fake.is_neg() or torch._C._are_functorch_transforms_active():
        raise Unsupported(Reason.DATA_DEPENDENT_VALUE, detail=what)
    tx.trace.layouts_assumed += 1
    return NdarrayValue(_tracked(tx, tensor) if fake.requires_grad else same_memory(tx, tensor))


def _tracked(tx: Translator, tensor: TensorValue) -> TensorValue:
    """A view of the whole tensor, through which gradients flow."""
    view = tx.graph.call(torch.ops.aten.alias.default, [tensor], {}, tx)
    assert isinstance(view, TensorValue)
    return view


def _numpy(tx: Translator, self: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    forced = [*kwargs.values()]
    if args or not set(kwargs) <= {"force"} or any(value.python_type() is not bool for value in forced):
        raise Unsupported(Reason.RAISES, detail="TypeError: Tensor.numpy() with arguments that it does not take")
    if forced and forced[0].truth(tx) and self.fake.requires_grad:
        self = same_memory(tx, self)
    return array_of(tx, self, "Tensor.numpy")


TENSOR_METHODS["numpy"] = _numpy


def tensor_from(tx: Translator, array: ArrayValue) -> TensorValue:
    """torch.from_numpy(array). Raises Unsupported where its storage would differ: that of a part of an array begins and
    ends with the part; and where the inference mode makes an inference tensor of it."""
    fake = array.fake
    if fake.is_inference() != torch.is_inference_mode_enabled():
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, torch.from_numpy, detail="under another inference mode")
    if fake.storage_offset() != 0 or fake.untyped_storage().nbytes() != fake.numel() * fake.itemsize:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, torch.from_numpy, detail=f"of a part of what {array.describe()} is")
    return _tracked(tx, array.tensor) if fake.requires_grad else same_memory(tx, array.tensor)


def result(tx: Translator, tensor: Value, scalar: bool = False) -> ArrayValue:
    """An array over memory that the graph has just made, or the number in it."""
    assert isinstance(tensor, TensorValue) and tensor.fake.dtype in NUMPY_DTYPES
    return NumpyNumber(tensor) if scalar else NdarrayValue(tensor)


def laid_out(tx: Translator, tensor: Value, like: np.ndarray[Any, Any]) -> Value:
    """A result with its dimensions in memory in the order that NumPy gave those of the sample."""
    assert isinstance(tensor, TensorValue)
    order = order_of(like)
    plain = order == sorted(order)
    if len(order) != tensor.fake.dim():
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail="numpy with a result of another shape than torch's")
    try:
        fits = tensor.fake.permute(order).is_contiguous()
    except GuardOnDataDependentSymNode as error:
        raise Unsupported(
            Reason.NUMPY_UNSUPPORTED, detail="a result of data-dependent size in another memory order"
        ) from error
    if fits:
        return tensor
    if plain:
        return tx.graph.call("contiguous", [tensor], {}, tx, op="call_method")
    back = [order.index(dim) for dim in range(len(order))]
    moved = tx.graph.call("permute", [tensor, constant(tuple(order))], {}, tx, op="call_method")
    dense = tx.graph.call("contiguous", [moved], {}, tx, op="call_method")
    return tx.graph.call("permute", [dense, constant(tuple(back))], {}, tx, op="call_method")


def written(tx: Translator, array: NdarrayValue) -> None:
    """Call before the array's memory is written. NumPy does not tell autograd: a tensor saved for the backward would
    keep its old values in a graph."""
    graph = tx.graph
    inputs = [(node, node.meta["val"]) for node in graph.versions]
    if array.fake.requires_grad:  # autograd is notified
        return
    if torch.is_grad_enabled() and any(fake.requires_grad for _, fake in inputs):
        raise Unsupported(
            Reason.NUMPY_UNSUPPORTED, detail=f"writing to {array.describe()} where gradients are recorded"
        )
    memory = array.fake.untyped_storage()._cdata
    for node, fake in inputs:
        if fake.untyped_storage()._cdata == memory:
            graph.versions[node] = None


# ---- handlers ------------------------------------------------------------------------------------------------------
def has_array(values: Sequence[Value]) -> bool:
    """Whether one of them, or of the items of a list among them, is an array."""
    return any(
        isinstance(value, ArrayValue) or (isinstance(value, SequenceValue) and has_array(value.items))
        for value in values
    )


def on_arrays(*functions: Any) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register `function(tx, *args, **kwargs)` for calls of `functions` that have an array among the arguments. Other
    calls are handled as before."""

    def register(handler: Callable[..., Value]) -> Callable[..., Value]:
        for function in functions:
            _register(function, handler)
        return handler

    return register


def _register(function: Any, handler: Callable[..., Value]) -> None:
    others = handler_of(function)
    name = getattr(function, "__name__", str(function))

    @handles(function)
    def chosen(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        if has_array([*args, *kwargs.values()]):
            return called(tx, handler, name, args, kwargs)
        if others is not None:
            return others(tx, args, kwargs)
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np, name)


def called(tx: Translator, handler: Callable[..., Value], name: str, args: Args, kwargs: Kwargs) -> Value:
    """handler(tx, *args, **kwargs). Raises Unsupported for arguments that the handler does not accept."""
    try:
        bound = inspect.signature(handler).bind(tx, *args, **kwargs)
    except TypeError as error:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np, name, detail=f": {error}") from error
    return handler(*bound.args, **bound.kwargs)


def plain(value: Value | None, default: Any = None) -> Any:
    """The constant value of an argument. Raises Unsupported where it is not constant."""
    if value is None:
        return default
    if isinstance(value, ArrayValue):
        raise Unsupported(Reason.NOT_A_CONSTANT, value)
    if isinstance(value, SequenceValue):
        return tuple(plain(item) for item in value.items)
    return value.as_constant()


def shape_value(tx: Translator, array: ArrayValue) -> TupleValue:
    """array.shape."""
    return TupleValue(array.tensor.sizes(tx).items, tuple)


ATTRIBUTES["__class__"] = lambda tx, array: from_python(tx, array.python_type())


def method(tx: Translator, name: str, *args: Value) -> TensorValue:
    """A method of a tensor as a node."""
    made = tx.graph.call(name, list(args), {}, tx, op="call_method")
    assert isinstance(made, TensorValue)
    return made


def array(value: Value, what: str) -> ArrayValue:
    """The argument, where it is an array (or a number of one)."""
    if not isinstance(value, ArrayValue):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np, what, given=(value,))
    return value


def view(tx: Translator, a: ArrayValue, name: str, *args: Value) -> NdarrayValue:
    """View an array by a tensor method; a number becomes an array."""
    memory = a.tensor if isinstance(a, NdarrayValue) else method(tx, "clone", a.tensor)
    return NdarrayValue(method(tx, name, memory, *args))
