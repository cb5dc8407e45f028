"""How the tests of values compare a traced function with the same function in eager."""
from __future__ import annotations

import copy
import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ptdebug.tracer.frames.dispatch import optimize, reset, stats
from ptdebug.tracer.fx.backend_call import CompileOptions


def same(left: Any, right: Any) -> bool:
    """Equal in type and value, tensors also in dtype, shape and strides."""
    if type(left) is not type(right):
        return False
    if isinstance(left, enum.Enum):
        return left is right
    if isinstance(left, torch.Tensor):
        meta = left.dtype == right.dtype and left.shape == right.shape and left.stride() == right.stride()
        return meta and torch.equal(left, right)
    if isinstance(left, Mapping):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right))
    if isinstance(left, SimpleNamespace) or dataclasses.is_dataclass(left) or type(left).__eq__ is object.__eq__:
        own = getattr(left, "__dict__", None)
        return left is right if own is None else same(own, right.__dict__)
    return bool(left == right)


def outcome(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Any]:
    """("returns", value) or ("raises", (type, message))."""
    try:
        return "returns", function(*args, **kwargs)
    except Exception as error:
        return "raises", (type(error), str(error))


class Check:
    """check(function, *args): the traced function does what eager does, twice, in `graphs` graphs without a break.

    `graphs=None` allows any number and breaks. Arguments are copied for each run and compared afterwards.
    """

    def __init__(self) -> None:
        self.targets: list[Any] = []

    def __call__(self, function: Callable[..., Any], *args: Any, graphs: int | None = 1, **kwargs: Any) -> Any:
        self.targets.clear()
        compiled = 0

        def backend(captured: Any, context: Any) -> Callable[..., Any]:
            nonlocal compiled
            compiled += 1
            self.targets.extend(node.target for node in captured.module.graph.nodes if node.op.startswith("call"))
            return captured.module.forward

        fast = optimize(function, CompileOptions(backend))
        breaks = stats()["graph_breaks"]
        expected: Any = None
        for _ in range(2):
            ours, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
            expected = outcome(function, *theirs)
            got = outcome(fast, *ours)
            assert same(got, expected), (got, expected)
            assert same(ours, theirs), "the arguments were changed differently"
        if graphs is not None:
            assert stats()["graph_breaks"] == breaks, stats()["reasons"]
            assert compiled == graphs
        return expected[1]


@pytest.fixture
def check() -> Iterator[Check]:
    """Fresh caches before and after."""
    reset()
    torch.manual_seed(0)
    yield Check()
    reset()
