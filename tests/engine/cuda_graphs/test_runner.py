"""What CUDA graphs must keep: results that are held, states, saved tensors, moving inputs. See machine.py."""
from __future__ import annotations

import threading

import ptdebug
import pytest
import torch
from ptdebug.cli.api import cudagraph_mark_step_begin
from ptdebug.engine.runtime.cuda_graphs.runner import SIZES
from torch import nn

from .machine import OnCpu, on_cpu as on_cpu


def compiled(function, **options):
    return ptdebug.compile(function, options={"force_disable_caches": True}, **options)


def test_inputs_that_stay_are_read_in_place_and_those_that_move_are_copied(on_cpu):
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()
    fast, x = compiled(net), torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(6):
            x.add_(1)
            assert torch.allclose(fast(x), net(x))
        found = on_cpu()[""]
        assert (found.captures, found.replays, dict(found.copies)) == (1, 4, {})
        kept = []  # memory that a later input cannot get
        for _ in range(4):
            kept.append(torch.randn(3, 8))
            assert torch.allclose(fast(kept[-1]), net(kept[-1]))
        assert found.captures == 2 and dict(found.copies) == {"arg0": 4} and found.recaptures[0].inputs == ("arg0",)
        net[0].weight.data = torch.randn(16, 8)  # a parameter that moves is never copied
        for _ in range(4):
            assert torch.allclose(fast(x), net(x))
        with torch.no_grad():
            net[0].weight.mul_(2)
        assert torch.allclose(fast(x), net(x))
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
        x = torch.randn(size, 3)
        assert torch.allclose(fast(x), x.sum(0) * size, atol=1e-5)
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
    def refuse(self, call, inputs):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(OnCpu, "record", refuse)
    fast = compiled(lambda x: x.sin())
    x = torch.randn(3)
    for _ in range(5):
        assert torch.allclose(fast(x), x.sin())
    found = on_cpu()[""]
    assert found.captures == 0 and found.stopped.startswith("it cannot be captured: RuntimeError: operation not")


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
