"""How a person spells what graphs call: `F.linear`, `a * b`, `x[:, 1:]`, `aten.add.Tensor`."""
from __future__ import annotations

import ast
import sys
from functools import lru_cache

import torch.nn.functional  # noqa: F401 (its names are looked up)

from ..recorded.allowed import allowed

BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and_": "&", "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "is_": "is", "is_not": "is not",
}
UNARY = {"neg": "-", "pos": "+", "invert": "~", "inv": "~", "not_": "not "}
IN_PLACE = {
    "iadd": "+=", "isub": "-=", "imul": "*=", "itruediv": "/=", "ifloordiv": "//=", "imod": "%=", "ipow": "**=",
    "imatmul": "@=", "iand": "&=", "ior": "|=", "ixor": "^=", "ilshift": "<<=", "irshift": ">>=",
}
OPERATORS = ("aten", "prims", "mkldnn", "mkl", "onednn", "ptdebug")
"""Namespaces of torch.ops whose operators recorded graphs name without it."""
_MODULES = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.sparse")
_SHORT = {"torch.nn.functional": "F"}
_FUNCTIONS = {"torch._C._set_grad_enabled": "torch.set_grad_enabled", "torch.ops.higher_order.cond": "torch.cond"}
IMPORTS = {
    "F": "import torch.nn.functional as F", "operator": "import operator", "math": "import math",
    "ptdebug": "import ptdebug.operators.graph_calls",
    **{name: f"{name} = torch.ops.{name}" for name in OPERATORS},
}
"""What the first name of a spelling needs at the head of the file; torch is imported in any case."""


@lru_cache(maxsize=4096)
def spelled(target: str) -> str:
    """The public name of a recorded target: `torch._C._nn.linear` is `F.linear`."""
    head = target.partition(".")[0]
    if head == "builtins":
        return target.partition(".")[2]
    if target in _FUNCTIONS:
        return _FUNCTIONS[target]
    if head in OPERATORS or not target.startswith("torch."):
        return target
    found = allowed(target)
    public = _public().get(id(found)) if found is not None else None
    if public is not None:
        return public
    module, _, name = target.rpartition(".")
    return f"{_SHORT[module]}.{name}" if module in _SHORT else target


@lru_cache(maxsize=1)
def _public() -> dict[int, str]:
    """The public names of torch's functions, by their identity; torch itself comes first."""
    names: dict[int, str] = {}
    for module in _MODULES:
        for name, found in vars(sys.modules[module]).items():
            if callable(found) and not name.startswith("_"):
                names.setdefault(id(found), f"{_SHORT.get(module, module)}.{name}")
    return names


_CALLS = {"Max": "max", "Min": "min", "Abs": "abs", "ToFloat": "float", "TruncToInt": "int", "floor": "math.floor",
          "ceiling": "math.ceil", "FloorToInt": "math.floor", "CeilToInt": "math.ceil"}
_BINARY_CALLS: dict[str, type[ast.operator]] = {
    "FloorDiv": ast.FloorDiv, "CleanDiv": ast.FloorDiv, "Mod": ast.Mod, "PythonMod": ast.Mod, "IntTrueDiv": ast.Div,
    "FloatTrueDiv": ast.Div, "FloatPow": ast.Pow, "PowByNatural": ast.Pow,
}


class _Arithmetic(ast.NodeTransformer):
    """Calls of sympy's functions as Python's operators and functions."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _BINARY_CALLS and len(node.args) == 2:
            return ast.BinOp(node.args[0], _BINARY_CALLS[name](), node.args[1])
        if name not in _CALLS:
            raise ValueError(f"no Python for {name}")
        return ast.Call(ast.parse(_CALLS[name], mode="eval").body, node.args, [])


def arithmetic(text: str) -> tuple[str, set[str]]:
    """A recorded size as a Python expression, and the symbols in it. Raises ValueError for what has no Python."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text[:100]!r} is no expression") from error
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.Constant, ast.Load,
                                 ast.operator, ast.unaryop)):
            raise ValueError(f"{text[:100]!r} is no arithmetic")
    functions = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    symbols = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in functions}
    return ast.unparse(ast.fix_missing_locations(_Arithmetic().visit(tree))), symbols
