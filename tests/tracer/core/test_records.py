"""What a recorded conversion leaves behind: bytecode, captured graph, break, rewritten bytecode, with origins."""
from __future__ import annotations

import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.recorder import NullRecorder
from ptdebug.tracer.frames.dispatch import optimize, reset
from ptdebug.tracer.fx.backend_call import CompileOptions


class Recorder(NullRecorder):
    def __init__(self):
        self.records = []

    def record(self, compile_id, stage, name, record):
        self.records.append((compile_id, stage, name, record))


def program(x):
    y = x + 1
    print(end="")
    return y.relu()


def test_stages_and_origins():
    recorder = Recorder()

    def make_context(compile_id):
        return CompileContext(compile_id, recorder, recording=True)

    options = CompileOptions(lambda captured, context: captured.module.forward, make_context)
    try:
        optimize(program, options)(torch.ones(3))
    finally:
        reset()
    found = {(id_, stage, name): record for id_, stage, name, record in recorder.records}
    first = min(id_ for id_, stage, _ in found if stage == "breaks")
    bytecode, graph = found[first, "bytecode", ""], found[first, "capture", ""]
    offsets = {instruction.id for instruction in bytecode.instructions}
    call = next(node for node in graph.nodes if node.op.startswith("call"))
    assert call.stack[-1].line == program.__code__.co_firstlineno + 1
    assert all(origin.removeprefix("bytecode#") in offsets for origin in call.origins) and call.origins
    (stop,) = found[first, "breaks", ""].breaks
    assert stop.source == 'print(end="")' and stop.instruction in ("CALL", "CALL_KW")
    resumed = found[first, "output_bytecode", "resume_0"]
    copied = [i for i in resumed.instructions if i.origins]
    originals = {f"bytecode#{i.id}": i.opname for i in bytecode.instructions}
    assert copied and all(originals[i.origins[0]] == i.opname for i in copied)
    assert found[first, "output_bytecode", ""].role == "rewritten"
    assert sum(stage == "capture" for _, stage, _ in found) == 2
