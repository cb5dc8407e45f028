"""The script around a planted bug's program, and whether what it computes is what eager computes."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

HEAD = """\
import torch
import torch.nn.functional as F


"""
TAIL = '''


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)


def main(compile):
    torch.manual_seed(0)
    call, seen = compile(f), []
    for arguments in calls():
        result = call(*arguments)
        roots = [t for t in tensors(result) if t.requires_grad]
        if roots:
            torch.autograd.backward(roots, [torch.linspace(0.5, 1.5, t.numel()).view(t.shape) for t in roots])
        inputs = list(tensors(arguments))
        seen.append((result, inputs, [t.grad for t in inputs if t.is_leaf]))
    return seen


if __name__ == "__main__":
    seen = main(torch.compile)
'''

CHECK = """
if __name__ == "__main__":
    for mine, eager in zip(tensors(main(torch.compile)), tensors(main(lambda f: f)), strict=True):
        torch.testing.assert_close(mine, eager, equal_nan=True)
"""
"""For a program that judges itself: it fails where what is compiled differs from eager."""


def checking_script(program: str) -> str:
    """A script that raises where the program's results, compiled, are not eager's."""
    return script(program).partition("\nif __name__")[0] + CHECK


def script(program: str) -> str:
    """A runnable script of a program that defines `f` and `calls()`."""
    return HEAD + program.strip() + TAIL


def outcome(program: str, compile: Callable[[Any], Any]) -> Any:
    """What the program computes, compiled by `compile`; an exception is an outcome too."""
    namespace: dict[str, Any] = {"__name__": "planted"}
    exec(compile_text(script(program)), namespace)
    try:
        return kept(namespace["main"](compile))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def kept(seen: Any) -> list[Any]:
    """The leaves of what a program's `main` returned; tensors without their history."""
    return [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in flat(seen)]


def compile_text(source: str) -> Any:
    """The source as code whose lines are known to tracebacks, and to the tracer."""
    import linecache

    name = f"<planted {abs(hash(source))}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    return compile(source, name, "exec")


def flat(value: Any) -> Iterator[Any]:
    """The leaves of nested tuples, lists and dicts."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from flat(item)
    elif isinstance(value, dict):
        yield from flat(list(value.values()))
    else:
        yield value


def difference(found: list[Any], expected: list[Any]) -> str:
    """How two outcomes differ, "" where they do not but for rounding."""
    if len(found) != len(expected):
        return f"{len(found)} values, not {len(expected)}: {found[-1] if found else ''}"
    for number, (mine, eager) in enumerate(zip(found, expected)):
        if isinstance(mine, torch.Tensor) != isinstance(eager, torch.Tensor):
            return f"value {number}: {mine} is not {eager}"
        if not isinstance(eager, torch.Tensor):
            if mine is not eager and mine != eager:
                return f"value {number}: {mine} is not {eager}"
            continue
        kinds = [(t.dtype, tuple(t.shape), t.stride() if t.numel() > 1 else ()) for t in (mine, eager)]
        if kinds[0] != kinds[1]:
            return f"value {number}: {kinds[0]} is not {kinds[1]}"
        if eager.is_floating_point():
            limit = 100 * torch.finfo(eager.dtype).eps
            scale = eager[eager.isfinite()].abs().max().item() if eager.isfinite().any() else 1.0
            if not torch.allclose(mine.double(), eager.double(), rtol=limit, atol=limit * scale, equal_nan=True):
                return f"value {number}: off by {(mine.double() - eager.double()).abs().max().item():.3g}"
        elif not torch.equal(mine, eager):
            return f"value {number}: {int((mine != eager).sum())} elements differ"
    return ""
