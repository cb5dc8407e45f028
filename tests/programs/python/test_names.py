"""No name of ours meets one of the program's: in its globals, its code, its modules, and beside its files."""
from __future__ import annotations

import functools
import sys
import types
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.tracer.frames import dispatch

calls: list[str] = []


def doubled(x: torch.Tensor) -> torch.Tensor:
    calls.append("doubled")
    y = x * 2
    print("a break", file=open("/dev/null", "w"))
    calls.append("again")
    return y + len(calls)


def test_a_global_list_called_calls() -> None:
    dispatch.reset()
    compiled = ptdebug.compile(doubled)
    calls.clear()
    for count in (2, 4, 6):
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3) * 2 + count) and len(calls) == count
    assert all(isinstance(runtime.calls, int) for runtime in dispatch.runtimes().values())


def test_what_disable_returns_has_no_attribute_of_ours_in_the_programs_way() -> None:
    hidden = ptdebug.disable(doubled)
    assert not hasattr(hidden, "calls")
    hidden.calls = ["mine"]

    def ask(x: torch.Tensor) -> Any:
        return x + len(hidden.calls)

    assert torch.equal(ptdebug.compile(ask)(torch.ones(2)), ask(torch.ones(2)))
    assert ptdebug.stats()["graphs"] >= 1


def strange(x: torch.Tensor, ___: Any, ___stack_0: float, ___first: float) -> Any:
    ___t0 = x * ___stack_0
    ___error, ___result, ___outputs, ___kwargs, ___states = 1.0, 2.0, 3.0, 4.0, 5.0
    print("a break", file=open("/dev/null", "w"))
    for ___ in range(3):
        ___t0 = ___t0 + ___first
    hidden = lambda: (___first, ___error)
    print("another", *hidden(), file=open("/dev/null", "w"))
    return ___t0 * 2, ___, ___error, ___result, ___outputs, ___kwargs, ___states, sorted(locals().keys() - {"hidden"})


def test_variables_with_names_like_ours() -> None:
    arguments = torch.arange(3.0), 7, 2.0, 0.5
    expected, result = strange(*arguments), ptdebug.compile(strange)(*arguments)
    assert torch.equal(expected[0], result[0]) and expected[1:] == result[1:]


def test_a_function_that_has_the_names_of_a_library_function() -> None:
    """As `functools.wraps` gives it."""
    from torch.utils.checkpoint import checkpoint

    @functools.wraps(checkpoint)
    def own(function: Any, x: torch.Tensor, **options: Any) -> torch.Tensor:
        return function(x) + 1

    def use(x: torch.Tensor) -> torch.Tensor:
        return own(lambda y: y * 3, x, use_reentrant=False)

    assert torch.equal(ptdebug.compile(use)(torch.ones(2)), use(torch.ones(2)))


@pytest.mark.parametrize("name", ["packaging", "einops", "transformers"])
def test_a_module_of_the_program_that_has_the_name_of_a_library(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = """
class Version:
    def __init__(self, number): self.number = number
def get_backend(x): return 5
def maybe_install_capturing_hooks(x): return 6
def warning_once(x, y): return 7
"""
    for module_name in (name, f"{name}.version", f"{name}._backends", f"{name}.utils.output_capturing",
                        f"{name}.utils.logging"):
        module = types.ModuleType(module_name)
        module.__file__ = str(tmp_path / name / "__init__.py")
        exec(compile(text, module.__file__, "exec"), module.__dict__)
        monkeypatch.setitem(sys.modules, module_name, module)
    version, backends = sys.modules[f"{name}.version"], sys.modules[f"{name}._backends"]
    hooks, logs = sys.modules[f"{name}.utils.output_capturing"], sys.modules[f"{name}.utils.logging"]
    held = version.Version(1)

    def use(x: torch.Tensor) -> Any:
        held.number += 1
        made = version.Version(3).number + held.number
        asked = backends.get_backend(x) + hooks.maybe_install_capturing_hooks(x) + logs.warning_once(x, x)
        return x * (made + asked)

    compiled = ptdebug.compile(use)
    for number in (1, 5):
        held.number = number
        expected = use(torch.ones(2))
        held.number = number
        assert torch.equal(compiled(torch.ones(2)), expected)
