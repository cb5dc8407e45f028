"""Names for the values of a graph: the variables of the program where its source says them, else those of the graph."""
from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Collection, Sequence
from itertools import groupby

from ...artifacts.input_names import in_words
from ...artifacts.records import Location, Node, NodeRef
from ..recorded.allowed import BUILTINS

Source = Callable[[str], str | None]
RESERVED = frozenset((
    "torch", "F", "operator", "math", "aten", "prims", "mkldnn", "mkl", "onednn", "ptdebug", "sys", "Path", "load_file",
    "make", "main", "graph", "before", "after", "ctx", "argparse", *keyword.kwlist, *BUILTINS,
    "complex", "tuple", "list", "range", "zip", "print",
))  # fmt: skip
"""Names that a script uses itself."""
Assignment = tuple[int, int, str]  # first line, last line, variable


def identifier(name: str, taken: Collection[str] = ()) -> str:
    """A free identifier like `name`: `self.layers[0].weight` becomes `layers_0_weight`."""
    text = re.sub(r"\W+", "_", name.removeprefix("self."), flags=re.ASCII).strip("_") or "value"
    text = f"x{text}" if text[0].isdigit() else text
    free, number = text, 1
    while free in RESERVED or free in taken:
        number += 1
        free = f"{text}_{number}"
    return free


def input_names(sources: Sequence[str]) -> list[str]:
    """An identifier for each input, by where the frame found it: `L['self']._modules['up'].weight` is `up_weight`."""
    names: list[str] = []
    for source in sources:
        names.append(identifier(_of_stock(in_words(source)), names))
    return names


def _of_stock(name: str) -> str:
    """TorchDynamo's name of an input as the program's: `L_self_modules_up_parameters_weight_` is `up_weight`."""
    if not re.match(r"[LG]_\w+_$", name):
        return name
    short = re.sub(r"(?:_modules_|_parameters_|_buffers_)", "_", name[2:-1])
    return re.sub(r"_+", "_", short.removeprefix("self_")).strip("_") or name


def variables(nodes: Sequence[Node], source: Source) -> dict[str, str]:
    """The variable that the program assigns a node's value to, by node.

    It is that of the last node of an assignment, which may have called functions: the variable of the outermost
    function is the one that a reader of the program knows.
    """
    assignments: dict[str, list[Assignment]] = {}
    found: dict[str, str] = {}
    computed = [node for node in nodes if node.op in ("call_function", "call_method") and node.stack]
    tuples = {node.id for node in nodes if isinstance(node.value, tuple)}
    depth = max((len(node.stack) for node in computed), default=0)
    for level in reversed(range(depth)):
        deep = [node if len(node.stack) > level else None for node in computed]
        places = [None if n is None else _assigned(n.stack[: level + 1], assignments, source) for n in deep]
        for key, run in groupby(zip(places, computed), lambda pair: pair[0]):
            last = list(run)[-1][1]
            if key is not None and not _is_part(last, tuples):
                found[last.id] = str(key[-1])
    return found


def _is_part(node: Node, tuples: Collection[str]) -> bool:
    """Whether a value is one of several that a call returned."""
    owner = node.args[0] if node.target == "operator.getitem" else None
    return isinstance(owner, NodeRef) and owner.node in tuples


def _assigned(
    stack: tuple[Location, ...], known: dict[str, list[Assignment]], source: Source
) -> tuple[object, ...] | None:
    """The assignment that the innermost frame of `stack` is in, within its callers; None outside of one."""
    place = stack[-1]
    if place.file not in known:
        known[place.file] = _assignments(source(place.file))
    for first, last, name in known[place.file]:
        if first <= place.line <= last:
            callers = tuple((frame.file, frame.line, frame.column) for frame in stack[:-1])
            return (*callers, place.file, first, name)
    return None


def _assignments(text: str | None) -> list[Assignment]:
    """The statements of a file that assign to one variable, innermost first where a line has several."""
    try:
        tree = ast.parse(text or "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = []
    for node in ast.walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else (
            node.target if isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None else None)
        if isinstance(target, ast.Name) and isinstance(node, ast.stmt):
            found.append((node.lineno, node.end_lineno or node.lineno, target.id))
    return sorted(found, key=lambda a: a[1] - a[0])
