"""What a compilation depends on besides its graph: torch and its settings, this machine, ptdebug's sources, known
sizes."""
from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch._C import _functorch

from ..toolchain.cpp_build import cpu_features
from .values import Uncacheable

ROOMS = ("artifacts", "engine", "operators", "tracer")
"""Our own code that a compiled graph depends on."""

_GETTER = re.compile(
    r"_get_\w*(enabled|deterministic|_allow_\w+|precision|_backend|_order|_only|_algorithms|_memory|_benchmark|"
    r"_qengine|_capability|_reduction|_accumulation)$"
)
_ENVIRONMENT = re.compile(r"(ATEN|MKL|DNNL|ONEDNN|OMP|KMP|GOMP|TORCH|PYTORCH)_(?!\w*(CACHE|DIR|LOG))\w+$")


@functools.cache
def of_installation() -> str:
    """What is constant in a process: versions, the machine, ptdebug's sources."""
    return "\n".join((torch.__version__, str(torch.version.git_version), cpu_features(), _sources()))


def sources() -> str:
    """The checksum of ptdebug's own code that a compiled graph depends on."""
    return _sources()


@functools.cache
def _sources() -> str:
    digest = hashlib.sha256()
    root = str(Path(__file__).parent.parent.parent)
    for path in sorted([path for room in ROOMS for path in _modules(os.path.join(root, room))]):
        with open(path, "rb", buffering=0) as file:
            content = file.read()
        digest.update(f"{path.removeprefix(root)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _modules(folder: str) -> Iterator[str]:
    """The paths of all modules below a folder; there are hundreds, for which `pathlib` takes three times as long."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _modules(entry.path)


@functools.cache
def _getters() -> tuple[str, ...]:
    names = (name for name in dir(torch._C) if _GETTER.match(name) and name != "_get_privateuse1_backend_name")
    return tuple(sorted(names))


def of_process() -> str:
    """The settings and modes of torch in this thread, and what of the environment its libraries read.

    Raises Uncacheable inside modes that change what operators mean.
    """
    if _functorch.get_dynamic_layer_stack_depth() or torch._C._len_torch_dispatch_stack():
        raise Uncacheable("a transform or a dispatch mode is active")
    if torch._C._len_torch_function_stack():  # a default device is one, too
        raise Uncacheable("a user-defined torch function mode is active")
    settings: list[Any] = [(name, _asked(getattr(torch._C, name))) for name in _getters()]
    settings += [
        torch.get_num_threads(), torch.get_default_dtype(), torch._C._get_default_device(),
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._is_fwd_grad_enabled(),
        torch.is_anomaly_enabled(), torch.backends.mkldnn.is_available(), torch.backends.mkl.is_available(),
        _precisions(), torch.backends.mha.get_fastpath_enabled(),
        _functorch.get_inplace_requires_grad_allowed(), torch.is_autocast_cache_enabled(),
        [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")],
        sorted(item for item in os.environ.items() if _ENVIRONMENT.match(item[0])),
    ]
    return repr(settings)


def _asked(getter: Any) -> str:
    try:
        return repr(getter())
    except (TypeError, RuntimeError):  # it wants arguments, or a device that is not here
        return ""


def _precisions() -> list[str]:
    getter = getattr(torch._C, "_get_fp32_precision_getter", None)
    places = [(library, kind) for library in ("generic", "mkldnn") for kind in ("all", "matmul", "conv", "rnn")]
    return [] if getter is None else [_asked(functools.partial(getter, *place)) for place in places]


def of_sizes(env: Any) -> str:
    """What a ShapeEnv knows of the sizes that vary. Raises Uncacheable where a size is known only at run time."""
    if env is None or not env.var_to_range:
        return ""
    from sympy import srepr

    hints = env.backed_var_to_val
    if env.deferred_runtime_asserts or any(symbol not in hints for symbol in env.var_to_range):
        raise Uncacheable("a size is data-dependent")
    symbols = sorted(env.var_to_range, key=str)
    return repr((
        [(str(s), sorted(s.assumptions0.items()), srepr(hints[s]), _range(env.var_to_range[s])) for s in symbols],
        sorted((str(s), srepr(e)) for s, e in env.replacements.items()), [srepr(g.expr) for g in env.guards],
        sorted(map(srepr, env.divisible)), sorted(map(str, env.size_like)), repr(env.settings),
        sorted((str(s), v) for s, v in env.var_to_hint_override.items()),
    ))


def _range(bounds: Any) -> str:
    return f"{bounds.lower}..{bounds.upper}"
