"""The differences of two recordings: which compilation is which, and what differs in each and in the runs."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...dependencies import msgspec
from ..recording import CompileInfo, Recording
from ..records import Frame, Graph, Location
from ..resumed import Resumed, display_name, resumed
from ..summary import breaks, recompiles, summary
from .changes import Keyed, StageDiff
from .compilations import Comparison, CompilationDiff, Side
from .program_text import ProgramText
from .stages import break_rule


@dataclass(frozen=True)
class RunDiff:
    """What differs in the runs themselves: `facts` are (name, first, second), `counts` likewise."""

    facts: tuple[tuple[str, str, str], ...]
    counts: tuple[tuple[str, int, int], ...]
    seconds: tuple[float, float]  # of compiling


@dataclass(frozen=True)
class RecordingDiff:
    """Two recordings. Graph breaks and recompilations are compared over the whole program, each place once."""

    names: tuple[str, str]
    run: RunDiff
    breaks: StageDiff
    recompiles: StageDiff
    compilations: tuple[CompilationDiff, ...]

    @property
    def differs(self) -> bool:
        """Whether anything but times and facts of the run differs."""
        return (self.breaks.differs or self.recompiles.differs or any(c.differs for c in self.compilations)
                or any(name == "exit code" for name, _, _ in self.run.facts))


def diff_recordings(first: Recording, second: Recording) -> RecordingDiff:
    """Compare all compilations of two recordings, and the runs."""
    texts = ProgramText(first), ProgramText(second)
    found = []
    names = resumed(first), resumed(second)
    for a, b in _pairs(first, second, texts):
        shown = _named(a, names[0], b), _named(b, names[1], a)
        if a is not None and b is not None:
            sides = Side(first, a.id, texts[0]), Side(second, b.id, texts[1])
            found.append(replace(Comparison(*sides).all(), first=shown[0], second=shown[1]))
        else:
            why = _where_now(a, first, second) if a else _where_now(b, second, first)
            found.append(CompilationDiff(*shown, (), why))
    changes, same = break_rule(texts).compare([b for _, b, _ in breaks(first)], [b for _, b, _ in breaks(second)])
    return RecordingDiff((first.name, second.name), _run(first, second),
                         StageDiff("breaks", "", "graph break", changes, same), _recompiles(first, second, texts),
                         tuple(found))


def _named(info: CompileInfo | None, after: Mapping[str, Resumed], partner: CompileInfo | None) -> CompileInfo | None:
    """With the name that people know the function by; stock's records have no qualified ones."""
    if info is None:
        return None
    name = display_name(info, after)
    if partner is not None and partner.function.endswith(f".{name}"):
        name = partner.function
    return msgspec.structs.replace(info, function=name)


def _run(first: Recording, second: Recording) -> RunDiff:
    one, other = documents = summary(first), summary(second)
    facts: list[tuple[str, Any, Any]] = [("compiler", one["compiler"], other["compiler"])]
    versions = [d["versions"] for d in documents]
    if all(r.meta.get("imported") is None for r in (first, second)):  # else what is not there is not known
        facts.append(("exit_code", one["exit_code"], other["exit_code"]))
        facts.append(("command", " ".join(one["command"]), " ".join(other["command"])))
        versions += [r.meta.get("environment", {}) for r in (first, second)]
    else:
        known = versions[0].keys() & versions[1].keys()
        versions = [{name: version for name, version in told.items() if name in known} for told in versions]
    for told, others in zip(versions[::2], versions[1::2]):
        facts += [(name, told.get(name, "-"), others.get(name, "-")) for name in {**told, **others}]
    counts = [d["counts"] for d in documents]
    seconds = [sum(c["seconds"]["total"] for c in d["compiles"]) for d in documents]
    silent = {"decisions"} if one["compiler"] != other["compiler"] else set()  # stock's trace has none
    return RunDiff(tuple((n.replace("_", " "), str(a), str(b)) for n, a, b in facts if a != b),
                   tuple((n.replace("_", " "), counts[0][n], counts[1][n]) for n in counts[0]
                         if counts[0][n] != counts[1][n] and n not in silent),
                   (seconds[0], seconds[1]))


