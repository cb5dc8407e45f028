"""Where recordings are stored: a home folder with one folder for each recording."""
from __future__ import annotations

import os
import re
from contextlib import closing, suppress
from pathlib import Path

from ..dependencies import msgspec
from .database import Database, Moment, RecordingError, has_database
from .tables import DATABASE

HOME = ".ptdebug"
_LONGEST = 200  # of a name's characters: file systems take 255 bytes, and a number may follow


def recordings_home(out: str | os.PathLike[str] | None = None) -> Path:
    """The folder that new recordings go to: `out`, else $PTDEBUG_HOME, else `.ptdebug` here. It need not exist."""
    return Path(out or os.environ.get("PTDEBUG_HOME") or HOME).absolute()


def existing_home(out: str | os.PathLike[str] | None = None) -> Path:
    """The folder to look for recordings in: as `recordings_home`, but `.ptdebug` may be in a parent folder."""
    home = recordings_home(out)
    if out or os.environ.get("PTDEBUG_HOME") or home.is_dir():
        return home
    return next((parent / HOME for parent in Path.cwd().parents if (parent / HOME).is_dir()), home)


def new_recording_folder(home: Path, program: str, name: str | None = None) -> Path:
    """Make and return the folder of a new recording: `name` (or the program's stem), numbered where it is taken, and
    cut where it is longer than file systems allow.

    Raises OSError where it cannot be made.
    """
    home.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name or Path(program).stem).strip("-.")[:_LONGEST] or "recording"
    number = 0 if name else 1
    while True:
        folder = home / (f"{stem}-{number}" if number else stem)
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1


def recordings(home: Path) -> list[Path]:
    """The folders below `home` that hold a recording, newest first."""
    try:
        folders = list(home.iterdir())
    except OSError:  # missing, or no permission
        return []
    found = [folder for folder in folders if has_database(folder)]
    return sorted(found, key=lambda folder: (_started(folder), folder.name), reverse=True)


def _started(folder: Path) -> float:
    try:
        database = Database(folder / DATABASE, "", lambda problem: None)
    except RecordingError:
        return (folder / DATABASE).stat().st_mtime
    with closing(database):
        for text, in database.rows("SELECT value FROM meta WHERE key='started'", tuple[str]):
            with suppress(msgspec.MsgspecError):
                return msgspec.json.decode(text, type=Moment)
    return (folder / DATABASE).stat().st_mtime
