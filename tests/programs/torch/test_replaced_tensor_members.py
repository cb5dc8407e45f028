"""Members of torch's own classes that a program replaces before or after the first call: of tensors, parameters, and
attributes of modules that become properties."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.tracer.runtime.class_versions import _AVAILABLE, unchanged
from torch import Tensor, nn

X = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
LINEAR, WEIGHT = nn.Linear(2, 2), nn.Parameter(torch.ones(2))


def _set(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = 7
    return y


def _increased(x: Tensor) -> Tensor:
    y = x.clone()
    y += 7
    return y


CASES: list[tuple[type, str, Any, Callable[[Tensor], Any]]] = [
    (Tensor, "shape", property(lambda self: (7, 7)), lambda x: x + x.shape[0]),
    (Tensor, "size", lambda self, dim=None: 7, lambda x: x + x.size(0)),
    (Tensor, "ndim", property(lambda self: 11), lambda x: x + x.ndim),
    (Tensor, "dim", lambda self: 11, lambda x: x + x.dim()),
    (Tensor, "device", property(lambda self: "some device"), lambda x: x + len(str(x.device))),
    (Tensor, "T", property(lambda self: self * 5), lambda x: x.T),
    (Tensor, "is_cuda", property(lambda self: True), lambda x: x + 1 if x.is_cuda else x - 1),
    (Tensor, "is_leaf", property(lambda self: False), lambda x: x + 1 if x.is_leaf else x - 1),
    (Tensor, "data", property(lambda self: self.detach() * 3), lambda x: x.data + 1),
    (Tensor, "add", lambda self, other: self * 9, lambda x: x.add(1)),
    (Tensor, "relu", Tensor.neg, lambda x: x.relu()),
    (Tensor, "norm", lambda self: self * 9, lambda x: x.norm()),
    (Tensor, "__add__", lambda self, other: self * 9, lambda x: x + 1),
    (Tensor, "__radd__", lambda self, other: self * 9, lambda x: 1 + x),
    (Tensor, "__getitem__", lambda self, key: self * 9, lambda x: x[0]),
    (Tensor, "__setitem__", lambda self, key, value: None, _set),
    (Tensor, "__iadd__", lambda self, other: self, _increased),
    (Tensor, "__len__", lambda self: 9, lambda x: x * len(x)),
    (Tensor, "__iter__", lambda self: iter([self * 9]), lambda x: sum(row for row in x)),
    (Tensor, "__eq__", lambda self, other: self, lambda x: (x == 1) * 1.0),
    (nn.Parameter, "shape", property(lambda self: (7,)), lambda x: x + WEIGHT.shape[0]),
    (nn.Parameter, "__add__", lambda self, other: other * 9, lambda x: WEIGHT + x),
    (nn.Linear, "in_features", property(lambda self: 9), lambda x: x + LINEAR.in_features),
    (nn.Linear, "weight", property(lambda self: torch.ones(2, 2)), LINEAR),
    (nn.Module, "__getattr__", lambda self, name: torch.zeros(2, 2), lambda x: x @ LINEAR.weight),
]


ALONE = "PTDEBUG_TESTS_ALONE"
"""Set in a process that nothing else runs in: once `Tensor.__getitem__` was replaced, CPython keeps slots in the class
by which torch takes tensors for sequences, also when it is put back."""


def test_members_are_seen_in_a_process_of_its_own() -> None:
    words = [sys.executable, "-m", "pytest", __file__, "-q", "-k", "test_a_member_that_is_replaced_is_seen"]
    done = subprocess.run(words, env=os.environ | {ALONE: "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "skipped" not in done.stdout


@pytest.mark.skipif(ALONE not in os.environ, reason="runs in a process of its own")
@pytest.mark.parametrize("first", ["as it was", "replaced"])
@pytest.mark.parametrize(("cls", "name", "new", "program"), CASES)
def test_a_member_that_is_replaced_is_seen(
    cls: type, name: str, new: Any, program: Callable[[Tensor], Any], first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = ptdebug.compile(program)
    for replaced in (first == "replaced", first != "replaced", first == "replaced"):
        with monkeypatch.context() as patch:
            if replaced:
                patch.setattr(cls, name, new, raising=cls is not nn.Linear and cls is not nn.Parameter)
            values = program(X.clone()), compiled(X.clone())
        assert torch.equal(*values)


def test_a_frame_under_a_replaced_member_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = ptdebug.compile(lambda x: x + 1, fullgraph=True)
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "shape", property(lambda self: (7, 7)))
        with pytest.raises(torch._dynamo.exc.Unsupported, match=r"the program replaced Tensor\.shape"):
            compiled(X)
    assert torch.equal(compiled(X), X + 1)


def test_how_tensors_are_shown_may_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "__repr__", lambda self: "a tensor")
    monkeypatch.setattr(Tensor, "counted", 0, raising=False)
    compiled = ptdebug.compile(lambda x: x + 1, fullgraph=True)
    for Tensor.counted in range(3):  # type: ignore[attr-defined]
        assert torch.equal(compiled(X), X + 1)


def test_only_classes_that_changed_are_looked_at() -> None:
    class Base:
        value = 1

    class Sub(Base):
        pass

    asked: list[int] = []

    def verify() -> bool:
        asked.append(Sub.value)
        return Sub.value < 3

    holds = unchanged((Sub,), verify)
    Sub.value  # noqa: B018 the look-up gives the class a version
    assert holds(None) and holds(None) and asked == [1]
    Base.value = 2
    assert holds(None) and holds(None) and holds(None) and asked in ([1, 2], [1, 2, 2])
    Base.value = 3
    assert not holds(None) and not holds(None)


def test_a_class_that_nobody_looks_into_is_verified_once():
    class Quiet:
        pass

    asked = []
    check = unchanged((Quiet,), lambda: not asked.append(1))
    assert all(check(None) for _ in range(4))
    assert len(asked) == (1 if _AVAILABLE else 4)
    Quiet.value = 1
    assert all(check(None) for _ in range(4))
    assert len(asked) == (2 if _AVAILABLE else 8)
