"""Find text in everything that recordings hold: the run, the program, every stage of every compilation.

Prints the selector of each line that holds TEXT, ready for `ptdebug show` (case is ignored where TEXT has no capitals).
A selector may limit the search: R:0/0, R:0/0:kernels, or R:kernels for this stage of every compilation. Exit code 1
if nothing was found.
"""
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ...artifacts.home import existing_home, recordings
from ...artifacts.listing import Line, printable
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.search import SOURCE, Found, Scope, Step, progress_text, search
from ...artifacts.selector import Selector, find, open_selected, parse
from ..errors import CommandError
from ..printing import add_json, print_json, print_lines, say

EXAMPLE = "ptdebug search relu @ @~1:kernels"
MOST = 200  # lines
SHOW_EVERY = 0.25  # seconds


@dataclass(frozen=True)
class Scoped:
    """A recording to search, the words that name it in selectors, and the part of it to search."""

    recording: Recording
    name: str
    scope: Scope


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """TEXT, the selectors, --all, --limit and --json."""
    parser.add_argument("text", metavar="TEXT", help="what to find, as `ptdebug show` prints it")
    parser.add_argument("selectors", metavar="R", nargs="*", default=[],
                        help="RECORDING[:F/C][:STAGE[:NAME]], default @")
    parser.add_argument("--all", action="store_true", help="search all recordings, the newest first")
    parser.add_argument("--limit", type=int, default=MOST, metavar="N",
                        help=f"stop after N lines (default {MOST}, 0: none)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what is found as it is found; 1 if nothing is."""
    if not arguments.text:
        raise CommandError("what is to be found? TEXT is empty")
    if arguments.limit < 0:
        raise CommandError("--limit is a number of lines, 0 for all")
    words = [str(path) if path.parent != existing_home() else path.name for path in recordings(existing_home())]
    selectors = arguments.selectors or (words if arguments.all else ["@"])
    with ExitStack() as stack:
        searched, unread = _opened(selectors, stack, skips=not arguments.selectors and arguments.all)
        if arguments.json:
            found = list(_found(searched, arguments))
            limited = bool(arguments.limit) and len(found) > arguments.limit
            problems = [*unread, *(problem for one in searched for problem in one.recording.problems)]
            print_json(text=arguments.text, matches=found[:arguments.limit or None], complete=not limited,
                       problems=problems)
            return int(not found)
        for problem in unread:
            say(problem)
        try:
            return _print(searched, arguments)
        except KeyboardInterrupt:
            say("interrupted: the rest was not searched")
            return 130


def _opened(words: Sequence[str], stack: ExitStack, skips: bool) -> tuple[list[Scoped], list[str]]:
    """What is to be searched, and if it `skips` those that cannot be opened, why."""
    searched: list[Scoped] = []
    unread: list[str] = []
    for word in words:
        try:
            searched.append(_open(word, stack))
        except RecordingError as error:
            if not skips:
                raise
            unread.append(f"{word}: {error}")
    return searched, unread


def _open(word: str, stack: ExitStack) -> Scoped:
    """Open what `word` names. A stage without a compilation is meant of all of them, unlike in `ptdebug show`."""
    selector = parse(word)
    if selector.stage and not selector.compile:
        recording = stack.enter_context(Recording.open(find(selector)))
        if not any(selector.stage in recording.stages(info.id) for info in recording.compiles()):
            raise RecordingError(f"no compilation of {recording.name} has the stage {selector.stage}")
    else:
        opened, selector = open_selected(word)
        recording = stack.enter_context(opened)
    path = recording.path
    name = path.name if path.parent.absolute() == existing_home() else str(path)
    return Scoped(recording, name, Scope(selector.compile, selector.stage, selector.name))


def _print(searched: list[Scoped], arguments: argparse.Namespace) -> int:
    count = 0
    for document in _found(searched, arguments):
        count += 1
        if 0 < arguments.limit < count:
            say(f"stopped after {arguments.limit} lines; --limit 0 prints all")
            return 0
        print_lines([Line(printable(f"{_place(document)}  {document['text'].strip()}"))])
        sys.stdout.flush()
    for one in searched:
        for problem in one.recording.problems:
            say(f"{one.name}: {problem}")
    if not count:
        say(f"{arguments.text!r} is nowhere in {', '.join(one.name for one in searched)}")
    return int(not count)


def _place(document: dict[str, Any]) -> str:
    """Where a line is: what `ptdebug show` takes, or a file and a line of the program."""
    if document["stage"] == SOURCE:
        return f"{document['selector']}  {document['file']}:{document['line']}"
    return document["selector"] + (f" --line {document['line']}" if document["stage"] else "")


def _found(searched: list[Scoped], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The matching lines of all recordings as documents, one more than the limit at most."""
    count = 0
    for one in searched:
        progress = _Progress(one)
        for step in search(one.recording, arguments.text, one.scope):
            progress.show(step)
            for match in step.found:
                yield _document(one, match)
                count += 1
                if arguments.limit and count > arguments.limit:
                    return
        progress.clear()


def _document(one: Scoped, match: Found) -> dict[str, Any]:
    place = match.place
    is_source = place.stage == SOURCE
    selector = Selector(one.name, place.compile, "" if is_source else place.stage, "" if is_source else place.name)
    return {"recording": one.name, "selector": str(selector), "compile": place.compile, "stage": place.stage or None,
            "name": "" if is_source else place.name, "file": place.name if is_source else None,
            "line": match.row + 1, "text": match.text}


class _Progress:
    """How much was searched, on one line of a terminal."""

    def __init__(self, one: Scoped) -> None:
        self._name = printable(one.name)
        self._shows = sys.stderr is not None and sys.stderr.isatty()
        self._found = False
        self._last = time.monotonic()
        self._shown = False

    def show(self, step: Step) -> None:
        """Another place was searched."""
        self._found = self._found or bool(step.found)
        if step.found:
            self.clear()
        elif self._shows and time.monotonic() - self._last > SHOW_EVERY:
            self._last = time.monotonic()
            sys.stderr.write(f"\r\x1b[K{self._name}: {progress_text(step, self._found)}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
