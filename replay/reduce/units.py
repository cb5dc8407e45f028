"""One function of a script in the place of the whole: its definition, and a call of it with arguments like those that
it had. Where the failure is in that function, most of a script is gone at once."""
from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .source import Project, Source, apply, sources
from .statements import FunctionNode
from .unused import unused

ROUNDS = 30


@dataclass(frozen=True)
class Call:
    """A call of a function: `arguments` are names with Python that makes them ("" unknown); `result` says where the
    result has a tensor with a gradient ("." itself, "[1]" an element, "" nowhere)."""

    file: str
    function: str
    arguments: tuple[tuple[str, str], ...]
    result: str = ""
    method: bool = False


def units(project: Project, calls: Sequence[Call], gradient: bool = False, twice: bool = False) -> list[Project]:
    """A project for each function that was called, the smallest first. `gradient`: with a backward from its result;
    `twice`: called with the arguments of two calls."""
    found = []
    for call in calls:
        again = [c for c in calls if c.function == call.function and c.file == call.file and c != call] if twice else []
        for tail in _tails(project, call, again, gradient):
            made = _unit(project, call, tail)
            if made is not None and made != project and made not in found:
                found.append(made)
    return sorted(found, key=lambda unit: unit.lines())


def _tails(project: Project, call: Call, again: Sequence[Call], gradient: bool) -> Iterator[str]:
    """The lines that call the function."""
    if gradient and not call.result:
        return
    made = _subject(project, call)
    if made is None:
        return
    subject, skipped = made
    calls = [_arguments(one, skipped) for one in (call, *again[:1])]
    if None in calls:
        return
    lines = [*subject[:-1], f"function = torch.compile({subject[-1]})"]
    if not gradient:
        yield "\n".join([*lines, *(f"function({arguments})" for arguments in calls)])
        return
    lines.append(f"result = function({calls[0]})")
    result = f"result{call.result if call.result != '.' else ''}"
    for reduced in (f"{result}.sum()", f"{result}.pow(2).sum()"):
        yield "\n".join([*lines, f"{reduced}.backward()"])


def _subject(project: Project, call: Call) -> tuple[list[str], int] | None:
    """Lines that make what is compiled, which is the last of them; and how many arguments these take."""
    name = call.function.rpartition(".")[2]
    if not call.method:
        return [name], 0
    if name in ("__init__", "__post_init__") or not call.arguments:
        return None
    own = call.arguments[0][1]
    if call.arguments[0][0] != "self":
        return [call.function], 0
    if not own:
        return None if _uses_self(project, call) else ([call.function], -1)
    return [f"subject = {own}", "subject" if name in ("forward", "__call__") else f"subject.{name}"], 1


def _uses_self(project: Project, call: Call) -> bool:
    name = call.function.rpartition(".")[2]
    for source in sources(project):
        for node in source.nodes:
            if isinstance(node, FunctionNode) and (source.file, node.name) == (call.file, name):
                return any(isinstance(n, ast.Name) and n.id == "self" for n in ast.walk(node))
    return True


def _arguments(call: Call, skipped: int) -> str | None:
    if skipped < 0:  # a method that does not look at its object
        return _arguments_of((("self", "None"), *call.arguments[1:]))
    return _arguments_of(call.arguments[skipped:])


def _arguments_of(arguments: Sequence[tuple[str, str]]) -> str | None:
    return ", ".join(text for _, text in arguments) if all(text for _, text in arguments) else None


def _unit(project: Project, call: Call, tail: str) -> Project | None:
    """The definitions of all files, what only runs removed from the script, and the call; pruned."""
    (name, _), *others = project.files
    script = next(sources(project))
    kept = [node for node in script.tree.body if _defines(node)]
    text = "".join(_text(script, node) for node in kept)
    imports = _imports(project, call, tail)
    made = Project(((name, f"{imports}{text}{tail}\n"), *others))
    for _ in range(ROUNDS):
        changes = unused(made)
        smaller = apply(made, changes) if changes else None
        if smaller is None or smaller == made:
            break
        made = smaller
    return made if apply(made, []) is not None else None


def _defines(node: ast.stmt) -> bool:
    return isinstance(node, (*FunctionNode, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign))


def _text(source: Source, node: ast.stmt) -> str:
    start, end = source.lines_of(node)
    text = source.bytes[start:end].decode()
    return text if text.endswith("\n") else text + "\n"


def _imports(project: Project, call: Call, tail: str) -> str:
    """Imports of what the tail names from other files, and of torch."""
    others = list(sources(project))[1:]
    names = {node.id for node in ast.walk(ast.parse(tail)) if isinstance(node, ast.Name)}
    lines = ["import torch\n"]
    for other in others:
        module = other.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        defined = {node.name for node in other.tree.body if isinstance(node, (*FunctionNode, ast.ClassDef))}
        lines += [f"from {module} import {name}\n" for name in sorted(names & defined)]
    return "".join(lines)
