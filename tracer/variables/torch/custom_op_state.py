"""What a Python kernel of an operator (`torch.library.custom_op`) reads besides its arguments.

The graph runs the kernel before the side effects of the trace are made, and the engine writes to inputs at the end of
the graph. So a kernel that reads something changed so far is called after the graph.
"""
from __future__ import annotations

import collections
import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch._library.custom_ops import OPDEFS

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...runtime.skips import is_installed
from ..core.registry import is_library
from ..python.cells import CellValue

if TYPE_CHECKING:
    from ..core.base import Translator

_CONTAINERS = (list, dict, set, bytearray, collections.deque)


def refuse_changed_state(tx: Translator, names: list[str]) -> None:
    """Raises Unsupported where a kernel of one of these operators may read a change that is still pending."""
    for name in names:
        definition: Any = OPDEFS.get(name)
        if definition is not None and _sees_a_change(tx, _kernels(definition)):
            raise Unsupported(
                Reason.UNSUPPORTED_ARGUMENT,
                detail=f"the operator {name}, whose kernel reads what the function has changed,",
            )


def names_state(functions: list[Callable[..., Any] | None]) -> bool:
    """Whether these functions refer to user state that may change."""
    seen = _seen([function for function in functions if function is not None])
    return any(_is_state(value) or isinstance(value, torch.Tensor) for _, value in seen)


def _kernels(definition: Any) -> list[Callable[..., Any]]:
    return [definition._init_fn, *map(inspect.unwrap, definition._backend_fns.values())]


def _sees_a_change(tx: Translator, kernels: list[Callable[..., Any]]) -> bool:
    effects, graph = tx.effects, tx.graph
    outside = effects.changed_outside()
    changed = bool(outside or effects.of_classes)
    cells = {id(value.real) for value in outside if isinstance(value, CellValue)}
    names = {name for _, name in effects.globals}
    written = any(
        version is not None and node.meta["val"]._version != version for node, version in graph.versions.items()
    )
    if not (changed or names or written):
        return False
    for place, value in _seen(kernels):
        if place in cells or place in names or (changed and _is_state(value)):
            return True
        if written and (_is_state(value) or isinstance(value, torch.Tensor)):
            return True
    return False


def _is_state(value: Any) -> bool:
    """Whether something in `value` may have changed: it is a container, a module, an instance of a user-defined class,
    or such a class. Objects of packages are assumed not to be changed by compiled functions."""
    if isinstance(value, (*_CONTAINERS, torch.nn.Module)):
        return True
    module = getattr(value if isinstance(value, type) else type(value), "__module__", None)
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    return not is_library(module) and module != "builtins" and not (file and is_installed(file))


def _seen(kernels: list[Callable[..., Any]]) -> Iterator[tuple[Any, Any]]:
    """(name of a global or id of a cell, its content) for everything that these functions refer to, and recursively the
    user's functions among it."""
    pending, done = [k for k in kernels if isinstance(k, FunctionType)], set()
    while pending:
        function = pending.pop()
        if function in done or is_library(function.__module__):
            continue
        done.add(function)
        scope = function.__globals__
        named: list[tuple[Any, Any]] = [(n, scope[n]) for n in _names(function.__code__) if n in scope]
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty one
                named.append((id(cell), cell.cell_contents))
        for place, value in named:
            if isinstance(value, FunctionType):
                pending.append(value)
            yield place, value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
