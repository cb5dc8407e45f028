"""Runs a case in this process: in eager, through the compiler, and compares results, changed inputs and gradients."""
from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import torch
import torch.fx

from ...artifacts.context import CompileContext, CompileId
from ...artifacts.input_names import in_words
from ...artifacts.recorder import NullRecorder, Recorder
from ...engine.compile import compile_graph
from ...engine.graphs.functional_graph import Captured
from ...operators.dynamo_stubs import without_dynamo
from ..ladder.rungs import run_graph
from ..recorded.graphs import ReplayError, graph_module
from ..recorded.inputs import bind_symbols, clones
from ..recorded.new_memory import HUGE, SMALL, filled
from ..recorded.state import as_compiled, deterministic, restored
from ..verdicts.compare import Comparison, compare
from ..verdicts.unwritten import written
from .case import Case
from .outcome import PASSED, Outcome
from .rebuild import rebuild

INTERNAL = "internal error in the engine: "
"""How the reason begins of a graph that runs in eager because a stage of the engine raised."""


def observe(case: Case, recorder: Recorder | None = None) -> Outcome:
    """Run `case` here. What the engine decides goes to `recorder`. Never raises because of what is run."""
    start, cpu = time.perf_counter(), time.process_time()
    try:
        found = _observe(case, recorder)
    except ReplayError as error:
        found = Outcome("invalid", str(error))
    return replace(found, seconds=time.perf_counter() - start, cpu=time.process_time() - cpu)


@dataclass(frozen=True)
class Run:
    """What a run leaves behind: results, inputs as they are then, and gradients of those that have one."""

    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]
    gradients: tuple[Any, ...]

    def values(self) -> tuple[Any, ...]:
        """All of it."""
        return (*self.outputs, *self.inputs, *self.gradients)


def _observe(case: Case, recorder: Recorder | None) -> Outcome:
    for name in case.imports:
        load_import(name)
    with restored(case.state, case.inputs.random(), case.device), filled(HUGE):
        return _against_eager(case, recorder)


def _against_eager(case: Case, recorder: Recorder | None) -> Outcome:
    saved = clones(case.inputs.values(), case.device)
    changed = _changed(case, saved)
    module = graph_module(case.graph, bind_symbols(case.graph, saved), case.trust)
    in_eager = partial(_run, _in_eager(module, False), case, saved, changed)
    try:
        eager = in_eager()
    except Exception as error:
        return Outcome("invalid", f"the graph does not run in eager: {_text(error)}")
    try:
        with as_compiled():
            wide = _run(_in_eager(module, True), case, saved, changed, torch.float64)
    except Exception:  # an operator that has no float64 form: then distances to eager count
        wide = None
    compiled = _compiled(case, saved, recorder)
    if isinstance(compiled, Outcome):
        return compiled
    found = Outcome(PASSED)
    for _ in range(case.repeat):
        try:
            ran = _run(compiled, case, saved, changed)
        except Exception as error:  # eager ran through
            return Outcome("exception", _text(error))
        found = _compare(case, ran, eager, wide)
        if found.failed:
            with filled(SMALL):
                found = _compare(case, ran, eager, wide, in_eager())
        if not found.passed:
            break
    return _timed(case, compiled, module, saved, changed) if found.passed and case.slow else found


def load_import(name: str) -> None:
    """`MODULE`, or `MODULE:FUNCTION`, which is called."""
    module, _, function = name.partition(":")
    loaded = importlib.import_module(module)
    if function:
        attrgetter(function)(loaded)()


# ---- ways of running a graph ----------------------------------------------------------------------------------------
def _in_eager(module: torch.fx.GraphModule, wide: bool) -> Callable[..., Sequence[Any]]:
    return lambda *inputs: run_graph(module, inputs, wide=wide, grad=torch.is_grad_enabled()).outputs


def _compiled(case: Case, saved: tuple[Any, ...], recorder: Recorder | None) -> Callable[..., Sequence[Any]] | Outcome:
    """The compiled graph, or what became of compiling it."""
    if case.compiler != "ptdebug":
        return _of_torch(case, saved)
    context = CompileContext(
        CompileId(0, 0), recorder or NullRecorder(), dict(case.forced), recording=recorder is not None,
        thorough=recorder is not None, **case.options)
    with without_dynamo():
        captured: Captured = rebuild(case, saved)
        compiled = compile_graph(captured, context)
    asked = context.way == "eager"
    if context.fallback and not asked:
        why, internal, error = context.fallback.rpartition(INTERNAL)
        return Outcome("exception", error) if internal and not why else Outcome("fallback", context.fallback)
    return compiled


def _of_torch(case: Case, saved: tuple[Any, ...]) -> Callable[..., Sequence[Any]]:
    """PyTorch's own compiler, with one of its backends."""
    module = graph_module(case.graph, bind_symbols(case.graph, saved), case.trust)
    backend = case.compiler.partition(":")[2]
    if backend == "eager":
        return module
    torch.compiler.reset()
    options = dict(case.options) if backend == "inductor" else None
    compiled: Callable[..., Sequence[Any]] = torch.compile(module, backend=backend, dynamic=False, options=options)
    return compiled


