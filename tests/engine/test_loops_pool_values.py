"""The maximum of windows without its places: eager's values to the bit, NaN, infinities and signed zeros included."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from ptdebug.engine.compile import compile_graph

from .programs import capture, recording_context

SPECIAL = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, 3e-39])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kernel, stride, padding, dilation", [(3, 2, 1, 1), (2, 2, 0, 1), ((3, 2), 1, (1, 0), 2)])
def test_windows_of_special_values(layout, kernel, stride, padding, dilation):
    def program(x):
        return F.max_pool2d(x, kernel, stride, padding, dilation)

    torch.manual_seed(0)
    x = SPECIAL[torch.randint(len(SPECIAL), (2, 18, 9, 8))].to(memory_format=layout)
    context, keeping = recording_context()
    (result,) = compile_graph(capture(program, x), context)(x)
    expected = program(x)
    assert result.stride() == expected.stride()
    assert torch.equal(result.isnan(), expected.isnan())
    there = ~expected.isnan()
    assert torch.equal(result[there].view(torch.int32), expected[there].view(torch.int32))
    lines = [line.text for line in keeping.records["wrapper", ""].lines]
    assert not any("max_pool" in line and "aten" in line for line in lines)


def test_integers():
    def program(x):
        return F.max_pool2d(x, 2), F.max_pool2d(x, 3, 1, 1).relu()

    x = torch.randint(-2**31, 2**31 - 1, (2, 4, 6, 6), dtype=torch.int32)
    x[0, 0] = -2**31
    context, _ = recording_context()
    for result, expected in zip(compile_graph(capture(program, x), context)(x), program(x)):
        assert torch.equal(result, expected)
