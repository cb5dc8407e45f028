"""`ptdebug run --compiler torch`: records what PyTorch's own compiler does, from the events of its structured trace.

torch 2.13 sends each event (a dict and a text) to the logger `torch.__trace`; one handler turns them into the records
that ptdebug's compiler leaves. Of torch only `torch.compile` is patched, to note that it was called. What the trace
lacks is listed as absent.
"""
from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from types import ModuleType
from typing import Any

from ..artifacts.records import AnyRecord, Breaks, Decision, Frame, Guards, Kernel, Pass, Wrapper
from ..artifacts.stages import STAGES
from ..dependencies import msgspec
from . import session, torch_trace_guards, torch_trace_text

GRAPHS = {
    "dynamo_output_graph": "capture", "aot_inference_graph": "forward", "aot_joint_graph": "joint",
    "aot_forward_graph": "forward", "aot_backward_graph": "backward",
}
PROVENANCE = "trace.provenance_tracking_level"
BYTECODE = {"_ORIGINAL_BYTECODE": ("bytecode", "original"), "_MODIFIED_BYTECODE": ("output_bytecode", "rewritten")}


@dataclass
class _Compilation:
    """What the trace has said so far about one compilation; a new attempt begins again, but for its breaks, and for why
    there is a compilation at all.

    `part` is "backward" from when the forward's code was written; `ended` what was said at the end, after which only
    the backward is compiled, when it runs first.
    """

    stack: list[Mapping[str, Any]] = field(default_factory=list)
    attempt: int = 0
    records: dict[tuple[str, str], AnyRecord] = field(default_factory=dict)
    breaks: list[str] = field(default_factory=list)
    reasons: str = ""
    symbols: list[Mapping[str, Any]] = field(default_factory=list)
    narrowed: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    trains: bool = False
    part: str = ""
    latest: list[tuple[str, str]] = field(default_factory=list)  # the records of the code that was written last
    ended: tuple[str, str, dict[str, float]] | None = None

    def begin_attempt(self, attempt: int) -> None:
        """Forget the attempt before."""
        self.attempt, self.part, self.trains = attempt, "", False
        for kept in (self.records, self.symbols, self.narrowed, self.latest):
            kept.clear()

    def name(self, name: str = "") -> str:
        """The name of an artifact of the graph that is being compiled."""
        return ".".join(part for part in (self.part, name) if part)


