"""The pure functions that sources call, and how a call reads as Python."""
from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .array_memory import tensor_of
from .mapping_proxies import mapping_of
from .weak_proxies import proxied

DICTS_OF_ATTRIBUTES = frozenset(("_modules", "_parameters", "_buffers", "__dict__"))
BEHIND = frozenset(("proxied", "mapping_of", "tensor_of"))
"""Functions to an object that the display name need not mention."""
_ABSENT = object()


def item(owner: Any, key: Any) -> Any:
    """`owner[key]`; a dict that creates missing items (a defaultdict) is not changed but raises KeyError."""
    if not isinstance(owner, dict) or type(owner).__getitem__ is not dict.__getitem__:
        return owner[key]
    found = dict.get(owner, key, _ABSENT)
    if found is _ABSENT:
        raise KeyError(key)
    return found


def nth_key(mapping: Mapping[Any, Any], index: int) -> Any:
    """The `index`-th key of a dict (or item of a set) in iteration order."""
    return next(itertools.islice(mapping, index, None))


def nth_dict_key(mapping: Any, index: int) -> Any:
    """The same of a dict, for bytecode: whatever its class makes of iteration."""
    return list(dict.keys(mapping))[index]


def are_different(*objects: object) -> bool:
    """Whether no two of the arguments are one object."""
    return len(set(map(id, objects))) == len(objects)


def values_of(mapping: Mapping[Any, Any]) -> list[Any]:
    """The arguments' values in order."""
    return list(mapping.values())


_BOTH: dict[str, Callable[[Any], Any]] = {
    "type": type, "len": len, "list": list, "tuple": tuple, "referent": operator.call, "proxied": proxied,
    "mapping_of": mapping_of, "subclasses": type.__subclasses__, "values_of": values_of,
}
FUNCTIONS = {**_BOTH, "set": set, "tensor_of": tensor_of}
"""The functions that a CallSource may name, as guards read them."""
LOADED = {**_BOTH, "iter": iter, "tensor_of": torch.from_numpy}
"""As bytecode calls them."""

_INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
    operator.eq: "==", operator.ne: "!=", operator.is_: "is",
}
_PREFIX = {operator.neg: "-", operator.pos: "+", operator.not_: "not "}


def call_text(function: Callable[..., Any], args: Sequence[str]) -> str:
    """`function(*args)` as Python; operators stand between their operands."""
    function = inspect.unwrap(function)
    if function is are_different:
        ids = ", ".join(f"id({arg})" for arg in args)
        return f"{args[0]} is not {args[1]}" if len(args) == 2 else f"len({{{ids}}}) == {len(args)}"
    if function in _INFIX:
        left = f"({args[0]})" if function is operator.pow and args[0].startswith("-") else args[0]
        return f"({left} {_INFIX[function]} {args[1]})"
    if function in _PREFIX:
        return f"({_PREFIX[function]}{args[0]})"
    if hasattr(function, "__objclass__"):
        return f"{args[0]}.{function.__name__}({', '.join(args[1:])})"
    home = getattr(function, "__module__", None) or ""  # NumPy's functions may have none
    module = "" if home in ("builtins", "_operator", "") or home.startswith("ptdebug.") else f"{home}."
    return f"{module}{function.__name__}({', '.join(args)})"
