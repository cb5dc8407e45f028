"""Edits of Python text, and whole reductions with a judge that executes candidates in this process."""
from __future__ import annotations

import ast
import contextlib
import io
import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest
from ptdebug.cli.scripts.child import Task
from ptdebug.cli.scripts.judge import Judge
from ptdebug.replay.reduce import expressions, statements, unused, values
from ptdebug.replay.reduce.ddmin import Reduction
from ptdebug.replay.reduce.script import reduce_script
from ptdebug.replay.reduce.source import (
    Change,
    Project,
    apply,
    missing_names,
    parsed,
    without_comments,
    without_parentheses,
)
from ptdebug.replay.reduce.units import Call, units


def project(*texts: str) -> Project:
    names = ["script.py", *(f"helper{i}.py" for i in range(1, len(texts)))]
    return Project(tuple(zip(names, texts)))


def all_applied(before: Project, changes: Sequence[Change]) -> list[str]:
    made = [apply(before, [change]) for change in changes]
    return [m.script for m in made if m is not None]


def test_a_block_whose_statements_all_go_keeps_pass() -> None:
    before = project("def f():\n    # why\n    a = 1\n    b = 2\nf()\n")
    made = apply(before, statements.removals(before, 1))
    assert made is not None and made.script == "def f():\n    # why\n    pass\nf()\n"


def test_what_is_not_edited_stays_as_it_was_written() -> None:
    before = project("x = [1,2,   3]  # three\ny = 'ä';  z = x [0]\nprint( x )\n")
    assert "x = [1,2,   3]  # three\nz = x [0]\nprint( x )\n" in all_applied(before, statements.removals(before, 0))


def test_an_outer_edit_wins_over_inner_ones() -> None:
    before = project("if a:\n    b = 1\n", "a = 1\n")
    source = parsed("script.py", before.script)
    inner, outer = source.tree.body[0].body[0], source.tree.body[0]  # type: ignore[attr-defined]
    made = apply(before, [(source.remove(inner),), (source.remove(outer),)])
    assert made is not None and made.script == ""


def test_candidates_that_would_raise_a_name_error_are_not_made() -> None:
    before = project("a = 1\nprint(a)\n")
    assert missing_names(before) == set()
    assert all_applied(before, statements.removals(before, 0)) == ["a = 1\n"]


@pytest.mark.parametrize(("text", "expected"), [
    ("for i in [5, 6]:\n    print(i)\n", "i = next(iter([5, 6]))\nprint(i)\n"),
    ("with open('f') as f:\n    f.read()\n", "f = (open('f')).__enter__()\nf.read()\n"),
    ("try:\n    print(1)\nexcept OSError:\n    print(2)\n", "print(2)\n"),
    ("if 1:\n    print(1)\nelse:\n    print(2)\n", "if 1:\n    print(1)\n"),
])
def test_compound_statements_are_replaced_by_their_contents(text: str, expected: str) -> None:
    before = project(text)
    assert expected in all_applied(before, statements.unwrapped(before))


def test_functions_are_put_where_they_are_called() -> None:
    before = project("def f(a, b=2):\n    c = a + b\n    return c * 2\nx = f(1)\n")
    assert all_applied(before, statements.inlined(before)) == ["a = 1\nb = 2\nc = a + b\nx = c * 2\n"]


def test_a_module_beside_the_script_is_put_into_it() -> None:
    before = project("from helper1 import f as g\nimport os\ng()\n", "def f():\n    pass\n")
    made = [apply(before, [change]) for change in statements.absorbed(before)]
    assert [m.files for m in made if m] == [
        (("script.py", "def f():\n    pass\ng = f\nimport os\ng()\n"), ("helper1.py", ""))]


def test_a_parameter_goes_with_its_arguments() -> None:
    before = project("def f(a, b):\n    return a\nf(1, 2)\nf(1, b=3)\n")
    assert "def f(a):\n    return a\nf(1)\nf(1)\n" in all_applied(before, expressions.coupled(before))


def test_an_element_of_a_result_goes_with_its_name() -> None:
    before = project("def f():\n    return 1, 2\na, b = f()\n")
    assert "def f():\n    return 1\na = f()\n" in all_applied(before, expressions.coupled(before))


def test_a_class_that_is_only_a_function_becomes_one() -> None:
    before = project("class C:\n    def f(self, x):\n        return x\nprint(C().f(1))\n")
    assert all_applied(before, statements.unclassed(before)) == ["def f(x):\n    return x\nprint(f(1))\n"]


def test_what_nothing_reads_goes_at_once() -> None:
    before = project("import os, sys\nfrom math import pi, tau\nclass C:\n    def g(self): pass\ndef f(a, b):\n"
                     "    c = a\n    return a\nprint(f(1, 2), pi)\n")
    made = apply(before, unused.unused(before))
    assert made is not None
    assert made.script == "from math import pi\ndef f(a):\n    return a\nprint(f(1), pi)\n"


def test_equal_numbers_become_smaller_together() -> None:
    before = project("a = [64, 64, 3]\n")
    assert "a = [1, 1, 3]\n" in all_applied(before, expressions.same_numbers(before))


def test_the_call_of_what_is_compiled_loses_arguments_too() -> None:
    before = project("import torch\ndef f(a, b):\n    return a\ntorch.compile(f)(1, 2)\n")
    expected = "import torch\ndef f(a):\n    return a\ntorch.compile(f)(1)\n"
    assert expected in all_applied(before, expressions.coupled(before))
    before = project("import torch\ndef f(a, b):\n    return a\nc = torch.compile(f)\nc(1, 2)\nc(3, b=4)\n")
    expected = "import torch\ndef f(a):\n    return a\nc = torch.compile(f)\nc(1)\nc(3)\n"
    assert expected in all_applied(before, expressions.coupled(before))


