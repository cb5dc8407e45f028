"""Which matrix products are generated loops: forced, by estimates, and by what was measured."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.records import Decision
from ptdebug.engine import passes
from ptdebug.engine.aot.aten_graph import trace
from ptdebug.engine.compile import compile_graph
from ptdebug.engine.ir import interpreter
from ptdebug.engine.kernels import tiled_product
from ptdebug.engine.lowering import LOWERINGS
from ptdebug.engine.lowering.products import mode
from ptdebug.engine.passes import extern_kernels
from ptdebug.engine.passes.extern_kernels import surroundings
from torch._subclasses.fake_tensor import FakeTensorMode

from .programs import Keeping, capture
from .triton import programs

HALF = torch.bfloat16


def _chosen(function: Callable[..., Any], *inputs: tuple[tuple[int, ...], torch.dtype], device: str = "cuda",
            **settings: Any) -> tuple[list[Any], list[Decision]]:
    """The operators that are called, and the decisions of products, of a graph on a GPU that need not be there."""
    module = torch.fx.symbolic_trace(function)
    output = module.graph.output_node()
    output.args = ((output.args[0],),)
    with FakeTensorMode():
        fakes = tuple(torch.empty(shape, device=device, dtype=dtype) for shape, dtype in inputs)
    keeping = Keeping()
    context = CompileContext(recorder=keeping, recording=True, **settings)
    aten = trace(SimpleNamespace(module=module, inputs=fakes, grad_enabled=False), context, LOWERINGS)
    extern_kernels.choose(passes.run(aten, context), context)
    called = [n.target for n in aten.module.graph.nodes if n.op == "call_function"]
    return called, [d for d in keeping.decisions if d.kind == "triton-matmul"]


def _linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w)


def _scaled(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w.to(x.dtype)) * s


WEIGHT = ((11008, 4096), torch.int8)


@pytest.mark.parametrize(("rows", "way"), [(1, "tiles"), (16, "tiles"), (17, "library"), (4096, "library")])
def test_few_rows_read_the_weight_as_it_is(rows: int, way: str) -> None:
    """By the bytes that are read and written; with many rows the weight is converted once for all of them."""
    called, (decision,) = _chosen(_scaled, ((rows, 4096), HALF), WEIGHT, ((11008,), HALF))
    assert decision.chosen == way and (tiled_product.OPERATOR in called) is (way == "tiles")
    if way == "tiles":
        assert "bytes as it is stored" in decision.why and {o.unit for o in decision.options} == {"us"}


def _of_four_bits(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    low, high = (w & 15).to(torch.int8) - 8, (w >> 4).to(torch.int8) - 8
    groups = torch.stack([low, high], -1).view(11008, -1, 128).to(x.dtype) * s.unsqueeze(-1)
    return F.linear(x, groups.view(11008, 4096))


@pytest.mark.parametrize(("function", "weight", "scale"), [
    (_scaled, ((11008, 4096), torch.float8_e4m3fn), (11008,)),
    (lambda x, w, s: F.linear(x, w.to(x.dtype) * s.unsqueeze(-1)), WEIGHT, (11008,)),
    (_of_four_bits, ((11008, 2048), torch.uint8), (11008, 32)),
])
def test_weights_of_other_forms(function: Callable[..., Any], weight: Any, scale: tuple[int, ...]) -> None:
    called, (decision,) = _chosen(function, ((8, 4096), HALF), weight, (scale, HALF))
    assert decision.chosen == "tiles" and tiled_product.OPERATOR in called


def test_a_weight_that_others_read_is_converted_once() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        wide = w.to(x.dtype)
        return F.linear(x, wide) + wide.sum(1)

    called, (decision,) = _chosen(function, ((4, 4096), HALF), WEIGHT)
    assert decision.chosen == "library" and tiled_product.OPERATOR not in called


@pytest.mark.parametrize(("dtypes", "why"), [
    ((HALF, HALF), "measured with max-autotune alone"), ((torch.float32,) * 2, "tensor cores do not multiply"),
    ((torch.float64,) * 2, "no tile multiplies"),
])
def test_otherwise_the_library_multiplies(dtypes: tuple[torch.dtype, ...], why: str) -> None:
    called, (decision,) = _chosen(_linear, ((64, 128), dtypes[0]), ((96, 128), dtypes[1]))
    assert decision.chosen == "library" and why in decision.why and torch.ops.aten.mm.default in called


@pytest.mark.parametrize(("times", "way"), [
    ({"library": 40e-6, "tiles": 30e-6}, "tiles"), ({"library": 40e-6, "tiles": 39.5e-6}, "library"),
    ({"library": 40e-6, "tiles": 50e-6}, "library"), ({}, "library"),
])
def test_the_fastest_way_is_taken(times: dict[str, float], way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured is what the record tells; a kernel of ptdebug's has to save something."""
    monkeypatch.setattr(surroundings.Measuring, "seconds", lambda *given: times)
    called, (decision,) = _chosen(_linear, ((64, 128), HALF), ((96, 128), HALF), max_autotune=True)
    assert decision.chosen == way and (tiled_product.OPERATOR in called) is (way == "tiles")
    assert {o.name: o.score for o in decision.options if o.score} == {n: s * 1e6 for n, s in times.items()}


