"""The fast path of a module's guards: what must be checked while none of the module's dicts has changed.

Reading the dicts of some hundred modules costs more than everything else in a warm call of a large model. So after a
module was accepted a few times, it is recorded: the objects that its guards reach through dicts only, their classes,
and the versions of the dicts (`versions.py`). From then on a call compares these, and checks what no dict version
covers: the properties of each tensor, and whatever is reached in another way. Where one of them does not hold, the full
check decides.
"""
from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .interrupted import from_the_start, holds_after_all
from .python_guards import NEVER_CHANGE, Failed, GuardFunction, Lines, PythonGuardManager
from .versions import Step, Versions

Check = Callable[[Any], bool]
_WORTH_IT = 100  # objects below which the full check is as cheap
_PATIENCE = 3  # full checks before a module is recorded
_GROWTH = 8  # the factor for the next record after a useless one
_OF_USE = 50  # calls that a record serves
_MOST_MODULES = 64


class _Settled(NamedTuple):
    """How a settled object is found: by `key` below the `owner`-th of them, or as its `__dict__`; the first is the
    module itself. `slot` is its index for the fast path, -1 if that does not need it."""

    owner: int
    key: Any
    own_dict: bool
    slot: int


class _Record:
    """The record of one accepted module."""

    def __init__(self, module: Any, forget: Callable[[Any], object]) -> None:
        self.module = weakref.ref(module, forget)
        self.table: bytearray | None = None
        self.look: Callable[[bytearray, list[Any]], bool] = _seen_nothing
        self.classes: Sequence[weakref.ref[type]] = ()
        self.patience = self.left = _PATIENCE
        self.served = 0

    def fill(self, steps: Sequence[Step], versions: Versions) -> None:
        """Record the current state."""
        self.classes = [weakref.ref(cls, self._outlived) for cls in {type(step.object) for step in steps}]
        self.table, self.look = versions.table(steps), versions.look

    def wait(self) -> None:
        """The module has changed and is still accepted: record it again, later if the last record was useless."""
        self.patience = _PATIENCE if self.served >= _OF_USE else self.patience * _GROWTH
        self.left, self.served, self.table = self.patience, 0, None

    def _outlived(self, _: object) -> None:
        """A class has died, so another may get its address."""
        self.table = None


def _seen_nothing(table: bytearray, found: list[Any]) -> bool:
    return False


def with_brief(function: GuardFunction, check: Check, versions: Callable[[], Versions | None] | None) -> Check:
    """`check`, the compiled `function`, with a fast path where that suffices and `versions` returns the library."""
    managers = list(function.managers())
    needed = _needed(function, managers)
    if versions is None or len(managers) < _WORTH_IT or 2 * len(needed) > len(managers):
        return check
    slots = _slots(function, managers, needed)
    brief, plan, count = _brief(function, managers, needed, slots), _plan(managers, slots), len(slots)
    records: dict[int, _Record] = {}

    def full(module: Any, record: _Record | None) -> bool:
        if not check(module):
            return False
        if record is None or record.module() is not module:
            if len(records) < _MOST_MODULES:
                key = id(module)
                records[key] = _Record(module, lambda _: records.pop(key, None))
            return True
        if record.table is not None:
            record.wait()
        record.left = max(record.left - 1, 0)
        library = versions() if record.left == 0 else None
        if library is None:
            return True
        with contextlib.suppress(LookupError, AttributeError):  # another thread changes the module
            record.fill(_steps(module, plan), library)
        return check(module)  # what changed before the versions were noted is seen now

    def holds(module: Any) -> bool:
        try:
            found: list[Any] = [None] * count
            record = records.get(id(module))
            if record is not None and record.module() is module:
                table = record.table  # no Python code runs from here to the end of `look`
                if table is not None and record.look(table, found) and brief(found):
                    record.served += 1
                    return True
            return full(module, record)
        except BaseException as error:  # of a signal handler: `check` and `brief` raise nothing themselves
            return holds_after_all(check, module, error)

    return from_the_start(holds)


