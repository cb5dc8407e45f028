"""Running a lowered program step by step: its loop bodies in the reference interpreter, or its compiled kernels.

Each buffer has memory of its own, so that all values can be seen; `shared` lets buffers share memory as planned. With
an `Arena`, memory holds a pattern beforehand and has guard zones around it.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch

from ...engine.graphs.functional_graph import AtenGraph
from ...engine.ir import interpreter
from ...engine.ir.ir import ExternCall, Group, KernelSignature, LoopBody, Plan, Program, scalar_buffer
from ...engine.runtime.runtime import CALLED
from ...engine.stages import Wrapped
from ..recorded.state import as_compiled
from ..verdicts.compare import SLACK_ULPS, Comparison, compare, worst
from .arena import Arena
from .rungs import Execution, assemble, snapshot, with_folded

Memory = dict[str, torch.Tensor]
Kernels = Mapping[str, Callable[..., int]]
RunOne = Callable[[Any, Memory, Mapping[sympy.Symbol, Any]], None]


def run_loops(
    aten: AtenGraph, program: Program, inputs: tuple[Any, ...], random: Mapping[str, Any] | None = None
) -> Execution:
    """Run a program's loop bodies in the reference interpreter, extern kernels in ATen."""
    return run_steps(aten, program, program.steps, inputs, interpreter.run_body, random=random)


@as_compiled()
def run_wrapper(work: Wrapped, inputs: tuple[Any, ...]) -> Execution:
    """Call the compiled graph as the program does: buffers share memory as planned."""
    start = time.perf_counter()
    with torch.no_grad():
        made = work.call(list(inputs)) if work.aten.is_backward else work.call(*inputs)
    return Execution(tuple(made), inputs, {}, time.perf_counter() - start)


def kernels_alone(work: Wrapped, inputs: tuple[Any, ...]) -> list[tuple[str, Comparison]]:
    """Each kernel alone: on what it gets in the loop IR, beside what its loop bodies make of it there. In memory full
    of a pattern: what an earlier run left there would be right where a kernel reads before it writes."""
    found: list[tuple[str, Comparison]] = []

    def group(step: Group, memory: Memory, symbols: Mapping[sympy.Symbol, Any]) -> None:
        names = work.signatures[step.kernel].buffers
        own = {name: copied(memory[name]) for name in names}
        exact, largest = _in_float64(step, memory, symbols), _largest(step, memory)
        for body in step.bodies:
            interpreter.run_body(body, memory, symbols)
        run_group(step, work.kernels, work.signatures, own, symbols)
        left = [name for name in dict.fromkeys(written(step)) if name in own]
        each = [compare(own[name], memory[name], exact.get(name)) for name in left]
        dtypes = [memory[name].dtype for name in left]
        found.append((step.kernel, worst([_of_float64(one, largest) if dtype is torch.float64 else one
                                          for one, dtype in zip(each, dtypes)])))

    run_steps(work.aten, work.plan.program, work.plan.items, inputs, group, Arena())
    return found


def _largest(step: Group, memory: Memory) -> float:
    """The largest number that a group reads, at least 1, which functions and constants are about as large as."""
    read = [memory[name] for body in step.bodies for name in body.reads if name in memory]
    floats = [value.abs().nan_to_num(0, 0, 0).max().item() for value in read
              if value.is_floating_point() and value.numel()]
    return max([1.0, *floats])


def _of_float64(found: Comparison, largest: float) -> Comparison:
    """A verdict on float64, which no reference is more exact than: what is read may cancel out, as in the logarithm of
    a sum near 1, and leaves errors of its own size."""
    allowed = SLACK_ULPS * torch.finfo(torch.float64).eps * largest
    if found.verdict != "different" or not found.max_abs <= allowed:
        return found
    return replace(found, verdict="rounding", why=f"units in the last place of what is read: {found.max_abs:.3g}, "
                   f"allowed {allowed:.3g}")


def _in_float64(step: Group, memory: Memory, symbols: Mapping[sympy.Symbol, Any]) -> Memory:
    """What the bodies of a group compute in float64; nothing where that does not work (bits of a float)."""
    touched = {name for body in step.bodies for name in (*body.reads, *body.writes)}
    wide = {name: copied(memory[name]) for name in touched}
    wide = {name: value.double() if value.is_floating_point() else value for name, value in wide.items()}
    try:
        for body in step.bodies:
            statements = tuple([replace(s, dtype=torch.float64) if s.dtype.is_floating_point else s
                                for s in body.statements])
            interpreter.run_body(replace(body, statements=statements), wide, symbols)
    except (RuntimeError, TypeError):
        return {}
    return wide


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same layout in memory of its own, gaps included."""
    flat = interpreter.flattened(tensor)
    return flat.clone().as_strided(tensor.shape, tensor.stride(), 0)


def run_kernels(
    aten: AtenGraph, plan: Plan, kernels: Kernels, signatures: Mapping[str, KernelSignature], inputs: tuple[Any, ...],
    arena: Arena | None = None, shared: bool = False, random: Mapping[str, Any] | None = None,
) -> Execution:
    """Run a plan's compiled kernels one after the other. `random` are values for the results of random operators."""

    def group(step: Group, memory: Memory, symbols: Mapping[sympy.Symbol, Any]) -> None:
        run_group(step, kernels, signatures, memory, symbols)

    reuse = plan.reuse if shared else {}
    return run_steps(aten, plan.program, plan.items, inputs, group, arena, reuse, random)


