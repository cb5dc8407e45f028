"""`ptdebug run --check-calls`: each call of what torch.compile returned is compared with the same call in eager.

The eager call gets copies of the arguments (and of a compiled module), made before the compiled one, and the same
random numbers. Results and changed arguments are compared. What a function changes elsewhere, it changes twice. At the
first difference the program ends, with exit code 70.
"""
from __future__ import annotations

import copy
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from ..replay.verdicts.compare import compare

DIFFERENT = 70
"""The exit code of a program that was ended: EX_SOFTWARE."""


def checking(compile_function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile`, whose results check their calls."""

    def call(model: Any = None, *args: Any, **options: Any) -> Any:
        if model is None:
            return lambda decorated: call(decorated, *args, **options)
        return _checked(model, compile_function(model, *args, **options))

    return call


def _checked(model: Any, compiled: Any) -> Any:
    """`compiled`, which compares each call with `model`."""
    if isinstance(model, torch.nn.Module):
        if compiled is not model:
            compiled.forward = _comparing(model, compiled.forward)
        return compiled
    if isinstance(model, type) or not callable(model):
        return compiled
    return _comparing(model, compiled)


def _comparing(model: Any, compiled: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        state = torch.get_rng_state()
        try:
            eager, *given = copy.deepcopy((model, args, kwargs))
        except Exception:  # what cannot be copied (results of other operators that need gradients) is not checked
            return compiled(*args, **kwargs)
        found = _outcome(compiled, args, kwargs)
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        expected = _outcome(eager, *given)
        torch.set_rng_state(after)
        why = _difference((found[:2], args, kwargs), (expected[:2], *given))
        if why:
            name = getattr(model, "__name__", type(model).__name__)
            _end(f"ptdebug: a call of {name} is not what it is in eager: {why}")
        if found[2] is not None:
            raise found[2]
        return found[0]

    return functools.wraps(model)(call) if hasattr(model, "__name__") else call


def _outcome(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, str, Exception | None]:
    """The result, or the type of what was raised, and the exception."""
    try:
        return function(*args, **kwargs), "", None
    except Exception as error:
        return None, type(error).__name__, error


def _difference(found: Any, expected: Any) -> str:
    """Why two trees of values differ; "" where they do not, or by rounding."""
    (mine, shape), (eager, other) = tree_flatten(found), tree_flatten(expected)
    if shape != other:
        return f"{len(mine)} values, where eager has {len(eager)}"
    for value, reference in zip(mine, eager):
        if isinstance(reference, (torch.Tensor, bool, int, float, complex, str, type(None))):
            verdict = compare(value, reference)
            if verdict.verdict == "different":
                return verdict.why
    return ""


def _end(text: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    print(text, file=sys.stderr, flush=True)
    os._exit(DIFFERENT)
