"""What is known of masks made of positions is true of each element, for random ways of making them."""
from __future__ import annotations

import logging
import math
import random
from functools import partial

import pytest
import torch
from ptdebug.engine.aot.attention import position_masks
from ptdebug.engine.aot.attention.position_masks import ABOVE_DIAGONAL, Position, Same, Triangle
from torch.fx.experimental.proxy_tensor import make_fx

NUMBERS = (-2, -1, 0, 1, 2, 5, 0.0, 1.0, -math.inf, True, False, 200, 256.05, -1e-9)
DTYPES = (torch.int32, torch.float16, torch.uint8, torch.int8, torch.bfloat16)
COMPARED = (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)


def changed(draw: random.Random, made: list[torch.Tensor]) -> torch.Tensor:
    """Something of what has been made so far."""
    a, b = draw.choice(made), draw.choice(made)
    number = draw.choice(NUMBERS)
    dims = a.dim()
    dim = draw.randrange(dims)
    return draw.choice([
        lambda: torch.arange(draw.choice([0, 0, 1, 2]), 5),
        lambda: torch.full((draw.choice([1, 5]), 5), number),
        lambda: a.unsqueeze(draw.randrange(dims + 1)), lambda: a.transpose(0, -1), lambda: a.narrow(dim, 0, 1),
        lambda: a.expand(*[draw.choice([n, 5]) if n == 1 else n for n in a.shape]), lambda: a.expand(2, *a.shape),
        lambda: a.narrow(dim, 1, a.shape[dim] - 1), lambda: a[..., :: 2], lambda: a.squeeze(), lambda: a.reshape(-1),
        lambda: a.permute(*draw.sample(range(dims), dims)), lambda: a.to(draw.choice(DTYPES)),
        lambda: draw.choice(COMPARED)(a, b), lambda: draw.choice(COMPARED)(a, b),
        lambda: draw.choice(COMPARED)(a, number),
        lambda: a + b, lambda: a - b, lambda: a + number, lambda: a - number, lambda: number - a, lambda: a * number,
        lambda: a & b, lambda: a | b, lambda: ~a, lambda: a.logical_not(), lambda: torch.logical_and(a, b),
        lambda: torch.where(a, number, 0), lambda: torch.where(a, b, number), lambda: a.masked_fill(b, number),
        lambda: a.tril(), lambda: a.triu(1), lambda: a.cumsum(dim), lambda: torch.cat([a, b], dim),
        lambda: torch.cat([a.narrow(dim, 0, 1) - 1, a], dim), lambda: torch.nn.functional.pad(a, (1, 0)),
        lambda: a[torch.arange(2)], lambda: a.select(dim, 0).unsqueeze(0),
    ])()


def claims(known: object, value: torch.Tensor) -> torch.Tensor:
    """The value that follows from what is known."""
    if isinstance(known, Same):
        return torch.full(value.shape, known.number, dtype=value.dtype)
    index = lambda dim: torch.arange(value.shape[dim]).reshape([-1 if d == dim else 1 for d in range(value.dim())])
    if isinstance(known, Position):
        return (index(known.dim) + known.offset).expand(value.shape).to(value.dtype)
    assert isinstance(known, Triangle)
    past = (index(known.column) <= index(known.row)).expand(value.shape)
    return torch.where(past, torch.tensor(known.past), torch.tensor(known.after)).to(value.dtype)


@pytest.fixture
def quiet():
    """Fake tensors log what does not fit."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("quiet")
def test_what_is_known_is_true(seed: int) -> None:
    draw = random.Random(seed)

    def function():
        made = [torch.arange(5), torch.arange(5)[:, None]]
        for _ in range(40):
            try:
                made.append(changed(draw, made))
            except Exception:  # of shapes or dtypes that do not fit
                continue
        return made

    graph = make_fx(function, tracing_mode="fake")().graph
    evaluation, values = position_masks._Evaluation(), {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        try:
            values[node] = node.target(*torch.fx.node.map_arg(node.args, values.__getitem__), **node.kwargs)
        except (IndexError, KeyError, RuntimeError):  # what only fake tensors take
            continue
        known = evaluation.known(node)
        if known is not None and isinstance(values[node], torch.Tensor):
            torch.testing.assert_close(claims(known, values[node]), values[node], rtol=0, atol=0)


def test_triangles_are_found_in_both_directions() -> None:
    n = 6
    ways = (
        lambda q, k: k <= q, lambda q, k: q >= k, lambda q, k: k < q + 1, lambda q, k: ~(k > q),
        lambda q, k: q - -1 > k,
        lambda q, k: torch.where(q < k, -math.inf, 0.0), lambda q, k: torch.zeros(n, n).masked_fill(k > q, -math.inf),
        lambda q, k: torch.ones(n, n, dtype=torch.bool).tril(), lambda q, k: (k <= q) & (q >= 0),
        lambda q, k: (q[None] >= k[None])[0].squeeze(0) | (k < 0),
    )
    for number, way in enumerate(ways):
        function = partial(lambda way: way(torch.arange(n)[:, None], torch.arange(n)), way)
        graph = make_fx(function, tracing_mode="fake")().graph
        (mask,) = graph.output_node().all_input_nodes
        found = position_masks.hidden_by_position(mask, n, n)
        assert found == ABOVE_DIAGONAL or number == len(ways) - 1, number  # `select` may hide it


@pytest.mark.parametrize("way", [
    lambda: (torch.zeros(4, 4, dtype=torch.uint8) - 1) < 1, lambda: torch.zeros(4, 4, dtype=torch.uint8) > -1,
    lambda: (torch.full((4, 4), 100, dtype=torch.int8) + 100) > 0, lambda: torch.zeros(4, 4, dtype=torch.half) > -1e-10,
    lambda: torch.full((4, 4), 256, dtype=torch.half) < 256.05,
    lambda: (torch.arange(4, dtype=torch.int32) + 2**30 + 2**30).expand(4, 4) >= 0,
    lambda: torch.arange(257, 261).expand(4, 4) > torch.full((4, 4), 256, dtype=torch.bfloat16),
    lambda: ~torch.cat([torch.ones(2, 4, dtype=torch.bool), torch.ones(2, 4, dtype=torch.int64)]) == 0,
])  # fmt: skip
def test_numbers_that_wrap_around_or_are_rounded(way) -> None:
    assert not way().all()
    (mask,) = make_fx(way, tracing_mode="fake")().graph.output_node().all_input_nodes
    assert position_masks.hidden_by_position(mask, 4, 4) is None