def lowered(
    stage: str, work: Wrapped, inputs: tuple[Any, ...], arena: Arena | None = None, shared: bool = False,
    random: Mapping[str, Any] | None = None,
) -> Execution:
    """Run one stage of a lowered graph."""
    if stage == "loop_ir":
        return run_loops(work.aten, work.program, inputs, random)
    if stage == "wrapper":
        return run_wrapper(work, inputs)
    return run_kernels(work.aten, work.plan, work.kernels, work.signatures, inputs, arena, shared, random)


def run_group(
    step: Group, kernels: Kernels, signatures: Mapping[str, KernelSignature], memory: Memory,
    symbols: Mapping[sympy.Symbol, Any],
) -> None:
    """Call the kernel of a group on the buffers in `memory`."""
    signature = signatures[step.kernel]
    pointers = [memory[name].data_ptr() for name in signature.buffers]
    status = kernels[step.kernel](*pointers, *(symbols[s] for s in signature.symbols))
    if status:
        raise IndexError(f"{step.kernel}: index out of range in `{signature.bounds[status - 1]}`")


@as_compiled()
def run_steps(
    aten: AtenGraph, program: Program, steps: Sequence[Any], inputs: tuple[Any, ...], run_one: RunOne,
    arena: Arena | None = None, reuse: Mapping[str, str] | None = None, random: Mapping[str, Any] | None = None,
    left: Callable[[Any, Mapping[str, Any]], None] = lambda step, written: None,
) -> Execution:
    """Run the steps of a program, each loop body or group by `run_one`. `left` hears what each has written."""
    memory: Memory = dict(program.constants)
    given = with_folded(aten, inputs)
    memory |= {n: v for n, v in zip(program.inputs, given) if isinstance(v, torch.Tensor)}
    if arena is not None:
        shared = _sharing(memory)
        memory = {n: value if n in shared else arena.guarded(n, value) for n, value in memory.items()}
    symbols = interpreter.symbol_values(program, inputs)
    allocate_known(program, memory, symbols, arena, reuse or {})
    values: dict[str, Any] = {}
    start = time.perf_counter()
    with torch.no_grad():
        for step in steps:
            if isinstance(step, (LoopBody, Group)):
                run_one(step, memory, symbols)
            else:
                _call(step, memory, symbols, arena, random)
                if step.binds:
                    allocate_known(program, memory, symbols, arena, reuse or {})
            if arena is not None:
                arena.check(getattr(step, "kernel", getattr(step, "name", "")))
            new_values = {name: snapshot(memory[name]) for name in written(step) if name in memory}
            left(step, new_values)
            values |= new_values
        made = [interpreter.resolve(out, memory, symbols) for out in program.outputs]
        new = [interpreter.resolve(view, memory, symbols) for view, _ in program.copies]
        if arena is not None:
            arena.give_back(program.inputs, given, memory)
        outputs = assemble(aten, inputs, new, made, {s.name: v for s, v in symbols.items()})
    return Execution(outputs, inputs, values, time.perf_counter() - start)


def _sharing(memory: Memory) -> set[str]:
    """The tensors that share storage with another one: a copy would not."""
    held = {name: value for name, value in memory.items() if value is not None}
    storages = [value.untyped_storage()._cdata for value in held.values() if value.layout is torch.strided]
    return {name for name, value in held.items() if value.layout is not torch.strided or storages.count(
        value.untyped_storage()._cdata) > 1}


def _call(
    step: ExternCall, memory: Memory, symbols: dict[sympy.Symbol, Any], arena: Arena | None,
    random: Mapping[str, Any] | None,
) -> None:
    called = replace(step, target=CALLED.get(step.target, step.target))
    interpreter.call(called, memory, symbols)
    for name in step.outputs:
        if name is not None and random is not None and name in random:
            memory[name].copy_(random[name])
        elif name is not None and arena is not None and memory[name] is not None:
            memory[name] = arena.guarded(name, memory[name])


def allocate_known(
    program: Program, memory: Memory, symbols: Mapping[sympy.Symbol, Any], arena: Arena | None = None,
    reuse: Mapping[str, str] | None = None,
) -> None:
    """Memory for the buffers whose sizes are known by now, and for floats that vary."""
    for symbol, number in symbols.items():
        if scalar_buffer(symbol) in program.buffers:
            memory[scalar_buffer(symbol)] = torch.tensor(number, dtype=torch.float64, device="cpu")
    for buffer in program.buffers.values():
        known = all(e.free_symbols <= symbols.keys() for e in (*buffer.size, *buffer.stride))
        if buffer.role != "intermediate" or buffer.name in memory or not known:
            continue
        made = interpreter.allocate(buffer, symbols)
        taken = _owner(buffer.name, reuse or {})
        if taken in memory and taken != buffer.name:
            owner = memory[taken]
            memory[buffer.name] = owner.as_strided(made.shape, made.stride(), owner.storage_offset())
        else:
            memory[buffer.name] = made if arena is None else arena.guarded(buffer.name, made, fresh=True)


def _owner(name: str, reuse: Mapping[str, str]) -> str:
    while name in reuse:
        name = reuse[name]
    return name


def written(step: Any) -> Iterator[str]:
    """Names of the buffers that a step leaves in memory."""
    if isinstance(step, LoopBody):
        yield from step.writes
    elif isinstance(step, Group):
        for body in step.bodies:
            yield from (name for name in body.writes if name not in step.internal)
    else:
        yield from (name for name in step.outputs if name is not None)
