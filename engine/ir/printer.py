"""The loop IR as text, in the form of ir.py's docstring. `parser.py` reads it back, exactly.

    body buf3[i0: 4096] reduce [r0: 1024]
      t0 = load x[1024*i0 + r0] : float32  # mul_1
      t1 = load y[i0 - 4] mask t4 else 0.0 : float32
      t2 = indirect strict t5 < 50257 : int64
      t3 = reduce sum t2 : float32
      store add buf3[i0], t3

What follows `#` are the ATen nodes that a statement comes from.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from .ir import Axis, Buffer, ExternCall, Group, LoopBody, Plan, Program, Statement, View

_ATOM, _MUL, _ADD = 3, 2, 1


@lru_cache(maxsize=16384, typed=True)
def format_expr(expression: Any) -> str:
    """An index or size expression: `1024*i0 + r0`, `(i0 // 64)`, `Mod(i0, 64)`."""
    return _expr(expression, 0) if isinstance(expression, sympy.Basic) else repr(expression)


def _expr(e: Any, outer: int) -> str:
    if isinstance(e, sympy.Symbol):
        return str(e.name)  # what sympy's printer gives, at a tenth of its time
    if isinstance(e, sympy.Integer):
        text = str(e.p)
        return f"({text})" if text.startswith("-") and outer >= _MUL else text
    if isinstance(e, sympy.Add):
        text = ""
        for term in _terms(e):
            piece = _expr(term, _ADD)
            text += piece if not text else f" - {piece[1:]}" if piece.startswith("-") else f" + {piece}"
        return f"({text})" if outer > _ADD else text
    if isinstance(e, sympy.Mul) and all(a.is_Integer or not isinstance(a, (sympy.Rational, sympy.Pow)) for a in e.args):
        coefficient, factors = e.as_coeff_mul()
        parts = [_expr(f, _MUL) for f in factors]
        if coefficient != 1:
            parts.insert(0, str(coefficient))
        text = "*".join(parts)
        if coefficient == -1:
            text = "-" + "*".join(parts[1:])
        return f"({text})" if outer > _MUL or (outer == _MUL and text.startswith("-")) else text
    if isinstance(e, FloorDiv):
        return f"({_expr(e.args[0], _MUL)} // {_expr(e.args[1], _ATOM)})"
    name = {Mod: "Mod", PythonMod: "PythonMod"}.get(e.func, e.func.__name__)
    if isinstance(e, sympy.Rational):
        return f"Rational({e.p}, {e.q})"
    return f"{name}({', '.join(_expr(a, 0) for a in e.args)})"


def _terms(e: sympy.Add) -> list[Any]:
    """Terms with the outermost axis first: by kind and number of their symbol, the constant last."""
    return sorted(e.args, key=lambda t: (t.is_Number, str(t.as_coeff_Mul()[1])))


def format_number(value: Any) -> str:
    """A constant: True, 3, 0.125, inf, nan."""
    return repr(value)


@lru_cache(maxsize=64)
def dtype_name(dtype: torch.dtype) -> str:
    """float32, not torch.float32."""
    return str(dtype).removeprefix("torch.")


def format_statement(s: Statement, dtypes: dict[str, torch.dtype] | None = None) -> str:
    """One statement on one line, without indentation or origins."""
    if s.op == "store":
        mode = f"{s.mode} " if s.mode else ""
        dtype = "" if dtypes is None or dtypes.get(s.args[0]) is s.dtype else f" : {dtype_name(s.dtype)}"
        return f"store {mode}{s.buffer}[{format_expr(s.index)}], {s.args[0]}{dtype}"
    return f"{s.name} = {s.op} {_operands(s)} : {dtype_name(s.dtype)}"


def _operands(s: Statement) -> str:
    if s.op == "load":
        mask = f" mask {s.mask} else {format_number(s.value)}" if s.mask else ""
        return f"{s.buffer}[{format_expr(s.index)}]{mask}"
    if s.op == "constant":
        return format_number(s.value)
    if s.op == "index":
        return format_expr(s.index)
    if s.op == "indirect":
        mode = f"{s.mode} " if s.mode else ""
        return f"{mode}{s.args[0]} < {format_expr(s.bound)}"
    if s.op in ("reduce", "scan"):
        return f"{s.mode} {s.args[0]}"
    if s.op == "part":
        return f"{s.args[0]} {s.value}"
    return ", ".join(s.args)


def _axes(axes: Sequence[Axis]) -> str:
    return ", ".join(f"{a.symbol}: {format_expr(a.extent)}" for a in axes)


def format_body(body: LoopBody, origins: bool = True) -> str:
    """A loop body, one statement a line."""
    head = f"body {body.name}[{_axes(body.axes)}]"
    if body.reduction_axes:
        head += f" reduce [{_axes(body.reduction_axes)}]"
    lines = [head]
    dtypes = {s.name: s.dtype for s in body.statements if s.op != "store"}
    for s in body.statements:
        source = f"  # {' '.join(s.origins)}" if origins and s.origins else ""
        lines.append(f"  {format_statement(s, dtypes)}{source}")
    return "\n".join(lines) + "\n"


def format_group(group: Group) -> str:
    """A kernel: its outer axes, device and internal buffers, then its bodies, indented."""
    internal = f" internal {' '.join(sorted(group.internal))}" if group.internal else ""
    head = f"kernel {group.kernel}[{_axes(group.axes)}] on {group.device}{internal}\n"
    return head + "".join(_indented(format_body(b)) for b in group.bodies)


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


# ---- programs
def format_program(program: Program) -> str:
    """A program: symbols, buffers, steps, outputs. Constants appear by name only."""
    steps = "".join(format_body(s) if isinstance(s, LoopBody) else format_extern(s) for s in program.steps)
    return "program\n" + _indented("".join(_head(program)) + steps + _tail(program))


def format_plan(plan: Plan) -> str:
    """A plan: as a program, with kernels in place of bodies, and which buffer takes over whose memory."""
    items = "".join(format_group(i) if isinstance(i, Group) else format_extern(i) for i in plan.items)
    reuse = "".join(f"reuse {new} takes {old}\n" for new, old in plan.reuse.items())
    return "plan\n" + _indented("".join(_head(plan.program)) + items + _tail(plan.program) + reuse)


def _head(program: Program) -> Iterator[str]:
    for name in program.inputs:
        if name not in program.buffers:
            yield f"scalar {name}\n"
    for symbol, (position, kind, dim) in program.symbols.items():
        facts = " positive" if symbol.is_positive else " nonnegative" if symbol.is_nonnegative else ""
        yield f"symbol {symbol} = {program.inputs[position]}.{kind} {dim}{facts}\n"
    for buffer in program.buffers.values():
        yield format_buffer(buffer) + "\n"
    yield f"inputs {' '.join(program.inputs)}\n"


def format_buffer(b: Buffer) -> str:
    """`input x : float32 [8, 16] strides [16, 1] on cpu`"""
    size, stride = (", ".join(map(format_expr, numbers)) for numbers in (b.size, b.stride))
    role = "buffer" if b.role == "intermediate" else b.role
    return f"{role} {b.name} : {dtype_name(b.dtype)} [{size}] strides [{stride}] on {b.device}"


def _tail(program: Program) -> str:
    outputs = "".join(f"output {format_argument(out)}\n" for out in program.outputs)
    return outputs + "".join(f"copy {format_argument(view)} to {name}\n" for view, name in program.copies)


def format_extern(step: ExternCall) -> str:
    """A library call: `extern (buf3,) = aten.mm.default(...) mutates [] name buf3 because '...'  # mm`"""
    arguments = [format_argument(a) for a in step.args]
    arguments += [f"{k}={format_argument(v)}" for k, v in step.kwargs.items()]
    outputs = ", ".join(o or "None" for o in step.outputs)
    mutates = f" mutates {' '.join(step.mutates)}" if step.mutates else ""
    tail = f"because {step.why!r}" + (f"  # {' '.join(step.origins)}" if step.origins else "")
    return f"extern {step.name} ({outputs}) = {step.target}({', '.join(arguments)}){mutates} {tail}\n"


def format_argument(value: Any) -> str:
    """An argument of a library call or an output, as a Python expression over `view(...)` and `expr(...)`."""
    if isinstance(value, View):
        size, stride = (f"[{', '.join(map(format_expr, numbers))}]" for numbers in (value.size, value.stride))
        dtype = "" if value.dtype is None else f", {value.dtype}"
        return f"view({value.buffer!r}, {size}, {stride}, {format_expr(value.offset)}{dtype})"
    if isinstance(value, sympy.Basic):
        return f"expr({format_expr(value)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(format_argument, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(format_argument, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {format_argument(v)}' for k, v in value.items())}}}"
    if isinstance(value, torch.device):
        return f"device({str(value)!r})"
    return repr(value)
