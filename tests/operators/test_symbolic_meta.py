"""What captured operators give where sizes vary is laid out as eager's kernels lay it out."""
from __future__ import annotations

import pytest
import torch
from ptdebug.operators.traits import operators_with

OUT, IN = (4, 6, 8), (2, 3, 5)
UPSAMPLINGS = [(operator, meta) for operator, meta in operators_with("symbolic_meta") if "upsample" in str(operator)]


@pytest.mark.parametrize("innermost", ["columns", "channels", "rows"])
@pytest.mark.parametrize(("operator", "meta"), UPSAMPLINGS, ids=lambda part: str(part) if "aten" in str(part) else "")
def test_the_gradient_of_an_upsampling_has_the_strides_of_eager(operator, meta, innermost):
    dims = next(dims for dims in (1, 2, 3) if f"{dims}d" in str(operator))
    gradient = torch.randn(2, 3, *OUT[:dims])
    if innermost != "columns":
        moved = 1 if innermost == "channels" else 2
        gradient = gradient.movedim(moved, -1).contiguous().movedim(-1, moved)
    corners = () if "nearest" in str(operator) else (True,)
    arguments = gradient, OUT[:dims], (2, 3, *IN[:dims]), *corners
    made, expected = meta(*arguments), operator(*arguments)
    assert (made.shape, made.stride()) == (expected.shape, expected.stride())
