"""Objects that only this frame holds, where the death of one is observable, or of something that dies with it.

A resume function gets them in boxes (`frames/continuation.py`). Where in the trace the last reference to one goes (it
is an operand, or an iterator whose loop ends), the graph breaks, so that what Python runs then runs there. References
are found as Python's garbage collector finds them: by what each Value holds.
"""
from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from functools import partial
from types import CellType, CodeType, FunctionType, GeneratorType, MethodType
from typing import Any

from ..bytecode.resume_function import STACK_ARGUMENT, origin_of
from ..variables.core.base import Value
from ..variables.core.constant import BoundBuiltin, ConstantValue
from ..variables.core.finalizers import brings_visible_death
from ..variables.python.builtin_functions import BuiltinValue
from ..variables.python.objects import ObjectValue
from ..variables.python.weak_references import WeakProxy, WeakReference
from ..variables.torch.tensor import NodeValue, TensorValue
from .destructors import dies_visibly
from .generators import GeneratorValue
from .interpreter import Interpreter

_HOLD_NOTHING = (ConstantValue, TensorValue, NodeValue, BuiltinValue)
_LEAVES = (*_HOLD_NOTHING, BoundBuiltin)
_RUNS = (GeneratorValue, ObjectValue)
"""Iterators whose next step is the user's code."""
_FOLLOWED = (Value, list, tuple, dict, set, frozenset, CellType, GeneratorType, MethodType, partial)


def observable_boxes(code: CodeType, unread: dict[str, Any]) -> list[str]:
    """The boxed arguments of a resume function's code, by name, whose death is observable, or brings such a one."""
    origin = origin_of(code)
    boxed = origin.boxed if origin is not None else ()
    return [name for name in boxed if name in unread and brings_visible_death(unread[name][0])]


def unboxed(root: Interpreter, names: Iterable[str]) -> list[Value]:
    """What was in the boxes `names`, where the resume function has restored its stack."""
    return [
        root.stack[int(name.removeprefix(STACK_ARGUMENT))] if name.startswith(STACK_ARGUMENT) else root.locals[name]
        for name in names
    ]  # fmt: skip


def referred(root: Interpreter) -> dict[int, Value]:
    """What the frame's stack and variables refer to, by identity."""
    return {id(value): value for value in (*root.stack, *root.locals.values())}


def lost(root: Interpreter, before: dict[int, Value]) -> Value | None:
    """One of the owned objects that nothing in the frame refers to any more; None where there is none. `before` is what
    was referred to before the instruction."""
    now = referred(root)
    gone = [value for place, value in before.items() if place not in now]
    if not _changes(root) and all(isinstance(value, _LEAVES) for value in _reached(gone, root)):
        return None
    missing = [value for value in root.trace.owned if id(value) not in now]
    if not missing:
        return None
    found = {id(value) for value in _reached(_roots(root), root)}
    return next((value for value in missing if id(value) not in found), None)


def _changes(root: Interpreter) -> bool:
    """Whether the instruction may have changed what the objects hold that the frame still refers to."""
    opname = root.current.opname
    if opname == "FOR_ITER":
        return bool(root.stack) and isinstance(root.stack[-1], _RUNS)
    return opname.startswith(("STORE_", "DELETE_")) and not opname.startswith(("STORE_FAST", "DELETE_FAST"))


def holds_observably(root: Interpreter, value: Value) -> bool:
    """Whether something dies observably where `value` does: itself, or what it alone may hold."""
    return any(dies_visibly(root, held) or held in root.trace.owned for held in _reached([value], root))


def _roots(root: Interpreter) -> list[object]:
    effects = root.effects
    changed = effects.changed_outside().difference(root.trace.owned)
    outside = [*changed, *effects.globals.values(), *effects.cells.values()]
    return [*_of_frame(root), *outside, root.trace.open_variables, root.trace.caught_warnings]


def _of_frame(frame: Interpreter) -> list[object]:
    contexts = [part for context in frame.open_contexts for part in (context.manager, context.exit)]
    return [*frame.stack, *frame.locals.values(), *frame.cells.values(), frame.handled, *contexts]


def _reached(roots: Iterable[object], root: Interpreter) -> Iterator[Value]:
    """The Values that `roots` hold, and those that these hold, each once."""
    seen: set[int] = set()
    pending = list(roots)
    while pending:
        found = pending.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if issubclass(type(found), Value):
            yield found  # type: ignore[misc]
        pending += _held(found, root)


def _held(holder: object, root: Interpreter) -> list[Any]:
    kind = type(holder)  # not `__class__`, which may run user code
    if issubclass(kind, Interpreter):
        return _of_frame(holder)  # type: ignore[arg-type]
    if kind is FunctionType:
        return [*(holder.__closure__ or ()), *(holder.__defaults__ or ())]  # type: ignore[attr-defined]
    if kind in (WeakReference, WeakProxy) or issubclass(kind, _HOLD_NOTHING) or not issubclass(kind, _FOLLOWED):
        return []
    held = gc.get_referents(holder)
    if not issubclass(kind, Value):
        return held
    attributes: dict[str, tuple[Value, bool]] = root.effects.attributes.get(holder, {})  # type: ignore[call-overload]
    real = getattr(holder, "real", None)
    return [*(part for part in held if part is not real), *(new for new, _ in attributes.values())]
