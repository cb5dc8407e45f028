"""isinstance and issubclass, by the class that traced code sees: the metaclass's `__instancecheck__` and
`__subclasscheck__` decide. User-defined ones are interpreted, never called. And `__subclasses__`."""
from __future__ import annotations

import abc
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...shapes.wrapper_subclasses import is_wrapper_class
from ...sources.source import CallSource, ItemSource, Source
from ..containers.lists import ListValue
from ..containers.sequences import TupleValue
from ..containers.slices import SliceValue
from ..core.attributes import is_python_method, lookup, method_of, special
from ..core.base import Value
from ..core.constant import fold
from ..core.identity_guards import guard_unchanged
from ..core.late import late
from ..core.opaque import OpaqueTensorValue
from ..core.registry import build, from_python, importable, is_library
from ..torch.tensor import TensorValue
from .symbolic_numbers import NumberValue

if TYPE_CHECKING:
    from ..core.base import Translator

_OF_PARAMETERS = lookup(type(torch.nn.Parameter), "__instancecheck__")
_BY_CLASS = (type.__instancecheck__, abc.ABCMeta.__instancecheck__, _OF_PARAMETERS)
"""Those that ask for the classes of the instance only: a Parameter of the trace has that class."""

_OF_LEGACY_TYPES = lookup(type(torch.FloatTensor), "__instancecheck__")


def is_instance(tx: Translator, value: Value, classes: Value) -> bool:
    """isinstance(value, classes)."""
    try:
        return _among(tx, value, classes.as_constant())
    except TypeError as error:  # not a class; eager's message differs from issubclass's
        raise Unsupported(Reason.RAISES, detail=f"TypeError: isinstance of {value.describe()}: {error}") from error


def _among(tx: Translator, value: Value, kinds: Any) -> bool:
    if isinstance(kinds, (tuple, types.UnionType)):
        return any(_among(tx, value, kind) for kind in (kinds if isinstance(kinds, tuple) else kinds.__args__))
    check = special(tx, type(kinds), "__instancecheck__")
    if check is _OF_PARAMETERS and isinstance(value, OpaqueTensorValue):
        raise value.why.again()  # a parameter whose class is not below Parameter says that it is one
    if value.python_type() is kinds or check in _BY_CLASS or not isinstance(kinds, type):
        return by_class(tx, value, kinds)
    if check is _OF_LEGACY_TYPES:
        return _of_legacy_type(value, kinds)
    if getattr(kinds, "_is_protocol", False):
        return _of_protocol(value, kinds)
    if not is_python_method(check):
        return by_class(tx, value, kinds)
    asked = method_of(tx, type(kinds), "__instancecheck__", check)
    return asked.call(tx, [from_python(tx, kinds), value], {}).truth(tx)


def is_subclass(tx: Translator, cls: Value, classes: Value) -> bool:
    """issubclass(cls, classes)."""
    kinds = classes.as_constant()
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if _has_user_defined_check(kind):
            check = method_of(tx, type(kind), "__subclasscheck__", lookup(type(kind), "__subclasscheck__"))
            found = check.call(tx, [from_python(tx, kind), cls], {}).truth(tx)
        else:
            if cls.is_constant():
                _guard_registered(tx, cls.as_constant(), kind)
            found = fold(tx, issubclass, [cls, from_python(tx, kind)]).truth(tx)
        if found:
            return True
    return False


def _guard_registered(tx: Translator, cls: Any, kind: Any) -> None:
    """Whether a class counts as a subclass of an abstract one can change, by `kind.register`."""
    if isinstance(kind, abc.ABCMeta) and not is_library(kind.__module__) and kind not in getattr(cls, "__mro__", ()):
        now = abc.get_cache_token()
        unchanged = (lambda _: abc.get_cache_token() == now, "no class was registered with an abstract one")
        tx.guards.add(None, "LAMBDA", unchanged)


def subclasses(tx: Translator, cls: type, source: Source | None) -> Value:
    """cls.__subclasses__(): the living ones. Neither guards nor code keep any alive: a class that no module has is read
    from the list."""
    below: list[type] = type.__subclasses__(cls)
    known = [weakref.ref(kind) for kind in below]

    def same(cls: type) -> bool:
        now: list[type] = type.__subclasses__(cls)
        return len(now) == len(known) and all(ref() is kind for ref, kind in zip(known, now))

    guard_unchanged(tx, cls, same, "the list of subclasses")
    items = []
    for index, kind in enumerate(below):
        if importable(kind) is not None:
            items.append(from_python(tx, kind))
        elif source is not None and kind not in tx.effects.local_classes:
            items.append(build(tx, kind, ItemSource(CallSource(source, "subclasses"), index)))
        else:
            raise Unsupported(Reason.UNSUPPORTED_METHOD, cls, "__subclasses__")
    return ListValue(items, list)


def _has_user_defined_check(kind: Any) -> bool:
    """Whether a user-defined metaclass decides which classes are subclasses."""
    check = lookup(type(kind), "__subclasscheck__")
    return is_python_method(check) and not is_library(check.__module__)


def by_class(tx: Translator, value: Value, kind: Any) -> bool:
    """type.__instancecheck__ or ABCMeta's: by the class, or by the instance's `__class__`."""
    asks = _has_user_defined_check(kind)
    if asks and isinstance(kind, abc.ABCMeta):
        raise Unsupported(
            Reason.UNSUPPORTED_BUILTIN, isinstance, detail=f"of {value.describe()} and {kind.__qualname__}"
        )
    _guard_registered(tx, value.python_type(), kind)
    if value.is_constant() and not isinstance(value, (SliceValue, TupleValue, NumberValue)):
        return bool(_default_check(kind)(kind, value.as_constant()))
    real = value.python_type()
    if _is_below(real, kind, asks):
        return True
    if kind is torch.nn.Parameter and is_wrapper_class(real):
        return bool(late.is_parameter(tx, value))
    says = real in weakref.ProxyTypes or is_python_method(lookup(real, "__getattribute__"))
    if says or isinstance(lookup(real, "__class__"), property):
        said = value.getattr(tx, "__class__")
        return said.is_constant() and _is_below(said.as_constant(), kind, asks)
    return False


def _default_check(kind: Any) -> Callable[[Any, Any], bool]:
    """isinstance(object, kind) as a function of both, bypassing a user-defined metaclass."""
    if not isinstance(kind, type):
        return lambda kind, value: isinstance(value, kind)
    return abc.ABCMeta.__instancecheck__ if isinstance(kind, abc.ABCMeta) else type.__instancecheck__


def _is_below(cls: type, kind: Any, asks: bool) -> bool:
    return kind in cls.__mro__ if asks else issubclass(cls, kind)


def _of_legacy_type(value: Value, kind: Any) -> bool:
    """Whether a tensor is of a type such as torch.FloatTensor: by its dtype and device."""
    if not isinstance(value, TensorValue):
        return False
    fake = value.fake
    if fake.layout is not torch.strided or fake.device.type not in ("cpu", "cuda"):
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, isinstance, detail=f"of {value.describe()} and {kind.__name__}")
    return bool(fake.dtype is kind.dtype and fake.is_cuda is kind.is_cuda and not kind.is_sparse)


def _of_protocol(value: Value, kind: type) -> bool:
    """Whether the class has all methods of a protocol. Where it has not, the instance itself may."""
    try:
        found = issubclass(value.python_type(), kind)
    except TypeError:
        found = False
    if not found:
        raise Unsupported(
            Reason.UNSUPPORTED_BUILTIN, isinstance, detail=f"of {value.describe()} and the protocol {kind.__qualname__}"
        )
    return True
