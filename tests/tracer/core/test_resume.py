"""Resume functions run by themselves: started anywhere in a function, they finish it as the function would."""
from __future__ import annotations

from types import CellType, CodeType, FunctionType

import pytest
from ptdebug.tracer.bytecode.instructions import code_info
from ptdebug.tracer.bytecode.liveness import live_at
from ptdebug.tracer.bytecode.resume_function import is_resume_code, origin_of, resume_code
from ptdebug.tracer.bytecode.unbound_slots import Slot


def sample(a, b):
    total = a + b

    def add(x):
        nonlocal total
        total += x
        return total

    try:
        d = add(1)
        for i in range(3):
            d += i
        e = d / b
    except ZeroDivisionError:
        e = -1
    with open("/dev/null") as file:
        size = len(file.read())
    return total, d, e, size


def index_of(code: CodeType, opname: str, value: object) -> int:
    return next(i.index for i in code_info(code).instructions if i.opname == opname and i.value == value)


@pytest.mark.parametrize(("b", "expected"), [(2, (10, 8, 4.0, 0)), (0, (10, 8, -1, 0))])
def test_resumes_inside_try_with_the_handlers_in_force(b, expected):
    code = sample.__code__
    index = index_of(code, "STORE_FAST", "d")
    assert live_at(code_info(code), index) >= {"b"}
    resumed = resume_code(code, index, (Slot.OBJECT,), ("b",))
    function = FunctionType(resumed, globals(), closure=(CellType(10),))
    assert function(5, b) == expected


def test_resume_of_a_resume_function_starts_from_the_original():
    code = sample.__code__
    first = resume_code(code, index_of(code, "STORE_FAST", "d"), (Slot.OBJECT,), ("b",))
    index = index_of(first, "STORE_FAST", "e")
    second = resume_code(first, index, (Slot.OBJECT,), ("d",))
    assert origin_of(second).code is code
    assert origin_of(second).index == index_of(code, "STORE_FAST", "e")
    assert is_resume_code(second) and not is_resume_code(code)
    assert FunctionType(second, globals(), closure=(CellType(1),))(7.0, 3) == (1, 3, 7.0, 0)


def test_instructions_lead_back_to_the_original():
    code = sample.__code__
    resumed = resume_code(code, index_of(code, "STORE_FAST", "d"), (Slot.OBJECT,), ("b",))
    origin = origin_of(resumed)
    originals, copies = code_info(code).instructions, code_info(resumed).instructions
    assert len(copies) > origin.own
    for copy in copies[origin.own :]:
        assert originals[copy.index + origin.shift].opname == copy.opname


def test_liveness_follows_handlers_and_loops():
    code = sample.__code__
    info = code_info(code)
    assert {"d", "b"} <= live_at(info, index_of(code, "STORE_FAST", "i"))
    assert "b" not in live_at(info, index_of(code, "STORE_FAST", "size"))
