"""Lowering against eager: trace, lower, verify, print and parse back, interpret, compare."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.ir.interpreter import run
from ptdebug.engine.ir.ir import ExternCall, LoopBody, Program
from ptdebug.engine.ir.parser import parse_program
from ptdebug.engine.ir.printer import format_program
from ptdebug.engine.ir.verifier import verify
from ptdebug.engine.lowering import lower
from torch.fx.experimental.proxy_tensor import make_fx


def lowered(function: Callable[..., Any], *inputs: Any, dynamic: bool = False,
            overrides: Mapping[str, str] | None = None) -> Program:
    """`function` traced over fakes of `inputs` and lowered, without decompositions."""
    module = make_fx(function, tracing_mode="symbolic" if dynamic else "fake")(*inputs)
    return lower(module, CompileContext(overrides=overrides or {}))


def check(
    function: Callable[..., Any], *inputs: Any, dynamic: bool = False, externs: int | None = 0,
    overrides: Mapping[str, str] | None = None, again: tuple[Any, ...] | None = None, **tolerance: float,
) -> Program:
    """Assert that the lowered program gives eager's values, dtypes, shapes and strides; the program.

    `externs` is how many library calls it may hold (None: any number); `again` are other inputs for the same program.
    """
    program = lowered(function, *inputs, dynamic=dynamic, overrides=overrides)
    verify(program)
    assert parse_program(format_program(program), program.constants) == program
    if externs is not None:
        assert len(calls(program)) == externs, [f"{c.target}: {c.why}" for c in calls(program)]
    for given in (inputs, *([again] if again else [])):
        compare(run(program, given), function(*given), **tolerance)
    return program


def compare(got: tuple[Any, ...], expected: Any, **tolerance: float) -> None:
    """Assert equal values, dtypes, shapes and strides (of dimensions where strides matter)."""
    wanted = expected if isinstance(expected, (tuple, list)) else (expected,)
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted):
        if not isinstance(other, torch.Tensor):
            assert one == other
            continue
        assert one.dtype is other.dtype and one.shape == other.shape
        if other.numel():
            assert [s for s, n in zip(one.stride(), one.shape) if n > 1] == [
                s for s, n in zip(other.stride(), other.shape) if n > 1]
        torch.testing.assert_close(one, other, equal_nan=True, **tolerance)


def bodies(program: Program) -> list[LoopBody]:
    """The loop bodies of a program."""
    return [s for s in program.steps if isinstance(s, LoopBody)]


def calls(program: Program) -> list[ExternCall]:
    """The library calls of a program."""
    return [s for s in program.steps if isinstance(s, ExternCall)]


def operations(program: Program) -> list[str]:
    """The operations of all statements, in order."""
    return [s.op for b in bodies(program) for s in b.statements]


def special(dtype: torch.dtype) -> torch.Tensor:
    """Values at which implementations differ: signed zeros, infinities, NaN, the ends of the range, halves."""
    if dtype is torch.bool:
        return torch.tensor([True, False, True, False, True])
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        return torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -7.3, 20.5, float("inf"),
                             float("-inf"), float("nan"), info.max, info.min, info.tiny, 1e-3, -1e-3], dtype=dtype)
    info = torch.iinfo(dtype)
    return torch.tensor([0, 1, 2, 3, 7, 63, 100, info.max, info.min, info.max - 1, 5, 6], dtype=dtype)
