"""operator.itemgetter, attrgetter and methodcaller, made in the trace or read from user code."""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import Source
from ..containers.sequences import make_tuple
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import handles
from ..core.operators import apply
from ..core.registry import builds, from_python

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


class AccessorValue(Value):
    """An accessor of type `kind`, with the arguments that made it."""

    __slots__ = ("args", "kind", "kwargs")

    def __init__(self, kind: type, args: Args, kwargs: Kwargs, source: Source | None = None) -> None:
        super().__init__(source)
        self.kind = kind
        self.args = tuple(args)
        self.kwargs = dict(kwargs)

    def python_type(self) -> type:
        """The type."""
        return self.kind

    def truth(self, tx: Translator) -> bool:
        """It is true."""
        return True

    def call(self, tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        """The item, attribute or result of the method; a tuple of them where several are requested."""
        if len(args) != 1 or kwargs:
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, self, detail=f"of {len(args)} arguments")
        if self.kind is operator.methodcaller:
            name, *rest = self.args
            return args[0].call_method(tx, name.as_constant(), rest, self.kwargs)
        get: Callable[..., Value] = _attribute if self.kind is operator.attrgetter else _item
        found = [get(tx, args[0], what) for what in self.args]
        return found[0] if len(found) == 1 else make_tuple(tx, found)

    def reconstruct(self, codegen: Codegen) -> None:
        """The call that makes it."""
        codegen.push_function(self.kind)
        for value in (*self.args, *self.kwargs.values()):
            codegen(value)
        codegen.call(len(self.args) + len(self.kwargs), tuple(self.kwargs))

    def describe(self) -> str:
        """For messages."""
        return f"operator.{self.kind.__name__}({', '.join(arg.describe() for arg in self.args)})"


def _item(tx: Translator, owner: Value, key: Value) -> Value:
    return apply(tx, operator.getitem, owner, key)


def _attribute(tx: Translator, owner: Value, path: Value) -> Value:
    for name in path.as_constant().split("."):
        owner = owner.getattr(tx, name)
    return owner


def _making(kind: type) -> None:
    @handles(kind)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        texts = args if kind is operator.attrgetter else args[:1] if kind is operator.methodcaller else ()
        if not args or any(arg.python_type() is not str for arg in texts):
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"operator.{kind.__name__}")
        return AccessorValue(kind, args, kwargs)


for _kind in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
    _making(_kind)


@builds(operator.itemgetter, operator.attrgetter, operator.methodcaller)
def build_accessor(tx: Translator, obj: Any, source: Source | None) -> Value:
    """An existing accessor: it is immutable."""
    if source is not None:
        tx.guards.add(source, "ID_MATCH", obj)
    _, args, *_ = obj.__reduce__()
    if type(obj) is operator.methodcaller:
        made = obj.__reduce__()[0]
        kwargs = getattr(made, "keywords", {})  # a partial of the class where there are keyword arguments
        args = (*getattr(made, "args", ()), *args)
        return AccessorValue(type(obj), _all(tx, args), {n: from_python(tx, v) for n, v in kwargs.items()}, source)
    return AccessorValue(type(obj), _all(tx, args), {}, source)


def _all(tx: Translator, objects: Sequence[Any]) -> list[Value]:
    return [from_python(tx, each) if not isinstance(each, str) else constant(each) for each in objects]
