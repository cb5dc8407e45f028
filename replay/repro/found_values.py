"""What a recording knows of the objects that a frame reached: a tree of values, from its inputs and its guards."""
from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...artifacts.records import Guards, SavedInputs

UNKNOWN = object()
STATE = {"_modules": "module", "_parameters": "parameter", "_buffers": "buffer", "__dict__": ""}
"""Dicts of an object whose entries are its attributes."""
Step = tuple[str, Any]  # ("attr" or "item", its name or key)


@dataclass
class Found:
    """An object. `tensor` is its position among the inputs; `kind` what a module holds it as."""

    children: dict[Step, Found] = field(default_factory=dict)
    tensor: int | None = None
    is_array: bool = False
    kind: str = ""
    type: str = ""
    value: Any = UNKNOWN
    subject: str = ""
    length: int | None = None
    keys: list[Any] | None = None
    same_as: str = ""

    def at(self, path: list[tuple[str, Any, str]]) -> Found:
        """The object at the end of a path, made where it is not known yet."""
        here = self
        for step, name, kind in path:
            here = here.children.setdefault((step, name), Found())
            here.kind = kind or here.kind
        return here

    def attributes(self) -> Iterator[tuple[str, Found]]:
        """Its attributes that are known, in the order of its dict of modules where that is known."""
        names = [name for step, name in self.children if step == "attr"]
        for name in sorted(names, key=lambda n: self.keys.index(n) if self.keys and n in self.keys else -1):
            yield name, self.children["attr", name]

    def items(self) -> dict[Any, Found]:
        """Its elements that are known, by key."""
        return {name: found for (step, name), found in self.children.items() if step == "item"}


def found_values(inputs: SavedInputs, guards: Guards | None) -> Found:
    """The tree. Its root has the items "L", whose items are the locals of the frame, and "G", with the globals."""
    root = Found()
    for guard in guards.guards if guards is not None else ():
        path, is_array = path_of(guard.source)
        of_state = guard.source.endswith(tuple(f".{name}" for name in STATE))  # the dict, and not the object
        if path is not None and not is_array and (not of_state or guard.kind == "DICT_KEYS"):
            _note(root.at(path), guard.kind, guard.expected, guard.subject)
    for number, item in enumerate(inputs.inputs):
        path, is_array = path_of(item.name)
        if path is None:
            raise LookupError(item.name)
        here = root.at(path)
        if item.meta is not None:
            here.tensor, here.is_array = number, is_array
        else:
            here.value = item.value
    return root


def _note(here: Found, kind: str, expected: str, subject: str) -> None:
    if kind == "TYPE_MATCH":
        here.type = expected
    elif kind in ("EQUALS_MATCH", "BOOL", "NONE"):
        here.value = _literal(expected)
    elif kind == "LENGTH":
        here.length = int(expected) if expected.isdigit() else None
    elif kind == "DICT_KEYS":
        keys = _literal(expected)
        here.keys = keys if isinstance(keys, list) else None
    elif kind in ("ID_MATCH", "FUNCTION_MATCH"):
        here.subject = subject or expected
    elif kind == "DUPLICATE_INPUT":
        here.same_as = expected


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        if re.fullmatch(r"-?(inf|nan)", text):
            return float(text)
        if re.fullmatch(r"torch\.\w+", text):
            return Expression(text)
        return UNKNOWN


class Expression(str):
    """A value that is written as it stands: `torch.float64`."""


def path_of(source: str) -> tuple[list[tuple[str, Any, str]] | None, bool]:
    """The steps of an expression over L and G, and whether the memory of an array is meant; None for others."""
    try:
        node: ast.expr = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None, False
    is_array = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tensor_of"
    if is_array and isinstance(node, ast.Call):
        node = node.args[0]
    steps: list[tuple[str, Any, str]] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            steps.append(("attr", node.attr, ""))
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            steps.append(("item", node.slice.value, ""))
        else:
            return None, False
        node = node.value
    if node.id not in ("L", "G"):
        return None, False
    steps.append(("item", node.id, ""))
    return _flat(steps[::-1]), is_array


def _flat(steps: list[tuple[str, Any, str]]) -> list[tuple[str, Any, str]]:
    """`._modules['up']` is the attribute `up`, a module."""
    flat: list[tuple[str, Any, str]] = []
    waiting = None
    for step, name, kind in steps:
        if waiting is not None and step == "item":
            flat.append(("attr", name, STATE[waiting]))
            waiting = None
        elif step == "attr" and name in STATE:
            waiting = name
        else:
            flat.append((step, name, kind))
    return flat
