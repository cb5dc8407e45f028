"""The minimum cut, against all cuts."""
from __future__ import annotations

import random
from itertools import chain, combinations

import pytest
from ptdebug.engine.aot.autograd.max_flow import SINK, SOURCE, UNBOUNDED, Network, Unbounded


def build(edges, vertices):
    network = Network()
    names = [SOURCE, SINK, *(network.vertex() for _ in range(vertices))]
    for start, end, capacity in edges:
        network.edge(names[start], names[end], capacity)
    return network


def price(side, edges):
    return sum(capacity for start, end, capacity in edges if start not in side and end in side)


def cuts(vertices):
    inner = range(2, vertices + 2)
    for chosen in chain.from_iterable(combinations(inner, n) for n in range(vertices + 1)):
        yield {1, *chosen}


@pytest.mark.parametrize("seed", range(60))
def test_the_cut_is_the_cheapest_and_of_those_nearest_to_the_sink(seed):
    choice = random.Random(seed)
    vertices = choice.randint(1, 7)
    count = choice.randint(2, 20)
    edges = [(choice.choice([0, *range(2, vertices + 2)]), choice.randint(1, vertices + 1), choice.randint(1, 9))
             for _ in range(count)]
    edges = [edge for edge in edges if edge[0] != edge[1]]
    side = build(edges, vertices).cut()
    cheapest = min(price(other, edges) for other in cuts(vertices))
    assert price(side, edges) == cheapest
    assert side == min((other for other in cuts(vertices) if price(other, edges) == cheapest), key=len)


def test_a_network_without_a_finite_cut():
    with pytest.raises(Unbounded):
        build([(0, 2, UNBOUNDED), (2, 1, UNBOUNDED)], 1).cut()


def test_a_long_chain_needs_no_recursion():
    length = 5000
    edges = [(0, 2, UNBOUNDED), *((i, i + 1, 5 + (i != 700)) for i in range(2, length)), (length, 1, UNBOUNDED)]
    side = build(edges, length).cut()
    assert 701 in side and 700 not in side
