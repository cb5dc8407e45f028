"""The data types of training: one joint graph, then a forward and a backward."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch.fx

from .functional_graph import AtenGraph

FORWARD, BACKWARD = "forward", "backward"
"""Values of a joint node's meta["phase"]."""

ALWAYS, NEVER = "always", "never"
"""Values of a joint node's meta["recompute"]."""


@dataclass(frozen=True)
class JointGraph:
    """Forward and backward of a captured graph as one functional ATen graph.

    Placeholders: those of `forward.inputs` (arg0, arg1, ...), then one for each entry of `tangents` (tangent0, ...).
    Outputs: `forward_outputs` values that an AtenGraph of the forward alone would return (new values of mutated inputs,
    then results), then one gradient for each entry of `gradients`, which may be None.

    `forward` has the inputs, mutations and results of the forward; its `module` is the joint graph's. `tangents[i]` is
    the graph output whose gradient tangent i is. `gradients[i]` is the input that gradient i belongs to. Each node has
    `meta["phase"]`; a node of the backward also has, in `meta["origins"]` and `meta["stack"]`, the captured node whose
    derivative it is part of. `meta["recompute"]` is "always" for nodes of a checkpointed region, whose number is
    `meta["checkpoint"]`, "never" for the copy of an input that the forward changes (the backward cannot read the
    input's old value), else absent.

    `assigned` maps graph output to input: the new value of an input that autograd tracks, which is not copied inside
    the forward (`forward.mutations` has those that are) but outside, where autograd sees it.

    `reached[i]` are the tangents that autograd's graph leads from to gradient i: where none of them is given, there is
    no gradient (None, as in eager, which is not zeros: an optimizer leaves such a parameter alone). `shared[k]` are the
    tangents whose backward needs a tensor that a node of autograd's has saved and that of tangent k needs, too (k among
    them): of results with nothing in common, one can be differentiated after the other. `order` has the inputs that are
    leaves, as their gradients arrive in eager.

    `cuts` are the results of the program (positions in `forward.outputs`) that others depend on, `related` maps each
    graph output that does to positions in `cuts`: those that no path leads to through another.

    `written` has the graph outputs that the program writes in place before it returns them, and how often.

    `kept_inputs` and `kept_results` are the inputs and graph outputs whose memory eager's autograd keeps for the
    backward, each with the tangents whose backward raises where the program writes to it after the call.
    """

    forward: AtenGraph
    forward_outputs: int
    tangents: tuple[int, ...]
    gradients: tuple[int, ...]
    assigned: dict[int, int]
    reached: tuple[frozenset[int], ...]
    shared: tuple[frozenset[int], ...]
    order: tuple[int, ...] = ()
    cuts: tuple[int, ...] = ()
    related: dict[int, tuple[int, ...]] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    kept_inputs: dict[int, frozenset[int]] = field(default_factory=dict)
    kept_results: dict[int, frozenset[int]] = field(default_factory=dict)

    @property
    def module(self) -> torch.fx.GraphModule:
        """The graph itself."""
        return self.forward.module


@dataclass(frozen=True)
class Saved:
    """A value that the forward keeps for the backward: `bytes` (None where a size varies) and why it is kept.

    `node` is its name in the joint graph. `kind` is "input" or "output" (both alive anyway), "tensor", "size".
    `reader` is the first node of the backward that needs it, itself or what is computed from it.
    """

    node: str
    kind: str
    bytes: int | None
    why: str
    reader: str = ""


@dataclass(frozen=True)
class Recomputed:
    """A node of the forward that the backward computes again: the bytes not saved, the operations spent, and why."""

    node: str
    bytes: int | None
    flops: int | None
    why: str


@dataclass(frozen=True)
class Partitioned:
    """The two halves of a joint graph.

    `forward.outputs` are the graph outputs of the joint graph's forward as they are (no views, no copied inputs), and
    after them the values of `saved` in order: tensors first, then sizes (Constant with a SymInt or SymFloat); last come
    `numbers`, unbacked symbols that the caller needs (by name). `backward` takes the values of `saved`,
    then the tangents, and returns the gradients; it mutates nothing. Node names are those of the joint graph, in both.
    No saved value is an input that the forward changes.
    """

    forward: AtenGraph
    backward: AtenGraph
    saved: tuple[Saved, ...]
    recomputed: tuple[Recomputed, ...]
    joint: JointGraph
    numbers: tuple[str, ...] = ()
    budget: float = 1.0
    """The memory budget that was kept to: 1.0 none, 0.0 nothing but inputs."""
    bytes: Mapping[torch.fx.Node, int] = field(default_factory=dict)
    """What nodes of the joint graph take whose values are tensors with memory of their own."""
