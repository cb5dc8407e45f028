"""CUDA graphs on a GPU against eager: many calls with changing inputs."""
from __future__ import annotations

import gc
import threading

import ptdebug
import pytest
import torch
from ptdebug.engine.runtime.cuda_graphs import statistics
from torch import nn

from tests.devices import GPU

pytestmark = GPU


@pytest.fixture(autouse=True)
def counters(monkeypatch):
    monkeypatch.setattr(statistics, "OF_COMPILATION", {})
    torch.compiler.reset()
    yield lambda: {each.part: each for found in statistics.OF_COMPILATION.values() for each in found}
    torch.compiler.reset()


def compiled(function, **options):
    return ptdebug.compile(function, mode="reduce-overhead", **options)


def mlp(width=64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, 8)).cuda()


def close(a, b):
    return torch.allclose(a, b, atol=1e-4, rtol=1e-4)


def test_changing_inputs_and_parameters(counters):
    net = mlp().eval()
    fast, x, kept = compiled(net), torch.randn(16, 64, device="cuda"), []
    with torch.no_grad():
        for k in range(20):
            if k % 5 == 0:
                x.normal_()
            if k > 10:
                kept.append(torch.randn(16, 64, device="cuda"))
                x = kept[-1]
            if k == 8:
                net[0].weight.mul_(0.5)
            if k == 15:
                net[3].weight.data = torch.randn(8, 64, device="cuda")
            assert close(fast(x), net(x)), k
    found = counters()[""]
    assert found.replays > 12 and found.captures == 3 and not found.stopped, found


def test_held_results(counters):
    fast, held = compiled(lambda x: (x.relu() * 2, x.sum(0))), []
    inputs = [torch.randn(128, 32, device="cuda") for _ in range(12)]
    for x in inputs:
        held.append(fast(x))
    for x, (a, b) in zip(inputs, held):
        assert torch.equal(a, x.relu() * 2) and close(b, x.sum(0))
    assert counters()[""].replays > 5
    out = None
    for x in inputs:
        out = fast(x)
        assert torch.equal(out[0], x.relu() * 2)


