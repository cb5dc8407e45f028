"""The house: imports have no circles, what documentation names is there, files and functions are of one idea."""
from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("artifacts", "cli", "engine", "operators", "replay", "tracer", "tui")
FILES = [*ROOT.glob("*.py"), *(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))]
CODE = re.compile(r"`([\w./]+?(?:\.py|/))`")  # a file or folder that a text names


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


# ---- circles ---------------------------------------------------------------------------------------------------------
def _modules() -> dict[str, Path]:
    found = {}
    for path in FILES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(("ptdebug", *parts)).removesuffix(".__init__")] = path
    return found


def _imported(name: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """The modules that a module imports: at its top, inside of functions, and for type checkers alone."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in modules else base
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_modules_import_each_other_in_no_circle() -> None:
    modules = _modules()
    graph = {name: {m for m in _imported(name, path, modules) if m in modules and m != name}
             for name, path in modules.items()}
    circles = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
            break
        except CycleError as error:
            circle = error.args[1]
            circles.append(" <- ".join(circle))
            graph[circle[1]].discard(circle[0])
    assert not circles, "\n".join(circles)


# ---- what texts name -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_of_packages_name_what_is_there(room: str) -> None:
    for init in (ROOT / room).rglob("__init__.py"):
        for name in CODE.findall(ast.get_docstring(tree(init)) or ""):
            places = (init.parent, ROOT, ROOT / room)
            assert any((place / name).exists() for place in places), f"{init.relative_to(ROOT)} names {name}"


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("tests/*.md")]),
                         ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_what_is_there(page: Path) -> None:
    for name in CODE.findall(page.read_text()):
        here = (ROOT / name).exists() or (page.parent / name).exists()
        assert here or any(ROOT.glob(f"*/**/{name}")), f"{page.name} names {name}"


def test_every_package_says_what_it_is_for() -> None:
    missing = [path for path in FILES if path.name == "__init__.py" and not ast.get_docstring(tree(path))]
    assert not missing


# ---- one idea --------------------------------------------------------------------------------------------------------
def test_files_have_at_most_500_lines() -> None:
    long = {str(path.relative_to(ROOT)): count for path in FILES if (count := len(path.read_text().splitlines())) > 500}
    assert not long


def test_functions_fit_a_screen() -> None:
    long = [f"{path.relative_to(ROOT)}:{node.lineno} {node.name}" for path in FILES for node in ast.walk(tree(path))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _length(node) > 60]
    assert not long


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_modules_keep_no_state_in_rebound_globals() -> None:
    found = {f"{path.relative_to(ROOT)}:{node.lineno}" for path in FILES for node in ast.walk(tree(path))
             if isinstance(node, ast.Global)}
    assert not found
