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
    facts: list[tuple[str, Any, Any]] = [
        (name, one[name], other[name]) for name in ("compiler", "exit_code")
    ]
    facts.append(("command", " ".join(one["command"]), " ".join(other["command"])))
    versions = [d["versions"] for d in documents]
    facts += [(name, versions[0].get(name, "-"), versions[1].get(name, "-")) for name in {**versions[0], **versions[1]}]
    environments = [r.meta.get("environment", {}) for r in (first, second)]
    facts += [(name, environments[0].get(name, "-"), environments[1].get(name, "-"))
              for name in {**environments[0], **environments[1]}]
    counts = [d["counts"] for d in documents]
    seconds = [sum(c["seconds"]["total"] for c in d["compiles"]) for d in documents]
    silent = {"decisions"} if one["compiler"] != other["compiler"] else set()  # stock's trace has none
    return RunDiff(tuple((n.replace("_", " "), str(a), str(b)) for n, a, b in facts if a != b),
                   tuple((n.replace("_", " "), counts[0][n], counts[1][n]) for n in counts[0]
                         if counts[0][n] != counts[1][n] and n not in silent),
                   (seconds[0], seconds[1]))


def _recompiles(first: Recording, second: Recording, texts: tuple[ProgramText, ProgramText]) -> StageDiff:
    sides = []
    for recording in (first, second):
        after, infos = resumed(recording), {info.id: info for info in recording.compiles()}
        script = _script(recording)
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


def _script(recording: Recording) -> str:
    """The name of the file that was run."""
    command = recording.meta.get("command", [])
    return command[0].rpartition("/")[2] if command else ""


# ---- which compilation is which --------------------------------------------------------------------------------------
def _pairs(
    first: Recording, second: Recording, texts: tuple[ProgramText, ProgramText]
) -> list[tuple[CompileInfo | None, CompileInfo | None]]:
    """Compilations of one function (its name, file and, for a resume function, the text of the line of its break) pair
    in order; what has no partner comes last."""
    left = [_keys(first, texts[0]), _keys(second, texts[1])]
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


def _keys(recording: Recording, text: ProgramText) -> list[tuple[CompileInfo, Key]]:
    after, script = resumed(recording), _script(recording)
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
