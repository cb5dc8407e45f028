"""The backends, modes and options that `compile` accepts, as stock does, and stock's errors for others.

Nothing here imports Dynamo or Inductor if the request is valid: the names of options are read from the source text of
Inductor's configuration.
"""
from __future__ import annotations

import ast
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from .foreign_backends import registered_backend
from .torch_settings import HONOURED_INDUCTOR, MODES, set_by_program, why_unused

log = logging.getLogger("ptdebug")

WAYS = {
    "ptdebug": "kernels", "inductor": "kernels", "aot_eager": "aten", "aot_eager_decomp_partition": "aten",
    "aot_eager_default_partitioner": "aten", "cudagraphs": "aten", "eager": "eager",
}
"""The backends that the engine takes the place of, and how it runs a graph for each (see `CompileContext.way`)."""
OPTIONS = ("memory_budget",)
"""Options that ptdebug adds to Inductor's."""
_TYPES = {"bool": bool, "int": int, "float": float, "str": str}


def backend_called(name: str) -> Callable[..., Any] | None:
    """The backend that is registered under `name`; None for one that the engine stands for.

    Raises torch._dynamo.exc.InvalidBackend where there is none of that name.
    """
    registry = sys.modules.get("torch._dynamo.backends.registry")
    registered = getattr(registry, "_COMPILER_FNS", {}).get(name)
    if registered is not None and not getattr(registered, "__module__", "torch").startswith(("torch.", "ptdebug.")):
        return registered
    return None if name in WAYS else registered_backend(name)


def check_mode(mode: str | None) -> None:
    """Raise RuntimeError, as stock does, for a mode that does not exist."""
    if mode and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")


def check_options(options: Mapping[str, Any]) -> None:
    """Raise RuntimeError, as stock does, for an option that does not exist, or a value of another type."""
    known = inductor_options() if any(name not in OPTIONS for name in options) else {}
    for name, value in options.items():
        attribute = name.replace("-", "_")
        if attribute in OPTIONS or not known:
            continue
        if attribute not in known:
            names = ", ".join((*OPTIONS, *sorted(known)))
            raise RuntimeError(f"Unexpected optimization option {name}, known options are: {names}")
        expected = known[attribute]
        if expected is not None and not isinstance(value, expected):
            raise RuntimeError(
                f"Unexpected type of attr {name}, got {type(value).__name__} should be {expected.__name__}")


def settings_of(mode: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of Inductor that a mode and options make. What has no meaning here is said once, and so is what the
    program has set in torch's configuration."""
    settings: dict[str, Any] = {}
    if mode:
        made, meaning = MODES[mode]
        settings |= made
        if meaning:
            say_once(f"mode={mode!r}: {meaning}")
    for name, value in options.items():
        attribute = name.replace("-", "_")
        if attribute in HONOURED_INDUCTOR:
            settings[attribute] = value
        elif attribute not in OPTIONS:
            say_once(f"the option {name} has no effect: {why_unused(attribute)}")
    for module, name, _ in set_by_program():
        why = why_unused(name, module)
        if why:
            say_once(f"{module}.{name} has no effect: {why}")
    return settings


@functools.cache
def say_once(text: str) -> None:
    """A warning, the first time."""
    log.warning("%s", text)


@functools.cache
def inductor_options() -> dict[str, type | None]:
    """The options of this torch's Inductor, each with its type where that is a simple one; empty where its
    configuration is not to be read."""
    try:
        with open(os.path.join(os.path.dirname(torch.__file__), "_inductor", "config.py"), encoding="utf-8") as file:
            module = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return {}
    return dict(_assigned(module.body, "", {}))


def _assigned(
    body: Iterable[ast.stmt], prefix: str, classes: dict[str, dict[str, type | None]]
) -> Iterator[tuple[str, type | None]]:
    """The names that statements assign, `class.name` in classes; a class has those of its bases, too."""
    for statement in body:
        match statement:
            case ast.If(body=then, orelse=other):
                yield from _assigned((*then, *other), prefix, classes)
            case ast.Try(body=tried, handlers=handlers):
                yield from _assigned((*tried, *(s for handler in handlers for s in handler.body)), prefix, classes)
            case ast.ClassDef(name=name, bases=bases, body=inner):
                own = {key: kind for base in bases for key, kind in classes.get(ast.unparse(base), {}).items()}
                own |= dict(_assigned(inner, "", classes))
                classes[name] = own
                yield from ((f"{prefix}{name}.{key}", kind) for key, kind in own.items())
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                yield f"{prefix}{name}", _TYPES.get(ast.unparse(annotation))
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        yield f"{prefix}{target.id}", _type(value)


def _type(value: ast.expr) -> type | None:
    """The type of what an expression gives, where its text tells."""
    match value:
        case ast.Constant(value=constant):
            return _TYPES.get(type(constant).__name__)
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return bool
        case ast.Call(func=ast.Name(id=name)):
            return _TYPES.get(name)
    return None
