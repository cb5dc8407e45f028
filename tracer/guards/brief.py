"""The brief form of a module's guards: what must be looked at while none of the module's dicts has changed.

Reading the dicts of some hundred modules costs more than anything else in a warm call of a large model. Where CPython tells
of changes (`watched.py`), a module that was accepted a few times is recorded: its dicts are watched, its objects and
tensors known by weak references. From then on a call looks whether any dict has changed, and at what no dict knows: the
class and `__dict__` of each object, the properties of each tensor, and whatever is reached in another way than through
dicts. When one of these does not hold, the full check decides.
"""
from __future__ import annotations

import gc
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import watched
from .generated import Failed, GuardFunction, Lines, PythonManager
from .interrupted import holds_after_all

_WORTH_IT = 200  # objects below which the full check is as cheap
_PATIENCE = 3  # full checks before a module is recorded; many times as many each time that a dict has changed since
_MOST_RECORDS = 5  # of one module
_MOST_MODULES = 256

_referents, _call = gc.get_referents, operator.call


class _Record:
    """One module that the function accepts."""

    def __init__(self, module: torch.nn.Module, forget: Callable[[Any], object]) -> None:
        self.module = weakref.ref(module, forget)
        self.dicts: watched.WatchedDicts | None = None
        self.objects: Sequence[weakref.ref[Any]] = ()
        self.ids: list[int] = []
        self.tensors: Sequence[Sequence[weakref.ref[torch.Tensor]]] = ()
        self.left = _PATIENCE
        self.times = 0

    def fill(self, objects: Sequence[Any], tensors: Sequence[Sequence[torch.Tensor]], dicts: Sequence[Any]) -> None:
        """Remember these; `left` stays below 0, so that it is not tried again, where an object does not show its class
        and its `__dict__` to the garbage collector."""
        self.times += 1
        self.left = -1
        for known in objects:
            ids = [*map(id, _referents(known))]
            if id(type(known)) not in ids or ("__dict__" in dir(type(known)) and id(known.__dict__) not in ids):
                return
        self.objects = [*map(weakref.ref, objects)]
        self.ids = [*map(id, _referents(*objects))]
        self.tensors = [[*map(weakref.ref, group)] for group in tensors]
        self.dicts = watched.WatchedDicts(dicts)
        self.left = _PATIENCE * 8**self.times if self.times < _MOST_RECORDS else -1


def with_brief(function: GuardFunction, check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """`check`, the compiled `function`, or what looks at less where that is enough."""
    managers = list(function.managers())
    needed = _needed(function, managers)
    if len(managers) < _WORTH_IT or 2 * len(needed) > len(managers) or not watched.available():
        return check
    brief, gather = _brief(function, managers, needed), _gather(function, managers)
    records: dict[int, _Record] = {}

    def full(module: Any, record: _Record | None) -> bool:
        if not check(module):
            return False
        if record is None or record.module() is not module:
            if len(records) < _MOST_MODULES:
                key = id(module)
                records[key] = _Record(module, lambda _: records.pop(key, None))
            return True
        record.left -= 1
        if record.left == 0:
            record.dicts = None
            record.fill(*gather(module))
            return check(module)  # what changed between the first look and the beginning of the watch is seen now
        return True

    def holds(module: Any) -> bool:
        try:
            record = records.get(id(module))
            if record is not None and record.dicts is not None and record.module() is module:
                if record.dicts.unchanged() and brief(record):
                    return True
            return full(module, record)
        except BaseException as error:  # of a signal's handler: `check` and `brief` raise nothing of their own
            return holds_after_all(check, module, error)

    return holds


def _needed(function: GuardFunction, managers: Sequence[PythonManager]) -> set[PythonManager]:
    """The managers of objects that the brief form looks at, and of those on the way there from a pinned one."""
    needed: set[PythonManager] = set()
    ends = [manager for pair in function.same for manager in pair[:2] if not (pair[0].settled and pair[1].settled)]
    ends += [m for m in managers if m.passing() or (m.tensor is not None and not m.settled)]
    for end in ends:
        manager: PythonManager | None = end
        while manager is not None and manager not in needed:
            needed.add(manager)
            manager = None if manager.pinned else manager.owner
    return needed


def _brief(
    function: GuardFunction, managers: Sequence[PythonManager], needed: set[PythonManager]
) -> Callable[[_Record], bool]:
    """`brief(record)`: whether all holds that could have changed although no dict has."""
    lines = Lines("brief", "record", "rejected(error)")
    lines.add("objects = [*map(call, record.objects)]")
    lines.add("assert [*map(id, referents(*objects))] == record.ids")
    function.write_classes(lines)
    pinned = {manager: position for position, manager in enumerate(m for m in managers if m.pinned)}
    for number, manager in enumerate(managers):
        if manager in needed:
            manager.variable = f"v{number}"
            owner = manager.owner.variable if manager.owner is not None else ""
            read = f"objects[{pinned[manager]}]" if manager in pinned else manager.read.format(owner)
            lines.add(f"{manager.variable} = {read}")
            for condition in manager.passing():
                lines.add(f"assert {condition.format(manager.variable)}")
    for first, second, _ in function.same:
        if not (first.settled and second.settled):
            lines.add(f"assert {first.variable} is {second.variable}")
    for position, (check, group) in enumerate(function.tensor_checks()):
        others = "".join(f", {manager.variable}" for manager in group if not manager.settled)
        lines.add(f"{check}(*map(call, record.tensors[{position}]){others})")
    lines.add("return True")
    names = {**function.names, "rejected": _rejected, "call": _call, "referents": _referents}
    brief: Callable[[_Record], bool] = lines.function(names)
    return brief


def _rejected(error: BaseException) -> bool:
    """False for what `brief` raised itself; raises the rest again, which may be a signal's."""
    inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
    if isinstance(error, Failed) or (isinstance(error, Exception) and not inside):
        return False
    raise error


def _gather(function: GuardFunction, managers: Sequence[PythonManager]) -> Callable[[Any], Any]:
    """`gather(x)`: the pinned objects, the settled tensors as they are compared, and the dicts on the way to all."""
    lines = Lines("gather", "x", "raised(error)")
    settled = [manager for manager in managers if manager.settled]
    for number, manager in enumerate(settled):
        manager.variable = f"v{number}" if manager.owner is not None else "x"
        if manager.owner is not None:
            lines.add(f"{manager.variable} = {manager.read.format(manager.owner.variable)}")
    objects = _tuple(manager for manager in settled if manager.pinned)
    dicts = _tuple(manager for manager in settled if isinstance(manager.example, dict))
    groups = "".join(f"{_tuple(m for m in group if m.settled)}, " for _, group in function.tensor_checks())
    lines.add(f"return {objects}, ({groups}), {dicts}")
    gather: Callable[[Any], Any] = lines.function({**function.names, "raised": _raised})
    return gather


def _tuple(managers: Any) -> str:
    return f"({''.join(f'{manager.variable}, ' for manager in managers)})"


def _raised(error: BaseException) -> None:
    raise error
