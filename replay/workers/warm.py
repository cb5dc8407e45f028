"""Compiles a small graph, so that what is imported, read and remembered at a first compilation is there for children.

In one thread: a pool of threads does not survive a fork. Gradients are left out where there is a GPU, for whose sake
autograd would start threads.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.fx
import torch.nn.functional as F

from ...artifacts.fx_graphs import graph_record
from ..failures.case import Case, Inputs
from ..failures.observe import observe


def warm_up() -> None:
    """Compile it, for inference and for training."""
    with one_thread():
        for training in (False,) if torch.cuda.is_available() else (False, True):
            observe(_case(training))


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch starts no threads meanwhile: children of a fork would wait for them without end."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _example(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = F.layer_norm(F.gelu(x @ w), (4,))
    return torch.softmax(y, -1), torch.relu(y).sum()


def _case(training: bool) -> Case:
    module = torch.fx.symbolic_trace(_example)
    inputs = torch.ones(2, 4), torch.ones(4, 4, requires_grad=training)
    return Case(graph_record(module.graph, "capture", "bytecode"), Inputs.of(inputs, ("x", "w")), training)
