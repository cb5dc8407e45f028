"""`ptdebug run --compiler torch`: records what PyTorch's own compiler does, from the events of its structured trace.

torch 2.13 hands each event (a dict and a text) to the logger `torch.__trace`; one handler turns those into the records
that our own compiler leaves. Nothing of torch is patched but `torch.compile`, which is noted and called. What the trace
does not hold is listed as absent.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from types import ModuleType
from typing import Any

from ..artifacts.records import AnyRecord, Breaks, Frame, Guards, Pass
from ..artifacts.stages import STAGES
from ..dependencies import msgspec
from . import session, torch_trace_text

GRAPHS = {
    "dynamo_output_graph": "capture", "aot_inference_graph": "forward", "aot_joint_graph": "joint",
    "aot_forward_graph": "forward", "aot_backward_graph": "backward",
}


@dataclass
class _Compilation:
    """What the trace has said so far about one compilation; a new attempt begins again, but for its breaks."""

    stack: list[Mapping[str, Any]] = field(default_factory=list)
    attempt: int = 0
    records: dict[tuple[str, str], AnyRecord] = field(default_factory=dict)
    breaks: list[str] = field(default_factory=list)


class StockRecorder(logging.Handler):
    """Gathers the events of each compilation, and records it when its metrics arrive, which come last."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, _Compilation] = {}
        self._files: dict[int, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """One event; one that cannot be read is skipped, and said once."""
        try:
            self._event(getattr(record, "metadata", {}), getattr(record, "payload", None) or "")
        except Exception as error:
            session.current().say(
                f"ptdebug: some of stock's trace was not understood: {type(error).__name__}: {error}")

    def _event(self, facts: Mapping[str, Any], text: str) -> None:
        if "str" in facts:
            self._files[facts["str"][1]] = facts["str"][0]
            return
        if "frame_id" not in facts or "chromium_event" in facts:
            return
        compile_id = f"{facts['frame_id']}/{facts['frame_compile_id']}"
        compilation = self._open.setdefault(compile_id, _Compilation())
        if facts.get("attempt", 0) > compilation.attempt:
            compilation.attempt = facts["attempt"]
            compilation.records.clear()
        if "dynamo_start" in facts:
            compilation.stack = facts["dynamo_start"].get("stack", [])
        elif "compilation_metrics" in facts:
            self._finish(compile_id, self._open.pop(compile_id), facts["compilation_metrics"], text)
        else:
            self._keep(compilation, facts, text)

    def _keep(self, compilation: _Compilation, facts: Mapping[str, Any], text: str) -> None:
        records = compilation.records
        for event, stage in GRAPHS.items():
            if event in facts:
                records[stage, ""] = torch_trace_text.graph(text, stage)
        if "dynamo_cpp_guards_str" in facts:
            records["guards", ""] = Guards(tuple(torch_trace_text.guards(text)))
        if "inductor_output_code" in facts:
            records["wrapper", ""] = torch_trace_text.wrapper(text)
            for kernel in torch_trace_text.kernels(text):
                records["kernels", kernel.name] = kernel
        name = facts.get("artifact", {}).get("name", "")
        if name == "dynamo_graph_break_reason":
            compilation.breaks.append(text)
        elif name == "recompile_reasons":
            records["guards", "recompile"] = torch_trace_text.recompile(text)
        elif name == "inductor_post_grad_graph":
            records["passes", "00_post_grad"] = Pass("post_grad", torch_trace_text.graph(text, "passes"), ())

    def _finish(self, compile_id: str, compilation: _Compilation, facts: Any, text: str) -> None:
        metrics = facts if isinstance(facts, dict) and facts.get("co_name") else msgspec.json.decode(text or b"{}")
        recorder = session.current().recorder
        function, file = metrics.get("co_name") or "?", metrics.get("co_filename") or "?"
        line = metrics.get("co_firstlineno") or 0
        recorder.begin(compile_id, function, file, line)
        recorder.source_file(file)
        reason = metrics.get("fail_reason") or ""
        status = "failed" if reason else "compiled" if ("capture", "") in compilation.records else "skipped"
        frames = torch_trace_text.locations(compilation.stack, self._files)
        frame = Frame(function, file, line, stack=frames, status=status, reason=reason)
        recorder.record(compile_id, "frame", "", frame)
        if compilation.breaks:
            found = [torch_trace_text.graph_break(i, reason) for i, reason in enumerate(compilation.breaks)]
            recorder.record(compile_id, "breaks", "", Breaks(tuple(found)))
        for (stage, name), record in compilation.records.items():
            recorder.record(compile_id, stage, name, record)
        produced = {stage for stage, _ in compilation.records}
        for info in STAGES:
            if info.name not in produced and info.name not in ("frame", "breaks"):  # those are said above
                why = info.stock or "stock's trace did not hold it for this compilation"
                recorder.absent(compile_id, info.name, why)
        recorder.end(compile_id, status, reason, _seconds(metrics))


def _seconds(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Our names for the phases that stock measures."""
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
        return stock(*args, **kwargs)

    return compile
