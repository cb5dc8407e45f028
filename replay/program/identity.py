"""By what a recorded call of the program is known again in another process: descriptions of what its variables held.

A description is exact where only equal objects have it: literals, functions, classes, modules, enumerations, and
containers of these. Of other objects it is the class. Nothing of the program is run: no `repr` or `==` of its classes.
"""
from __future__ import annotations

import enum
import functools
import hashlib
import types
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ...artifacts.records import CallIdentity, ProcessState
from .places import MISSING, Objects

LITERALS = (bool, int, float, complex, str, bytes, type(None), type(...), range, torch.dtype, torch.device,
            torch.layout, torch.memory_format, torch.Size)
CONTAINERS = (list, tuple, set, frozenset, dict)
MAX_ITEMS = 64
MAX_DEPTH = 4

ONE_OF_MANY = ("ID_MATCH", "FUNCTION_MATCH", "EQUALS_MATCH", "COMPUTED")
"""Kinds of guards that hold for one object, or value, among others of its class."""
ASIDE = ("TENSOR_MATCH", "SHAPE_ENV", "GLOBAL_STATE", "BUILTIN", "COMPUTABLE", "HAS_ATTR", "NO_ATTR", "IN_DICT",
         "NOT_IN_DICT")
"""Kinds that say nothing of what a call is known by: tensors are compared by value, state is restored."""


def identify(
    code: types.CodeType, variables: Mapping[str, Any], module: Mapping[str, Any],
    guards: Iterable[tuple[str, str, str]], arguments: Iterable[str], seconds: float,
) -> CallIdentity:
    """The identity of a call that runs now: of a function with that code, with these local and global variables.
    `guards` are (place, kind, code), `arguments` the names of the function's."""
    values: dict[str, str] = {}
    unsure = []
    objects = Objects(variables, module)
    for place, kind, condition in guards:
        if kind == "DUPLICATE_INPUT" and condition.count(" is ") == 1:
            found = describe_at(objects, condition)
            if found is not None:
                values[condition] = found[0]
        elif kind not in ASIDE and not place.startswith(_OF_LIBRARIES):
            question = _QUESTIONS.get(kind, "")
            key = f"{question}({place})" if question else place
            found = describe_at(objects, key) if " is " in place or place[-1:] == ")" else _described(
                question, objects.at(place))
            if found is not None:
                values[key] = found[0]
            if kind in ONE_OF_MANY and (found is None or not found[1]):
                unsure.append(place)
    for name in arguments:
        place = f"L[{name!r}]"
        found = describe_at(objects, place)
        if found is not None and found[1]:
            values.setdefault(place, found[0])
    return CallIdentity(values, tuple(dict.fromkeys(unsure)), seconds, code.co_filename, code.co_firstlineno,
                        code_digest(code))


def describe_state(state: ProcessState) -> str:
    """The modes that a function sees, and that calls of it may differ in."""
    casts = [f"{device} {cast.dtype}" for device, cast in sorted(state.autocast.items()) if cast.enabled]
    return f"grad {state.grad}, inference {state.inference}, {state.dtype}, {state.device}, autocast {casts}"


_OF_LIBRARIES = ("__import_module(", "__builtins")


_QUESTIONS = {"TYPE_MATCH": "type", "LENGTH": "len", "DICT_KEYS": "list"}


def describe_at(objects: Objects, key: str) -> tuple[str, bool] | None:
    """The description of what is at a place, or of a relation (`type(PLACE)`, `PLACE is PLACE`), and whether it is
    exact; None where there is nothing that can be looked at."""
    one, _, other = key.partition(" is ")
    if other:
        found = [objects.at(place) for place in (one, other)]
        return None if any(each is MISSING for each in found) else (str(found[0] is found[1]), True)
    question, place = "", key
    if key.startswith(("type(", "len(", "list(")) and key.endswith(")"):
        question, place = key[:-1].split("(", 1)
    return _described(question, objects.at(place))


