"""The reference interpreter of the loop IR: each statement is one torch operation over the body's whole iteration
space.

It defines what the loop IR means: code generators are tested against it, and replay uses it as one step of its ladder.
It runs on any device of torch, slowly.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import sympy
import torch
from sympy.logic.boolalg import Boolean
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from ..graphs.random_fills import fill_of
from .ir import (
    DOTS,
    Axis,
    Buffer,
    ExternCall,
    Group,
    LoopBody,
    Plan,
    Program,
    Statement,
    View,
    identity,
    scalar_buffer,
)

ELEMENTWISE: dict[str, Callable[..., torch.Tensor]] = {
    **{name: getattr(torch, name) for name in (
        "neg", "abs", "sign", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
        "erfinv", "lgamma", "digamma", "sigmoid", "floor", "ceil", "trunc", "round", "isnan", "isinf", "logical_not",
        "bitwise_not", "add", "sub", "mul", "pow", "atan2", "hypot", "copysign", "nextafter", "minimum",
        "maximum", "fmin", "fmax", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or",
        "logical_xor", "eq", "ne", "lt", "le", "gt", "ge", "where",
    )},
    "truediv": torch.div,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "mod": torch.remainder,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "fmod": lambda a, b: _fmod(a, b),
    "fma": lambda a, b, c: _fma(a, b, c),
}


def _fmod(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """As in C: torch's vectorized kernels on a CPU return NaN where the quotient overflows."""
    if not a.is_floating_point() or a.device.type != "cpu":
        return torch.fmod(a, b)
    with np.errstate(invalid="ignore"):
        return torch.as_tensor(np.fmod(a.double().numpy(), b.double().numpy())).to(a.dtype)


def _fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """a * b + c, rounded once: of doubles, in x86's extended precision."""
    if a.dtype is not torch.float64 or a.device.type != "cpu":
        return (a.double() * b.double() + c.double()).to(a.dtype)
    with np.errstate(all="ignore"):
        return torch.as_tensor((a.numpy().astype(np.longdouble) * b.numpy() + c.numpy()).astype(np.float64))


