"""What the engine raises where it cannot compile something: one hierarchy, whose message is the recorded reason.

Each class says what happens instead, from the smallest unit to the largest: `NoLowering` costs one operator its loops
(it calls ATen), `TritonUnsupported` one group its Triton kernel (each of its statements calls ATen), `NoCppWrapper` the
graph its C++ wrapper, and a plain `EngineUnsupported` sends the whole graph to eager.
"""
from __future__ import annotations


class EngineUnsupported(Exception):
    """The engine cannot compile this graph, which then runs in eager, node by node."""


class NoLowering(EngineUnsupported):
    """A lowering does not cover this case of its operator: the operator is a call of ATen."""


class TritonUnsupported(EngineUnsupported):
    """A group has no Triton kernel: each of its statements is a call of ATen, with the reason recorded."""


class NoCppWrapper(EngineUnsupported):
    """This graph has no C++ wrapper, and keeps the Python one. `origins` are the nodes that have no form in one."""

    origins: tuple[str, ...] = ()
