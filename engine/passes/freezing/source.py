"""The part of a graph that runs once, as Python: one line for each node."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from ....artifacts.records import CodeLine
from ...graphs.wrapper_source import WrapperSource
from ...runtime.runtime import callable_of


def folding_source(
    nodes: Sequence[torch.fx.Node], inputs: Sequence[torch.fx.Node], results: Sequence[torch.fx.Node],
    module: torch.fx.GraphModule,
) -> WrapperSource:
    """Python that computes `results` from `inputs`; `nodes` are in order, constants among them are held by `module`.

    A result whose strides are not those of its fake is copied: kernels were generated for those.
    """
    writer = _Writer(module)
    writer.line(f"def call({', '.join(node.name for node in inputs)}):", (), 0)
    for node in nodes:
        if node.op == "get_attr":
            writer.names[node.name] = getattr(module, str(node.target))
        elif node.op == "call_function":
            writer.call(node, check=node in results)
    writer.line(f"return ({', '.join(node.name for node in results)},)")
    return WrapperSource(tuple(writer.lines), writer.names, writer.operators)


class _Writer:
    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.module = module
        self.lines: list[CodeLine] = []
        self.names: dict[str, Any] = {}
        self.operators: dict[str, str] = {}

    def line(self, text: str, origins: tuple[str, ...] = (), indent: int = 1) -> None:
        self.lines.append(CodeLine("    " * indent + text, origins))

    def call(self, node: torch.fx.Node, check: bool) -> None:
        """The line of one operator, and of the check of its strides."""
        origins = (f"forward#{node.name}",)
        if node.target is operator.getitem:
            self.line(f"{node.name} = {self.argument(node.args[0])}[{node.args[1]}]", origins)
        else:
            target: Any = node.target
            function = str(target).replace(".", "_")
            self.names[function], self.operators[function] = callable_of(target), str(target)
            arguments = [*map(self.argument, node.args), *(f"{k}={self.argument(v)}" for k, v in node.kwargs.items())]
            self.line(f"{node.name} = {function}({', '.join(arguments)})", origins)
        if check and not node.meta.get("packed"):
            size, stride = tuple(node.meta["val"].shape), tuple(node.meta["val"].stride())
            self.line(f"if {node.name}.stride() != {stride}: {node.name} = with_strides({node.name}, {size}, {stride})",
                      origins)

    def argument(self, value: Any) -> str:
        """Python for an argument: a value that was computed, a literal, or a list of such."""
        if isinstance(value, torch.fx.Node):
            return value.name
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self.argument, value))}]"
        if isinstance(value, float) and repr(value) in ("inf", "-inf", "nan"):
            return f'float("{value}")'
        if isinstance(value, torch.device):
            self.names[f"device_{value.type}"] = value
            return f"device_{value.type}"
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value)
        return repr(value)  # a number, a string, None
