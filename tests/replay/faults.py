"""Wrong lowerings and crashes that a case can import (`Case.imports`): `faults:wrong_relu`."""
from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any

import torch
from ptdebug.engine.lowering import LOWERINGS

RELU = torch.ops.aten.relu.default


def wrong_relu() -> None:
    """relu(x) is computed as sigmoid(x), where it becomes loops."""
    LOWERINGS[RELU] = LOWERINGS[torch.ops.aten.sigmoid.default]


def raising_relu() -> None:
    """The lowering of relu raises."""

    def lowering(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a planted fault at node relu_17")

    LOWERINGS[RELU] = replace(LOWERINGS[RELU], function=lowering)


def crash() -> None:
    """The process dies."""
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    """Nothing happens for long."""
    time.sleep(1000)
