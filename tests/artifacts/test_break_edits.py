"""Edits that graph breaks ask for: made by rule where they apply, and no other."""
from __future__ import annotations

import pytest
from ptdebug.artifacts.break_edits import edit_of
from ptdebug.artifacts.records import Break, Location

SHOWN = "leave it out while compiling: `if not torch.compiler.is_compiling(): ...`"


def edited(body: str, code: str, line: int, hint: str = "", head: str = "import torch\n\ndef f(x, y):\n") -> str | None:
    """The function's body after the edit for a break in its N-th line."""
    text = head + "".join(f"    {part}\n" for part in body.split("\n"))
    found = Break("b", code, "", hint, Location("a.py", 3 + line, "f"), "")
    made = edit_of(found, lambda path: text)
    if made is None:
        return None
    return "\n".join(part.removeprefix("    ") for part in made.applied(text).rstrip("\n").split("\n")[3:])


@pytest.mark.parametrize("body, code, line, hint, expected", [
    ("print(x)\nreturn x", "unsupported-builtin", 1, SHOWN,
     "if not torch.compiler.is_compiling(): print(x)\nreturn x"),
    ("print(\n    x,\n)\nreturn x", "unsupported-builtin", 2, SHOWN,
     "if not torch.compiler.is_compiling():\n    print(\n        x,\n    )\nreturn x"),
    ("torch._dynamo.graph_break()\nreturn x", "graph-break-requested", 1, "", "pass\nreturn x"),
    ("if x.sum() > 0:\n    y = x + 1\nelse:\n    y = x - 1\nreturn y", "data-dependent-branch", 1, "",
     "y = torch.where(x.sum() > 0, x + 1, x - 1)\nreturn y"),
    ("if x.sum() > 0:\n    y = x * 2\nreturn y", "data-dependent-branch", 1, "",
     "y = torch.where(x.sum() > 0, x * 2, y)\nreturn y"),
    ("if x.any():\n    return x\nreturn y", "data-dependent-branch", 1, "", "return torch.where(x.any(), x, y)"),
    ("n = x.sum().item()\nreturn y * n", "data-dependent-value", 1, "", "n = x.sum()\nreturn y * n"),
    ("for i in range(3):\n    m = float(x[i])\nreturn m", "data-dependent-value", 2, "",
     "for i in range(3):\n    m = x[i]\nreturn m"),
    ("n = int(x.sum() / 2)\nreturn y * n", "data-dependent-value", 1, "", "n = (x.sum() / 2).long()\nreturn y * n"),
    ("if (\n    x.sum()  # all\n    > 0\n):\n    y = x\nreturn y", "data-dependent-branch", 2, "",
     "y = torch.where(x.sum() > 0, x, y)\nreturn y"),
])
def test_edits(body, code, line, hint, expected):
    assert edited(body, code, line, hint) == expected


@pytest.mark.parametrize("body, code, line, hint", [
    ("z = print(x)\nreturn x", "unsupported-builtin", 1, SHOWN),  # its value is used
    ("x = x + 1; print(x)\nreturn x", "unsupported-builtin", 1, SHOWN),  # not alone on its line
    ("if x.sum() > 0:\n    z = x * 2\nreturn z", "data-dependent-branch", 1, ""),  # z may be unbound
    ("if x.sum() > 0:\n    y = x\n    y = y + 1\nreturn y", "data-dependent-branch", 1, ""),
    ("if y:\n    y = x\nelif x.sum() > 0:\n    y = x\nelse:\n    y = -x\nreturn y", "data-dependent-branch", 3, ""),
    ("if x.sum() > 0:\n    a = x\nelse:\n    b = x\nreturn x", "data-dependent-branch", 1, ""),
    ("return open(x)", "unsupported-builtin", 1, "read it before the compiled function is called"),
])
def test_no_edit_where_no_rule_applies(body, code, line, hint):
    assert edited(body, code, line, hint) is None


def test_no_edit_without_the_text_or_torch():
    assert edited("print(x)", "unsupported-builtin", 1, SHOWN, head="import os\n\ndef f(x, y):\n") is None
    assert edit_of(Break("b", "x", "", SHOWN, Location("a.py", 3), ""), lambda path: None) is None
    assert edit_of(Break("b", "x", "", SHOWN, Location("a.py", 3), ""), lambda path: "import torch\ndef f(:") is None
