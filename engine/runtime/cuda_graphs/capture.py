"""Captures with torch's CUDA graphs: a wrapper runs once on a stream that records, and nothing of it is executed."""
from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import torch

from .pool import Pool

Wrapper = Callable[[list[Any]], Sequence[Any]]

_RECORDING = threading.RLock()
_current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
_current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_is_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)


class Mechanism(Protocol):
    """What the runner needs of a device."""

    @property
    def device(self) -> torch.device: ...

    def is_current(self) -> bool: ...

    def current(self) -> AbstractContextManager[Any]: ...

    def is_capturing(self) -> bool: ...

    def stream(self) -> int: ...

    def pool(self, stream: int) -> Pool: ...

    def new_pool(self) -> Pool: ...

    def record(
        self, call: Wrapper, inputs: Sequence[Any], pool: Any
    ) -> tuple[Sequence[Any], Callable[[], None]]: ...


class CudaGraphs:
    """CUDA graphs on one device."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.device = torch.device("cuda", index)

    def is_current(self) -> bool:
        """Whether the device is the current one."""
        return bool(_current_device() == self.index)

    def current(self) -> AbstractContextManager[Any]:
        """Makes it the current one."""
        return torch.cuda.device(self.index)

    def is_capturing(self) -> bool:
        """Whether the program (or a graph around this one) is capturing what runs now."""
        return bool(_is_capturing())

    def stream(self) -> int:
        """The current stream."""
        return int(_current_stream(self.index))

    def pool(self, stream: int) -> Pool:
        """The memory of captures for a stream."""
        with _RECORDING:
            found = _POOLS.get((self.index, stream))
            if found is None:
                found = _POOLS[self.index, stream] = CudaPool(self.device)
            return found

    def new_pool(self) -> CudaPool:
        """Memory for one capture alone."""
        return CudaPool(self.device)

    def record(
        self, call: Wrapper, inputs: Sequence[Any], pool: CudaPool
    ) -> tuple[Sequence[Any], Callable[[], None]]:
        """What `call(inputs)` returns, without values yet, and the function that computes them by the same launches.

        Memory comes from the pool. Raises what `call` raises, and RuntimeError for what cannot be captured; nothing has
        been executed then.
        """
        with _RECORDING, _without_garbage_collection():
            pool.open()
            kept: list[Any] = []
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(pool.side), keeping(kept), self._random_numbers():
                torch._C._cuda_clearCublasWorkspaces()  # those that it makes now belong to the pool
                try:
                    outputs = _captured(graph, pool, partial(call, list(inputs)))
                finally:
                    torch._C._cuda_clearCublasWorkspaces()
        return outputs, partial(_replay, graph, kept) if kept else graph.replay

    @contextmanager
    def _random_numbers(self) -> Iterator[None]:
        """A capture that fails leaves the generator as if it were still capturing: then it gets the state it had."""
        generator = torch.cuda.default_generators[self.index]
        before = generator.clone_state()
        try:
            yield
        except BaseException:
            generator.graphsafe_set_state(before)
            raise


class CudaPool(Pool):
    """A memory pool of torch's allocator, the stream on which captures allocate from it, and a graph that keeps it."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.handle = torch.cuda.graph_pool_handle()
        self.side = torch.cuda.Stream(device)
        self._keeper: torch.cuda.CUDAGraph | None = None
        self._before: list[torch.cuda.CUDAGraph | None] = []

    def open(self) -> None:
        """See to it that the pool is there: it goes with its last graph."""
        if self._keeper is None:
            keeper = torch.cuda.CUDAGraph()
            with torch.cuda.stream(self.side):
                _captured(keeper, self, lambda: (torch.zeros(1, device=self.device),))
            self._keeper = keeper

    def renew(self) -> None:
        """Take other memory for later captures: the allocator goes on recording into that of a capture that failed."""
        with suppress(RuntimeError, AttributeError):
            torch._C._cuda_endAllocateToPool(self.device.index, self.handle)
        self._before.append(self._keeper)
        self.handle, self._keeper = torch.cuda.graph_pool_handle(), None


_POOLS: weakref.WeakValueDictionary[tuple[int, int], CudaPool] = weakref.WeakValueDictionary()


def _captured(graph: torch.cuda.CUDAGraph, pool: CudaPool, call: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """What `call` returns; its launches are the graph's. Relaxed: tables of kernels are allocated and filled on another
    stream meanwhile (`Tables.kept_rows`), for which CUDA may have to allocate memory, or wait."""
    graph.capture_begin(pool=pool.handle, capture_error_mode="relaxed")
    try:
        outputs = call()
        graph.capture_end()
    except BaseException:
        with suppress(RuntimeError):  # it says only that there was an error
            graph.capture_end()
        pool.renew()
        raise
    return outputs


def _replay(graph: torch.cuda.CUDAGraph, kept: list[Any]) -> None:
    """Launch a graph that reads memory which `kept` holds."""
    graph.replay()


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Finalizers of CUDA objects may not run while a stream is capturing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Keeping(threading.local):
    kept: list[Any] | None = None


_KEEPING = _Keeping()


@contextmanager
def keeping(kept: list[Any]) -> Iterator[None]:
    """What `keep` is given meanwhile stays alive as long as `kept`."""
    before, _KEEPING.kept = _KEEPING.kept, kept
    try:
        yield
    finally:
        _KEEPING.kept = before


def keep(memory: Any) -> bool:
    """Keep memory that a capture in this thread reads and that is not the capture's own; False outside of one."""
    if _KEEPING.kept is None:
        return False
    _KEEPING.kept.append(memory)
    return True


def is_kept() -> bool:
    """Whether this thread is capturing."""
    return _KEEPING.kept is not None