def run(program: Program, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Run a program on real inputs (tensors, and numbers for symbolic scalars); mutated inputs are written to."""
    return run_steps(program, program.steps, inputs)


def run_plan(plan: Plan, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Run a scheduled program: the bodies of each group in order."""
    return run_steps(plan.program, plan.items, inputs, _run_group)


def _run_group(group: Group, memory: Mapping[str, torch.Tensor], symbols: Mapping[sympy.Symbol, int]) -> None:
    for body in group.bodies:
        run_body(body, memory, symbols)


def run_steps(
    program: Program, steps: Sequence[LoopBody | ExternCall | Group], inputs: Sequence[Any],
    run_group: Callable[[Group, dict[str, torch.Tensor], Mapping[sympy.Symbol, Any]], None] = _run_group,
) -> tuple[Any, ...]:
    """Run the steps of a program in order; `run_group` runs a group on the memory of the buffers."""
    memory: dict[str, torch.Tensor] = dict(program.constants)
    memory.update({n: v for n, v in zip(program.inputs, inputs) if isinstance(v, torch.Tensor)})
    symbols = symbol_values(program, inputs)
    _allocate_known(program, memory, symbols)
    for step in steps:
        if isinstance(step, LoopBody):
            run_body(step, memory, symbols)
        elif isinstance(step, Group):
            run_group(step, memory, symbols)
        else:
            call(step, memory, symbols)
            if step.binds:
                _allocate_known(program, memory, symbols)
    outputs = tuple([resolve(out, memory, symbols) for out in program.outputs])
    for view, name in program.copies:
        memory[name].copy_(resolve(view, memory, symbols))
    return outputs


def _allocate_known(program: Program, memory: dict[str, torch.Tensor], symbols: Mapping[sympy.Symbol, Any]) -> None:
    """Memory for all buffers whose sizes are known by now, and for floats that vary."""
    for symbol, number in symbols.items():
        if scalar_buffer(symbol) in program.buffers:
            memory[scalar_buffer(symbol)] = torch.tensor(number, dtype=torch.float64, device="cpu")
    for buffer in program.buffers.values():
        known = all(e.free_symbols <= symbols.keys() for e in (*buffer.size, *buffer.stride))
        if buffer.role == "intermediate" and buffer.name not in memory and known:
            memory[buffer.name] = allocate(buffer, symbols)


def symbol_values(program: Program, inputs: Sequence[Any]) -> dict[sympy.Symbol, Any]:
    """The value of each size symbol, read off the inputs."""
    values = {}
    for symbol, (position, kind, dim) in program.symbols.items():
        value = inputs[position]
        number = value if kind == "value" else value.shape[dim] if kind == "size" else value.stride(dim)
        values[symbol] = number if isinstance(number, float) else int(number)
    return values


def integer(expression: Any, symbols: Mapping[sympy.Symbol, int]) -> int:
    """The value of a size expression."""
    return int(evaluate(expression, symbols)) if isinstance(expression, sympy.Expr) else int(expression)


def allocate(buffer: Buffer, symbols: Mapping[sympy.Symbol, int]) -> torch.Tensor:
    """Uninitialized memory for a buffer."""
    shape, stride = ([integer(s, symbols) for s in numbers] for numbers in (buffer.size, buffer.stride))
    return torch.empty_strided(shape, stride, dtype=buffer.dtype, device=buffer.device)


def resolve(value: Any, memory: Mapping[str, torch.Tensor], symbols: Mapping[sympy.Symbol, int]) -> Any:
    """A View as a tensor, an expression as a number, trees of them likewise."""
    if isinstance(value, View):
        tensor = memory[value.buffer]
        if tensor is None or tensor.layout is not torch.strided:  # left out; or a weight in a library's own order
            return tensor
        shape, stride = ([integer(s, symbols) for s in numbers] for numbers in (value.size, value.stride))
        offset = tensor.storage_offset() + integer(value.offset, symbols)
        window = tensor.as_strided(shape, stride, offset)
        return window if value.dtype is None else window.view(value.dtype)
    if isinstance(value, (tuple, list)):
        return type(value)(resolve(v, memory, symbols) for v in value)
    if isinstance(value, dict):
        return {k: resolve(v, memory, symbols) for k, v in value.items()}
    if isinstance(value, sympy.Expr):
        number = evaluate(value, symbols)
        return float(number) if isinstance(number, (float, sympy.Float)) else int(number)
    if isinstance(value, Boolean):  # a condition on sizes, which an assertion checks
        return bool(value.xreplace({s: sympy.sympify(symbols[s]) for s in value.free_symbols}))
    return value


def call(step: ExternCall, memory: dict[str, torch.Tensor], symbols: dict[sympy.Symbol, Any]) -> None:
    """Run an operator of ATen; its results become the step's buffers, and define the symbols that it binds."""
    called = fill_of(step.target) or step.target
    result = called(*resolve(step.args, memory, symbols), **resolve(dict(step.kwargs), memory, symbols))
    results = result if isinstance(result, (tuple, list)) else (result,)
    made = {name: value for name, value in zip(step.outputs, results) if name is not None}
    for symbol, buffer, dimension in step.binds:
        symbols[symbol] = made[buffer].shape[dimension] if buffer else result
    for name, value in zip(step.outputs, results):
        if name is not None and value is None:  # a result that the operator leaves out: attention weights
            memory[name] = value  # type: ignore[assignment]
        elif name is not None:
            inferred = memory.get(name)
            as_inferred = inferred is None or inferred.stride() == value.stride() or value.numel() == 0
            memory[name] = value if as_inferred else inferred.copy_(value)  # type: ignore[union-attr]


# ---- bodies
def run_body(body: LoopBody, memory: Mapping[str, torch.Tensor], symbols: Mapping[sympy.Symbol, int]) -> None:
    """Run the loops of a body; the buffers it stores to are in `memory` already."""
    BodyRun(body, memory, symbols).run()


class Points:
    """The values of statements at some points of an iteration space: all of a body's, or those of a vector.

    Values are broadcastable to `extents`, those of the loops whose points are taken at once; in the `environment`, the
    symbols of these loops are tensors, those of other loops numbers.
    """

    def __init__(
        self, memory: Mapping[str, torch.Tensor], device: torch.device, environment: MutableMapping[sympy.Symbol, Any],
        extents: Sequence[int],
    ) -> None:
        self.memory, self.device, self.environment, self.extents = memory, device, environment, list(extents)
        self.values: dict[str, torch.Tensor] = {}
        self._rules: dict[str, Callable[[Statement], torch.Tensor]] = {
            "load": self._load, "constant": self._constant, "index": self._index, "cast": self._cast,
            "bitcast": self._bitcast, "indirect": self._indirect,
        }

    def value(self, s: Statement) -> torch.Tensor:
        """The value of a statement that needs the values of others, memory, and loops, and nothing else."""
        rule = self._rules.get(s.op)
        if rule is not None:
            return rule(s)
        return ELEMENTWISE[s.op](*[self.values[a] for a in s.args]).to(s.dtype)

    def _place(self, index: sympy.Expr | None) -> torch.Tensor:
        value = evaluate(index, self.environment)
        if isinstance(value, torch.Tensor):
            return value
        return torch.full((1,) * len(self.extents), int(value), dtype=torch.int64, device=self.device)

    def _load(self, s: Statement) -> torch.Tensor:
        flat = flattened(self.memory[s.buffer]).to(self.device)  # numbers may lie on the CPU
        place = self._place(s.index)
        if flat.numel() == 0:  # read at no point, or under a mask that is False everywhere
            space = self.extents if 0 in self.extents else [1] * len(self.extents)
            return torch.full(space, s.number, dtype=s.dtype, device=self.device)
        if not s.mask:
            return flat[place]
        mask, place = torch.broadcast_tensors(self.values[s.mask], place)
        found = torch.full(mask.shape, s.value, dtype=s.dtype, device=self.device)  # type: ignore[arg-type]
        found[mask] = flat[place[mask]]
        return found

    def _constant(self, s: Statement) -> torch.Tensor:
        whole = type(s.value) is int and s.dtype is not None and not s.dtype.is_floating_point  # wraps, as in eager
        dtype = torch.int64 if whole else s.dtype
        value = torch.full((1,) * len(self.extents), s.value, dtype=dtype, device=self.device)  # type: ignore[arg-type]
        return value.to(s.dtype)

    def _index(self, s: Statement) -> torch.Tensor:
        return self._place(s.index)

    def _cast(self, s: Statement) -> torch.Tensor:
        return self.values[s.args[0]].to(s.dtype)

    def _bitcast(self, s: Statement) -> torch.Tensor:
        return self.values[s.args[0]].view(s.dtype)

    def _indirect(self, s: Statement) -> torch.Tensor:
        value = self.values[s.args[0]]
        bound = integer(evaluate(s.bound, self.environment), {})
        if s.mode != "strict":
            value = torch.where(value < 0, value + bound, value)
        if 0 not in self.extents and bool(((value < 0) | (value >= bound)).any()):
            raise IndexError(f"index out of range in {', '.join(s.origins) or s.name}: the size is {bound}")
        self.environment[sympy.Symbol(s.name, integer=True, nonnegative=True)] = value
        return value


class BodyRun(Points):
    """The values of a body's statements, each broadcastable to the index space (axes, then reduction axes)."""

    def __init__(self, body: LoopBody, memory: Mapping[str, torch.Tensor], symbols: Mapping[sympy.Symbol, int]) -> None:
        self.body = body
        axes: tuple[Axis, ...] = body.axes + body.reduction_axes
        super().__init__(
            memory, memory[body.writes[0]].device, dict(symbols), [integer(a.extent, symbols) for a in axes])
        for d, axis in enumerate(axes):
            shape = [1] * len(axes)
            shape[d] = self.extents[d]
            self.environment[axis.symbol] = torch.arange(self.extents[d], device=self.device).reshape(shape)

    def run(self) -> None:
        """Run all statements in order."""
        if 0 in self.extents[:len(self.body.axes)]:
            return
        for s in self.body.statements:
            value = self.statement(s)
            if value is not None:
                self.values[s.name] = value

    def statement(self, s: Statement) -> torch.Tensor | None:
        """The value of a statement, whose operands are in `values`; a store has none, and is done."""
        if s.op == "store":
            self._store(s)
            return None
        rules = {"reduce": self._reduce, "part": self._part, "scan": self._scan}
        return rules.get(s.op, self.value)(s)

    def _store(self, s: Statement) -> None:
        flat = flattened(self.memory[s.buffer])
        space = [*self.extents[:len(self.body.axes)], *([1] * len(self.body.reduction_axes))]
        if self.body.scans:
            space = self.extents
        place, value = self._place(s.index).expand(space), self.values[s.args[0]].expand(space)
        flat.index_put_((place,), value, accumulate=s.mode == "add")

    def _rows(self, s: Statement) -> torch.Tensor:
        """The values of the argument of `s`, those of all reduction axes in the last dimension."""
        outer = len(self.body.axes)
        value = self.values[s.args[0]]
        value = value.expand(*value.shape[:outer], *self.extents[outer:])
        return value.reshape(*value.shape[:outer], math.prod(self.extents[outer:]))

    def _reduce(self, s: Statement) -> torch.Tensor:
        rows = self._rows(s)
        result = _reduced(s.mode, rows, s.dtype)
        self.values[s.name + "#"] = rows
        return result.reshape(*rows.shape[:-1], *([1] * len(self.body.reduction_axes)))

    def _scan(self, s: Statement) -> torch.Tensor:
        rows = self._rows(s)
        return scanned(s.mode, rows, s.dtype).reshape(*rows.shape[:-1], *self.extents[len(self.body.axes):])

    def _part(self, s: Statement) -> torch.Tensor:
        rows = self.values[s.args[0] + "#"].to(s.dtype)
        mean = rows.mean(-1, keepdim=True)
        result = (mean, ((rows - mean) ** 2).sum(-1), torch.full_like(mean, rows.shape[-1]))[int(s.value or 0)]
        return result.reshape(*rows.shape[:-1], *([1] * len(self.body.reduction_axes)))


def flattened(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor from its first element to its last, as one dimension."""
    span = 0 if tensor.numel() == 0 else 1 + sum((s - 1) * t for s, t in zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((span,), (1,), tensor.storage_offset())


def _reduced(kind: str, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if kind in ("sum", *DOTS):
        return rows.sum(-1, dtype=dtype)
    if kind == "prod":
        return rows.prod(-1, dtype=dtype)
    if kind in ("any", "all"):
        return rows.any(-1) if kind == "any" else rows.all(-1)
    if kind == "welford":
        return rows.mean(-1)
    if kind in ("argmax", "argmin"):
        return (torch.argmax if kind == "argmax" else torch.argmin)(rows, dim=-1)
    if rows.shape[-1] == 0:
        return torch.full(rows.shape[:-1], identity(kind, dtype), dtype=dtype, device=rows.device)
    return rows.amax(-1) if kind == "max" else rows.amin(-1)


def scanned(kind: str, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A scan along the last dimension."""
    if kind in ("sum", "prod"):
        return (torch.cumsum if kind == "sum" else torch.cumprod)(rows, -1, dtype=dtype)
    if kind == "logsumexp":
        return torch.logcumsumexp(rows, -1)
    values, places = (torch.cummax if kind.endswith("max") else torch.cummin)(rows, -1)
    return places if kind.startswith("arg") else values


_FUNCTIONS: dict[Any, Callable[[Any, Any], Any]] = {
    FloorDiv: operator.floordiv, Mod: operator.mod, PythonMod: operator.mod,
}


def evaluate(expression: Any, environment: Mapping[sympy.Symbol, Any]) -> Any:
    """The value of an index expression where symbols have int or int64 tensor values."""
    if isinstance(expression, sympy.Symbol):
        return environment[expression]
    if isinstance(expression, (int, sympy.Integer)):
        return int(expression)
    if isinstance(expression, sympy.Add):
        return sum(evaluate(a, environment) for a in expression.args)
    if isinstance(expression, sympy.Mul):
        total: Any = 1
        for factor in expression.args:
            total = total * evaluate(factor, environment)
        return total
    function = _FUNCTIONS.get(expression.func)
    if function is not None:
        return function(*[evaluate(a, environment) for a in expression.args])
    if isinstance(expression, sympy.Pow) and expression.exp.is_Integer and expression.exp > 0:
        return evaluate(expression.base, environment) ** int(expression.exp)
    value = expression.xreplace({s: sympy.sympify(environment[s]) for s in expression.free_symbols})
    return int(value) if value.is_Integer else value
