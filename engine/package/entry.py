"""An entry point of a package as data."""
from __future__ import annotations

from collections.abc import Iterator

from ...dependencies import msgspec
from ..graph_cache.flow import Flow, Graph, halves
from ..graph_cache.half import FoldingPart, Half
from .signature import Signature


class Entry(msgspec.Struct, frozen=True):
    """One entry point: its signature, its wrapper without the C++ source, and what the graph writes. `python_only` says
    why it has no C++ wrapper. `flow`: in the place of the wrapper where the graph has control flow. `folding` makes
    further inputs of weights (packed ones), when they are new or were written."""

    signature: Signature
    half: Half
    written: tuple[int, ...] = ()
    uncounted: tuple[int, ...] = ()
    python_only: str = ""
    flow: Flow | None = None
    folding: FoldingPart | None = None

    def codes(self) -> Iterator[tuple[str, Graph]]:
        """What is code in it, by the names of its files."""
        if self.flow is None:
            yield self.signature.name, Graph(self.half, uncounted=self.uncounted, folding=self.folding)
            return
        for number, graph in enumerate(halves(self.flow)):
            yield f"{self.signature.name}-{number}", graph

    def named_halves(self) -> Iterator[tuple[str, Half]]:
        """The same without what is known of them."""
        for name, graph in self.codes():
            assert graph.half is not None
            yield name, graph.half
