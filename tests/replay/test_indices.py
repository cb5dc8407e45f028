"""Recorded graphs index with what the program indexed with."""
from __future__ import annotations

import msgspec
import torch
from ptdebug.artifacts.decode import revive
from ptdebug.artifacts.fx_graphs import graph_record
from ptdebug.artifacts.records import AnyRecord
from ptdebug.replay.recorded.graphs import graph_module, size_value


def test_a_tuple_of_numbers_is_not_a_list_of_them() -> None:
    traced = torch.fx.symbolic_trace(lambda x: (x[(0, 1)], x[[0, 1]], x[:, None], x[..., [1, 0]]))
    stored = msgspec.json.encode(graph_record(traced.graph, "capture", ""))
    again = graph_module(revive(msgspec.json.decode(stored, type=AnyRecord)), {})
    x = torch.arange(9.0).reshape(3, 3)
    for got, expected in zip(again(x), traced(x), strict=True):
        assert got.shape == expected.shape
        assert torch.equal(got, expected)


def test_sizes_with_true_division() -> None:
    assert size_value("FloatTrueDiv(ToFloat((s1//4)), 2.0*ToFloat((s1//4)))", {"s1": 24}) == 0.5
