"""What is advised at a recompilation works: with the advice followed there is none.

`ADVICE` is a table of (recompiled, advised) programs, functions of `compile`. Where each of a few values is compiled
once whatever the program does, the advice says so, and there is no other program.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.records import Recompile
from ptdebug.artifacts.summary import guards, recompiles
from ptdebug.cli import wiring
from ptdebug.tracer.runtime.statistics import STATISTICS
from torch import nn

from ..checking import as_the_engine, recordings

Program = Callable[[Callable[..., Any]], Any]

X = torch.linspace(-1.1, 2.3, 24).reshape(6, 4)
SETTINGS = {"scale": 2.0}


@dataclass(frozen=True)
class Advice:
    """`again` is compiled again for a change of `what`, which was `before` and is `now`; `change` is a part of what
    avoids it, and `advised` follows that. `what` in the words of the program."""

    what: str
    before: str
    now: str
    change: str
    again: Program
    advised: Program | None = None


def calls(function: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> Program:
    """The program that compiles `function` and calls it with each of `calls`."""

    def program(compile):
        compiled = compile(function, **options)
        return [compiled(*args) for args in calls]

    return program


def calls_under(*contexts: Callable[[], Any]) -> Program:
    """The program that calls a function in each of `contexts`."""

    def program(compile):
        compiled = compile(lambda x: torch.tanh(x) @ x.t())
        for context in contexts:
            with context():
                compiled(X)

    return program


def by_mode(x, mode):
    return torch.tanh(x) * 2 if mode == "double" else torch.tanh(x)


def by_factor(x, factor):
    return torch.tanh(x) * factor


def dropped(x, training):
    return F.dropout(torch.tanh(x), 0.5, training)


def stacked(xs):
    return torch.stack(xs).sum(0)


def marked(*sizes: int) -> list[tuple[torch.Tensor]]:
    """A tensor of each first size; of the first the size is marked."""
    tensors = [torch.rand(size, 6, 4) for size in sizes]
    torch._dynamo.maybe_mark_dynamic(tensors[0], 0)
    return [(tensor,) for tensor in tensors]


def scaled(x):
    return torch.tanh(x) * SETTINGS["scale"]


def settings_changed(compile):
    compiled = compile(scaled)
    for SETTINGS["scale"] in (2.0, 3.0):
        compiled(X)


def settings_set_before(compile):
    compiled, SETTINGS["scale"] = compile(scaled), 3.0
    compiled(X), compiled(X)


def loops(x):
    for row in x:
        x = x + row
    return x


def doubled(x):
    return x * 2


COMPILED = ptdebug.compile(doubled)
PLACE = Path(__file__).name


def breaks_in_between(x):
    y = x.tanh()
    torch._dynamo.graph_break()
    return y.sin() + 1


class Counter(nn.Module):
    def __init__(self, complete: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)])
        if complete:
            self.extra: Any = None

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x if getattr(self, "extra", None) is None else x * 2


def sets_an_attribute_later(compile):
    model = Counter(False)
    compiled = compile(model)
    compiled(X)
    model.extra = None
    compiled(X)


def sets_it_at_once(compile):
    compiled = compile(Counter(True))
    compiled(X), compiled(X)


def grows(compile):
    model = Counter(True)
    compiled = compile(model)
    compiled(X)
    model.layers.append(nn.Linear(4, 4))
    compiled(X)


def grows_before(compile):
    model = Counter(True)
    model.layers.append(nn.Linear(4, 4))
    compiled = compile(model)
    compiled(X), compiled(X)


def freezes(compile):
    model = Counter(True)
    compiled = compile(model)
    compiled(X)
    model.layers[0].weight.requires_grad_(False)
    compiled(X)


def freezes_before(compile):
    model = Counter(True)
    model.layers[0].weight.requires_grad_(False)
    compiled = compile(model)
    compiled(X), compiled(X)


def hooked_later(compile):
    model = Counter(True)
    compiled = compile(model)
    compiled(X)
    model.layers[0].register_forward_hook(lambda module, args, out: out + 1)
    compiled(X)


def hooked_before(compile):
    model = Counter(True)
    model.layers[0].register_forward_hook(lambda module, args, out: out + 1)
    compiled = compile(model)
    compiled(X), compiled(X)


def scaled_by(factor):
    def step(x):
        return x.tanh() * factor

    return step


def prints(x, weights):
    for i, weight in enumerate(weights):
        print(weight)
        x = x + weight * i
    return x


def deterministic(times: int) -> Program:
    """`times` calls; before the second the algorithms are to be deterministic, or before the first."""

    def program(compile):
        compiled = compile(torch.tanh)
        try:
            if times == 1:
                compiled(X)
            torch.use_deterministic_algorithms(True)
            for _ in range(times):
                compiled(X)
        finally:
            torch.use_deterministic_algorithms(False)

    return program


ADVICE: dict[str, Advice] = {
    "size": Advice(
        "x.size(0)", "6", "9", "from now on this size is dynamic",
        calls(lambda x: x.tanh() * x.shape[0], (X,), (torch.rand(9, 4),)),
        lambda compile: calls(lambda x: x.tanh() * x.shape[0], *marked(6, 9))(compile),
    ),
    "size of one": Advice(
        "x.size(0)", "2 or more", "1", "nothing to do: sizes 0 and 1 are compiled separately",
        calls(lambda x: x.tanh() * 2, (X,), (torch.rand(1, 4),), dynamic=True),
    ),
    "size after a break": Advice(
        "y.size(0)", "6", "9", "dynamic=True where the function itself makes it before a graph break",
        calls(breaks_in_between, *marked(6, 9)), calls(breaks_in_between, (X,), (torch.rand(9, 4),), dynamic=True),
    ),
    "size of a loop": Advice(
        "x.size(0)", "3", "4", "maybe_mark_dynamic(x, 0)", calls(loops, (torch.rand(3, 4),), (torch.rand(4, 4),))
    ),
    "dtype": Advice(
        "x.dtype", "torch.float32", "torch.float64", "x.to(torch.float32)",
        calls(lambda x: x.tanh() + 1, (X,), (X.double(),)),
        calls(lambda x: x.tanh() + 1, (X,), (X.double().to(torch.float32),)),
    ),
    "strides": Advice(
        "x.stride(0)", "4", "1", "pass x.contiguous()",
        calls(lambda x: x.tanh().sum(1), (X,), (torch.rand(4, 6).t(),), dynamic=False),
        calls(lambda x: x.tanh().sum(1), (X,), (torch.rand(4, 6).t().contiguous(),), dynamic=False),
    ),
    "gradients": Advice(
        "x.requires_grad", "False", "True", "pass x.detach()",
        calls(lambda x: x.tanh() * 3, (X,), (X.clone().requires_grad_(),)),
        calls(lambda x: x.tanh() * 3, (X,), (X.clone().requires_grad_().detach(),)),
    ),
    "flag": Advice(
        "training", "True", "False", "nothing to do: True and False are compiled once each",
        calls(dropped, (X, True), (X, False)),
    ),
    "string": Advice(
        "mode", "'double'", "'single'", "pass the object that the string selects",
        calls(by_mode, (X, "double"), (X, "single")), calls(by_factor, (X, torch.tensor(2)), (X, torch.tensor(1))),
    ),
    "number": Advice(
        "factor", "2.5", "3.5", "pass it as a 0-d tensor",
        calls(by_factor, (X, 2.5), (X, 3.5)), calls(by_factor, (X, torch.tensor(2.5)), (X, torch.tensor(3.5))),
    ),
    "number of NumPy's": Advice(
        "factor", "np.int64(2)", "np.int64(3)", "pass it as a 0-d tensor",
        calls(lambda x, factor: torch.tanh(x) * factor, (X, np.int64(2)), (X, np.int64(3)), (X, np.int64(4))),
        calls(by_factor, (X, torch.tensor(2)), (X, torch.tensor(3))),
    ),
    "number without a sign": Advice(
        "factor", "np.uint8(2)", "np.uint8(3)", "or as a Python number (factor.item",
        calls(lambda x, factor: torch.tanh(x) * factor, (X, np.uint8(2)), (X, np.uint8(3))),
        calls(by_factor, (X, torch.tensor(2)), (X, torch.tensor(3))),
    ),
    "type": Advice(
        "type(factor)", "int", "float", "with values of one type",
        calls(by_factor, (X, 2), (X, 3.5)), calls(by_factor, (X, torch.tensor(2.0)), (X, torch.tensor(3.5))),
    ),
    "compiled function": Advice(
        "act", "the function `torch.tanh`",
        f"what torch.compile made of the function `doubled` in {PLACE}:{doubled.__code__.co_firstlineno}",
        "use one object for all calls", calls(lambda x, act: act(x) + 1, (X, torch.tanh), (X, COMPILED)),
    ),
    "function": Advice(
        "act", "the function `torch.relu`", "the function `torch.tanh`", "use one object for all calls",
        calls(lambda x, act: act(x) + 1, (X, torch.relu), (X, torch.tanh)),
        calls(lambda x, act: act(x) + 1, (X, torch.relu), (X, torch.relu)),
    ),
    "length": Advice(
        "len(xs)", "2", "3", "stack the items into one tensor",
        calls(stacked, ([X, X + 1],), ([X, X + 1, X + 2],)),
        lambda compile: calls(lambda x: x.sum(0), *marked(2, 3))(compile),
    ),
    "keys": Advice(
        "the keys of rows", "['a']", "['a', 'b']", "use the same keys, in the same order",
        calls(lambda rows: [x * 2 for x in rows.values()], ({"a": X},), ({"a": X, "b": X + 1},)),
        calls(lambda rows: [x * 2 for x in rows.values()], ({"a": X, "b": X + 1},), ({"a": X + 1, "b": X},)),
    ),
    "same tensor": Advice(
        "x, y", "different tensors", "the same tensor twice", "pass different tensors, as at the first call",
        calls(lambda x, y: x.tanh() + y, (X, X + 1), (X, X)),
        calls(lambda x, y: x.tanh() + y, (X, X + 1), (X, X.clone())),
    ),
    "setting of the program": Advice(
        "SETTINGS['scale']", "2.0", "3.0", "from now on this number is an input", settings_changed,
        settings_set_before,
    ),
    "grad mode": Advice(
        "grad mode", "on", "off", "always inside of torch.no_grad() or always outside",
        calls_under(nullcontext, torch.no_grad), calls_under(torch.no_grad, torch.no_grad),
    ),
    "autocast": Advice(
        "autocast on cpu", "off", "on", "always inside of torch.autocast or always outside",
        calls_under(nullcontext, lambda: torch.autocast("cpu")),
        calls_under(lambda: torch.autocast("cpu"), lambda: torch.autocast("cpu")),
    ),
    "inference mode": Advice(
        "inference mode", "off", "on", "always inside of torch.inference_mode() or always outside",
        calls_under(torch.no_grad, torch.inference_mode), calls_under(torch.inference_mode, torch.inference_mode),
    ),
    "deterministic algorithms": Advice(
        "torch.use_deterministic_algorithms", "off", "on", "set it once, before the function is called",
        deterministic(1), deterministic(2),
    ),
    "attribute": Advice(
        "the attributes of self", "without 'extra'", "with 'extra'", "set the attribute in __init__",
        sets_an_attribute_later, sets_it_at_once,
    ),
    "hooks": Advice(
        "the forward hooks of self.layers[0]", "0", "1", "register hooks before the first call", hooked_later,
        hooked_before,
    ),
    "number of words": Advice(
        "len(tags)", "0", "1", "keep the number of items constant",
        calls(lambda x, tags: x.tanh() * 2 if "double" in tags else x.tanh(), (X, ()), (X, ("double",))),
    ),
    "number for a tensor": Advice(
        "type(factor)", "torch.Tensor", "int", "with values of one type",
        calls(by_factor, (X, torch.tensor(2)), (X, 3)), calls(by_factor, (X, torch.tensor(2)), (X, torch.tensor(3))),
    ),
    "submodules": Advice(
        "the submodules of self.layers", "['0']", "['0', '1']", "build the module completely before the first call",
        grows, grows_before,
    ),
    "frozen": Advice(
        "self.layers[0].weight.requires_grad", "True", "False", "freeze parameters before the first call",
        freezes, freezes_before,
    ),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Recompile]]:
    """By case: the recompilations of the program, as a recording shows them."""
    programs = {name: advice.again for name, advice in ADVICE.items()}
    shown: dict[str, list[Recompile]] = {}
    for name, recording in recordings(tmp_path_factory.mktemp("advice"), programs):
        shown[name] = [record for _, record in recompiles(recording)]
    return shown


@pytest.mark.parametrize("name", ADVICE)
def test_what_changed_is_told(name: str, found: dict[str, list[Recompile]]) -> None:
    advice = ADVICE[name]
    (told,) = found[name]
    assert (told.subject, told.expected, told.actual) == (advice.what, advice.before, advice.now)
    assert advice.change in told.hint and told.guard
    assert told.call_site is not None and told.call_site.file == __file__


@pytest.mark.parametrize("name", [name for name, advice in ADVICE.items() if advice.advised])
def test_with_the_advice_followed_nothing_is_compiled_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "engine_backend", as_the_engine)
    advised = ADVICE[name].advised
    assert advised is not None
    STATISTICS.clear()
    advised(ptdebug.compile)
    assert STATISTICS.graphs > 0 and not STATISTICS.recompiles, STATISTICS.reasons


def test_what_a_loop_gives_is_told_by_its_variables(tmp_path: Path) -> None:
    programs = {"loop": calls(prints, (X, (1.5, 1.5, 1.5, 2.5)))}
    for _, recording in recordings(tmp_path, programs):
        told = {(record.subject, record.expected, record.actual) for _, record in recompiles(recording)}
        words = [guard.text for _, guard in guards(recording)]
    assert {("i", "1", "2"), ("weight", "1.5", "2.5")} <= told
    assert "i == 1" in words and not any(".ours_stack" in text for text in words)


def test_what_follows_from_a_change_is_not_told_as_another(tmp_path: Path) -> None:
    programs = {"closure": calls(lambda f, x: f(x) + 1, (scaled_by(2.0), X), (torch.sin, X))}
    for _, recording in recordings(tmp_path, programs):
        ((_, told),) = recompiles(recording)
    assert (told.subject, told.actual) == ("f", "the function `torch.sin`")
    assert told.other_failures == ()  # its closure is not there either


def test_entries_that_are_gone_are_told_by_their_container(tmp_path: Path) -> None:
    def appends(x, cache):
        out = x * 2
        for key in list(cache):
            cache[key].append(out)
        return out

    layers = torch.nn.ReLU(), torch.nn.Tanh()  # which its guards tell apart
    programs = {"cache": calls(appends, (X, {layer: [] for layer in layers}), (X, {}))}
    for _, recording in recordings(tmp_path, programs):
        ((_, told),) = recompiles(recording)
    assert (told.subject, told.expected, told.actual, told.other_failures) == ("len(cache)", "2", "0", ())


def test_one_object_twice_is_told_in_words(tmp_path: Path) -> None:
    def appends(x, some, more):
        some.append(x * 2)
        more.append(x * 3)
        return x + len(some)

    once: list[torch.Tensor] = []
    programs = {"lists": calls(appends, (X, [], []), (X, once, once))}
    for _, recording in recordings(tmp_path, programs):
        ((_, told),) = recompiles(recording)
    assert (told.subject, told.expected, told.actual) == ("some and more", "different objects", "the same object twice")
    assert told.guard == "L['some'] is not L['more']"


def test_conditions_on_what_was_there_before_a_break_are_told_in_words(tmp_path: Path) -> None:
    def parted(y, shown):
        return [part.sum() for part in y.split(4)] if y.size(0) % 4 == 0 else y

    def halves(x):
        return parted(torch.cat([x, x]), print("here"))

    programs = {"sizes": calls(halves, (X[:2],), (X[:4],), (X[:3],))}
    for _, recording in recordings(tmp_path, programs):
        told = [record for _, record in recompiles(recording)]
    assert any(record.expected == "true" for record in told)
    texts = [f"{record.subject} {record.actual} {record.hint} {record.other_failures}" for record in told]
    assert not any(".ours_stack" in text for text in texts)


def test_arrays_are_told_by_their_names(tmp_path: Path) -> None:
    programs = {"array": calls(lambda x, rows: x[rows] * 2, (X, np.arange(3)), (X, np.arange(4)))}
    for _, recording in recordings(tmp_path, programs):
        ((_, told),) = recompiles(recording)
    assert (told.subject, told.expected, told.actual) == ("rows.size(0)", "3", "4")
    assert "mark_dynamic" not in told.hint


def test_what_is_kept_for_a_tensor_is_told_without_its_numbers(tmp_path: Path) -> None:
    weight = torch.ones(3)  # as an optimizer's state has it

    def scaled(x, state):
        return x * 2 if state[weight]["step"] == 1 else x + 1

    programs = {"state": calls(scaled, (X, {weight: {"step": 1}}), (X, {weight: {"step": 2}}))}
    for _, recording in recordings(tmp_path, programs):
        ((_, told),) = recompiles(recording)
    assert re.fullmatch(r"state\[<Tensor \[3\] at 0x[0-9a-f]+>\]\['step'\]", told.subject)
