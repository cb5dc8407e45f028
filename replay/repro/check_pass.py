"""The part of a pass's script that compares the graph before it with the graph after it (see `check.py`)."""
from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def make() -> tuple[Callable[..., Any], Callable[..., Any], list[Any]]:
    """Both graphs, and their inputs, new for each run."""
    raise NotImplementedError


# ---- the check: the graph before the pass and the graph after it, on the same inputs ---------------------------------
FACTOR = 64
"""A result may be this many units in the last place of the largest number away: a pass may change the order of sums. In
bfloat16 and float16, whose units are large, 5 % of it."""


def difference(value: Any, expected: Any) -> str:
    """What is wrong with a value, "" for nothing."""
    if not isinstance(value, torch.Tensor) or not isinstance(expected, torch.Tensor):
        return "" if value == expected else f"{value!r} is not {expected!r}"
    if value.dtype != expected.dtype or value.shape != expected.shape:
        return f"{value.dtype}{list(value.shape)} is not {expected.dtype}{list(expected.shape)}"
    if value.numel() == 0 or torch.equal(value, expected):
        return ""
    if not (expected.is_floating_point() or expected.is_complex()):
        return f"{int((value != expected).sum())} of {expected.numel()} elements differ"
    special = ~expected.isfinite()
    if not torch.equal(~value.isfinite(), special) or not torch.equal(value.isnan(), expected.isnan()) or (
            not torch.equal(value[special].nan_to_num(), expected[special].nan_to_num())):
        return "NaN or infinities are in other places"
    away = (value - expected)[expected.isfinite()].abs()
    top = expected[expected.isfinite()].abs()
    most = away.max().item() if away.numel() else 0.0
    eps = torch.finfo(expected.dtype).eps
    allowed = min(FACTOR * eps, max(0.05, 4 * eps)) * top.max().item() if top.numel() else 0.0
    return "" if most <= allowed else f"max abs {most:.3g}, allowed {allowed:.3g}"


def outcome(kind: str, detail: str = "", node: str = "") -> None:
    """Print the last line, which says what happened, and end."""
    text = kind + (f" ({node})" if node else "") + (f": {detail}" if detail else "")
    print(f"outcome: {text}", flush=True)
    sys.exit(0 if kind == "passed" else 2 if kind == "invalid" else 1)


def run(which: int) -> list[Any]:
    """The results of one of the graphs, and its inputs afterwards."""
    *graphs, inputs = make()
    torch.manual_seed(0)
    with torch.no_grad():
        return tree_leaves((graphs[which](*inputs), inputs))


def main() -> None:
    """Compare and print the verdict. Exit code 1: the pass changed a result."""
    try:
        before = run(0)
    except Exception as error:
        traceback.print_exc()
        outcome("invalid", f"the graph before the pass raises {type(error).__name__}")
    try:
        after = run(1)
    except Exception as error:
        traceback.print_exc()
        outcome("exception", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    if len(after) != len(before):
        outcome("values", f"{len(after)} values, and {len(before)} before the pass")
    for number, (value, expected) in enumerate(zip(after, before)):
        if text := difference(value, expected):
            outcome("values", text, f"value {number}")
    print(f"{len(before)} values are the same before and after the pass")
    outcome("passed")


if __name__ == "__main__":
    main()
