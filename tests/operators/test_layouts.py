"""The layout of results that eager computes element by element, on a CPU and on a GPU (which none of this needs)."""
from __future__ import annotations

import pytest
import torch
from ptdebug.operators.meta import eager_strides
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

aten = torch.ops.aten
SHAPE = (5, 8, 17, 4)


@pytest.mark.parametrize("operator", [aten.atan2.default, aten.lt.Tensor, aten.mul.Tensor])
@pytest.mark.parametrize("size", [DimDynamic.STATIC, DimDynamic.DYNAMIC])
def test_only_a_cpu_converts_an_expanded_operand_before_the_result_is_laid_out(operator, size: DimDynamic) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    each = StatelessSymbolicContext(dynamic_sizes=[size] * 4)
    expanded = torch.empty(5, 1, 17, 4, dtype=torch.uint8).expand(SHAPE)
    column_major = torch.empty(SHAPE[::-1]).permute(3, 2, 1, 0)
    found = {}
    for device in ("cpu", "cuda"):
        operands = []
        for tensor in (mode.from_tensor(t, symbolic_context=each) for t in (expanded, column_major)):
            with mode:
                operands.append(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device))
        with mode:
            result = operator(*operands)
        strides = eager_strides(operator, result, operands) or result.stride()
        found[device] = [int(stride) for stride in strides]
    assert found["cpu"] == list(operator(expanded, column_major).stride()) == [544, 68, 4, 1]
    assert found["cuda"] == [544, 1, 32, 8]  # the order in which TensorIterator finds both operands
