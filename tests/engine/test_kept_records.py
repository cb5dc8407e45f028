"""A node that is copied keeps its record, which is that of a fresh description."""
from __future__ import annotations

import ptdebug
import pytest
import torch
from ptdebug.artifacts.fx_graphs import graph_record, keep_record, node_record
from ptdebug.engine import stages
from ptdebug.engine.graphs.autograd_graphs import Partitioned


def test_the_halves_of_a_joint_graph(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    described = stages.describe_halves

    def checked(halves: Partitioned):
        yield from described(halves)
        known = {id(n.meta["record"][-1]) for n in halves.joint.module.graph.nodes}
        for half in (halves.forward, halves.backward):
            graph = half.module.graph
            before = graph_record(graph, "half", "capture")
            compared.append(sum(id(record) in known for record in before.nodes))
            for node in graph.nodes:
                del node.meta["record"]
            assert graph_record(graph, "half", "capture") == before

    monkeypatch.setattr(stages, "describe_halves", checked)
    monkeypatch.setenv("PTDEBUG_GRAPH_CACHE", "0")
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    with ptdebug.record("recording", str(tmp_path)) as recording:
        ptdebug.compile(model)(torch.randn(3, 4)).sum().backward()
    assert len(compared) == 2 and min(compared) > 4
    assert not [absent for _, absent in recording.absents() if "failed to describe" in absent.why]


def test_a_record_that_is_out_of_date_is_not_kept() -> None:
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    node = graph.call_function(torch.add, (x, 1), name="sum")
    record = node_record(node, "capture")
    copies = torch.fx.Graph()
    made = copies.call_function(torch.add, (copies.placeholder("x"), 1), name="sum")
    keep_record(node, made)
    assert node_record(made, "capture") is record
    node.args = (y, 1)
    other = torch.fx.Graph()
    made = other.call_function(torch.add, (other.placeholder("y"), 1), name="sum")
    keep_record(node, made)
    assert "record" not in made.meta and node_record(made, "capture") == node_record(node, "capture")
