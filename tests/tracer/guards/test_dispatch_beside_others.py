"""optimize() beside other threads, processes and compilers, which change what it reads."""
from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading

import pytest
import torch
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.runtime import eval_frame

from .compiles import Compiles, same, scale

pytestmark = [pytest.mark.skipif(bool(eval_frame.unavailable()), reason=eval_frame.unavailable()),
              pytest.mark.usefixtures("fresh_start")]


def test_threads():
    compiles = Compiles(dynamic=False)
    compiled, errors = compiles(scale), []

    def work(seed):
        try:
            for n in (3, 4, 5):
                same(compiled, scale, torch.randn(n, 2))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors and 1 <= compiles.count <= 3


def test_a_child_of_fork_compiles_although_a_thread_of_the_parent_did():
    compiling, forked = threading.Event(), threading.Event()

    class Slow(Compiles):
        def backend(self, captured, context):
            compiling.set()
            forked.wait(60)
            return super().backend(captured, context)

    thread = threading.Thread(target=lambda: Slow()(scale)(torch.ones(3)))
    thread.start()
    compiling.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        compiles = Compiles()
        right = torch.equal(compiles(lambda x: x * 5)(torch.ones(3)), torch.full((3,), 5.0))
        os._exit(0 if right and compiles.count == 1 else 1)
    _, status = os.waitpid(child, 0)
    forked.set()
    thread.join()
    assert status == 0


def test_what_another_thread_draws_meanwhile_stays_drawn():
    """torch puts the state of `random` back after each compilation."""
    compiling, drawn, found = threading.Event(), threading.Event(), []

    def other():
        compiling.wait(60)
        found.append(random.random())
        drawn.set()
        leave.wait(60)

    class Slow(Compiles):
        def backend(self, captured, context):
            compiling.set()
            drawn.wait(60)
            return super().backend(captured, context)

    leave, kept, setstate = threading.Event(), random.getstate(), random.setstate
    thread = threading.Thread(target=other)
    thread.start()
    Slow()(scale)(torch.ones(3))
    found.append(random.random())
    leave.set()
    thread.join()
    state, real = random.getstate(), random.setstate
    random.setstate(kept)
    assert real == setstate
    assert found == [random.random(), random.random()] and random.getstate() == state
    random.setstate(kept)
    assert random.getstate() == kept


@pytest.mark.parametrize("after", [torch.float64, torch.float32])
def test_a_setting_that_another_thread_changes_during_the_compilation_stays_changed(after):
    before, compiling, changed = torch.get_default_dtype(), threading.Event(), threading.Event()

    def other():
        compiling.wait(60)
        torch.set_default_dtype(after)
        changed.set()

    class Slow(Compiles):
        def backend(self, captured, context):
            compiling.set()
            changed.wait(60)
            return super().backend(captured, context)

    torch.set_default_dtype(torch.float32 if after == torch.float64 else torch.float64)
    thread = threading.Thread(target=other)
    thread.start()
    dispatch.reset()
    try:
        compiles = Slow()
        compiled = compiles(scale)
        for _ in range(2):
            same(compiled, scale, torch.ones(3))
            assert torch.get_default_dtype() == after
    finally:
        thread.join(60)
        torch.set_default_dtype(before)
    assert compiles.count == 2
    assert not any("internal error" in reason for reason in dispatch.stats()["reasons"])


@pytest.mark.parametrize("order", [("ours", "stock", "ours"), ("stock", "ours", "stock")])
def test_beside_stock_compile(order):
    def function(x, factor=2.0):
        return x.sin() * factor

    compiles, graphs = Compiles(), []

    def stock_backend(module, inputs):
        graphs.append(module)
        return module.forward

    compiled = {"ours": compiles(function), "stock": torch.compile(function, backend=stock_backend)}
    for which in order:
        for n, factor in ((3, 2.0), (4, 2.0), (5, 2.0), (3, 3.0)):
            same(compiled[which], function, torch.randn(n), factor)
    assert compiles.count == 3 and 2 <= len(graphs) <= 3
    torch._dynamo.reset()


UNSTEADY = """
import itertools, logging, threading, torch, ptdebug
from ptdebug.tracer.variables.python import library

answers = itertools.cycle((False, True))
library._shows = lambda *_: next(answers)  # what a guard asks is not what was seen
logger, leave = logging.getLogger("told"), threading.Event()
if {other}:
    threading.Thread(target=leave.wait, daemon=True).start()

def f(x):
    logger.debug("x")
    return x + 1

print(ptdebug.compile(f)(torch.zeros(1)).item(), *ptdebug.stats()["reasons"])
"""


@pytest.mark.parametrize("other, why", [(False, "internal error: TracerError"), (True, "skipped: another thread")])
def test_guards_that_reject_their_own_call_are_our_fault_where_there_is_one_thread(other, why):
    """In a process of its own: the tests' may have threads."""
    script = [sys.executable, "-c", UNSTEADY.format(other=other)]
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.startswith(f"1.0 {why}")
