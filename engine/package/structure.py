"""Nested arguments and results as plain data: tuples, lists and dicts around leaves.

A package must be loaded where the classes of the model do not exist. So a named tuple becomes a tuple, and a mapping
of a class of its own (the outputs of transformers) a dict.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...dependencies import msgspec

LEAVES = (bool, int, float, str, type(None))
"""What may be a leaf besides tensors."""


class Structure(msgspec.Struct, frozen=True):
    """A container (`kind` "tuple", "list" or "dict", whose `keys` are here), or a "leaf"."""

    kind: str = "leaf"
    keys: tuple[str | int, ...] = ()
    children: tuple[Structure, ...] = ()


class UnknownContainer(TypeError):
    """A value is neither a leaf nor a container; the message says where and what to do."""


def flatten(value: Any, path: str, tensor: type | tuple[type, ...]) -> tuple[Structure, list[tuple[str, Any]]]:
    """The structure of `value`, and its leaves with their paths. `tensor` is the class of tensors, or
    classes of what else may be a leaf.

    Raises UnknownContainer.
    """
    if isinstance(value, tensor) or type(value) in LEAVES:
        return Structure(), [(path, value)]
    if isinstance(value, Mapping):
        items = [(key, f"{path}[{key!r}]", each) for key, each in value.items()]
        if all(type(key) in (str, int) for key, _, _ in items):
            return _container("dict", tuple(key for key, _, _ in items), items, tensor)
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return _container(kind, (), [(k, f"{path}[{k}]", each) for k, each in enumerate(value)], tensor)
    raise UnknownContainer(
        f"{path} is of type {type(value).__module__}.{type(value).__qualname__}: a package takes and returns tensors, "
        "numbers, strings and None, in tuples, lists and dicts")


def _container(
    kind: str, keys: tuple[Any, ...], items: Sequence[tuple[Any, str, Any]], tensor: type | tuple[type, ...]
) -> tuple[Structure, list[tuple[str, Any]]]:
    parts = [flatten(each, path, tensor) for _, path, each in items]
    return Structure(kind, keys, tuple(s for s, _ in parts)), [leaf for _, leaves in parts for leaf in leaves]


def leaves_of(structure: Structure, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The leaves of `value`, which must have this structure. Raises TypeError that names the place where it has not."""
    if structure.kind == "leaf":
        yield path, value
        return
    if structure.kind == "dict":
        if not isinstance(value, Mapping) or set(value) != set(structure.keys):
            raise TypeError(f"{path} has to be a dict with the keys {list(structure.keys)}, not {_told(value)}")
        for key, child in zip(structure.keys, structure.children):
            yield from leaves_of(child, value[key], f"{path}[{key!r}]")
        return
    if not isinstance(value, (tuple, list)) or len(value) != len(structure.children):
        raise TypeError(f"{path} has to be a {structure.kind} of {len(structure.children)}, not {_told(value)}")
    for position, (child, each) in enumerate(zip(structure.children, value)):
        yield from leaves_of(child, each, f"{path}[{position}]")


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"one with {list(value)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a value of type {type(value).__name__}"


def rebuild(structure: Structure, leaves: Iterator[Any]) -> Any:
    """The value with this structure and these leaves, in order."""
    if structure.kind == "leaf":
        return next(leaves)
    parts = [rebuild(child, leaves) for child in structure.children]
    if structure.kind == "dict":
        return dict(zip(structure.keys, parts))
    return parts if structure.kind == "list" else tuple(parts)
