"""What a capture must know of its graph. Plain data: a graph loaded from disk has it too."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphFacts:
    """What is known of a compiled graph when it is compiled. All tuples are positions among its inputs, but for
    `saved`, its results that only the backward reads, and `views`, those that are views of inputs: the wrapper's
    function `views` makes them.

    `symbols`: where its sizes and numbers are read (position, "size" | "stride" | "value", dimension). `written` are
    the inputs that it writes; `counted` those whose version autograd raises once more for each entry. `steady`: what a
    forward saved. `tangents` come from outside, and may be None or laid out otherwise at each call. A backward gets its
    inputs as a list, which it empties. `numbers` are tensors of one element each on the CPU, which a capture reads from
    the GPU.
    """

    device: int
    names: tuple[str, ...]
    tensors: tuple[int, ...]
    symbols: tuple[tuple[int, str, int], ...] = ()
    written: tuple[int, ...] = ()
    counted: tuple[int, ...] = ()
    steady: tuple[int, ...] = ()
    tangents: tuple[int, ...] = ()
    saved: tuple[int, ...] = ()
    backward: bool = False
    numbers: tuple[int, ...] = ()
    views: tuple[int, ...] = ()
