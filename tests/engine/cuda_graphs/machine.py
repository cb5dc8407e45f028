"""CUDA graphs without a GPU: a mechanism that "replays" by running the wrapper on the memory that a capture read."""
from __future__ import annotations

import ctypes
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from ptdebug.engine import stages
from ptdebug.engine.runtime.cuda_graphs import conditions, runner, statistics
from ptdebug.engine.runtime.cuda_graphs.pool import Pool


class OnCpu:
    """As the GPU would: a capture executes nothing, a replay reads the addresses of the capture, and overwrites the
    memory of the results that it gave out."""

    device = torch.device("cpu")

    def __init__(self, *_):
        self.capturing = False
        self.current_stream = 0

    def is_current(self):
        return True

    def current(self):
        return nullcontext()

    def is_capturing(self):
        return self.capturing

    def stream(self):
        return self.current_stream

    def pool(self, stream):
        return POOLS.setdefault(stream, CpuPool())

    def new_pool(self):
        return CpuPool()

    def record(self, call, inputs, pool):
        places = [at_address(x) if isinstance(x, torch.Tensor) else x for x in inputs]
        before = [x.clone() if isinstance(x, torch.Tensor) else x for x in places]
        random = torch.get_rng_state()
        outputs = call(list(inputs))
        with torch.no_grad():
            for place, old in zip(places, before):
                if isinstance(place, torch.Tensor) and not torch.equal(place, old):
                    place.data.copy_(old)
        torch.set_rng_state(random)
        memory = [x.detach() if isinstance(x, torch.Tensor) else x for x in outputs]

        @torch.no_grad()
        def replay():
            given = {x.untyped_storage().data_ptr() for x in places if isinstance(x, torch.Tensor)}
            for new, place in zip(call(list(places)), memory):
                if isinstance(new, torch.Tensor) and place.untyped_storage().data_ptr() not in given:
                    place.data.copy_(new)

        place = len(pool.memory)
        given = {x.untyped_storage().data_ptr() for x in places if isinstance(x, torch.Tensor)}
        pool.memory.append([x for x in memory if isinstance(x, torch.Tensor)
                            and x.untyped_storage().data_ptr() not in given])
        return outputs, partial(pool.replay, place, replay)


class CpuPool(Pool):
    """A replay spoils the results of all later captures: its temporaries may lie there."""

    def __init__(self):
        super().__init__()
        self.memory = []

    def replay(self, place, run):
        for tensors in self.memory[place + 1 :]:
            for tensor in tensors:
                tensor.data.fill_(77)
        run()


POOLS = {}


def at_address(tensor):
    """The same memory, which this does not keep alive: a capture knows nothing but addresses."""
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return tensor.detach()
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=tensor.dtype)
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


@pytest.fixture
def on_cpu(monkeypatch):
    """Capture every graph of a CPU; gives the statistics of what is compiled meanwhile."""
    monkeypatch.setattr(runner, "CudaGraphs", OnCpu)
    monkeypatch.setattr(conditions, "device_of", lambda plan: torch.device("cpu", 0))
    monkeypatch.setattr(stages.conditions, "chosen", lambda aten, plan, context: conditions.facts_of(aten, plan))
    monkeypatch.setattr(statistics, "OF_COMPILATION", {})
    POOLS.clear()
    torch.compiler.reset()
    yield lambda: {each.part: each for found in statistics.OF_COMPILATION.values() for each in found}
    torch.compiler.reset()
