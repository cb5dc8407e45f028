"""What is advised at a break works: with the advice followed the program has no break there, and computes the same.

`ADVICE` is the table of (broken, advised) programs, with those of `advice_data.py` and `advice_rare.py`: what is said
of the break, and one program for each way out that is named. A program is a function of `compile`; `whole(f)` calls f
compiled, on X.
"""
from __future__ import annotations

import copy
import io
import logging
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import ptdebug
import pytest
import torch
from ptdebug.artifacts.summary import break_costs, breaks
from ptdebug.cli import wiring
from ptdebug.tracer.runtime.statistics import STATISTICS
from torch import nn

from ..checking import as_the_engine, described, observe, recordings
from . import advice_data, advice_rare
from .advice import Advice, Program, X, whole

FILES = (__file__, advice_data.__file__, advice_rare.__file__)
LOCK, LOG = threading.Lock(), logging.getLogger("advice")
LAYER = nn.Linear(4, 4)
OF_MESSAGES = "torch.compiler.is_compiling(): ...`, or do it after the call"


def talks(talk: Callable[..., Any]) -> tuple[Program, tuple[Program, Program]]:
    """A program that shows something between two operations, and the two ways out."""

    def step(x):
        y = torch.relu(x)
        talk(y)
        return torch.tanh(y)

    def left_out(x):
        y = torch.relu(x)
        if not torch.compiler.is_compiling():
            talk(y)
        return torch.tanh(y)

    def after(compile):
        y, result = compile(lambda x: (torch.relu(x), torch.tanh(torch.relu(x))))(X)
        talk(y)
        return result

    return whole(step), (whole(left_out), after)


# ---- what is done outside --------------------------------------------------------------------------------------------
def clock(x):
    start = time.perf_counter()
    y = torch.tanh(x)
    return y, time.perf_counter() - start >= 0


def clock_around(compile):
    compiled, start = compile(torch.tanh), time.perf_counter()
    y = compiled(X)
    return y, time.perf_counter() - start >= 0


def address(x):
    y = torch.relu(x)
    return y, y.data_ptr() % 4


def address_outside(compile):
    y = compile(torch.relu)(X)
    return y, y.data_ptr() % 4


def starts_a_thread(compile):
    thread = threading.Thread(target=int)

    def step(x):
        thread.start()
        return torch.relu(x)

    return compile(step)(X)


def thread_before(compile):
    threading.Thread(target=int).start()
    return compile(torch.relu)(X)


def locked(x):
    y = torch.relu(x)
    with LOCK:
        return y + 1


def locked_around(compile):
    with LOCK:
        return compile(lambda x: torch.relu(x) + 1)(X)


def writes(compile):
    text = io.StringIO()

    def step(x):
        y = torch.relu(x)
        text.write("a")
        return torch.tanh(y)

    return compile(step)(X), text.getvalue()


def writes_after(compile):
    text, result = io.StringIO(), compile(lambda x: torch.tanh(torch.relu(x)))(X)
    text.write("a")
    return result, text.getvalue()


def seeds(x):
    torch.manual_seed(3)
    return x + torch.rand(4)


def seeds_before(compile):
    torch.manual_seed(3)
    return compile(lambda x: x + torch.rand(4))(X)


def sets(x):
    torch.set_num_threads(1)
    return x @ x.t()


def sets_before(compile):
    torch.set_num_threads(1)
    return compile(lambda x: x @ x.t())(X)


def copies_before(compile):
    copied = copy.deepcopy(LAYER)
    return compile(lambda x: copied(x))(X)


def makes_before(compile):
    layer = nn.Linear(4, 2)
    return compile(lambda x: layer(x))(X)


# ---- gradients, memory -----------------------------------------------------------------------------------------------
def loss_of(x, w):
    return (x * w).pow(2).sum()


def backward_inside(compile):
    w = torch.ones(4, requires_grad=True)

    def step(x, w):
        loss = loss_of(x, w)
        loss.backward()

    compile(step)(X, w)
    return w.grad


def backward_outside(compile):
    w = torch.ones(4, requires_grad=True)
    compile(loss_of)(X, w).backward()
    return w.grad


def backward_by_func(compile):
    return compile(lambda x, w: torch.func.grad(lambda w: loss_of(x, w))(w))(X, torch.ones(4))


def begins_to_need_gradients(compile):
    def f(x):
        leaf = (x * 2).requires_grad_()
        return leaf, leaf.sin()

    return compile(f)(X.clone())[1]


def gradients_before(compile):
    return compile(lambda x: (x * 2).sin())(X.clone().requires_grad_())


def resizes(x):
    y = x * 2
    y.resize_(2, 6)
    return y + 1


