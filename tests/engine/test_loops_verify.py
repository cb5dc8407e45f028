"""The verifier refuses malformed bodies and names the statement."""
from __future__ import annotations

from dataclasses import replace

import pytest
import sympy
import torch
from ptdebug.engine.ir.ir import Buffer, ExternCall, Group, LoopBody, Plan, Program, View
from ptdebug.engine.ir.parser import parse_body
from ptdebug.engine.ir.verifier import VerifyError, verify, verify_body

from .loops_checking import lowered


def buffer(name: str, size: int, dtype: torch.dtype = torch.float32, role: str = "intermediate") -> Buffer:
    return Buffer(name, dtype, torch.device("cpu"), (sympy.Integer(size),), (sympy.S.One,), role)


BUFFERS = {b.name: b for b in (buffer("x", 32, role="input"), buffer("n", 32, torch.int64, "input"), buffer("out", 8),
                               buffer("full", 32), buffer("half", 8, torch.bfloat16))}

GOOD = """body out[i0: 8] reduce [r0: 4]
  t0 = load x[4*i0 + r0] : float32
  t1 = reduce sum t0 : float32
  store out[i0], t1
"""

BAD = {
    "used before": "body out[i0: 8]\n t1 = neg t0 : float32\n store out[i0], t1 : float32",
    "unknown buffer": "body out[i0: 8]\n t0 = load q[i0] : float32\n store out[i0], t0",
    "unknown symbol": "body out[i0: 8]\n t0 = load x[i0 + r7] : float32\n store out[i0], t0",
    "holds another dtype": "body out[i0: 8]\n t0 = load n[i0] : float32\n store out[i0], t0",
    "but x has 32": "body out[i0: 8]\n t0 = load x[5*i0] : float32\n store out[i0], t0",
    "before the start": "body out[i0: 8]\n t0 = load x[i0 - 1] : float32\n store out[i0], t0",
    "nothing is stored": "body out[i0: 8]\n t0 = load x[i0] : float32",
    "defined twice": "body out[i0: 8]\n t0 = load x[i0] : float32\n t0 = neg t0 : float32\n store out[i0], t0",
    "is torch.int64": "body out[i0: 8]\n t0 = load n[i0] : int64\n t1 = load x[i0] : float32\n"
                      " t2 = add t1, t0 : float32\n store out[i0], t2",
    "arithmetic in torch.bfloat16": "body half[i0: 8]\n t0 = load half[i0] : bfloat16\n t1 = neg t0 : bfloat16\n"
                                    " store half[i0], t1",
    "no reduction axes": GOOD.replace(" reduce [r0: 4]", "").replace("r0", "0"),
    "inside the reduction's own loop": GOOD.replace(" store", " t2 = sub t0, t1 : float32\n store"),
    "a store inside the reduction": GOOD.replace("store", "store full[4*i0 + r0], t0\n store"),
    "unknown reduction": GOOD.replace("reduce sum", "reduce median"),
    "is not a bool": "body out[i0: 8]\n t0 = load x[i0] : float32\n t1 = where t0, t0, t0 : float32\n"
                     " store out[i0], t1",
    "named after": "body full[i0: 8]\n t0 = load x[i0] : float32\n store out[i0], t0",
    "store to an input": "body x[i0: 8]\n t0 = load x[i0] : float32\n store x[i0], t0",
    "2 expected": "body out[i0: 8]\n t0 = load x[i0] : float32\n t1 = add t0 : float32\n store out[i0], t1",
    "no constant of": "body out[i0: 8]\n t0 = constant 1 : float32\n store out[i0], t0",
    "two axes of one name": "body out[i0: 8, i0: 2]\n t0 = load x[i0] : float32\n store out[i0], t0",
}


def test_a_good_body():
    verify_body(parse_body(GOOD), BUFFERS)


@pytest.mark.parametrize("message", BAD)
def test_bad_bodies(message):
    with pytest.raises(VerifyError, match=message):
        verify_body(parse_body(BAD[message]), BUFFERS)


def test_the_message_shows_the_statement():
    with pytest.raises(VerifyError, match=r"body out: `t0 = load x\[5\*i0\] : float32`"):
        verify_body(parse_body(BAD["but x has 32"]), BUFFERS)


def test_programs():
    program = lowered(lambda x: torch.mm(x.exp(), x).relu(), torch.randn(4, 4))
    verify(program)
    with pytest.raises(VerifyError, match="which nothing has written yet"):
        verify(replace(program, steps=program.steps[1:]))
    with pytest.raises(VerifyError, match="ends at element"):
        (view,) = program.outputs
        verify(replace(program, outputs=(View(view.buffer, view.size, view.stride, sympy.S.One),)))


def test_kernels_share_their_outer_axes():
    program = lowered(lambda x: x.exp(), torch.randn(4, 4))
    (body,) = program.steps
    assert isinstance(program, Program) and isinstance(body, LoopBody) and not isinstance(body, ExternCall)
    verify(Plan(program, (Group("k", body.axes[:1], (body,)),)))
    with pytest.raises(VerifyError, match="do not start with those of the kernel"):
        verify(Plan(program, (Group("k", body.axes[1:], (body,)),)))
