"""The table of questions. Their keys are the digits, in every screen of the workbench."""
from __future__ import annotations

from . import capture, engine, failure, model
from .answer import Question

QUESTIONS: tuple[Question, ...] = (
    Question("recompiles", "1", "recompilations: which guard failed, how to avoid it, what is other now",
             capture.recompilations, "ptdebug recompiles", "nothing was compiled again", False),
    Question("guards", "2", "guards: what each compilation depends on", capture.guards, "ptdebug guards", "no guards"),
    Question("fusion", "3", "fusion: kernels, what was fused into each, which pairs were refused and why",
             engine.fusion, "ptdebug fusions", "nothing was scheduled"),
    Question("decisions", "4", "decisions: what was chosen, over what, why, and how to choose otherwise",
             engine.decisions, "ptdebug decisions", "no decisions were recorded"),
    Question("passes", "5", "passes: those that changed a graph, and their rewrites", engine.passes, "ptdebug show",
             "no pass changed a graph"),
    Question("memory", "6", "memory: the bytes alive at each group, the peak, the buffers behind it", engine.memory,
             "ptdebug show", "no buffers were recorded"),
    Question("time", "7", "time: of compiling, by stage and function; of kernels, once measured", engine.time,
             "ptdebug show", "no times were recorded", False),
    Question("model", "9", "model: the captured graph by nn.Module, layers that are alike in one row", model.model,
             "ptdebug show", "no graph was captured"),
    Question("failure", "0", "failures: exception, line, node, artifact of the failing stage, repro", failure.failure,
             "ptdebug show", "nothing failed", False),
    Question("run", "8", "the run: command, environment, versions, how it ended", capture.run, "ptdebug show",
             "nothing was recorded", False),
)
BY_ID = {question.id: question for question in QUESTIONS}
