"""The parts of a program that a function reaches: definitions, imports, constants, from its recorded source files."""
from __future__ import annotations

import ast
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from ...artifacts.recording import Recording
from ..recorded.graphs import ReplayError

Function = ast.FunctionDef | ast.AsyncFunctionDef
_COMPILERS = ("compile", "optimize")
"""Names of decorators that compile: the script does that itself."""


@dataclass(frozen=True)
class Definition:
    """A statement of a file that a script takes over, with the lines that it has there."""

    file: str
    first: int
    text: str


class Source:
    """One recorded file."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.lines = text.split("\n")
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ReplayError(f"{file} cannot be parsed: {error}") from error

    def function_at(self, line: int, name: str) -> tuple[Function, tuple[ast.AST, ...]]:
        """The function whose first line (of its decorators) is `line`, and what it is inside of, outermost first."""
        for node, owners in _walk(self.tree, ()):
            if isinstance(node, Function) and node.name == name and _first(node) <= line <= node.lineno:
                return node, owners
        raise ReplayError(f"{self.file}:{line} has no function {name}")

    @cached_property
    def top(self) -> dict[str, ast.stmt]:
        """The statements that define the names of the module; the last one of each."""
        return bindings(self.tree.body)

    def text(self, node: ast.stmt) -> str:
        """The lines of a statement without decorators that compile, not indented."""
        lines = self.lines[node.lineno - 1: node.end_lineno]
        kept = [] if not isinstance(node, Function | ast.ClassDef) else [
            line for d in node.decorator_list if not _compiles(d) for line in self.lines[d.lineno - 1: d.end_lineno]]
        return textwrap.dedent("\n".join([*kept, *lines]))


def bindings(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """The names that statements bind, also inside of `if` and `with`."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        for name in _bound(node):
            found[name] = node
        for inner in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.With | ast.Try) and not _is_main(node):
                found |= bindings(getattr(node, inner, []))
    return found


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, Function | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test)


def _first(node: Function) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def _walk(node: ast.AST, owners: tuple[ast.AST, ...]) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    for child in ast.iter_child_nodes(node):
        yield child, owners
        yield from _walk(child, (*owners, child) if isinstance(child, Function | ast.ClassDef) else owners)


