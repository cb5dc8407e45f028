"""The text of the loop IR parses back, and the records made of it lead to the ATen graph."""
from __future__ import annotations

import pytest
import sympy
import torch
import torch.nn.functional as F
from ptdebug.artifacts.records import Loops
from ptdebug.engine.ir.affine import axis_symbol
from ptdebug.engine.ir.ir import Axis, Group, LoopBody, Plan, Statement
from ptdebug.engine.ir.parser import ParseError, parse_body, parse_expr, parse_group, parse_plan, parse_program
from ptdebug.engine.ir.printer import format_body, format_expr, format_group, format_plan, format_program
from ptdebug.engine.lowering.describe import loops_records
from torch.utils._sympy.functions import FloorDiv, Max, Mod, PythonMod

from .loops_checking import bodies, lowered

DOCSTRING_EXAMPLE = """\
body buf3[i0: 4096] reduce [r0: 1024]
  t0 = load x[1024*i0 + r0] : float32  # mul_1
  t1 = constant 0.125 : float32
  t2 = mul t0, t1 : float32
  t3 = reduce sum t2 : float32  # sum_1 mul_1
  store buf3[i0], t3
"""


def test_the_form_of_the_docstring():
    body = parse_body(DOCSTRING_EXAMPLE)
    assert body.reads == ("x",) and body.writes == ("buf3",)
    assert body.statements[0].index == 1024 * axis_symbol("i0") + axis_symbol("r0")
    assert body.statements[3].origins == ("sum_1", "mul_1")
    assert format_body(body) == DOCSTRING_EXAMPLE


def _statement_of_each_kind() -> LoopBody:
    i0, r0, t1 = axis_symbol("i0"), axis_symbol("r0"), axis_symbol("t1")
    f, i, b = torch.float32, torch.int64, torch.bool
    length = sympy.Symbol("s0", integer=True, positive=True)
    return LoopBody("out", (Axis(i0, sympy.Integer(8)),), (Axis(r0, length),), (
        Statement("t0", "load", (), i, "rows", i0),
        Statement("t1", "indirect", ("t0",), i, bound=sympy.Integer(10), mode="strict"),
        Statement("t2", "index", (), i, index=Mod(r0 + 3 * i0, sympy.Integer(7), evaluate=False)),
        Statement("t3", "constant", (), i, value=-4),
        Statement("t4", "lt", ("t2", "t3"), b),
        Statement("t5", "load", (), f, "x", 5 * t1 - r0 - 2, float("-inf"), "t4", origins=("a", "b")),
        Statement("t6", "cast", ("t5",), torch.bfloat16),
        Statement("t7", "bitcast", ("t6",), torch.int16),
        Statement("t8", "reduce", ("t5",), f, mode="welford"),
        Statement("t9", "part", ("t8",), f, value=2),
        Statement("t10", "constant", (), b, value=True),
        Statement("t11", "constant", (), f, value=1e-5),
        Statement("", "store", ("t9",), f, "out", FloorDiv(i0, sympy.Integer(2), evaluate=False) * 3, mode="add"),
        Statement("", "store", ("t11",), f, "other", -i0 + 8),
    ))


def test_statements_of_every_kind():
    body = _statement_of_each_kind()
    assert parse_body(format_body(body)) == body
    group = Group("fused_0", body.axes, (body, body), frozenset({"out", "other"}), torch.device("cuda", 0))
    assert parse_group(format_group(group)) == group


def test_the_sign_of_zero_and_the_type_of_constants_survive():
    for value, dtype in ((-0.0, torch.float32), (0, torch.int32), (False, torch.bool), (float("inf"), torch.float64)):
        body = LoopBody("o", (), (), (Statement("t0", "constant", (), dtype, value=value),
                                      Statement("", "store", ("t0",), dtype, "o", sympy.S.Zero)))
        again = parse_body(format_body(body)).statements[0].value
        assert repr(again) == repr(value)


def test_expressions():
    i, s = axis_symbol("i0"), sympy.Symbol("s0", integer=True, positive=True)
    for e in (i, -i, 3 * i * s - 4, FloorDiv(i + 1, s, evaluate=False) * -2 + 1, PythonMod(i - 3, 5, evaluate=False),
              Max(s, 4), Mod(FloorDiv(i, 2, evaluate=False), 3, evaluate=False), s ** 2 + s,
              sympy.Rational(1, 2) * s, -2 * (i + 1) * s, sympy.Integer(-3)):
        assert parse_expr(format_expr(e)) == e, e


@pytest.mark.parametrize("text", ["body x", "body x[i0: 3]\n  t0 = frob t1 : float32", "body x[i0: __import__('os')]",
                                  "body x[i0: 3]\n  t0 = load x[open('f')] : float32",
                                  "body x[i0: 3]\n  t0 = constant 1.0 : float99"])
def test_what_is_no_loop_ir_is_refused(text):
    with pytest.raises(ParseError):
        parse_body(text)


def test_programs_and_plans_with_symbols_constants_and_library_calls():
    def program(x, y):
        weight = torch.tensor([1.0, 2.0])
        return (F.softmax((x @ x.t()) * weight[0], -1), x.sum(), torch.cat([x, y]), x.t(),
                torch.rand(3, dtype=torch.float64))

    made = lowered(program, torch.randn(4, 6), torch.randn(5, 6), dynamic=True)
    assert made.symbols and made.constants
    assert parse_program(format_program(made), made.constants) == made
    items = [Group(f"fused_{n}", s.axes, (s,)) if isinstance(s, LoopBody) else s for n, s in enumerate(made.steps)]
    plan = Plan(made, tuple(items), {"buf3": "buf1"})
    assert parse_plan(format_plan(plan), made.constants) == plan


def test_records_refer_to_the_aten_graph():
    made = lowered(lambda x: torch.softmax(x * 2, -1), torch.randn(3, 4))
    records = list(loops_records(made))
    assert [name for _, name, _ in records] == [b.name for b in bodies(made)]
    stage, _, first = records[0]
    assert stage == "loop_ir" and isinstance(first, Loops)
    assert {o for s in first.statements for o in s.origins} == {"forward#mul", "forward#_softmax"}
    assert first.statements[-1].id == first.name and first.value is not None and first.value.shape == (3, 1)
    assert len({s.id for s in first.statements}) == len(first.statements)
