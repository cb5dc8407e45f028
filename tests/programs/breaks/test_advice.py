"""What is advised at a break works: with the advice followed the program has no break there, and computes the same.

`ADVICE` is the table of (broken, advised) programs, with that of `advice_rare.py`: what is said of the break, and one
program for each way out that is named. A program is a function of `compile`; `whole(f)` calls f compiled, on X.
"""
from __future__ import annotations

import copy
import dataclasses
import io
import logging
import os
import random
import statistics
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
import torch.nn.functional as F
from ptdebug.artifacts.summary import break_costs, breaks
from ptdebug.cli import wiring
from ptdebug.tracer.runtime.statistics import STATISTICS
from torch import nn

from ..checking import as_the_engine, described, observe, recordings
from . import advice_rare
from .advice import Advice, Program, X, whole

FILES = (__file__, advice_rare.__file__)
LOCK, LOG = threading.Lock(), logging.getLogger("advice")
LAYER = nn.Linear(4, 4)
OF_TEXTS = "make strings of what the compiled function returns, or leave it out while compiling"
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


# ---- what depends on data --------------------------------------------------------------------------------------------
def branch(x):
    if x.sum() > 0:
        return x.sin()
    return x.cos()


def halve(x):
    y = x * 2
    while y.norm() > 1:
        y = y / 2
    return y


def halve_six_times(x):
    y = x * 2
    for _ in range(6):
        y = torch.where(y.norm() > 1, y / 2, y)
    return y


def add_by_data(x):
    y = x
    for _ in range(int(x.sum())):
        y = y + x
    return y


def add_twelve_times(x):
    y = x
    for i in range(12):
        y = torch.where(i < x.sum().int(), y + x, y)
    return y


def add_in_a_while_loop(x):
    count, start = x.sum().int(), torch.zeros((), dtype=torch.int32)
    return torch.while_loop(lambda i, y: i < count, lambda i, y: (i + 1, y + x), (start, x.clone()))[1]


