"""Looks for more breaks behind the first one, so that `fullgraph=True` can list them in one error.

The instruction that stopped the trace is skipped: its result is unknown, and so is everything computed from it. Nothing
of this is ever compiled. Where a branch depends on an unknown value, the search continues with the next instruction.
"""
from __future__ import annotations

import logging

from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported
from ..variables.core.base import NULL, Value
from .break_records import GraphBreak
from .root_interpreter import RootInterpreter
from .stack_effects import pushed, stack_effect

log = logging.getLogger("ptdebug")
_MOST_STOPS = 100  # including consequences of the first breaks
_GIVE_UP = frozenset(("RAISE_VARARGS", "RERAISE", "RETURN_VALUE", "RETURN_CONST", "BEFORE_WITH", "END_FOR", "SEND"))


class UnknownValue(Value):
    """The result of a skipped instruction: every use of it stops the trace again."""

    __slots__ = ()

    def describe(self) -> str:
        """Raises Unsupported: the value does not exist."""
        raise Unsupported(Reason.AFTER_A_BREAK)

    def python_type(self) -> type:
        """Unknown as well."""
        raise Unsupported(Reason.AFTER_A_BREAK)


def further_stops(root: RootInterpreter) -> list[GraphBreak]:
    """The breaks after the one at which `root` stopped, in program order; each location once."""
    found: list[GraphBreak] = []
    places = {root.location()}
    passed: set[int] = set()
    for _ in range(_MOST_STOPS):
        if not _pass_over(root, passed):
            break
        try:
            stop = root.run_until_stop()
        except Exception as error:  # the state is not one that the program could reach
            log.debug("the search for more graph breaks ended: %s: %s", type(error).__name__, error)
            break
        if stop is None:
            break
        if stop.reason is not Reason.AFTER_A_BREAK and stop.location not in places:
            found.append(stop)
        places.add(stop.location)
    return found


def _pass_over(root: RootInterpreter, passed: set[int]) -> bool:
    """Continue after the current instruction, or at its jump target when it was skipped before. False: there is
    none."""
    instruction = root.current
    if instruction.opname in _GIVE_UP:
        return False
    jump = instruction.index in passed
    if jump and instruction.target < 0:
        return False
    passed.add(instruction.index)
    size = len(root.stack) + stack_effect(instruction, jump)
    kept = root.stack[: max(0, size - pushed(instruction))]
    root.stack = [*kept, *(UnknownValue() for _ in range(size - len(kept)))]
    if instruction.opname == "LOAD_GLOBAL" and instruction.arg & 1:
        root.stack[-2] = NULL
    root.index = instruction.target if jump else instruction.index + 1
    root.kw_names = ()
    return True
