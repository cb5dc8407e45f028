"""Edits that remove what nothing reads: variables, attributes, functions, classes, imports, parameters.

They need no search: all of them are right together more often than not, one round after the other.
"""
from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from .expressions import coupled_parameters
from .source import Change, Project, Source, sources
from .statements import FunctionNode


def unused(project: Project) -> list[Change]:
    """The removal of everything that is bound and never read, in all files."""
    reads = _reads(project)
    changes: list[Change] = []
    for source in sources(project):
        for node in source.nodes:
            if isinstance(node, ast.stmt) and _is_unused(node, reads):
                changes.append((source.remove(node),))
            elif isinstance(node, (ast.Import, ast.ImportFrom)) and len(node.names) > 1:
                changes += _names_of_import(source, node, reads)
        changes += _parameters(project, source)
    return changes


def statements_with_calls(project: Project) -> list[Change]:
    """The removal of calls whose results nobody takes: what they do is rarely needed."""
    return [
        (source.remove(node),) for source in sources(project) for node in reversed(source.nodes)
        if isinstance(node, ast.Expr)
    ]  # fmt: skip


def _reads(project: Project) -> Counter[str]:
    """How often each name, attribute and string occurs where it is not bound."""
    found: Counter[str] = Counter()
    for source in sources(project):
        for node in source.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found[node.id] += 1
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found[node.attr] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found[node.value] += 1
            elif isinstance(node, ast.ImportFrom):
                found.update(alias.name for alias in node.names)
    return found


def _is_unused(node: ast.stmt, reads: Counter[str]) -> bool:
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [name for target in targets for name in _bound(target)]
        return bool(names) and not any(name is None or reads[name] for name in names)
    if isinstance(node, FunctionNode):
        special = node.name.startswith("__") or node.name == "forward"
        return not special and not reads[node.name]
    if isinstance(node, ast.ClassDef):
        return not reads[node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)) and len(node.names) == 1:
        alias = node.names[0]
        own = int(isinstance(node, ast.ImportFrom))  # counted by itself
        return reads[(alias.asname or alias.name).partition(".")[0]] <= (own if not alias.asname else 0)
    return False


def _bound(target: ast.expr) -> Iterator[str | None]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute):
        yield target.attr
    elif isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _bound(element)
    else:
        yield None


def _names_of_import(source: Source, node: ast.Import | ast.ImportFrom, reads: Counter[str]) -> Iterator[Change]:
    own = int(isinstance(node, ast.ImportFrom))
    unused = [a for a in node.names if reads[(a.asname or a.name).partition(".")[0]] <= (own if not a.asname else 0)]
    if len(unused) == len(node.names):
        yield (source.remove(node),)
    elif unused:
        kept = ", ".join(source.segment(a) for a in node.names if a not in unused)  # type: ignore[arg-type]
        start = f"from {'.' * node.level}{node.module or ''} " if isinstance(node, ast.ImportFrom) else ""
        yield (source.replace(node, f"{start}import {kept}"),)


def _parameters(project: Project, source: Source) -> Iterator[Change]:
    for function in source.nodes:
        if isinstance(function, FunctionNode):
            inside = {n.id for statement in function.body for n in ast.walk(statement) if isinstance(n, ast.Name)}
            names = {a.arg for a in function.args.args} - inside
            if names:
                yield from coupled_parameters(project, source, function, names)
