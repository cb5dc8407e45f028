"""Functions marked as not to be compiled: by the user, by torch, and by TorchDynamo."""
from __future__ import annotations

import inspect
from typing import Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..torch.graph_functions import is_module_of_torch_internals


def is_marked_for_others(function: Any) -> bool:
    """Whether TorchDynamo marked this function of torch for itself, and the tracer follows it.

    The first use of TorchDynamo in a process (eager `torch.cond` is one) marks `_init_group` of all optimizers
    (`TorchPatcher.patch` in torch/_dynamo/eval_frame.py).
    """
    original = function.__dict__.get("_torchdynamo_orig_callable")
    return (getattr(original, "__module__", None) or "").startswith("torch.optim.") and (
        getattr(original, "__name__", "") == "_init_group")


def is_compiled_by_stock(function: Any) -> bool:
    """Whether torch.compile made the function itself, and not what disables it, nor what wraps it and has all of its
    attributes by `functools.wraps`."""
    made = function.__dict__.get("_torchdynamo_wrapper_id") == id(function)
    return made and not getattr(function, "_torchdynamo_disable", False)


def refuse_marked(function: Any) -> None:
    """Functions that the user marked as not to be compiled, and torch machinery that must run for real, break the
    graph."""
    marked = (
        getattr(function, "_torchdynamo_disable", False) or getattr(function, "_ptdebug_disable", False)
        or function.__code__.co_filename == torch._compile.__file__  # made by torch._disable_dynamo
    )  # fmt: skip
    if not marked and not is_module_of_torch_internals(getattr(function, "__module__", None)):
        return
    original = getattr(function, "_torchdynamo_orig_callable", None) or inspect.unwrap(function)  # the mark wraps it
    if marked and (getattr(original, "__module__", None) or "").partition(".")[0] != "torch":
        why = getattr(function, "_torchdynamo_disable_msg", None)
        raise Unsupported(Reason.DISABLED_FUNCTION, original, detail=f"({why})" if why else "")
    seeds = getattr(original, "__name__", "").endswith("seed")
    raise Unsupported(Reason.GLOBAL_STATE if seeds else Reason.SKIPPED_FUNCTION, original)
