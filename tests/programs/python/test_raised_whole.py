"""Under `fullgraph=True` an exception that the program raises is that exception, as in eager."""
from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.tracer.breaks.raised_errors import FullGraphError

from ..checking import call


class OwnError(Exception):
    def __init__(self, first: int, *, second: int = 2) -> None:
        super().__init__(f"{first} and {second}")
        self.first, self.second = first, second


class Plain:
    pass


@dataclasses.dataclass(frozen=True)
class Frozen:
    number: int = 1


class Reads(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return self.missing(x)


READS = Reads()


def inner(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] == 3:
        raise KeyError("three")
    return x * 2


def chained(x: torch.Tensor) -> torch.Tensor:
    try:
        return inner(x + 1)
    except KeyError as error:
        raise OwnError(1, second=3) from error


def in_context(x: torch.Tensor) -> torch.Tensor:
    try:
        return inner(x)
    except KeyError:
        raise ValueError("while it is handled")  # noqa: B904


def in_finally(x: torch.Tensor) -> torch.Tensor:
    try:
        return x + 1
    finally:
        inner(x)


def again(x: torch.Tensor) -> torch.Tensor:
    try:
        with torch.no_grad():
            return inner(x)
    except KeyError:
        raise


def numbers(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x
    raise RuntimeError("no more")


def effects(x: torch.Tensor) -> torch.Tensor:
    SEEN.append("before")
    x.add_(1)
    inner(x)
    SEEN.append("after")
    return x


def caught(x: torch.Tensor) -> Any:
    try:
        return inner(x)
    except KeyError as error:
        return str(error)


def caught_inside(x: torch.Tensor) -> Any:
    return caught(x)


def frozen(x: torch.Tensor) -> torch.Tensor:
    value = Frozen()
    value.number = 2  # type: ignore[misc]
    return x


def unpacked(x: torch.Tensor) -> torch.Tensor:
    a, b = [1, 2, 3]
    return x + a + b


MADE: dict[str, Any] = {}
exec('def asserted(x):\n assert x.sum() > 100, "too small"\n return x + 1', MADE)  # pytest would rewrite it
SEEN: list[str] = []
RAISING: dict[str, Callable[[torch.Tensor], Any]] = {
    function.__name__: function
    for function in (inner, chained, in_context, in_finally, again, effects, caught_inside, frozen, unpacked)
} | {
    "asserted": MADE["asserted"],
    "callee": lambda x: inner(x + 1),
    "module": lambda x: READS(x),
    "generator": lambda x: list(numbers(x)),
    "matmul": lambda x: x @ torch.ones(7, 7),
    "cat": lambda x: torch.cat([x, 3]),  # type: ignore[list-item]
    "view": lambda x: x.view(100),
    "index": lambda x: x[5],
    "index by a tensor": lambda x: x[torch.tensor([5])],
    "add None": lambda x: x + None,
    "key": lambda x: {"b": x}["a"],
    "item": lambda x: [x][3],
    "attribute of a tensor": lambda x: x.foo,  # type: ignore[attr-defined]
    "attribute of an object": lambda x: Plain().foo + x,  # type: ignore[attr-defined]
    "next": lambda x: x + next(iter([])),  # type: ignore[call-overload]
    "global": lambda x: x + missing,  # type: ignore[name-defined]  # noqa: F821
    "arguments": lambda x: inner(x, 3),  # type: ignore[call-arg]
    "int of a text": lambda x: x + int("q"),
    "division": lambda x: x + 1 / 0,
    "check": lambda x: torch._check(x.shape[0] > 100, lambda: "too few"),
    "sorted": lambda x: (x, sorted([1, "a"])),  # type: ignore[type-var]
    "isinstance": lambda x: isinstance(x, 3),  # type: ignore[arg-type]
    "issubclass": lambda x: issubclass(3, int),  # type: ignore[arg-type]
    "len": lambda x: len(3),  # type: ignore[arg-type]
    "format": lambda x: (x, format([1], "x")),
    "indices": lambda x: x + slice(1).indices(-1)[0],
    "own": lambda x: (_ for _ in ()).throw(OwnError(1)),
}


@pytest.mark.parametrize("name", RAISING)
def test_an_exception_of_the_program_is_raised_as_in_eager(name: str) -> None:
    function = RAISING[name]
    SEEN.clear()
    ours, eagers = torch.ones(3), torch.ones(3)
    expected = repr(call(function, eagers)), SEEN.copy()
    SEEN.clear()
    assert (repr(call(ptdebug.compile(function, fullgraph=True), ours)), SEEN) == expected
    assert torch.equal(ours, eagers)


def test_a_call_that_does_not_raise_is_compiled() -> None:
    compiled = ptdebug.compile(chained, fullgraph=True)
    for _ in range(12):
        assert repr(call(compiled, torch.ones(3))) == repr(call(chained, torch.ones(3)))
    assert torch.equal(compiled(torch.ones(4)), torch.full((4,), 4.0))
    assert repr(call(compiled, torch.ones(3))) == repr(call(chained, torch.ones(3)))
    assert torch.equal(compiled(torch.ones(5)), torch.full((5,), 4.0))


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_what_is_no_error_leaves_as_well(error: BaseException) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        raise type(error)(*error.args)

    with pytest.raises(type(error)):
        ptdebug.compile(function, fullgraph=True)(torch.ones(2))


@pytest.mark.parametrize("status", [(), (None,), (3,), ("text",), ((1, 2),)], ids=repr)
def test_sys_exit_raises(status: tuple[Any, ...]) -> None:
    def caught(x: torch.Tensor) -> Any:
        try:
            sys.exit(*status)
        except SystemExit as error:
            return x + 1, error.args

    assert ptdebug.compile(caught, fullgraph=True)(torch.ones(1))[1] == caught(torch.ones(1))[1]
    with pytest.raises(SystemExit) as left:
        ptdebug.compile(lambda x: sys.exit(*status), fullgraph=True)(torch.ones(1))
    assert left.value.args == caught(torch.ones(1))[1]


def test_a_break_before_the_exception_is_an_error_of_fullgraph() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        print(x)
        raise ValueError

    with pytest.raises(FullGraphError, match="print"):
        ptdebug.compile(function, fullgraph=True)(torch.ones(2))


def test_where_eager_does_not_raise_after_all_the_error_is_that_of_fullgraph() -> None:
    def handled(x: torch.Tensor) -> torch.Tensor:
        try:
            isinstance(x, 3)  # type: ignore[arg-type]  # how that is handled is not followed
        except TypeError:
            SEEN.append("handled")
        return x + 1

    SEEN.clear()
    with pytest.raises(FullGraphError, match="isinstance"):
        ptdebug.compile(handled, fullgraph=True)(torch.ones(2))
    assert SEEN == ["handled"]
