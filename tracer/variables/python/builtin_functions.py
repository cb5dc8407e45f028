"""Callables that are not interpreted: those written in C, torch's functions, functions with a handler."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from ...breaks.hints import reason_of_call
from ...breaks.reasons import Reason
from ...breaks.subjects import name_of_subject
from ...breaks.unsupported import Unsupported
from ...sources.roots import WeakrefSource
from ...sources.source import AttrSource, Source
from ..core.base import Value, with_arguments
from ..core.constant import fold
from ..core.handlers import handler_of, is_pure
from ..core.late import late
from ..core.registry import build, builds, from_python, importable, is_library, is_stable
from ..torch.graph_functions import is_graph_function
from .floats import FloatValue
from .functions import FunctionValue, make_existing
from .partials import MethodValue, PartialValue
from .symbolic_numbers import NumberValue

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


BOUND: dict[type, Callable[..., Value]] = {}
"""By the exact type of their owner: bound methods written in C, `builder(tx, method, source)`."""


def _is_math_of_ints(function: Any, args: Sequence[Value]) -> bool:
    """Whether it is a function of `math` with a varying number among its arguments: `math.pow(0.9, step)`."""
    if getattr(function, "__module__", None) != "math" or not any(isinstance(arg, NumberValue) for arg in args):
        return False
    return all(isinstance(arg, NumberValue) or arg.is_constant() for arg in args)


class BuiltinValue(Value):
    """A callable that is not interpreted: a builtin, a torch function, a library function with a handler."""

    __slots__ = ("function",)

    def __init__(self, function: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.function = function

    def python_type(self) -> type:
        """The callable's type."""
        return type(self.function)

    def is_constant(self) -> bool:
        """It is immutable."""
        return True

    def as_constant(self) -> Any:
        """The callable."""
        return self.function

    def truth(self, tx: Translator) -> bool:
        """Callables are true."""
        return True

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """By the tables: a handler, a node of the graph, or evaluation on constants."""
        function = self.function
        if tx.trace.overrides.may_ask and (is_graph_function(function) or late.is_overridable(function)):
            asked = late.torch_function_override(tx, function, args, kwargs)
            if asked is not None:
                return asked
        handler = handler_of(function)
        if handler is not None:
            return handler(tx, args, kwargs)
        if is_graph_function(function):
            if isinstance(function, FunctionType) and not all(map(_fits_graph, (*args, *kwargs.values()))):
                return tx.inline(make_existing(tx, function), args, kwargs)
            return tx.graph.call(function, args, kwargs, tx)
        if is_pure(function):
            varying = next((arg for arg in args if isinstance(arg, FloatValue)), None)
            if varying is not None and not kwargs:
                return varying.computed_by(tx, function, args)
            if len(args) == 1 and isinstance(args[0], NumberValue):
                return args[0].math(tx, function)
            if _is_math_of_ints(function, args) and not kwargs:
                return late.compute_from_ints(tx, function, args)
            return fold(tx, function, args, kwargs)
        kind = type(function)
        if kind in (MethodDescriptorType, WrapperDescriptorType) and args:
            if not issubclass(args[0].python_type(), function.__objclass__):
                raise Unsupported(Reason.RAISES, detail=f"TypeError: {self.describe()} of {args[0].describe()}")
            return late.base_method(tx, args[0], function, args[1:], kwargs)
        owner = getattr(function, "__self__", None)
        if isinstance(owner, GetSetDescriptorType) and function.__name__ == "__get__":  # Tensor.shape.__get__(x)
            return args[0].getattr(tx, owner.__name__)
        if isinstance(owner, type) and issubclass(owner, dict) and function.__name__ == "fromkeys":
            made: Value = with_arguments(late.fromkeys, tx, owner, *args, **kwargs)
            return made
        if isinstance(owner, (str, bytes, tuple, int, float)) or owner in (int, float, bytes, str):  # int.from_bytes
            return fold(tx, function, args, kwargs)
        raise Unsupported(reason_of_call(function), self)

    def bound_to(self, owner: Value) -> Value:
        """The callable as a method."""
        return MethodValue(self, owner)

    def getattr(self, tx: Translator, name: str) -> Value:
        """An attribute of the callable."""
        try:
            found = getattr(self.function, name)
        except AttributeError as error:
            tx.raise_observed(AttributeError, *error.args)
        if self.source is not None:
            return build(tx, found, AttrSource(self.source, name))
        return from_python(tx, found)

    def reconstruct(self, codegen: Codegen) -> None:
        """Push it."""
        codegen.const(self.function)

    def represents(self) -> object:
        """The callable."""
        return self.function

    def describe(self) -> str:
        """Module and name."""
        return name_of_subject(self.function)


def _fits_graph(argument: Value) -> bool:
    """Whether a node can have the argument: no user-defined function, module or object."""
    if isinstance(argument, (FunctionValue, MethodValue, PartialValue)):
        return False
    try:
        argument.as_proxy()
    except Unsupported:
        return False
    return True


# ---- real ones -----------------------------------------------------------------------------------------------------
@builds(FunctionType)
def build_function(tx: Translator, obj: FunctionType, source: Source | None) -> Value:
    """A function that is interpreted, or one from the tables."""
    if source is None:
        source = importable(obj)
        if source is None and not is_library(obj.__module__) and not tx.effects.local_classes:
            source = WeakrefSource.of(obj)  # classes made here would have new methods each time
    elif not is_stable(source) or _is_user_method(tx, obj, source):
        tx.guards.add(source, "FUNCTION_MATCH", obj)
    if handler_of(obj) is not None or is_pure(obj) or is_graph_function(obj):
        return BuiltinValue(obj, source)
    return make_existing(tx, obj, source)


def _is_user_method(tx: Translator, obj: FunctionType, source: Source) -> bool:
    """A method that user code defines, where its source leads to it: user code may replace it."""
    if is_library(obj.__module__):
        return False
    try:
        return tx.guards.value(source) is obj
    except (AttributeError, KeyError, TypeError):  # a method that `super()` found: its class has another of that name
        return False


@builds(
    MethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType,
    torch._ops.OpOverload, torch._ops.OpOverloadPacket, type(dict.__dict__["fromkeys"]),
)  # fmt: skip
def build_builtin(tx: Translator, obj: Any, source: Source | None) -> Value:
    """A callable that is not Python."""
    bound = BOUND.get(type(getattr(obj, "__self__", None)))
    if bound is not None:
        return bound(tx, obj, source)
    if source is not None and not is_stable(source):
        tx.guards.add(source, "ID_MATCH", obj)
    return BuiltinValue(obj, source)
