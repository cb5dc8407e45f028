"""Optimizers of torch: a compiled step is one graph, and twenty of them leave what eager leaves."""
from __future__ import annotations

import functools

import ptdebug
import pytest
import torch
from ptdebug.artifacts.records import Schedule
from ptdebug.cli import session

SHAPES = ((6, 4), (6,), (), (2, 3, 2))

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, foreach=True),
    "SGD with momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, 0.01, foreach=True),
    "Adam, amsgrad": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True, maximize=True, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.9, centered=True, foreach=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1, lr_decay=0.1),
    "Adadelta": lambda p: torch.optim.Adadelta(p, foreach=True),
    "Adamax": lambda p: torch.optim.Adamax(p, 0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, 0.01),
    "RAdam": lambda p: torch.optim.RAdam(p, 0.01, decoupled_weight_decay=True, weight_decay=0.1),
    "ASGD": lambda p: torch.optim.ASGD(p, 0.05, t0=5),
    "Rprop": lambda p: torch.optim.Rprop(p, 0.01),
}


def parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype))
            for shape in SHAPES]


def set_gradients(params, number):
    generator = torch.Generator().manual_seed(number)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)


def distance(params, exact):
    return max(float((p.detach().double() - e.detach()).abs().max()) for p, e in zip(params, exact))


def train(make, steps=20, compile=lambda step: step, dtype=torch.float32, between=lambda optimizer, i: None):
    """Parameters and optimizer after some steps."""
    params = parameters(dtype)
    optimizer = make(params)
    step = compile(optimizer.step)
    for i in range(steps):
        set_gradients(params, i)
        step()
        between(optimizer, i)
    return params, optimizer


def compiled_once(graphs, recompiles=0):
    """A `compile` and the check that so many graphs, without breaks and fallbacks, came of it."""
    before, said = dict(ptdebug.stats()), set(session.current().messages)

    def check():
        after = ptdebug.stats()
        found = [after[key] - before[key] for key in ("graphs", "graph_breaks", "recompiles")]
        assert found == [graphs, 0, recompiles], ptdebug.stats()["reasons"]
        assert set(session.current().messages) == said

    return ptdebug.compile, check


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_twenty_steps_are_as_exact_as_in_eager(name):
    make = OPTIMIZERS[name]
    first_step_differs = "momentum" in name and "SGD" in name
    compile, check = compiled_once(1 + first_step_differs, int(first_step_differs))
    got, mine = train(make, compile=compile)
    check()
    expected, theirs = train(make)
    exact, _ = train(make, dtype=torch.float64)
    assert distance(got, exact) <= 2 * distance(expected, exact) + 1e-7
    ours, reference = mine.state_dict()["state"], theirs.state_dict()["state"]
    assert ours.keys() == reference.keys()
    for key, values in reference.items():
        assert ours[key].keys() == values.keys()
        for field, value in values.items():
            torch.testing.assert_close(ours[key][field], value, msg=lambda m, f=field: f"{f}: {m}")


def test_a_learning_rate_that_changes_is_an_input():
    def make(params):
        groups = [{"params": params[:2], "lr": 0.1}, {"params": params[2:]}]
        return torch.optim.SGD(groups, 0.01, weight_decay=0.1)

    schedulers = {}

    def scheduled(optimizer, i):
        if optimizer not in schedulers:
            schedulers[optimizer] = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        schedulers[optimizer].step()

    compile, check = compiled_once(graphs=2, recompiles=1)
    got, _ = train(make, compile=compile, between=scheduled)
    check()
    expected, _ = train(make, between=scheduled)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)


def test_a_scheduler_that_wraps_the_step_leaves_it_one_graph():
    params = parameters()
    optimizer = torch.optim.SGD(params, 0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 5)
    compile, check = compiled_once(graphs=1)
    set_gradients(params, 0)
    compile(lambda: optimizer.step())()
    check()
    assert optimizer._opt_called