def test_training_with_an_optimizer_dropout_and_batch_norm(counters):
    torch.manual_seed(0)
    def make():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 4)).cuda()

    net, twin = make(), make()
    pairs = ((compiled(net), net), (twin, twin))
    sides = [(call, model, torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)) for call, model in pairs]
    for k in range(14):
        x = torch.randn(48, 32, device="cuda")
        results = []
        for call, _model, optimizer in sides:
            torch.manual_seed(100 + k)
            loss = call(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            if k % 4:
                optimizer.zero_grad(set_to_none=True)
            results.append(loss.detach())
        assert close(*results), k
    assert all(close(a, b) for a, b in zip(net.state_dict().values(), twin.state_dict().values()))
    found = counters()
    assert found[""].replays > 8 and found["backward"].replays > 8, {k: v.record() for k, v in found.items()}


def test_random_numbers_advance(counters):
    fast = compiled(lambda x: torch.nn.functional.dropout(x, 0.5, True))
    x = torch.ones(1000, device="cuda")
    torch.manual_seed(5)
    got = [fast(x).clone() for _ in range(8)]
    torch.manual_seed(5)
    expected = [torch.nn.functional.dropout(x, 0.5, True) for _ in range(8)]
    assert all(torch.equal(a, b) for a, b in zip(got, expected))
    assert counters()[""].replays == 6


def test_two_forwards_before_a_backward_and_several_graphs(counters):
    net, twin = mlp(), mlp()

    def run(x):
        y = net[1](net[0](x))
        torch._dynamo.graph_break()
        return net[3](net[2](y))

    fast = compiled(run)
    for k in range(10):
        a, b = torch.randn(8, 64, device="cuda"), torch.randn(8, 64, device="cuda")
        for call, model in ((fast, net), (twin, twin)):
            model.zero_grad()
            first, second = call(a), call(b)
            (first.sin().sum() + second.cos().sum()).backward()
        assert all(close(p.grad, q.grad) for p, q in zip(net.parameters(), twin.parameters())), k
    assert sum(s.replays for found in statistics.OF_COMPILATION.values() for s in found) > 20


def test_sizes_streams_and_threads(counters):
    fast = compiled(lambda x: x.softmax(-1) * x.shape[0], dynamic=True)
    for size in [*range(2, 14)] * 4:
        x = torch.randn(size, 64, device="cuda")
        assert close(fast(x), x.softmax(-1) * size)
    found = counters()[""]
    assert found.sizes == 8 and 8 <= found.captures <= 24 and found.replays >= 16
    torch.compiler.reset()
    fast, wrong = compiled(lambda x: (x * 2 + 1).cumsum(-1)), []

    def work(seed):
        with torch.cuda.stream(torch.cuda.Stream() if seed % 2 else torch.cuda.current_stream()):
            for k in range(30):
                x = torch.full((64, 64), seed + k / 100, device="cuda")
                if not close(fast(x), (x * 2 + 1).cumsum(-1)):
                    wrong.append((seed, k))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [worker.start() for worker in workers], [worker.join() for worker in workers]
    assert not wrong


def test_an_optimizer_in_one_kernel_and_a_number_of_the_cpu(counters):
    def step(params, grads, states, rate):
        for p, g, s in zip(params, grads, states):
            s.mul_(0.9).add_(g)
            p.sub_(s * rate)
        return params[0]

    rows = [[torch.randn(100 + k, device="cuda") for k in range(6)] for _ in range(3)]
    twins, fast = [[t.clone() for t in row] for row in rows], compiled(lambda *a: step(*a))
    for k in range(8):
        rate = torch.tensor(0.1 * k)
        assert fast(*rows, rate) is rows[0][0]
        step(*twins, rate)
        assert all(close(a, b) for row, twin in zip(rows, twins) for a, b in zip(row, twin)), k


def test_a_capture_that_fails_changes_nothing(counters):
    @torch.library.custom_op("ptdebug_tests::host_read", mutates_args=())
    def host_read(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    host_read.register_fake(lambda x: torch.empty_like(x))
    with ptdebug.record("forced", overrides={"cudagraphs:graph": "capture"}):
        fast = compiled(lambda x: torch.rand_like(x) + host_read(x))
        x = torch.ones(4, device="cuda")
        torch.manual_seed(3)
        got = [fast(x) for _ in range(5)]
    torch.manual_seed(3)
    expected = [torch.rand_like(x) + 4 for _ in range(5)]
    assert all(close(a, b) for a, b in zip(got, expected)) and counters()[""].stopped
    after = compiled(lambda x: x.sin() * 2)  # captures into the same pool
    for _ in range(5):
        assert close(after(x), x.sin() * 2)
    assert counters()[""].replays == 3
    gc.collect()
    assert close(torch.ones(3, device="cuda").sum(), torch.tensor(3.0, device="cuda"))


def test_layers_share_their_code_and_captures_their_memory(counters):
    gc.collect()
    torch.cuda.empty_cache()  # torch keeps the memory of pools whose last graph is gone, of earlier tests'
    layers = [mlp(512) for _ in range(6)]
    for layer in layers:
        nn.init.normal_(layer[3].weight, std=0.1)
    fast, x = [compiled(layer) for layer in layers], torch.randn(4096, 512, device="cuda")
    with torch.no_grad():
        for _ in range(5):
            x.normal_()
            for layer, call in zip(layers, fast):
                assert torch.allclose(call(x), layer(x), atol=1e-3)
    found = counters()[""]
    assert found.captures == 6 and found.replays >= 15, found
    pools = {}
    for segment in torch.cuda.memory_snapshot():
        pools[segment["segment_pool_id"]] = pools.get(segment["segment_pool_id"], 0) + segment["total_size"]
    private = [size for pool, size in pools.items() if pool != (0, 0)]
    assert sum(private) < 200 << 20, pools  # temporaries of 16 MB, and cuBLAS's workspace, once


def test_inside_a_capture_of_the_program_and_inference_mode(counters):
    net = mlp().eval()
    fast, x = compiled(net), torch.randn(16, 64, device="cuda")
    with torch.inference_mode():
        for _ in range(5):
            out = fast(x)
            assert close(out, net(x)) and out.is_inference()
    with torch.no_grad():
        for _ in range(4):
            fast(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = fast(x)
        x.normal_()
        graph.replay()
        assert close(out, net(x))


def test_a_graph_that_raises_takes_its_random_numbers_back(counters):
    def draw(x, k):
        y = torch.rand_like(x)
        return y[k.clamp(max=7)] if x.shape[0] > 4 else torch.linalg.cholesky(y - 5)

    torch.manual_seed(1)
    before = torch.cuda.get_rng_state()
    fast = compiled(draw)
    with pytest.raises(RuntimeError):
        fast(torch.ones(3, 3, device="cuda"), torch.tensor(0, device="cuda"))
    torch.cuda.set_rng_state(before)
    with pytest.raises(RuntimeError):
        draw(torch.ones(3, 3, device="cuda"), torch.tensor(0, device="cuda"))
    expected = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(before)
    with pytest.raises(RuntimeError):
        fast(torch.ones(3, 3, device="cuda"), torch.tensor(0, device="cuda"))
    assert torch.equal(torch.rand(3, device="cuda"), expected)
