"""`torch.compile` and its results inside a compiled function: what is compiled there is part of this graph."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import Source
from ..core.base import Value
from ..core.constant import constant, is_none
from ..core.handlers import MEANINGS, NAMED, Handler
from ..core.registry import builds, is_stable
from ..python.partials import MethodValue

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class CompiledValue(Value):
    """The result of `compile(original, **options)` in the trace. Where it escapes it is made by that call."""

    __slots__ = ("compile", "options", "original")

    def __init__(self, compile: Any, original: Value, options: Mapping[str, Value]) -> None:
        super().__init__()
        self.compile = compile
        self.original = original
        self.options = dict(options)

    def python_type(self) -> type:
        """A function; a module for one."""
        if issubclass(self.original.python_type(), torch.nn.Module):
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"the type of {self.describe()}")
        return FunctionType

    def truth(self, tx: Translator) -> bool:
        """Functions are true."""
        return True

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """The original's call."""
        return self.original.call(tx, args, kwargs)

    def bound_to(self, owner: Value) -> Value:
        """The function as a method."""
        return MethodValue(self, owner)

    def getattr(self, tx: Translator, name: str) -> Value:
        """The original's attributes."""
        if name in ("_torchdynamo_orig_callable", "_orig_mod"):
            return self.original
        return self.original.getattr(tx, name)

    def reconstruct(self, codegen: Codegen) -> None:
        """The call."""
        codegen.push_null()
        codegen.const(self.compile)
        for value in (self.original, *self.options.values()):
            codegen(value)
        codegen.call(1 + len(self.options), tuple(self.options))

    def describe(self) -> str:
        """For messages."""
        return f"what torch.compile makes of {self.original.describe()}"


class CompileDecorator(Value):
    """`compile(**options)`, about to be called with a function."""

    __slots__ = ("compile", "options")

    def __init__(self, compile: Any, options: Mapping[str, Value]) -> None:
        super().__init__()
        self.compile = compile
        self.options = dict(options)

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """The compiled function."""
        return _compile(self.compile, args, self.options)


def _compile(compile: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    options = dict(kwargs)
    original = args[0] if args else options.pop("model", constant(None))
    if len(args) > 1:
        raise Unsupported(Reason.RAISES, detail="TypeError: torch.compile takes one argument by position")
    if is_none(original):
        return CompileDecorator(compile, options)
    if "disable" in options and options["disable"].is_constant() and options["disable"].as_constant():
        return original
    return CompiledValue(compile, original, options)


def _compiling(compile: Any) -> Handler:
    return lambda tx, args, kwargs: _compile(compile, args, kwargs)


NAMED["torch", "compile"] = lambda tx, args, kwargs: _compile(torch.compile, args, kwargs)
MEANINGS["compile"] = _compiling


class ScriptedValue(Value):
    """The result of torch.jit.script or torch.jit.trace for a function: a call of it is one node, which the engine
    inlines."""

    __slots__ = ("real",)

    def __init__(self, real: Any, source: Source | None) -> None:
        super().__init__(source)
        self.real = real

    def python_type(self) -> type:
        """torch.jit.ScriptFunction."""
        return type(self.real)

    def truth(self, tx: Translator) -> bool:
        """It is true."""
        return True

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A node."""
        real = self.real

        def scripted(*args: Any, **kwargs: Any) -> Any:  # a graph is copied, which the function itself cannot be
            return real(*args, **kwargs)

        scripted.__name__ = scripted.__qualname__ = real.name
        return tx.graph.call(scripted, args, kwargs, tx)

    def bound_to(self, owner: Value) -> Value:
        """It is no method."""
        return self

    def getattr(self, tx: Translator, name: str) -> Value:
        """Its name, say."""
        found = getattr(self.real, name, None)
        if not isinstance(found, str):
            raise Unsupported(Reason.ATTRIBUTE, self, name)
        return constant(found)

    def reconstruct(self, codegen: Codegen) -> None:
        """The function itself."""
        codegen.const(self.real)

    def describe(self) -> str:
        """For messages."""
        return f"the scripted function {self.real.name}"


@builds(torch.jit.ScriptFunction)
def build_scripted(tx: Translator, obj: Any, source: Source | None) -> Value:
    """A scripted or traced function, guarded by identity."""
    if source is not None and not is_stable(source):
        tx.guards.add(source, "ID_MATCH", obj)
    return ScriptedValue(obj, source)
