"""Reads the text of printer.py back into the loop IR: `parse_body(format_body(body)) == body`, and so for the others.

Text is data: expressions are read with Python's `ast` and a closed list of names, never evaluated.
"""
from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as shape_functions

from .ir import OPS, Axis, Buffer, ExternCall, Group, LoopBody, Plan, Program, Statement, View

Symbols = Mapping[str, sympy.Symbol]


class ParseError(ValueError):
    """The text is not loop IR; the message holds the line."""


def symbol_of(name: str, symbols: Symbols) -> sympy.Symbol:
    """The symbol of that name: declared, or an axis or indirect value (i0, r0, t0), or a positive size."""
    if name in symbols:
        return symbols[name]
    if re.fullmatch(r"[irt]\d+", name):
        return sympy.Symbol(name, integer=True, nonnegative=True)
    return sympy.Symbol(name, integer=True, positive=True)


# ---- expressions
def parse_expr(text: str, symbols: Symbols | None = None) -> sympy.Expr:
    """An index or size expression."""
    return _expr(ast.parse(text.strip(), mode="eval").body, symbols or {})


def _expr(node: ast.expr, symbols: Symbols) -> Any:
    if isinstance(node, ast.Name):
        return symbol_of(node.id, symbols)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return sympy.sympify(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_expr(node.operand, symbols)
    if isinstance(node, ast.BinOp):
        left, right = _expr(node.left, symbols), _expr(node.right, symbols)
        if isinstance(node.op, ast.FloorDiv):
            return shape_functions.FloorDiv(left, right, evaluate=False)
        rule: dict[type, Callable[[Any, Any], Any]] = {
            ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
        if type(node.op) in rule:
            return rule[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        arguments = [_expr(a, symbols) for a in node.args]
        if node.func.id == "Rational":
            return sympy.Rational(*arguments)
        own = getattr(shape_functions, node.func.id, None)
        if isinstance(own, type) and issubclass(own, sympy.Basic):
            lattice = node.func.id in ("Max", "Min")  # these are put in order when they are evaluated
            return own(*arguments) if lattice else own(*arguments, evaluate=False)
        standard = {"Pow": sympy.Pow, "Mul": sympy.Mul}.get(node.func.id)
        if standard is not None:
            return standard(*arguments)
    raise ParseError(f"not an index expression: {ast.unparse(node)}")


def _number(text: str) -> bool | int | float:
    if text in ("True", "False"):
        return text == "True"
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def _dtype(text: str) -> torch.dtype:
    dtype = getattr(torch, text.strip(), None)
    if not isinstance(dtype, torch.dtype):
        raise ParseError(f"not a dtype: {text}")
    return dtype


# ---- bodies
_HEAD = re.compile(r"body (\w+)\[(.*?)\](?: reduce \[(.*)\])?$")
_PLACE = re.compile(r"(\w+)\[(.*)\]$")
_MASKED = re.compile(r"(.*\]) mask (\w+) else (\S+)$")


def parse_body(text: str, symbols: Symbols | None = None) -> LoopBody:
    """One loop body."""
    lines = _Lines(text)
    return _body(lines, symbols or {})


class _Lines:
    """Lines still to read, without indentation and blank ones."""

    def __init__(self, text: str) -> None:
        self.lines = [line.strip() for line in text.splitlines() if line.strip()]
        self.at = 0

    def peek(self) -> str:
        return self.lines[self.at] if self.at < len(self.lines) else ""

    def take(self) -> str:
        self.at += 1
        return self.lines[self.at - 1]


def _axes(text: str | None, symbols: Symbols) -> tuple[Axis, ...]:
    if not text:
        return ()
    pairs = [part.split(":", 1) for part in _split_commas(text)]
    return tuple(Axis(symbol_of(n.strip(), {}), parse_expr(e, symbols)) for n, e in pairs)


def _split_commas(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [p for p in (*parts, text[start:]) if p.strip()]


def _body(lines: _Lines, symbols: Symbols) -> LoopBody:
    line = lines.take()
    head = _HEAD.match(line)
    if head is None:
        raise ParseError(f"not the head of a body: {line}")
    dtypes: dict[str, torch.dtype] = {}
    statements = []
    while re.match(r"(store |\w+ = )", lines.peek()):
        text, _, origins = lines.take().partition("  # ")
        statement = _statement(text, tuple(origins.split()), dtypes, symbols)
        dtypes[statement.name] = statement.dtype
        statements.append(statement)
    return LoopBody(head[1], _axes(head[2], symbols), _axes(head[3], symbols), tuple(statements))


def _statement(text: str, origins: tuple[str, ...], dtypes: Mapping[str, torch.dtype], symbols: Symbols) -> Statement:
    if text.startswith("store "):
        target, _, value = text[len("store "):].rpartition("], ")
        mode = ""
        if re.match(r"\w+ \w+\[", target):
            mode, target = target.split(" ", 1)
        buffer, _, index = target.partition("[")
        name, _, dtype = value.partition(" : ")
        known = _dtype(dtype) if dtype else dtypes.get(name)
        if known is None:
            raise ParseError(f"a store of an unknown value: {text}")
        return Statement("", "store", (name,), known, buffer, parse_expr(index, symbols), mode=mode, origins=origins)
    name, _, rest = text.partition(" = ")
    rest, _, dtype = rest.rpartition(" : ")
    op, _, operands = rest.partition(" ")
    if op not in OPS:
        raise ParseError(f"unknown operation {op!r}: {text}")
    return Statement(name, op, dtype=_dtype(dtype), origins=origins, **_fields(op, operands.strip(), symbols))


def _fields(op: str, text: str, symbols: Symbols) -> dict[str, Any]:
    if op == "load":
        masked = _MASKED.match(text)
        place = _PLACE.match(masked[1] if masked else text)
        if place is None:
            raise ParseError(f"not a memory access: {text}")
        found: dict[str, Any] = {"buffer": place[1], "index": parse_expr(place[2], symbols)}
        return found | ({"mask": masked[2], "value": _number(masked[3])} if masked else {})
    if op == "constant":
        return {"value": _number(text)}
    if op == "index":
        return {"index": parse_expr(text, symbols)}
    if op == "indirect":
        head, _, bound = text.partition(" < ")
        mode, _, name = head.rpartition(" ")
        return {"args": (name,), "bound": parse_expr(bound, symbols), "mode": mode}
    if op in ("reduce", "scan"):
        mode, _, name = text.partition(" ")
        return {"args": (name,), "mode": mode}
    if op == "part":
        name, _, which = text.partition(" ")
        return {"args": (name,), "value": int(which)}
    return {"args": tuple(a.strip() for a in text.split(","))}


# ---- groups, programs, plans
_KERNEL = re.compile(r"kernel (\w+)\[(.*?)\] on (\S+?)(?: internal (.*))?$")
_BUFFER = re.compile(r"(input|constant|buffer) (\w+) : (\w+) \[(.*)\] strides \[(.*)\] on (\S+)$")
_EXTERN = re.compile(r"extern (\S+) \((.*?)\) = ([\w.]+)(\(.*\))((?: mutates [\w ]+)?) because ('.*'|\".*\")$")


def parse_group(text: str, symbols: Symbols | None = None) -> Group:
    """One kernel."""
    return _group(_Lines(text), symbols or {})


def _group(lines: _Lines, symbols: Symbols) -> Group:
    line = lines.take()
    head = _KERNEL.match(line)
    if head is None:
        raise ParseError(f"not the head of a kernel: {line}")
    bodies = []
    while lines.peek().startswith("body "):
        bodies.append(_body(lines, symbols))
    internal = frozenset((head[4] or "").split())
    return Group(head[1], _axes(head[2], symbols), tuple(bodies), internal, torch.device(head[3]))


def parse_program(text: str, constants: Mapping[str, torch.Tensor] | None = None) -> Program:
    """A program; the tensors that it holds as constants are given, since text cannot hold them."""
    plan = _plan(_Lines(text), constants or {})
    return plan.program


def parse_plan(text: str, constants: Mapping[str, torch.Tensor] | None = None) -> Plan:
    """A plan. Its program's steps are the plan's bodies and calls in order of execution."""
    return _plan(_Lines(text), constants or {})


def _plan(lines: _Lines, constants: Mapping[str, torch.Tensor]) -> Plan:
    kind = lines.take()
    if kind not in ("program", "plan"):
        raise ParseError(f"not a program: {kind}")
    symbols: dict[str, sympy.Symbol] = {}
    sources: list[tuple[sympy.Symbol, str, str, int]] = []
    buffers: dict[str, Buffer] = {}
    inputs: tuple[str, ...] = ()
    items: list[Any] = []
    outputs: list[Any] = []
    copies: list[tuple[View, str]] = []
    reuse: dict[str, str] = {}
    while line := lines.peek():
        word = line.split(" ", 1)[0]
        if word in ("kernel", "body"):
            items.append(_group(lines, symbols) if word == "kernel" else _body(lines, symbols))
            continue
        lines.take()
        if word == "symbol":
            sources.append(_symbol(line, symbols))
        elif word in ("input", "constant", "buffer"):
            buffer = _buffer(line, symbols)
            buffers[buffer.name] = buffer
        elif word == "inputs":
            inputs = tuple(line.split()[1:])
        elif word == "extern":
            items.append(_extern(line, symbols))
        elif word == "output":
            outputs.append(_argument(ast.parse(line[len("output "):], mode="eval").body, symbols))
        elif word == "copy":
            value, _, name = line[len("copy "):].rpartition(" to ")
            copies.append((_argument(ast.parse(value, mode="eval").body, symbols), name))
        elif word == "reuse":
            _, new, _, old = line.split()
            reuse[new] = old
        elif word != "scalar":
            raise ParseError(f"unknown line: {line}")
    steps = tuple(step for item in items for step in (item.bodies if isinstance(item, Group) else (item,)))
    found = {symbol: (inputs.index(name), kind, dim) for symbol, name, kind, dim in sources}
    program = Program(inputs, found, buffers, dict(constants), steps, tuple(outputs), tuple(copies))
    return Plan(program, tuple(items), reuse)


def _symbol(line: str, symbols: dict[str, sympy.Symbol]) -> tuple[sympy.Symbol, str, str, int]:
    match = re.match(r"symbol (\S+) = (\w+)\.(\w+) (\d+) ?(\w*)$", line)
    if match is None:
        raise ParseError(f"not a symbol: {line}")
    facts = {match[5]: True} if match[5] else {}
    symbols[match[1]] = symbol = sympy.Symbol(match[1], integer=True, **facts)
    return symbol, match[2], match[3], int(match[4])


def _buffer(line: str, symbols: Symbols) -> Buffer:
    match = _BUFFER.match(line)
    if match is None:
        raise ParseError(f"not a buffer: {line}")
    size, stride = (tuple(parse_expr(e, symbols) for e in _split_commas(match[i])) for i in (4, 5))
    role = "intermediate" if match[1] == "buffer" else match[1]
    return Buffer(match[2], _dtype(match[3]), torch.device(match[6]), size, stride, role)


def _extern(line: str, symbols: Symbols) -> ExternCall:
    text, _, origins = line.rpartition("  # ") if "  # " in line else (line, "", "")
    match = _EXTERN.match(text)
    if match is None:
        raise ParseError(f"not a library call: {line}")
    call = ast.parse("f" + match[4], mode="eval").body
    assert isinstance(call, ast.Call)
    args = tuple(_argument(a, symbols) for a in call.args)
    kwargs = {k.arg or "": _argument(k.value, symbols) for k in call.keywords}
    outputs = tuple(None if o.strip() == "None" else o.strip() for o in _split_commas(match[2]))
    target = reduce(getattr, match[3].split("."), torch.ops)
    mutates, why = tuple(match[5].split()[1:]), ast.literal_eval(match[6])
    return ExternCall(match[1], target, args, kwargs, outputs, mutates, tuple(origins.split()), why)


def _argument(node: ast.expr, symbols: Symbols) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _constructed(node.func.id, node.args, symbols)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        return getattr(torch, node.attr)
    if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return float(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_argument(node.operand, symbols)
    if isinstance(node, (ast.Tuple, ast.List)):
        items = [_argument(e, symbols) for e in node.elts]
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict):
        return {_argument(k, symbols): _argument(v, symbols) for k, v in zip(node.keys, node.values) if k is not None}
    return ast.literal_eval(node)


def _constructed(name: str, args: list[ast.expr], symbols: Symbols) -> Any:
    if name == "expr":
        return _expr(args[0], symbols)
    if name == "device":
        return torch.device(ast.literal_eval(args[0]))
    if name != "view":
        raise ParseError(f"unknown value: {name}")
    shapes = [tuple(_expr(e, symbols) for e in a.elts) for a in args[1:3] if isinstance(a, ast.List)]
    dtype = _argument(args[4], symbols) if len(args) > 4 else None
    return View(ast.literal_eval(args[0]), shapes[0], shapes[1], _expr(args[3], symbols), dtype)
