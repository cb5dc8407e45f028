"""Rewritten bytecode as Python: it says what the bytecode does, or that it cannot."""
from __future__ import annotations

import ast
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ptdebug.artifacts.decompile import Unknown, constant_text, decompiled
from ptdebug.artifacts.records import Bytecode, Instruction
from ptdebug.tracer.interpreter.bytecode_record import bytecode_record


def again(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function made of the Python text of its bytecode."""
    record = bytecode_record(function.__code__, "rewritten")
    body = "\n".join("    " * (s.depth + 1) + s.text for s in decompiled(record))
    namespace: dict[str, Any] = dict(function.__globals__)
    exec(f"def made({', '.join(record.parameters)}):\n{body}", namespace)
    made: Callable[..., Any] = namespace["made"]
    return made


def reads(x, key, **more):
    a = x["list"][0]
    b = (a, -key, not more, [a, key], {"k": a})
    x["seen"] = b
    return b, len(x["list"]), x["list"].count(a), sorted(x["list"], reverse=True)


def asks(x, y):
    if x is None:
        return "none"
    if x > 3:
        if y != 2:
            y = x - y
    else:
        y = x * y
    return y


def calls_in_order(x):
    log = []
    note = log.append
    pair = (note(1), note(2))
    note(x)
    return pair, log, max(*log)


def swaps(x, y):
    x["a"], x["b"] = x["b"], x["a"]
    y.real, y.imag = y.imag, y.real
    return x, y.real, y.imag


@pytest.mark.parametrize("function, arguments", [
    (swaps, [lambda: ({"a": 1, "b": 2}, SimpleNamespace(real=1, imag=2))]),
    (reads, [lambda: ({"list": [3, 1, 2]}, 2), lambda: ({"list": [1]}, 3)]),
    (asks, [lambda: (None, 1), lambda: (5, 1), lambda: (5, 2), lambda: (1, 7)]),
    (calls_in_order, [lambda: (3,)]),
])
def test_the_text_does_what_the_bytecode_does(function, arguments):
    made = again(function)
    for make in arguments:
        mine, theirs = make(), make()
        assert made(*mine) == function(*theirs)
        assert mine == theirs


def loops(x):
    for item in x:
        print(item)


def catches(x):
    try:
        return x.y
    except AttributeError:
        return 0


@pytest.mark.parametrize("function", [loops, catches])
def test_what_has_another_form_is_not_guessed(function):
    with pytest.raises(Unknown):
        decompiled(bytecode_record(function.__code__, "rewritten"))


def test_instructions_recorded_without_their_numbers_are_not_guessed():
    code = (Instruction("0", "LOAD_FAST", "f"), Instruction("2", "CALL", ""), Instruction("4", "RETURN_VALUE"))
    with pytest.raises(Unknown, match="without its number"):
        decompiled(Bytecode("f", code, role="rewritten"))
    with pytest.raises(Unknown, match="the program's own code"):
        decompiled(Bytecode("f", (), role="resume"))


@pytest.mark.parametrize("text, expected", [
    ("<function unobserved.<locals>.run at 0x7f>", "run"), ("<class 'a.b.C'>", "C"), ("'soft'", "'soft'"),
    ('<code object f at 0x7f, file "m.py", line 5>', "f_at_line_5"), ("<weird at 0x1>", "recorded('<weird at 0x1>')"),
])
def test_constants(text, expected):
    assert constant_text(text) == expected


def test_what_a_compiled_function_becomes(tmp_path, monkeypatch):
    import ptdebug
    import torch

    def f(x, flag):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2 if flag else y

    monkeypatch.setenv("PTDEBUG_HOME", str(tmp_path))
    with ptdebug.record("rec") as recording:
        ptdebug.compile(f)(torch.ones(2), True)
    found = [r for _, r in recording.records(Bytecode) if r.role == "rewritten"]
    assert found
    for record in found:
        text = "\n".join("    " * s.depth + s.text for s in decompiled(record))
        ast.parse("def f():\n" + "\n".join(f"    {line}" for line in text.splitlines()))
    first = "\n".join(s.text for s in decompiled(found[0]))
    assert "ours_outputs = run_unobserved(x)" in first and "except BaseException as ours_error:" in first
    assert "while type(ours_result) is Continuation:" in first
