"""What guards cost to check, in words. The times are those of `tracer/guards/cost.py`."""
from __future__ import annotations

from collections.abc import Iterator

from .listing import plural
from .records import Guard, Guards

SHOWN = 3  # of the costliest checks
_WITHOUT_OBJECT = {
    "GLOBAL_STATE": "torch's settings", "CLASS_MEMBERS": "members of library classes",
    "SHAPE_ENV": "conditions on sizes", "NO_ALIASING": "that tensors differ",
}


def guards_cost(record: Guards) -> str:
    """What a check of all guards took, and which of them took most."""
    if not record.check_ns or not record.guards:
        return "not measured"
    each = record.check_ns / len(record.guards)
    told = f"a check of all took {record.check_ns:,} ns after the compilation, {each:.0f} ns a guard on average"
    most = [f"{what} {took:,} ns" for what, took in costliest(record)[:SHOWN] if took]
    return f"{told}; most: {', '.join(most)}" if most else told


def costliest(record: Guards) -> list[tuple[str, int]]:
    """What is checked alone, and its nanoseconds, the longest first. The rest of a check of all is reaching the
    objects, and comparing them with each other."""
    return sorted(_measured(record), key=lambda found: -found[1])


def guard_cost(record: Guards, guard: Guard) -> str:
    """What one guard costs; "" where nothing was measured."""
    if not record.check_ns:
        return ""
    if guard.check_ns is None:
        return f"not measured alone; a check of all {len(record.guards)} took {record.check_ns:,} ns"
    reached = f", without reaching the object; a check of all {len(record.guards)} took {record.check_ns:,} ns"
    if guard.together > 1:
        outermost = _outermost(guard, {each.id: each for each in record.guards})
        return (f"{guard.check_ns:,} ns with {plural(guard.together - 1, 'other')}: one function checks "
                f"{outermost.name or outermost.source} and what it holds{reached}")
    return f"about {guard.check_ns:,} ns{reached}"


def _measured(record: Guards) -> Iterator[tuple[str, int]]:
    known = {guard.id: guard for guard in record.guards}
    modules = set[str]()
    for guard in record.guards:
        if guard.check_ns is not None and guard.together == 1:
            yield _what(guard), guard.check_ns
        elif guard.check_ns is not None:
            outermost = _outermost(guard, known)
            if outermost.id not in modules:
                modules.add(outermost.id)
                yield f"{plural(guard.together, 'guard')} of {outermost.name or outermost.source}", guard.check_ns


def _what(guard: Guard) -> str:
    """What a guard checks, in a few words."""
    return f"{guard.kind} {guard.object}" if guard.object else _WITHOUT_OBJECT.get(guard.kind, guard.text or guard.kind)


def _outermost(guard: Guard, known: dict[str, Guard]) -> Guard:
    """The guard of the outermost module, from which the function that checks this guard starts."""
    found, above, passed = guard, guard.parent, set[str]()
    while above in known and above not in passed:
        passed.add(above)
        if known[above].together > 1:
            found = known[above]
        above = known[above].parent
    return found
