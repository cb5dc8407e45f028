"""The part of a kernel's script that runs it and compares its buffers with what they should hold (see `check.py`)."""
from __future__ import annotations

import sys
import traceback

import torch

Buffers = dict[str, torch.Tensor]
ALLOWED: dict[str, float] = {}  # how far each buffer may be away: what moving the inputs by an ulp does, times 8


def make() -> tuple[Buffers, Buffers]:
    """The buffers before the call, and what those that it writes should hold afterwards."""
    raise NotImplementedError


def launch(buffers: Buffers) -> int:
    """Call the kernel; its status."""
    raise NotImplementedError


# ---- the check: the kernel's buffers, and what the loop IR interpreter made of them ----------------------------------
def difference(value: torch.Tensor, expected: torch.Tensor, allowed: float) -> str:
    """What is wrong with a buffer, "" for nothing."""
    if torch.equal(value, expected):
        return ""
    if not (expected.is_floating_point() or expected.is_complex()):
        return f"{int((value != expected).sum())} of {expected.numel()} elements differ"
    if not torch.equal(value.isnan(), expected.isnan()):
        return f"NaN in {int(value.isnan().sum())} places, where {int(expected.isnan().sum())} are right"
    away = torch.where(value == expected, 0, value - expected).abs().nan_to_num(0.0, float("inf"))
    worst = int(away.argmax())
    if away.max().item() <= allowed:
        return ""
    index = [int(i) for i in torch.unravel_index(torch.tensor(worst), away.shape)]
    return (f"max abs {away.max().item():.3g} at {index}, allowed {allowed:.3g}; "
            f"{value[tuple(index)].item()!r} is not {expected[tuple(index)].item()!r}")


def outcome(kind: str, detail: str = "", node: str = "") -> None:
    """Print the last line, which says what happened, and end."""
    text = kind + (f" ({node})" if node else "") + (f": {detail}" if detail else "")
    print(f"outcome: {text}", flush=True)
    sys.exit(0 if kind == "passed" else 2 if kind == "invalid" else 1)


def main() -> None:
    """Run the kernel and print the verdict. Exit code 1: a buffer is wrong."""
    buffers, expected = make()
    try:
        status = launch(buffers)
    except Exception as error:
        traceback.print_exc()
        outcome("exception", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    if status:
        outcome("exception", f"IndexError: status {status}")
    for name, right in expected.items():
        if text := difference(buffers[name].cpu(), right, ALLOWED.get(name, 0.0)):
            outcome("nan" if text.startswith("NaN") else "values", text, name)
    print(f"{len(expected)} buffers are as they should be: {', '.join(expected)}")
    outcome("passed")


if __name__ == "__main__":
    main()
