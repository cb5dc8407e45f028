"""The records of guards, and of recompilations, which a guard that failed asks for."""
from __future__ import annotations

from .record_base import Count, Location, Record, Ref

NO_OBJECT = "global state"
"""The source of guards on what no object of the program holds: torch's settings, conditions on sizes, ..."""


class Guard(Record, frozen=True):
    """One guard: `source` is an expression over L (locals) and G (globals), `kind` a stable name (TENSOR_MATCH, ...).

    `code` is the check as Python; `expected` the value that was specialized on; `location` the line of the program that
    needs it; `origins` the node or instruction that does.
    """

    id: str
    source: str
    kind: str
    code: str
    expected: str = ""
    subject: str = ""  # description for identity guards: "the function `act` in model.py:3"
    location: Location | None = None
    parent: str = ""  # id of the guard of the object that this one is reached through
    origins: tuple[Ref, ...] = ()
    name: str = ""  # the object as in the source: `self.layer.weight`
    text: str = ""  # `code`, in terms of that name
    implicit: bool = False  # a type check of a container on the path to the object
    check_ns: Count | None = None  # what its check took alone, in nanoseconds; None: not measured
    together: Count = 1  # how many guards `check_ns` is of: a module's are checked by one function

    @property
    def object(self) -> str:
        """The object as the program names it; "" where no object holds what is checked."""
        return (self.name or self.source) if self.source != NO_OBJECT else ""


class SymbolEvent(Record, frozen=True):
    """Something that constrained a symbol: a condition, or a specialization, and the line that did."""

    text: str
    location: Location | None = None


class Symbol(Record, frozen=True):
    """A dynamic size or number: where it comes from, why it is dynamic, what constrained it."""

    name: str
    subject: str
    source: str
    value: str  # at this compilation
    why: str = ""
    events: tuple[SymbolEvent, ...] = ()


class Guards(Record, frozen=True):
    """Stage `guards`. `check_ns` is what one check of all of them took right after the compilation, in nanoseconds; 0
    where that was not measured."""

    guards: tuple[Guard, ...]
    symbols: tuple[Symbol, ...] = ()
    check_ns: Count = 0


class Recompile(Record, frozen=True):
    """Why a function was compiled again: the first failed guard of the nearest entry.

    `subject` is the guarded object as the program names it; `other_failures` are all other guards of that entry that
    fail; `call_site` is the line of the program that made the call; `entries` is how many compilations there were.
    """

    guard: str
    expected: str
    actual: str
    compared_with: str  # compile id of that entry
    location: Location | None = None
    hint: str = ""
    subject: str = ""
    other_failures: tuple[str, ...] = ()
    call_site: Location | None = None
    entries: int = 1


# ---- stage 8: partition ---------------------------------------------------------------------------------------------
