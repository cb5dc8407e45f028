"""The cost of saving a value, and of recomputing it: in bytes moved, to which operations are converted.

Memory traffic is the common currency (as in a roofline model; Williams, Waterman and Patterson, 2009): an operation on
an element is worth the bytes that the device could move in the same time. A CPU has few lanes for each byte per second,
so a transcendental function costs it as much as reading an element or two; on a GPU it is free beside the memory
traffic.
"""
from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.fx

from ....operators import effects
from ....operators.traits import Work, traits_named
from ...graphs.autograd_graphs import NEVER
from ...lowering.registry import COMPOSITE, GATHER, LOWERINGS, REDUCTION, RESHAPE, VIEW
from ...passes.dead_code import has_effect

SIZE_HINT = 128  # what a size that varies counts as
SIMPLE_WORK = Work(0.1, 0.05)
"""What an operation on an element costs that `operators/traits.py` says nothing of."""
BYTES_PER_FLOP = {"cpu": 0.07, "cuda": 0.02}
"""Bytes moved in the time of one operation inside a library's matrix product: 100 GFLOP/s against 7 GB/s, and a GPU's
tensor cores in a precision between float32 and bfloat16."""


@dataclass(frozen=True)
class Cost:
    """What is known of a node: bytes of its result, and the cost of recomputing it.

    `kind`: "input", "constant", "view" (no memory of its own), "tuple" (of results), "loops" (inlined into what reads
    it), "stored" (a reduction: its own pass over its inputs), "library", "size". `never` says why it must not be
    recomputed at all (side effects, random numbers), `expensive` why it should not. `work` is in bytes.
    """

    kind: str
    bytes: int = 0
    work: int = 0
    flops: int = 0
    never: str = ""
    expensive: str = ""

    @property
    def savable(self) -> bool:
        """Whether there is something to save: not for a view, whose base is saved, nor for a constant."""
        return self.kind in ("input", "loops", "stored", "library", "size")


def costs_of(graph: torch.fx.Graph) -> dict[torch.fx.Node, Cost]:
    """The cost of every node but the output."""
    return {node: _cost(node) for node in graph.nodes if node.op != "output"}


def bytes_of(value: Any) -> int:
    """Bytes of a (fake) tensor's elements, of all in a tuple; sizes that vary count as SIZE_HINT each."""
    if isinstance(value, torch.Tensor):
        return elements(value) * value.dtype.itemsize
    if isinstance(value, (tuple, list)):
        return sum(map(bytes_of, value))
    return 8 if isinstance(value, torch.SymInt) else 0


def exact_bytes(value: Any) -> int | None:
    """The same where no size varies, else None."""
    if isinstance(value, torch.Tensor) and any(isinstance(s, torch.SymInt) for s in value.shape):
        return None
    return bytes_of(value)


def elements(tensor: torch.Tensor) -> int:
    """How many; an expanded dimension (stride 0) counts once, as it is in memory."""
    total = 1
    for size, stride in zip(tensor.shape, tensor.stride() if tensor.layout is torch.strided else tensor.shape):
        if type(stride) is not int or stride:
            total *= size if type(size) is int else hinted(size)
    return total


