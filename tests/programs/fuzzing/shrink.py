"""Makes a failing program small: statements and expressions go as long as it fails in the same way."""
from __future__ import annotations

import ast
import contextlib
import copy
import time
from collections.abc import Callable, Iterator

from .prelude import MARK


class _TimeIsUp(Exception):
    """What has been found by now is the answer."""


def shrink(text: str, fails: Callable[[str], bool], rounds: int = 8, seconds: float = float("inf")) -> str:
    """The smallest program found that still fails; `fails` is asked about each candidate.

    `seconds`: of processor time, after which nothing more is tried.
    """
    shared, mark, best = text.rpartition(MARK)
    end = time.process_time() + seconds

    def asked(candidate: str) -> bool:
        nonlocal best
        if time.process_time() > end:
            raise _TimeIsUp
        failed = fails(shared + mark + "\n" + candidate)
        if failed:
            best = candidate
        return failed

    with contextlib.suppress(_TimeIsUp):
        best = _shrunk(best, asked, rounds)
    return shared + mark + "\n" + best


def _shrunk(text: str, fails: Callable[[str], bool], rounds: int) -> str:
    best = text
    for _ in range(rounds):
        before = best
        for candidate in _candidates(best):
            if candidate != best and fails(candidate):
                best = candidate
                break
        else:
            return best
        best = _descend(best, fails)
        if best == before:
            return best
    return best


def _descend(text: str, fails: Callable[[str], bool]) -> str:
    """Take each smaller program that still fails until a whole pass finds none."""
    position = 0
    while True:
        candidates = list(_candidates(text))
        if position >= len(candidates):
            return text
        if len(candidates[position]) < len(text) and fails(candidates[position]):
            text = candidates[position]
        else:
            position += 1


def _candidates(text: str) -> Iterator[str]:
    """Programs with one piece less, larger pieces first."""
    tree = ast.parse(text)
    for number, (node, name) in enumerate(_blocks(tree)):
        for index in range(len(getattr(node, name))):
            yield from _without(tree, number, index)
    for number, node in enumerate(ast.walk(_root(tree))):
        if isinstance(node, (ast.Call, ast.BinOp, ast.IfExp, ast.ListComp, ast.List, ast.Tuple, ast.Subscript)):
            yield from _simpler(tree, number, node)


def _root(tree: ast.Module) -> ast.FunctionDef:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "f")


def _blocks(tree: ast.Module) -> list[tuple[ast.AST, str]]:
    """Each list of statements in `f`: its node and the field."""
    return [
        (node, name) for node in ast.walk(_root(tree)) for name in ("body", "orelse", "finalbody", "handlers")
        if isinstance(getattr(node, name, None), list)
    ]  # fmt: skip


def _unparsed(tree: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(tree))


def _without(tree: ast.Module, number: int, index: int) -> Iterator[str]:
    """Statement `index` of the block is dropped, or replaced by what it contains."""
    for keep_inner in (False, True):
        fresh = copy.deepcopy(tree)
        node, name = _blocks(fresh)[number]
        block = getattr(node, name)
        inner = getattr(block[index], "body", []) if keep_inner else []
        if keep_inner and (not inner or isinstance(block[index], (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler))):
            return
        block[index : index + 1] = inner
        if not block and name == "body" :
            block.append(ast.Pass())
        try:
            shorter = _unparsed(fresh)
            ast.parse(shorter)
            yield shorter
        except (SyntaxError, ValueError, IndexError):
            return


def _simpler(tree: ast.Module, number: int, node: ast.AST) -> Iterator[str]:
    """An expression of `f` is replaced by one of its parts."""
    for child_number in range(len([c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)])):
        fresh = copy.deepcopy(tree)
        root = _root(fresh)
        target = list(ast.walk(root))[number]
        part = [c for c in ast.iter_child_nodes(target) if isinstance(c, ast.expr)][child_number]
        for parent in ast.walk(root):
            for name, value in ast.iter_fields(parent):
                if value is target:
                    setattr(parent, name, part)
                elif isinstance(value, list) and any(item is target for item in value):
                    setattr(parent, name, [part if item is target else item for item in value])
        try:
            yield _unparsed(fresh)
        except ValueError:
            continue
