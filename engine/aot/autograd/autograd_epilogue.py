"""What is done around the autograd node, where autograd records it: views, and new values of inputs.

Generated as source, like the wrapper, so that it can be read; most graphs need nothing.
"""
from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ...codegen.wrapper import WrapperWriter
from ...graphs.autograd_graphs import Partitioned
from ...graphs.functional_graph import FromGraph, Output, ViewOfGraph
from ...graphs.unbacked import unbacked_in
from ...graphs.wrapper_source import WrapperSource
from ...ir.ir import Plan


def generate(halves: Partitioned, plan: Plan) -> WrapperSource | None:
    """Source of `call(inputs, made) -> results`, or None where the node's results are the program's."""
    joint = halves.joint
    inside = len(joint.forward.mutations)
    plain = tuple(FromGraph(k) for k in range(inside, joint.forward_outputs))
    if not joint.assigned and joint.forward.outputs == plain:
        return None
    return _OutsideWriter(halves, plan).write()


class _OutsideWriter(WrapperWriter):
    def __init__(self, halves: Partitioned, plan: Plan) -> None:
        super().__init__(halves.forward, plan, {}, {})
        self.joint = halves.joint
        self.numbers = halves.numbers
        self.inside = len(halves.joint.forward.mutations)

    def write(self) -> WrapperSource:
        """All lines, in order."""
        names = self.program.inputs
        self.line("def call(inputs, made):", indent=0)
        self.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = inputs")
        self.read_symbols()
        self._read_unbacked()
        for output, index in self.joint.assigned.items():
            self.line(f"{names[index]}.copy_(made[{output - self.inside}])")
        self.results()
        return WrapperSource(tuple(self.lines), self.names, self.operators)

    def _read_unbacked(self) -> None:
        """A name for each number that only data tells and a result mentions: the size of what the node returned, or a
        number that it returned after its tensors."""
        wanted = unbacked_in([list(vars(output).values()) for output in self.joint.forward.outputs])
        returned: Any = self.joint.module.graph.output_node().args[0]
        for position, node in enumerate(returned[self.inside : self.joint.forward_outputs]):
            value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
            for dimension, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                symbol = size.node.expr if isinstance(size, torch.SymInt) else None
                if symbol in wanted:
                    wanted.remove(symbol)
                    self.line(f"{symbol} = made[{position}].shape[{dimension}]")
        for position, name in enumerate(self.numbers, self.joint.forward_outputs - self.inside):
            self.line(f"{name} = made[{position}]")

    def results(self) -> None:
        """The return statement: one object for each `Output`."""
        texts: dict[int, str] = {}
        for i, output in enumerate(self.joint.forward.outputs):
            if id(output) not in texts:
                texts[id(output)] = self.result(i, output)
        values = [texts[id(output)] for output in self.joint.forward.outputs]
        self.line(f"return ({', '.join(values)}{',' if len(values) == 1 else ''})")

    def result(self, number: int, output: Output) -> str:
        """Python for one result, made from the inputs and from what the node returned."""
        if isinstance(output, FromGraph):
            return self.lazy_view(f"made[{output.index - self.inside}]", output)
        if isinstance(output, ViewOfGraph):
            base = f"made[{output.index - self.inside}]"
            real = self.joint.module.graph.output_node().args[0][output.index].meta["val"]  # type: ignore[index,union-attr]
            self.line(f"result{number} = {self.strided_view(base, real, output)}")
            return f"result{number}"
        return super().result(number, output)

