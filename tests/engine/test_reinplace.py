"""Writes to a part of an input: eager's values, eager's state after an error, and no copy of the whole input."""
from __future__ import annotations

import pytest
import torch
from ptdebug.artifacts.context import CHANGED_INPUTS
from ptdebug.engine.compile import compile_graph

from .programs import capture, clones, recording_context


def by_index(cache, part, at):
    torch.ops.aten.index_put_.default(cache, [None, at], part)
    return cache[:, :2] * 2


def by_select(cache, part, at):
    cache[:, 3].copy_(part[:, 0])
    return cache.sum(0)


def by_slice(cache, part, at):
    cache[:, 5:6].copy_(part)
    return cache @ part[0].t()


def copied(cache, part, at):
    cache.index_copy_(1, at, part)
    return cache[:, :2].exp()


def added(cache, part, at):
    torch.ops.aten.index_put_.default(cache, [None, at], part, accumulate=True)
    return cache * 2


def of_another_dtype(cache, part, at):
    cache[:, 3].copy_(part[:, 0].double())
    return cache.sum(0)


def through_windows(cache, part, at):
    cache[0][2:4][:, 1:3].copy_(part[0, :, :2])
    cache[1][5].copy_(part[0, 0])
    cache[1][5:7].copy_(part[1])
    return cache * 2


def index_in_a_window(cache, part, at):
    torch.ops.aten.index_put_.default(cache[1], [at], part[0])
    return cache * 2


def moves_within(cache, part, at):
    cache[:, 3].copy_(cache[:, 4])
    return cache * 2


def layers(cache, part, at):
    x = part
    for layer in range(4):
        torch.ops.aten.index_put_.default(cache[layer], [at], x[layer])
        x = x + (cache[layer] * 2).amax() + cache[layer][3:5].amax()
    return x


def layers_by_slices(cache, part, at):
    x = part
    for layer in range(4):
        window = cache[:, 4 * layer:4 * layer + 4]
        window[1, 2].copy_(x[0, 0])
        x = x + (window * 2).amax()
    return x


def inputs():
    torch.manual_seed(0)
    return torch.randn(4, 16, 8), torch.randn(4, 1, 8), torch.tensor([7])


def compiled(program, *values):
    context, keeping = recording_context()
    call = compile_graph(capture(program, *values), context)
    assert not context.fallback, context.fallback
    return call, [match for (stage, name), record in keeping.records.items() if name == "write-parts"
                  for match in record.matches]


@pytest.mark.parametrize("program", [by_index, by_select, by_slice, copied, added, of_another_dtype,
                                     through_windows, index_in_a_window, moves_within, layers, layers_by_slices])
def test_only_the_part_is_written(program):
    values = inputs()
    call, matches = compiled(program, *values)
    expected_inputs, own = clones(values), clones(values)
    expected, result = program(*expected_inputs), call(*own)[0]
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(own[0], expected_inputs[0], rtol=0, atol=0)
    assert result.stride() == expected.stride()
    assert len(matches) == 1


def reads_the_old_value(cache, part, at):
    old = cache * 2
    torch.ops.aten.index_put_.default(cache, [None, at], part)
    return old, cache + 1


def reads_where_it_writes(cache, part, at):
    cache[:, 3].copy_(cache[:, 2:5].sum(1))
    return cache * 2


def reads_where_it_writes_next(cache, part, at):
    cache[:, 3].copy_(part[:, 0])
    between = cache[:, 2:6] * 3
    cache[:, 5].copy_(part[:, 0] + 1)
    return between, cache * 2


def checks_afterwards(cache, part, at):
    cache[:, 3].copy_(part[:, 0])
    return part[:, 0].index_select(0, at)


def writes_much(cache, part, at):
    cache[:, :8].copy_(part)
    return cache * 2


def returns_a_copy(cache, part, at):
    cache[:, 3].copy_(part[:, 0])
    return cache.clone(), cache.clone()


@pytest.mark.parametrize("program", [reads_the_old_value, reads_where_it_writes, reads_where_it_writes_next,
                                     checks_afterwards, writes_much])
def test_what_must_not_be_written_early_is_not(program):
    values = (*inputs()[:2], torch.tensor([1]))
    call, matches = compiled(program, *values)
    expected_inputs, own = clones(values), clones(values)
    expected, results = program(*expected_inputs), call(*own)
    for result, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        torch.testing.assert_close(result, wanted)
    torch.testing.assert_close(own[0], expected_inputs[0], rtol=0, atol=0)
    assert matches == []


