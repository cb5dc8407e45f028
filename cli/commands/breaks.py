"""The graph breaks: where, why, what to change in the program, and what each cost.

They are grouped by function, in the order of its lines: one change often removes several. The most expensive function
comes first. Where the change can be made by rule, it is shown as an edit of the line; --try N makes that of number N on
a copy of the program, runs it, and says whether the break goes (exit code 1 if not, or if the program fails), and
whether it prints what it prints without the edit. For that the program runs up to three times, and each time writes to
files that exist, and outside of its folder, as it always does.
"""
from __future__ import annotations

import argparse
from collections.abc import Sequence

from ...artifacts.break_edits import edit_of
from ...artifacts.listing import Line, plural, printable, short_place
from ...artifacts.recording import Recording
from ...artifacts.records import Break
from ...artifacts.render_lists import break_lines, edit_lines
from ...artifacts.summary import break_document, ranked_breaks
from ..edited_run import try_edit
from ..errors import CommandError
from ..printing import add_selector, print_json, print_lines, print_title, selected
from ..trust import confirmed

EXAMPLE = "ptdebug breaks @:0/0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR, --json and --try."""
    add_selector(parser)
    add = parser.add_argument
    add("--try", metavar="N", type=int, dest="number",
        help="run the program on a copy with the edit for number N, and without it")
    add("--limit", metavar="SECONDS", type=float, default=600.0, help="how long each run of the program may take (600)")
    add("--trust", action="store_true", help="run what a recording from elsewhere names, without asking")


def run(arguments: argparse.Namespace) -> int:
    """Print each break once; 0 also where there are none."""
    with selected(arguments.selector) as (recording, selector):
        chosen = selector.compile or None
        found = ranked_breaks(recording, chosen)
        if arguments.number is not None:
            return _try(recording, [entry for (_, entry, _), _ in found], arguments)
        if arguments.json:
            print_json(graph_breaks=[break_document(*entry, cost) for entry, cost in found])
            return 0
        if not found:
            print("no graph breaks")
            return 0
        functions = {(entry.location.file, entry.location.function) for (_, entry, _), _ in found}
        where = f"{plural(len(found), 'place')} in {plural(len(functions), 'function')}"
        total = sum(cost.seconds for _, cost in found)
        print(f"graph breaks at {where}; {total:.1f} s more compile time. The most expensive function first.")
        for number, ((owner, entry, times), cost) in enumerate(found, 1):
            often = f", in {times} compilations" if times > 1 else ""
            print()
            head, *rest = break_lines(entry, recording.source, cost=cost)
            print_lines([Line(f"{number}. {head.text}  ({owner}{often})"), *rest, *edit_lines(entry, recording.source)])
    return 0


def _try(recording: Recording, found: Sequence[Break], arguments: argparse.Namespace) -> int:
    """Make the edit for one break on a copy, run the program, and say what changed."""
    if not 1 <= arguments.number <= len(found):
        raise CommandError(f"--try {arguments.number}: there are {plural(len(found), 'graph break')}")
    entry = found[arguments.number - 1]
    edit, text = edit_of(entry, recording.source), recording.source(entry.location.file)
    if edit is None or text is None:
        raise CommandError(f"no edit can be made by rule for {short_place(entry.location)}: {entry.hint or 'no hint'}")
    if recording.meta.get("compiler") != "ptdebug":
        raise CommandError("only programs that ptdebug compiled are tried again")
    confirmed(recording, arguments.trust, "try it")
    tried = try_edit(recording, entry, edit, text, arguments.limit)
    if arguments.json:
        print_json(code=entry.code, file=edit.file, line=edit.first, edit=edit.diff(text), why=edit.why,
                   **tried.document)
        return 0 if tried.gone else 1
    print_title(f"{short_place(entry.location)}  [{entry.code}]")
    words = f": {tried.last_words}" if tried.exit_code else ""
    texts = [f"{name.replace('_', ' ')}: {before} -> {after}" for name, (before, after) in tried.counts.items()]
    texts += [f"a new break: {where}" for where in tried.new]
    texts.append(f"exit code {tried.exit_code}{words}" + (f"; {tried.output}" if tried.output else ""))
    texts.append("tried on a copy: " + ("the break is gone" if tried.gone else tried.there))
    print_lines([*edit_lines(entry, recording.source), *(Line(printable(f"  {text}")) for text in texts)])
    return 0 if tried.gone else 1