def _recompiles(first: Recording, second: Recording, texts: tuple[ProgramText, ProgramText]) -> StageDiff:
    sides = []
    for recording, script in zip((first, second), _scripts(first, second)):
        after, infos = resumed(recording), {info.id: info for info in recording.compiles()}
        sides.append([(display_name(infos[owner], after), _kind(infos[owner], script)[0].rpartition(".")[2], found)
                      for owner, found in recompiles(recording) if owner in infos])
    rule: Keyed[Any] = Keyed(lambda e: (e[1], e[2].subject or e[2].guard), lambda e: (e[2].expected, e[2].actual),
                 lambda e: f"{e[0]}: {e[2].subject or e[2].guard} was {e[2].expected}, is now {e[2].actual}",
                 lambda e: e[2].location)
    changes, same = rule.compare(*sides)
    return StageDiff("recompiles", "", "recompilation", changes, same)


def _kind(info: CompileInfo, script: str) -> tuple[str, str]:
    """A function, whatever its line, and its file; two scripts may be two versions of one."""
    name = info.function
    head, at, line = name.rpartition("_at_")
    file = info.file.rpartition("/")[2]
    return (head if at and line.isdigit() else name), "the script" if file == script else file


def _scripts(*recordings: Recording) -> list[str]:
    """The names of the files that were run; "" for all where one of them is not known, as of a trace."""
    commands = [recording.meta.get("command", []) for recording in recordings]
    return [command[0].rpartition("/")[2] if all(commands) else "" for command in commands]


# ---- which compilation is which --------------------------------------------------------------------------------------
def _pairs(
    first: Recording, second: Recording, texts: tuple[ProgramText, ProgramText]
) -> list[tuple[CompileInfo | None, CompileInfo | None]]:
    """Compilations of one function (its name, file and, for a resume function, the text of the line of its break) pair
    in order; what has no partner comes last."""
    scripts = _scripts(first, second)
    left = [_keys(first, texts[0], scripts[0]), _keys(second, texts[1], scripts[1])]
    partner: dict[str, CompileInfo] = {}
    for coarser in (lambda key: key, _unqualified):  # stock's records have no qualified names
        waiting: dict[Hashable, list[CompileInfo]] = defaultdict(list)
        for info, key in left[1]:
            waiting[coarser(key)].append(info)
        for info, key in left[0]:
            if partners := waiting[coarser(key)]:
                partner[info.id] = partners.pop(0)
        taken = {info.id for info in partner.values()}
        left = [[e for e in left[0] if e[0].id not in partner], [e for e in left[1] if e[0].id not in taken]]
        if all("." in key[0] for _, key in left[0]) and all("." in key[0] for _, key in left[1]):
            break
    both = [(info, partner[info.id]) for info in first.compiles() if info.id in partner]
    return [*both, *((info, None) for info, _ in left[0]), *((None, info) for info, _ in left[1])]


Key = tuple[str, str, str, bool]


def _unqualified(key: Key) -> Key:
    return key[0].rpartition(".")[2], *key[1:]


def _keys(recording: Recording, text: ProgramText, script: str) -> list[tuple[CompileInfo, Key]]:
    after = resumed(recording)
    found = []
    for info in recording.compiles():
        place = after[info.id].place if info.id in after else None
        key = (*_kind(info, script), text.line(place) if place is not None else "", info.status == "skipped")
        found.append((info, key))
    return found


def _where_now(info: CompileInfo | None, own: Recording, other: Recording) -> str:
    """For a compilation without a partner: where the other side has its lines, if another function inlines it."""
    if info is None:
        return ""
    frame = own.find(Frame, info.id, "frame")
    origin = frame.origin.rpartition("+")[0].rpartition(":")[2] if frame is not None else ""
    for owner, graph in other.records(Graph):
        if any(_is_in(node.stack, origin or info.function) for node in graph.nodes):
            return f"part of {owner} there"
    return ""


def _is_in(stack: tuple[Location, ...], function: str) -> bool:
    """Whether a node was traced in a function; stock's records have no qualified names."""
    return any(p.function == function or p.function == function.rpartition(".")[2] for p in stack)
