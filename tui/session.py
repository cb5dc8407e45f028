"""The workbench's model of a recording: listings and links, made on first use and cached.

Nothing here depends on Textual, so all of it can be tested as plain functions and used from worker threads.
"""
from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ..artifacts.break_costs import BreakCost
from ..artifacts.home import existing_home
from ..artifacts.listing import Line, Listing, printable, source_listing, source_path
from ..artifacts.machine_lines import MACHINE, PREFERRED, form_of
from ..artifacts.process_liveness import is_running
from ..artifacts.provenance import Links, links, unlinked
from ..artifacts.recording import CompileInfo, Recording, RecordingError
from ..artifacts.records import Break, Graph, Kernel, Location, Recompile, Ref, split_ref
from ..artifacts.render import listing
from ..artifacts.render_steps import STATE, state_ref
from ..artifacts.render_summary import render_compile, render_summary
from ..artifacts.resumed import Resumed, display_name, resumed
from ..artifacts.search import SOURCE, Step, search
from ..artifacts.selector import Selector
from ..artifacts.stages import ATEN, LINKED
from ..artifacts.summary import ranked_breaks, summary
from ..artifacts.weighted_cache import WeightedCache
from ..dependencies import msgspec

MANY = 2000
"""Items of an artifact above which its listing is made in the background."""
LARGE = 300
"""Compilations above which a recording is large."""
LARGE_ITEMS = 150_000
"""Items (nodes, instructions, lines, ...) above which it is, too."""
CACHED_LINES = 100_000
"""Lines of listings that are kept."""
LINKED_IN_PASSING = 20_000
"""Items of a compilation up to which its links are made, and it is compared, while a person waits."""
LINKED_STAGES = (SOURCE, *LINKED, MACHINE, STATE)
FORMS_OF = {MACHINE: "kernels", STATE: "steps"}
"""What can stand beside an artifact as if it were a stage, and the stage whose artifacts it is a form of."""
CHAIN = ("capture", "joint", "forward", "backward", "loop_ir", "kernels", MACHINE, "wrapper")
"""The stages of the breadcrumb."""


@dataclass(frozen=True)
class Target:
    """What a pane shows: an artifact; without a stage a compilation; without a compilation the recording.

    For the stage `source`, `name` is the path of a file of the program.
    """

    compile: str = ""
    stage: str = ""
    name: str = ""


