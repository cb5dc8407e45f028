"""Long expressions over several lines."""
from __future__ import annotations

import ast

WIDTH = 110
INDENT = "    "


def wrapped(text: str, indent: int = 0) -> str:
    """An expression with one argument or element a line, where it is longer than a line. `indent`: of its statement."""
    return text if len(text) + indent <= WIDTH else _node(ast.parse(text, mode="eval").body, indent)


def _node(node: ast.expr, indent: int) -> str:
    text = ast.unparse(node)
    if len(text) + indent <= WIDTH:
        return text
    inner = indent + len(INDENT)
    if isinstance(node, ast.Call) and (node.args or node.keywords):
        parts = [_node(part, inner) for part in node.args]
        parts += [f"{k.arg}={_node(k.value, inner)}" if k.arg else f"**{_node(k.value, inner)}" for k in node.keywords]
        return _lines(f"{_node(node.func, indent)}(", parts, ")", indent)
    if isinstance(node, ast.Dict):
        pairs = [(key, value) for key, value in zip(node.keys, node.values) if key is not None]
        return _lines("{", [f"{ast.unparse(key)}: {_node(value, inner)}" for key, value in pairs], "}", indent)
    if isinstance(node, ast.List) and not all(isinstance(e, ast.Constant) for e in node.elts):
        return _lines("[", [_node(part, inner) for part in node.elts], "]", indent)
    return text


def _lines(start: str, parts: list[str], end: str, indent: int) -> str:
    inside = "".join(f"{' ' * (indent + len(INDENT))}{part},\n" for part in parts)
    return f"{start}\n{inside}{' ' * indent}{end}"
