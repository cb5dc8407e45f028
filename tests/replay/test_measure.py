"""Times of graphs and kernels: what they are compared with, and what is said of a slower one."""
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ptdebug.artifacts.fx_graphs import graph_record
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Kernel, Location, Schedule
from ptdebug.cli.main import main
from ptdebug.replay.failures.case import Case, Inputs
from ptdebug.replay.measure import machine as machines
from ptdebug.replay.measure.machine import SIZES, Machine, machine, raised
from ptdebug.replay.measure.reasons import short_kernel, slower_because, slower_twins
from ptdebug.replay.measure.regions import measure
from ptdebug.replay.measure.steps import KernelTime
from ptdebug.replay.measure.stopwatch import calls_of
from ptdebug.replay.measure.timing import Launched, Timing, interleaved
from ptdebug.replay.measure.twins import twins


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(machines, "SECONDS", 0.001)
    monkeypatch.setattr(machines, "MATRIX", {"cpu": 64})
    return tmp_path / "cache"


def case() -> Case:
    traced = torch.fx.symbolic_trace(lambda x, w: (torch.softmax(x @ w, -1).sum(0),))
    values = (torch.randn(32, 16), torch.randn(16, 16))
    for node, value in zip(traced.graph.nodes, values):
        node.meta["val"] = value
    graph = graph_record(traced.graph, "capture", "bytecode")
    return Case(graph, Inputs.of(values, ("x", "w")))


def test_a_graph_and_its_kernels() -> None:
    region = measure(case(), "r:0/0")
    assert region.eager.seconds > 0 and region.compiled.seconds > 0 and region.notes == ()
    assert {kernel.kind for kernel in region.kernels} == {"extern", "loops"}
    product = next(kernel for kernel in region.kernels if kernel.kind == "extern")
    assert product.flops == 2 * 32 * 16 * 16 and product.operators == 1 and product.eager
    for kernel in region.kernels:
        assert 0 < kernel.bandwidth <= 1 and 0 <= kernel.peak <= 1 and kernel.bytes > 0
    json.dumps(region.document())


def test_a_step_of_training_and_its_kernels(tmp_path: Path) -> None:
    """Also those that add up columns into buffers which only the scheduler knows."""
    import ptdebug

    layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128))
    with ptdebug.record("step", out=str(tmp_path)):
        ptdebug.compile(layers)(torch.randn(256, 64)).square().mean().backward()
    with Recording.open(tmp_path / "step") as recording:
        region = measure(Case.from_recording(recording, recording.compiles()[0].id, trust=True), "r:0/0")
        schedules = [schedule for _, schedule in recording.records(Schedule)]
        code = [line.text for _, kernel in recording.records(Kernel) for line in kernel.lines]
    assert region.notes == () and region.what == "forward and backward"
    assert [k.name for k in region.kernels] == [g.kernel for schedule in schedules for g in schedule.groups]
    assert {k.part for k in region.kernels} == {"", "backward"}
    assert any("_sums" in line for line in code)


def test_of_a_table_only_what_is_read_counts() -> None:
    def touched(function, *values: torch.Tensor) -> list[KernelTime]:
        traced = torch.fx.symbolic_trace(function)
        for node, value in zip(traced.graph.nodes, values):
            node.meta["val"] = value
        found = Case(graph_record(traced.graph, "capture", "bytecode"), Inputs.of(values, ("a", "b")[:len(values)]))
        return list(measure(found, "r:0/0").kernels)

    (looked_up,) = touched(lambda i, w: (torch.nn.functional.embedding(i, w) * 2,),
                           torch.randint(0, 9000, (16,)), torch.randn(9000, 32))
    assert looked_up.bytes == 16 * 8 + 2 * 16 * 32 * 4
    (sliced,) = touched(lambda a: (a[:4] + 1,), torch.randn(9000, 32))
    assert sliced.bytes == 2 * 4 * 32 * 4
    bag = touched(lambda i, w: (torch.nn.functional.embedding_bag(i, w)[0] * 2,),
                  torch.randint(0, 90_000, (4, 4)), torch.randn(90_000, 64))
    assert all(kernel.bandwidth <= 1 for kernel in bag)
    assert max(machine().bandwidth) < 1e13  # bytes a second: no machine does more


