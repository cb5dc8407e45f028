"""Make a recording of a packed one (`ptdebug pack`), beside the others. Each file is compared with what was packed.

It is a recording from elsewhere: to look at it runs nothing of it, and what runs its code asks first.
"""
from __future__ import annotations

import argparse
from pathlib import Path

from ...artifacts.home import existing_home
from ...artifacts.listing import printable
from ...artifacts.packing import unpack
from ..errors import CommandError
from ..printing import add_json, add_new_recording, print_json

EXAMPLE = "ptdebug unpack slow-bert.ptdr"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FILE, --out, --name and --json."""
    parser.add_argument("file", metavar="FILE", help="what `ptdebug pack` wrote")
    add_new_recording(parser, "as it was called")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Unpack, and print the name of the recording."""
    file = Path(arguments.file)
    try:
        folder = unpack(file, existing_home(arguments.out), arguments.name)
    except OSError as error:
        raise CommandError(f"can't unpack {file}: {error.strerror or error}") from None
    if arguments.json:
        print_json(recording=folder.name, path=str(folder))
        return 0
    print(printable(str(folder)))
    print(printable(f"  look closer: ptdebug tui {folder.name}"))
    return 0
