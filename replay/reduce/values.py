"""Expressions replaced by the values that they have in a run: what led to a value is no longer needed then.

A probe runs the `instrumented` project, in which each expression hands its value to `__ptdebug_value__`. Plain values
are written as literals; tensors as random ones of the same shape, dtype and range.
"""
from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .source import Change, Edit, Project, Source, sources
from .units import Call

Span = tuple[str, int, int]
HOOK = "__ptdebug_value__"
LONGEST = 60
_WRAPPED = (
    ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.BinOp, ast.Compare, ast.IfExp, ast.BoolOp, ast.UnaryOp,
)  # fmt: skip
FACTORIES = frozenset(f"torch.{name}" for name in ("randn", "rand", "randint", "ones", "zeros", "empty", "tensor"))


@dataclass
class Probe:
    """What a run showed, up to the failure: lines by file; the text of values by span, in the order of the first run of
    each expression. "" where it had several."""

    reached: Mapping[str, frozenset[int]] = field(default_factory=dict)
    plain: dict[Span, str] = field(default_factory=dict)
    tensors: dict[Span, str] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()


def instrumented(project: Project) -> tuple[Project, list[Span]]:
    """The project whose expressions tell their values, as `HOOK(number, value)`; and the span of each number."""
    spans: list[Span] = []
    files = []
    for source in sources(project):
        tree = _Wrapper(source, spans).visit(ast.parse(source.text))
        files.append((source.file, ast.unparse(ast.fix_missing_locations(tree))))
    return Project(tuple(files)), spans


class _Wrapper(ast.NodeTransformer):
    def __init__(self, source: Source, spans: list[Span]) -> None:
        self.source = source
        self.spans = spans

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, (ast.JoinedStr, ast.arg, ast.Global, ast.Nonlocal, ast.match_case)):
            return node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            node.body = [self.visit(statement) for statement in node.body]
            return node
        if isinstance(node, ast.AnnAssign):
            node.value = self.visit(node.value) if node.value is not None else None
            return node
        wrap = isinstance(node, _WRAPPED) and isinstance(getattr(node, "ctx", None), (ast.Load, type(None)))
        span = self.source.span(node) if wrap else (0, 0)  # type: ignore[arg-type]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            node.args = [self.visit(a) for a in node.args]
            node.keywords = [self.visit(k) for k in node.keywords]
        else:
            node = self.generic_visit(node)
        if not wrap:
            return node
        self.spans.append((self.source.file, *span))
        hook = ast.Name(HOOK, ast.Load())
        return ast.Call(hook, [ast.Constant(len(self.spans) - 1), node], [])  # type: ignore[list-item]


class Recorder:
    """Gets the values of an instrumented project's expressions, by number."""

    def __init__(self) -> None:
        self.plain: dict[int, str] = {}
        self.tensors: dict[int, str] = {}
        self.on = True

    def __call__(self, number: int, value: Any) -> Any:
        """`value`, which was seen."""
        if self.on:
            if isinstance(value, torch.Tensor):
                if number not in self.tensors:
                    self.tensors[number] = tensor_text(value)
            elif self.plain.get(number, None) != "":
                text = literal(value)
                self.plain[number] = text if self.plain.get(number, text) == text else ""
        return value

    def probe(self, spans: list[Span], reached: Mapping[str, frozenset[int]]) -> Probe:
        """All that was seen."""
        mixed = self.plain.keys() & self.tensors.keys()
        return Probe(
            reached, {spans[n]: text for n, text in self.plain.items() if text and n not in mixed},
            {spans[n]: text for n, text in self.tensors.items() if text and n not in mixed},
        )


def literal(value: Any) -> str:
    """A plain value as Python, "" for anything else."""
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        text = repr(value)
    elif type(value) is float:
        text = repr(value) if math.isfinite(value) else ""
    elif isinstance(value, (torch.dtype, torch.device)):
        text = str(value) if isinstance(value, torch.dtype) else repr(value.type)
    elif type(value) in (tuple, list, torch.Size) and len(value) <= 6:
        parts = [literal(v) for v in value]
        text = repr(type(value)(value)) if type(value) is list else f"({', '.join(parts)}{',' * (len(parts) == 1)})"
        text = text if all(parts) else ""
    else:
        text = ""
    return text if len(text) <= LONGEST else ""


def tensor_text(value: torch.Tensor) -> str:
    """Python that makes a random tensor like `value`; "" for layouts that it does not know."""
    if value.layout is not torch.strided or value.is_complex() or value.is_quantized:
        return ""
    shape = ", ".join(map(str, value.shape)) or "()"
    kind = value.dtype
    extra = [] if value.device.type == "cpu" else [f"device={value.device.type!r}"]
    if kind is torch.bool:
        return f"torch.ones({', '.join([shape, 'dtype=torch.bool', *extra])})"
    plain = value.detach()
    if not kind.is_floating_point:
        low, high = (int(plain.min()), int(plain.max()) + 1) if plain.numel() else (0, 1)
        size = f"({shape}{',' * (value.dim() == 1)})" if value.dim() else "()"
        extra += [f"dtype={kind}"] * (kind is not torch.int64)
        return f"torch.randint({', '.join([str(low), str(high), size, *extra])})"
    extra += [f"dtype={kind}"] * (kind is not torch.get_default_dtype())
    extra += ["requires_grad=True"] * value.requires_grad
    random = "rand" if plain.numel() and bool((plain >= 0).all()) else "randn"
    return f"torch.{random}({', '.join([shape, *extra])})"


# ---- edits ----------------------------------------------------------------------------------------------------------
def literals(project: Project, probe: Probe) -> list[Change]:
    """Every expression that had one plain value is replaced by it."""
    return [
        (Edit(source.file, start, end, text),) for source in sources(project)
        for (file, start, end), text in probe.plain.items()
        if file == source.file and source.bytes[start:end].decode() != text
    ]  # fmt: skip


def _is_made(text: str) -> bool:
    """Whether an expression makes a tensor from nothing but literals, as a replacement would."""
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in FACTORIES:
        return False
    names = {n.id for part in (*node.args, *node.keywords) for n in ast.walk(part) if isinstance(n, ast.Name)}
    return names <= {"torch"}


def tensors(project: Project, probe: Probe) -> list[Change]:
    """A tensor is replaced by a random one, in the order in which they are computed."""
    changes: list[Change] = []
    by_file = {source.file: source for source in sources(project)}
    for (file, start, end), text in probe.tensors.items():
        written = by_file[file].bytes[start:end].decode()
        if not written.replace(".", "_").isidentifier() and not _is_made(written):
            changes.append((Edit(file, start, end, text),))
    return changes
