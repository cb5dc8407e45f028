"""Exports for GPUs that are not here (`--target cuda:90`): what they are for, and what making them takes."""
from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec

import torch

from ..engine.toolchain.cpp_build import BuildFailed, CannotBuild
from ..engine.toolchain.device_guard import guard_absent_gpus
from .errors import ExportError

TARGET_DEVICE = torch.device("cuda", 0)
"""Where a model is that was exported for a GPU that is not here."""


def capabilities_of(targets: Sequence[str]) -> tuple[int, ...]:
    """The compute capabilities that targets name, ("cuda:90",) -> (90,). Raises ValueError."""
    found = [re.fullmatch(r"cuda:(\d{2,3})", target) for target in targets]
    for target, match in zip(targets, found):
        if match is None:
            raise ValueError(f"the target {target!r} is no compute capability of CUDA, for example cuda:90")
    return tuple(dict.fromkeys([int(match[1]) for match in found if match is not None]))


def prepare_for_absent_gpus() -> None:
    """Raises ExportError where nothing can be compiled for them."""
    if find_spec("triton") is None:
        raise ExportError("an export for a GPU needs Triton, which is not installed (pip install triton)")
    try:
        guard_absent_gpus()
    except (CannotBuild, BuildFailed, OSError) as error:
        raise ExportError(f"an export for a GPU that is not here needs a C++ compiler: {error}") from None


def cuda_of(capabilities: Sequence[int]) -> str:
    """The version of CUDA whose compiler makes machine code for these, "12.8"."""
    if not capabilities:
        return ""
    from ..engine.codegen.triton.compile import cuda_version_of  # which loads Triton's code generation

    return max(map(cuda_version_of, capabilities), key=lambda version: [*map(int, version.split("."))])
