"""What `flip` prints."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..artifacts.listing import Line, plural, printable
from .measured import time_text
from .printing import print_lines, print_title

if TYPE_CHECKING:
    from ..replay.failures.outcome import Outcome
    from ..replay.measure.flip import Flip

SHOWN = 30
"""Lines of changed code, and of decisions that changed with it, that are printed unless all are asked for."""


def print_flip(found: Flip, override: str, whole: bool = False) -> None:
    """What changes in the code and in other decisions, then, where a person reads first, the result and how to keep
    it."""
    before, after = found.before, found.after
    print_title(f"{found.selector}  {found.decision.id}: {before.option} -> {after.option}")
    lines = [f"  recorded reason: {found.decision.why}"]
    lines += _cut([f"  {line}" for line in found.code], whole)
    lines += _cut([f"  also     {name}: {was or 'not decided'} -> {now or 'not decided'}"
                   for name, was, now in found.others], whole)
    lines += ["  inputs   random: their values were not recorded"] if found.made_up else []
    if before.timing is None:
        lines.append("  time     not measured: one of the two fails")
    else:
        lines += [_counted("kernels ", before.kernels, after.kernels),
                  _counted("library calls", before.library_calls, after.library_calls), _times(found)]
    lines += [f"  result   {_result(before.outcome, after.outcome)}"]
    lines.append(f"  to keep it, in a file for `ptdebug run --override`:  {override}")
    print_lines([Line(printable(line)) for line in lines])


def override_text(found: Flip, owner: str) -> str:
    """The line of an override file that chooses so; `owner`: for this compilation alone."""
    name = f"{owner}:{found.decision.id}" if owner else found.decision.id
    return f'"{_escaped(name)}" = "{_escaped(found.after.option)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _result(before: Outcome, after: Outcome) -> str:
    if before.passed and after.passed:
        return "equal: eager's values before and after, but for rounding"
    if before.passed:
        return f"WRONG with it: {after}"
    return f"it was wrong before ({before}), and is " + ("right with it" if after.passed else f"so with it ({after})")


def _times(found: Flip) -> str:
    before, after = found.before.timing, found.after.timing
    assert before is not None and after is not None
    ratio = after.seconds / before.seconds if before.seconds else float("inf")
    eager = f"; eager {time_text(found.eager.seconds)}" if found.eager is not None else ""
    words = "no difference beyond the noise" if abs(ratio - 1) <= found.noise else f"{ratio:.2f} times the time"
    return (f"  time     {time_text(before.seconds)} -> {time_text(after.seconds)}: {words} "
            f"(noise {found.noise:.0%}){eager}")


def _counted(noun: str, before: Sequence[str], after: Sequence[str]) -> str:
    from ..replay.measure.twins import unnumbered  # imports torch

    gone, new = (Counter(map(unnumbered, names)) for names in (before, after))
    changes = [*(f"- {name}" for name in (gone - new).elements()), *(f"+ {name}" for name in (new - gone).elements())]
    counts = f"{len(before)} -> {len(after)}" if len(before) != len(after) else f"{len(before)}, as before"
    return f"  {noun}  {counts}" + (f"  ({', '.join(changes)})" if changes else "")


def _cut(lines: Sequence[str], whole: bool) -> list[str]:
    if whole or len(lines) <= SHOWN:
        return list(lines)
    return [*lines[:SHOWN], f"  ... {plural(len(lines) - SHOWN, 'more line')} (--code prints all)"]
