"""Trains a program for twenty optimizer steps in eager and compiled, in float32 and in float64, and compares the four.

In float64 compiled and eager agree to rounding; in float32 each kind of what is compared (losses, parameters, gradients
of each step, whatever else the program shows) is at most twice as far from float64 as eager's. Strides, dtypes and
absent gradients are equal.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from ptdebug.artifacts.context import CompileContext, CompileId
from ptdebug.cli.wiring import engine_backend
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.fx.backend_call import CompileOptions
from torch import nn

Tensor = torch.Tensor
STEPS = 20


@dataclass
class Run:
    """One run of a program, and what it shows."""

    dtype: torch.dtype
    compiled: bool
    contexts: list[CompileContext] = field(default_factory=list)
    shown: dict[str, Any] = field(default_factory=dict)

    def compile(self, function: Callable[..., Any], fullgraph: bool = True, **settings: Any) -> Callable[..., Any]:
        """`function`, compiled if this run is."""
        if not self.compiled:
            return function

        def context(compile_id: CompileId) -> CompileContext:
            self.contexts.append(CompileContext(compile_id, **settings))
            return self.contexts[-1]

        return dispatch.optimize(function, CompileOptions(engine_backend, context, fullgraph=fullgraph))

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """The same numbers in both precisions."""
        wide = {torch.float32: self.dtype, torch.complex64: torch.promote_types(self.dtype, torch.complex64)}
        return torch.randn(*shape, dtype=dtype).to(wide[dtype])

    def parameter(self, *shape: int, dtype: torch.dtype = torch.float32) -> nn.Parameter:
        """A leaf to train."""
        return nn.Parameter(self.randn(*shape, dtype=dtype))

    def module(self, module: nn.Module) -> nn.Module:
        """A module in the precision of this run."""
        return module.to(self.dtype)

    def train(self, step: Callable[[], Tensor], parameters: Iterable[Tensor], zero_grad: bool = True) -> None:
        """Twenty times: `step` computes gradients and returns a loss, SGD with momentum uses them."""
        parameters = list(parameters)
        optimizer = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)
        losses = []
        for number in range(STEPS):
            torch.manual_seed(number)
            if zero_grad:
                optimizer.zero_grad()
            losses.append(step().detach())
            self.show(**{f"gradient {i} of step {number}": p.grad for i, p in enumerate(parameters)})
            optimizer.step()
        self.show(losses=torch.stack(losses), **{f"parameter {i}": p for i, p in enumerate(parameters)})

    def show(self, **values: Any) -> None:
        """Remember what must be alike in all runs."""
        copies = {k: v.detach().clone() if isinstance(v, Tensor) else v for k, v in values.items()}
        self.shown.update(copies)


Program = Callable[[Run], None]


class Programs(dict[str, Program]):
    """Programs by name. Used as a decorator, it takes a program in."""

    def __call__(self, program: Program) -> Program:
        self[program.__name__] = program
        return program


def _ran(program: Program, dtype: torch.dtype, compiled: bool) -> Run:
    torch.manual_seed(0)
    run = Run(dtype, compiled)
    program(run)
    return run


def check(program: Program) -> None:
    """Raises AssertionError where the compiled program trains otherwise than in eager, or is not compiled."""
    kinds = [(dtype, compiled) for dtype in (torch.float64, torch.float32) for compiled in (False, True)]
    exact, exact_compiled, eager, compiled = [_ran(program, *kind) for kind in kinds]
    for run in (exact_compiled, compiled):
        assert run.contexts, "nothing was compiled"
        assert [c.fallback for c in run.contexts if c.fallback] == []
    assert exact.shown.keys() == exact_compiled.shown.keys() == eager.shown.keys() == compiled.shown.keys()
    for key in exact.shown:
        _same(key, *[run.shown[key] for run in (exact, exact_compiled, eager, compiled)])
    distances = _distances(exact, eager), _distances(exact, compiled)
    for kind, theirs in distances[0].items():
        floor = 4 * torch.finfo(torch.float32).eps  # eager may be exact by luck
        ours = distances[1][kind]
        assert ours <= 2 * max(theirs, floor), f"{kind}: {ours:.2e} away from float64, eager {theirs:.2e}"


def _same(key: str, exact: Any, exact_compiled: Any, eager: Any, compiled: Any) -> None:
    if not isinstance(exact, Tensor):
        assert compiled == eager, key
        assert exact_compiled == exact, key
        return
    for ours, theirs in ((exact_compiled, exact), (compiled, eager)):
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride()), key
    if _is_number(exact):
        torch.testing.assert_close(exact_compiled, exact, rtol=1e-9, atol=1e-12, msg=lambda m: f"{key}: {m}")
    else:
        assert torch.equal(exact, exact_compiled), key
        assert torch.equal(eager, compiled), key


def _distances(exact: Run, run: Run) -> dict[str, float]:
    """How far parameters, gradients, and so on, are from float64 (root mean square), in units of a tensor's largest."""
    squares: dict[str, list[Tensor]] = {}
    for key, reference in exact.shown.items():
        if isinstance(reference, Tensor) and _is_number(reference):
            distance = (run.shown[key].to(reference.dtype) - reference).abs() / reference.abs().max()
            squares.setdefault(key.partition(" ")[0], []).append(distance.square().flatten())
    return {kind: torch.cat(found).mean().sqrt().item() for kind, found in squares.items()}


def _is_number(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
