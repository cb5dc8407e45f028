"""What the tracer passes to a backend, and what it expects back.

The front end gives the tracer a plain callable (`Backend`): tracer and engine do not know each other.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.fx

from ...artifacts.context import CompileContext, CompileId
from ..guards.versions import Versions
from ..runtime.dynamo_settings import setting


@dataclass(frozen=True)
class CapturedGraph:
    """A torch-level FX graph in which every tensor is an input: parameters and buffers are lifted to placeholders.

    `inputs` are the fake tensors (torch.SymInt, torch.SymFloat for numbers that vary) of the placeholders in order,
    made by one FakeTensorMode with one ShapeEnv; each node's `meta["val"]` holds its fake result, `meta["stack"]` its
    tuple of `artifacts.records.Location` (the user's stack, innermost last) and `meta["module"]` the nn.Module path.
    The graph returns a tuple. Mutations of inputs stand in the graph as in-place operators. `grad_enabled` is the mode
    at the call; `input_names` are the sources' expressions. `examples()` are the values of the placeholders at the call
    that is compiled; it can be asked while the backend runs. `meta["modules"]` is the stack of nn.Modules: (id,
    expression, class) of each.
    """

    module: torch.fx.GraphModule
    inputs: tuple[Any, ...]
    input_names: tuple[str, ...]
    grad_enabled: bool
    inference_mode: bool = False
    examples: Callable[[], tuple[Any, ...]] | None = None


Compiled = Callable[..., Sequence[Any]]
"""Takes the values of the placeholders as positional arguments, returns the outputs in order."""

Backend = Callable[[CapturedGraph, CompileContext], Compiled]


@dataclass
class CompileOptions:
    """The options of one `ptdebug.compile(...)` (or torch.compile under `ptdebug run`).

    `dynamic`: None = a dimension that changed becomes symbolic at the recompilation; True = all from the start; False =
    never. `run_again`: a call whose graph raises is repeated in eager. After `recompile_limit` entries for one code
    object the frame runs in eager, with one warning. `versions` gives the library of `guards/versions.py` once it is
    compiled. `overrides` are those in force, for frames that are skipped unless one names them. `keep_guards` is the
    program's choice of guards (see `guards/filtering.py`); `with_backend` gives the same options with another backend.
    Without `automatic_dynamic`, sizes of earlier compilations make nothing symbolic; then the numbers at the sources
    `varying` are symbols from the start.
    """

    backend: Backend
    make_context: Callable[[CompileId], CompileContext] = field(default=lambda i: CompileContext(i))
    dynamic: bool | None = None
    fullgraph: bool = False
    recompile_limit: int | None = None
    run_again: bool = True
    versions: Callable[[], Versions | None] | None = None
    overrides: Callable[[], Mapping[str, str]] = dict
    keep_guards: Callable[[Any], Any] | None = None
    with_backend: Callable[[Any], CompileOptions] | None = None
    automatic_dynamic: bool = True
    varying: tuple[str, ...] = ()

    @property
    def limit(self) -> int:
        """`recompile_limit`, or what Dynamo's configuration says."""
        return int(setting("recompile_limit", 8)) if self.recompile_limit is None else self.recompile_limit
