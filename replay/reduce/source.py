"""A person's Python as text: a script with the modules beside it, and edits of them that keep the formatting.

Edits are replacements of spans, found by `ast`, so that what is not edited stays as it was written. Offsets count
bytes of UTF-8, as ast's columns do. A *change* is one or more edits that make sense together only (a parameter and the
arguments for it). Of two edits of which one contains the other, the outer wins.
"""
from __future__ import annotations

import ast
import builtins
import contextlib
import difflib
import io
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch


@dataclass(frozen=True)
class Project:
    """A script (the first file) and the modules that it imports from beside it: relative paths and texts."""

    files: tuple[tuple[str, str], ...]

    @property
    def script(self) -> str:
        """The text of the script."""
        return self.files[0][1]

    def lines(self) -> int:
        """How many lines there are in all that are neither empty nor a comment."""
        texts = (line.strip() for _, text in self.files for line in text.splitlines())
        return sum(1 for line in texts if line and not line.startswith("#"))

    @cached_property
    def meaning(self) -> tuple[tuple[str, str], ...]:
        """The files without what Python does not see: brackets, comments, blank lines."""
        return tuple((file, _unparsed(text) or text) for file, text in self.files)

    def differences(self, other: Project) -> list[str]:
        """The lines that are other in `other`, "-" and "+" in front; brackets and spaces do not count."""
        texts, lines = dict(other.files), []
        for file, text in self.files:
            mine, its = text.splitlines(), texts.get(file, "").splitlines()
            matcher = difflib.SequenceMatcher(None, [*map(_form, mine)], [*map(_form, its)], False)
            for what, a, b, c, d in matcher.get_opcodes():
                if what != "equal":
                    lines += [*(f"-{line}" for line in mine[a:b]), *(f"+{line}" for line in its[c:d])]
        return lines


def _unparsed(text: str) -> str | None:
    """Python's own spelling of `text`; None where it is no Python."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.unparse(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return None


def _form(line: str) -> str:
    """A line without what Python does not see, where it is a statement or the head of one."""
    text = line.strip()
    indent = line[: len(line) - len(line.lstrip())]
    return indent + (_unparsed(text) or _unparsed(f"{text} pass") or text)


@dataclass(frozen=True, order=True)
class Edit:
    """The replacement of a span of one file. `removes` is set if it removes a whole statement."""

    file: str
    start: int
    end: int
    text: str = ""
    removes: bool = False


Change = tuple[Edit, ...]


class Source:
    """One file, parsed."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.bytes = text.encode()
        self.starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    @cached_property
    def tree(self) -> ast.Module:
        """The module."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the module, as `ast.walk` gives them, which takes longer than most of what is asked of them."""
        return tuple(ast.walk(self.tree))

    def span(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.excepthandler) -> tuple[int, int]:
        """Where a node begins and ends; for functions and classes with their decorators."""
        line, column = node.lineno, node.col_offset
        decorators = getattr(node, "decorator_list", None)
        if decorators:
            line, column = decorators[0].lineno, decorators[0].col_offset - 1
        assert node.end_lineno is not None and node.end_col_offset is not None  # ast.parse sets them
        return self.starts[line - 1] + column, self.starts[node.end_lineno - 1] + node.end_col_offset

    def segment(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.bytes[start:end].decode()

    def replace(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword, text: str) -> Edit:
        """The edit that puts `text` in the place of a node."""
        return Edit(self.file, *self.span(node), text)

    def remove(self, statement: ast.stmt) -> Edit:
        """The edit that removes a statement: its lines, if it has them for itself."""
        return Edit(self.file, *self.lines_of(statement), removes=True)

    def lines_of(self, statement: ast.stmt) -> tuple[int, int]:
        """The span of a statement with its indentation and line end, if nothing else is on its lines."""
        start, end = self.span(statement)
        first = self.bytes.rfind(b"\n", 0, start) + 1
        last = self.bytes.find(b"\n", end)
        last = len(self.bytes) if last < 0 else last + 1
        before, after = self.bytes[first:start], self.bytes[end:last].strip()
        if before.strip():  # after another statement or a colon
            return start, end
        if after.startswith(b";"):
            following = self.bytes[end:last].partition(b";")[2]
            return start, last - len(following.lstrip(b" \t"))
        return first, last if not after or after.startswith(b"#") else end

    def indentation(self, statement: ast.stmt) -> str:
        """The white space before a statement."""
        start = self.span(statement)[0]
        first = self.bytes.rfind(b"\n", 0, start) + 1
        before = self.bytes[first:start].decode()
        return before if not before.strip() else " " * (len(before) - len(before.lstrip()))

    def blocks(self) -> Iterator[list[ast.stmt]]:
        """All lists of statements."""
        for node in self.nodes:
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    yield block


@lru_cache(maxsize=256)
def parsed(file: str, text: str) -> Source:
    """The parsed form of one file."""
    return Source(file, text)


def sources(project: Project) -> Iterator[Source]:
    """The files of a project, the script first."""
    for file, text in project.files:
        yield parsed(file, text)


def apply(project: Project, changes: Sequence[Change]) -> Project | None:
    """The project with all of `changes`; None if what comes out is not Python, or edits overlap."""
    by_file: dict[str, set[Edit]] = {}
    for change in changes:
        for edit in change:
            by_file.setdefault(edit.file, set()).add(edit)
    files = []
    for file, text in project.files:
        edits = by_file.get(file)
        edited = text if not edits else _edited(parsed(file, text), edits)
        if edited is None or not _is_python(edited):
            return None
        files.append((file, edited))
    changed = Project(tuple(files))
    return None if missing_names(changed) - missing_names(project) else changed


def _edited(source: Source, edits: set[Edit]) -> str | None:
    outer = _outermost(edits)
    if outer is None:
        return None
    filled = _passes(source, {(e.start, e.end) for e in outer if e.removes})
    content, position = bytearray(), 0
    for edit in outer:
        content += source.bytes[position : edit.start]
        content += filled.get(edit.start, edit.text).encode()
        position = edit.end
    return (content + source.bytes[position:]).decode()


def _outermost(edits: Iterable[Edit]) -> list[Edit] | None:
    """In order, without those inside of others; None if two overlap in part or replace the same span differently."""
    kept: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, -e.end)):
        if kept and edit.start < kept[-1].end:
            if edit.end > kept[-1].end or ((edit.start, edit.end) == (kept[-1].start, kept[-1].end)):
                return None
            continue
        kept.append(edit)
    return kept