# ---- one run --------------------------------------------------------------------------------------------------------
def _changed(case: Case, saved: tuple[Any, ...]) -> frozenset[int]:
    """The inputs that the graph writes, seen by running it without gradients."""
    own = clones(saved, case.device)
    before = [v._version if isinstance(v, torch.Tensor) else 0 for v in own]
    module = graph_module(case.graph, bind_symbols(case.graph, saved), case.trust)
    try:
        with deterministic():
            run_graph(module, own)
    except Exception:
        return frozenset()  # the next run shows it
    return frozenset(i for i, v in enumerate(own) if isinstance(v, torch.Tensor) and v._version != before[i])


def _run(
    call: Callable[..., Sequence[Any]], case: Case, saved: tuple[Any, ...], changed: frozenset[int],
    wide: torch.dtype | None = None,
) -> Run:
    """One call on fresh copies of the inputs; with gradients of all results, where the graph trains."""
    own = clones(saved, case.device, wide)
    with deterministic(), torch.set_grad_enabled(case.training):
        if not case.training:
            return Run(tuple(call(*own)), own, ())
        for value, item in zip(own, case.inputs.records):
            if isinstance(value, torch.Tensor) and item.meta is not None:
                value.requires_grad_(item.meta.requires_grad)
        given = tuple(v.clone() if i in changed and v.requires_grad else v for i, v in enumerate(own))
        with torch.set_grad_enabled(case.grad_enabled):
            outputs = tuple(call(*given))
        roots = [v for v in (*outputs, *(given[i] for i in sorted(changed))) if _is_root(v)]
        leaves = [v for v in own if isinstance(v, torch.Tensor) and v.requires_grad]
        gradients = torch.autograd.grad(roots, leaves, _tangents(roots), allow_unused=True) if roots else ()
        plain = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, (outputs, given))
        return Run(plain[0], plain[1], tuple(gradients))


def _is_root(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad and value.grad_fn is not None


def _tangents(roots: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Fixed ones: 1 for a number, a seeded normal for anything larger (all ones would hide what cancels)."""
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(r.shape, generator=generator, device="cpu") if r.dim() else torch.ones(()) for r in roots]
    return [torch.empty_like(root).copy_(values) for root, values in zip(roots, made)]


# ---- what is compared -----------------------------------------------------------------------------------------------
def _compare(case: Case, ran: Run, eager: Run, wide: Run | None, again: Run | None = None) -> Outcome:
    """What differs first. `again`: eager with other contents of new memory; elements that it gives otherwise are left
    out, since eager itself has not written them."""
    names = [in_words(item.name) for item in case.inputs.records]
    leaves = [n for n, item in zip(names, case.inputs.records) if item.meta is not None and item.meta.requires_grad]
    labels = [*(f"result {i}" for i in range(len(eager.outputs))), *names, *(f"gradient of {n}" for n in leaves)]
    if len(ran.outputs) != len(eager.outputs):
        return Outcome("values", f"{len(ran.outputs)} results, where eager has {len(eager.outputs)}")
    expected = eager.values()
    exact = wide.values() if wide is not None else (None,) * len(expected)
    twice = again.values() if again is not None else expected
    for label, value, of_eager, reference, other in zip(labels, ran.values(), expected, exact, twice):
        value, of_eager, reference = written((value, of_eager, reference), of_eager, other)
        found: Comparison = compare(value, of_eager, reference)
        if found.verdict == "different":
            return Outcome("nan" if _more_nans(value, of_eager) else "values", found.why, label)
    return Outcome(PASSED)


def _more_nans(value: Any, eager: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not isinstance(eager, torch.Tensor) or value.shape != eager.shape:
        return False
    return bool((~value.isfinite() & eager.isfinite()).any())


def _timed(
    case: Case, compiled: Callable[..., Sequence[Any]], module: torch.fx.GraphModule, saved: tuple[Any, ...],
    changed: frozenset[int],
) -> Outcome:
    """Compiled and eager, turn by turn: the ratio of the shortest times."""
    best = {"compiled": float("inf"), "eager": float("inf")}
    calls: dict[str, Callable[..., Sequence[Any]]] = {"compiled": compiled, "eager": module}
    until = time.perf_counter() + 1.0
    turns = 0
    while turns < 5 or (time.perf_counter() < until and turns < 100):
        for name, call in calls.items():
            start = time.perf_counter()
            _run(call, case, saved, changed)
            best[name] = min(best[name], time.perf_counter() - start)
        turns += 1
    ratio = best["compiled"] / best["eager"]
    text = f"{ratio:.2f} times eager's {best['eager'] * 1e3:.3f} ms"
    return Outcome("slow" if ratio > case.slow else PASSED, text)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10) + 'Exception raised from')[0]}"
