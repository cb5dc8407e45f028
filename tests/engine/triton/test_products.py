"""Matrix products as Triton kernels: values in Triton's interpreter, and what is compiled for two GPUs."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.records import Kernel
from ptdebug.engine import scheduler
from ptdebug.engine.aot.aten_graph import trace
from ptdebug.engine.codegen.triton import TritonSource, describe_kernel, generate
from ptdebug.engine.ir import interpreter
from ptdebug.engine.ir.ir import Group
from ptdebug.engine.kernels.tiled_product import OPERATOR as product
from ptdebug.engine.lowering import LOWERINGS, lower
from torch._subclasses.fake_tensor import FakeTensorMode

from ..programs import Keeping
from . import programs

HALF, INT8, FLOAT8 = torch.bfloat16, torch.int8, torch.float8_e4m3fn


def _plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return product(x, w)


def _floats(*shape: int, dtype: torch.dtype = HALF, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + seed)).to(dtype)


def _bytes(*shape: int, dtype: torch.dtype = INT8) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(limits.min, limits.max + 1, shape, dtype=dtype, generator=generator)


def _two_readers(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = product(x, w.t(), b) + r
    return y, F.silu(y), F.layer_norm(y, y.shape[-1:])


def _by_groups(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    rows, count = w.shape
    groups = s.shape[1]
    return product(x, (w.view(rows, groups, -1).to(x.dtype) * s[:, :, None]).view(rows, count).t())


def _of_four_bits(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    low, high = (w & 15).to(INT8) - 8, (w >> 4).to(INT8) - 8
    return _by_groups(x, torch.stack([low, high], -1).view(w.shape[0], -1), s)


# name: (function, inputs, kernels). Sizes are no multiples of a tile.
CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], int]] = {
    "bfloat16": (_plain, (_floats(33, 47), _floats(47, 65)), 1),
    "float16": (_plain, (_floats(33, 47, dtype=torch.float16), _floats(47, 65, dtype=torch.float16)), 1),
    "float32": (_plain, (_floats(33, 47, dtype=torch.float32), _floats(47, 65, dtype=torch.float32)), 1),
    "both_transposed": (lambda x, w: product(x.t(), w.t()), (_floats(47, 33), _floats(65, 47)), 1),
    "with_itself": (lambda x: product(x, x.t()), (_floats(33, 72),), 1),
    "one_row": (lambda x, w: product(x, w.t()), (_floats(1, 64), _floats(65, 64)), 1),
    "one_row_by_rows": (lambda x, w: product(x, w.t(), by_rows=True) * 2, (_floats(1, 64), _floats(65, 64)), 1),
    "one_column": (lambda x, w: product(x, w.t()), (_floats(7, 64), _floats(1, 64)), 1),
    "one_term": (_plain, (_floats(7, 1), _floats(1, 9)), 1),
    "no_terms": (_plain, (_floats(7, 0), _floats(0, 9)), 1),
    "batch": (lambda x, w: product(x, w.transpose(1, 2)).relu(), (_floats(3, 20, 30), _floats(3, 40, 30)), 1),
    "bias_gelu_residual": (lambda x, w, b, r: F.gelu(product(x, w.t(), b)) + r,
                           (_floats(50, 72), _floats(40, 72), _floats(40), _floats(50, 40)), 1),
    "two_readers_and_a_norm": (_two_readers, (_floats(32, 24), _floats(40, 24), _floats(40), _floats(32, 40)), 2),
    "two_products": (lambda x, w, v: F.silu(product(x, w.t())) * product(x, v.t()),
                     (_floats(33, 72), _floats(40, 72), _floats(40, 72, seed=1)), 2),
    "a_product_of_a_heavy_value": (lambda x, w: product(F.gelu(x), w.t()), (_floats(33, 72), _floats(40, 72)), 2),
    "int8_scaled_after": (lambda x, w, s: product(x, w.to(HALF).t()) * s,
                          (_floats(5, 72), _bytes(40, 72), _floats(40)), 1),
    "int8_by_channel": (lambda x, w, s: product(x, (w.to(HALF) * s[:, None]).t()),
                        (_floats(5, 72), _bytes(40, 72), _floats(40)), 1),
    "int8_by_group": (_by_groups, (_floats(5, 72), _bytes(40, 72), _floats(40, 6)), 1),
    "int4_by_group": (_of_four_bits, (_floats(5, 72), _bytes(40, 36, dtype=torch.uint8), _floats(40, 6)), 1),
    "int8_products": (lambda x, w, s: product(x, w.t()).float() * s,
                      (_bytes(33, 72), _bytes(40, 72), _floats(40, dtype=torch.float32)), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    """As eager's: a product is rounded where it is there, and so is each operand."""
    function, inputs, kernels = CASES[name]
    runner = programs.compiled(function, inputs)
    assert len(runner.kernels) == kernels
    _assert_same(runner(*inputs), function(*inputs))
    plan = runner.plan
    _assert_same(interpreter.run_plan(plan, list(inputs)), function(*inputs))