# ---- functions, classes, exceptions ----------------------------------------------------------------------------------
@torch.library.custom_op("advice::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("advice::doubled_known", mutates_args=())
def doubled_known(x: torch.Tensor) -> torch.Tensor:
    return x * 2


doubled_known.register_fake(torch.empty_like)

LIBRARY = torch.library.Library("advice_library", "DEF")
for name in ("halved", "halved_known"):
    LIBRARY.define(f"{name}(Tensor x) -> Tensor")
    LIBRARY.impl(name, lambda x: x / 2, "CompositeExplicitAutograd")
    torch.library.register_fake(f"advice_library::{name}", torch.empty_like, lib=LIBRARY)
torch.library.register_autograd("advice_library::halved_known", lambda ctx, grad: grad / 2, lib=LIBRARY)


def of_each_row(transform):
    def normalized(x):
        return nn.functional.layer_norm(x, x.shape)

    return whole(lambda x: torch.func.vmap(transform(normalized))(x))


def with_gradient(function):
    def run(compile):
        f = compile(lambda x: function(x * 2) + 1)
        x = X.clone().requires_grad_()
        y = f(x)
        y.sum().backward()
        return y, x.grad

    return run


def post(x):
    return x.clamp(0, 1)


disabled_post = torch.compiler.disable(post)


def post_outside(compile):
    return disabled_post(compile(torch.relu)(X))


def asks_for_a_break(x):
    y = torch.relu(x)
    torch._dynamo.graph_break()
    return torch.tanh(y)


def runs_text(x):
    return torch.tanh(x) + eval("x + 1")


def own_name(x):
    return torch.relu(x), sys._getframe(0).f_code.co_name


def local_class(x):
    class Pair:
        first = 3

    return x * Pair.first, Pair()


class Pair:
    first = 3


def counts_far(x):
    count = 0
    for number in range(200_000):
        count += number % 3
    return x * count


def fails(x):
    try:
        raise ValueError("no")
    except ValueError:
        return torch.relu(x), "ValueError: no" in traceback.format_exc()


def fails_with_its_text(x):
    try:
        raise ValueError("no")
    except ValueError as error:
        return torch.relu(x), "ValueError: no" in f"{type(error).__name__}: {error}"


ADVICE: dict[str, Advice] = {
    **advice_data.DATA,
    "print": Advice(
        "unsupported-builtin", 'print("seen", y.shape)', OF_MESSAGES, *talks(lambda y: print("seen", y.shape))
    ),
    "log": Advice("unsupported-method", "LOG.error", OF_MESSAGES, *talks(lambda y: LOG.error("shape %s", y.shape))),
    "warn": Advice(
        "unsupported-argument", "warnings.warn", OF_MESSAGES, *talks(lambda y: warnings.warn("old", stacklevel=2))
    ),
    "save": Advice(
        "global-state", "torch.save", "save what the compiled function returns",
        *talks(lambda y: torch.save(y, io.BytesIO())),
    ),
    "clock": Advice(
        "unsupported-builtin", "time.perf_counter()", "take the time around the call", whole(clock), (clock_around,)
    ),
    "address": Advice(
        "data-dependent-value", "y.data_ptr()", "read addresses outside of", whole(address), (address_outside,)
    ),
    "system": Advice(
        "unsupported-builtin", "os.path.exists(os.sep)", "and pass on what it gives",
        whole(lambda x: torch.relu(x) * os.path.exists(os.sep)),
        (lambda compile: compile(lambda x, there: torch.relu(x) * there)(X, os.path.exists(os.sep)),),
    ),
    "thread": Advice("skipped-function", "thread.start()", "before or after", starts_a_thread, (thread_before,)),
    "lock": Advice("unsupported-method", "with LOCK:", "enter it around the call", whole(locked), (locked_around,)),
    "file": Advice("unsupported-method", 'text.write("a")', "write after the call", writes, (writes_after,)),
    "numpy": Advice(
        "numpy-unsupported", "numpy.median(x.numpy(), axis=0)", "use torch's functions, or do it after the call",
        whole(lambda x: x * 2 - torch.from_numpy(numpy.median(x.numpy(), axis=0))), (
            whole(lambda x: x * 2 - x.median(0).values),
            lambda compile: compile(lambda x: x * 2)(X) - torch.from_numpy(numpy.median(X.numpy(), axis=0)),
        ),
    ),
    "numpy's random": Advice(
        "python-random", "numpy.random.rand()", "use torch.rand, torch.randn",
        whole(lambda x: x * numpy.random.rand()), (whole(lambda x: x * torch.rand(())),), same=False,
    ),
    "seed": Advice("global-state", "torch.manual_seed(3)", "seed before", whole(seeds), (seeds_before,)),
    "setting": Advice("global-state", "torch.set_num_threads(1)", "set it before", whole(sets), (sets_before,)),
    "copied module": Advice(
        "object-copy", "copy.deepcopy(LAYER)", "copy it once, before", whole(lambda x: copy.deepcopy(LAYER)(x)),
        (copies_before,),
    ),
    "new layer": Advice("unknown-type", "nn.Linear(4, 2)", "make it once, in __init__ or before",
                        whole(lambda x: nn.Linear(4, 2)(x)), (makes_before,)),
    "backward": Advice(
        "gradient-inside", "loss.backward()", "call .backward() on what it returns; or use torch.func.grad",
        backward_inside, (backward_outside, backward_by_func),
    ),
    "requires_grad_": Advice(
        "requires-grad-change", "(x * 2).requires_grad_()", "on the input before the call, or use torch.func.grad",
        begins_to_need_gradients,
        (gradients_before, whole(lambda x: torch.func.grad(lambda y: y.sin().sum())(x * 2))), same=False,
    ),
    "resize_": Advice(
        "metadata-mutation", "y.resize_(2, 6)", "make a new tensor (x.view, x.reshape, torch.cat) instead",
        whole(resizes), (whole(lambda x: (x * 2).view(2, 6) + 1),),
    ),
    "no fake kernel": Advice(
        "missing-fake-kernel", "doubled(x)", "torch.library.register_fake",
        whole(lambda x: doubled(x) + 1), (whole(lambda x: doubled_known(x) + 1),),
    ),
    "no forward gradient": Advice(
        "missing-forward-gradient", "vmap(transform(normalized))(x)", "instead of torch.func.hessian",
        of_each_row(torch.func.hessian), (of_each_row(lambda f: torch.func.jacrev(torch.func.jacrev(f))),), same=False,
    ),
    "no gradient": Advice(
        "missing-gradient", "function(x * 2)", "torch.library.register_autograd",
        with_gradient(torch.ops.advice_library.halved), (with_gradient(torch.ops.advice_library.halved_known),),
    ),
    "disabled": Advice(
        "disabled-function", "disabled_post(torch.relu(x))", "remove the mark",
        whole(lambda x: disabled_post(torch.relu(x))), (whole(lambda x: post(torch.relu(x))), post_outside),
    ),
    "asked for": Advice(
        "graph-break-requested", "torch._dynamo.graph_break()", "take the call away",
        whole(asks_for_a_break), (whole(lambda x: torch.tanh(torch.relu(x))),),
    ),
    "eval": Advice(
        "unsupported-builtin", 'eval("x + 1")', "write the code where it runs", whole(runs_text),
        (whole(lambda x: x.tanh() + (x + 1)),),
    ),
    "own name": Advice(
        "frame-introspection", "sys._getframe(0)", "pass what is needed as an argument",
        whole(own_name), (lambda compile: compile(lambda x, name: (torch.relu(x), name))(X, "own_name"),),
    ),
    "local class": Advice(
        "class-escapes", "class Pair:", "define the class at the top of the file",
        whole(local_class), (whole(lambda x: (x * Pair.first, Pair())),), same=False,
    ),
    "long": Advice(
        "trace-limit", "count", "let tensor operations do the loop's work",
        whole(counts_far), (whole(lambda x: x * (torch.arange(200_000) % 3).sum()),),
    ),
    **advice_rare.RARE,
    "traceback": Advice(
        "attribute", "traceback.format_exc()", "use the exception itself", whole(fails), (whole(fails_with_its_text),)
    ),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """By case: each break of the broken program, and its cost, as a recording shows them."""
    programs = {name: advice.broken for name, advice in ADVICE.items()}
    shown: dict[str, list[Any]] = {}
    for name, recording in recordings(tmp_path_factory.mktemp("advice"), programs):
        shown[name] = [(at, cost) for (_, at, _), cost in zip(breaks(recording), break_costs(recording))]
    return shown


@pytest.mark.parametrize("name", ADVICE)
def test_the_break_is_told_at_its_line(name: str, found: dict[str, list[Any]]) -> None:
    advice = ADVICE[name]
    told = [(at.code, at.location.file in FILES, advice.at in at.source) for at, _ in found[name]]
    assert (advice.code, True, True) in told, [(at.message, at.source) for at, _ in found[name]]
    at, cost = found[name][told.index((advice.code, True, True))]
    assert advice.change in at.hint and at.expression in at.source
    assert cost.seconds > 0
    assert not any(leak in at.message for leak in ("zuf", "u0", ".ours_stack", "Value", "<built-in")), at.message


@pytest.mark.parametrize("name", ADVICE)
def test_with_the_advice_followed_the_break_is_gone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "engine_backend", as_the_engine)
    advice = ADVICE[name]
    expected, _ = observe(advice.broken, lambda function: function)
    for program in advice.advised:
        eager, _ = observe(program, lambda function: function)
        STATISTICS.clear()
        compiled, _ = observe(program, ptdebug.compile)
        assert STATISTICS.graphs > 0 and not STATISTICS.graph_breaks, STATISTICS.reasons
        values = [[(path, described(leaf)) for path, leaf in leaves] for leaves in (eager, compiled, expected)]
        assert values[0] == values[1]
        assert values[0] == values[2] or not advice.same