def test_a_learning_rate_in_a_tensor():
    def make(params):
        return torch.optim.AdamW(params, torch.tensor(0.01), foreach=False)

    def halve(optimizer, i):
        optimizer.param_groups[0]["lr"].mul_(0.9)

    compile, check = compiled_once(graphs=1)
    got, _ = train(make, 5, compile, between=halve)
    check()
    expected, _ = train(make, 5, between=halve)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)


def test_parameters_without_a_gradient_are_left_alone():
    params = parameters()
    optimizer = torch.optim.Adam(params, 0.1)
    set_gradients(params, 0)
    params[1].grad = None
    before = params[1].detach().clone()
    ptdebug.compile(optimizer.step)()
    assert torch.equal(params[1], before) and params[1] not in optimizer.state
    assert optimizer.state[params[0]]["step"] == 1


def test_in_place_and_seen_by_autograd():
    params = parameters()
    optimizer = torch.optim.Adam(params, 0.1)
    set_gradients(params, 0)
    step = ptdebug.compile(optimizer.step)
    addresses, versions = [p.data_ptr() for p in params], [p._version for p in params]
    step()
    assert [p.data_ptr() for p in params] == addresses
    assert all(p._version > v for p, v in zip(params, versions))


def test_a_whole_training_step_in_one_function():
    def run(compile):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        optimizer = torch.optim.Adam(model.parameters(), 0.01)

        def step(x, y):
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = compile(step)
        generator = torch.Generator().manual_seed(0)
        losses = [step(torch.randn(5, 4, generator=generator), torch.randn(5, 2, generator=generator))
                  for _ in range(4)]
        return losses, list(model.parameters())

    before = ptdebug.stats()["graphs"]
    losses, params = run(ptdebug.compile)
    assert ptdebug.stats()["graphs"] - before >= 2  # before and after the break at backward()
    expected_losses, expected = run(lambda f: f)
    for a, b in zip([*losses, *params], [*expected_losses, *expected]):
        torch.testing.assert_close(a, b)


def test_a_device_without_kernels_is_left_to_eager():
    param = torch.nn.Parameter(torch.empty(3, device="meta"))
    param.grad = torch.empty(3, device="meta")
    optimizer = torch.optim.Adam([param])
    step = ptdebug.compile(optimizer.step)
    step()
    step()
    assert optimizer.state[param]["step"] == 2
    assert any("no kernels for the device meta" in message for message in session.current().messages)


def test_many_parameters_are_a_few_kernels():
    def train_all(compile):
        generator = torch.Generator().manual_seed(0)
        params = [torch.nn.Parameter(torch.randn(n, 3, generator=generator)) for n in range(1, 9)]
        optimizer = torch.optim.AdamW(params, 0.01)
        step = compile(optimizer.step)
        for _ in range(5):
            for p in params:
                p.grad = torch.randn(p.shape, generator=generator)
            step()
        return params

    with ptdebug.record("few kernels") as recording:
        got = train_all(ptdebug.compile)
    [(_, schedule)] = recording.records(Schedule)
    assert len(schedule.groups) <= 3 and max(len(g.members) for g in schedule.groups) >= 8
    for one, other in zip(got, train_all(lambda step: step)):
        torch.testing.assert_close(one, other)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_on_a_gpu_with_steps_counted_on_the_cpu(name):
    def on_gpu(step_compile):
        params = [torch.nn.Parameter(p.detach().cuda()) for _ in range(3) for p in parameters()]
        optimizer = OPTIMIZERS[name](params)
        step = step_compile(optimizer.step)
        for i in range(6):
            for k, p in enumerate(params):
                generator = torch.Generator().manual_seed(100 * i + k)
                p.grad = torch.randn(p.shape, generator=generator).cuda()
            step()
        return params, optimizer

    compile, check = compiled_once(1 + (name == "SGD with momentum"), int(name == "SGD with momentum"))
    got, mine = on_gpu(compile)
    check()
    expected, theirs = on_gpu(lambda step: step)
    torch.testing.assert_close([p.detach() for p in got], [p.detach() for p in expected])
    for ours, reference in zip(mine.state.values(), theirs.state.values()):
        for field, value in reference.items():
            torch.testing.assert_close(ours[field], value, msg=lambda m, f=field: f"{f}: {m}")


