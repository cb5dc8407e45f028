"""What CUDA graphs must keep: results that are held, states, saved tensors, moving inputs. See machine.py."""
from __future__ import annotations

import random
import threading

import ptdebug
import pytest
import torch
from ptdebug.cli.api import cudagraph_mark_step_begin
from ptdebug.engine.runtime.cuda_graphs import statistics
from ptdebug.engine.runtime.cuda_graphs.made import Made
from ptdebug.engine.runtime.cuda_graphs.runner import SIZES
from torch import nn

from .machine import OnCpu, on_cpu as on_cpu


def compiled(function, **options):
    return ptdebug.compile(function, options={"force_disable_caches": True}, **options)


def close(one, other):
    return torch.allclose(one, other, atol=1e-5)


def test_inputs_that_stay_are_read_in_place_and_those_that_move_are_copied(on_cpu):
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()
    fast, x = compiled(net), torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(6):
            x.add_(1)
            assert close(fast(x), net(x))
        found = on_cpu()[""]
        assert (found.captures, found.replays, dict(found.copies)) == (1, 4, {})
        kept = []  # memory that a later input cannot get
        for _ in range(4):
            kept.append(torch.randn(3, 8))
            assert close(fast(kept[-1]), net(kept[-1]))
        assert found.captures == 2 and dict(found.copies) == {"arg0": 4} and found.recaptures[0].inputs == ("arg0",)
        net[0].weight.data = torch.randn(16, 8)  # a parameter that moves is never copied
        for _ in range(4):
            assert close(fast(x), net(x))
        with torch.no_grad():
            net[0].weight.mul_(2)
        assert close(fast(x), net(x))
    assert found.captures == 3 and set(found.copies) == {"arg0"}


def test_results_that_are_held_keep_their_values(on_cpu):
    fast, x = compiled(lambda x: (x * 2, (x + 1)[0])), torch.randn(4, 4)
    held = []
    for k in range(9):
        x.fill_(k)
        held.append([*fast(x)])
        held[-1].append(held[-1][0][1:].t())
    for k, (twice, more, view) in enumerate(held):
        assert twice.eq(2 * k).all() and more.eq(k + 1).all() and view.eq(2 * k).all() and more.shape == (4,)
    found = on_cpu()[""]
    assert found.replays > 4 and found.cloned == 2 * (found.replays - 1)
    del held[:]
    fast(x)
    cudagraph_mark_step_begin()
    before = found.cloned
    fast(x)
    assert found.cloned == before  # lent again


def test_one_result_in_use_at_the_next_call_is_cloned_then(on_cpu):
    fast, x = compiled(lambda x: x * 2), torch.zeros(4)
    out = None
    for k in range(8):
        x.fill_(k)
        before, out = out, fast(x)
        assert before is None or before.eq(2 * (k - 1)).all()
        del before
        assert out.eq(2 * k).all()
    found = on_cpu()[""]
    assert (found.captures, found.replays, found.cloned) == (1, 5, 4)


def test_a_result_whose_memory_is_replaced(on_cpu):
    fast, x = compiled(lambda x: x * 2), torch.zeros(4)
    for k in range(10):
        x.fill_(k)
        out = fast(x)
        assert out.eq(2 * k).all() and out.shape == (4,), k
        out.resize_(4000)
        del out
    assert on_cpu()[""].captures == 2 and on_cpu()[""].replays > 4


def test_states_that_are_written_stay_the_programs(on_cpu):
    net = nn.BatchNorm1d(4)
    twin = nn.BatchNorm1d(4)
    fast = compiled(lambda x: net(x).detach())
    for k in range(7):
        x = torch.randn(5, 4)
        assert torch.allclose(fast(x), twin(x).detach(), atol=1e-6)
        if k == 4:
            net.running_mean = net.running_mean.clone()
        assert torch.allclose(net.running_mean, twin.running_mean, atol=1e-6)
        assert net.num_batches_tracked == twin.num_batches_tracked == k + 1

    def step(state, x):
        state.add_(x)
        return state, state * 2

    fast = compiled(step)
    states = [torch.zeros(3) for _ in range(8)]
    for k, state in enumerate(states):  # a state that moves is copied in and back
        version = state._version
        same, twice = fast(state, torch.ones(3) * k)
        assert same is state and state.eq(k).all() and twice.eq(2 * k).all() and state._version == version + 1