def _assert_same(got: tuple[torch.Tensor, ...], expected: Any) -> None:
    for ours, eager in zip(got, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert (ours.dtype, ours.shape, ours.stride()) == (eager.dtype, eager.shape, eager.stride())
        size = eager.float().abs().max().item() if eager.numel() else 1.0
        step = torch.finfo(eager.dtype).eps if eager.is_floating_point() else 0.0
        torch.testing.assert_close(ours.float(), eager.float(), rtol=2 * step, atol=(step / 16 + 1e-6) * size)


TILES = ("product-128x128x64-w8-s3", "product-64x128x64-w4-s3", "product-128x128x64-w8-s4-tma",
         "product-64x128x64-w4-s4-tma")


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("by_rows", [True, False])
def test_several_tiles(tile: str, by_rows: bool) -> None:
    """Each element is computed by one program; those that take several tiles copy what there is."""
    right = _floats(264, 72).t() if by_rows else _floats(72, 264)
    inputs = (_floats(200, 72), right, _floats(264), _floats(200, 264))
    function = lambda x, w, b, r: F.gelu(product(x, w, b)) + r
    runner = programs.compiled(function, inputs, {"tile:*": tile})
    text = next(iter(runner.kernels.values())).source.text
    assert ("make_tensor_descriptor" in text) is tile.endswith("tma")
    _assert_same(runner(*inputs), function(*inputs))


def test_misaligned_rows_are_not_copied_by_descriptors() -> None:
    names = _options(lambda x, w: product(x, w.t()), _floats(200, 75), _floats(264, 75))
    assert names and not any(name.endswith("tma") for name in names)


def _options(function: Callable[..., Any], *inputs: torch.Tensor) -> list[str]:
    from ptdebug.engine.codegen.triton.form import form_of
    from ptdebug.engine.codegen.triton.products.form import product_of
    from ptdebug.engine.codegen.triton.products.tiling import candidates

    plan = programs.plan_of(function, inputs, CompileContext())
    (group,) = [item for item in plan.items if isinstance(item, Group)]
    found = product_of(form_of(group, plan.program.buffers))
    assert found is not None
    return [tile.name for tile in candidates(found)]


def _group(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[Group, dict[str, Any]]:
    plan = programs.plan_of(function, inputs, CompileContext())
    (group,) = plan.items
    assert isinstance(group, Group)
    return group, dict(plan.program.buffers)


@pytest.mark.parametrize(("function", "begins"), [
    (lambda x, w: product(x, w.t()), "product-"), (lambda x, w: product(x[:1], w.t(), by_rows=True), "looped-")])
def test_the_fastest_tile_is_taken(function: Callable[..., Any], begins: str) -> None:
    """What was timed is recorded; candidates are written when they are to be compiled."""
    group, buffers = _group(function, _floats(200, 64), _floats(264, 64))
    written: list[str] = []

    def timing(sources: Mapping[str, Callable[[], TritonSource]]) -> Mapping[str, float]:
        last = list(sources)[-1]
        written.append(sources[last]().launches[0].tile)
        return {name: 1e-6 if name == last else 5e-6 for name in sources}

    keeping = Keeping()
    source = generate(group, buffers, CompileContext(recorder=keeping, recording=True), {}, timing)
    (decision,) = [d for d in keeping.decisions if d.kind == "tile"]
    assert written == [decision.chosen] == [source.launches[0].tile] and decision.chosen.startswith(begins)
    assert {o.score for o in decision.options} == {1.0, 5.0} and {o.unit for o in decision.options} == {"us"}


def _described(function: Callable[..., Any], *inputs: torch.Tensor, target: str, tile: str = "") -> Kernel:
    plan = programs.plan_of(function, inputs, CompileContext())
    (group,) = [item for item in plan.items if isinstance(item, Group)]
    context = CompileContext(overrides={"tile:*": tile} if tile else {})
    record = describe_kernel(generate(group, dict(plan.program.buffers), context), target)
    assert "rror" not in record.log
    return record


@pytest.mark.parametrize(("target", "instruction"), [("cuda:90", "wgmma.mma_async"), ("cuda:80", "mma.sync")])
def test_tensor_cores_multiply(target: str, instruction: str) -> None:
    inputs = (torch.empty(512, 256, dtype=HALF), torch.empty(512, 256, dtype=HALF), torch.empty(512, dtype=HALF))
    record = _described(lambda x, w, b: F.relu(product(x, w.t(), b)), *inputs, target=target)
    assert instruction in record.outputs["ptx"]
    assert len(re.findall("cp.async.c", record.outputs["ptx"])) > 4 and record.metrics.get("spills", 0) == 0


def test_a_hopper_copies_tiles_by_descriptors() -> None:
    inputs = (torch.empty(512, 256, dtype=HALF), torch.empty(512, 256, dtype=HALF))
    record = _described(lambda x, w: product(x, w.t()), *inputs, target="cuda:90", tile="product-128x128x64-w8-s4-tma")
    assert "cp.async.bulk.tensor" in record.outputs["ptx"] and "wgmma" in record.outputs["ptx"]


@pytest.mark.parametrize("dtype", [INT8, FLOAT8])
def test_a_weight_of_bytes_is_converted_in_registers(dtype: torch.dtype) -> None:
    """What is read of the weight are bytes, and nothing of it is written."""
    with FakeTensorMode():
        inputs = [torch.empty(*shape, dtype=kind, device="cuda")
                  for shape, kind in (((16, 512), HALF), ((1024, 512), dtype), ((1024,), HALF))]
    module = torch.fx.symbolic_trace(lambda x, w, s: (product(x, w.to(HALF).t()) * s,))
    captured = SimpleNamespace(module=module, inputs=tuple(inputs), grad_enabled=False)
    aten = trace(captured, CompileContext(), LOWERINGS)
    plan = scheduler.schedule(lower(aten.module, CompileContext()), CompileContext())
    (group,) = plan.items
    assert isinstance(group, Group)
    record = describe_kernel(generate(group, dict(plan.program.buffers), CompileContext()), "cuda:90")
    assert "mma.sync" in record.outputs["ptx"] and record.log == ""
    assert record.outputs["ttir"].count("tt.store") == 1


def test_what_follows_in_another_order_is_another_kernel() -> None:
    """A norm needs whole rows, and a second product another tile: the candidates say so."""
    function = lambda x, w, v: product(torch.softmax(product(x, w.t()), -1), v.t())
    inputs = (_floats(32, 24), _floats(40, 24), _floats(24, 40))
    plan = programs.plan_of(function, inputs, CompileContext(recording=True))
    assert len(plan.items) == 3
    refused = {candidate.why for candidate in plan.candidates if not candidate.fused}
    assert any("the kernel of a matrix product computes tiles" in why for why in refused), refused
    assert any("what precedes a product" in why for why in refused), refused


def test_offsets_of_a_large_product_have_32_bits() -> None:
    """Rows, columns and terms are never counted together, however many multiplications there are."""
    group, buffers = _group(lambda x, w: product(x, w.t()), *[torch.empty(8192, 8192, dtype=HALF, device="meta")] * 2)
    assert generate(group, buffers, CompileContext()).launches[0].index == "int32"
    group, buffers = _group(lambda x, w: product(x, w.t()), torch.empty(1 << 19, 4096, dtype=HALF, device="meta"),
                            torch.empty(256, 4096, dtype=HALF, device="meta"))
    keeping = Keeping()
    source = generate(group, buffers, CompileContext(recorder=keeping, recording=True))
    assert source.launches[0].index == "int64"
    assert not any(o.name.endswith("tma") for d in keeping.decisions for o in d.options)
