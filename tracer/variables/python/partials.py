"""Callables with bound arguments: bound methods and functools.partial."""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import AttrSource, Source
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import handler_of
from ..core.late import late
from ..core.registry import build, builds, from_python
from ..torch.context_manager import CONSTRUCTORS as MODES

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class MethodValue(Value):
    """A bound method: `function` with `owner` as its first argument."""

    __slots__ = ("function", "owner")

    def __init__(self, function: Value, owner: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.function = function
        self.owner = owner

    def python_type(self) -> type:
        """method."""
        return MethodType

    def truth(self, tx: Translator) -> bool:
        """Methods are true."""
        return True

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """The function on the owner."""
        return self.function.call(tx, [self.owner, *args], kwargs)

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Bound methods are equal when function and owner are equal."""
        if function.__name__ not in ("eq", "ne") or not isinstance(left, MethodValue):
            return None
        same = isinstance(right, MethodValue) and right.owner is left.owner and right.function is left.function
        return constant(same == (function.__name__ == "eq"))

    def getattr(self, tx: Translator, name: str) -> Value:
        """`__self__`, `__func__`, and what the function has."""
        if name == "__self__":
            return self.owner
        if name == "__func__":
            return self.function
        if name == "__class__" or (name in MethodType.__dict__ and name != "__doc__"):
            raise Unsupported(Reason.ATTRIBUTE, self, name)
        return self.function.getattr(tx, name)

    def reconstruct(self, codegen: Codegen) -> None:
        """types.MethodType(function, owner)."""
        codegen.call_const(MethodType, [self.function, self.owner])

    def describe(self) -> str:
        """For messages."""
        return f"{self.function.describe()} of {self.owner.describe()}"


class PartialValue(Value):
    """functools.partial(function, *args, **kwargs). `own` are attributes set on an existing one, `parts` its arguments
    as traced code sees them: a tuple, and a dict that may change."""

    __slots__ = ("args", "function", "given", "own", "parts")

    def __init__(
        self, function: Value, args: Sequence[Value], kwargs: Mapping[str, Value], source: Source | None = None,
        own: Mapping[str, Any] = MappingProxyType({}), parts: Mapping[str, Value] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        super().__init__(source)
        self.own = own
        self.function = function
        self.args = tuple(args)
        self.given = dict(kwargs)
        self.parts = dict(parts)

    def python_type(self) -> type:
        """functools.partial."""
        return functools.partial

    def truth(self, tx: Translator) -> bool:
        """Partials are true."""
        return True

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Call the function with both."""
        return self.function.call(tx, [*self.args, *args], {**self.kwargs(tx), **kwargs})

    def kwargs(self, tx: Translator) -> dict[str, Value]:
        """The current keyword arguments."""
        keywords = self.parts.get("keywords")
        return self.given if keywords is None else _by_name(tx, keywords)

    def getattr(self, tx: Translator, name: str) -> Value:
        """func, args and keywords."""
        if name == "func":
            return self.function
        if name == "args" and name not in self.parts:
            self.parts[name] = late.make_tuple(tx, self.args)
        if name == "keywords" and name not in self.parts:
            self.parts[name] = late.partial_keywords(tx, self)
        if name in self.parts:
            return self.parts[name]
        if name in self.own or (self.own and name == "__dict__"):
            if self.source is None or name == "__dict__":
                raise Unsupported(Reason.ATTRIBUTE, self, name)
            return build(tx, self.own[name], AttrSource(self.source, name))
        if name in ("__module__", "__doc__"):  # of the class
            return constant(getattr(functools.partial, name))
        if name == "__dict__":
            return late.make_dict(tx, [], [])
        if any(name in kind.__dict__ for kind in functools.partial.__mro__):
            raise Unsupported(Reason.ATTRIBUTE, self, name)
        if self.source is not None:
            tx.guards.add(self.source, "NO_ATTR", name)
        return tx.raise_observed(AttributeError, f"'functools.partial' object has no attribute '{name}'")

    def reconstruct(self, codegen: Codegen) -> None:
        """functools.partial(...)."""
        codegen.push_null()
        codegen.const(functools.partial)
        for value in (self.function, *self.args, *self.given.values()):
            codegen(value)
        codegen.call(1 + len(self.args) + len(self.given), tuple(self.given))

    def describe(self) -> str:
        """For messages."""
        return f"a partial of {self.function.describe()}"


# ---- real ones -----------------------------------------------------------------------------------------------------
@builds(MethodType)
def build_method(tx: Translator, obj: MethodType, source: Source | None) -> Value:
    """A bound method: function and owner are guarded separately."""
    handler = handler_of(obj.__func__)
    if source is not None and type(obj.__self__) in MODES:
        manager = build(tx, obj.__self__, AttrSource(source, "__self__"))
        return manager.getattr(tx, obj.__func__.__name__)
    if source is None:
        return MethodValue(from_python(tx, obj.__func__), from_python(tx, obj.__self__))
    function = build(tx, obj.__func__, AttrSource(source, "__func__"))
    owner = build(tx, obj.__self__, AttrSource(source, "__self__"))
    return MethodValue(function, owner, source if handler is None else None)


@builds(functools.partial)
def build_partial(tx: Translator, obj: functools.partial[Any], source: Source | None) -> Value:
    """A partial: its parts are guarded separately. A subclass may define another call."""
    if type(obj) is not functools.partial:
        raise Unsupported(Reason.UNKNOWN_TYPE, type(obj))
    names = ("func", "args", "keywords")
    if source is None:
        function, args, keywords = [from_python(tx, getattr(obj, name)) for name in names]
        parts = {}
    else:
        tx.guards.add(source, "TYPE_MATCH", type(obj))
        function, args, keywords = [build(tx, getattr(obj, name), AttrSource(source, name)) for name in names]
        parts = {"args": args, "keywords": keywords}
    return PartialValue(function, args.iterate(tx), _by_name(tx, keywords), source, vars(obj), parts)


def _by_name(tx: Translator, keywords: Value) -> dict[str, Value]:
    return {key.as_constant(): value for key, value in keywords.pairs(tx)}  # type: ignore[attr-defined]


late.python_method = lambda tx, owner, method: MethodValue(from_python(tx, method.__func__), owner)
