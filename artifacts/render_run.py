"""What is known of the run itself, as a listing: command, versions, options, environment, how it ended."""
from __future__ import annotations

import shlex
from typing import Any

from .listing import Line, Listing, printable
from .process_liveness import ending
from .recording import Recording


def render_run(recording: Recording) -> Listing:
    """The facts about the run of a recording."""
    meta = recording.meta
    ended = f"exit code {meta['exit_code']}" if "exit_code" in meta else recording.stopped or ending(meta)
    lines = [Line(printable(f"command   {shlex.join(meta.get('command', []))}   {ended}")),
             Line(printable(f"folder    {meta.get('folder', '?')}")), *settings_lines(meta)]
    for title, text in (("exception", meta.get("exception", "")), ("last output", meta.get("output", ""))):
        lines += text_block(title, text)
    for title, texts in (("notes", recording.notes()), ("problems", recording.problems)):
        lines += [Line(""), Line(title), *(Line(printable(f"  {text}")) for text in texts)] if texts else []
    return Listing(f"{recording.name}: the run", "text", tuple(lines))


def settings_lines(meta: dict[str, Any]) -> list[Line]:
    """Versions, the options of `ptdebug run`, and the environment that matters to the compiler."""
    versions = ", ".join(f"{name} {version}" for name, version in meta.get("versions", {}).items())
    lines = [f"versions  {versions or 'unknown'}"]
    if options := meta.get("options"):
        lines.append("options   " + ", ".join(f"{name}={value}" for name, value in options.items()))
    environment = [f"{name}={value}" for name, value in (meta.get("environment") or {}).items()]
    lines += [f"{'environ   ' if number == 0 else ' ' * 10}{text}" for number, text in enumerate(environment)]
    return [Line(printable(text)) for text in lines]


def text_block(title: str, text: str, most: int = 0) -> list[Line]:
    """A titled block of recorded text, indented; of a long one the last `most` lines (0: all)."""
    if not text.strip():
        return []
    texts = text.rstrip("\n").split("\n")
    hidden = len(texts) - most if most and len(texts) > most else 0
    head = title + (f" (the last {most} of {len(texts)} lines)" if hidden else "")
    return [Line(""), Line(head), *(Line(printable(f"  {line}")) for line in texts[hidden:])]
