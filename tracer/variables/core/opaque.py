"""Objects on the stack at a graph break that no Value describes."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import Source
from .base import Value
from .registry import build

if TYPE_CHECKING:
    from .base import Translator


def build_or_opaque(tx: Translator, real: Any, source: Source) -> Value:
    """The Value of an object that is passed over a break, also where no Value describes it."""
    try:
        return build(tx, real, source)
    except Unsupported as error:
        tx.guards.add(source, "TYPE_MATCH", type(real))
        return opaque(source, type(real), error)


def opaque(source: Source, cls: type, why: Unsupported) -> Value:
    """The Value of an object that was refused with `why`."""
    return OpaqueTensorValue(source, cls, why) if issubclass(cls, torch.Tensor) else OpaqueValue(source, cls)


class OpaqueValue(Value):
    """An object that can only be passed on."""

    __slots__ = ("cls",)

    identified = False

    def __init__(self, source: Source, cls: type) -> None:
        super().__init__(source)
        self.cls = cls

    def python_type(self) -> type:
        """Its type, which is guarded."""
        return self.cls

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """What its type does with operators is unknown, `==` included."""
        raise Unsupported(Reason.OPERATOR, function, given=(self,))

    def describe(self) -> str:
        """For messages."""
        return f"a {self.cls.__qualname__} from before the graph break"


class OpaqueTensorValue(OpaqueValue):
    """A tensor that values do not support: every use of it is refused for the same reason, `why`."""

    __slots__ = ("why",)

    def __init__(self, source: Source, cls: type, why: Unsupported) -> None:
        super().__init__(source, cls)
        self.why = why.again()

    def as_constant(self) -> Any:
        """Neither a constant nor an argument of an operation."""
        raise self.why.again()

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """No operators."""
        raise self.why.again()

    def unary(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """No operators."""
        raise self.why.again()

    def getattr(self, tx: Translator, name: str) -> Value:
        """No attributes, and no methods."""
        raise self.why.again()

    def getitem(self, tx: Translator, key: Value) -> Value:
        """No indexing."""
        raise self.why.again()
