"""The decisions that belong to a line of the program, a node, a buffer or a kernel, whatever they are named after."""
from __future__ import annotations

from collections.abc import Iterator

from .provenance import Links, links
from .recording import Recording
from .records import Ref, split_ref

_TRACED = ("source", "capture", "bytecode", "guards", "breaks")
"""Stages above the ATen graphs: a whole line's, or a whole function's, not one operator's."""


def related_decisions(
    recording: Recording, name: str, place: tuple[str, int], compile_id: str | None = None
) -> Iterator[tuple[str, str]]:
    """(compilation, decision's id) of the decisions about a name, where one is given, or else about a line at `place`:
    the end of a path ("" for any file), and the line's number."""
    for info in recording.compiles():
        if compile_id not in (None, info.id):
            continue
        found = links(recording, info.id)
        for item in dict.fromkeys(_of_name(found, name.lower()) if name else _of_line(found, *place)):
            yield info.id, split_ref(item)[2]


def within(file: str, path: str) -> bool:
    """Whether `file` is how a path ends; "" is how each does."""
    return not file or f"/{path}".endswith(f"/{file}")


def _of_line(found: Links, file: str, line: int) -> Iterator[Ref]:
    """What was decided about anything that the line became."""
    for item in found.items():
        stage, path, number = split_ref(item)
        if stage == "source" and number == str(line) and within(file, path):
            yield from _decisions(found.derived(item))


def _of_name(found: Links, name: str) -> Iterator[Ref]:
    """What was decided about the item itself, then about what it was made of: a kernel's buffers, a buffer's nodes."""
    for item in found.items():
        stage, artifact, own = split_ref(item)
        names = (artifact.lower(), (own or artifact).lower(), f"{artifact}.{own}".lower())
        if stage in ("source", "decisions") or name not in names:
            continue
        for origin in (item, *found.origins(item)):
            if split_ref(origin)[0] not in _TRACED:
                yield from _decisions(found.made_of(origin))


def _decisions(items: list[Ref]) -> Iterator[Ref]:
    return (item for item in items if item.startswith("decisions"))
