"""Weak references and their proxies: their referents live until the guards that need them are written."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import CallSource, Source
from ...sources.weak_proxies import proxied
from ..core.base import Value
from ..core.handlers import handles
from ..core.operators import apply
from ..core.registry import build, builds, from_python

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


@handles(weakref.ref)
def _ref(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or len(args) != 1:
        raise Unsupported(Reason.WEAK_REFERENCE, weakref.ref)  # Python calls the callback where the referent dies
    tx.trace.referents.add(args[0])
    return WeakReference(args[0])


class WeakReference(Value):
    """weakref.ref(referent), or the existing reference `real`: its referent is looked up when it is read."""

    __slots__ = ("real", "referent")
    identified = False  # Python makes one for each referent

    def __init__(self, referent: Value | None, real: Any = None, source: Source | None = None) -> None:
        super().__init__(source)
        self.referent = referent
        self.real = real

    def python_type(self) -> type:
        """weakref.ref."""
        return weakref.ref

    def truth(self, tx: Translator) -> bool:
        """It is true."""
        return True

    def call(self, tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        """The referent, which lives until the guards that need it are written. Raises Unsupported where it was made in
        the trace and no variable holds it: it may be dead."""
        if self.referent is not None:
            if self.referent.source is None and not _is_held(tx, self.referent):
                raise Unsupported(Reason.WEAK_REFERENCE, weakref.ref)
            return self.referent
        if self.source is not None:
            source = CallSource(self.source, "referent")
            found = tx.guards.value(source)
            if found is not None:
                return build(tx, found, source)
        return from_python(tx, self.real())

    def reconstruct(self, codegen: Any) -> None:
        """weakref.ref(referent)."""
        if self.referent is None:
            codegen.const(self.real)
        else:
            codegen.call_const(weakref.ref, [self.referent])


def _is_held(tx: Translator | None, value: Value) -> bool:
    """Whether a variable of a running frame holds the object."""
    while tx is not None:
        if any(other is value for other in (*tx.locals.values(), *map(tx.effects.load_cell, tx.cells.values()))):
            return True
        tx = tx.parent
    return False


@builds(weakref.ref)
def build_reference(tx: Translator, obj: Any, source: Source | None) -> Value:
    """An existing weak reference."""
    if source is not None:
        tx.guards.add(source, "ID_MATCH", obj)
    return WeakReference(None, obj, source)


@handles(weakref.proxy)
def _proxy(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or len(args) != 1:
        raise Unsupported(Reason.WEAK_REFERENCE, weakref.proxy)
    tx.trace.referents.add(args[0])
    kind = weakref.CallableProxyType if callable_type(args[0].python_type()) else weakref.ProxyType
    return WeakProxy(kind, args[0])


def callable_type(kind: type) -> bool:
    """Whether instances of a class can be called."""
    return hasattr(kind, "__call__")  # noqa: B004 - of the class


class WeakProxy(Value):
    """weakref.proxy(referent): every operation goes to the referent."""

    __slots__ = ("kind", "referent")
    identified = False  # Python makes one for each referent

    def __init__(self, kind: type, referent: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.kind = kind
        self.referent = referent

    def python_type(self) -> type:
        """weakref.ProxyType or weakref.CallableProxyType."""
        return self.kind

    def alive(self, tx: Translator) -> Value:
        """The referent. Raises Unsupported where it may be dead: it was made in the trace, and no variable holds it."""
        if self.referent.source is None and not _is_held(tx, self.referent):
            raise Unsupported(Reason.WEAK_REFERENCE, weakref.proxy)
        return self.referent

    def truth(self, tx: Translator) -> bool:
        """bool(referent)."""
        return self.alive(tx).truth(tx)

    def length(self, tx: Translator) -> Value:
        """len(referent)."""
        return self.alive(tx).length(tx)

    def contains(self, tx: Translator, item: Value) -> bool:
        """`item in referent`."""
        return self.alive(tx).contains(tx, item)

    def unary(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """function(referent)."""
        return self.alive(tx).unary(tx, function)

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """function of the referents of those operands that are proxies."""
        return apply(tx, function, *(each.alive(tx) if isinstance(each, WeakProxy) else each for each in (left, right)))

    def is_hashable(self) -> bool:
        """Not hashable, though its class has `__hash__`."""
        return False

    def call(self, tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        """referent(*args, **kwargs), where its class says that it can be called."""
        if self.kind is weakref.ProxyType:
            return super().call(tx, args, kwargs)
        return self.alive(tx).call(tx, args, kwargs)

    def getattr(self, tx: Translator, name: str) -> Value:
        """referent.name."""
        return self.alive(tx).getattr(tx, name)

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """referent.name = value."""
        self.alive(tx).setattr(tx, name, value)

    def delattr(self, tx: Translator, name: str) -> None:
        """del referent.name."""
        self.alive(tx).delattr(tx, name)

    def getitem(self, tx: Translator, key: Value) -> Value:
        """referent[key]."""
        return self.alive(tx).getitem(tx, key)

    def setitem(self, tx: Translator, key: Value, value: Value) -> None:
        """referent[key] = value."""
        self.alive(tx).setitem(tx, key, value)

    def delitem(self, tx: Translator, key: Value) -> None:
        """del referent[key]."""
        self.alive(tx).delitem(tx, key)

    def reconstruct(self, codegen: Any) -> None:
        """weakref.proxy(referent)."""
        codegen.call_const(weakref.proxy, [self.referent])


@builds(weakref.ProxyType, weakref.CallableProxyType)
def build_proxy(tx: Translator, obj: Any, source: Source | None) -> Value:
    """An existing proxy."""
    try:
        referent = proxied(obj)
    except (LookupError, ReferenceError) as error:  # traced code must see a dead one itself
        raise Unsupported(Reason.UNKNOWN_TYPE, type(obj)) from error
    if source is None:
        return WeakProxy(type(obj), from_python(tx, referent))
    tx.guards.add(source, "TYPE_MATCH", type(obj))
    return WeakProxy(type(obj), build(tx, referent, CallSource(source, "proxied")), source)
