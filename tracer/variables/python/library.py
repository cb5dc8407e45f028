"""Handlers of library functions: dataclasses, inspect, logging, typing."""
from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import os
import re
import struct
import sys
import traceback
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import FunctionType, MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from torch.torch_version import TorchVersion

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.dicts import make_dict
from ..containers.sequences import TupleValue, make_tuple
from ..core.base import Value
from ..core.constant import ConstantValue, constant, fold, is_none
from ..core.handlers import NAMED, handles, pure
from ..core.identity_guards import guard_unchanged
from ..core.registry import BUILDERS_BY_NAME, BY_IDENTITY, CONSTANT_TYPES, OPAQUE_CONSTANTS, builds, from_python
from .classes import ClassValue
from .exceptions import ExceptionValue, TracebackValue, make_exception
from .functions import FunctionValue
from .instances import new_object
from .objects import ObjectValue
from .partials import MethodValue

if TYPE_CHECKING:
    from ...sources.source import Source
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]

OPAQUE_CONSTANTS.update((
    inspect.Signature, inspect.Parameter, dataclasses.Field, inspect._ParameterKind,
    type(dataclasses.MISSING), ModuleSpec,
))  # fmt: skip

pure(typing.get_origin, typing.get_args, os.getpid, inspect.getmodule, sys.intern, json.loads, json.dumps)

pure(struct.calcsize, struct.pack, struct.unpack, struct.unpack_from, struct.iter_unpack)

pure(
    re.compile, re.escape, re.findall, re.finditer, re.fullmatch, re.match, re.search, re.split, re.sub, re.subn,
)  # fmt: skip

CONSTANT_TYPES.update((re.Pattern, re.Match))  # immutable, and their methods have no side effects
CONSTANT_TYPES.update((TorchVersion, struct.Struct))
BY_IDENTITY.update((TorchVersion, struct.Struct))  # 2.13 equals "2.13.0"


def _build_version(tx: Translator, obj: Any, source: Source | None) -> Value:
    """A version: immutable."""
    if source is not None:
        tx.guards.add(source, "ID_MATCH", obj)
    return ConstantValue(obj, source)


