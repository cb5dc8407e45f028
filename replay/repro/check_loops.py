"""The part of a script of loops that compiles them and compares buffers with the interpreter's (see `check.py`)."""
from __future__ import annotations

import sys
import traceback
from typing import Any

import torch

LOOPS = ""
FORCED: dict[str, str] = {}


def parse_plan(text: str) -> Any:
    """The loops of a text."""
    raise NotImplementedError


def shown(plan: Any, memory: dict[str, torch.Tensor], forced: dict[str, str]) -> str:
    """What is wrong when they run on these buffers."""
    raise NotImplementedError


def make() -> dict[str, torch.Tensor]:
    """The buffers before the call."""
    raise NotImplementedError


# ---- the check: the compiled loops beside the loop IR interpreter ----------------------------------------------------
def outcome(kind: str, detail: str = "", node: str = "") -> None:
    """Print the last line, which says what happened, and end."""
    text = kind + (f" ({node})" if node else "") + (f": {detail}" if detail else "")
    print(f"outcome: {text}", flush=True)
    sys.exit(0 if kind == "passed" else 2 if kind == "invalid" else 1)


def main() -> None:
    """Compile the loops, run them, and print the verdict. Exit code 1: a buffer is wrong."""
    try:
        text = shown(parse_plan(LOOPS), make(), FORCED)
    except Exception as error:
        traceback.print_exc()
        outcome("exception", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    if text:
        buffer, _, what = text.partition(": ")
        outcome("nan" if what.startswith("NaN") else "values", what, buffer)
    outcome("passed")


if __name__ == "__main__":
    main()
