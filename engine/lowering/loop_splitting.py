"""Which loops to split in two so that index expressions become linear.

A view that merges or splits dimensions (heads of attention, groups of channels) indexes with `i // 64` and `i % 64`.
Two loops, of extents `extent / 64` and 64, need neither.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ir.affine import Atom, Linear, Size, exact_quotient


def axis_splits(forms: Iterable[Linear], extents: Mapping[str, Size]) -> dict[str, tuple[Size, ...]]:
    """For each axis to split: the divisors, ascending, each dividing the next and the last one the extent (one,
    if it is symbolic)."""
    found: dict[str, set[Size]] = {}
    for form in forms:
        for atom in form.terms:
            if atom.inner is not None:
                _collect(atom, found)
    splits: dict[str, tuple[Size, ...]] = {}
    for name, divisors in found.items():
        extent = extents.get(name, 0)
        whole = [d for d in divisors if type(d) is int]
        chain: tuple[Size, ...] = tuple(sorted(whole)) if len(whole) == len(divisors) else tuple(divisors)
        if extent == 0 or (len(chain) > 1 and len(whole) < len(chain)):
            continue
        if all(exact_quotient(b, a) is not None for a, b in zip(chain, (*chain[1:], extent))):
            proper = tuple(d for d in chain if d != 1 and d != extent)
            if proper:
                splits[name] = proper
    return splits


def _collect(atom: Atom, found: dict[str, set[Size]]) -> None:
    inner = atom.inner
    assert inner is not None
    for below in inner.terms:
        if below.inner is not None:
            _collect(below, found)
    if inner.const == 0 and len(inner.terms) == 1:
        (only, c), = inner.terms.items()
        if type(atom.divisor) is not int:
            if only.kind == "axis" and c == 1:
                found.setdefault(only.name, set()).add(atom.divisor)
            return
        if only.kind == "axis" and type(c) is int and atom.divisor % c == 0:
            found.setdefault(only.name, set()).add(atom.divisor // c)
        elif only.kind == "div" and c == 1 and only.inner is not None and len(only.inner.terms) == 1:
            (axis, k), = only.inner.terms.items()
            if axis.kind == "axis" and k == 1 and type(only.divisor) is int:
                found.setdefault(axis.name, set()).add(only.divisor * atom.divisor)
