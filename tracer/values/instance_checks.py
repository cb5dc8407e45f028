"""isinstance, by the class that the program sees: what decides is the metaclass's `__instancecheck__`."""
from __future__ import annotations

import abc
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from .attributes import is_python_method, lookup
from .base import Unsupported, Value
from .number import NumberValue
from .registry import from_python
from .sequences import TupleValue
from .slices import SliceValue
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..interpreter import Interpreter

_OF_PARAMETERS = lookup(type(torch.nn.Parameter), "__instancecheck__")
_BY_CLASS = (type.__instancecheck__, abc.ABCMeta.__instancecheck__, _OF_PARAMETERS)
"""Those that ask for the classes of the instance only: a Parameter of the trace has that class."""

_OF_LEGACY_TYPES = lookup(type(torch.FloatTensor), "__instancecheck__")


def is_instance(tx: Interpreter, value: Value, classes: Value) -> bool:
    """isinstance(value, classes)."""
    try:
        return _among(tx, value, classes.as_constant())
    except TypeError as error:  # what is no class; eager has other words than issubclass
        raise Unsupported("call", f"isinstance of {value.describe()}: {error}") from error


def _among(tx: Interpreter, value: Value, kinds: Any) -> bool:
    if isinstance(kinds, (tuple, types.UnionType)):
        return any(_among(tx, value, kind) for kind in (kinds if isinstance(kinds, tuple) else kinds.__args__))
    check = lookup(type(kinds), "__instancecheck__")
    if value.python_type() is kinds or check in _BY_CLASS or not isinstance(kinds, type):
        return by_class(tx, value, kinds)
    if check is _OF_LEGACY_TYPES:
        return _of_legacy_type(value, kinds)
    if getattr(kinds, "_is_protocol", False):
        return _of_protocol(value, kinds)
    if not is_python_method(check):
        return by_class(tx, value, kinds)
    return from_python(tx, check).call(tx, [from_python(tx, kinds), value], {}).truth(tx)


def by_class(tx: Interpreter, value: Value, kind: Any) -> bool:
    """type.__instancecheck__: the class, or what the instance says its class is."""
    if value.is_constant() and not isinstance(value, (SliceValue, TupleValue, NumberValue)):
        return isinstance(value.as_constant(), kind)
    real = value.python_type()
    if issubclass(real, kind):
        return True
    if real in (weakref.ProxyType, weakref.CallableProxyType):
        raise Unsupported("call", f"isinstance of {value.describe()}")
    if is_python_method(lookup(real, "__getattribute__")) or isinstance(lookup(real, "__class__"), property):
        said = value.getattr(tx, "__class__")
        return said.is_constant() and issubclass(said.as_constant(), kind)
    return False


def _of_legacy_type(value: Value, kind: Any) -> bool:
    """Whether a tensor is of a type such as torch.FloatTensor: its dtype and device."""
    if not isinstance(value, TensorValue):
        return False
    fake = value.fake
    if fake.layout is not torch.strided or fake.device.type not in ("cpu", "cuda"):
        raise Unsupported("call", f"isinstance of {value.describe()} and {kind.__name__}")
    return bool(fake.dtype is kind.dtype and fake.is_cuda is kind.is_cuda and not kind.is_sparse)


def _of_protocol(value: Value, kind: type) -> bool:
    """Whether the class has all methods of a protocol. Where it has not, the instance itself may."""
    try:
        found = issubclass(value.python_type(), kind)
    except TypeError:
        found = False
    if not found:
        raise Unsupported("call", f"isinstance of {value.describe()} and the protocol {kind.__qualname__}")
    return True
