"""Output of the commands: listings, highlighted on a terminal and plain in a pipe, or one JSON document."""
from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from ..artifacts.listing import Line, Listing, printable, printable_lines
from ..artifacts.recording import Recording
from ..artifacts.records import SCHEMA
from ..artifacts.render_lists import render_absents
from ..artifacts.selector import Selector, open_selected
from ..dependencies import msgspec
from .errors import CommandError


def add_selector(parser: argparse.ArgumentParser, required: bool = False) -> None:
    """Add SELECTOR (default: the newest recording) and --json."""
    parser.add_argument("selector", metavar="SELECTOR", nargs=None if required else "?", default="@",
                        help="RECORDING[:F/C[:STAGE[:NAME]]]; RECORDING is a name, a path, @ (the newest), @~1, ...")
    add_json(parser)


def add_new_recording(parser: argparse.ArgumentParser, name: str) -> None:
    """--out and --name, where a recording is made of a file; `name` is what it is called else."""
    parser.add_argument("-o", "--out", metavar="FOLDER",
                        help="where recordings are (default: $PTDEBUG_HOME, else .ptdebug)")
    parser.add_argument("--name", help=f"the name of the recording (default: {name})")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def check_kind(wanted: str | None, there: Iterable[str], noun: str, known: Collection[str] = ()) -> None:
    """Raise CommandError for a --kind that neither occurs nor is `known`, naming those that occur."""
    if wanted is None or wanted in known:
        return
    kinds = sorted(set(there))
    if wanted not in kinds:
        names = f"their kinds are {', '.join(kinds)}" if kinds else "there are none"
        raise CommandError(f"--kind {wanted}: no {noun} are of that kind; {names}")


@contextmanager
def selected(text: str) -> Iterator[tuple[Recording, Selector]]:
    """Open the recording of a selector; afterwards report on stderr what could not be read."""
    recording, selector = open_selected(text)
    with recording:
        yield recording, selector
        for problem in recording.problems:
            say(f"ptdebug: {problem}")


def write_file(path: str, content: str | bytes) -> None:
    """Write what -o names. Raises CommandError where that is impossible."""
    try:
        Path(path).write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    except OSError as error:
        raise CommandError(f"can't write {path}: {error.strerror}") from None


def say(text: str) -> None:
    """Print a message to stderr. Parts of it may come from a recording, so it is escaped."""
    print(printable_lines(text), file=sys.stderr)


def print_json(**document: Any) -> None:
    """Print one JSON document; "schema" comes first."""
    encoded = msgspec.json.encode({"schema": SCHEMA, **document})
    text = msgspec.json.format(encoded, indent=2).decode()
    sys.stdout.write(_RAW.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


_RAW = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Characters that JSON may leave unescaped and that terminals interpret; they occur in strings only."""


def print_lines(lines: list[Line] | tuple[Line, ...], language: str = "text") -> None:
    """Print lines, highlighted if colours are on."""
    print_listing(Listing("", language, tuple(lines)))


def print_listing(listing: Listing) -> None:
    """Print a listing, highlighted if colours are on."""
    text = "".join(printable(line.text) + "\n" for line in listing.lines)
    if wants_colour(sys.stdout) and listing.language != "text":
        text = _highlighted(text, listing.language)
    sys.stdout.write(text)


def print_nothing(recording: Recording, compile_id: str | None, stage: str, nothing: str) -> None:
    """Print that a stage is empty, or why it was not recorded."""
    absents = [absent for _, absent in recording.absents(compile_id) if absent.stage == stage]
    print(nothing if not absents else f"{nothing} recorded:")
    print_lines([Line(f"  {line.text}") for line in render_absents(list(dict.fromkeys(absents)))])


def print_title(text: str) -> None:
    """Print a heading between listings, bold if colours are on."""
    text = printable(text)
    sys.stdout.write(f"\x1b[1m{text}\x1b[0m\n" if wants_colour(sys.stdout) else f"{text}\n")


def wants_colour(stream: TextIO) -> bool:
    """Whether to use colours: NO_COLOR, then FORCE_COLOR (any value but ""), else whether `stream` is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _highlighted(text: str, language: str) -> str:
    from pygments import highlight  # 20 ms, and not needed in a pipe
    from pygments.formatters import TerminalFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return text
    return str(highlight(text, lexer, TerminalFormatter()))
