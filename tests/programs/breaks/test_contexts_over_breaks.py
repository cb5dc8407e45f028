"""Contexts that set a state of the process, around breaks, returns and exceptions: the state inside and after."""
# mypy: ignore-errors

from __future__ import annotations

import contextlib
import decimal
import gc
import logging
import os
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from ..checking import call, check

C, B = torch._C, torch.backends
KINDS = [
    name
    for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable")
    if hasattr(C, f"_get_{name}_sdp_enabled")
]


def state() -> dict[str, Any]:
    return {
        "attention": [getattr(C, f"_get_{name}_sdp_enabled")() for name in KINDS],
        "priority": C._get_sdp_priority_order(),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), C._is_fwd_grad_enabled()),
        "autocast": (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        ),
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "backends": (B.mkldnn.enabled, B.cudnn.enabled, B.cudnn.benchmark, B.cudnn.deterministic, B.opt_einsum.enabled),
        "matmul": torch.get_float32_matmul_precision(),
        "hooks": C._autograd._saved_tensors_hooks_get_disabled_error_message(),
        "threads": (C._is_multithreading_enabled(), torch.get_num_threads()),
        "device": str(torch.get_default_device()),
        "overrides": (C._len_torch_function_stack(), C._is_torch_function_enabled()),
        "printing": (str(torch._tensor_str.PRINT_OPTS), str(np.get_printoptions()["precision"])),
        "numpy": sorted(np.geterr().items()),
        "decimal": decimal.getcontext().prec,
        "process": (
            os.getcwd(),
            sys.getrecursionlimit(),
            gc.isenabled(),
            logging.getLogger().level,
            len(warnings.filters),
        ),
    }


class Passing(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def setting(get, put, value):
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


CONTEXTS = {
    "attention": lambda: sdpa_kernel([SDPBackend.MATH]),
    "another attention": lambda: sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION),
    "attention in order": lambda: sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True),
    "no_grad": torch.no_grad,
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "inference": torch.inference_mode,
    "no inference": lambda: torch.inference_mode(False),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no autocast": lambda: torch.autocast("cpu", enabled=False),
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "mkldnn": lambda: B.mkldnn.flags(enabled=False),
    "cudnn": lambda: B.cudnn.flags(enabled=False, benchmark=True, deterministic=True),
    "opt_einsum": lambda: B.opt_einsum.flags(enabled=False),
    "one thread": lambda: torch.autograd.set_multithreading_enabled(False),
    "no hooks": lambda: torch.autograd.graph.disable_saved_tensors_hooks("no"),
    "device": lambda: torch.device("cpu"),
    "no overrides": torch._C.DisableTorchFunctionSubclass,
    "overrides": Passing,
    "numpy errors": lambda: np.errstate(divide="ignore", over="raise"),
    "decimal": lambda: decimal.localcontext(decimal.Context(prec=5)),
    "directory": lambda: contextlib.chdir("/tmp"),
    "dtype": lambda: setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "deterministic": lambda: setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "matmul": lambda: setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high"),
    "recursion": lambda: setting(sys.getrecursionlimit, sys.setrecursionlimit, 5000),
    "logging": lambda: setting(lambda: logging.getLogger().level, logging.getLogger().setLevel, logging.ERROR),
}


def broken(context, x):
    with context():
        y = x * 2
        torch._dynamo.graph_break()
        inside = state()
        y = y + 1
    return y, inside


def broken_twice(context, x):
    with context():
        y = x * 2
        print("first")
        y = y + 1
        print("second")
        y = y * 3
    torch._dynamo.graph_break()
    return y + 1, state()


def left_by_an_error(context, x):
    with context():
        y = x * 2
        torch._dynamo.graph_break()
        y = y + 1
        raise ValueError(3)


def nested(context, x):
    def inner():
        with context():
            torch._dynamo.graph_break()
            return x * 2

    with context():
        y = inner()
        inside = state()
        torch._dynamo.graph_break()
        return y + 1, inside


def left_by_the_loop(context, x):
    for i in range(3):
        with context():
            if i == 1:
                continue
            x = x * 2
            if i == 2:
                break
            print(i)
    return x, state()


def by_hand(context, x):
    entered = context()
    entered.__enter__()
    y = x * 2
    torch._dynamo.graph_break()
    y = y + 1
    entered.__exit__(None, None, None)
    return y, state()


OF_A_KIND = ("attention in order", "no_grad", "inference", "autocast", "no hooks", "device", "no overrides",
             "overrides", "numpy errors", "decimal", "directory", "dtype")
"""One of each way to make a context: a class of torch's or of C, a generator, a mode."""
CASES = [(context, use) for context in CONTEXTS
         for use in (broken, broken_twice, left_by_an_error, nested, left_by_the_loop, by_hand)
         if context in OF_A_KIND or use in (broken, left_by_an_error, nested)]


@pytest.mark.parametrize("context, use", CASES)
def test_the_state_is_what_it_was(context, use):
    def program(compile):
        function, before = compile(lambda x: use(CONTEXTS[context], x)), state()
        x = torch.ones(2).requires_grad_()
        found = [(call(function, x), state()) for _ in range(2)]
        with torch.no_grad():
            found.append((call(function, x), state()))
        assert state() == before
        return found

    check(program)
