"""Programs about the modes of gradients: as contexts, calls, decorators and objects; inference mode."""
# mypy: ignore-errors

from __future__ import annotations

import warnings

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()


@program
def grad_modes_as_contexts(compile):
    def f(x):
        a = x * 2
        with torch.no_grad():
            b = a + 1
            with torch.enable_grad():
                c = x * 3
        with torch.set_grad_enabled(False):
            d = x.sin()
        return a, b, c, d, torch.is_grad_enabled()

    f = compile(f, fullgraph=True)
    out = [f(torch.ones(3, requires_grad=True))]
    with torch.no_grad():
        out.append(f(torch.ones(3, requires_grad=True)))
    return out


@program
def grad_modes_as_calls(compile):
    def f(x):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        a = x * 2
        torch.set_grad_enabled(before)
        return a, x * 3

    def left(x):
        torch.set_grad_enabled(False)
        return x * 2

    g = compile(left, fullgraph=True)
    out = [compile(f, fullgraph=True)(torch.ones(3, requires_grad=True))]
    out.append(g(torch.ones(3, requires_grad=True)))
    out.append(torch.is_grad_enabled())
    torch.set_grad_enabled(True)
    return out


@program
def grad_modes_as_decorators(compile):
    @torch.no_grad()
    def frozen(x):
        return x * 2

    @torch.enable_grad()
    def thawed(x):
        return x * 3

    @torch.inference_mode()
    def inferred(x):
        return x * 4

    def f(x):
        @torch.no_grad()
        def inner(y):
            return y.cos()

        return frozen(x), thawed(x), inner(x)

    out = [compile(f, fullgraph=True)(torch.ones(3, requires_grad=True))]
    with torch.no_grad():
        out.append(compile(f, fullgraph=True)(torch.ones(3, requires_grad=True)))
    out.append(compile(inferred)(torch.ones(3, requires_grad=True)).sum().item())
    return out


@program
def inference_mode(compile):
    def f(x, on):
        with torch.inference_mode(on):
            y = x * 2
            here = torch.is_inference_mode_enabled()
        return y, y + 1, here, torch.is_inference_mode_enabled()

    f = compile(f, fullgraph=True)
    x, y = torch.ones(3, requires_grad=True), torch.ones(4, requires_grad=True)
    return f(torch.ones(3), True), f(x, False), f(y, True)


@program
def inference_tensors_refuse_to_change_outside(compile):
    def f(x, change):
        with torch.inference_mode():
            y = change(x * 2)
        return y, change(y)

    changes = (lambda t: t.t_(), lambda t: t.unsqueeze_(0), lambda t: t.transpose_(0, 1), lambda t: t.add_(1))
    return [call(compile(f), torch.ones(2, 3), change) for change in changes]


@program
def saved_tensors_hooks(compile):
    packed = []

    def f(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(tuple(t.shape)) or t, lambda t: t):
            y = x * x
        return y.sum()

    x = torch.ones(3, requires_grad=True)
    compile(f)(x).backward()
    return x.grad, packed


@program
def anomaly(compile):
    def f(x):
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            y = x * 2
            on = torch.is_anomaly_enabled()
        return y, on, torch.is_anomaly_enabled()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(f)(torch.ones(2, requires_grad=True))


class Counted(torch.no_grad):
    """A mode with an `__enter__` of its own."""

    entered = 0

    def __enter__(self):
        self.entered += 1
        super().__enter__()


@program
def managers_of_the_programs_own_classes(compile):
    class Precision(torch.autocast):
        entered = 0

        def __enter__(self):
            self.entered += 1
            return super().__enter__()

    existing, precise = Counted(), Precision("cpu", dtype=torch.bfloat16)

    def f(x):
        with existing, precise:
            y = x @ x
        with Counted() as new:
            z = x * 2
        return y, z, x * 3, new

    x = torch.ones(2, 2, requires_grad=True)
    return compile(f)(x), compile(f)(x), existing.entered, precise.entered


@program
def a_grad_mode_as_a_decorator_that_the_function_makes(compile):
    def f(x):
        @torch.set_grad_enabled(False)
        def inner(x):
            return x * 2

        return inner(x), x * 3, torch.is_grad_enabled()

    return compile(f)(torch.ones(2, requires_grad=True)), torch.is_grad_enabled()


@pytest.mark.parametrize("name", program)
def test_a_program_with_modes_is_the_program(name: str) -> None:
    check(program[name])