def test_the_machine_is_measured_once(cache: Path, monkeypatch) -> None:
    first = machine()
    assert first.flops > 0 and len(first.bandwidth) == len(SIZES)
    monkeypatch.setattr(machines, "_measured", None)
    assert machine() == first
    more = raised(first, [(1000, 0, 1000 / (2 * first.bandwidth[0])), (10, int(4 * first.flops), 1.0)])
    assert more.bandwidth[0] == pytest.approx(2 * first.bandwidth[0]) and more.flops >= 3.9 * first.flops
    assert machine() == more
    next(cache.glob("machine/*.json")).write_text("damaged")
    monkeypatch.undo()


def test_bandwidth_depends_on_what_is_touched() -> None:
    known = Machine("cpu", 1, (5.0, 4.0, 3.0, 2.0, 1.0), 1.0)
    assert known.bandwidth_at(0) == 5.0 and known.bandwidth_at(2 * SIZES[1]) == 4.0
    assert known.bandwidth_at(1 << 40) == 1.0


def test_calls_are_timed_turn_by_turn() -> None:
    order: list[str] = []
    found = interleaved({name: lambda n=name: order.append(n) or sum(range(20_000)) for name in "ab"}, rounds=4)
    assert "".join(order).startswith("aabb") and set(found) == {"a", "b"}
    assert all(timing.seconds > 0 and timing.noise >= 0 for timing in found.values())


def kernel(name: str, seconds: float, eager: float | None) -> KernelTime:
    return KernelTime("", name, "loops", seconds, 0.0, eager, 3, 100, 100, None)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_kernels_are_timed_by_themselves(monkeypatch) -> None:
    """With the names of what libraries launched, and shares of what this GPU can do."""
    monkeypatch.setattr(machines, "MATRIX", {"cuda": 4096})
    traced = torch.fx.symbolic_trace(lambda x, w: (torch.softmax(x @ w, -1) * 2,))
    values = (torch.randn(4096, 1024), torch.randn(1024, 4096))
    for node, value in zip(traced.graph.nodes, values):
        node.meta["val"] = value
    graph = graph_record(traced.graph, "capture", "bytecode")
    region = measure(Case(graph, Inputs.of(values, ("x", "w")), device="cuda"), "r:0/0")
    product, softmax = region.kernels
    assert region.notes == () and [k.kind for k in region.kernels] == ["extern", "loops"]
    assert product.launched and product.flops == 2 * 4096 * 4096 * 1024 and 0.05 < product.peak < 1.2
    assert softmax.name in softmax.launched[0].name and 0.3 < softmax.bandwidth < 1.2
    assert 1e-6 < softmax.seconds < 1e-3 and len(region.device_seconds) == 2
    assert [twin.operators for twin in region.twins] == [("matmul",), ("softmax", "mul")]
    assert all(twin.launched and twin.eager > 0 for twin in region.twins)
    assert 1e11 < region.machine.memory < 1e13 and {"float16", "bfloat16", "tf32"} == set(region.machine.products)


def test_what_makes_it_slower_is_named() -> None:
    fast, slow, eager = kernel("fast", 1e-6, 5e-6), kernel("slow", 30e-6, 10e-6), Timing(20e-6, 0.02)
    found = slower_because(eager, Timing(60e-6, 0.02), 29e-6, [fast, slow])
    assert [text.split(" takes")[0].split(" outside")[0] for text in found] == ["29.0 us", "slow"]
    assert slower_because(eager, Timing(20.5e-6, 0.02), 5e-6, [fast, slow]) == []
    assert slower_because(eager, Timing(23e-6, 0.5), 0.0, [fast])[-1] == (
        "the noise (50%) is as large as the difference")