def _needed(function: GuardFunction, managers: Sequence[PythonGuardManager]) -> set[PythonGuardManager]:
    """The managers of objects that the fast path checks, and of those on the way there from a settled one."""
    needed: set[PythonGuardManager] = set()
    ends = [manager for pair in function.same for manager in pair[:2] if not (pair[0].settled and pair[1].settled)]
    ends += [m for m in managers if m.passing() or (m.tensor is not None and not m.settled)]
    for end in ends:
        manager: PythonGuardManager | None = end
        while manager is not None and manager not in needed:
            needed.add(manager)
            manager = None if manager.settled else manager.owner
    return needed


def _slots(
    function: GuardFunction, managers: Sequence[PythonGuardManager], needed: set[PythonGuardManager]
) -> dict[PythonGuardManager, int]:
    """The slots of the settled objects that the fast path needs: tensors first, in the order of comparison."""
    wanted = [manager for _, group in function.tensor_checks() for manager in group if manager.settled]
    wanted += [manager for manager in managers if manager in needed and manager.settled and manager.tensor is None]
    return {manager: slot for slot, manager in enumerate(wanted)}


def _brief(
    function: GuardFunction, managers: Sequence[PythonGuardManager], needed: set[PythonGuardManager],
    slots: dict[PythonGuardManager, int],
) -> Check:
    """`brief(found)` over the objects in their slots: whether everything holds that could change while no dict has."""
    lines = Lines("brief(found)", "rejected(error)")
    function.write_classes(lines)
    for number, manager in enumerate(managers):
        if manager in needed:
            manager.variable = f"v{number}"
            owner = manager.owner.variable if manager.owner is not None else ""
            read = f"found[{slots[manager]}]" if manager in slots else manager.read.format(owner)
            lines.add(f"{manager.variable} = {read}")
            for condition in manager.passing():
                lines.add(f"assert {condition.format(manager.variable)}")
    for first, second, _ in function.same:
        if not (first.settled and second.settled):
            lines.add(f"assert {first.variable} is {second.variable}")
    start = 0
    for compare, group in function.tensor_checks():
        end = start + sum(manager.settled for manager in group)
        others = "".join(f", {manager.variable}" for manager in group if not manager.settled)
        lines.add(f"{compare}(*found[{start}:{end}]{others})")
        start = end
    lines.add("return True")
    brief: Check = lines.function({**function.names, "rejected": _rejected})
    return brief


def _rejected(error: BaseException) -> bool:
    """False for what `brief` raised itself; re-raises anything else, which may come from a signal handler."""
    inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
    if isinstance(error, Failed) or (isinstance(error, Exception) and not inside):
        return False
    raise error


def _plan(managers: Sequence[PythonGuardManager], slots: dict[PythonGuardManager, int]) -> list[_Settled]:
    """The settled objects, each after the one that it is found from."""
    settled = [manager for manager in managers if manager.settled]
    numbers = {manager: number for number, manager in enumerate(settled)}
    return [
        _Settled(
            numbers[manager.owner] if manager.owner is not None else 0, manager.key, manager.instance is not None,
            slots.get(manager, -1),
        )
        for manager in settled
    ]


def _steps(module: Any, plan: Sequence[_Settled]) -> list[Step]:
    """The objects of `plan` below this module, without those that only their dict can change."""
    objects = [module]
    dicts: dict[int, Any] = {}
    for settled in plan[1:]:
        owner = objects[settled.owner]
        objects.append(owner.__dict__ if settled.own_dict else owner[settled.key])
        if settled.own_dict:
            dicts[settled.owner] = objects[-1]
    steps = []
    for number, (value, settled) in enumerate(zip(objects, plan)):
        if settled.slot >= 0 or not (settled.own_dict or type(value) in NEVER_CHANGE):
            steps.append(Step(value, None, isinstance(value, dict), settled.slot))
            if number in dicts:
                steps.append(Step(value, dicts[number], True))
    return steps
