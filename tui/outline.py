"""The tree on the left as plain rows: recording -> (ranks) -> frames -> compilations -> stages -> artifacts.

Children are made when a row is opened. The visible rows are one flat list, edited in place, so that a tree of a hundred
thousand rows expands and collapses in milliseconds and no depth of nesting can exhaust the stack.
"""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..artifacts.home import existing_home, recordings
from ..artifacts.listing import plural
from ..artifacts.recording import CompileInfo
from ..artifacts.render_summary import UNITS, items_text
from .answers.questions import QUESTIONS
from .session import SOURCE, Session, Target

STATUS = {"compiled": "ok", "skipped": "skipped", "eager": "EAGER", "failed": "FAILED"}
SKIPPED = "skipped"
OTHERS = "recordings"
ASK = "questions"


@dataclass(frozen=True)
class Row:
    """One row: `key` is unique; `target` what it shows; a `branch` can be opened; `open_path` another recording."""

    key: str
    depth: int
    label: str
    detail: str = ""
    branch: bool = False
    target: Target | None = None
    open_path: Path | None = None


def roots(session: Session) -> list[Row]:
    """The rows without a parent."""
    recording = session.recording
    broken = len(session.breaks) if not session.is_large else sum(session.breaks_in.values())
    top = [Row("summary", 0, recording.name, "summary", False, Target())]
    frames: dict[str, list[CompileInfo]] = {}
    for info in session.compiles:
        frames.setdefault(_frame(info.id), []).append(info)
    taken = {frame: members for frame, members in frames.items() if any(m.status != "skipped" for m in members)}
    skipped = len(frames) - len(taken)
    by_rank: dict[str, list[Row]] = {}
    for frame, members in taken.items():
        by_rank.setdefault(_rank(frame), []).append(_frame_row(session, frame, members))
    top += by_rank.pop("", [])
    top += [Row(f"rank {rank}", 0, f"rank {rank}", plural(len(rows), "frame"), True) for rank, rows in by_rank.items()]
    top += [Row(SKIPPED, 0, "skipped frames", str(skipped), True)] if skipped else []
    top += [Row("breaks", 0, "graph breaks", str(broken), False)] if broken else []
    return [*top, Row(ASK, 0, "questions", f"keys 0 to {len(QUESTIONS) - 1}", True),
            Row(OTHERS, 0, "other recordings", "", True)]


def children(session: Session, row: Row) -> list[Row]:
    """The rows below `row`."""
    kind, _, rest = row.key.partition(" ")
    depth = row.depth + 1
    if kind == "rank":
        frames: dict[str, list[CompileInfo]] = {}
        for info in session.compiles:
            if _rank(info.id) == rest:
                frames.setdefault(_frame(info.id), []).append(info)
        return [_frame_row(session, frame, members, depth) for frame, members in frames.items()
                if any(member.status != "skipped" for member in members)]
    if kind == "frame":
        members = [info for info in session.compiles if _frame(info.id) == rest]
        several = len({info.function for info in members}) > 1
        return [_compile_row(session, info, depth, several) for info in members]
    if kind == SKIPPED:
        return [Row(f"compile {info.id}", depth, f"{info.id} {info.function}", info.reason, False, Target(info.id))
                for info in session.compiles if info.status == "skipped"]
    if kind == "compile":
        return [_stage_row(session, rest, stage, depth) for stage in session.stages(rest)]
    if kind == "stage":
        compile_id, _, stage = rest.partition(" ")
        return _artifact_rows(session, compile_id, stage, depth)
    if kind == "artifact" and row.target is not None:
        return [Row(f"form {rest}.{form}", depth, form, "", False,
                    Target(row.target.compile, row.target.stage, f"{row.target.name}.{form}"))
                for form in session.forms(row.target)]
    if kind == ASK:
        return [Row(f"ask {q.id}", depth, f"{q.key} {q.id}", q.title.partition(": ")[2]) for q in QUESTIONS]
    if kind == OTHERS:
        here = session.recording.path.absolute()
        return [Row(f"open {path}", depth, path.name, "", False, None, path)
                for path in recordings(existing_home()) if path.absolute() != here]
    return []


def opened_at_first(session: Session) -> list[str]:
    """Keys of the rows that are open when a recording is opened: the first frame that compiled, and its compilation."""
    info = next((info for info in session.compiles if info.status == "compiled"), None)
    if info is None:
        return []
    return [*_rank_keys(info.id), f"frame {_frame(info.id)}", f"compile {info.id}"]


