"""Arguments to parameters, as a call of a Python function does it."""
from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from .base import Value
from .constant import constant
from .late import late

if TYPE_CHECKING:
    from .base import Translator


@dataclass(frozen=True)
class Signature:
    """The parameters of a code object, and their defaults."""

    code: CodeType
    name: str
    defaults: tuple[Value, ...]
    kwdefaults: dict[str, Value]


def bind_arguments(
    tx: Translator, signature: Signature, args: Sequence[Value], kwargs: Mapping[str, Value]
) -> dict[str, Value]:
    """The locals at the start of the call; TypeError in traced code, with CPython's message, for wrong arguments."""
    code = signature.code
    count = code.co_argcount
    names = code.co_varnames[: count + code.co_kwonlyargcount]
    bound: dict[str, Value] = dict(zip(names[:count], args))
    extra = len(names)
    if code.co_flags & inspect.CO_VARARGS:
        bound[code.co_varnames[extra]] = late.make_tuple(tx, list(args[count:]))
        extra += 1
    rest: dict[str, Value] = {}
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        by_name = [name for name in names[: code.co_posonlyargcount] if name in kwargs]
        if by_name:
            message = "got some positional-only arguments passed as keyword arguments"
            tx.raise_observed(TypeError, f"{signature.name}() {message}: '{', '.join(by_name)}'")
    for name, value in kwargs.items():
        if name in names[code.co_posonlyargcount :]:
            if name in bound:
                tx.raise_observed(TypeError, f"{signature.name}() got multiple values for argument '{name}'")
            bound[name] = value
        elif code.co_flags & inspect.CO_VARKEYWORDS:
            rest[name] = value
        else:
            if sys.version_info >= (3, 13):  # it suggests a similar name
                raise Unsupported(Reason.RAISES, detail=f"TypeError: {signature.name}() has no parameter {name}")
            tx.raise_observed(TypeError, f"{signature.name}() got an unexpected keyword argument '{name}'")
    if code.co_flags & inspect.CO_VARKEYWORDS:
        keys: list[Value] = [constant(name) for name in rest]
        bound[code.co_varnames[extra]] = late.make_dict(tx, keys, list(rest.values()))
    if len(args) > count and not code.co_flags & inspect.CO_VARARGS:
        _too_many(tx, signature, len(args), sum(name in names[count:] for name in kwargs))
    _fill_defaults(tx, signature, bound, names)
    return bound


def _fill_defaults(tx: Translator, signature: Signature, bound: dict[str, Value], names: tuple[str, ...]) -> None:
    count = signature.code.co_argcount
    first = count - len(signature.defaults)
    missing: list[str] = []
    for i, name in enumerate(names[:count]):
        if name not in bound:
            if i >= first:
                bound[name] = signature.defaults[i - first]
            else:
                missing.append(name)
    _complain(tx, signature, missing, "positional")
    missing = []
    for name in names[count:]:
        if name not in bound:
            if name in signature.kwdefaults:
                bound[name] = signature.kwdefaults[name]
            else:
                missing.append(name)
    _complain(tx, signature, missing, "keyword-only")


def _complain(tx: Translator, signature: Signature, missing: list[str], kind: str) -> None:
    if missing:
        quoted = [repr(name) for name in missing]
        if len(quoted) == 1:
            listed = quoted[0]
        elif len(quoted) == 2:
            listed = " and ".join(quoted)
        else:
            listed = ", ".join(quoted[:-1]) + f", and {quoted[-1]}"
        plural = "s" if len(quoted) > 1 else ""
        message = f"{signature.name}() missing {len(quoted)} required {kind} argument{plural}: {listed}"
        tx.raise_observed(TypeError, message)


def _too_many(tx: Translator, signature: Signature, given: int, keyword_only: int) -> None:
    count, optional = signature.code.co_argcount, len(signature.defaults)
    takes = f"from {count - optional} to {count}" if optional else str(count)
    plural = "" if count == 1 and not optional else "s"
    were = "was" if given == 1 and not keyword_only else "were"
    also = ""
    if keyword_only:
        also = f" positional argument{_s(given)} (and {keyword_only} keyword-only argument{_s(keyword_only)})"
    message = f"{signature.name}() takes {takes} positional argument{plural} but {given}{also} {were} given"
    tx.raise_observed(TypeError, message)


def _s(count: int) -> str:
    return "" if count == 1 else "s"
