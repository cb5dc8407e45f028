"""Serving: compile before the first request (`warm_up`), take what is compiled to other machines (cache bundles)."""
from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..engine.graph_cache import bundle
from ..engine.graph_cache.history import HISTORY, Done
from .compile_anything import compile_anything
from .module import OptimizedModule
from .wiring import requested

log = logging.getLogger("ptdebug")


class UntrustedCacheError(PermissionError):
    """A cache bundle was to be loaded without `trust=True`: its libraries and wrappers are code that would run."""


@dataclass(frozen=True)
class WarmCall:
    """One call of a warm-up: what it was given, and the graphs that were compiled, or loaded from the cache."""

    inputs: str
    seconds: float
    graphs: tuple[Done, ...]

    def __str__(self) -> str:
        made = sum(not each.loaded for each in self.graphs)
        loaded = len(self.graphs) - made
        what = f"{made} compiled, {loaded} from the cache" if self.graphs else "nothing to compile"
        return f"{self.inputs}: {what}, {self.seconds:.2f} s"


@dataclass(frozen=True)
class WarmUp:
    """What `warm_up` did. `model` is compiled and warm; prints as a report."""

    model: Callable[..., Any]
    calls: tuple[WarmCall, ...]

    @property
    def graphs(self) -> tuple[Done, ...]:
        """All graphs, in the order in which they were compiled or loaded."""
        return tuple(each for call in self.calls for each in call.graphs)

    def __str__(self) -> str:
        lines = [f"  {'loaded' if g.loaded else 'compiled'} {g.label}{f' (not cached: {g.why})' if g.why else ''}"
                 for g in self.graphs]
        return "\n".join([*map(str, self.calls), *lines])


@dataclass(frozen=True)
class CacheBundle:
    """A cache bundle that was written, or loaded. `differs` says in what this machine is another than the one that it
    is for: nothing was loaded then."""

    path: str
    graphs: tuple[str, ...]
    libraries: int
    differs: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.differs:
            return f"{self.path} is for {'; '.join(self.differs)}: nothing was loaded, everything is compiled here"
        head = f"{self.path}: {len(self.graphs)} graphs, {self.libraries} libraries"
        return "\n".join([head, *(f"  {label}" for label in self.graphs)])


def warm_up(model: Any, inputs: Iterable[Any]) -> WarmUp:
    """Call `model` once with each of `inputs`, so that what they need is compiled before it is needed.

    Each of `inputs` is the tuple of the positional arguments, the dict of the keyword arguments, a pair of both, or the
    only argument. What is not compiled yet is compiled (`.model` of the result). The calls happen in the modes that are
    set now (`torch.no_grad()`, `model.eval()`), which guards depend on. The states of the random number generators are
    as before; what the model itself changes is changed.
    """
    compiled = model if _is_compiled(model) else compile_anything(model, requested())
    calls = []
    for number, given in enumerate(inputs):
        args, kwargs = _arguments(given)
        before, start = len(HISTORY), time.perf_counter()
        try:
            with torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
                compiled(*args, **kwargs)
        except Exception as error:
            error.add_note(f"ptdebug.warm_up: with inputs {number}, {_described(args, kwargs)}")
            raise
        calls.append(WarmCall(_described(args, kwargs), time.perf_counter() - start, tuple(HISTORY[before:])))
    return WarmUp(compiled, tuple(calls))


def save_cache(path: str | Path) -> CacheBundle:
    """Write what this process has compiled, or loaded from the cache, to one file for machines of the same kind.

    Raises OSError where the file cannot be written.
    """
    content = bundle.pack(HISTORY)
    manifest = bundle.read(content).manifest
    Path(path).write_bytes(content)
    return CacheBundle(str(path), tuple(entry.label for entry in manifest.graphs), len(manifest.libraries))


def load_cache(path: str | Path, *, trust: bool = False) -> CacheBundle:
    """Put the graphs of a file that `save_cache` made into this machine's cache.

    They are code (shared libraries, and Python): with `trust=True` you say that you know where the file is from;
    without, UntrustedCacheError says what is in it. A bundle for another CPU, torch or ptdebug is told (a warning, and
    `.differs`), and nothing of it is loaded. Raises OSError, and BundleError (a ValueError) for a damaged file.
    """
    try:
        found = bundle.read(Path(path).read_bytes())
    except bundle.BundleError as error:
        raise bundle.BundleError(f"{path}: {error}") from error
    manifest = found.manifest
    if not trust:
        raise UntrustedCacheError(
            f"{path} holds {len(manifest.libraries)} shared libraries and {len(manifest.graphs)} graphs: code that "
            "would run in this process: if you know where it is from, load_cache(path, trust=True)")
    loaded = CacheBundle(str(path), tuple(entry.label for entry in manifest.graphs), len(manifest.libraries),
                         found.differences())
    if loaded.differs:
        log.warning("%s", loaded)
    else:
        bundle.install(found)
    return loaded


def save_cache_artifacts() -> tuple[bytes, Any] | None:
    """`torch.compiler.save_cache_artifacts` under `ptdebug run`: (a bundle, what is in it); None where nothing is."""
    content = bundle.pack(HISTORY)
    keys = [entry.key for entry in bundle.read(content).manifest.graphs]
    return (content, _info(keys)) if keys else None


def load_cache_artifacts(serialized_artifacts: bytes) -> Any:
    """`torch.compiler.load_cache_artifacts` under `ptdebug run`: what is in the bundle, loaded; None where it does not
    fit, or is none. As PyTorch's own, it trusts what the program gives it."""
    try:
        found = bundle.read(serialized_artifacts)
    except (bundle.BundleError, TypeError) as error:
        log.warning("load_cache_artifacts: these are no artifacts of ptdebug: %s", error)
        return None
    differs = found.differences()
    if differs:
        log.warning("load_cache_artifacts: the artifacts are for %s: nothing was loaded", "; ".join(differs))
        return None
    bundle.install(found)
    return _info(list(found.graphs))


def _info(keys: list[str]) -> Any:
    from torch.compiler._cache import CacheInfo

    info = CacheInfo()
    info.artifacts["ptdebug"].extend(keys)
    return info


def _is_compiled(model: Any) -> bool:
    return isinstance(model, OptimizedModule) or hasattr(model, "_ptdebug_original") or hasattr(
        getattr(model, "_compiled_call_impl", None), "_ptdebug_original")


def _arguments(given: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    match given:
        case (tuple() as args, dict() as kwargs):
            return args, kwargs
        case tuple():
            return given, {}
        case dict():
            return (), given
    return (given,), {}


def _described(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    named = [*(_text(value) for value in args), *(f"{name}={_text(value)}" for name, value in kwargs.items())]
    return f"({', '.join(named)})"


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    text = repr(value)
    return text if len(text) < 40 else type(value).__name__