def test_parentheses_that_mean_nothing_go() -> None:
    before = project("a = ((1))\nb = (a + 1) * 2\nc = (print)(a, (b))\nd = (a,)\n")
    assert without_parentheses(before).script == "a = 1\nb = (a + 1) * 2\nc = print(a, b)\nd = (a,)\n"


def test_comments_go_and_strings_stay() -> None:
    before = project('#!/usr/bin/env python\n# why\nx = """\n# not a comment\n\n"""  # so\n\nprint(x)\n')
    assert without_comments(before).script == '#!/usr/bin/env python\nx = """\n# not a comment\n\n"""\nprint(x)\n'


def test_values_of_a_run_replace_what_led_to_them() -> None:
    before = project("import torch\nn = int('3')\nx = torch.ones(n, 2) * 2\ny = x + n\n")
    made, spans = values.instrumented(before)
    recorder = values.Recorder()
    exec(compile(made.script, "made", "exec"), {values.HOOK: recorder})
    probe = recorder.probe(spans, {})
    literal = all_applied(before, values.literals(before, probe))
    assert "import torch\nn = 3\nx = torch.ones(n, 2) * 2\ny = x + n\n" in literal
    random = all_applied(before, values.tensors(before, probe))
    assert "import torch\nn = int('3')\nx = torch.rand(3, 2)\ny = x + n\n" in random


def test_one_function_stands_for_the_whole() -> None:
    before = project("import os\nimport torch\nclass Net(torch.nn.Module):\n    def __init__(self, n):\n"
                     "        super().__init__()\n        self.n = n\n    def forward(self, x):\n"
                     "        return x * self.n\n"
                     "def main():\n    Net(2)(torch.ones(3))\n    print(os.getpid())\nmain()\n")
    call = Call("script.py", "Net.forward", (("self", "Net(n=2)"), ("x", "torch.rand(3)")), ".", True)
    (unit,) = units(before, [call])
    assert unit.script.endswith("subject = Net(n=2)\nfunction = torch.compile(subject)\nfunction(torch.rand(3))\n")
    assert "os" not in unit.script and "main" not in unit.script
    first, second = units(before, [call], gradient=True)
    assert "result.sum().backward()" in first.script and "pow(2)" in second.script


HELPER = '''
import math
def area(r, scale=1):
    """Area."""
    return math.pi * r * r * scale  # pi
'''
PROGRAM = '''"""Doc."""
import os, sys
from helper1 import area as circle

class Shape:
    kind = "none"
    def __init__(self, size: int, name="x", verbose=False) -> None:
        self.size = size
        self.name = name
        if verbose:
            print("hello")

    def measure(self, factor, other):
        total = 0
        for i in range(self.size):
            total += circle(i, scale=factor)
        return total, other

def prepare(n):
    return [Shape(k * 2, name=str(k)) for k in range(n)]

def main():
    results = []
    for shape in prepare(5):
        try:
            a, b = shape.measure(2, other=[1, 2, 3])
            results.append(a)
        except RuntimeError as error:
            print("bad", error)
            raise
    boom(sum(results), "x", level=10 + 3)

def boom(total, name, level):
    if total > 30 and level > 10:
        raise ZeroDivisionError("boom")

if __name__ == "__main__":
    main()
'''


def run_fails(candidate: Project) -> bool:
    for file, text in candidate.files[1:]:
        module = types.ModuleType(file[:-3])
        sys.modules[file[:-3]] = module
        with contextlib.suppress(Exception):
            exec(text, module.__dict__)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(candidate.script, {"__name__": "__main__"})
    except ZeroDivisionError as error:
        return "boom" in str(error)
    except Exception:
        return False
    finally:
        sys.modules.pop("helper1", None)
    return False


def test_a_program_is_reduced_to_the_line_that_fails() -> None:
    start = project(PROGRAM, HELPER)
    assert run_fails(start)
    reduction = Reduction(start, lambda projects: [run_fails(p) for p in projects], width=2)
    small = reduce_script(reduction)
    assert small.files == (("script.py", 'raise ZeroDivisionError("boom")\n'),)
    assert reduction.asked < 400
    assert all(ast.parse(text) for _, text in small.files)


def test_what_an_expression_does_last() -> None:
    said = {"x.abs().max() > 1e4": "gt", "not mask.any()": "any", "time.sleep(0.1)": "sleep", "print(x)": "print",
            "x.T": "T", "a and b": "and", "-x": "usub", "x[0]": "subscript", "x": "",
            "if mask.any():": "any", "y = torch.sin(x)": "sin", "else": "", "": ""}
    assert {text: expressions.operation(text) for text in said} == said


def test_projects_that_differ_in_brackets_alone_say_the_same() -> None:
    small = project("x = f((a))\nif (x):\n    y = 'b'\n    z = 1\n", "k = 1\n")
    brackets = project('x = f(a)  # why\n\nif x:\n    y = "b"\n    z = (1)\n', "k = (1)\n")
    other = project("x = f(a)\nif x:\n    y = 'b'\n    z = 2\n", "k = 3\n")
    assert brackets.meaning == small.meaning != other.meaning
    assert small.differences(other) == ["-    z = 1", "+    z = 2", "-k = 1", "+k = 3"]


def test_a_neighbour_that_passes_says_something_else(tmp_path: Path) -> None:
    script, same, other = project("f((1))\n"), project("f(1)\n"), project("g(2)\n")
    judge = Judge(Task("script.py", str(tmp_path)), tmp_path, None, 1, 1.0)  # type: ignore[arg-type]
    judge.passed = [other, same]
    assert judge.neighbour(script) is other
    judge.passed = [same]
    assert judge.neighbour(script) is None
