"""Which loops to split in two so that index expressions become linear.

A view that merges or splits dimensions (heads of attention, groups of channels) indexes with `i // 64` and `i % 64`.
Two loops, of extents `extent / 64` and 64, need neither.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ir.affine import Atom, Linear, Size


def axis_splits(forms: Iterable[Linear], extents: Mapping[str, Size]) -> dict[str, tuple[int, ...]]:
    """For each axis to split: the divisors, ascending, each dividing the next and the last one the extent."""
    found: dict[str, set[int]] = {}
    for form in forms:
        for atom in form.terms:
            if atom.inner is not None:
                _collect(atom, found)
    splits = {}
    for name, divisors in found.items():
        extent = extents.get(name)
        chain = tuple(sorted(divisors))
        if type(extent) is int and extent > 0 and all(b % a == 0 for a, b in zip(chain, (*chain[1:], extent))):
            proper = tuple(d for d in chain if 1 < d < extent)
            if proper:
                splits[name] = proper
    return splits


def _collect(atom: Atom, found: dict[str, set[int]]) -> None:
    inner = atom.inner
    assert inner is not None
    for below in inner.terms:
        if below.inner is not None:
            _collect(below, found)
    if type(atom.divisor) is int and inner.const == 0 and len(inner.terms) == 1:
        (only, c), = inner.terms.items()
        if only.kind == "axis" and type(c) is int and atom.divisor % c == 0:
            found.setdefault(only.name, set()).add(atom.divisor // c)
        elif only.kind == "div" and c == 1 and only.inner is not None and len(only.inner.terms) == 1:
            (axis, k), = only.inner.terms.items()
            if axis.kind == "axis" and k == 1 and type(only.divisor) is int:
                found.setdefault(axis.name, set()).add(only.divisor * atom.divisor)
