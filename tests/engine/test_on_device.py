"""A captured graph as if it were on a GPU that is not there: here its kernels run in Triton's interpreter."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from ptdebug.engine.aot.attention.kernels import EFFICIENT, FLASH, MATH, Attention
from ptdebug.engine.aot.attention.target_kernels import takers_there
from ptdebug.engine.graphs.on_device import on_device
from ptdebug.engine.toolchain.device_guard import guard_absent_gpus
from torch.amp.autocast_mode import _enter_autocast
from torch.nn import functional as F

from .gpu_driver import gpu_driver, in_cpp
from .programs import Captured, capture, recording_context

pytest.importorskip("triton")
GPU = torch.device("cuda", 0)


def moved(program: Any, *inputs: Any) -> Captured:
    guard_absent_gpus()
    return on_device(capture(program, *inputs), GPU)


def test_what_the_program_makes_on_its_device_is_on_the_gpu() -> None:
    cpu = torch.device("cpu")

    def program(x: torch.Tensor, rows: torch.Tensor) -> Any:
        steps = torch.arange(x.shape[1], device=cpu)
        y = F.layer_norm(x, (6,)).to(cpu) + steps
        return y[:, 1:] + x[rows, None].sum((1, 2))[:, None], y.sum(1)

    x, rows = torch.randn(4, 6), torch.tensor([3, 1, 1, 0])
    graph = moved(program, x, rows)
    assert [value.device for value in graph.inputs] == [GPU, GPU]
    assert not any(value.device.type == "cuda" for value in capture(program, x, rows).inputs)
    with gpu_driver() as driver, torch.no_grad():
        call = in_cpp(graph, recording_context(cpp_wrapper=True)[0])
        assert call is not None
        for ours, theirs in zip(call(x, rows), program(x, rows)):
            torch.testing.assert_close(ours, theirs)
        assert driver.launched


def test_names_of_devices() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    mode = graph.call_function(_enter_autocast, ("cpu", torch.bfloat16, True, None))
    there = graph.call_method("to", (x, "cpu"))
    made = graph.call_function(torch.zeros, (3,))
    graph.output((there, made))
    found = on_device(Captured(torch.fx.GraphModule({}, graph), (1,)), GPU).module.graph
    nodes = {node.name: node for node in found.nodes}
    assert nodes[mode.name].args[0] == "cuda"
    assert nodes[there.name].args[1] == "cpu" and not nodes[made.name].kwargs  # as the program says


def attention(dtype: torch.dtype, *, heads: int = 2, keys: int = 8, size: int = 16, **given: Any) -> Attention:
    query = torch.empty(1, 2, 8, size, dtype=dtype)
    key = torch.empty(1, heads, keys, size, dtype=dtype)
    fields: dict[str, Any] = {"mask": None, "dropout": 0.0, "causal": False, "scale": None, "grouped": False}
    return Attention(query, key, key, **{**fields, **given})


@pytest.mark.parametrize("call, capability, expected", [
    (attention(torch.float16), 90, [FLASH, EFFICIENT, MATH]),
    (attention(torch.bfloat16), 75, [MATH]),
    (attention(torch.float16), 75, [EFFICIENT, MATH]),
    (attention(torch.float32), 90, [EFFICIENT, MATH]),
    (attention(torch.float64), 90, [MATH]),
    (attention(torch.float16, mask=torch.zeros(1, 2, 8, 8, dtype=torch.float16)), 90, [EFFICIENT, MATH]),
    (attention(torch.float16, causal=True, keys=16), 90, [EFFICIENT, MATH]),
    (attention(torch.float16, heads=1, grouped=True), 90, [FLASH, MATH]),
    (attention(torch.float16, size=12), 90, [MATH]),
    (attention(torch.float16, size=512), 90, [EFFICIENT, MATH]),
])
def test_which_kernels_take_an_attention_there(call: Attention, capability: int, expected: list[str]) -> None:
    assert takers_there(call, (capability,)) == expected
    assert takers_there(call, (capability, 120)) == expected