def test_training_steps_and_two_forwards_before_a_backward(on_cpu):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    twin = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    twin.load_state_dict(net.state_dict())
    fast = compiled(net)
    sides = [(call, model, torch.optim.SGD(model.parameters(), 0.01)) for call, model in ((fast, net), (twin, twin))]
    for k in range(12):
        x, y = torch.randn(5, 8), torch.randn(5, 8)
        losses = []
        for call, _model, optimizer in sides:
            if k % 3:
                optimizer.zero_grad()  # else gradients add up
            first = call(x).pow(2).sum()
            second = call(y).sin().sum() if k > 5 else first
            first.backward(retain_graph=k > 5)
            if k > 5:
                second.backward()
            optimizer.step()
            losses.append(first.detach() + second.detach())
        assert torch.allclose(*losses, atol=1e-4), k
        pairs = zip(net.parameters(), twin.parameters())
        assert all(torch.allclose(a.grad, b.grad, atol=1e-3) for a, b in pairs), k
    found = on_cpu()
    assert found[""].replays > 6 and found["backward"].replays > 6, found


def test_dynamic_sizes_are_bounded(on_cpu):
    fast = compiled(lambda x: x.sum(0) * x.shape[0], dynamic=True)
    for size in (*range(2, 14), *range(2, 14), *range(2, 14), *range(2, 14)):
        x = torch.randint(-9, 9, (size, 3)).float()
        assert torch.equal(fast(x), x.sum(0) * size)
    found = on_cpu()[""]
    assert found.sizes == 8 and found.captures == 8 and found.replays == 16
    assert found.launches[SIZES] == 16


def test_results_that_are_inputs_and_numbers(on_cpu):
    fast = compiled(lambda x, y: (x, x + y, x.shape[0], None))
    for _ in range(5):
        x, y = torch.randn(3), torch.randn(3)
        one, two, size, nothing = fast(x, y)
        assert one is x and torch.equal(two, x + y) and size == 3 and nothing is None


def test_views_of_inputs_are_views_of_the_programs(on_cpu):
    fast = compiled(lambda x: (x.t(), x[1:], x * 2), dynamic=True)
    held = []
    for k in range(6):
        held.append(torch.randn(4 + k % 2, 3))
        turned, rest, _ = fast(held[-1])
        assert turned._is_view() and turned._base is held[-1] and rest.data_ptr() == held[-1][1].data_ptr()
        held[-1].fill_(k)
        assert turned.shape == (3, 4 + k % 2) and turned.eq(k).all()
    assert on_cpu()[""].replays == 2


def test_broadcast_inputs_are_copied_as_they_are(on_cpu):
    fast = compiled(lambda x: x * 2)
    held = []
    for _k in range(6):
        held.append(torch.randn(4, 1).expand(4, 3))
        assert torch.equal(fast(held[-1]), held[-1] * 2)
    assert on_cpu()[""].copied_bytes["arg0"] == on_cpu()[""].copies["arg0"] * 16


def test_what_cannot_be_captured_runs_and_says_why(on_cpu, monkeypatch):
    def refuse(self, call, inputs, pool):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(OnCpu, "record", refuse)
    fast = compiled(lambda x: x.sin())
    x = torch.randn(3)
    for _ in range(5):
        assert close(fast(x), x.sin())
    found = on_cpu()[""]
    assert found.captures == 0 and found.stopped.startswith("it cannot be captured: RuntimeError: operation not")