class StockRecorder(logging.Handler):
    """Gathers the events of each compilation, and records it when its metrics arrive, which come last. Of a backward
    that is compiled when it first runs, each event after that is recorded at once."""

    def __init__(self) -> None:
        super().__init__()
        self._compilations: dict[str, _Compilation] = {}
        self._files: dict[int, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """One event, as torch logs it."""
        self.event(getattr(record, "metadata", {}), getattr(record, "payload", None) or "")

    @property
    def known(self) -> int:
        """Of how many compilations there were events."""
        return len(self._compilations)

    def event(self, facts: Mapping[str, Any], text: str) -> None:
        """One event; one that cannot be read is skipped, and said once."""
        try:
            self._event(facts, text)
        except Exception as error:
            session.current().say(
                f"ptdebug: some of stock's trace could not be read: {type(error).__name__}: {error}")

    def finish(self) -> None:
        """The trace has ended: record compilations whose last event is missing, for the process was killed."""
        for compile_id, compilation in self._compilations.items():
            if compilation.ended is None:
                place = compilation.stack[-1] if compilation.stack else {}
                function, file = str(place.get("name", "?")), self._files.get(place.get("filename", -1), "?")
                session.current().recorder.begin(compile_id, function, file, place.get("line", 0))
                _record_all(compile_id, compilation)

    def _event(self, facts: Mapping[str, Any], text: str) -> None:
        if "str" in facts:
            self._files[facts["str"][1]] = facts["str"][0]
            return
        if "frame_id" not in facts or "chromium_event" in facts:
            return
        compile_id = f"{facts['frame_id']}/{facts['frame_compile_id']}"
        compilation = self._compilations.setdefault(compile_id, _Compilation())
        if facts.get("attempt", 0) > compilation.attempt and compilation.ended is None:
            compilation.begin_attempt(facts["attempt"])
        if "dynamo_start" in facts:
            compilation.stack = facts["dynamo_start"].get("stack", [])
        elif "compilation_metrics" in facts:
            self._finish(compile_id, compilation, facts["compilation_metrics"], text)
        elif "bwd_compilation_metrics" in facts:
            _finish_backward(compile_id, compilation, facts["bwd_compilation_metrics"], text)
        else:
            self._keep(compilation, facts, text)
            if compilation.ended is not None:
                _record_all(compile_id, compilation)

    def _keep(self, compilation: _Compilation, facts: Mapping[str, Any], text: str) -> None:
        records = compilation.records
        for event, stage in GRAPHS.items():
            if event in facts:
                records[stage, ""] = torch_trace_text.graph(text, stage)
        for event in ("guard_added_fast", "symbolic_shape_specialization"):
            if event in facts:
                compilation.narrowed.append((event, facts[event]))
        compilation.trains |= "aot_joint_graph" in facts
        if "create_symbol" in facts:
            compilation.symbols.append(facts["create_symbol"])
        if "dynamo_cpp_guards_str" in facts:
            found = [torch_trace_guards.symbol(s, compilation.narrowed, self._files) for s in compilation.symbols]
            records["guards", ""] = Guards(tuple(torch_trace_guards.guards(text)), tuple(found))
        name = facts.get("artifact", {}).get("name", "")
        if name == "dynamo_graph_break_reason":
            compilation.breaks.append(text)
        elif name == "recompile_reasons":
            compilation.reasons = text
        elif name.endswith(tuple(BYTECODE)):
            form = next(form for form in BYTECODE if name.endswith(form))
            stage, role = BYTECODE[form]
            records[stage, ""] = torch_trace_text.bytecode(text, name.removesuffix(form), role)
        elif name == "inductor_post_grad_graph" or "inductor_post_grad_graph" in facts:
            graph = torch_trace_text.graph(text, "passes")
            records["passes", compilation.name("00_post_grad")] = Pass("post_grad", graph, ())
        elif name == "inductor_provenance_tracking_node_mappings" and compilation.latest:
            _keep_schedule(compilation, text)
        elif name == "fx_graph_cache_hit":
            _mark_cached(compilation)
        if "inductor_output_code" in facts:
            _keep_code(compilation, text)

    def _finish(self, compile_id: str, compilation: _Compilation, facts: Any, text: str) -> None:
        metrics = _metrics(facts, text)
        recorder = session.current().recorder
        function, file = metrics.get("co_name") or "?", metrics.get("co_filename") or "?"
        line = metrics.get("co_firstlineno") or 0
        recorder.begin(compile_id, function, file, line)
        recorder.source_file(file)
        reason = metrics.get("fail_reason") or ""
        status = "failed" if reason else "compiled" if ("capture", "") in compilation.records else "skipped"
        if reason and any(torch_trace_text.skips_frame(text) for text in compilation.breaks):
            status = "eager"
        stack = torch_trace_text.locations(compilation.stack, self._files)
        callers = stack[:-1] if stack and stack[-1].function == function else stack
        origin = torch_trace_text.origin(function, file)
        recorder.record(compile_id, "frame", "", Frame(
            function, file, line, stack=callers, status=status, reason=reason, origin=origin, arguments_known=False,
        ))
        if compilation.breaks:
            lost = (metrics.get("dynamo_time_before_restart_s") or 0.0) / len(compilation.breaks)
            found = [torch_trace_text.graph_break(i, reason, function, file, lost)
                     for i, reason in enumerate(compilation.breaks)]
            recorder.record(compile_id, "breaks", "", Breaks(tuple(found)))
        if compilation.reasons:
            guards = compilation.records.get(("guards", ""))
            call = callers[-1] if callers else None
            now = guards if isinstance(guards, Guards) else Guards(())
            changed = torch_trace_guards.recompile(compilation.reasons, now, call)
            recorder.record(compile_id, "guards", "recompile", changed)
        produced = {stage for stage, _ in compilation.records}
        for info in STAGES:
            if info.name not in produced and info.name not in ("frame", "breaks"):  # those are handled above
                why = info.stock or "stock's trace lacks it for this compilation"
                recorder.absent(compile_id, info.name, why)
        _record_all(compile_id, compilation)
        for name, value, default in _inductor_settings():
            recorder.decision(compile_id, Decision(
                f"config:{name}", "config", name, (), default, value, "torch._inductor.config, as the program set it"))
        compilation.ended = status, reason, _seconds(metrics)
        recorder.end(compile_id, *compilation.ended)


def _keep_code(compilation: _Compilation, text: str) -> None:
    """The code that Inductor wrote for a graph: the forward's (or the only one), or after it the backward's."""
    compilation.latest = [("wrapper", compilation.name())]
    compilation.records["wrapper", compilation.name()] = torch_trace_text.wrapper(text)
    for kernel in torch_trace_text.kernels(text):
        key = "kernels", compilation.name(kernel.name)
        compilation.records[key] = msgspec.structs.replace(kernel, name=key[1])
        compilation.latest.append(key)
    own = {name.rpartition(".")[2] for stage, name in compilation.latest if stage == "kernels"}
    compilation.records["schedule", compilation.name()] = torch_trace_text.called(text, own)
    compilation.latest.append(("schedule", compilation.name()))
    if compilation.trains:
        compilation.part = "backward"


def _keep_schedule(compilation: _Compilation, text: str) -> None:
    """The kernels and library calls of the code that was written last, each with the nodes that it computes."""
    part = compilation.latest[0][1]
    graph = f"{part}.00_post_grad" if part else "00_post_grad"
    own = {name.rpartition(".")[2] for stage, name in compilation.latest if stage == "kernels"}
    known, code = compilation.records.get(("passes", graph)), compilation.records.get(("wrapper", part))
    if not isinstance(known, Pass) or not isinstance(code, Wrapper):
        return
    nodes = {node.id for node in known.graph.nodes if node.op == "call_function"}
    made = torch_trace_text.schedule(text, graph, own, "\n".join(line.text for line in code.lines), nodes)
    if made.groups:  # of a backward, the mapping may be empty
        compilation.records["schedule", part] = made
    linked = torch_trace_text.with_captured(known.graph, text)
    compilation.records["passes", graph] = msgspec.structs.replace(known, graph=linked)
    compilation.latest.append(("passes", graph))


def _mark_cached(compilation: _Compilation) -> None:
    """The code that was written last came from Inductor's cache."""
    for key in compilation.latest:
        record = compilation.records.get(key)
        if isinstance(record, Kernel):
            compilation.records[key] = msgspec.structs.replace(record, cached=True)


def _record_all(compile_id: str, compilation: _Compilation) -> None:
    for (stage, name), record in compilation.records.items():
        session.current().recorder.record(compile_id, stage, name, record)
    compilation.records = {key: compilation.records[key] for key in compilation.latest}


def _finish_backward(compile_id: str, compilation: _Compilation, facts: Any, text: str) -> None:
    """The backward, which was compiled when it first ran, took time too."""
    if compilation.ended is None:
        return
    took = (_metrics(facts, text).get("duration_us") or 0) / 1e6
    status, reason, seconds = compilation.ended
    seconds = {**seconds, "total": seconds.get("total", 0.0) + took, "backward": seconds.get("backward", 0.0) + took}
    compilation.ended = status, reason, seconds
    session.current().recorder.end(compile_id, status, reason, seconds)


def _inductor_settings() -> Iterator[tuple[str, str, str]]:
    """The settings of Inductor that are not its defaults, as JSON: name, value, default."""
    config: Any = sys.modules.get("torch._inductor.config")
    changed: Mapping[str, Any] = getattr(config, "_get_dict", lambda **_: {})(skip_default=True)
    for name, value in changed.items():
        with suppress(Exception):  # what is no plain value
            default = config._config[name].default
            if value != default and name != PROVENANCE:  # torch may have set it back
                yield name, msgspec.json.encode(value).decode(), msgspec.json.encode(default).decode()


def _ask_for_provenance() -> None:
    """Have Inductor say which nodes each kernel computes; where the program has asked for more, that stays."""
    with suppress(ImportError, AttributeError):  # another version
        trace = importlib.import_module("torch._inductor.config").trace
        trace.provenance_tracking_level = trace.provenance_tracking_level or 2


def _metrics(facts: Any, text: str) -> Any:
    if isinstance(facts, dict) and (facts.get("co_name") or facts.get("duration_us")):
        return facts
    return msgspec.json.decode(text or b"{}")


def _seconds(metrics: Mapping[str, Any]) -> dict[str, float]:
    """ptdebug's names for the phases that stock measures."""
    whole = metrics.get("entire_frame_compile_time_s") or 0.0
    backend = metrics.get("backend_compile_time_s") or 0.0
    inductor = metrics.get("inductor_compile_time_s") or 0.0
    code = metrics.get("code_gen_time_s") or 0.0
    return {"total": whole, "capture": max(whole - backend, 0.0), "joint": max(backend - inductor, 0.0),
            "lowering": max(inductor - code, 0.0), "codegen": code}


def record_stock(torch: ModuleType) -> None:
    """Listen to the trace of `torch`, and note whether the program calls `torch.compile`."""
    if session.current().recording or session.current().open_recorder:
        logging.getLogger("torch.__trace").addHandler(StockRecorder())
    torch.compile = _noted(torch.compile)  # type: ignore[attr-defined]


def _noted(stock: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(stock)
    def compile(*args: Any, **kwargs: Any) -> Any:
        session.current().compile_called()
        _ask_for_provenance()
        return stock(*args, **kwargs)

    return compile
