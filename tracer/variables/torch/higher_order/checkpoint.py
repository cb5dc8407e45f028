"""torch.utils.checkpoint: the region is inlined in the graph, its nodes marked so that the backward recomputes them
instead of saving their results (`meta["recompute"]`); a backend may also save them.

In eager the function runs a second time in the backward; where that is observable (it has side effects outside, or
samples random numbers anew), the call is left to eager.
"""
from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import TYPE_CHECKING

import torch
import torch.fx
import torch.nn.functional as F

from .....operators.effects import may_draw
from ....breaks.reasons import Reason
from ....breaks.unsupported import Unsupported
from ....fx.subgraphs import refuse_writes, versions
from ...containers.sequences import TupleValue
from ...core.base import Value
from ...core.handlers import NAMED
from ..tensor import TensorValue

if TYPE_CHECKING:
    from ...core.base import Translator

_REFUSED: weakref.WeakSet[CodeType] = weakref.WeakSet()
"""Functions that call reentrant checkpoints and were seen with torch.autograd.grad, which raises there: left to
eager."""

_numbers = itertools.count(1)  # distinguishes regions: what goes from one to the next is saved

_OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")


def _checkpoint(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    if torch._C._autograd._saved_tensors_hooks_get_disabled_error_message() is not None:
        raise Unsupported(
            Reason.UNSUPPORTED_ARGUMENT, torch.utils.checkpoint.checkpoint,
            detail="where saved tensors hooks are an error",
        )
    # torch 2.11 saves the inputs in a Function that transforms refuse
    if hasattr(torch.utils.checkpoint, "_NoopSaveInputs") and torch._C._functorch.peek_interpreter_stack() is not None:
        raise Unsupported(
            Reason.UNSUPPORTED_ARGUMENT, torch.utils.checkpoint.checkpoint, detail="in a transform of torch.func"
        )
    function, inputs = args[0], args[1:]
    rest = {name: value for name, value in kwargs.items() if name not in _OPTIONS}
    given = {name: value for name, value in kwargs.items() if name in _OPTIONS}
    plain = {name: value.as_constant() for name, value in given.items() if name != "context_fn"}
    if plain.get("debug") or plain.get("use_reentrant") is None:
        raise Unsupported(
            Reason.UNSUPPORTED_ARGUMENT, torch.utils.checkpoint.checkpoint,
            detail="with debug, or without use_reentrant",
        )
    selective = "context_fn" in given
    if selective and not isinstance(given["context_fn"].call(tx, [], {}), SelectiveContexts):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, torch.utils.checkpoint.checkpoint, detail="with context_fn")
    if not torch.is_grad_enabled():
        return function.call(tx, inputs, rest)
    if torch.is_inference_mode_enabled() or any(isinstance(v, TensorValue) and v.fake.is_inference() for v in inputs):
        raise Unsupported(
            Reason.UNSUPPORTED_ARGUMENT, torch.utils.checkpoint.checkpoint, detail="of inference tensors"
        )  # torch 2.11 saves them
    if plain["use_reentrant"]:
        _check_reentrant(tx, inputs, rest)
    outer, tx.graph.reentrant = tx.graph.reentrant, tx.graph.reentrant or plain["use_reentrant"]
    try:
        with _region(tx, plain.get("preserve_rng_state", True), selective):
            result = function.call(tx, inputs, rest)
    finally:
        tx.graph.reentrant = outer
    if plain["use_reentrant"]:
        _check_results(result, inputs)
    return result


def _check_reentrant(tx: Translator, inputs: Sequence[Value], rest: Mapping[str, Value]) -> None:
    """Gradients flow through tensors among the arguments only, and one of them must require gradients."""
    if tx.code in _REFUSED:
        raise Unsupported(
            Reason.UNSUPPORTED_ARGUMENT, torch.utils.checkpoint.checkpoint,
            detail="(use_reentrant=True) before torch.autograd.grad",
        )
    tx.trace.reentrant.append(tx.code)
    tensors = [value for value in inputs if isinstance(value, TensorValue)]
    others = [value for value in inputs if not isinstance(value, TensorValue) and not value.is_constant()]
    if rest or others or not any(value.fake.requires_grad for value in tensors):
        raise Unsupported(
            Reason.UNSUPPORTED_ARGUMENT, torch.utils.checkpoint.checkpoint,
            detail="(use_reentrant=True) with such arguments",
        )


def _check_results(result: Value, inputs: Sequence[Value]) -> None:
    """Results of a reentrant checkpoint are those of an autograd.Function (`CheckpointFunction`): one tensor or a
    tuple. All that can require gradients do, whether autograd recorded how they are computed or not, and two aliases
    are not views of each other."""
    items = result.items if isinstance(result, TupleValue) and result.kind is tuple else [result]
    tensors = [item for item in items if isinstance(item, TensorValue)]
    plain = all(isinstance(item, TensorValue) or item.is_constant() for item in items)
    differentiable = [value.fake for value in tensors if value.fake.is_floating_point() or value.fake.is_complex()]
    alone = [value.fake.untyped_storage()._cdata for value in (*tensors, *inputs) if isinstance(value, TensorValue)]
    if not plain or not all(fake.requires_grad for fake in differentiable) or len(set(alone)) != len(alone):
        raise Unsupported(
            Reason.UNSUPPORTED_ARGUMENT, torch.utils.checkpoint.checkpoint,
            detail="(use_reentrant=True) with such results",
        )


def refuse_reentrant(tx: Translator) -> None:
    """torch.autograd.grad is called: from now on reentrant checkpoints of this trace break the graph, as it raises for
    their results (torch/utils/checkpoint.py, CheckpointFunction.backward)."""
    _REFUSED.update(tx.trace.reentrant)


@contextmanager
def _region(tx: Translator, random_again: bool, selective: bool = False) -> Iterator[None]:
    """Nodes made inside are recomputed in the backward, or, where that is `selective`, those that the engine finds
    cheap: a policy says what to save, never what is computed. `random_again`: with the same random numbers."""
    graph = tx.graph.graph
    outer, before, last = tx.graph.checkpoint, versions([graph]), next(iter(reversed(graph.nodes)), None)
    tx.graph.checkpoint = outer or (0 if selective else next(_numbers))
    try:
        with tx.effects.sealed("a checkpointed function"):
            yield
    finally:
        tx.graph.checkpoint = outer
    refuse_writes([graph], before, "a checkpointed function")
    for node in reversed(graph.nodes):
        if node is last:
            break
        if node.target is F.batch_norm and (len(node.args) < 6 or node.args[5]):
            raise Unsupported(
                Reason.SIDE_EFFECT_IN_SUBGRAPH, detail="a checkpointed function changes the statistics of a batch norm"
            )
        if not random_again and may_draw(node):
            raise Unsupported(
                Reason.UNSUPPORTED_ARGUMENT, torch.utils.checkpoint.checkpoint,
                detail="(preserve_rng_state=False) of random operators",
            )


class SelectiveContexts(Value):
    """The result of torch.utils.checkpoint.create_selective_checkpoint_contexts: only a checkpoint can use it."""

    __slots__ = ()

    def describe(self) -> str:
        """For messages."""
        return "the contexts of a selective checkpoint"


def _selective(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    if kwargs or len(args) != 1:
        raise Unsupported(
            Reason.UNSUPPORTED_ARGUMENT, torch.utils.checkpoint.create_selective_checkpoint_contexts,
            detail="with options",
        )
    return SelectiveContexts()


NAMED["torch.utils.checkpoint", "checkpoint"] = _checkpoint
NAMED["torch.utils.checkpoint", "create_selective_checkpoint_contexts"] = _selective
