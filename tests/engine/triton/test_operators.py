"""Every operator of the loop IR: values against the reference interpreter, and code for sm_90."""
from __future__ import annotations

import pytest
import sympy
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.codegen.triton import TritonKernel, describe_kernel, generate
from ptdebug.engine.codegen.triton.ops import PRINTERS
from ptdebug.engine.ir import interpreter, ir
from ptdebug.engine.ir.ir import Axis, Buffer, Group, LoopBody, Statement

i0 = sympy.Symbol("i0", integer=True, nonnegative=True)
COUNT = 24
WITHOUT_A_FORM = {"digamma"}
TO_BOOL = {
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "logical_not", "logical_and", "logical_or", "logical_xor",
}
OF_BOOL = {"logical_not", "logical_and", "logical_or", "logical_xor"}
OF_INTEGERS = ("shl", "shr", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
INTEGER_TOO = ("neg", "abs", "sign", "add", "sub", "mul", "floordiv", "truncdiv", "mod", "fmod", "pow", "minimum",
               "maximum", "eq", "ne", "lt", "le", "gt", "ge")


def _inputs(dtype: torch.dtype, number: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    if dtype == torch.bool:
        return [torch.rand(COUNT, generator=generator) > 0.5 for _ in range(number)]
    if dtype.is_floating_point:
        values = [torch.rand(COUNT, generator=generator, dtype=torch.float64) * 1.8 - 0.9 for _ in range(number)]
        values[0][:4] = torch.tensor([0.0, -0.0, float("nan"), float("inf")])
        return [v.to(dtype) for v in values]
    values = [torch.randint(-40, 40, (COUNT,), generator=generator) for _ in range(number)]
    if number > 1:
        values[1] = torch.where(values[1] == 0, 3, values[1]) % 7 + 1  # no division by zero, no negative shift
    return [v.to(dtype) for v in values]


def _group(op: str, dtype: torch.dtype, number: int) -> tuple[Group, dict[str, Buffer]]:
    names = [f"x{k}" for k in range(number)]
    loads = [Statement(f"t{k}", "load", buffer=n, index=i0, dtype=dtype) for k, n in enumerate(names)]
    result = torch.bool if op in TO_BOOL else dtype
    statements = (
        *loads, Statement("t9", op, tuple(s.name for s in loads), dtype=result, origins=(op,)),
        Statement("t10", "store", ("t9",), buffer="y", index=i0),
    )
    axes = (Axis(i0, sympy.Integer(COUNT)),)
    size = ((sympy.Integer(COUNT),), (sympy.S.One,))
    buffers = {n: Buffer(n, dtype, torch.device("cpu"), *size) for n in names}
    buffers["y"] = Buffer("y", result, torch.device("cpu"), *size)
    return Group(f"op_{op}", axes, (LoopBody("y", axes, (), statements),)), buffers


def _cases() -> list[tuple[str, torch.dtype, int]]:
    cases = []
    for ops, number in ((ir.UNARY_OPS, 1), (ir.BINARY_OPS, 2), (("fma",), 3)):
        for op in ops:
            if op in WITHOUT_A_FORM:
                continue
            if op in OF_BOOL:
                cases.append((op, torch.bool, number))
            elif op in OF_INTEGERS:
                cases.append((op, torch.int32, number))
            else:
                cases.append((op, torch.float32, number))
            if op in INTEGER_TOO:
                cases.append((op, torch.int64, number))
    return cases


def test_every_operator_has_an_entry() -> None:
    operators = set(ir.UNARY_OPS + ir.BINARY_OPS + ir.TERNARY_OPS)
    assert operators - set(PRINTERS) == WITHOUT_A_FORM


@pytest.mark.parametrize(("op", "dtype", "number"), _cases(), ids=str)
def test_values(op: str, dtype: torch.dtype, number: int) -> None:
    group, buffers = _group(op, dtype, number)
    source = generate(group, buffers, CompileContext())
    memory = dict(zip(buffers, _inputs(dtype, number)))
    expected = memory | {"y": torch.zeros(COUNT, dtype=buffers["y"].dtype)}
    interpreter.run_body(group.bodies[0], expected, {})
    ours = torch.zeros(COUNT, dtype=buffers["y"].dtype)
    kernel = TritonKernel(source, buffers, torch.device("cpu"))
    assert kernel(*((memory | {"y": ours})[n] for n in source.signature.buffers)) == 0
    torch.testing.assert_close(ours, expected["y"], equal_nan=True, rtol=2e-6, atol=1e-7)
    if op == "neg" and dtype.is_floating_point:
        assert torch.equal(torch.signbit(ours[:2]), torch.tensor([True, False]))


def test_all_float_operators_compile_for_sm_90() -> None:
    """One kernel with every operator of float32: libdevice has them all under these names."""
    statements = [Statement(f"t{k}", "load", buffer=f"x{k}", index=i0) for k in range(3)]
    buffers = dict(_group("fma", torch.float32, 3)[1])
    total = "t0"
    for op, dtype, number in _cases():
        if dtype == torch.float32 and op not in TO_BOOL:
            statements.append(Statement(f"{op}_v", op, ("t0", "t1", "t2")[:number], origins=(op,)))
            statements.append(Statement(f"{op}_s", "add", (total, f"{op}_v"), origins=(f"{op}_sum",)))
            total = f"{op}_s"
    statements.append(Statement("last", "store", (total,), buffer="y", index=i0))
    axes = (Axis(i0, sympy.Integer(COUNT)),)
    group = Group("everything", axes, (LoopBody("y", axes, (), tuple(statements)),))
    record = describe_kernel(generate(group, buffers, CompileContext()), "cuda:90")
    assert record.log == "" and "sqrt.rn.f32" in record.outputs["ptx"]
