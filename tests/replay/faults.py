"""Wrong lowerings and crashes that a case can import (`Case.imports`): `faults:wrong_relu`."""
from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any

import torch
from ptdebug.engine import compile
from ptdebug.engine.aot.decompositions import OWN
from ptdebug.engine.lowering import LOWERINGS
from ptdebug.engine.passes import no_ops

RELU = torch.ops.aten.relu.default
SOFTMAX = torch.ops.aten._softmax.default


def wrong_relu() -> None:
    """relu(x) is computed as sigmoid(x), where it becomes loops."""
    LOWERINGS[RELU] = LOWERINGS[torch.ops.aten.sigmoid.default]


def wrong_exp_in_c() -> None:
    """exp(x) is printed as exp2(x) in C++."""
    from ptdebug.engine.codegen.cpp.operators import OPERATORS

    OPERATORS["exp"] = OPERATORS["exp2"]


def raising_relu() -> None:
    """The lowering of relu raises."""

    def lowering(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a planted fault at node relu_17")

    LOWERINGS[RELU] = replace(LOWERINGS[RELU], function=lowering)


def wrong_tanh_gradient() -> None:
    """The derivative of tanh at its result y is 1 - y, not 1 - y * y."""
    OWN[torch.ops.aten.tanh_backward.default] = lambda gradient, y: gradient * (1 - y)


def crash() -> None:
    """The process dies."""
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    """Nothing happens for long."""
    time.sleep(1000)


def crash_of_fused_softmax() -> None:
    """The process dies where softmax becomes loops."""

    def lowering(*args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)

    LOWERINGS[SOFTMAX] = replace(LOWERINGS[SOFTMAX], function=lowering)


def wrong_no_ops() -> None:
    """Subtracting 1 counts as a no-op."""
    no_ops.NO_OPS[torch.ops.aten.sub.Tensor] = lambda node: True


def wrong_everywhere() -> None:
    """Whatever is compiled gives its results plus one."""
    infer = compile._infer

    def wrong(*args: Any) -> Any:
        call = infer(*args)
        return lambda *inputs: [value + 1 for value in call(*inputs)]

    compile._infer = wrong


def sometimes_wrong() -> None:
    """What is compiled gives NaN in every third call."""
    infer, calls = compile._infer, [0]

    def wrong(*args: Any) -> Any:
        call = infer(*args)

        def run(*inputs: Any) -> Any:
            calls[0] += 1
            return [value / 0 for value in call(*inputs)] if calls[0] % 3 == 0 else call(*inputs)

        return run

    compile._infer = wrong
