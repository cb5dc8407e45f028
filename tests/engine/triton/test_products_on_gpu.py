"""Matrix products under max-autotune on a GPU: measured, run, trained, captured; as near to the truth as eager."""
from __future__ import annotations

import copy
from collections.abc import Callable

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.compile import compile_graph
from torch import nn

from tests.devices import GPU

from ..programs import Keeping, capture

pytestmark = GPU
HALF = torch.bfloat16


def _floats(*shape: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return (torch.randn(*shape, device="cuda", generator=generator) * 0.2).to(HALF)


def _bytes(*shape: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return torch.randint(-127, 128, shape, device="cuda", dtype=torch.int8, generator=generator)


def _mlp(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, w, b)) + r


def _quantized(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w.to(x.dtype) * s[:, None])


def _assert_near(got: torch.Tensor, function: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...]) -> None:
    """At most twice as far from the truth as eager."""
    exact = function(*[v.double() if v.is_floating_point() else v for v in inputs])
    off, eager = ((found.double() - exact).abs().max().item() for found in (got, function(*inputs)))
    assert off <= 2 * eager + 1e-6, (off, eager)


def _of_mlp(rows: int, terms: int, columns: int) -> tuple[torch.Tensor, ...]:
    return _floats(rows, terms), _floats(columns, terms), _floats(columns), _floats(rows, columns)


def _of_bytes(rows: int) -> tuple[torch.Tensor, ...]:
    return _floats(rows, 512), _bytes(640, 512), _floats(640)


CASES: dict[str, tuple[Callable[..., torch.Tensor], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "whole tiles": (_mlp, lambda: _of_mlp(512, 256, 768)),
    "parts of tiles": (_mlp, lambda: _of_mlp(333, 264, 584)),
    "misaligned rows": (_mlp, lambda: _of_mlp(130, 75, 201)),
    "few rows": (_mlp, lambda: _of_mlp(3, 512, 768)),
    "int8": (_quantized, lambda: _of_bytes(7)),
    "int8, one row": (_quantized, lambda: _of_bytes(1)),
    "int8, many rows": (_quantized, lambda: _of_bytes(300)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_tile_is_right(name: str) -> None:
    """Each candidate, forced."""
    function, make = CASES[name]
    inputs = make()
    options = _run(function, inputs, {"triton-matmul:*": "tiles"})
    assert len(options) > 1
    for option in options:
        _run(function, inputs, {"triton-matmul:*": "tiles", "tile:*": option})


def _run(
    function: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], overrides: dict[str, str]
) -> list[str]:
    """Run it, compare, and give the options of the product's tile."""
    keeping = Keeping()
    context = CompileContext(recorder=keeping, recording=True, overrides=overrides)
    with torch.no_grad():
        call = compile_graph(capture(function, *inputs), context)
        assert not context.fallback, context.fallback
        _assert_near(call(*inputs)[0], function, inputs)
    assert not [d for d in keeping.decisions if d.kind == "fallback" and "mm" in d.subject and "fused" in d.subject]
    return [o.name for d in keeping.decisions if d.kind == "tile" for o in d.options if o.name.startswith("product")]


def test_what_is_not_aligned_is_copied_first() -> None:
    """Descriptors need addresses of 16 bytes: a window on an input may begin anywhere."""
    function, (x, w, b, r) = _mlp, _of_mlp(512, 256, 768)
    keeping = Keeping()
    tile = "product-128x128x64-w8-s4-tma"
    context = CompileContext(recorder=keeping, recording=True, overrides={"triton-matmul:*": "tiles", "tile:*": tile})
    shifted = torch.zeros(x.numel() + 1, dtype=HALF, device="cuda")[1:].view_as(x).copy_(x)
    with torch.no_grad():
        call = compile_graph(capture(function, x, w, b, r), context)
        assert not context.fallback, context.fallback
        for given in (x, shifted):
            _assert_near(call(given, w, b, r)[0], function, (x, w, b, r))


def test_times_are_recorded_and_nothing_of_the_program_changes() -> None:
    """Random numbers and memory that the program sees are as without measuring."""
    function, inputs = _mlp, _of_mlp(512, 256, 768)
    keeping = Keeping()
    context = CompileContext(recorder=keeping, recording=True, max_autotune=True)
    state = torch.cuda.get_rng_state()
    with torch.no_grad():
        call = compile_graph(capture(function, *inputs), context)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    (decision,) = [d for d in keeping.decisions if d.kind == "triton-matmul"]
    assert {o.name for o in decision.options} == {"library", "tiles"}
    assert all(o.score and o.unit == "us" for o in decision.options)
    _assert_near(call(*inputs)[0], function, inputs)


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_training(mode: str) -> None:
    """Gradients, and several steps of a captured graph."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 128)).cuda().to(HALF)
    twin, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    compiled = ptdebug.compile(model, mode=mode)
    for _ in range(8):
        x = _floats(384, 256)
        compiled(x).square().mean().backward()
        twin(x).square().mean().backward()
        exact(x.double()).square().mean().backward()
        for ours, eager, true in zip(model.parameters(), twin.parameters(), exact.parameters()):
            scale = true.grad.abs().max()
            off, theirs = ((p.grad.double() - true.grad).abs().max() / scale for p in (ours, eager))
            assert off <= 2 * theirs + 2e-2
            ours.grad = eager.grad = true.grad = None