@pytest.mark.parametrize("allowed", [True, False])
def test_float32_is_rounded_to_tf32_where_the_program_allows_it(allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled_product, "allows_tf32", lambda: allowed)
    assert mode(torch.float32, torch.device("cuda")) == ("dot_tf32" if allowed else "dot")
    _, (decision,) = _chosen(_linear, ((64, 128), torch.float32), ((96, 128), torch.float32))
    assert (len(decision.options) == 2) is allowed


@pytest.mark.parametrize(("weight", "capability", "way"), [
    (torch.int8, (8, 0), "tiles"), (torch.int8, (7, 5), "library"), (torch.float8_e4m3fn, (8, 0), "library"),
    (torch.float8_e4m3fn, (8, 9), "tiles"),
])
def test_an_old_gpu_has_no_tiles(
    weight: torch.dtype, capability: tuple[int, int], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    _, (decision,) = _chosen(_scaled, ((8, 4096), HALF), ((11008, 4096), weight), ((11008,), HALF))
    assert decision.chosen == way and ("compute capability" in decision.why) is (way == "library")


def test_an_override_is_refused_where_there_is_no_tile() -> None:
    called, (decision,) = _chosen(_linear, ((64, 128), torch.float64), ((96, 128), torch.float64),
                                  overrides={"triton-matmul:*": "tiles"})
    assert decision.chosen == "library" and "refused" in decision.why and tiled_product.OPERATOR not in called


def test_the_part_that_is_measured() -> None:
    """The product, the weight that is converted for it, and the loops up to the next product; what these read from
    elsewhere are inputs."""
    def function(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        left = torch.exp(x)
        y = F.layer_norm(F.gelu(F.linear(left, w.to(HALF))) + r * 2, (96,))
        return F.linear(y, v) + left.sum()

    found: list[tuple[list[Any], int]] = []

    def seconds(measuring: Any, node: torch.fx.Node, ways: Mapping[str, Any]) -> dict[str, float]:
        part, product = surroundings._part(node, surroundings._around(node))
        part.module.graph.lint()
        found.append(([n.target for n in part.module.graph.nodes if n.op == "call_function"], len(part.inputs)))
        for way, change in ways.items():
            change(product)
            assert (product.target is tiled_product.OPERATOR) is (way != "library")
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surroundings.Measuring, "seconds", seconds)
        _chosen(function, ((64, 128), HALF), ((96, 128), torch.int8), ((64, 96), HALF), ((32, 96), HALF),
                max_autotune=True)
    (first, inputs), (second, _) = found
    aten = torch.ops.aten
    assert {aten.gelu.default, aten._to_copy.default, aten.mm.default} <= set(first) and inputs == 3
    assert first.count(aten.mm.default) == 1 and aten.exp.default not in first and aten.gelu.default not in second


def test_what_runs_a_part() -> None:
    """Kernels and library calls, on views of what these return."""
    function = lambda x, w, b: F.gelu(F.linear(x * 2, w, b)).t() @ x
    inputs = [torch.randn(*n, generator=torch.Generator().manual_seed(1)) for n in ((5, 24), (40, 24), (40,))]
    runner = programs.compiled(function, inputs)
    memory = surroundings.memory_of(runner.plan, inputs)
    call = surroundings.runner(runner.plan, runner.kernels, memory)
    for _ in range(2):
        call()
        (result,) = (interpreter.resolve(out, memory, {}) for out in runner.plan.program.outputs)
        torch.testing.assert_close(result, function(*inputs))


@pytest.mark.parametrize(("way", "rows"), [("tiles", 5), ("tiles", 1), ("rows", 1)])
def test_a_forced_product_on_a_cpu(way: str, rows: int) -> None:
    """As in eager, by loops."""
    generator = torch.Generator().manual_seed(0)
    x, w, b, v = (torch.randn(*n, generator=generator, dtype=HALF) for n in ((rows, 24), (40, 24), (40,), (40, 32)))
    function = lambda x, w, b, v: F.gelu(F.linear(x, w, b)) @ v
    keeping = Keeping()
    context = CompileContext(recorder=keeping, recording=True, overrides={"triton-matmul:*": way})
    with torch.no_grad():
        call = compile_graph(capture(function, x, w, b, v), context)
        assert not context.fallback, context.fallback
        (result,) = call(x, w, b, v)
    assert [d.chosen for d in keeping.decisions if d.kind == "triton-matmul"] == [way, way]
    torch.testing.assert_close(result.float(), function(x, w, b, v).float(), rtol=2e-2, atol=2e-1)


@pytest.mark.parametrize(("targets", "dtype", "way"), [
    ((75,), torch.int8, "library"), ((75, 90), torch.int8, "library"), ((80,), torch.int8, "tiles"),
    ((80,), torch.float8_e4m3fn, "library"), ((89,), torch.float8_e4m3fn, "tiles"),
])
def test_an_export_for_an_old_gpu_has_no_tiles(targets: tuple[int, ...], dtype: torch.dtype, way: str) -> None:
    weight = ((11008, 4096), dtype)
    _, (decision,) = _chosen(_scaled, ((1, 4096), HALF), weight, ((11008,), HALF), compiled_for=targets)
    assert decision.chosen == way
    assert (way == "tiles") == ("compute capability" not in decision.why)
