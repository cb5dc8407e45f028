"""A graph break at every kind of place: what was captured runs, the instruction runs natively, the rest goes on."""
from __future__ import annotations

import pytest
import torch
from ptdebug.tracer.breaks.raised_errors import FullGraphError
from ptdebug.tracer.frames.convert import ConvertedFrame, Skip

X = torch.arange(4.0)
LOG: list[str] = []


def note(text):
    """A call that the tracer does not follow: it opens a file."""
    with open("/dev/null", "w") as file:
        file.write(text)
    LOG.append(text)
    return len(text)


def statement(x):
    y = x + 1
    note("statement")
    return y * 2


def in_expression(x):
    return (x + 1) * note("abc") + [x, 2][note("a")]


def argument_of_call(x):
    return torch.add(x * 2, note("ab"), alpha=note("abc"))


def method_argument(x):
    return (x + 1).mul(note("abc")).add(x, alpha=2)


def branch(x):
    y = x * 2
    if y.sum() > 3:
        y = y + 1
    else:
        y = y - 1
    return y


def boolean_operator(x):
    return (x.sum() > 100) or (x + 1)


def item(x):
    n = len(x.sum().numpy().tobytes())
    return x * n


def inlined(x):
    def helper(v):
        v = v + 1
        note("inlined")
        return v * 2

    return helper(x + 3) - 1


def in_try(x):
    y = x + 1
    try:
        note("in try")
        y = y * 2
    finally:
        y = y + 5
    return y


def raises_in_try(x):
    y = x + 1
    try:
        y = y + torch.ones(3)
    except RuntimeError as error:
        y = y * len(str(error))
    return y


def in_handler(x):
    y = x + 1
    try:
        raise ValueError("first")
    except ValueError as error:
        y = y * 2
        note("in handler")
        y = y + len(error.args)
    return y


def handled_then_reraised(x):
    y = x + 1
    try:
        try:
            raise ValueError("first")
        except ValueError:
            note("reraises")
            y = y * 2
            raise
        finally:
            y = y + 3
    except ValueError as error:
        y = y * len(error.args)
    return y


def raises_in_handler(x):
    y = x + 1
    try:
        raise ValueError("first")
    except ValueError:
        note("about to fail")
        y = y + torch.ones(3)
    return y


def raises(x):
    y = x + 1
    return y + torch.ones(3)


def raises_own(x):
    y = x + 1
    if y.shape[0] == 4:
        raise ValueError(f"four: {y.shape[0]}")
    return y


def in_with(x):
    with torch.no_grad():
        y = x * 2
        note("in with")
        y = y + 1
    return y * 3


def closure_and_cells(x):
    total = x + 1

    def inner(v):
        nonlocal total
        total = total + v
        return total

    a = inner(2)
    note("cells")
    return a + inner(3), total


def keyword_call(x):
    def unknown(a, *, b):
        note("kw")
        return a * b

    return unknown(x + 1, b=x) + 1


def unread_arguments(x, y, z):
    a = x + 1
    note("unread")
    return a, y, z[0]


def swapped(x, y):
    x, y = y + 1, x
    note("swap")
    return x - y


def twice(x):
    y = x + 1
    note("one")
    y = y * 2
    note("two")
    return y


PROGRAMS = [
    statement, in_expression, argument_of_call, method_argument, branch, boolean_operator, item, inlined, in_try,
    raises_in_try, raises, raises_own, in_with, in_handler,
    handled_then_reraised, raises_in_handler, closure_and_cells, keyword_call, twice,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_break_keeps_the_meaning(differential, program):
    LOG.clear()
    traced = differential(program, X, graphs=None)
    assert isinstance(traced.result, ConvertedFrame)
    assert len(traced.result.breaks) == 1
    half = len(LOG) // 2
    assert LOG[:half] == LOG[half:]


def test_arguments_pass_through_a_break(differential):
    traced = differential(unread_arguments, X, [1, 2], (3,), graphs=1)
    assert len(traced.result.breaks) == 1
    differential(swapped, X, X + 2, graphs=1)


def test_break_says_where_and_why(convert):
    record = convert(branch, (X,), {}).result.breaks[0]
    assert record.code == "data-dependent-branch"
    assert record.source == "if y.sum() > 3:"
    assert record.location.line == branch.__code__.co_firstlineno + 2


def test_break_in_an_inlined_callee_names_the_callee(convert):
    record = convert(inlined, (X,), {}).result.breaks[0]
    assert record.source == 'note("inlined")' or record.source.startswith("with open")
    assert record.stack[0].line == inlined.__code__.co_firstlineno + 6


def test_fullgraph_raises_one_clear_error(convert):
    with pytest.raises(FullGraphError, match=r"test_breaks\.py"):
        convert(branch, (X,), {}, fullgraph=True)


def test_a_loop_is_broken_where_it_breaks(differential):
    def loop(x):
        for i in range(3):
            x = x + i
            note("loop")
        return x

    result = differential(loop, X, graphs=None).result
    assert isinstance(result, ConvertedFrame)
    assert len(result.breaks) == 1


def test_no_tensor_operation_is_skipped(convert):
    def plain(n):
        return n + 1

    assert isinstance(convert(plain, (3,), {}).result, Skip)


def test_traceback_has_the_line_that_raised(convert):
    traced = convert(raises, (X,), {})
    with pytest.raises(RuntimeError) as caught:
        traced.function(X)
    lines = [entry.lineno + 1 for entry in caught.traceback]
    assert raises.__code__.co_firstlineno + 2 in lines


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_resume_functions_are_captured_too(compiled, differential, program):
    """Under the frame hook, called twice: the second time all guards hold."""
    fast, graphs = compiled(program)
    expected = outcome_of(program)
    assert outcome_of(fast) == expected
    count = len(graphs)
    assert outcome_of(fast) == expected
    if program not in (raises, raises_in_handler):  # what a call made whose operator raised is not kept
        assert len(graphs) == count
    if program not in (raises, raises_own, boolean_operator):
        assert count >= 2


def outcome_of(function):
    LOG.clear()
    try:
        result = function(X)
    except Exception as error:
        return type(error), str(error), list(LOG)
    return [r.tolist() for r in result] if isinstance(result, tuple) else result.tolist(), list(LOG)


@pytest.mark.parametrize("program", [raises_own, raises])
def test_tracebacks_have_the_lines_of_eager(convert, program):
    def lines(function):
        with pytest.raises((ValueError, RuntimeError)) as caught:
            function(X)
        start = program.__code__.co_firstlineno
        found = [entry.lineno + 1 for entry in caught.traceback if entry.name == program.__name__]
        return [line - start for line in found]

    assert lines(convert(program, (X,), {}).function)[-1:] == lines(program)
