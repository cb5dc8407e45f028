"""The lines that `ptdebug run` prints at its end, from the summary document."""
from __future__ import annotations

import os
from typing import Any

from ..artifacts.failures import EXCEPTION
from ..artifacts.render_failures import commands
from ..artifacts.render_lists import change_text
from ..artifacts.rounding import rounded
from .session import Session

MOST_LINES = 10


def summary_lines(document: dict[str, Any], session: Session, look_closer: str) -> list[str]:
    """At most ten lines; the last one is the command to look closer."""
    said = [rounded(message) for message in session.messages]  # the recompile limit names what changed
    fallbacks = [line for line in _fallbacks(document) if not any(line.partition("): ")[2] in told for told in said)]
    breaks, recompiles = _breaks(document), _recompiles(document)
    failed = _failed(document, look_closer)
    # The worst first.
    found = [*failed, *_ranks(document), *said, *fallbacks, *_isolated(document), *breaks, *recompiles]
    room = MOST_LINES - 3
    if len(found) > room:
        hidden = _counts(len(found) - room + 1, (("recompilation", recompiles), ("graph break", breaks)))
        found = [*found[: room - 1], f"  ... and {hidden} more"]
    where = [f"  recording: {_short(document['recording'])}"] if document["recording"] else []
    return [_headline(document, session), *found, *where, f"  look closer: {look_closer}"]


def _headline(document: dict[str, Any], session: Session) -> str:
    counts = document["counts"]
    if not counts.get("graphs") and not counts.get("compiles"):
        if not session.saw_torch:
            return "ptdebug: the program did not import torch"
        if not session.saw_compile:
            if _had_children():
                return ("ptdebug: neither this process nor a Python process below it that could be followed called "
                        "torch.compile (if one did, let it start `ptdebug run SCRIPT`)")
            return "ptdebug: the program never called torch.compile (--compile-all compiles its modules anyway)"
    parts = [
        _count(counts["graphs"], "graph") + f" ({_count(counts['ops'], 'operation')})",
        _count(counts["graph_breaks"], "graph break"), _count(counts["recompiles"], "recompilation"),
    ]
    if "kernels" in counts:
        parts += [_count(counts["kernels"], "kernel"), _count(counts["extern_calls"], "library call")]
    ranks = document.get("ranks", ())
    of_all = f"{len(ranks)} ranks: " if len(ranks) > 1 else ""
    return f"ptdebug: {of_all}{', '.join(parts)}{_seconds(document)}"


def _ranks(document: dict[str, Any]) -> list[str]:
    """Where the ranks of a distributed program first differ."""
    found = document.get("first_rank_difference")
    if found is None:
        return []
    place = f" at {_short(found['file'])}:{found['line']}" if found["file"] else ""
    return [f"  the ranks differ{place}: {found['text']} (all: ptdebug ranks)"]


def _had_children() -> bool:
    """Whether this process has started and waited for a child process."""
    try:
        import resource
    except ImportError:  # not on Windows
        return False
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0


def _seconds(document: dict[str, Any]) -> str:
    total = sum(compile["seconds"].get("total", 0.0) for compile in document["compiles"])
    return f"; compiled in {total:.1f} s" if total else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _counts(hidden: int, kinds: tuple[tuple[str, list[str]], ...]) -> str:
    """`12 graph breaks, 3 recompilations`: what the last `hidden` lines are; `kinds` in reverse order."""
    texts = []
    for noun, lines in kinds:
        number = min(hidden, len(lines))
        hidden -= number
        texts += [_count(number, noun)] if number else []
    return ", ".join([*([_count(hidden, "note")] if hidden else []), *reversed(texts)])


def _failed(document: dict[str, Any], look_closer: str) -> list[str]:
    """The exception that ended the program, where a compiled function was running, and how to run that alone."""
    failure = next((f for f in document.get("failures", ()) if f["kind"] == EXCEPTION and f["compile"]), None)
    if failure is None:
        return []
    at = f", node {failure['node'].partition('#')[2]}" if failure["node"] else ""
    lines = [f"  raised at {_short(failure['file'])}:{failure['line']} in {failure['function']} "
             f"(compilation {failure['compile']}{at}): {failure['about'].partition(';')[0]}"]
    recording = look_closer.removeprefix("ptdebug tui ")
    return lines + [f"  repro: {command}" for title, command in commands(recording, failure) if title == "repro"]


def _breaks(document: dict[str, Any]) -> list[str]:
    return [
        f"  graph break at {_short(b['file'])}:{b['line']}: {b['source'].strip()}  [{b['code']}]"
        for b in document["graph_breaks"]
    ]


def _isolated(document: dict[str, Any]) -> list[str]:
    places = [(found, found["call_site"] or found) for found in document.get("isolated_compiles", ())]
    return [
        f"  compiled for each of {found['times']} calls of torch.compile: {found['function']}, at "
        f"{_short(place['file'])}:{place['line']}"
        for found, place in places
    ]


def _recompiles(document: dict[str, Any]) -> list[str]:
    return [f"  recompiled ({r['compile']}): {change_text(r)}" for r in document["recompiles"]]


def _fallbacks(document: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(
        f"  {'runs in eager' if c['status'] == 'eager' else 'compilation failed'}: "
        f"{c['function']} ({_short(c['file'])}:{c['line']}): {c['reason'].splitlines()[0]}"
        for c in document["compiles"] if c["status"] in ("eager", "failed") and c["reason"]
    ))


def _short(path: str) -> str:
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):
        return path
    return path if relative.startswith("..") else relative
