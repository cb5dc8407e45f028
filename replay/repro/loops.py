"""The loops of one kernel as a script: loop IR text and buffers, compiled alone and held against the interpreter."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sympy
import torch

from ...artifacts.context import CompileContext, CompileId
from ...artifacts.recorder import NullRecorder
from ...engine.ir import interpreter
from ...engine.ir.ir import Axis, Buffer, Foreach, Group, LoopBody, Plan, Program, Statement
from ...engine.ir.printer import format_plan
from ..ladder.statements import built
from ..ladder.steps import run_group
from ..recorded.graphs import ReplayError
from .check_kernel import difference
from .graphs import loading
from .kernels import allowed_difference
from .regenerate import KernelCall, Memory, copied, interpreted
from .script import Body, Header, Repro, check_of, compose
from .tensors import Tensors, described

_CHECK = "check_loops.py"


@dataclass(frozen=True)
class Loops:
    """A kernel's loops, whose sizes are numbers: `before` and `after` are what the buffers hold around its call.
    `forced` are decisions; `imports` modules that are loaded first."""

    group: Group
    buffers: Mapping[str, Buffer]
    before: Memory
    after: Memory
    forced: Mapping[str, str]
    imports: tuple[str, ...] = ()

    @classmethod
    def of(cls, call: KernelCall, forced: Mapping[str, str], imports: tuple[str, ...] = ()) -> Loops:
        """Those of a kernel. Raises ReplayError where it has no loops of its own, or not for a CPU."""
        if isinstance(call.group, Foreach) or call.group.device.type != "cpu":
            raise ReplayError(f"{call.group.kernel} is not one nest of loops for a CPU: its loops cannot be reduced")
        numbers = {symbol: sympy.Integer(int(value)) for symbol, value in call.symbols.items()}
        group = _with_numbers(call.group, numbers)
        known = call.part.work.plan.program.buffers
        buffers = {name: replace(known[name], size=_numbered(known[name].size, numbers),
                                 stride=_numbered(known[name].stride, numbers)) for name in touched(group)}
        after = copied(call.memory)
        for body in group.bodies:
            interpreter.run_body(body, after, {})
        return cls(group, buffers, call.memory, after, forced, imports)

    def memory(self, group: Group) -> Memory:
        """What a part of the group runs on: what other parts would have written, they have. What it only writes is
        zeros, for it may not write all of it."""
        own, all_of_it = ({name for body in which.bodies for name in body.writes} for which in (group, self.group))
        read = {name for body in group.bodies for name in body.reads}
        found = {name: (self.after if name in all_of_it - own else self.before)[name] for name in touched(group)}
        return {name: value if name in read else torch.zeros_like(value) for name, value in found.items()}

    def plan(self, group: Group) -> Plan:
        """A part of the group as all that a program does."""
        return Plan(Program((), {}, {name: self.buffers[name] for name in touched(group)}, {}, group.bodies, ()),
                    (group,))

    def shown(self, group: Group) -> str:
        """What is wrong with a part of the group, compiled alone; "" for nothing. See `shown`."""
        return shown(self.plan(group), self.memory(group), self.forced)


def touched(group: Group) -> tuple[str, ...]:
    """The buffers of a group."""
    return tuple(dict.fromkeys(name for body in group.bodies for name in (*body.reads, *body.writes)))


def _with_numbers(group: Group, numbers: Mapping[Any, Any]) -> Group:
    """A group with numbers in place of symbols."""
    if not numbers:
        return group

    def axes(those: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple([Axis(a.symbol, *_numbered((a.extent,), numbers)) for a in those])

    def statement(s: Statement) -> Statement:
        index, bound = (None if e is None else _numbered((e,), numbers)[0] for e in (s.index, s.bound))
        return replace(s, index=index, bound=bound)

    bodies = tuple([LoopBody(b.name, axes(b.axes), axes(b.reduction_axes), tuple(map(statement, b.statements)))
                    for b in group.bodies])
    return replace(group, axes=axes(group.axes), bodies=bodies)


def _numbered(expressions: Sequence[Any], numbers: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple([sympy.sympify(expression).xreplace(numbers) for expression in expressions])


def shown(plan: Plan, memory: Memory, forced: Mapping[str, str]) -> str:
    """What is wrong with the one kernel of a plan when it is compiled and run: its buffers are held against what the
    interpreter leaves in them, as `BUFFER: difference`; "" where nothing is. Raises what compiling and running do."""
    (group,) = plan.items
    assert isinstance(group, Group)
    functions, signatures = built(plan, CompileContext(CompileId(0, 0), NullRecorder(), dict(forced)))
    own = copied(memory)
    with torch.no_grad():
        run_group(group, functions, signatures, own, {})
        compute = partial(interpreted, group, symbols={})
        expected = compute(memory)
        for name, right in expected.items():
            text = difference(own[name], right, allowed_difference(compute, memory, expected, name))
            if text:
                return f"{name}: {text}"
    return ""


def loops_repro(loops: Loops, group: Group, header: Header) -> Repro:
    """The script."""
    memory = loops.memory(group)
    tensors = Tensors()
    tensors.shared(list(memory.values()))
    values = {name: tensors.expression(name, value) for name, value in memory.items()}
    make = ["return {", *(f"    {name!r}: {values[name]},  # {described(memory[name])}" for name in memory), "}"]
    text = format_plan(loops.plan(group))
    definitions = [f"LOOPS = '''\\\n{text}'''", f"FORCED = {dict(loops.forced)!r}  # decisions of ptdebug, by id"]
    imports = ["from ptdebug.engine.ir.parser import parse_plan", "from ptdebug.replay.repro.loops import shown",
               *loading(loops.imports)]
    return compose(Body(header, definitions, make, tensors, imports), check_of(_CHECK))
