"""What the engine raises for a graph that it does not compile."""
from __future__ import annotations


class EngineUnsupported(Exception):
    """The engine cannot compile this graph; the message says why. The graph then runs in eager, node by node."""