def _described(question: str, found: Any) -> tuple[str, bool] | None:
    if found is MISSING:
        return None
    if question == "type":
        return _class_name(type(found)), True
    if question:
        if type(found) not in CONTAINERS and not isinstance(found, torch.nn.Module):
            return None
        if question == "len":
            return str(len(found)) if not isinstance(found, torch.nn.Module) else "", True
        return describe(list(found)) if isinstance(found, dict) else None
    return describe(found)


def describe(value: Any, depth: int = 0) -> tuple[str, bool]:
    """The description of an object, and whether only equal ones have it."""
    kind = type(value)
    if kind in LITERALS:
        text = repr(value)
        return f"{kind.__name__} {text if len(text) <= 200 else _digest(text)}", True
    if depth < MAX_DEPTH:
        if kind in CONTAINERS:
            return _container(value, depth)
        if isinstance(value, functools.partial) and kind is functools.partial:
            return _parts("partial", (value.func, value.args, value.keywords), depth)
        if kind is types.MethodType:
            return _parts("method", (value.__func__, value.__self__), depth)
        if kind is types.FunctionType:
            return _function(value, depth)
    return _named(value, kind)


def _named(value: Any, kind: type) -> tuple[str, bool]:
    if issubclass(kind, enum.Enum):
        return f"{_class_name(kind)}.{value._name_}", True
    if issubclass(kind, type):
        return f"class {_class_name(value)}", True
    if issubclass(kind, types.ModuleType):
        return f"module {value.__name__}", True
    if kind in (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType):
        owner = getattr(value, "__self__", None)
        of = owner.__name__ if isinstance(owner, types.ModuleType) else _class_name(
            owner if isinstance(owner, type) else type(owner))
        return f"builtin {of}.{value.__qualname__}", owner is None or isinstance(owner, (types.ModuleType, type))
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)):
        return f"operator {value}", True
    if isinstance(value, torch.Tensor):
        return f"tensor {value.dtype} {tuple(value.shape)}", True  # as far as it counts, an input of the graph
    if kind is weakref.ReferenceType:
        found, exact = _named(value(), type(value()))
        return f"weak reference to {found}", exact
    original = getattr(value, "_orig_mod", None) if isinstance(value, torch.nn.Module) else None
    if isinstance(original, torch.nn.Module):  # torch.compile's wrapper, which is not there when compilation is off
        value = original
    if isinstance(value, torch.nn.Module):
        return f"object {_class_name(type(value))}, training {value.training}", False
    return f"object {_class_name(kind)}", False


def _container(value: Any, depth: int) -> tuple[str, bool]:
    if isinstance(value, dict):
        items = [item for pair in list(value.items())[:MAX_ITEMS] for item in pair]
    else:
        items = list(value)[:MAX_ITEMS]
    found = [describe(item, depth + 1) for item in items]
    if isinstance(value, (set, frozenset)):
        found.sort()
    text = f"{type(value).__name__} of {len(value)}: [{', '.join(text for text, _ in found)}]"
    return text, len(value) <= MAX_ITEMS and all(exact for _, exact in found)


def _parts(name: str, parts: Iterable[Any], depth: int) -> tuple[str, bool]:
    found = [describe(part, depth + 1) for part in parts]
    return f"{name}({', '.join(text for text, _ in found)})", all(exact for _, exact in found)


def _function(function: types.FunctionType, depth: int) -> tuple[str, bool]:
    """By name and code, and by what its defaults and its closure hold."""
    function = function.__dict__.get("_ptdebug_original", function)
    if not isinstance(function, types.FunctionType):
        return describe(function, depth + 1)
    text = f"function {function.__module__}.{function.__qualname__} {code_digest(function.__code__)}"
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            held.append(None)
    if not held:
        return text, True
    inside, exact = _parts("", held, depth)
    return f"{text}{inside}", exact


@functools.lru_cache(maxsize=1024)
def code_digest(code: types.CodeType) -> str:
    """What tells a code object from others, in any process that runs the same source and Python."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    plain = [constant for constant in code.co_consts if isinstance(constant, (bool, int, float, str, bytes))]
    return _digest(f"{code.co_code!r}{code.co_names}{plain}{[code_digest(c) for c in inner]}{code.co_firstlineno}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