def test_looking_for_an_entry_does_not_fill_in_a_defaultdict():
    """A guard of another call's optimizer asks for the state of its parameter, which this one's does not have."""

    def fn(x):
        weight = x.detach().clone().requires_grad_(True)
        optimizer = torch.optim.Adam([weight], lr=0.1)
        (weight * 2).sum().backward()
        optimizer.step()
        return optimizer, weight

    f = ptdebug.compile(fn, backend=lambda module, inputs: module.forward)
    for number in range(3):
        optimizer, weight = f(torch.ones(2) * number)
        assert [key is weight for key in optimizer.state] == [True]


class OfItsOwn(torch.optim.Optimizer):
    """An optimizer that a program wrote: its first step finds no state, and makes it."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["mean"] = torch.zeros_like(p)
                p.add_(state["mean"].mul_(0.9).add_(p.grad), alpha=-group["lr"])


def test_the_state_of_a_programs_own_optimizer_is_made_once():
    compile, check = compiled_once(graphs=2, recompiles=1)
    params, optimizer = train(OfItsOwn, steps=4, compile=compile)
    check()
    expected, reference = train(OfItsOwn, steps=4)
    for p, e in zip(params, expected):
        torch.testing.assert_close(p.detach(), e.detach())
        torch.testing.assert_close(optimizer.state[p]["mean"], reference.state[e]["mean"])


@pytest.mark.parametrize("key", [lambda p: p, lambda p: (p, 1)])
def test_what_is_not_in_a_dict_yet_may_be_there_at_the_next_call(key):
    def program(seen, p):
        if key(p) in seen:
            return p * 3
        seen[key(p)] = len(seen)
        return p * 2

    f, seen = ptdebug.compile(program, backend=lambda module, inputs: module.forward), {}
    p, q = torch.ones(1), torch.ones(1)
    assert [f(seen, each).item() for each in (p, p, q, p, q)] == [2, 3, 2, 3, 3]


def test_an_optimizer_that_torchdynamo_has_marked_is_followed(monkeypatch):  # as its first use in a process does
    original = torch.optim.SGD._init_group
    marked = functools.wraps(original)(lambda self, *args: original(self, *args))
    marked._torchdynamo_disable, marked._torchdynamo_orig_callable = True, original
    monkeypatch.setattr(torch.optim.SGD, "_init_group", marked)
    compile, check = compiled_once(graphs=1)
    train(lambda params: torch.optim.SGD(params, 0.1, weight_decay=0.3), steps=3, compile=compile)
    check()


@pytest.mark.parametrize("shape", [(), (1,)])
def test_gradients_of_a_scaled_loss_are_unscaled_in_the_graph(shape):
    """As GradScaler does; one that is infinite is told."""
    def unscale(gradients, found, scale):
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, scale.double().reciprocal().float())
        return torch._foreach_norm(gradients)

    def use(compile):
        infinite, nan = torch.tensor([1.0, float("-inf")]), torch.tensor([float("nan")])
        lists = [torch.ones(3), torch.arange(4.0), torch.tensor(2.0)], [infinite], [nan]
        found = [torch.zeros(shape) for _ in lists]
        norms = [compile(unscale)(held, told, torch.full(shape, 4.0)) for held, told in zip(lists, found)]
        return norms, lists, found

    with ptdebug.record("scaled") as recording:
        got = use(ptdebug.compile)
    assert {compiled.status for compiled in recording.compiles()} == {"compiled"}
    torch.testing.assert_close(got, use(lambda function: function), equal_nan=True)
