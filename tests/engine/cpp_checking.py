"""Kernels against eager: lower, schedule, generate, build, run; the error is measured against float64."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.codegen.cpp import CppSource, generate
from ptdebug.engine.ir.ir import ExternCall, Group, View
from ptdebug.engine.lowering import lower
from ptdebug.engine.scheduler import ScheduledPlan, schedule
from ptdebug.engine.toolchain.cpp_build import build
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class Built:
    """A program as kernels."""

    plan: ScheduledPlan
    source: CppSource
    functions: Mapping[str, Callable[..., int]]

    @property
    def groups(self) -> list[Group]:
        """The groups, in order."""
        return [item for item in self.plan.items if isinstance(item, Group)]

    def __call__(self, *inputs: Any) -> list[Any]:
        """Run on real inputs, as the wrapper would; IndexError for an index out of bounds."""
        program = self.plan.program
        memory: dict[str, Any] = {**program.constants, **dict(zip(program.inputs, inputs))}
        sizes = {s: _symbol(inputs[i], kind, d) for s, (i, kind, d) in program.symbols.items()}
        signatures = {s.name: s for s in self.source.signatures}

        def number(e: Any) -> int:
            return int(e.xreplace({k: sympy.Integer(v) for k, v in sizes.items()}))

        def allocate(name: str) -> None:
            if name in memory:
                return
            b = program.buffers[name]
            size, stride = [number(n) for n in b.size], [number(n) for n in b.stride]
            taken = self.plan.reuse.get(name)
            fresh = torch.empty_strided(size, stride, dtype=b.dtype)
            memory[name] = fresh if taken is None else memory[taken].as_strided(size, stride)

        def leaf(x: Any) -> Any:
            if isinstance(x, View):
                allocate(x.buffer)
                base = memory[x.buffer] if x.dtype is None else memory[x.buffer].view(x.dtype)
                offset = number(x.offset) + base.storage_offset()
                return base.as_strided([number(n) for n in x.size], [number(n) for n in x.stride], offset)
            if isinstance(x, sympy.Expr):
                return number(x)
            return type(x)(leaf(y) for y in x) if isinstance(x, (list, tuple)) else x

        for item in self.plan.items:
            if isinstance(item, ExternCall):
                results = item.target(*leaf(item.args), **{k: leaf(v) for k, v in item.kwargs.items()})
                results = results if isinstance(results, (list, tuple)) else (results,)
                memory.update({n: r for n, r in zip(item.outputs, results) if n})
                continue
            signature = signatures[item.kernel]
            for name in signature.buffers:
                allocate(name)
            pointers = [memory[n].data_ptr() for n in signature.buffers]
            status = self.functions[item.kernel](*pointers, *[sizes[s] for s in signature.symbols])
            if status:
                raise IndexError(signature.bounds[status - 1])
        return [leaf(o) for o in program.outputs]


def _symbol(value: Any, kind: str, dimension: int) -> int:
    return value if kind == "value" else int(value.shape[dimension] if kind == "size" else value.stride(dimension))


def built(function: Callable[..., Any], *inputs: Any, dynamic: bool = False, **settings: Any) -> Built:
    """`function` as kernels for inputs like these; `settings` are those of the compile context."""
    context = CompileContext(**settings)
    module = make_fx(function, tracing_mode="symbolic" if dynamic else "fake")(*inputs)
    plan = schedule(lower(module, context), context)
    source = generate(plan)
    names = [s.name for s in source.signatures]
    functions = build(source.text, names).functions if names else {}
    return Built(plan, source, functions)


def check(function: Callable[..., Any], *inputs: Any, kernels: int | None = None, slack: float = 2.0,
          again: tuple[Any, ...] | None = None, **settings: Any) -> Built:
    """Assert eager's values, dtypes, shapes and strides: no further from float64 than `slack` times eager's error.

    Integers and booleans must be equal. `again` are other inputs for the same kernels (symbolic sizes).
    """
    made = built(function, *inputs, dynamic=again is not None, **settings)
    if kernels is not None:
        assert len(made.groups) == kernels, [c for c in made.plan.candidates if not c.fused]
    for given in (inputs, *([again] if again is not None else [])):
        compare(made(*given), function, given, slack)
    return made


def compare(got: list[Any], function: Callable[..., Any], inputs: tuple[Any, ...], slack: float) -> None:
    """See `check`."""
    expected = listed(function(*inputs))
    exact = None
    assert len(got) == len(expected)
    for i, (one, other) in enumerate(zip(got, expected)):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert all(a == b for a, b, n in zip(one.stride(), other.stride(), one.shape) if n > 1 and one.numel())
        if not other.is_floating_point() or other.numel() == 0:
            assert torch.equal(one, other), (one, other)
            continue
        if exact is None:
            exact = listed(function(*[x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
                                      for x in inputs]))
        close(one, other, exact[i].double(), slack)


def close(one: torch.Tensor, other: torch.Tensor, exact: torch.Tensor, slack: float) -> None:
    """Assert that the largest error of `one` is at most `slack` times that of `other`, plus a rounding (float64: four).

    NaN and infinities must be where eager or the exact value has them.
    """
    for special in (torch.isnan, torch.isposinf, torch.isneginf):
        mine = special(one)
        assert torch.equal(mine, special(other)) or torch.equal(mine, special(exact.to(one.dtype)))
    finite = exact.isfinite() & other.isfinite() & one.isfinite()
    if not finite.any():
        return
    scale = exact[finite].abs().max().item()
    ours = (one.double() - exact)[finite].abs().max().item()
    eagers = (other.double() - exact)[finite].abs().max().item()
    unit = torch.finfo(one.dtype).eps * scale * (4 if one.dtype is torch.float64 else 1)  # libm's doubles: 4 ulp
    assert ours <= slack * eagers + unit, f"error {ours:.3g}, eager {eagers:.3g}"


def listed(result: Any) -> list[Any]:
    """The results of a program as a list."""
    return tree_leaves(result)