def hinted(size: Any) -> int:
    """A size as a number."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    expression = size.node.expr
    return max(int(expression.xreplace({s: sympy.Integer(SIZE_HINT) for s in expression.free_symbols})), 0)


def _cost(node: torch.fx.Node) -> Cost:
    value = node.meta.get("val")
    if node.op == "placeholder":
        return Cost("input", bytes_of(value), never="an input")
    if node.op == "get_attr":
        return Cost("constant")
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return Cost("size", 8, never="a number computed by the user's code")
    if node.target is operator.getitem:  # a result of its own, or a window onto one like its tuple
        made_by = node.args[0]
        assert isinstance(made_by, torch.fx.Node)
        never = _never(made_by)  # a tuple is not saved itself: what holds for it holds for its parts
        return Cost("view") if is_view(made_by) else Cost("stored", bytes_of(value), never=never)
    if is_view(node):
        return Cost("view")
    never = _never(node)
    size = bytes_of(value)
    lowering = LOWERINGS.get(node.target)
    if lowering is None:
        flops, why = _library(node, size)
        work = int(flops * BYTES_PER_FLOP[_device(value)]) + 2 * size + read_bytes(node)
        return Cost("tuple" if isinstance(value, (tuple, list)) else "library", size, work, flops, never, why)
    unit = (None if _small_power(node) else traits_named(_operator(node)).work) or SIMPLE_WORK
    each = unit.gpu if _device(value) == "cuda" else unit.cpu
    if lowering.kind in (REDUCTION, COMPOSITE):
        read = read_bytes(node)
        rounds = 2 if lowering.kind == COMPOSITE else 1
        kind = "tuple" if isinstance(value, (tuple, list)) else "stored"
        return Cost(kind, size, rounds * (read + int(each * read / 4)), read // 4, never)
    count = elements(value) if isinstance(value, torch.Tensor) else 0
    work = int(each * count) + (2 * size if lowering.kind == GATHER else 0) + 1
    return Cost("tuple" if isinstance(value, (tuple, list)) else "loops", size, work, count, never)


def _operator(node: torch.fx.Node) -> str:
    target: Any = node.target
    return str(target.overloadpacket.__name__).strip("_") if hasattr(target, "overloadpacket") else ""


def _small_power(node: torch.fx.Node) -> bool:
    """Whether the node raises to a power that becomes a few products."""
    power: Any = node.args[1] if node.target is torch.ops.aten.pow.Tensor_Scalar else None
    return type(power) in (int, float) and bool(power in (-2, -1, 1, 2, 3, 4))


def is_view(node: torch.fx.Node) -> bool:
    """Whether the node's result is a window onto its first argument's memory, or may be kept as one."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], torch.fx.Node) and is_view(node.args[0])
    lowering = LOWERINGS.get(node.target)
    if lowering is not None:
        return lowering.kind in (RESHAPE, VIEW)
    return bool(getattr(node.target, "is_view", False))


def _never(node: torch.fx.Node) -> str:
    if node.meta.get("recompute") == NEVER:
        return "what it reads changes before the backward"
    if not has_effect(node) or effects.drops_nothing(node):
        return ""
    target: Any = node.target
    if effects.is_random(target):
        return "it samples random numbers"
    return f"{target} may have side effects"


def _library(node: torch.fx.Node, size: int) -> tuple[int, str]:
    """(operations, what it is) of a library call."""
    target: Any = node.target
    packet = target.overloadpacket.__name__ if hasattr(target, "overloadpacket") else str(target)
    shapes = [n.meta["val"].shape for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    value = node.meta.get("val")
    result = value[0] if isinstance(value, (tuple, list)) and value else value
    count = elements(result) if isinstance(result, torch.Tensor) else 0
    what = traits_named(packet).library or "a library call"
    if what == "matrix product":
        return 2 * count * hinted(shapes[-1][-2]) if len(shapes[-1]) > 1 else 2 * count, "a matrix product"
    if what == "convolution":
        weight = node.args[1]
        assert isinstance(weight, torch.fx.Node)
        shape = weight.meta["val"].shape
        return 2 * count * _product(shape) // max(hinted(shape[0]), 1), "a convolution"
    if what == "attention":
        keys = hinted(shapes[1][-2]) if len(shapes) > 1 and len(shapes[1]) > 1 else SIZE_HINT
        return 4 * count * keys, "an attention kernel"
    return size // 4, what if what == "a library call" else f"a library call ({what})"


def _product(shape: Any) -> int:
    total = 1
    for size in shape:
        total *= hinted(size)
    return total


def read_bytes(node: torch.fx.Node) -> int:
    """Bytes of the node's arguments."""
    return sum(bytes_of(n.meta.get("val")) for n in node.all_input_nodes)


def _device(value: Any) -> str:
    tensor = next(iter(value), None) if isinstance(value, (tuple, list)) else value
    return "cuda" if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda" else "cpu"