def _compiles(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if name == "partial" and isinstance(decorator, ast.Call) and decorator.args:
        return _compiles(decorator.args[0])
    return name in _COMPILERS


class Reached:
    """What a script takes over of a program. `given` are names that it defines itself."""

    def __init__(self, recording: Recording, given: Mapping[str, object]) -> None:
        self.recording = recording
        self.given = given
        self.sources: dict[str, Source] = {}
        self.definitions: dict[tuple[str, str], Definition] = {}
        self.imports: dict[str, None] = {}
        self.names: dict[str, str] = {}  # name -> the file that defines it
        self.modules: dict[str, str] = {}  # the program's modules by the names that they are imported under
        self.parts: dict[str, dict[str, None]] = {}  # what of them is reached

    def source(self, file: str) -> Source:
        """A recorded file. Raises ReplayError."""
        if file not in self.sources:
            text = self.recording.source(file)
            if text is None:
                raise ReplayError(f"the recording has no source of {file}")
            self.sources[file] = Source(file, text)
        return self.sources[file]

    def function(self, file: str, line: int, name: str) -> Function:
        """Take over a function, with all that it reaches, or the class that it is in. Returns it."""
        node, owners = self.source(file).function_at(line, name)
        classes = [owner for owner in owners if isinstance(owner, ast.ClassDef)]
        scopes = tuple(owner for owner in owners if isinstance(owner, Function))
        self._take(file, classes[0] if classes else node, scopes)
        return node

    def name(self, file: str, name: str) -> bool:
        """Take over what a module's name is bound to; whether it is bound."""
        found = self.source(file).top.get(name)
        if found is None or name in self.given:
            return name in self.given
        self._take(file, found, ())
        return True

    def anywhere(self, name: str, first: str) -> bool:
        """Take over a class or function of the program by its name, from `first` or any other file of the program."""
        files = [first, *(f for f in self.recording.sources() if f != first and is_of_program(f))]
        return any(self.recording.source(file) is not None and self.name(file, name) for file in files)

    def calls(self, name: str, first: str) -> Iterator[str]:
        """The calls of a class in the program that a script can make as well: their arguments are constants."""
        for file in [first, *(f for f in self.recording.sources() if f != first and is_of_program(f))]:
            if self.recording.source(file) is None:
                continue
            for node in ast.walk(self.source(file).tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                    values = [*node.args, *(k.value for k in node.keywords if k.arg)]
                    if all(map(_is_constant, values)) and all(k.arg for k in node.keywords):
                        yield ast.unparse(node)

    def namespaces(self) -> list[str]:
        """Lines that stand for the program's modules: objects with what is reached of them."""
        return [f"{module} = SimpleNamespace({', '.join(f'{name}={name}' for name in names)})"
                for module, names in self.parts.items()]

    def ordered(self) -> list[Definition]:
        """The definitions, those of imported files first, as they stand there."""
        files = list(dict.fromkeys(d.file for d in reversed(self.definitions.values())))
        return sorted(self.definitions.values(), key=lambda d: (files.index(d.file), d.first))

    def _take(self, file: str, node: ast.stmt, scopes: tuple[Function, ...]) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._take_import(file, node)
            return
        key = file, f"{node.lineno}"
        if key in self.definitions:
            return
        for name in _bound(node):
            if self.names.setdefault(name, file) != file:
                raise ReplayError(f"two files of the program define {name}")
        self.definitions[key] = Definition(file, node.lineno, self.source(file).text(node))
        for name in _read(node):
            self._resolve(file, name, node, scopes)
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in self.modules:
                self._part(part.value.id, part.attr)

    def _resolve(self, file: str, name: str, reader: ast.stmt, scopes: tuple[Function, ...]) -> None:
        """Take over what a name that a definition reads is bound to: in functions around it, else in its module."""
        if name in self.given:
            return
        for scope in reversed(scopes):
            inner = bindings(scope.body)
            if name in inner and inner[name] is not reader:
                self._take(file, inner[name], scopes)
                return
            arguments = scope.args
            if name in {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}:
                raise ReplayError(f"the function reads {name}, an argument of {scope.name} around it")
        found = self.source(file).top.get(name)
        if found is not None and found is not reader:
            self._take(file, found, ())

    def _part(self, module: str, name: str) -> None:
        """Take over an attribute of a module of the program."""
        if not self.name(self.modules[module], name):
            raise ReplayError(f"the module {module} of the program does not define {name}")
        self.parts.setdefault(module, {})[name] = None

    def _take_import(self, file: str, node: ast.Import | ast.ImportFrom) -> None:
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        own = self._file_of(file, module, node.level) if isinstance(node, ast.ImportFrom) else None
        for alias in node.names:
            if isinstance(node, ast.ImportFrom) and (
                    found := self._file_of(file, f"{module}.{alias.name}".strip("."), node.level)):
                self.modules[alias.asname or alias.name] = found
                continue
            if isinstance(node, ast.ImportFrom) and own is not None and alias.name != "*":
                if alias.asname not in (None, alias.name):
                    raise ReplayError(f"{alias.name} is imported under another name")
                if self.name(own, alias.name):
                    continue
            renamed = f" as {alias.asname}" if alias.asname else ""
            if isinstance(node, ast.Import):
                found = self._file_of(file, alias.name, 0)
                if found is not None and (alias.asname or "." not in alias.name):
                    self.modules[alias.asname or alias.name] = found
                    continue
                if found is not None:
                    raise ReplayError(f"the function reaches into the module {alias.name} of the program")
                self.imports[f"import {alias.name}{renamed}"] = None
            elif node.level:
                raise ReplayError(f"the program imports {alias.name} from its own package")
            elif module != "__future__":
                self.imports[f"from {module} import {alias.name}{renamed}"] = None

    def _file_of(self, file: str, module: str, level: int) -> str | None:
        """The recorded file of the program that is a module; None for modules of libraries."""
        ending = module.replace(".", "/")
        wanted = (f"/{ending}.py", f"/{ending}/__init__.py") if ending else ()
        near = [f for f in self.recording.sources() if f.endswith(wanted) and is_of_program(f)] if wanted else []
        return near[0] if near else None


def _is_constant(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


def _read(node: ast.AST) -> list[str]:
    """Names that a definition reads, in order."""
    loads = (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    kept = dict.fromkeys(loads)
    if isinstance(node, Function | ast.ClassDef):
        for decorator in node.decorator_list:
            if _compiles(decorator):
                for name in {n.id for n in ast.walk(decorator) if isinstance(n, ast.Name)} - {"torch"}:
                    kept.pop(name, None)
    return list(kept)


def is_of_program(file: str) -> bool:
    """Whether a file is the program's, and not of the standard library or an installed package."""
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    parts = PurePath(file).parts
    return "site-packages" not in parts and "dist-packages" not in parts and not any(
        PurePath(file).is_relative_to(library) for library in libraries)