def test_copies_that_are_returned_are_the_programs_own():
    values = inputs()
    call, _ = compiled(returns_a_copy, *values)
    first, second = call(*values)
    first.zero_()
    assert values[0].any() and second.any() and second.data_ptr() != values[0].data_ptr()


def test_an_index_out_of_range_raises_as_in_eager():
    values = inputs()
    call, matches = compiled(by_index, *values)
    outside = torch.tensor([16])
    expected_inputs, own = clones(values), clones(values)
    with pytest.raises(IndexError) as expected:
        by_index(*expected_inputs[:2], outside)
    with pytest.raises(IndexError) as raised:
        call(*own[:2], outside)
    assert str(raised.value) == str(expected.value) and len(matches) == 1
    assert not hasattr(raised.value, CHANGED_INPUTS)  # so the call runs again in eager, which raises the same
    torch.testing.assert_close(own[0], expected_inputs[0], rtol=0, atol=0)


def test_an_index_out_of_range_raises_before_any_layer_is_written():
    values = inputs()
    call, matches = compiled(layers, *values)
    with pytest.raises(IndexError) as raised:
        call(*clones(values)[:2], torch.tensor([16]))
    assert not hasattr(raised.value, CHANGED_INPUTS) and len(matches) == 1

    def of_two_places(cache, part, at):
        torch.ops.aten.index_put_.default(cache[0], [at], part[0])
        torch.ops.aten.index_put_.default(cache[1], [at + 1], part[1])
        return cache * 2

    assert compiled(of_two_places, *values)[1] == []


def test_an_error_that_comes_first_leaves_the_input_alone():
    def program(cache, table, at):
        cache[:, 3].copy_(table.index_select(0, at))
        return cache * 2

    cache, table = torch.zeros(1, 16, 8), torch.randn(4, 8)
    call, matches = compiled(program, cache, table, torch.tensor([1]))
    with pytest.raises(IndexError):
        call(cache, table, torch.tensor([9]))
    assert not cache.any() and len(matches) == 1


def test_memory_that_overlaps_another_input_runs_in_eager():
    memory = torch.randn(80, 8)
    call, matches = compiled(by_select, *inputs())
    cache, part = memory[:64].view(4, 16, 8), memory[40:44].view(4, 1, 8)
    own = memory.clone()
    expected = by_select(cache, part, None)
    result = call(own[:64].view(4, 16, 8), own[40:44].view(4, 1, 8), torch.tensor([7]))[0]
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(own, memory, rtol=0, atol=0)
    assert len(matches) == 1


def test_two_caches_take_the_same_index_and_other_writes_wait():
    def program(keys, values, other, part, at):
        torch.ops.aten.index_put_.default(keys, [None, at], part)
        torch.ops.aten.index_put_.default(values, [None, at], part * 2)
        other[:, 3].copy_(part[:, 0])
        return keys + values + other

    tensors = (*(torch.randn(4, 16, 8) for _ in range(3)), torch.randn(4, 1, 8), torch.tensor([7]))
    call, matches = compiled(program, *tensors)
    expected_inputs, own = clones(tensors), clones(tensors)
    expected = program(*expected_inputs)
    torch.testing.assert_close(call(*own)[0], expected)
    for mine, wanted in zip(own, expected_inputs, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=0)
    assert len(matches) == 2
    own = clones(tensors)
    with pytest.raises(IndexError):
        call(*own[:4], torch.tensor([16]))
    assert all(torch.equal(mine, before) for mine, before in zip(own, tensors))


def test_a_check_beside_the_writes_is_in_time_or_nothing_is_written_early():
    def program(one, other, table, at):
        one[:, 3].copy_(table.index_select(0, at))
        other[:, 3].copy_(table[0])
        return one * 2, other * 2

    values = torch.zeros(1, 16, 8), torch.zeros(1, 16, 8), torch.randn(4, 8), torch.tensor([1])
    call, matches = compiled(program, *values)
    assert len(matches) == 1  # `other` could be written before the index is found to be out of range
    own = clones(values)
    with pytest.raises(IndexError):
        call(*own[:3], torch.tensor([9]))
    assert not own[0].any() and not own[1].any()
