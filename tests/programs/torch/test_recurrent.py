"""Recurrent layers over sequences of many lengths: compiled once more, for all of them, where no gradient is needed."""
from __future__ import annotations

import ptdebug
import pytest
import torch
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.runtime.statistics import STATISTICS
from torch import nn

from ..checking import check

LENGTHS = (6, 5, 9, 1, 7)
LAYERS = {
    "gru": lambda: nn.GRU(4, 5, batch_first=True),
    "deep": lambda: nn.GRU(4, 5, num_layers=2, bidirectional=True),
    "tanh": lambda: nn.RNN(4, 5, bidirectional=True, batch_first=True),
    "relu": lambda: nn.RNN(4, 5, num_layers=2, nonlinearity="relu", bias=False),
}


def _program(make, grad: bool):
    def program(compile):
        torch.manual_seed(1)
        layer = make()

        def fn(x, h=None):
            out, last = layer(x, h)
            return out, last, out.relu() * 2

        f, found = compile(fn), []
        for length in LENGTHS:
            shape = (3, length, 4) if layer.batch_first else (length, 3, 4)
            with torch.set_grad_enabled(grad):
                found.append(f(torch.randn(shape)))
        if grad:
            found[-1][2].sum().backward()
        return found, [p.grad for p in layer.parameters()]

    return program


@pytest.mark.parametrize("name", LAYERS)
def test_one_graph_for_all_lengths(name):
    dispatch.reset()  # the layers share a function, whose sizes are remembered
    check(_program(LAYERS[name], grad=False))
    assert STATISTICS.graphs == 3  # the first length, all from 2 on, and 1
    assert STATISTICS.graph_breaks == 0


def test_with_gradients_the_length_is_fixed_and_nothing_differs():
    check(_program(LAYERS["gru"], grad=True))


def test_the_engine_calls_the_layer():
    program = _program(LAYERS["deep"], grad=False)
    expected, got = program(lambda function: function)[0], program(ptdebug.compile)[0]
    for ours, theirs in zip(got, expected, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other)
            assert mine.stride() == other.stride()
