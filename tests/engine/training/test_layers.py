"""Layers in training: normalization, and recurrent ones with dropout."""
from __future__ import annotations

import copy

import pytest
import torch

from .checking import compile, same

R = torch.randn


def test_batch_norm_in_training():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).double()
    other = copy.deepcopy(model)
    compiled = compile(model)
    for _ in range(3):
        x = R(2, 3, 8, 8, dtype=torch.float64)
        for m, f in ((model, compiled), (other, other)):
            m.zero_grad()
            f(x).pow(2).sum().backward()
        for (name, p), q in zip(model.named_parameters(), other.parameters()):
            same([(name, p), (name, p.grad)], [(name, q), (name, q.grad)])
        for (name, p), q in zip(model.named_buffers(), other.buffers()):
            same([(name, p)], [(name, q)])
    assert compiled.fallbacks == []
    assert len(compiled.contexts) == 1


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(kind):
    model = getattr(torch.nn, kind)(4, 4, 2, batch_first=True)
    other = copy.deepcopy(model)
    compiled = compile(lambda x: model(x)[0].sin())
    x = R(2, 3, 4)
    compiled(x).sum().backward()
    other(x)[0].sin().sum().backward()
    same([(n, p.grad) for n, p in model.named_parameters()], [(n, p.grad) for n, p in other.named_parameters()])
    assert compiled.fallbacks == []


def test_dropout_between_recurrent_layers_at_sizes_that_vary():
    def surroundings(function):
        torch.manual_seed(1)
        return function(torch.ones(3, 2, 4)), torch.rand(2)

    for dropout in (0.0, 0.2, 0.4):
        model = torch.nn.LSTM(4, 5, 2, dropout=dropout)
        compiled = compile(lambda x, model=model: model(x)[0], dynamic=True)
        for got, expected in zip(surroundings(compiled), surroundings(lambda x, model=model: model(x)[0])):
            torch.testing.assert_close(got, expected)
        assert all("dropout between its layers" in why for why in compiled.fallbacks)
        assert bool(compiled.fallbacks) == bool(dropout)


def test_dropout_between_recurrent_layers_at_a_second_length():
    model = torch.nn.LSTM(4, 5, 2, dropout=0.2)
    compiled = compile(lambda x, hidden: model(x.relu(), hidden)[0])
    for length in (5, 2, 3):
        x, hidden = R(length, 2, 4), (R(2, 2, 5), R(2, 2, 5))
        results = []
        for function in (compiled, lambda x, hidden: model(x.relu(), hidden)[0]):
            torch.manual_seed(1)
            results.append((function(x, hidden), torch.rand(2)))
        torch.testing.assert_close(*results)


def test_dropout_of_recurrent_layers_that_is_given_by_name():
    model = torch.nn.LSTM(4, 5, 2)
    weights = list(model.parameters())

    def function(x, h):
        return torch.lstm(x, (h, h), weights, has_biases=True, num_layers=2, dropout=0.5, train=True,
                          bidirectional=False, batch_first=False)[0]

    compiled = compile(function, dynamic=True)
    results = []
    for each in (compiled, function):
        torch.manual_seed(1)
        results.append(each(torch.ones(3, 2, 4), torch.zeros(2, 2, 5)))
    torch.testing.assert_close(*results)
