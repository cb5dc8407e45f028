"""What eager refuses and fake kernels do not is refused compiled, of varying sizes too; what is right is let pass."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.tracer.frames.dispatch import reset, stats

LONGS, FLOATS, INTS = torch.tensor([0, 1]), torch.tensor([0.0]), torch.tensor([0], dtype=torch.int32)

REFUSED: list[Callable[[torch.Tensor], Any]] = [
    lambda x: F.softmax(x, 5), lambda x: F.log_softmax(x, -3), lambda x: x.cummax(2), lambda x: x.sort(4),
    lambda x: x.sort(stable=True, dim=4), lambda x: x[:0].max(0), lambda x: x[:0].mode(0),
    lambda x: x[:0].max(), lambda x: torch.min(x[:, :0]), lambda x: torch.add(x, x, alpha=1e60),
    lambda x: torch.addcdiv(x, x, x + 1, value=-1e60),
    lambda x: x.index_select(0, LONGS[None]), lambda x: x.index_select(2, LONGS), lambda x: x.index_select(0, FLOATS),
    lambda x: x.index_add(0, LONGS, x[:2, :1]), lambda x: x.index_add(0, FLOATS, x[:1]),
    lambda x: x.index_copy(0, INTS, x[:1]),
    lambda x: x.index_put((LONGS,), x), lambda x: x.diagonal_scatter(x[0]), lambda x: x.masked_select(x),
    lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2], dtype=torch.int32)), lambda x: torch.bucketize(x, x),
    lambda x: F.celu(x, 0.0), lambda x: x[0].clone().clamp_(x), lambda x: x[0].clone().lt_(x),
    lambda x: (x > 1)[0].bitwise_and_(x > 1), lambda x: x.clone().mul_(1j), lambda x: x.clone().sub_(x + 1j),
    lambda x: x.long().mul_(2.5), lambda x: x.int().mul_(x), lambda x: (x > 1).mul_(2), lambda x: (x > 1).add_(x.int()),
    lambda x: x.to(torch.uint16) + x.int(), lambda x: torch.cat([x.to(torch.uint32), x.long()]),
    lambda x: torch.where(x > 1, x.to(torch.uint16), x.int()), lambda x: torch.add(x > 1, x > 2, alpha=0.5),
]  # fmt: skip

TAKEN: list[Callable[[torch.Tensor], Any]] = [
    lambda x: F.softmax(x, -2), lambda x: x.sum().cummax(0), lambda x: x.sort(stable=True), lambda x: x.max(1),
    lambda x: x.index_select(-1, INTS), lambda x: x.index_add(1, LONGS, x[:, :2]),
    lambda x: x[0].index_add(0, LONGS, x[0, :2]),
    lambda x: x.index_copy(0, LONGS[:1], x[:1]), lambda x: x.index_put((LONGS,), x[:1]),
    lambda x: x.index_put((LONGS,), x[:2]),
    lambda x: x.index_put((x > 1,), x[0, 0]), lambda x: x.diagonal_scatter(2 * x.diagonal()),
    lambda x: x.clone().lt_(x[0]),
    lambda x: x.int().mul_(x.long()).lt_(2.5), lambda x: (x > 1).mul_(x > 2), lambda x: x.int().mul_(x.long().sum()),
    lambda x: torch.add(x > 1, x > 2, alpha=1), lambda x: torch.add(x > 1, x, alpha=0.5),
    lambda x: x.to(torch.uint16) * x, lambda x: x.to(torch.uint16).copy_(x), lambda x: x.clone().mul_(x.int()),
    lambda x: (x + 1j).mul_(x), lambda x: x.clone().eq_(x + 1j), lambda x: x.clone().add_(x[:, :1]),
    lambda x: x.sum().squeeze(-1) + 1, lambda x: torch.squeeze(x.sum(), (-1,)) + 1, lambda x: x.sum().squeeze_(-1) + 1,
]  # fmt: skip


def _outcome(function: Callable[[torch.Tensor], Any], rows: int) -> Any:
    try:
        return str(function(torch.arange(4.0 * rows).view(rows, 4)))
    except Exception as error:
        return type(error), str(error).split("\n")[0]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_as_in_eager(place: int, dynamic: bool | None) -> None:
    """Its result used or not."""
    function = REFUSED[place]
    assert isinstance(_outcome(function, 3), tuple)
    for program in (function, lambda x: (function(x), x + 1)[1]):
        assert _outcome(ptdebug.compile(program, dynamic=dynamic), 3) == _outcome(program, 3)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("place", range(len(TAKEN)))
def test_what_eager_takes_is_captured(place: int, dynamic: bool | None) -> None:
    reset()
    compiled = ptdebug.compile(TAKEN[place], dynamic=dynamic)
    assert [_outcome(compiled, rows) for rows in (3, 5)] == [_outcome(TAKEN[place], rows) for rows in (3, 5)]
    assert stats()["graph_breaks"] == 0


def _set(whole: torch.Tensor, index: Any, value: torch.Tensor) -> torch.Tensor:
    whole[index] = value
    return whole


THREE = torch.arange(3)
OF_KEPT_VALUES: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x.unique().squeeze(), lambda x: x.unique()[None].squeeze(1).shape, lambda x: x[x > 2].squeeze_(),
    lambda x: x.unique()[-2:] * 2, lambda x: _set(x.unique(), slice(-2, None), torch.tensor(9.0)),
    lambda x: x[x > 3.5].select(0, 1) * 2, lambda x: x[x > 3.5].index_select(0, THREE[:1]) * 2,
    lambda x: x[x > 3.5].scatter(0, THREE[:1], 7.0) + 1,
    lambda x: torch.zeros(9).index_put((THREE,), x.unique(), accumulate=True),
    lambda x: _set(torch.zeros(2, 4), (slice(None), THREE), x.unique()),
    lambda x: torch.slice_scatter(torch.zeros(9), x.unique(), 0, 0, 3),
    lambda x: torch.select_scatter(torch.zeros(2, 3), x.unique(), 0, 1),
    lambda x: torch.diagonal_scatter(torch.zeros(3, 3), x.unique()),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(OF_KEPT_VALUES)))
def test_sizes_that_the_data_decide_are_checked_when_they_are_known(place: int) -> None:
    """Three values fit; one is squeezed or broadcast, or refused; two are refused. Of none, none is looked up."""
    function = OF_KEPT_VALUES[place]
    compiled = ptdebug.compile(function)
    for given in ([1.0, 2.0, 3.0], [4.0, 4.0, 4.0], [1.0, 3.0, 3.0]):
        outcomes = []
        for called in (function, compiled):
            try:
                outcomes.append(str(called(torch.tensor(given))))
            except Exception as error:
                outcomes.append(type(error).__name__)
        assert outcomes[0] == outcomes[1]


def test_a_size_that_python_asks_for_breaks_the_graph() -> None:
    """`item` needs one element; that is no internal error."""
    reset()
    compiled = ptdebug.compile(lambda x: (x * 2)[x > 3].item(), backend="eager")
    assert compiled(torch.tensor([1.0, 4.0])) == 8.0
    assert stats()["graph_breaks"] == 1


def test_slices_from_the_end_of_sizes_that_vary() -> None:
    """Where there are fewer elements they begin at 0; a graph serves several such sizes."""

    def program(x: torch.Tensor) -> Any:
        return x[-5:-2] * 2, x[-5::2] * 2, _set(x * 1, slice(-5, -1), torch.tensor(9.0))

    compiled = ptdebug.compile(program, dynamic=True)
    for rows in (8, 4, 3, 6):
        x = torch.arange(2.0 * rows).view(rows, 2)
        assert str(compiled(x)) == str(program(x))