def test_other_graphs_are_captured_anew_when_a_capture_fails(on_cpu, monkeypatch):
    """The generator has another state then, and a replay would raise, or draw from the one before."""
    x, first, second = torch.randn(3), compiled(lambda x: x.sin()), compiled(lambda x: x.cos())
    for _ in range(4):
        assert close(first(x), x.sin())
    earlier = on_cpu()[""]

    def refuse(self, call, inputs, pool):
        raise RuntimeError("operation not permitted when stream is capturing")

    with monkeypatch.context() as patch:
        patch.setattr(OnCpu, "record", refuse)
        for _ in range(4):
            assert close(second(x), x.cos())
    assert (earlier.captures, earlier.replays) == (1, 2)
    for _ in range(4):
        assert close(first(x), x.sin())
    assert (earlier.captures, earlier.replays, earlier.stopped) == (2, 4, "")


@pytest.mark.parametrize("calls", [2, 5])  # before: the next call captures, or replays
def test_a_replay_that_raises(on_cpu, monkeypatch, calls):
    """The call is run again in eager, unless inputs were written: then the program gets what was raised."""
    reads, writes, x, y = compiled(lambda x: x.sin()), compiled(lambda x: x.add_(1)), torch.randn(3), torch.zeros(3)
    for _ in range(calls):
        reads(x), writes(y)

    def no_memory(self, inputs, cloned):
        raise torch.OutOfMemoryError("for a copy")

    monkeypatch.setattr(Made, "_made", no_memory)
    assert close(reads(x), x.sin())
    with pytest.raises(torch.OutOfMemoryError):
        writes(y)
    assert y.eq(calls + 1).all()


@pytest.mark.parametrize("threads", [3])
def test_threads_take_turns(on_cpu, threads):
    fast = compiled(lambda x: x * 2 + 1)
    wrong = []

    def work(seed):
        for k in range(40):
            x = torch.full((64,), float(seed * 100 + k))
            out = fast(x)
            if not out.eq(2 * x + 1).all():
                wrong.append((seed, k))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong and on_cpu()[""].replays > 40


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_program_does_in_between(on_cpu, seed):
    """A random sequence of calls, of results that are held, changed and dropped, and of inputs and states that move."""
    torch.manual_seed(seed)
    choose = random.Random(seed)

    def step(x, weight, state):
        state.mul_(0.5).add_(x.sum(0))
        y = x @ weight
        return y, y.t()[0], (y + state).relu(), x

    fast = compiled(step, dynamic=True)
    weight, state = nn.Parameter(torch.randn(4, 4)), torch.zeros(4)
    x, held, twin = torch.randn(3, 4), [], state.clone()
    for _ in range(150):
        match choose.choice(("call",) * 6 + ("new", "fill", "size", "move", "train", "drop", "write", "mark", "state")):
            case "new":
                x = torch.randn(x.shape)
            case "fill":
                x = x.clone().normal_()
            case "size":
                x = torch.randn(choose.choice((2, 3, 5)), 4)
            case "move":
                weight.data = torch.randn(4, 4)
            case "train":
                with torch.no_grad():
                    weight.mul_(-1.1)
            case "drop":
                del held[: choose.randrange(4)]
            case "write" if held:
                results, expected = choose.choice(held)
                for one, other in ((results[0], expected[0]), (results[2], expected[2])):
                    one.add_(1), other.add_(1)
            case "mark":
                cudagraph_mark_step_begin()
            case "state":
                state = state.clone()
            case _:
                with torch.no_grad():
                    results, expected = fast(x, weight, state), step(x, weight, twin)
                assert results[3] is x and close(state, twin)
                if choose.random() < 0.4:
                    held.append((list(results[:3]), list(expected[:3])))
                del results, expected
        for results, expected in held:
            assert all(close(one, other) for one, other in zip(results, expected))
    assert on_cpu()[""].replays > 15, on_cpu()


