"""Makes a failing script small: finds what is wrong with it by itself, reduces it, and proves what is left."""
from __future__ import annotations

import atexit
import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...artifacts.garbage import fewer_collections
from ...replay.failures.observe import load_import
from ...replay.failures.signature import Signature, normalized
from ...replay.reduce.ddmin import Reduction
from ...replay.reduce.script import reduce_script
from ...replay.reduce.source import Project
from ...replay.workers.warm import one_thread
from ..errors import CommandError
from .child import Task
from .forks import Answer, forked
from .judge import Failure, Judge, outcome_of

FIRST_LIMIT = 600.0


@dataclass(frozen=True)
class Wanted:
    """What to look for; nothing of it: whatever is wrong."""

    check: str = ""
    match: str = ""
    graph_break: str = ""
    recompile: str = ""


@dataclass(frozen=True)
class Minified:
    """The result: the small script, what it shows, and its nearest neighbour that passes."""

    failure: Failure
    answer: Answer
    original: Project
    small: Project
    neighbour: Project | None
    ran: int
    seconds: float
    interrupted: bool = False


def minify_script(
    script: str, arguments: tuple[str, ...], wanted: Wanted, workers: int = 0, limit: float = 0.0,
    progress: Callable[[str], None] = lambda line: None, overrides: Mapping[str, str] | None = None,
    imports: Sequence[str] = (), out: Path | None = None,
) -> Minified:
    """Reduce a script by the failure that it shows; the result goes to `out`. Raises CommandError if it shows none."""
    started = time.perf_counter()
    task, answer, failure = look(script, arguments, wanted, overrides, imports, limit)
    path, took = Path(task.script), time.perf_counter() - started
    progress(f"{failure.signature}")
    project = _project(path, answer)
    workers = workers or max(2, len(os.sched_getaffinity(0)))
    judge = Judge(replace(task, trace=False), path.parent, failure, workers, limit or max(10.0, 3 * took + 5), out)
    if not judge([project])[0]:
        raise CommandError(f"run a second time, {script} does not show it again ({failure.signature})", 1)

    def smaller(project: Project) -> None:
        progress(f"{project.lines()} lines after {judge.ran} runs")

    reduction = Reduction(project, judge, workers, smaller)
    interrupted = False
    try:
        reduce_script(reduction, judge.probe, gradient=failure.what.endswith("gradient"),
                      twice=failure.signature.kind == "recompile")
    except KeyboardInterrupt:
        interrupted = True
    final = judge.run([reduction.best])[0]
    seconds = time.perf_counter() - started
    return Minified(failure, final, project, reduction.best, judge.neighbour(reduction.best), judge.ran, seconds,
                    interrupted)


def look(
    script: str, arguments: tuple[str, ...], wanted: Wanted, overrides: Mapping[str, str] | None = None,
    imports: Sequence[str] = (), limit: float = 0.0,
) -> tuple[Task, Answer, Failure]:
    """Run a script as it is: the task, what came of it, and the failure. Raises CommandError if it shows none."""
    path = Path(script).resolve()
    capture_only = bool(wanted.graph_break or wanted.recompile)
    task = Task(str(path), str(path.parent), arguments, os.getcwd(), engine=not capture_only, record=capture_only,
                check=wanted.check, match=wanted.match, eager=not capture_only, trace=True,
                overrides=dict(overrides or {}), imports=tuple(imports))
    warm_up()
    with one_thread():
        for name in imports:
            load_import(name)
    answer = _first(task, limit or FIRST_LIMIT)
    return task, answer, _failure(task, wanted, answer)


def warm_up() -> None:
    """Import here what each fork would import."""
    with fewer_collections():
        from ...replay.workers.warm import warm_up as compile_something
        from .. import api, wiring

        assert api
        wiring._engine()
        wiring._compiler()
        compile_something()
    gc.collect()
    gc.freeze()  # forks share what a collection would write to
    atexit.register(gc.unfreeze)


def _first(task: Task, limit: float) -> Answer:
    """The run of the script as it is."""
    if task.eager:
        return forked([task], 1, limit)[0]
    seen, found = forked([replace(task, eager=True), task], 2, limit)
    return seen | found


def _failure(task: Task, wanted: Wanted, answer: Answer) -> Failure:
    name = os.path.basename(task.script)
    if answer["kind"] in ("invalid", "lost"):
        raise CommandError(f"{name} does not run in eager: {answer['detail']}", 1)
    if (wanted.graph_break or wanted.recompile) and answer["kind"] != "passed":
        raise CommandError(f"{name}, captured, does not run to its end ({outcome_of(answer)}): minify that first", 1)
    if wanted.graph_break:
        return _of_code("break", wanted.graph_break, [(code, subject) for code, subject, _ in answer["breaks"]])
    if wanted.recompile:
        return _of_code("recompile", wanted.recompile, [(guard, actual) for guard, actual in answer["recompiles"]])
    if answer["kind"] == "passed":
        what = "the check passes" if wanted.check or wanted.match else "compiled, it computes what eager computes"
        raise CommandError(f"nothing to minify in {name}: {what} (see also --break and --recompile)", 1)
    return Failure.of(answer)


def _of_code(kind: str, code: str, found: list[tuple[str, str]]) -> Failure:
    """The failure of the first graph break or recompilation of that code, or of that code and subject."""
    asked = Failure(Signature(kind, normalized(code)))
    about = [" ".join(filter(None, map(normalized, both if kind == "break" else both[:1]))) for both in found]
    matching = [text for text, both in zip(about, found) if asked.is_about(*both)]
    if not matching:
        there = ", ".join(sorted(set(about))) or "none"
        raise CommandError(f"no graph {kind} {code!r}; there are: {there}" if kind == "break" else
                           f"no recompilation for {code!r}; there are: {there}", 1)
    return Failure(Signature(kind, matching[0]))


def _project(path: Path, answer: Answer) -> Project:
    """The script with the modules that it imports from beside it."""
    folder = path.parent
    others = [Path(file) for file in answer.get("files", ()) if Path(file) != path]
    return Project(tuple((str(file.relative_to(folder)), file.read_text(encoding="utf-8")) for file in (path, *others)))