class VisibleRows:
    """The rows that are not hidden in a closed branch, in order."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.rows = roots(session)
        self.open: set[str] = set()

    def toggle(self, index: int) -> None:
        """Open a closed branch, or close an open one."""
        row = self.rows[index]
        if not row.branch:
            return
        if row.key in self.open:
            self.open.discard(row.key)
            end = index + 1
            while end < len(self.rows) and self.rows[end].depth > row.depth:
                self.open.discard(self.rows[end].key)
                end += 1
            del self.rows[index + 1: end]
        else:
            self.open.add(row.key)
            self.rows[index + 1: index + 1] = children(self._session, row)

    def parent(self, index: int) -> int:
        """The row that `index` lies below (itself for a root)."""
        depth = self.rows[index].depth
        return next((i for i in range(index, -1, -1) if self.rows[i].depth < depth), index)

    def index(self, key: str) -> int | None:
        """Where the row with that key is, if it is visible."""
        return next((i for i, row in enumerate(self.rows) if row.key == key), None)

    def reveal(self, target: Target) -> int | None:
        """Open what hides `target`, and return its row."""
        for key in _path(target):
            index = self.index(key)
            if index is None:
                continue
            if self.rows[index].target == target:
                return index
            if self.rows[index].branch and key not in self.open:
                self.toggle(index)
        return next((i for i, row in enumerate(self.rows) if row.target == target), None)


def _path(target: Target) -> list[str]:
    if not target.compile:
        return ["summary"]
    keys = [*_rank_keys(target.compile), f"frame {_frame(target.compile)}", SKIPPED, f"compile {target.compile}"]
    if target.stage:
        keys.append(f"stage {target.compile} {target.stage}")
        keys.append(f"artifact {target.compile} {target.stage} {target.name}")
    else:
        keys.remove(SKIPPED)
    return keys


def _frame(compile_id: str) -> str:
    frame, _, rest = compile_id.partition("/")
    if "@" not in rest:
        return frame
    process = rest.partition("@")[2]
    return f"{frame}@{process}" if process else frame


def _rank(of: str) -> str:
    """The rank of a frame or a compilation of a distributed program, "" elsewhere."""
    return of.partition("@rank")[2]


def _rank_keys(compile_id: str) -> list[str]:
    return [f"rank {_rank(compile_id)}"] if _rank(compile_id) else []


def _frame_row(session: Session, frame: str, members: list[CompileInfo], depth: int = 0) -> Row:
    counts: dict[str, int] = {}  # a Counter takes longer, and there are thousands of frames
    for info in members:
        counts[info.status] = counts.get(info.status, 0) + 1
    detail = ", ".join(f"{number} {STATUS.get(status, status)}" for status, number in counts.items())
    names = session.names_of(members)
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""  # functions of one wrapper's code
    label = f"{frame} {', '.join(names[:2])}{more}"
    return Row(f"frame {frame}", depth, label, detail, True, Target(members[0].id))


def _compile_row(session: Session, info: CompileInfo, depth: int, named: bool) -> Row:
    total = info.seconds.get("total", 0.0)
    detail = STATUS.get(info.status, info.status) + (f" {total:.2f} s" if total else "")
    again = session.recompilation(info.id) if info.id in session.recompiled else None
    if again is not None:
        detail += f", again: {again.subject or again.guard} {again.expected} -> {again.actual}"
    broken = session.breaks_in.get(info.id, 0)
    detail += f", {plural(broken, 'break')}" if broken else ""
    label = f"{info.id} {session.name_of(info)}" if named else info.id
    return Row(f"compile {info.id}", depth, label, detail, True, Target(info.id))


def _stage_row(session: Session, compile_id: str, stage: str, depth: int) -> Row:
    names = session.names(compile_id, stage)
    key = f"stage {compile_id} {stage}"
    label = "program" if stage == SOURCE else stage
    if stage == "decisions":
        count = session.recording.count_decisions(compile_id)
        return Row(key, depth, label, str(count), False, Target(compile_id, stage))
    single = len(names) == 1
    target = Target(compile_id, stage, names[0])
    if not single or stage == "kernels":
        return Row(key, depth, label, str(len(names)), True, target)
    if stage == SOURCE:
        return Row(key, depth, label, Path(names[0]).name, False, target)
    info = session.recording.artifacts(compile_id, stage)[0]
    return Row(key, depth, label, items_text(info.kind, info.items) if info.kind in UNITS else "", False, target)


def _artifact_rows(session: Session, compile_id: str, stage: str, depth: int) -> list[Row]:
    if stage == SOURCE:
        return [Row(f"artifact {compile_id} {stage} {path}", depth, Path(path).name, "", False,
                    Target(compile_id, stage, path)) for path in session.sources(compile_id)]
    return [Row(f"artifact {compile_id} {stage} {info.name}", depth, info.name or stage,
                items_text(info.kind, info.items), stage == "kernels", Target(compile_id, stage, info.name))
            for info in session.recording.artifacts(compile_id, stage)]