def picks_a_row(x):
    i = int(x.argmax())
    return x[i // 4] * 2


def picks_a_row_by_index(x):
    i = x.argmax() // 4
    return x[i.view(1)].squeeze(0) * 2


@dataclasses.dataclass(order=True)
class Scored:
    score: float


def orders_scored(x):
    found = [Scored(score) for score in x[0].tolist()]
    return sorted(found, reverse=True)[0].score * torch.tensor(2.0)


TARGETS = torch.tensor([[1]])


def inverted_inside(x):
    return torch.istft(torch.complex(x, x), 4, 2, window=torch.ones(4)) + 1


def inverted_after(compile):
    made = compile(lambda x: torch.complex(x, x))(X)
    return torch.istft(made, 4, 2, window=torch.ones(4)) + 1


def averaged_inside(compile):
    """A branch in a function of torch that is called."""
    model = torch.nn.Linear(4, 4)
    torch.nn.init.eye_(model.weight)
    average = torch.optim.swa_utils.AveragedModel(model)

    def step(x):
        loss = model(x).sum()
        average.update_parameters(model)
        return loss

    compile(step)(X)
    return average.module.weight


def averaged_after(compile):
    model = torch.nn.Linear(4, 4)
    torch.nn.init.eye_(model.weight)
    average = torch.optim.swa_utils.AveragedModel(model)
    compile(lambda x: model(x).sum())(X)
    average.update_parameters(model)
    return average.module.weight


def how_many(x):
    kept = x[x > 0.5]
    return kept.sum() * 2 if kept.shape[0] > 3 else kept.sum()


def how_many_of_known_size(x):
    total = torch.where(x > 0.5, x, 0).sum()
    return torch.where((x > 0.5).sum() > 3, total * 2, total)


def texts_after(compile):
    y, row = compile(lambda x: (x * 2, x[0].int()))(X)
    return y, [str(value) for value in row.tolist()]


def mean_after(compile):
    y, mean = compile(lambda x: (x * 2, x.mean()))(X)
    return y, f"{mean}"


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
    "branch": Advice(
        "data-dependent-branch", "x.sum() > 0", "torch.where(condition, a, b), or use torch.cond; or test before",
        whole(branch), (
            whole(lambda x: torch.where(x.sum() > 0, x.sin(), x.cos())),
            whole(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))),
            lambda compile: compile(lambda x, more: x.sin() if more else x.cos())(X, bool(X.sum() > 0)),
        ),
    ),
    "while": Advice(
        "data-dependent-branch", "y.norm() > 1", "loop a fixed number of times and mask with torch.where",
        whole(halve), (
            whole(halve_six_times),
            whole(lambda x: torch.while_loop(lambda y: y.norm() > 1, lambda y: (y / 2,), (x * 2,))[0]),
        ),
    ),
    "turns": Advice(
        "data-dependent-value", "range(int(x.sum()))", "or use torch.while_loop",
        whole(add_by_data), (whole(add_twelve_times), whole(add_in_a_while_loop)),
    ),
    "item of a list": Advice(
        "data-dependent-value", "[x, x * 2][int(x.argmax()) % 2]", "torch.stack(items)[i.view(1)].squeeze(0)",
        whole(lambda x: [x, x * 2][int(x.argmax()) % 2] + 1),
        (whole(lambda x: torch.stack([x, x * 2])[(x.argmax() % 2).view(1)].squeeze(0) + 1),),
    ),
    "function of a list": Advice(
        "data-dependent-value", "[torch.sin, torch.cos][int(x.argmax()) % 2]", "of functions or modules, what each",
        whole(lambda x: [torch.sin, torch.cos][int(x.argmax()) % 2](x)),
        (whole(lambda x: torch.stack([x.sin(), x.cos()])[(x.argmax() % 2).view(1)].squeeze(0)),),
    ),
    "row": Advice(
        "data-dependent-shape", "x[i // 4]", "`x[i.view(1)].squeeze(0)` instead of `x[i]`), or use torch.gather",
        whole(picks_a_row), (
            whole(picks_a_row_by_index),
            whole(lambda x: torch.gather(x, 0, (x.argmax() // 4).expand(1, 4)).squeeze(0) * 2),
        ),
    ),
    "how many": Advice(
        "data-dependent-branch", "kept.shape[0] > 3", "torch.where(mask, x, 0) instead of x[mask]",
        whole(how_many), (whole(how_many_of_known_size),), same=False,
    ),
    "size": Advice(
        "data-dependent-shape", "x[x > 0.5].chunk(2)", "torch.where(mask, x, 0) instead of x[mask]",
        whole(lambda x: sum(part.amax() for part in x[x > 0.5].chunk(2))),
        (whole(lambda x: sum(part.amax() for part in torch.where(x > 0.5, x, 0).view(-1).chunk(2))),), same=False,
    ),
    "row drawn": Advice(
        "random-value", "x[random.randint(0, 2)]", "sample it before the compiled function's call",
        whole(lambda x: x[random.randint(0, 2)] * 2),
        (lambda compile: compile(lambda x, i: x[i] * 2)(X, random.randint(0, 2)),), same=False,
    ),
    "rounded": Advice(
        "data-dependent-value", "round(float(x.max()))", "keep it a tensor (0-dimensional tensors work in arithmetic)",
        whole(lambda x: x * round(float(x.max()))), (whole(lambda x: x * x.max().round()),),
    ),
    "texts": Advice(
        "data-dependent-value", "str(value)", "or read it after the compiled function returned",
        whole(lambda x: (x * 2, [str(value) for value in x[0].int().tolist()])), (texts_after,),
    ),
    "text of a tensor": Advice(
        "data-dependent-value", 'f"{x.mean()}"', OF_TEXTS, whole(lambda x: (x * 2, f"{x.mean()}")), (mean_after,),
    ),
    "formatted": Advice(
        "data-dependent-value", '"%s" % x.mean().item()', OF_TEXTS,
        whole(lambda x: (x * 2, "%s" % x.mean().item())),  # noqa: UP031
        (lambda compile: (lambda y, mean: (y, f"{mean.item()}"))(*compile(lambda x: (x * 2, x.mean()))(X)),),
    ),
    "equal": Advice(
        "data-dependent-value", "x.equal(x.abs())", "(a == b).all()",
        whole(lambda x: x * x.equal(x.abs())), (whole(lambda x: x * (x == x.abs()).all()),),
    ),
    "fold": Advice(
        "data-dependent-branch", "max(x[0])", "x.max()",
        whole(lambda x: x * max(x[0])), (whole(lambda x: x * x[0].max()),),
    ),
    "lengths": Advice(
        "data-dependent-shape", "F.ctc_loss(", "compute the loss on what the compiled function returns",
        whole(lambda x: F.ctc_loss(x.log_softmax(-1)[:, None], TARGETS, (2,), (1,))),
        (lambda compile: F.ctc_loss(compile(lambda x: x.log_softmax(-1)[:, None])(X), TARGETS, (2,), (1,)),),
    ),
    "a number that an operator needs": Advice(
        "data-dependent-value", "F.dropout(", "before or after the compiled function",
        whole(lambda x: F.dropout(x, x[0, 0].abs().item() / 9, False)),
        (lambda compile: F.dropout(*compile(lambda x: (x * 1, x[0, 0].abs() / 9))(X), False),),
    ),
    "what looks first": Advice(
        "data-dependent-value", "torch.istft(", "before or after the compiled function", whole(inverted_inside),
        (inverted_after,),
    ),
    "median": Advice(
        "data-dependent-branch", "statistics.median(x[:, 0].tolist())", "x.median()",
        whole(lambda x: x - statistics.median(x[:, 0].tolist())), (whole(lambda x: x - x[:, 0].median()),),
    ),
    "order of dataclasses": Advice(
        "data-dependent-branch", "sorted(found", "use the tensor's own function, which makes one tensor",
        whole(orders_scored), (whole(lambda x: x[0].max() * 2),),
    ),
    "branch of torch's": Advice(
        "data-dependent-branch", "average.update_parameters(model)", "before or after the compiled function",
        averaged_inside, (averaged_after,),
    ),
    "random branch": Advice(
        "random-value", "random.random() > 0.5", "pass it as an argument, or use torch.rand and torch.where",
        whole(lambda x: x.sin() if random.random() > 0.5 else x.cos()), (
            lambda compile: compile(lambda x, more: x.sin() if more else x.cos())(X, random.random() > 0.5),
            whole(lambda x: torch.where(torch.rand(()) > 0.5, x.sin(), x.cos())),
        ), same=False,
    ),
    "random branch on a whole number": Advice(
        "random-value", "random.randint(0, 1) > 0", "pass it as an argument, or use torch.rand and torch.where",
        whole(lambda x: x.sin() if random.randint(0, 1) > 0 else x.cos()), (
            lambda compile: compile(lambda x, more: x.sin() if more else x.cos())(X, random.randint(0, 1) > 0),
        ), same=False,
    ),
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
        "python-random", "numpy.random.rand()", "use torch.rand and its kin",
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
        "disabled-function", "disabled_post(torch.relu(x))", "away, or call it outside",
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
