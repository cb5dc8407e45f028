"""Write a recording as one file, for a bug report or a colleague, who unpacks it (`ptdebug unpack`).

It is a zip archive of everything that was recorded, checked when it is unpacked. What may be nobody else's business can
stay here: --no-inputs leaves out the tensors that the program was called with (then graphs are replayed on random
values), --redact replaces the names of folders (of the program, of recordings, the home folder, Python's), wherever
they are mentioned, and forgets the machine. The program's code, its arguments and what it printed stay.
"""
from __future__ import annotations

import argparse
from pathlib import Path

from ...artifacts.files import NotAFileOfIt
from ...artifacts.listing import plural, printable
from ...artifacts.packing import pack
from ...artifacts.redaction import redaction_of
from ...artifacts.tables import PACKED
from ..errors import CommandError
from ..printing import add_selector, print_json, selected

EXAMPLE = "ptdebug pack @ --redact -o slow-bert.ptdr"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The recording, -o, --no-inputs, --redact and --json."""
    add_selector(parser)
    add = parser.add_argument
    add("-o", "--out", metavar="FILE", help=f"where to write (default: NAME{PACKED})")
    add("--no-inputs", action="store_true", help="leave out the tensors that the program was called with")
    add("--redact", action="store_true", help="replace the names of folders and of the machine")


def run(arguments: argparse.Namespace) -> int:
    """Write the file, and print its name."""
    with selected(arguments.selector) as (recording, selector):
        if selector.compile:
            raise CommandError(f"{arguments.selector} is a part of a recording: only a whole one is packed")
        folder, name = recording.path, recording.name
        redaction = redaction_of(recording.meta, recording.path, Path.home()) if arguments.redact else None
    target = Path(arguments.out or f"{name}{PACKED}")
    try:
        packed = pack(folder, target, not arguments.no_inputs, redaction)
    except NotAFileOfIt as error:
        raise CommandError(f"{name} can't be packed: {error}") from None
    except OSError as error:
        raise CommandError(f"can't write {target}: {error.strerror or error}") from None
    if arguments.json:
        print_json(recording=name, file=str(target), bytes=packed.bytes, files=len(packed.manifest.files),
                   inputs=packed.manifest.inputs, redacted=packed.manifest.redacted)
        return 0
    what = [plural(len(packed.manifest.files), "file"), f"{packed.bytes:,} bytes"]
    print(printable(f"{target}  ({', '.join(what)}{'' if packed.manifest.inputs else '; no inputs'})"))
    for old, new in redaction.told.items() if redaction else ():
        print(printable(f"  {old} is {new} in it"))
    return 0