def test_operators_that_share_kernels_are_compared_with_these_kernels() -> None:
    """Two kernels compute the softmax of one layer, with the product before it; another layer is alike."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for name in ("mm", "softmax", "mm_1", "softmax_1"):
        x = graph.create_node("call_function", torch.neg, (x,), name=name)
        x.meta["stack"] = [Location("/p/model.py", 3 if "softmax" in name else 2)]
    kernels = [replace(kernel(f"fused_{k}_add", 20e-6, None), captured=operators) for k, operators in enumerate(
        [("mm",), ("mm", "softmax"), ("mm_1",), ("softmax_1", "mm_1"), ()])]
    launched = (Launched("void flash<float>(int)", 1, 1e-6),)
    times = {f"capture#{name}": Timing(5e-6, 0.0, launched) for name in ("mm", "softmax", "mm_1", "softmax_1")}
    first, second = twins(torch.fx.GraphModule({}, graph), kernels, times)
    assert (first.operators, first.kernels, first.eager) == (("mm", "softmax"), tuple(kernels[:2]), 10e-6)
    assert second.operators == ("mm_1", "softmax_1") and second.kernels == tuple(kernels[2:4])
    ((lost, text, members),) = slower_twins([first, second])
    assert lost == pytest.approx(60e-6) and members == [first, second]
    assert text == "2 times mm, softmax (model.py:3): 80.0 us in fused_0_add, fused_1_add; eager 20.0 us (flash, flash)"
    times["capture#mask"] = Timing(1e-6, 0.0)  # computed again in each kernel, and no tie between them
    masked = [replace(k, captured=(*k.captured, "mask")) for k in kernels]
    graph.create_node("call_function", torch.neg, (x,), name="mask")
    assert [twin.operators for twin in twins(torch.fx.GraphModule({}, graph), masked, times)][:2] == [
        ("mm", "softmax", "mask"), ("mm_1", "softmax_1")]
    del times["capture#mm"]
    assert [twin.operators for twin in twins(torch.fx.GraphModule({}, graph), kernels, times)] == [second.operators]


def test_kernels_belong_to_the_call_that_they_begin_in() -> None:
    events = [
        ("ptdebug call 0 0", 10.0, 30.0, False), ("aten::mm", 11.0, 14.0, False), ("warm", 5.0, 9.0, True),
        ("ptdebug call 0 0", 15.0, 29.0, True), ("gemm", 15.0, 20.0, True), ("Memset (Device)", 20.5, 21.0, True),
        ("ptdebug call 3 1", 40.0, 50.0, False), ("gemm", 44.0, 49.0, True), ("between", 35.0, 36.0, True),
    ]
    found = calls_of(events)
    assert {key: [name for name, _ in kernels] for key, kernels in found.items()} == {
        (0, 0): ["gemm", "Memset (Device)"], (3, 1): ["gemm"]}
    assert found[0, 0][0][1] == pytest.approx(5e-6)


@pytest.mark.parametrize("name, short", [
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float>(int, float)",
     "vectorized_layer_norm_kernel"),
    ("nvjet_sm90_hsh_192x128_64x5_1x2_h_bz_coopB_bias_TNT", "nvjet_sm90_hsh_192x128_64x5_1x2_h_bz_coopB_bias_TNT"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_128x256>(cutlass_80::Params)",
     "cutlass_80_tensorop_f16_s16816gemm_f16_128x256"),
    ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
])
def test_kernels_have_short_names(name: str, short: str) -> None:
    assert short_kernel(name) == short


def test_the_command(tmp_path: Path, capsys) -> None:
    import ptdebug

    with ptdebug.record("timed", out=str(tmp_path)):
        ptdebug.compile(lambda x: torch.sin(x) + 1)(torch.randn(100))
    assert main(["replay", "--time", str(tmp_path / "timed"), "--json"]) == 0
    region, = json.loads(capsys.readouterr().out)["regions"]
    assert region["what"] == "forward" and region["kernels"][0]["operators"] == 2
    assert main(["replay", "--time", str(tmp_path / "timed")]) == 0
    assert "outside of kernels" in capsys.readouterr().out
