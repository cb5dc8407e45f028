"""Each match of a pass as a decision: `pass:NAME@NODE` (options run, skip).

It is made where somebody looks for the decision to blame, or forces some; else every match is rewritten, unasked.
"""
from __future__ import annotations

from collections.abc import Callable

import torch.fx

from ...artifacts.context import CompileContext

May = Callable[[torch.fx.Node], bool]
"""Whether a pass may rewrite a node that its rule matches."""


def always(node: torch.fx.Node) -> bool:
    """Every match is rewritten."""
    return True


def matches_allowed(name: str, context: CompileContext) -> May:
    """Whether the pass `name` may rewrite a node."""
    if not context.searched:
        return always

    def may(node: torch.fx.Node) -> bool:
        subject, why = f"{name}@{node.name}", "the rule of the pass matches it"
        return context.decide("pass", subject, ("run", "skip"), "run", why, origins=(f"forward#{node.name}",)) == "run"

    return may
