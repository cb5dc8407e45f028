"""What a C++ wrapper returns: which results are inputs, Python values, or tensors that the graph computes."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from ...graphs.functional_graph import AtenGraph, Constant, FromGraph, FromInput, Output, ViewOfInput
from ...ir.ir import Program, View
from ...unsupported import NoCppWrapper


@dataclass(frozen=True)
class Result:
    """One object that is returned, at `places` of the tuple. `kind` is "input" (`value` is its index), "plain" (a value
    of Python), "size" (an expression of sizes), "made" (a View of the graph; where `copied`, a copy of it), or "view"
    (of an input, which Python makes: `value` is its number among those)."""

    kind: str
    value: Any
    places: tuple[int, ...]
    copied: bool = False


def results_of(
    aten: AtenGraph, program: Program, views: bool = False, windows: bool = False
) -> tuple[Result, ...]:
    """The results: one object of the program is one `Output`. Raises NoCppWrapper for what only Python makes; with
    `views` not for views of inputs, and with `windows` neither: who gets them has no autograd."""
    places: dict[int, list[int]] = {}
    outputs: dict[int, Output] = {}
    for place, output in enumerate(aten.outputs):
        places.setdefault(id(output), []).append(place)
        outputs[id(output)] = output
    if aten.is_backward:
        return _gradients(places, outputs, aten, program)
    found: list[Result] = []
    shared: dict[View, int] = {}
    of_inputs = [place for place, output in enumerate(aten.outputs) if isinstance(output, ViewOfInput)]
    for key, output in outputs.items():
        window = _window(output, aten, program) if windows and isinstance(output, ViewOfInput) else None
        if window is None and views and isinstance(output, ViewOfInput):
            found.append(Result("view", of_inputs.index(places[key][0]), tuple(places[key])))
            continue
        kind, value = window or _made(output, aten, program)
        result = Result(kind, value, tuple(places[key]))
        if isinstance(output, FromGraph) and output.saved and isinstance(value, View) and value in shared:
            before = found[shared[value]]  # saved for the backward: needs no separate object
            found[shared[value]] = Result(kind, value, before.places + result.places)
            continue
        if isinstance(value, View):
            shared[value] = len(found)
        found.append(result)
    return tuple(found)


def _gradients(
    places: dict[int, list[int]], outputs: dict[int, Output], aten: AtenGraph, program: Program
) -> tuple[Result, ...]:
    """Gradients, which their receiver may keep: each storage is returned once, other windows on it are copied, and so
    is what was saved. A window on a tangent is what eager returns."""
    found: dict[Any, Result] = {}
    given: dict[str, View] = {}
    for key, output in outputs.items():
        kind, value = _made(output, aten, program)
        if not isinstance(value, View):
            found[key] = Result(kind, value, tuple(places[key]))
            continue
        is_input = program.buffers[value.buffer].role == "input"
        saved = is_input and program.inputs.index(value.buffer) < (aten.first_tangent or 0)
        copied = saved or given.setdefault(value.buffer, value) != value
        before = found.get(value) if not copied else None
        found[key if copied else value] = Result(
            kind, value, (*(before.places if before else ()), *places[key]), copied
        )
    return tuple(found.values())


def _made(output: Output, aten: AtenGraph, program: Program) -> tuple[str, Any]:
    if isinstance(output, FromInput):
        if aten.is_backward:
            raise NoCppWrapper("a gradient is an argument of the backward itself")
        return "input", output.index
    if isinstance(output, Constant):
        return _number(output.value.node.expr if isinstance(output.value, torch.SymInt) else output.value)
    if not isinstance(output, FromGraph) or output.lazily:
        raise NoCppWrapper("a result is a view of an input, or a lazy (conjugate or negative) view")
    value = program.outputs[output.index - len(program.copies)]
    if not isinstance(value, View):
        return _number(value)
    buffer = program.buffers[value.buffer]
    if value.dtype is not None and value.dtype != buffer.dtype:
        raise NoCppWrapper("a result is a view in another dtype")
    if buffer.role == "constant":
        raise NoCppWrapper("a result is a constant of the graph")
    if buffer.role == "input" and not aten.is_backward:
        if (value.size, value.stride, value.offset) == (buffer.size, buffer.stride, 0):
            return "input", program.inputs.index(value.buffer)
    return "made", value


def _window(output: ViewOfInput, aten: AtenGraph, program: Program) -> tuple[str, Any] | None:
    """A view of an input as a window on its memory; None where it is no such one."""
    real, name = aten.inputs[output.index], program.inputs[output.index]
    if output.lazily or output.dtype != real.dtype or name not in program.buffers or real.is_conj() or real.is_neg():
        return None
    buffer, (start, first) = program.buffers[name], _symbolic((output.offset, real.storage_offset()))
    view = View(name, _symbolic(output.size), _symbolic(output.stride), start - first)
    if (view.size, view.stride, view.offset) == (buffer.size, buffer.stride, 0):
        return "input", output.index
    return "made", view


def _symbolic(numbers: Sequence[Any]) -> tuple[sympy.Expr, ...]:
    return tuple([n.node.expr if isinstance(n, torch.SymInt) else sympy.Integer(n) for n in numbers])


def _number(value: Any) -> tuple[str, Any]:
    if isinstance(value, sympy.Integer):
        return "plain", int(value)
    if isinstance(value, sympy.Expr) and value.is_integer:
        return "size", value
    if value is None or type(value) in (bool, int, float, str):
        return "plain", value
    raise NoCppWrapper(f"a result of type {type(value).__name__}")


def described(results: Sequence[Result]) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    """Each result as data: its kind, its number among those of this kind (of an input, which), and its places."""
    found, counts = [], Counter[str]()
    for result in results:
        found.append((result.kind, result.value if result.kind == "input" else counts[result.kind], result.places))
        counts[result.kind] += 1
    return tuple(found)
