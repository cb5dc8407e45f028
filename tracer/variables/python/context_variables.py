"""contextvars.ContextVar: the trace records what traced code sets, which must be reset before the graph ends."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import AttrSource, CallSource, Source
from ..core.base import Value
from ..core.constant import attribute_of_builtin, constant, fold
from ..core.registry import build, builds

if TYPE_CHECKING:
    from ..core.base import Translator


class ContextVariableValue(Value):
    """A context variable. `stored` are the values that the trace has set and not reset, innermost last."""

    __slots__ = ("real", "stored")

    def __init__(self, real: ContextVar[Any], source: Source | None) -> None:
        super().__init__(source)
        self.real = real
        self.stored: list[Value] = []

    def python_type(self) -> type:
        """ContextVar."""
        return ContextVar

    def getattr(self, tx: Translator, name: str) -> Value:
        """`name`, and the methods."""
        if name == "name":
            return constant(self.real.name)
        found = attribute_of_builtin(tx, self, ContextVar, name)
        return found or fold(tx, getattr, [constant(self.real), constant(name)])  # raises

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """get, set and reset."""
        if name == "get" and not kwargs:
            return self.stored[-1] if self.stored else self._at_start(tx, args)
        if name == "set" and len(args) == 1:
            self.stored.append(args[0])
            tx.trace.open_variables.append(self)
            return TokenValue(self, len(self.stored))
        if name == "reset" and len(args) == 1:
            token = args[0]
            if isinstance(token, TokenValue) and token.variable is self and token.depth == len(self.stored):
                self.stored.pop()
                tx.trace.open_variables.remove(self)
                return constant(None)
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"{name} of {self.describe()}")

    def _at_start(self, tx: Translator, args: Sequence[Value]) -> Value:
        if self.source is None or args:
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"get of {self.describe()}")
        try:
            value = self.real.get()
        except LookupError as error:
            raise Unsupported(
                Reason.UNSUPPORTED_ARGUMENT, detail=f"get of {self.describe()}, which has no value"
            ) from error
        return build(tx, value, CallSource(AttrSource(self.source, "get"), "referent"))

    def describe(self) -> str:
        """For messages."""
        return f"the context variable {self.real.name}"


class TokenValue(Value):
    """The token that `set` returns for `reset`."""

    __slots__ = ("depth", "variable")

    def __init__(self, variable: ContextVariableValue, depth: int) -> None:
        super().__init__()
        self.variable = variable
        self.depth = depth

    def describe(self) -> str:
        """For messages."""
        return f"the token of {self.variable.describe()}"


@builds(ContextVar)
def build_context_variable(tx: Translator, obj: ContextVar[Any], source: Source | None) -> Value:
    """A context variable, guarded by identity."""
    if source is not None:
        tx.guards.add(source, "ID_MATCH", obj)
    return ContextVariableValue(obj, source)
