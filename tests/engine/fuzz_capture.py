"""Programs of the fuzz as one captured graph: what a tracer would hand to the engine.

Sizes vary where asked: dimensions of inputs become symbols, and `varied` says which programs the compiled graph must
then also serve, by what was assumed of the symbols while it was traced and compiled.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
import torch.fx
from ptdebug.tracer.shapes.fake_mode import CaptureFakeMode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from .fuzz_compare import execute
from .fuzz_devices import here
from .fuzz_programs import Input, Program, apply, mapped
from .programs import Captured

SIZED = ("upsample_nearest2d_backward", "upsample_bilinear2d_backward", "upsample_bicubic2d_backward",
         "_adaptive_avg_pool2d_backward")
"""Kernels that write outside of their result where the sizes of arguments are not in line with each other."""


@dataclass(frozen=True)
class Faked:
    """A program with fake values: its inputs as a graph gets them, and what each call makes."""

    program: Program
    inputs: tuple[torch.Tensor, ...]
    values: dict[str, Any]


def faked(programs: Sequence[Program], dynamic: bool = False) -> list[Faked]:
    """The programs with the fake values that a tracer would find; what fake tensors refuse (a tracer leaves it to
    eager) is not in it."""
    mode = CaptureFakeMode(shape_env=ShapeEnv()) if dynamic else FakeTensorMode()  # which has torch's Python forms on
    made = []
    for number, program in enumerate(programs):
        names = [f"p{number}_{given.name}" for given in program.inputs]
        inputs = tuple(_fake(mode, given, dynamic, name) for given, name in zip(program.inputs, names))
        values: dict[str, Any] = {i.name: _twin(mode, i, fake) for i, fake in zip(program.inputs, inputs)}
        try:
            with mode, torch.no_grad():
                for call in program.calls:
                    values[call.name] = apply(call, values, here().fakes)
        except Exception:
            if mode.shape_env is not None:
                mode.shape_env.pending_fresh_unbacked_symbols.clear()  # of a kernel that then refused
            continue
        made.append(Faked(program, inputs, values))
    return made


def captured(programs: Sequence[Faked]) -> Captured:
    """Programs side by side as one graph."""
    graph = torch.fx.Graph()
    nodes: list[dict[str, torch.fx.Node]] = []
    for p, one in enumerate(programs):
        nodes.append({given.name: graph.placeholder(f"p{p}_{given.name}") for given in one.program.inputs})
        for node, fake in zip(nodes[p].values(), one.inputs):
            node.meta["val"] = fake
    for own, one in zip(nodes, programs):
        for call in one.program.calls:
            node = graph.call_function(call.target, mapped(call.args, own), mapped(call.options(here().fakes), own))
            node.meta["val"] = one.values[call.name]
            own[call.name] = node
    graph.output(tuple(own[name] for own, one in zip(nodes, programs) for name in one.program.results))
    return Captured(torch.fx.GraphModule({}, graph), tuple(fake for one in programs for fake in one.inputs))


# ---- fakes -----------------------------------------------------------------------------------------------------------
def _fake(mode: FakeTensorMode, given: Input, dynamic: bool, name: str) -> torch.Tensor:
    if not dynamic or not _is_dense(given) or given.data is not None:
        return _fixed(mode, given)
    from torch._dynamo.source import ConstantSource

    sizes = [DimDynamic.DYNAMIC if n > 1 else DimDynamic.STATIC for n in given.shape]
    symbols = StatelessSymbolicContext(dynamic_sizes=sizes)
    return mode.from_tensor(_fixed(FakeTensorMode(), given), source=ConstantSource(name), symbolic_context=symbols)


def _fixed(mode: FakeTensorMode, given: Input) -> torch.Tensor:
    memory = torch.empty(given.span, dtype=given.dtype, device="meta")
    return FakeTensor(mode, memory.as_strided(given.shape, given.stride, given.offset), here().fakes)


def _twin(mode: FakeTensorMode, given: Input, fake: torch.Tensor) -> torch.Tensor:
    """Another fake like one: the program writes to it while the first stays an input."""
    if not any(isinstance(n, torch.SymInt) for n in fake.shape):
        return _fixed(mode, given)
    with mode:
        count = fake.untyped_storage().nbytes() // fake.element_size()
        storage = torch.empty(count, dtype=fake.dtype, device=here().fakes)
        return storage.as_strided(fake.shape, fake.stride(), fake.storage_offset())


def _is_dense(given: Input) -> bool:
    return given.offset == 0 and given.stride == _nested(given.shape, _order(given))


def _order(given: Input) -> list[int]:
    """Dimensions from the outermost to the innermost."""
    return sorted(range(len(given.shape)), key=lambda d: (given.stride[d], given.shape[d]), reverse=True)


def _nested(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    strides, stride = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = stride
        stride *= max(shape[d], 1)
    return tuple(strides)


# ---- sizes that vary -------------------------------------------------------------------------------------------------
def varied(programs: Sequence[Faked]) -> list[Program]:
    """The programs with other sizes, where eager takes these and they are in line with all that was assumed of the
    symbols; the rest as they are."""
    return [other if (other := _resized(one)) is not None else one.program for one in programs]


def _resized(one: Faked) -> Program | None:
    rng = random.Random(one.program.seed)
    sizes: dict[int, int] = {}
    inputs, values = [], dict[sympy.Symbol, int]()
    for given, fake in zip(one.program.inputs, one.inputs):
        moves = [isinstance(n, torch.SymInt) for n in fake.shape]
        if not any(moves):
            inputs.append(given)
            continue
        shape = tuple(sizes.setdefault(n, n + rng.choice((1, 2, 5))) if move else n
                      for n, move in zip(given.shape, moves))
        inputs.append(replace(given, shape=shape, stride=_nested(shape, _order(given))))
        values |= {n.node._expr: m for n, m in zip(fake.shape, shape) if isinstance(n, torch.SymInt)}
    if any(call.function.endswith(SIZED) for call in one.program.calls):
        return None
    other = replace(one.program, inputs=tuple(inputs))
    environments = [fake.fake_mode.shape_env for fake in one.inputs if isinstance(fake, FakeTensor)]
    if not values or not _is_assumed(environments[0], values):
        return None
    try:
        with torch.no_grad():
            execute(other, other.tensors())
    except Exception:
        return None
    return other


def _is_assumed(environment: ShapeEnv, values: Mapping[sympy.Symbol, int]) -> bool:
    """Whether sizes are in line with the guards of an environment that are about them."""
    known = set(values)
    for symbol, same in environment.replacements.items():
        if symbol in known and same.xreplace(dict(values)) != values[symbol]:
            return False
    about = [g.expr for g in environment.guards if g.expr.free_symbols & known]
    return all(bool(expr.xreplace(dict(values)) == True) for expr in about)  # noqa: E712  (an undecided one is not)
