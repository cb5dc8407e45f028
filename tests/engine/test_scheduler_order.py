"""The innermost loop: chosen by cost, any choice gives the same values."""
from __future__ import annotations

import pytest
import torch
from ptdebug.engine.compile import compile_graph

from .programs import capture, recording_context


def compiled(program, *inputs, **settings):
    context, keeping = recording_context(**settings)
    call = compile_graph(capture(program, *inputs), context)
    assert not context.fallback, context.fallback
    results = call(*inputs)
    (group,) = [g for g in keeping.records["schedule", ""].groups if g.kind == "loops"]
    return results, group, [d for d in keeping.decisions if d.kind == "loop-order"]


def heavy(x):
    y = x * 2
    return torch.cat([y, y.sin(), y.cos(), y.exp()], -1)


def test_a_long_loop_goes_inside_a_short_one_where_there_is_much_to_compute():
    x = torch.randn(5, 40, 3)
    results, group, (decision,) = compiled(heavy, x)
    torch.testing.assert_close(results[0], heavy(x))
    assert results[0].stride() == heavy(x).stride()
    assert group.loop_order[-1].endswith("<200")  # 5 and 40 are one loop
    assert decision.chosen != decision.options[0].name and decision.options[1].score < decision.options[0].score
    forced, group, _ = compiled(heavy, x, overrides={"loop-order:*": decision.options[0].name})
    torch.testing.assert_close(forced[0], results[0])
    assert group.loop_order[-1].endswith("<3")


@pytest.mark.parametrize("program, shape", [
    (lambda x: x.transpose(0, 1) + 1, (40, 3)),  # little to compute: memory decides
    (lambda x: torch.cat([x.sin(), x.cos()], -1), (5, 40)),  # long enough
    (lambda x: x.sin().sum(0), (40, 3)),  # not pointwise
    (lambda x: torch.zeros(4, 3).index_add(0, torch.tensor([0, 1, 1, 3, 0] * 8), x.sin()), (40, 3)),  # order matters
], ids=["light", "long", "reduction", "scatter"])
def test_the_order_of_memory_stays(program, shape):
    x = torch.randn(shape)
    context, keeping = recording_context()
    results = compile_graph(capture(program, x), context)(x)
    torch.testing.assert_close(results[0], program(x))
    assert all(d.chosen == d.options[0].name for d in keeping.decisions if d.kind == "loop-order")


def test_statistics_of_rows_do_not_turn_the_loops_over_rows():
    """What is read once for a row counts for nothing: memory is contiguous along the row."""
    def program(x, w, b):
        return torch.nn.functional.gelu(torch.nn.functional.group_norm(x, 8, w, b))

    inputs = torch.randn(2, 8, 300), torch.randn(8), torch.randn(8)
    context, keeping = recording_context()
    results = compile_graph(capture(program, *inputs), context)(*inputs)
    torch.testing.assert_close(results[0], program(*inputs))
    lines = [line.text for line in keeping.records["kernels", "cpp"].lines]
    assert not any("[128]" in line for line in lines), "no block of lanes over channels"


def test_what_was_fused_with_a_sum_of_columns_runs_along_memory_in_a_larger_group():
    def program(q, k):
        q, k = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
        return (q * k.sum(1, keepdim=True)).sum(-1), k, q

    inputs = torch.randn(8, 200, 32), torch.randn(8, 200, 32)
    context, keeping = recording_context()
    results = compile_graph(capture(program, *inputs), context)(*inputs)
    for result, expected in zip(results, program(*inputs)):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    lines = [line.text for line in keeping.records["kernels", "cpp"].lines]
    assert sum("< 6400;" in line for line in lines) == 2  # 200 rows of 32 are one loop, for q and for k
