"""Runs a program in eager and compiled, forward and backward, and compares all that the program can see of both."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from ptdebug.artifacts.context import CompileContext, CompileId
from ptdebug.cli.wiring import engine_backend
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.fx.backend_call import CompileOptions

Tensor = torch.Tensor


@dataclass
class Compiled:
    """A compiled function, and the contexts of its compilations so far."""

    function: Callable[..., Any]
    contexts: list[CompileContext] = field(default_factory=list)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def fallbacks(self) -> list[str]:
        """Why graphs ran in eager."""
        return [c.fallback for c in self.contexts if c.fallback]


def compile(function: Callable[..., Any], dynamic: bool | None = None, **settings: Any) -> Compiled:
    """`function` through tracer and engine; a graph break is an error."""
    compiled = Compiled(function)

    def context(compile_id: CompileId) -> CompileContext:
        compiled.contexts.append(CompileContext(compile_id, **settings))
        return compiled.contexts[-1]

    compiled.function = dispatch.optimize(function, CompileOptions(engine_backend, context, dynamic, fullgraph=True))
    return compiled


def P(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers that require grad."""
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def leaves(*tensors: Any) -> tuple[Any, ...]:
    """Fresh copies with the same strides that require grad where the originals do."""
    return tuple(_copy(t) if isinstance(t, Tensor) else t for t in tensors)


def _copy(tensor: Tensor) -> Tensor:
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    with torch.no_grad():
        copy.copy_(tensor)
    return copy.requires_grad_(tensor.requires_grad)


def check(
    program: Callable[..., Any], *inputs: Any, calls: int = 2, exact: bool = False, fallback: str = "",
    prepare: Callable[..., Any] | None = None, dynamic: bool | None = None,
) -> Compiled:
    """Compare eager and compiled on copies of `inputs` (given to the program through `prepare`, as the program's
    surroundings would make them from leaves): results, gradients, mutated inputs. `fallback` is text of the reason for
    which the graph may run in eager; else it must be compiled. Returns the compiled function.
    """
    compiled = compile(program, dynamic)
    for number in range(calls):
        torch.manual_seed(number)
        expected = observe(program, inputs, prepare)
        torch.manual_seed(number)
        same(observe(compiled, inputs, prepare), expected, exact)
    assert all(fallback and fallback in why for why in compiled.fallbacks), compiled.fallbacks
    assert bool(compiled.fallbacks) == bool(fallback)
    return compiled


def observe(function: Callable[..., Any], inputs: Sequence[Any], prepare: Any = None) -> list[tuple[str, Any]]:
    """What one call with a backward shows, by name."""
    own = leaves(*inputs)
    given = own if prepare is None else prepare(*own)
    results = function(*given)
    results = results if isinstance(results, (tuple, list)) else (results,)
    seen: list[tuple[str, Any]] = [(f"result {i}", r) for i, r in enumerate(results)]
    seen += [(f"input {i}", x) for i, x in enumerate(given)]
    shared = [[a is b or storage(a) == storage(b) for b in (*results, *given)] for a in results]
    seen.append(("aliases", shared))
    seen += [(f"autograd of {name}", autograd(value)) for name, value in seen if isinstance(value, Tensor)]
    roots = list({id(r): r for r in (*results, *given) if isinstance(r, Tensor) and r.grad_fn is not None}.values())
    if roots:
        generator = torch.Generator().manual_seed(7)
        tangents = [torch.randn(r.shape, generator=generator, dtype=r.dtype) for r in roots]
        torch.autograd.backward(roots, tangents)
    seen += [(f"gradient {i}", x.grad) for i, x in enumerate(own) if isinstance(x, Tensor)]
    return [(name, value.detach() if isinstance(value, Tensor) else value) for name, value in seen]


def autograd(value: Tensor) -> tuple[bool, bool, bool]:
    """What autograd shows of a tensor, but for the names of its nodes."""
    return value.requires_grad, value.is_leaf, value.grad_fn is not None


def storage(value: Any) -> Any:
    """What two tensors that share memory have in common."""
    return value.untyped_storage().data_ptr() if isinstance(value, Tensor) else id(value)


def same(got: list[tuple[str, Any]], expected: list[tuple[str, Any]], exact: bool = False) -> None:
    """Compare two observations."""
    assert [name for name, _ in got] == [name for name, _ in expected]
    for (name, a), (_, b) in zip(got, expected):
        if not isinstance(b, Tensor):
            assert a == b, f"{name}: {a} is not {b}"
            continue
        assert isinstance(a, Tensor), f"{name}: {a} is no tensor"
        assert a.dtype == b.dtype and a.shape == b.shape, f"{name}: {a.dtype}{list(a.shape)}"
        assert a.stride() == b.stride(), f"{name}: strides {a.stride()} are not {b.stride()}"
        tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {}
        torch.testing.assert_close(a, b, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}", **tolerance)