class Session:
    """An open recording with everything that was made of it."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._listings: WeightedCache[Target, Listing] = WeightedCache(CACHED_LINES)
        self.links = lru_cache(maxsize=16)(self._links)
        self.stages = lru_cache(maxsize=256)(self._stages)
        self.unlinked = lru_cache(maxsize=256)(self._unlinked)
        self.machine_code = lru_cache(maxsize=256)(self._machine_code)
        self.compiles: list[CompileInfo] = recording.compiles()
        self.by_id = {info.id: info for info in self.compiles}
        items = recording.counted_at_first()
        self.recompiled = set(items["Recompile"])
        self.breaks_in = {owner: count for owner, count in items["Breaks"].items() if count}

    @cached_property
    def _ranked(self) -> list[tuple[tuple[str, Break, int], BreakCost]]:
        return ranked_breaks(self.recording)

    @cached_property
    def _resumed(self) -> dict[str, Resumed]:
        there = any(info.function.startswith("torch_dynamo_resume_in_") for info in self.compiles)
        return resumed(self.recording) if there else {}

    def name_of(self, info: CompileInfo) -> str:
        """The function of a compilation; of a resume function, what it continues, and after which break."""
        found = self._resumed.get(info.id)
        return found.short_name if found is not None else display_name(info, {}).replace(", resumed from", ", from")

    def names_of(self, infos: Iterable[CompileInfo]) -> list[str]:
        """The functions of some compilations, each once. Where nothing is resumed, a name is the same for all of one
        function."""
        if not self._resumed:
            infos = {info.function: info for info in infos}.values()
        return list(dict.fromkeys(map(self.name_of, infos)))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What there is to say of the recording as a whole."""
        return summary(self.recording)

    @property
    def breaks(self) -> list[tuple[str, Break, int]]:
        """The graph breaks, the most expensive function first."""
        return [entry for entry, _ in self._ranked]

    @property
    def break_costs(self) -> list[BreakCost]:
        """What each of `breaks` cost."""
        return [cost for _, cost in self._ranked]

    @cached_property
    def is_large(self) -> bool:
        """Whether overviews take time: they are made in the background."""
        return len(self.compiles) > LARGE or self.recording.count_items() > LARGE_ITEMS

    def compiles_of(self, compile_id: str) -> list[CompileInfo]:
        """The compilation with that id; all of them where none is given."""
        if not compile_id:
            return self.compiles
        return [self.by_id[compile_id]] if compile_id in self.by_id else []

    def recompilation(self, compile_id: str) -> Recompile | None:
        """Why it was compiled again."""
        return self.recording.find(Recompile, compile_id, "guards", "recompile")

    def is_cheap(self, target: Target) -> bool:
        """Whether its listing is there, or made at once."""
        if target in self._listings:
            return True
        if not target.compile and target.stage != SOURCE:
            return not self.is_large
        infos = self.recording.artifacts(target.compile, target.stage) if target.stage not in ("", SOURCE) else []
        if target.stage in ATEN:  # the names of their inputs are those of the captured graph
            infos += self.recording.artifacts(target.compile, "capture")
        return all(info.items <= MANY for info in infos)

    def listing(self, target: Target) -> Listing:
        """The lines of what is shown."""
        if target not in self._listings:
            made = self._listing(target)
            self._listings.put(target, made, len(made.lines))
        return self._listings[target]

    def state(self) -> str:
        """Of a program that is followed: whether it runs."""
        meta = self.recording.meta
        if is_running(meta):
            return "running"
        return f"ended, exit code {meta['exit_code']}" if "exit_code" in meta else "ended"

    def stamp(self) -> tuple[float, ...]:
        """Changes when the recording grows."""
        files = [path for path in self.recording.path.glob("recording*.db*") if path.suffix in (".db", ".db-wal")]
        return tuple(value for path in sorted(files) for value in _size_and_time(path))

    def _stages(self, compile_id: str) -> list[str]:
        """The stages of a compilation that can be shown, the program's text first."""
        program = [SOURCE] if self.sources(compile_id) else []
        return program + self.recording.stages(compile_id)

    def sources(self, compile_id: str) -> list[str]:
        """Files of the program that were kept, that of the compiled function first."""
        kept = self.recording.sources()
        first = next((info.file for info in self.compiles if info.id == compile_id), "")
        return sorted(kept, key=lambda path: (path != first, path))

    def names(self, compile_id: str, stage: str) -> list[str]:
        """The names of a stage's artifacts; for the program, its files."""
        if stage == SOURCE:
            return self.sources(compile_id)
        if stage == "decisions":
            return [""]
        return [info.name for info in self.recording.artifacts(compile_id, stage)]

    def first_row(self, target: Target) -> int:
        """The row to begin at: in the program the compiled function, in generated code what comes from the program."""
        if target.stage in ("kernels", "wrapper"):
            lines = self.listing(target).lines
            return next((row for row, line in enumerate(lines) if line.origins), 0)
        if target.stage != SOURCE:
            return 0
        return next((info.line - 1 for info in self.compiles
                     if info.id == target.compile and info.file == target.name), 0)

    def short_path(self, path: str) -> str:
        """A path relative to the folder in which the program was started, if it is below it."""
        start = self.recording.meta.get("folder", "")
        return path.removeprefix(start + "/") if start else path

    def forms(self, target: Target) -> list[str]:
        """The recorded compiler outputs of a kernel (asm, ptx, ...)."""
        try:
            record = self.recording.artifact(target.compile, target.stage, target.name)
        except RecordingError:
            return []
        return list(record.outputs) if isinstance(record, Kernel) else []

    def _machine_code(self, compile_id: str) -> list[str]:
        """The compiled forms of a compilation's kernels whose lines lead to the source, the best one first."""
        found = []
        for info in self.recording.artifacts(compile_id, "kernels"):
            forms = self.forms(Target(compile_id, "kernels", info.name))
            found += [f"{info.name}.{product}" for product in forms if form_of(product) in PREFERRED]
        return sorted(found, key=lambda name: PREFERRED.index(form_of(name)))

    def first_of(self, compile_id: str, stage: str) -> Target:
        """The first artifact of a stage, of the machine code, or of the tracer's states."""
        if stage == MACHINE:
            return Target(compile_id, "kernels", next(iter(self.machine_code(compile_id)), ""))
        if stage == STATE:
            return Target(compile_id, "steps", f"{next(iter(self.names(compile_id, 'steps')), '')}.0")
        return Target(compile_id, stage, next(iter(self.names(compile_id, stage)), ""))

    def linkable(self, target: Target) -> list[str]:
        """The stages that can be shown beside `target`."""
        if not target.compile:
            return []
        forms = self.machine_code(target.compile)
        there = [*self.stages(target.compile), *([MACHINE] if forms else [])]
        own = MACHINE if target.stage == "kernels" and target.name in forms else target.stage
        there += [STATE] if own == "steps" else []
        return [stage for stage in LINKED_STAGES if stage in there and stage != own]

    def beside(self, target: Target) -> str:
        """The stage that stands beside `target` at first: the program; beside that, what is nearest to the machine."""
        choices = self.linkable(target)
        if STATE in choices:
            return STATE
        wanted = ("kernels", "loop_ir", "forward", "joint", "capture", "bytecode") if target.stage == SOURCE else (
            SOURCE,)
        return next((stage for stage in wanted if stage in choices), choices[0] if choices else "")

    def related(self, compile_id: str, item: Ref, stage: str) -> list[Ref]:
        """Items of `stage` that are linked to `item`. For `passes` only those after the last pass."""
        if stage == STATE:
            of, name, number = split_ref(item)
            return [state_ref(name, number)] if of == "steps" and number else []
        found = self.links(compile_id).related(item, stage)
        if stage == MACHINE and found:  # one form of them
            names = {split_ref(reference)[1] for reference in found}
            name = min(names, key=lambda n: PREFERRED.index(form_of(n)))
            found = [reference for reference in found if split_ref(reference)[1] == name]
        if stage == "passes" and found:
            last = max(split_ref(reference)[1] for reference in found)
            found = [reference for reference in found if split_ref(reference)[1] == last]
        return found

    def selector(self, target: Target) -> str:
        """What names `target` on the command line."""
        path = self.recording.path
        name = path.name if path.parent.absolute() == existing_home() else str(path)
        stage, artifact = ("frame", "") if target.stage == SOURCE else (target.stage, target.name)
        return str(Selector(name, target.compile, stage, artifact))

    def command(self, target: Target, line: int | None = None) -> str:
        """The command line that shows `target` (and what its line `line` belongs to)."""
        words = ["ptdebug", "show", self.selector(target)]
        if line is not None and target.stage not in ("", SOURCE):
            words += ["--line", str(line)]
        return shlex.join(words)

    def opens(self, line: Line) -> tuple[Target, int] | None:
        """What a line of an overview leads to, and the row in it: a compilation, an artifact, a line of the program."""
        stage, name, item = split_ref(line.ref)
        if stage == "open":
            compile_id, artifact_stage, artifact = item.split(":", 2)
            return Target(compile_id, artifact_stage, artifact), 0
        if stage == SOURCE and self.compiles:
            path = source_path(name)
            owner = next((info.id for info in self.compiles if info.file == path), self.compiles[0].id)
            return Target(owner, SOURCE, path), int(item) - 1
        return None

    def chain(self, target: Target, line: Line | None) -> list[tuple[str, str]]:
        """The whole chain that a line belongs to, from the program to machine code: for each stage its first item, and
        how many there are more."""
        item = next((item for item in (line.ref, *line.origins) if item), "") if line is not None else ""
        if not item or not target.compile:
            return []
        stages: dict[str, list[str]] = {}
        for reference in self.links(target.compile).everywhere(item):
            stage, name, number = split_ref(reference)
            if stage == SOURCE:
                text = f"{source_path(name).rpartition('/')[2]}:{number}"
            else:
                text = f"{name}:{number}" if name and number else name or number
            stages.setdefault(stage, []).append(text)
        order = [SOURCE, *CHAIN]
        return [(stage, stages[stage][-1 if stage == SOURCE else 0]
                 + (f" +{len(stages[stage]) - 1}" if len(stages[stage]) > 1 else ""))
                for stage in order if stage in stages]

    def breadcrumb(self, target: Target, line: Line | None, linked: bool) -> str:
        """The chain of a line in one line, the stage that is shown in brackets; `linked`: links are there."""
        found = self.chain(target, line) if linked else []
        parts = [f"[{stage} {text}]" if stage == target.stage else f"{stage} {text}" for stage, text in found]
        large = self.unlinked(target.compile) if target.compile else []
        nothing = f"too large to be linked: {', '.join(large)}" if large else "no other stage has anything of this line"
        alone = [stage for stage, _ in found] == [target.stage]
        return "  >  ".join(parts) if parts and not alone else nothing if linked or large else ""

    def program_line(self, target: Target, line: Line | None) -> tuple[str, int] | None:
        """The file and line of the program behind a line of `target`: its own, its innermost origin, or the function's
        first line."""
        if line is not None:
            items = [item for item in (line.ref, *line.origins) if item]
            if target.compile:
                items += [r for item in items[:1] for r in self.links(target.compile).origins(item)]
            for item in items:
                stage, name, number = split_ref(item)
                if stage == SOURCE:
                    return source_path(name), int(number)
        info = next((info for info in self.compiles if info.id == target.compile), None)
        return (info.file, info.line) if info is not None else None

    def is_large_compile(self, compile_id: str) -> bool:
        """Whether to read all of a compilation takes more time than a person waits for a key."""
        return sum(info.items for info in self.recording.artifacts(compile_id)) > LINKED_IN_PASSING

    def program_places(self, compile_id: str, item: Ref) -> list[Location]:
        """The lines of the program whose operations an item computes; none where the compilation is too large to be
        linked in passing."""
        graph = self.recording.find(Graph, compile_id, "capture") if not self.is_large_compile(compile_id) else None
        if graph is None:
            return []
        names = {split_ref(found)[2] for found in self.related(compile_id, item, "capture")}
        return list(dict.fromkeys(
            msgspec.structs.replace(node.stack[-1], column=-1, end_line=-1, end_column=-1)
            for node in graph.nodes if node.id in names and node.stack))

    def row_of(self, target: Target, item: int | Ref | None) -> int:
        """The first row of an artifact that shows an item, or what was made of it; where it begins if none does. A row
        is itself."""
        if item is None or isinstance(item, int):
            return self.first_row(target) if item is None else item
        rows = self.listing(target).rows_of
        found = rows.get(item, []) or [
            row for made in self.related(target.compile, item, target.stage) for row in rows.get(made, ())]
        return min(found, default=self.first_row(target))

    def _unlinked(self, compile_id: str) -> list[str]:
        return unlinked(self.recording, compile_id)

    def search(self, text: str) -> Iterator[tuple[Step, list[Match]]]:
        """How far it is, and the lines with `text` (case ignored where it is all lower case) of each place searched."""
        first = self.compiles[0].id if self.compiles else ""
        for step in search(self.recording, text):
            yield step, [
                Match(Target(f.place.compile or (first if f.place.stage else ""), f.place.stage, f.place.name),
                      f.row if f.place.stage else 0, f.text) for f in step.found]

    def _listing(self, target: Target) -> Listing:
        try:
            if target.stage == SOURCE and target.compile:  # the same for all compilations
                return self.listing(Target("", SOURCE, target.name))
            if target.stage == SOURCE:
                text = self.recording.source(target.name)
                if text is None:
                    raise RecordingError(f"the text of {target.name} was not recorded")
                return source_listing(target.name, text)
            if target.stage:
                return listing(self.recording, target.compile, target.stage, target.name)
            if target.compile:
                return render_compile(
                    self.recording, self.by_id.get(target.compile) or self.recording.compile(target.compile))
            return render_summary(self.summary)
        except RecordingError as error:
            return Listing("not there", "text", (Line(printable(str(error))),))

    def _links(self, compile_id: str) -> Links:
        return links(self.recording, compile_id)


def _size_and_time(path: Path) -> tuple[float, float]:
    try:
        found = path.stat()
    except OSError:  # gone since: the last process closed its log
        return 0.0, 0.0
    return float(found.st_size), found.st_mtime


@dataclass(frozen=True)
class Match:
    """A line that a search found; `row` counts from 0."""

    target: Target
    row: int
    text: str


def short_name(target: Target) -> str:
    """How titles name a target: `0/0 kernels:unit_0`, `0/0 program model.py`."""
    if target.stage == SOURCE:
        return f"program {Path(target.name).name}"
    stage = f"{target.stage}:{target.name}" if target.name else target.stage
    return f"{target.compile} {stage}".strip() or "summary"
