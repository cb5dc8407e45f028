"""The epilogue around the autograd node, where autograd records it: views, and new values of inputs.

Generated as source, like the wrapper, so that it can be read; most graphs need none.
"""
from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ....operators.unbacked import unbacked_in
from ...codegen.wrapper import WrapperWriter
from ...graphs.autograd_graphs import Partitioned
from ...graphs.functional_graph import FromGraph, Output, ViewOfGraph
from ...graphs.wrapper_source import WrapperSource
from ...ir.ir import Plan


def generate(halves: Partitioned, plan: Plan) -> WrapperSource | None:
    """Source of `call(inputs, made) -> results`, or None where the node's results are the program's."""
    joint = halves.joint
    inside = len(joint.forward.mutations)
    plain = tuple(FromGraph(k) for k in range(inside, joint.forward_outputs))
    if not joint.assigned and not joint.related and joint.forward.outputs == plain:
        return None
    return _OutsideWriter(halves, plan).write()


class _OutsideWriter(WrapperWriter):
    def __init__(self, halves: Partitioned, plan: Plan) -> None:
        super().__init__(halves.forward, plan, {}, {})
        self.joint = halves.joint
        self.numbers = halves.numbers
        self.inside = len(halves.joint.forward.mutations)
        self.texts: dict[int, str] = {}
        self.led: dict[int, str] = {}

    def write(self) -> WrapperSource:
        """All lines, in order."""
        names = self.program.inputs
        self.line(f"def call(inputs, made{', leads' if self.joint.related else ''}):", indent=0)
        self.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = inputs")
        self.read_symbols()
        self._read_unbacked()
        for output, index in self.joint.assigned.items():
            self.line(f"{names[index]}.copy_(made[{output - self.inside}])")
        self.results()
        return WrapperSource(tuple(self.lines), self.names, self.operators)

    def _read_unbacked(self) -> None:
        """A name for each unbacked symbol in a result: the size of what the node returned, or a number that it returned
        after its tensors."""
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
        values = [self.named(i) for i in range(len(self.joint.forward.outputs))]
        self.line(f"return ({', '.join(values)}{',' if len(values) == 1 else ''})")

    def named(self, number: int) -> str:
        """Python for a result that may have been made already."""
        output = self.joint.forward.outputs[number]
        if id(output) not in self.texts:
            self.texts[id(output)] = self.result(number, output)
        return self.texts[id(output)]

    def made(self, index: int) -> str:
        """Python for what the node gives for a graph output, with edges to the results that it depends on."""
        text = f"made[{index - self.inside}]"
        if index not in self.joint.related:
            return text
        if index not in self.led:
            cuts = self.joint.related[index]
            results = "".join(f", {self.named(self.joint.cuts[cut])}" for cut in cuts)
            self.line(f"led{index} = leads.lead({self.joint.tangents.index(index)}, {cuts!r}, {text}{results})")
            self.led[index] = f"led{index}"
        return self.led[index]

    def result(self, number: int, output: Output) -> str:
        """Python for one result, made from the inputs and from what the node returned."""
        if isinstance(output, FromGraph):
            return self.lazy_view(self.made(output.index), output)
        if isinstance(output, ViewOfGraph):
            base = self.made(output.index)
            real = self.joint.module.graph.output_node().args[0][output.index].meta["val"]  # type: ignore[index,union-attr]
            self.line(f"result{number} = {self.strided_view(base, real, output)}")
            return f"result{number}"
        return super().result(number, output)

