"""Short rows in blocks: which kernels have them, and that the values are those of the rows one by one."""
from __future__ import annotations

import ptdebug
import pytest
import torch
import torch.nn.functional as F

from .cpp_checking import built, check

ONE_BY_ONE = {"row-blocks:*": "one-by-one"}


def draw(*size, dtype=torch.float32):
    return (torch.randn(*size, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)


@pytest.mark.parametrize(("function", "inputs"), [
    (lambda x: x.log_softmax(-1), [draw(4, 128, 20)]),
    (lambda x: x.softmax(-1) * 2, [draw(96, 33)]),
    (lambda x, w: F.layer_norm(x + 1, (40,), w), [draw(72, 40), draw(40)]),
    (lambda x: (x.logsumexp(-1), x.var(-1), x.amax(-1)), [draw(4096, 17, dtype=torch.float64)]),
    (lambda x: x.softmax(-1), [draw(512, 24, dtype=torch.bfloat16)]),
    (lambda x, y: (F.normalize(x * y, dim=-1), (x * y).argmax(-1)), [draw(128, 64), draw(128, 64)]),
], ids=["log_softmax", "softmax", "layer norm", "several", "bfloat16", "positions"])
def test_values_do_not_depend_on_blocks(function, inputs):
    made = check(function, *inputs)
    assert "_row < " in made.source.text
    other = built(function, *inputs, overrides=ONE_BY_ONE)
    assert "_row < " not in other.source.text
    for got, expected in zip(made(*inputs), other(*inputs)):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)


def test_rows_that_are_not_finite():
    x = draw(64, 20)
    x[3], x[9, 4], x[10, 2] = float("-inf"), float("nan"), float("inf")
    check(lambda x: (x.log_softmax(-1), x.softmax(-1)), x)


@pytest.mark.parametrize("inputs", [
    [draw(64, 200)], [draw(16, 20)], [draw(64, 6)], [draw(512, 64, dtype=torch.float16)],
], ids=["long rows", "few", "lanes", "float16"])
def test_where_there_are_none(inputs):
    assert "_row < " not in check(lambda x: x.log_softmax(-1), *inputs).source.text


def test_a_block_that_is_not_whole():
    assert "_row < (" in check(lambda x: x.log_softmax(-1), draw(131, 20)).source.text


def test_a_number_of_rows_that_varies():
    function = lambda x: F.layer_norm(x.log_softmax(-1), (20,))
    compiled = ptdebug.compile(function)
    with ptdebug.record("rows") as recording:
        for rows in (64, 100, 3, 32, 77):
            torch.testing.assert_close(compiled(draw(rows, 20)), function(draw(rows, 20)))
    assert {d.chosen for _, d in recording.decisions(kind="row-blocks")} == {"blocks"}


def test_one_pass_needs_none():
    assert "_row < " not in check(lambda x: x.sum(-1).sqrt(), draw(512, 32).abs()).source.text
