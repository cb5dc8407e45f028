"""Code objects taken apart and put together again are the same, and run the same."""
from __future__ import annotations

import argparse
import asyncio.tasks
import contextlib
import dis
import types
from collections.abc import Iterator

import pytest
from ptdebug.tracer.bytecode.assembly import Instr, Label, TryBegin, TryEnd, assemble, at
from ptdebug.tracer.bytecode.instructions import code_info
from ptdebug.tracer.bytecode.resume_function import disassembled


def codes_of(value: object) -> Iterator[types.CodeType]:
    """The code of the functions of a module or class, with what is nested in it."""
    pending = [f.__code__ for f in vars(value).values() if isinstance(f, types.FunctionType)]
    while pending:
        code = pending.pop()
        yield code
        pending += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def listing(code: types.CodeType) -> list[tuple[object, ...]]:
    """The instructions of `code`, with their arguments and positions, and which handler each has."""
    info = code_info(code)
    return [
        (i.opname, type(i.value), repr(i.value) if i.target < 0 else i.target, i.positions, info.handler_of(i.index))
        for i in info.instructions
    ]


MODULES = (argparse.ArgumentParser, argparse.HelpFormatter, contextlib, contextlib.ExitStack, asyncio.tasks)


@pytest.mark.parametrize("value", MODULES)
def test_round_trip(value):
    for code in codes_of(value):
        made = assemble(disassembled(code).items, code)
        assert listing(made) == listing(code), code.co_qualname
        assert list(made.co_lines()) and made.co_varnames == code.co_varnames
        assert (made.co_cellvars, made.co_freevars) == (code.co_cellvars, code.co_freevars)
        assert made.co_stacksize >= code.co_stacksize


@pytest.mark.parametrize("value", MODULES)
def test_decodes_as_dis_does(value):
    """But for super-instructions, which are two here."""
    for code in codes_of(value):
        info = code_info(code)
        whole = [i for i in dis.get_instructions(code) if i.opname not in ("EXTENDED_ARG", "CACHE")]
        ours = {i.offset: i for i in info.instructions}
        assert [i.offset for i in whole] == sorted(ours)
        for theirs in whole:
            mine = ours[theirs.offset]
            assert mine.positions == tuple(theirs.positions or (None, None, None, None))
            if mine.opname == theirs.opname and mine.target >= 0:
                assert info.instructions[mine.target].offset >= theirs.argval
            elif mine.opname == theirs.opname and theirs.opcode in (*dis.hasname, *dis.haslocal, *dis.hasfree):
                assert mine.value == theirs.argval and type(mine.value) is type(theirs.argval)


def test_long_jumps_and_many_names():
    lines = [f"        v{n} = v{n - 1} + {n + 1000} if v{n - 1} != {n} else -1" for n in range(1, 400)]
    source = "def f(k):\n    total = 0\n    for v0 in range(k):\n" + "\n".join(lines)
    source += "\n        if v0 == 3:\n            continue\n        total += v399\n    return total\n"
    space: dict[str, object] = {}
    exec(source, space)
    function = space["f"]
    assert isinstance(function, types.FunctionType)
    code = function.__code__
    made = types.FunctionType(assemble(disassembled(code).items, code), space)
    assert made(6) == function(6)
    assert listing(made.__code__) == listing(code)


def empty(x):
    """Its docstring stays."""
    return x


def run(*parts: object) -> object:
    code = assemble(parts, empty.__code__)
    return types.FunctionType(code, {})(5)


def test_constants_are_told_apart():
    pushed = (1, True, 1.0, 0.0, -0.0, (0.0,), (-0.0,), "a", None)
    loads = at((1, 1, 0, 1), [("RESUME",), *(("LOAD_CONST", value) for value in pushed)])
    made = run(*loads, *at(None, [("BUILD_TUPLE", len(pushed)), ("RETURN_VALUE",)]))
    assert repr(made) == repr(pushed)
    code = assemble(at(None, [("RESUME",), ("LOAD_CONST", "no docstring"), ("RETURN_VALUE",)]), run.__code__)
    assert types.FunctionType(code, {}).__doc__ is None
    assert types.FunctionType(assemble(disassembled(empty.__code__).items, empty.__code__), {}).__doc__ == empty.__doc__


def test_a_handler_gets_the_stack_cut_to_its_depth():
    handler = Label()
    begin = TryBegin(handler, False, 1)
    body = at((2, 2, 0, 1), [("LOAD_CONST", 1), ("LOAD_CONST", 2), ("LOAD_FAST", "missing"), ("RETURN_VALUE",)])
    body[2].name = "LOAD_FAST_CHECK" if "LOAD_FAST_CHECK" in dis.opmap else "LOAD_FAST"
    after = at(None, [("POP_TOP",), ("LOAD_CONST", "handled"), ("BUILD_TUPLE", 2), ("RETURN_VALUE",)])
    assert run(Instr("RESUME"), body[0], begin, *body[1:], TryEnd(begin), handler, *after) == (1, "handled")
