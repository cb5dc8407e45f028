"""From collected guards to torch's C++ guard tree."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...operators.dynamo_stubs import tensors_always_checked, without_dynamo
from ..sources.source import Source
from .builder import GuardBuilder
from .filtering import Filter, kept_guards
from .kinds import KINDS
from .spec import Check
from .tree import GuardTree, Manager
from .versions import Versions


@dataclass(frozen=True, slots=True)
class BuiltTree:
    """A guard tree: C++ reports each of `checks` by the string of its index; `watched` are objects that must outlive
    the entry; `functions` are the outermost modules, each with the indices of the guards that one function checks."""

    root: Manager
    checks: tuple[Check, ...]
    watched: tuple[Any, ...]
    functions: Mapping[Source, tuple[int, ...]]


def build_tree(
    builder: GuardBuilder, failures: Mapping[str, int] | None = None,
    versions: Callable[[], Versions | None] | None = None, keep: Filter | None = None,
) -> BuiltTree:
    """The C++ tree of all guards of `builder` and of the conditions on its symbols.

    The tree checks variables in the order of their first guard here: those whose guards failed most often (`failures`,
    by variable) before the others, then as the function reads them. Checks in Python come last, and C++ itself moves to
    the front what fails. `versions` returns the library of `versions.py`, or nothing while it is not compiled. `keep`
    is the program's own choice of guards.
    """
    with without_dynamo(), tensors_always_checked():
        tree = GuardTree(builder, len(builder.specs))
        specs, conditions = (builder.specs, True) if keep is None else kept_guards(builder, keep)
        if failures:
            specs.sort(key=lambda spec: -failures.get(_root_name(spec.source), 0))
        checks = [
            Check(spec.index, spec.source, spec.kind, KINDS[spec.kind].install(tree, spec), spec.location)
            for spec in specs
        ]
        if conditions:
            tree.add_conditions()
        tree.finish_alias_check()
        functions = tree.finish_modules(versions)
        tree.forget()
        checks.sort(key=lambda check: check.index)
        return BuiltTree(tree.root, (*checks, *tree.implied), tuple(tree.watched.values()), functions)


def _root_name(source: Source) -> str:
    while source.base is not None:
        source = source.base
    return str(getattr(source, "name", ""))
