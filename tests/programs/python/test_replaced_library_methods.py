"""Methods of classes of torch and of other libraries that a program replaces after the first call."""
from __future__ import annotations

import collections
import fractions
import pathlib
import statistics
from collections.abc import Callable
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.records import Guards, Recompile
from ptdebug.tracer.guards.class_members import members_of
from torch import nn
from transformers.activations import NewGELUActivation

X = torch.tensor([[1.0, -2.0]])


class Mine(nn.Module):
    """A module of the program around two of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.act = nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.linear(x))


class OverSuper(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1


class Inherits(nn.Linear):
    pass


ACT = nn.Tanh()


def unbound(x: torch.Tensor) -> torch.Tensor:
    return nn.Tanh.forward(ACT, x)


def _local() -> nn.Module:
    class Local(nn.Tanh):
        pass

    return nn.Sequential(Local())


def other(self: Any, *args: Any) -> torch.Tensor:
    return args[0] * 3


CASES: list[tuple[type, str, Callable[[], Any]]] = [
    (nn.Tanh, "forward", nn.Tanh),
    (nn.Tanh, "forward", Mine),
    (nn.Tanh, "forward", lambda: nn.Sequential(nn.Linear(2, 2), nn.Tanh())),
    (nn.Tanh, "forward", lambda: unbound),
    (nn.Tanh, "forward", _local),
    (nn.Tanh, "__call__", Mine),
    (nn.Module, "__call__", lambda: nn.Sequential(Mine())),
    (nn.Module, "_call_impl", lambda: nn.Sequential(Mine())),
    (nn.Linear, "forward", lambda: nn.Sequential(OverSuper(2, 2))),
    (nn.Linear, "forward", lambda: nn.Sequential(Inherits(2, 2))),
    (Inherits, "forward", lambda: nn.Sequential(Inherits(2, 2))),  # where there was none of its own
    (nn.Dropout, "forward", lambda: nn.Sequential(nn.Dropout()).eval()),
    (nn.modules.batchnorm._BatchNorm, "forward", lambda: nn.Sequential(nn.BatchNorm1d(2)).eval()),
    (NewGELUActivation, "forward", lambda: nn.Sequential(NewGELUActivation())),
]


@pytest.mark.parametrize(("cls", "name", "make"), CASES)
def test_a_method_that_is_replaced_is_seen(
    cls: type, name: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make()
    inner = program.forward if isinstance(program, nn.Module) else program
    compiled = ptdebug.compile(inner)
    first = compiled(X)
    torch.testing.assert_close(first, inner(X))
    with monkeypatch.context() as patch:
        patch.setattr(cls, name, other)
        torch.testing.assert_close(compiled(X), inner(X))
    torch.testing.assert_close(compiled(X), first)


OF_A_LIBRARY: list[tuple[type, str, Any, Callable[[torch.Tensor], torch.Tensor]]] = [
    (pathlib.PurePath, "name", property(lambda self: "longer than before"), lambda x: x + len(PATH.name)),
    (fractions.Fraction, "numerator", property(lambda self: 11), lambda x: x + THREE_QUARTERS.numerator),
    (
        fractions.Fraction, "from_float", classmethod(lambda cls, f: fractions.Fraction(1, 7)),
        lambda x: x + fractions.Fraction.from_float(0.5).denominator,
    ),
    (fractions.Fraction, "from_float", staticmethod(lambda f: THREE_QUARTERS),
     lambda x: x + fractions.Fraction.from_float(0.5).denominator),
    (nn.MultiheadAttention, "merge_masks", lambda self, *masks: (None, 5),
     lambda x: x + (ATTENTION.merge_masks(None, None, x)[1] or 1)),
    (statistics.NormalDist, "mean", property(lambda self: 4.0), lambda x: x + NORMAL.mean),
    (statistics.NormalDist, "variance", property(lambda self: 9.0), lambda x: x + SubNormal(1.0, 2.0).variance),
    (collections.UserDict, "copy", lambda self: {1: 1, 2: 2}, lambda x: x + len(collections.UserDict(a=1).copy())),
]  # fmt: skip
PATH, THREE_QUARTERS, NORMAL = pathlib.PurePosixPath("/a/bc"), fractions.Fraction(3, 4), statistics.NormalDist(1.0, 2.0)
ATTENTION = nn.MultiheadAttention(2, 1)


class SubNormal(statistics.NormalDist):
    pass


@pytest.mark.parametrize(("cls", "name", "new", "program"), OF_A_LIBRARY)
def test_a_property_or_method_of_any_kind_that_is_replaced_is_seen(
    cls: type, name: str, new: Any, program: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = ptdebug.compile(program)
    first = compiled(X)
    torch.testing.assert_close(first, program(X))
    with monkeypatch.context() as patch:
        patch.setattr(cls, name, new)
        changed = compiled(X)
        torch.testing.assert_close(changed, program(X))
        assert not torch.equal(changed, first)
    torch.testing.assert_close(compiled(X), first)


def do_nothing(self: Any, *args: Any) -> None:
    self.prev = True


@pytest.mark.parametrize(
    ("cls", "name", "new"),
    [
        (torch.no_grad, "__enter__", do_nothing),
        (torch.no_grad, "__init__", lambda self: CALLS.append("init")),
        (torch.no_grad, "__exit__", lambda self, *error: [CALLS.append("exit"), torch.set_grad_enabled(True)]),
        (torch.autocast, "__exit__", lambda self, *error: [CALLS.append("exit"), EXIT(self, *error)][1]),
    ],
)
def test_a_method_of_a_context_manager_that_is_replaced_is_seen(
    cls: type, name: str, new: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(x: torch.Tensor) -> tuple[Any, ...]:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            y = x @ x
        return y.requires_grad, y.dtype

    x = torch.ones(2, 2, requires_grad=True)
    compiled, later = (ptdebug.compile(program, backend="eager") for _ in range(2))
    assert compiled(x) == (False, torch.bfloat16)
    with monkeypatch.context() as patch:
        patch.setattr(cls, name, new)
        expected = [program(x), list(CALLS)]
        for function in compiled, later:  # compiled before, and after it was replaced
            CALLS.clear()
            assert function(x)[:1] == expected[0][:1] and ("init" in CALLS or "exit" in CALLS) == bool(expected[1])
    CALLS.clear()
    assert compiled(x) == (False, torch.bfloat16)


CALLS: list[str] = []
EXIT = torch.autocast.__exit__


def test_one_guard_names_them_and_says_which_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(2, 2), nn.Tanh()) for _ in range(3)])
    with ptdebug.record(out=None) as recording:
        compiled = ptdebug.compile(model)
        compiled(X)
        monkeypatch.setattr(nn.Tanh, "forward", other)
        compiled(X)
        (_, first), *_ = recording.records(Guards)
        changes = [record for _, record in recording.records(Recompile)]
    guards = [guard for guard in first.guards if guard.kind == "CLASS_MEMBERS"]
    assert len(guards) == 1
    assert "as at the first call" in guards[0].expected
    assert "Tanh.forward" in guards[0].code and guards[0].code.count("Linear.forward") == 1
    assert [(change.subject, change.expected, change.actual) for change in changes] == [
        ("Tanh.forward", "the library's", "another function")]


def test_a_class_of_no_module_is_not_kept_alive() -> None:
    import gc
    import weakref

    class Passing(nn.Tanh):
        pass

    held = weakref.ref(Passing)
    members = members_of([(Passing, "forward", nn.Tanh.forward)])  # type: ignore[list-item]
    holds = members.check()
    assert holds(None)
    Passing.forward = other  # type: ignore[method-assign]
    assert not holds(None) and [item.name for item in members.changed()] == ["forward"]
    del Passing
    gc.collect()
    assert held() is None and holds(None)
