"""`options={"guard_filter_fn": ...}`: the program says which guards to keep, from entries such as Dynamo's."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import GuardSource

from ..sources.roots import GLOBAL_STATE
from ..sources.source import Source
from .builder import GuardBuilder
from .spec import GuardSpec

Filter = Callable[[Sequence["FilterEntry"]], Sequence[bool]]


@dataclass(frozen=True)
class FilteredGuard:
    """What a filter asks of a guard itself: where it comes from."""

    name: str
    source: GuardSource


@dataclass(frozen=True)
class FilterEntry:
    """One guard, with the fields of Dynamo's GuardFilterEntry. Kinds have ptdebug's names, many of them Dynamo's."""

    name: str
    has_value: bool
    value: object
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: FilteredGuard


def kept_guards(builder: GuardBuilder, keep: Filter) -> tuple[list[GuardSpec], bool]:
    """The guards that the filter keeps, and whether the conditions on sizes stay.

    Raises ValueError where it does not answer for each guard.
    """
    specs = builder.specs
    entries = [_entry(builder, spec) for spec in specs]
    entries.append(FilterEntry("", False, None, "SHAPE_ENV", (), False, FilteredGuard("", GuardSource.SHAPE_ENV)))
    answers = list(keep(entries))
    if len(answers) != len(entries):
        raise ValueError(f"guard_filter_fn gave {len(answers)} answers for {len(entries)} guards")
    return [spec for spec, kept in zip(specs, answers) if kept], bool(answers[-1])


def _entry(builder: GuardBuilder, spec: GuardSpec) -> FilterEntry:
    known, value = False, None
    if spec.source is not GLOBAL_STATE:
        try:
            known, value = True, builder.value(spec.source)
        except Exception:  # a lookup that fails: the guard says so, or it is computed
            known, value = False, None
    name, root = spec.source.expression if known else "", _root(spec.source)
    is_global = root.startswith(("G[", "G."))
    return FilterEntry(name, known, value, spec.kind, (), is_global, FilteredGuard(
        name, _guard_source(builder, spec.source, is_global)))


def _root(source: Source) -> str:
    while source.base is not None:
        source = source.base
    return source.expression if source is not GLOBAL_STATE else ""


def _guard_source(builder: GuardBuilder, source: Source, is_global: bool) -> GuardSource:
    """Whether the innermost owner that is a module is one of PyTorch's classes, or the program's."""
    at: Source | None = source
    while at is not None and at is not GLOBAL_STATE:
        try:
            value: Any = builder.value(at)
        except Exception:
            value = None
        if isinstance(value, torch.nn.Module):
            builtin = type(value).__module__.startswith(("torch.nn.", "torch.ao."))
            kind = "UNSPECIALIZED_BUILTIN_NN_MODULE" if builtin else "UNSPECIALIZED_NN_MODULE"
            found: GuardSource = getattr(GuardSource, f"{'GLOBAL' if is_global else 'LOCAL'}_{kind}")
            return found
        at = at.base
    return GuardSource.GLOBAL if is_global else GuardSource.LOCAL
