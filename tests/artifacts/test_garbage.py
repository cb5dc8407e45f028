"""The garbage collector's settings are the program's again when a frame has been compiled."""
from __future__ import annotations

import gc
from collections.abc import Iterator

import ptdebug
import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.garbage import ALLOCATIONS, DESCRIBING, fewer_collections
from ptdebug.artifacts.recorder import NullRecorder


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("program", [(700, 10, 10), (3, 2, 1), (0, 10, 10), (ALLOCATIONS, 5, 5), (10**6, 1, 1)])
def test_the_programs_settings_are_back(program):
    gc.set_threshold(*program)
    with pytest.raises(ZeroDivisionError), fewer_collections():
        during = gc.get_threshold()
        with fewer_collections():
            assert gc.get_threshold() == during
        assert gc.get_threshold() == during
        raise ZeroDivisionError
    assert gc.get_threshold() == program
    assert during == (program if program[0] in (0, 10**6) else (ALLOCATIONS, *program[1:]))


@pytest.mark.parametrize("program", [(700, 10, 10), (0, 10, 10), (ALLOCATIONS, 5, 5), (10**7, 1, 1)])
def test_describing_leaves_the_programs_settings(program):
    gc.set_threshold(*program)
    during = []

    def described():
        during.append(gc.get_threshold())
        return ()

    CompileContext(recorder=NullRecorder(), recording=True).describe("passes", described)
    assert gc.get_threshold() == program
    assert during == [program if program[0] in (0, 10**7) else (DESCRIBING, *program[1:])]


def test_what_is_set_meanwhile_stays():
    with fewer_collections():
        gc.set_threshold(5, 6, 7)
    assert gc.get_threshold() == (5, 6, 7)


def test_a_compiled_frame_leaves_the_collector_alone():
    gc.set_threshold(701, 11, 12)
    gc.disable()
    try:
        ptdebug.compile(lambda x: x.sin() + 1)(torch.ones(2))
        assert (gc.isenabled(), gc.get_threshold()) == (False, (701, 11, 12))
    finally:
        gc.enable()