def _passes(source: Source, removed: set[tuple[int, int]]) -> dict[int, str]:
    """Where `pass` has to stand, since all statements of a block are removed: by the start of the removed span."""
    filled: dict[int, str] = {}
    if not removed:
        return filled
    for block in source.blocks():
        spans = [source.lines_of(statement) for statement in block]
        if block is not source.tree.body and all(span in removed for span in spans):
            own_line = source.span(block[0])[0] != spans[0][0] or source.bytes[spans[0][0] - 1 : spans[0][0]] == b"\n"
            filled[spans[0][0]] = f"{source.indentation(block[0])}pass\n" if own_line else "pass"
    return filled


@lru_cache(maxsize=4096)
def _is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<candidate>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def missing_names(project: Project) -> set[str]:
    """Names, and attributes of `self`, that are read and that nothing in the project binds: running it would fail."""
    missing: set[str] = set()
    known, attributes = set(dir(builtins)) | _ALWAYS, set(_OF_MODULES)
    for file, text in project.files:
        reads, binds, read_attributes, bound_attributes = _names(file, text)
        known |= binds
        attributes |= bound_attributes | binds
    for file, text in project.files:
        reads, _, read_attributes, _ = _names(file, text)
        missing |= reads - known
        missing |= {f".{name}" for name in read_attributes - attributes}
    return missing


_ALWAYS = {"__file__", "__name__", "__doc__", "__spec__", "__package__", "__annotations__", "__class__"}
_OF_MODULES = frozenset(dir(torch.nn.Module())) | frozenset(dir(object))


@lru_cache(maxsize=1024)
def _names(file: str, text: str) -> tuple[frozenset[str], frozenset[str], frozenset[str], frozenset[str]]:
    """Of one file: names that it reads, and binds; attributes of `self` that it reads, and attributes that it sets."""
    reads: set[str] = set()
    binds: set[str] = set()
    read_attributes: set[str] = set()
    bound_attributes: set[str] = set()
    for node in parsed(file, text).nodes:
        if isinstance(node, ast.Name):
            (reads if isinstance(node.ctx, ast.Load) else binds).add(node.id)
        elif isinstance(node, ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                bound_attributes.add(node.attr)
            elif isinstance(node.value, ast.Name) and node.value.id == "self":
                read_attributes.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            binds |= reads  # whatever it may be
            return frozenset(), frozenset(binds), frozenset(), frozenset(bound_attributes)
        elif isinstance(node, ast.alias):
            binds.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            binds.add(node.name)
        elif isinstance(node, (ast.arg, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            binds.add(str(getattr(node, "arg", None) or getattr(node, "name", "")))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            bound_attributes.add(node.value)  # register_buffer("mask", ...), setattr
        elif isinstance(node, ast.keyword) and node.arg:
            bound_attributes.add(node.arg)
    return frozenset(reads), frozenset(binds), frozenset(read_attributes), frozenset(bound_attributes)


def without_parentheses(project: Project) -> Project:
    """The same without parentheses that mean nothing."""
    return Project(tuple((file, _without_parentheses(text)) for file, text in project.files))


def _without_parentheses(text: str) -> str:
    source, meaning = Source("", text), ast.dump(ast.parse(text))
    for node in source.nodes:
        if not isinstance(node, ast.expr):
            continue
        start, end = source.span(node)
        if source.bytes[start - 1 : start] == b"(" and source.bytes[end : end + 1] == b")":
            plain = source.bytes[: start - 1] + source.bytes[start:end] + source.bytes[end + 1 :]
            with contextlib.suppress(SyntaxError, ValueError):
                if ast.dump(ast.parse(plain.decode())) == meaning:
                    return _without_parentheses(plain.decode())
    return text


def without_comments(project: Project) -> Project:
    """The same without comments and empty lines."""
    return Project(tuple((file, _without_comments(text)) for file, text in project.files))


def _without_comments(text: str) -> str:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return text
    lines = text.splitlines(keepends=True)
    inside: set[int] = set()  # lines in which a string continues: their white space is the program's
    for token in tokens:
        if token.type == tokenize.COMMENT and not (token.start == (1, 0) and token.string.startswith("#!")):
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
        elif token.start[0] != token.end[0] and token.type not in (tokenize.NEWLINE, tokenize.NL):
            inside.update(range(token.start[0], token.end[0]))
    return "".join(line for number, line in enumerate(lines) if line.strip() or number in inside)