@pytest.mark.parametrize("seed", range(3))
def test_training_in_any_order(on_cpu, seed):
    """Forwards and backwards in a random order, gradients that add up, results that are held, steps of an optimizer."""
    torch.manual_seed(seed)
    choose = random.Random(seed)
    make = lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double()
    nets = make(), make()
    nets[1].load_state_dict(nets[0].state_dict())
    sides = (compiled(nets[0]), nets[0]), (nets[1], nets[1])
    waiting, held = [], []
    for _ in range(120):
        match choose.choice(("forward",) * 5 + ("backward",) * 5 + ("step", "zero", "hold", "drop")):
            case "forward":
                x = torch.randn(5, 4).double()
                waiting.append([call(x) for call, _ in sides])
            case "backward" if waiting:
                results = waiting.pop(choose.randrange(len(waiting)))
                again = choose.random() < 0.3
                factor = torch.randn(5, 3).double()
                for result in results:
                    (result.sin() * factor).sum().backward(retain_graph=again)
                if again:
                    waiting.append(results)
            case "step" if not waiting:  # the optimizer writes what a backward would read
                with torch.no_grad():
                    for net in nets:
                        for p in net.parameters():
                            p.sub_(0.01 * p.grad) if p.grad is not None else None
            case "zero":
                for net in nets:
                    net.zero_grad()
            case "hold":
                held.append([[None if p.grad is None else p.grad for p in net.parameters()] for net in nets])
            case "drop":
                del held[:], waiting[1:]
        for pairs in (zip(*(net.parameters() for net in nets)), zip(*(net.buffers() for net in nets))):
            for one, other in pairs:
                assert close(one, other) and (one.grad is None) == (other.grad is None)
                assert one.grad is None or close(one.grad, other.grad)
        assert all(close(*results) for results in waiting)
        for mine, theirs in held:
            assert all(one is None or close(one, other) for one, other in zip(mine, theirs))
    found = on_cpu()
    assert found[""].replays > 5 and found["backward"].replays > 5, found


def test_layers_that_share_their_code(on_cpu):
    layers = [nn.Linear(4, 4) for _ in range(6)]
    fast = [compiled(layer) for layer in layers]
    with torch.no_grad():
        for _ in range(6):
            x = y = torch.randn(3, 4)
            for layer, call in zip(layers, fast):
                x, y = call(x), layer(y)
                assert close(x, y)
    found = on_cpu()[""]
    assert found.captures <= 14 and found.replays >= 18, found.record()


@pytest.mark.parametrize("seed", range(3))
def test_several_graphs_in_any_order(on_cpu, seed):
    """Temporaries of one graph lie where results of a later one do (see CpuPool.replay)."""
    torch.manual_seed(seed)
    choose = random.Random(seed)
    functions = [lambda x: (x * 2, x.sum(0)), lambda x: x.relu() + 1, lambda x: (x.t().contiguous(), x[0] * 3)]
    calls = [compiled(function) for function in functions]
    held, last = [], torch.randn(4, 4)
    for _ in range(200):
        which = choose.randrange(3)
        x = choose.choice((last, torch.randn(4, 4)))
        results, expected = calls[which](x), functions[which](x)
        results, expected = (each if isinstance(each, tuple) else (each,) for each in (results, expected))
        assert all(map(close, results, expected))
        if choose.random() < 0.3:
            held.append((results, expected))
        if choose.random() < 0.3:
            last = results[0].tanh() if choose.random() < 0.5 else results[0].clamp(-5, 5)
        elif choose.random() < 0.1:
            last = results[0] * 0.1
        if choose.random() < 0.1:
            del held[: choose.randrange(4)]
        for mine, theirs in held:
            assert all(map(close, mine, theirs))
    assert sum(each.replays for found in statistics.OF_COMPILATION.values() for each in found) > 40
