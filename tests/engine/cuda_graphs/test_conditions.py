"""Which graphs are captured, and what the person is told of each."""
from __future__ import annotations

import json
from dataclasses import replace

import ptdebug
import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.cuda_graphs import cuda_graphs, lines
from ptdebug.cli.main import main
from ptdebug.engine import stages
from ptdebug.engine.ir.ir import Group
from ptdebug.engine.runtime.cuda_graphs import conditions

from .machine import on_cpu as on_cpu

GPU = torch.device("cuda", 0)


def on_gpu(plan, keep=()):
    """The plan as it would be for inputs on a GPU, but for those in `keep`."""
    buffers = {name: buffer if name in keep else replace(buffer, device=GPU)
               for name, buffer in plan.program.buffers.items()}
    items = tuple(replace(item, device=GPU) if isinstance(item, Group) else item for item in plan.items)
    return replace(plan, program=replace(plan.program, buffers=buffers), items=items)


def compiled_plan(monkeypatch, function, *inputs, **options):
    seen = []
    monkeypatch.setattr(stages.conditions, "chosen", lambda aten, plan, context: seen.append((aten, plan)))
    ptdebug.compile(function, options={"force_disable_caches": True}, **options)(*inputs)
    return seen[-1]


@torch.library.custom_op("ptdebug_tests::twice_on_a_gpu", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


@pytest.mark.parametrize("function, keep, why", [
    (lambda x: x.sin() @ x, (), ""),
    (lambda x: x[x > 0].sum(), (), "sizes or numbers that depend on data"),
    (lambda x: x * x.sum().item(), (), "sizes or numbers that depend on data"),
    (lambda x: torch.ops.aten.index_put(x, [x > 0], x.sum()), (), "sizes or numbers that depend on data"),
    (lambda x: x.sin() + 1, ("arg0",), "arg0 is in memory of the CPU"),
    (lambda x: x.as_strided((2, 2), (4, 2)).sin(), (), ""),
])
def test_reasons(monkeypatch, function, keep, why):
    aten, plan = compiled_plan(monkeypatch, function, torch.randn(4, 4))
    assert conditions.why_not(aten, plan) == conditions.NO_GPU
    found = conditions.why_not(aten, on_gpu(plan, keep))
    assert why in found if why else not found, found


def test_a_window_on_what_lies_between_elements(monkeypatch):
    aten, plan = compiled_plan(monkeypatch, lambda x: x.as_strided((2, 2), (2, 1)).sin(), torch.randn(4, 4)[:, :2])
    assert "memory around the elements of arg0" in conditions.why_not(aten, on_gpu(plan))


def test_the_decision(monkeypatch):
    asked, forced = CompileContext(cuda_graphs=True), CompileContext(overrides={"cudagraphs:graph": "capture"})
    kept = conditions.chosen
    aten, plan = compiled_plan(monkeypatch, lambda x, y: (x * y).sum(), torch.randn(4, 4), torch.tensor(2.0))
    plan = on_gpu(plan, ("arg1",))
    for context, captured in ((CompileContext(), False), (asked, True), (forced, True)):
        facts = kept(aten, plan, context)
        assert (facts is not None) is captured
    assert facts.numbers == (1,) and facts.tensors == (0, 1) and facts.device == 0
    aten, plan = compiled_plan(monkeypatch, lambda x: twice(x) + 1, torch.randn(4))
    assert kept(aten, on_gpu(plan), asked) is None and kept(aten, on_gpu(plan), forced) is not None
    aten, plan = compiled_plan(monkeypatch, lambda x: x[x > 0], torch.randn(4))
    assert kept(aten, on_gpu(plan), forced) is None


def test_the_command(on_cpu, tmp_path, capsys, monkeypatch):
    facts_of = stages.conditions.chosen

    def chosen(aten, plan, context):
        context.decide(conditions.KIND, "graph", ("capture", "launch"), "capture", "asked for")
        return facts_of(aten, plan, context)

    monkeypatch.setattr(stages.conditions, "chosen", chosen)
    with ptdebug.record("graphs", out=str(tmp_path)) as recording:
        net = torch.nn.Linear(4, 4)
        fast, held = ptdebug.compile(net), []
        for _ in range(6):
            held.append(torch.randn(2, 4))
            fast(held[-1]).sum().backward()
    assert main(["cudagraphs", str(recording.path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    forward, backward = document["cudagraphs"]
    assert (forward["part"], backward["part"]) == ("", "backward") and forward["captured"] and backward["captured"]
    assert forward["copies"] == [{"name": "input", "times": 4, "bytes": 128}] and forward["launches"][0]["times"] == 2
    text = "\n".join(line.text for of in cuda_graphs(recording) for line in lines(of))
    assert "1 capture, 4 replays" in text and "2 calls launched kernel by kernel: warm-up" in text
    assert "input copied 4 times, 128 bytes" in text


@pytest.mark.parametrize("options", [{"mode": "reduce-overhead"}, {"options": {"triton.cudagraphs": True}},
                                     {"backend": "cudagraphs"}])
def test_on_a_cpu_the_modes_say_what_they_mean(options, tmp_path, capsys):
    with ptdebug.record("cpu", out=str(tmp_path)) as recording:
        assert torch.equal(ptdebug.compile(lambda x: x + 1, **options)(torch.ones(2)), torch.full((2,), 2.0))
    assert main(["cudagraphs", str(recording.path)]) == 0
    assert f"launch ({conditions.NO_GPU})" in capsys.readouterr().out
