"""A recorded program run again with one of its lines edited, on a copy: does the graph break go?"""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..artifacts.break_edits import Edit
from ..artifacts.recording import Recording, RecordingError
from ..artifacts.records import Break
from ..artifacts.summary import breaks, summary
from .errors import CommandError

COUNTS = ("graph_breaks", "graphs", "compiles", "recompiles", "kernels")


@dataclass(frozen=True)
class Tried:
    """What came of a run with an edit. `there` says why the break is not known to be gone, "" where it is; `new` are
    breaks elsewhere that were not there before, as `FILE:LINE: text`; `counts` are those before and after that
    differ."""

    there: str
    exit_code: int
    new: tuple[str, ...] = ()
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    last_words: str = ""
    output: str = ""

    @property
    def gone(self) -> bool:
        """Whether the break is gone."""
        return not self.there

    @property
    def document(self) -> dict[str, Any]:
        """For JSON."""
        counts = {name: {"before": before, "after": after} for name, (before, after) in self.counts.items()}
        return {"gone": self.gone, "still": self.there, "exit_code": self.exit_code, "new_breaks": list(self.new),
                "counts": counts, "output": self.output}


def try_edit(recording: Recording, found: Break, edit: Edit, text: str, limit: float) -> Tried:
    """Run the recorded program on a copy in which the edit is made and, where the break goes, without the edit, for
    what it prints; where that differs, with it once more. New files that it writes beside itself go there; elsewhere,
    and to files that exist, it writes as it always does, each time. Raises CommandError."""
    command, folder = [str(word) for word in recording.meta.get("command", [])], str(recording.meta.get("folder", ""))
    if not command or command[0] in ("-c", "-"):
        raise CommandError("the recording does not say which file was run")
    module = command[0] == "-m"
    root = Path(folder) if module else Path(folder, command[0]).resolve().parent
    if not Path(edit.file).resolve().is_relative_to(root):
        raise CommandError(f"{edit.file} is outside of the program's folder {root}: edit it by hand, and record again")
    with tempfile.TemporaryDirectory(prefix="ptdebug-try-") as scratch:
        copy = Path(scratch, "program")
        _mirror(root, copy, Path(edit.file).resolve(), edit.applied(text))
        if not module:
            command[0] = str(copy / Path(folder, command[0]).resolve().name)
        at = Path(folder).resolve()
        inside = at.relative_to(root) if at.is_relative_to(root) else None
        working = copy / inside if inside is not None and (copy / inside).is_dir() else at
        options = ["--compile-all"] if (recording.meta.get("options") or {}).get("compile-all") else []
        run = partial(_run, [*options, *command], working, Path(scratch), limit)
        code, words, printed = run("try")
        try:
            with Recording.open(Path(scratch, "recordings", "try")) as after:
                tried = _compared(recording, after, found, edit, (str(copy), str(root)), code, words)
        except RecordingError as error:
            raise CommandError(f"the edited program was not recorded: {words or error}") from None
        if not tried.gone:
            return tried

        def printed_by(name: str, content: str) -> list[str]:
            (copy / Path(edit.file).resolve().relative_to(root)).write_text(content, encoding="utf-8")
            return run(name)[2]

        try:
            output = _outputs(printed, partial(printed_by, "before", text),
                              partial(printed_by, "again", edit.applied(text)))
        except CommandError as error:
            output = f"what it prints is not compared: {error}"
        return replace(tried, output=output)


def _outputs(edited: list[str], unedited: Callable[[], list[str]], again: Callable[[], list[str]]) -> str:
    """In words, how what the edited program printed differs from what the unedited one prints. It differs by itself
    where the edited one does, run `again`: by chance, or for what an earlier run left (a cache)."""
    before = unedited()
    if edited == before:
        return "it prints the same as without the edit" if edited else "it prints nothing that could be compared"
    if again() != edited:
        return "it prints something else in each run, so what it prints is not compared"
    lost, new = ([line for line in one if line not in other] for one, other in ((before, edited), (edited, before)))
    texts = [f"{word} {lines[0]!r}" + (f" and {len(lines) - 1} more" if len(lines) > 1 else "")
             for word, lines in (("without the line", lost), ("with the line", new)) if lines]
    return f"it prints something else than without the edit: {', '.join(texts) or 'the lines in another order'}"


def _mirror(root: Path, copy: Path, edited: Path, text: str) -> None:
    """The folder with the edited file in it: Python files are copied, for they find others beside themselves; all else
    is linked."""
    copy.mkdir()
    for entry in os.scandir(root):
        target = copy / entry.name
        path = Path(entry.path)
        if path.resolve() == edited:
            target.write_text(text, encoding="utf-8")
        elif entry.is_dir() and edited.is_relative_to(path.resolve()):
            _mirror(path.resolve(), target, edited, text)
        elif entry.is_file() and entry.name.endswith(".py"):
            shutil.copyfile(path, target)
        elif entry.name != "__pycache__":
            target.symlink_to(path)


def _run(command: Sequence[str], folder: Path, scratch: Path, limit: float, name: str) -> tuple[int, str, list[str]]:
    """The exit code, the last line of what was said, and the lines that were printed."""
    words = [sys.executable, "-m", __name__.partition(".")[0], "run", "-q", "-o", str(scratch / "recordings"), "--name",
             name, "--inputs", "none", *command]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace", timeout=limit)
    except subprocess.TimeoutExpired:
        raise CommandError(f"the program took longer than {limit:g} s: --limit sets that") from None
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return done.returncode, said[-1] if said else "", done.stdout.splitlines()


def _compared(
    before: Recording, after: Recording, found: Break, edit: Edit, moved: tuple[str, str], code: int, words: str
) -> Tried:
    def key(one: Break) -> tuple[str, str, str]:
        return one.location.file.replace(*moved), one.location.function, one.source.strip()

    def is_here(one: Break) -> bool:
        inside = edit.first <= one.location.line < edit.first + len(edit.lines)
        return key(one) == key(found) or (key(one)[0] == found.location.file and inside)

    known, now = {key(entry) for _, entry, _ in breaks(before)}, [entry for _, entry, _ in breaks(after)]
    there = next((f"it still breaks: {entry.message}" for entry in now if is_here(entry)), "")
    if not there and code not in (0, before.meta.get("exit_code")):
        there = "the program, so edited, fails"
    new = tuple(f"{entry.location.file.replace(*moved)}:{entry.location.line}: {entry.source.strip()}"
                for entry in now if key(entry) not in known and not is_here(entry))
    counts = [summary(recording)["counts"] for recording in (before, after)]
    changed = {name: (counts[0][name], counts[1][name]) for name in COUNTS if counts[0][name] != counts[1][name]}
    return Tried(there, code, new, changed, words)
