"""Marks around kernels and graphs, by which a profile of torch knows what ran (`ptdebug run --profile`)."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...artifacts.profiles import span_name

_mark: Any = torch._C._profiler._RecordFunctionFast


def around_kernels(kernels: Mapping[str, Callable[..., int]], owner: str, part: str) -> dict[str, Callable[..., int]]:
    """The kernels of a part of a compilation, each call of them marked."""
    return {name: spanned(kernel, owner, part, name) for name, kernel in kernels.items()}


def spanned(function: Callable[..., Any], owner: str, part: str, kernel: str = "") -> Callable[..., Any]:
    """`function`, each call of which a profile shows under the name of what it runs."""
    name = span_name(owner, part, kernel)

    def call(*args: Any) -> Any:
        with _mark(name):
            return function(*args)

    return call