def _version(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return fold(tx, sys.modules["packaging.version"].Version, args, kwargs)


BUILDERS_BY_NAME["packaging.version", "Version"] = _build_version
NAMED["packaging.version", "Version"] = _version


# ---- dataclasses and inspect -----------------------------------------------------------------------------------------
def _class_of(value: Value) -> type:
    return value.cls if isinstance(value, ClassValue) else value.python_type()


@handles(dataclasses.fields)
def _fields(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return fold(tx, dataclasses.fields, [constant(_class_of(args[0]))])


@handles(dataclasses.is_dataclass)
def _is_dataclass(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return constant(dataclasses.is_dataclass(_class_of(args[0])))


@builds(inspect.Signature, inspect.Parameter)
def _build_signature(tx: Translator, obj: Any, source: Source | None) -> Value:
    """A signature that the program keeps: immutable."""
    if source is not None:
        tx.guards.add(source, "ID_MATCH", obj)
    return ConstantValue(obj, source)


@handles(sys.exit)
def _exit(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """`raise SystemExit(status)`; a tuple is all of its arguments."""
    if len(args) > 1 or kwargs or any(isinstance(arg, ExceptionValue) for arg in args):  # which may be what is raised
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, sys.exit)
    if args and isinstance(args[0], TupleValue):
        args = args[0].items
    elif args and is_none(args[0]):
        args = ()
    tx.raise_value(make_exception(tx, SystemExit, args))


@handles(inspect.signature)
def _signature(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    real = real_callable(args[0])
    if real is None:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, inspect.signature, given=(args[0],))
    return fold(tx, inspect.signature, [constant(real)], kwargs)


def _binds(bind: Callable[..., inspect.BoundArguments]) -> None:
    """`Signature.bind` or `bind_partial`: Python binds indices of the arguments, the trace has their values."""

    @handles(bind)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        signature, given = args[0].as_constant(), [*args[1:], *kwargs.values()]
        names = dict(zip(kwargs, range(len(args) - 1, len(given))))
        try:
            bound = bind(signature, *range(len(args) - 1), **names)
        except TypeError as error:
            tx.raise_observed(TypeError, *error.args)
        made = new_object(tx, inspect.BoundArguments)
        kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
        arguments: list[Value] = []
        for name, numbers in bound.arguments.items():
            if kinds[name] is inspect.Parameter.VAR_POSITIONAL:
                arguments.append(make_tuple(tx, [given[number] for number in numbers]))
            elif kinds[name] is inspect.Parameter.VAR_KEYWORD:
                arguments.append(make_dict(tx, list(map(constant, numbers)), [given[n] for n in numbers.values()]))
            else:
                arguments.append(given[numbers])
        made.generic_setattr(tx, "arguments", make_dict(tx, list(map(constant, bound.arguments)), arguments))
        made.generic_setattr(tx, "_signature", args[0])
        return made


for _method in (inspect.Signature.bind, inspect.Signature.bind_partial):
    _binds(_method)


def real_callable(value: Value) -> Any:
    """The callable behind a value, as far as its signature is concerned; None when the trace made it."""
    if isinstance(value, FunctionValue):
        return value.function
    if isinstance(value, MethodValue):
        function = real_callable(value.function)
        owner = getattr(value.owner, "real", None)
        if owner is None and value.owner.is_constant():
            owner = value.owner.as_constant()
        return MethodType(function, owner) if function is not None and owner is not None else None
    if isinstance(value, ObjectValue):
        return value.real
    return value.as_constant() if value.is_constant() else None


_KINDS: dict[Any, type] = {inspect.isfunction: FunctionType, inspect.ismethod: MethodType}


def _asks(function: Any) -> None:
    """A predicate of `inspect` on the kind of an object."""

    @handles(function)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        value = args[0]
        if value.is_constant():
            return constant(function(value.as_constant()))
        kind = value.python_type()
        return constant(kind is _KINDS.get(function))


for _function in (inspect.isclass, inspect.isfunction, inspect.ismethod, inspect.ismodule, inspect.isbuiltin):
    _asks(_function)


@handles(typing.get_type_hints)
def _get_type_hints(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """Of an existing class or function; its annotations, and what they refer to, are guarded."""
    real = real_callable(args[0]) if len(args) == 1 else None
    if real is None or not set(kwargs) <= {"include_extras"}:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, typing.get_type_hints)
    options = {name: value.as_constant() for name, value in kwargs.items()}
    try:
        hints = typing.get_type_hints(real, **options)
    except Exception as error:
        raise Unsupported(Reason.RAISES, detail=f"{type(error).__name__}: {error}") from error
    guard_unchanged(tx, real, lambda real: typing.get_type_hints(real, **options) == hints, "the type hints")
    return from_python(tx, hints)


# ---- names, types ----------------------------------------------------------------------------------------------------
@handles(typing.cast)
def _cast(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return args[1]


@handles(SimpleNamespace)
def _namespace(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if args:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="SimpleNamespace")
    made = new_object(tx, SimpleNamespace)
    for name, value in kwargs.items():
        tx.effects.store_attr(made, name, value)
    return made


@handles(FunctionType.__get__)
def _bind(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """`function.__get__(owner, cls)`: a method."""
    if args[1].is_constant() and args[1].as_constant() is None:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="__get__ of None")
    return MethodValue(args[0], args[1])


@handles(MethodType)
def _method_type(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if args[1].is_constant() and args[1].as_constant() is None:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="MethodType of None")
    return MethodValue(args[0], args[1])


# ---- messages ------------------------------------------------------------------------------------------------------
def _shows(logger: logging.Logger, level: int) -> bool:
    """`logger.isEnabledFor(level)`, which would cache its answer in the logger."""
    if logger.disabled:
        return False
    known = logger._cache.get(level)  # type: ignore[attr-defined]
    return level >= max(logger.getEffectiveLevel(), logger.manager.disable + 1) if known is None else bool(known)


def _is_shown(tx: Translator, logger: Value, level: int) -> bool:
    """Whether the logger shows messages of the level, guarded."""
    real: Any = getattr(logger, "real", None)
    own = getattr(type(real), "isEnabledFor", None) is not logging.Logger.isEnabledFor
    if own or getattr(type(real), "getEffectiveLevel", None) is not logging.Logger.getEffectiveLevel:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="a logger with levels of its own")
    if any(tx.effects.has_pending(logger, name) for name in ("level", "disabled", "parent", "_cache")):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="a logger whose level the function has just set")
    shown = _shows(real, level)
    words = f"{'' if shown else 'not '}{{}}.isEnabledFor({level})"
    if logger.source is None:
        tx.guards.add(None, "LAMBDA", (lambda _: _shows(real, level) is shown, words.format(repr(real.name))))
    else:
        tx.guards.add(logger.source, "LAMBDA", (lambda now: _shows(now, level) is shown, words))
    return shown


def _logging_method(name: str, level: int) -> None:
    """A call that the logger's level drops does nothing; one that would be shown is left to eager."""

    @handles(getattr(logging.Logger, name))
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        if _is_shown(tx, args[0], level):
            raise Unsupported(Reason.UNSUPPORTED_METHOD, logging.Logger, name)
        return constant(None)


for _name, _level in (("debug", 10), ("info", 20), ("warning", 30), ("error", 40), ("critical", 50), ("warn", 30)):
    _logging_method(_name, _level)


@handles(logging.Logger.isEnabledFor)
def _is_enabled_for(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return constant(_is_shown(tx, args[0], args[1].as_constant()))


@handles(logging.getLogger)
def _get_logger(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return from_python(tx, logging.getLogger(*[arg.as_constant() for arg in args]))


def _logged_once(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """`logger.warning_once(...)` of transformers shows a message once per process: it may as well be shown while
    tracing."""
    logger, message = args[0], args[1]
    if not isinstance(logger, ObjectValue) or not isinstance(logger.real, logging.Logger) or len(args) > 2 or kwargs:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="logger.warning_once")
    logger.real.warning_once(message.as_constant())  # type: ignore[attr-defined]
    return constant(None)


NAMED["transformers.utils.logging", "warning_once"] = _logged_once


def _install_hooks(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """transformers installs hooks that collect hidden states on a model at its first call, once: done while tracing."""
    model = getattr(args[0], "real", None)
    if model is None or kwargs:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="maybe_install_capturing_hooks")
    sys.modules["transformers.utils.output_capturing"].maybe_install_capturing_hooks(model)
    return constant(None)


NAMED["transformers.utils.output_capturing", "maybe_install_capturing_hooks"] = _install_hooks


@handles(traceback.clear_frames)
def _clear_frames(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """The frames of exceptions raised in the trace have ended, and released their variables."""
    if len(args) != 1 or not isinstance(args[0], TracebackValue):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, traceback.clear_frames)
    return constant(None)


# ---- exceptions ------------------------------------------------------------------------------------------------------
@handles(sys.exc_info)
def _exc_info(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    exception = tx.current_exception()
    if exception is None:
        if not tx.guards.nothing_is_handled():
            raise Unsupported(Reason.UNSUPPORTED_BUILTIN, sys.exc_info)
        return TupleValue([constant(None)] * 3, tuple)
    return TupleValue([from_python(tx, exception.python_type()), exception, TracebackValue()], tuple)


@handles(sys.exception)
def _exception(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    exception = tx.current_exception()
    if exception is None and not tx.guards.nothing_is_handled():
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, sys.exception)
    return exception or constant(None)
