"""A compiled graph that is captured when it is warm, and then replayed: the callable in front of its wrapper."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ....artifacts.context import CHANGED_INPUTS, CompileContext
from ....operators.overlap import overlapping
from ..runtime import is_lazy
from .capture import CudaGraphs, Mechanism
from .facts import GraphFacts
from .made import Copied, Made, NotReplayable
from .policy import Capture, Input, Launch, Limits, Policy, Record, Replay
from .pool import Pool
from .statistics import Statistics, begun

Compiled = Callable[..., Sequence[Any]]
LIMITS = Limits()
CAPTURING = "inside a capture of the program"
SIZES = f"more than {LIMITS.sizes} combinations of sizes, numbers and streams"
LAZY = "a gradient comes in lazily conjugated, negated, or as zeros without memory"


class GraphRunner:
    """The graph of a forward or an inference: `call(*inputs)` is its wrapper. What runs on one stream takes turns."""

    def __init__(self, call: Compiled, facts: GraphFacts, statistics: Statistics, mechanism: Mechanism) -> None:
        self.call, self.facts, self.statistics, self.mechanism = call, facts, statistics, mechanism
        self._sizes: dict[Any, _Size] = {}
        self._pools: dict[int, Pool] = {}
        self._varies = bool(facts.symbols or facts.tangents)
        _RUNNERS.add(self)

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        made = self.replayed(inputs)
        return self.call(*inputs) if made is None else made

    def wrapper(self, inputs: list[Any]) -> Sequence[Any]:
        """Run the wrapper."""
        return self.call(*inputs)

    def replayed(self, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """The results of a replay for `inputs`; None where the wrapper is to run, for a reason that is counted."""
        if self.statistics.stopped:
            return self._launched(self.statistics.stopped)
        if self.mechanism.is_capturing():
            return self._launched(CAPTURING)
        if not self.mechanism.is_current():
            with self.mechanism.current():
                return self.replayed(inputs)
        stream = self.mechanism.stream()
        pool = self._pools.get(stream) or self._pools.setdefault(stream, self.mechanism.pool(stream))
        with pool.lock:
            size = self._size_of(inputs, stream)
            if size is None:
                return None
            if size.latest is not None:
                expected = size.after.get(size.latest, size.latest)
                if expected.fits(inputs) and expected.is_free():
                    size.latest = expected
                    return self._results(size, expected, inputs)
            addresses = tuple([0 if inputs[p] is None else inputs[p].data_ptr() for p in self.facts.tensors])
            return self._decided(size, inputs, addresses, pool)

    # ---- sizes
    def _size_of(self, inputs: Sequence[Any], stream: int) -> _Size | None:
        key = self._key(inputs, stream) if self._varies else stream
        if key is None:
            return self._launched(LAZY)
        found = self._sizes.get(key)
        if found is None:
            if len(self._sizes) >= LIMITS.sizes:
                return self._launched(SIZES)
            numbers = {k for k, p in enumerate(self.facts.tensors) if p in self.facts.numbers}
            found = self._sizes[key] = _Size(Policy(self._described(inputs), LIMITS, copied=numbers))
            self.statistics.sizes += 1
        return found

    def _key(self, inputs: Sequence[Any], stream: int) -> Any:
        """What a capture is for, besides addresses; None for what is not captured."""
        key: list[Any] = [stream]
        for position, kind, dimension in self.facts.symbols:
            value = inputs[position]
            key.append(value.shape[dimension] if kind == "size" else
                       value.stride()[dimension] if kind == "stride" else value)
        for position in self.facts.tangents:
            value = inputs[position]
            if value is not None and is_lazy(value):
                return None
            key.append(None if value is None else value.stride())
        return tuple(key)

    def _described(self, inputs: Sequence[Any]) -> list[Input]:
        found = []
        for position in self.facts.tensors:
            tensor, name = inputs[position], self.facts.names[position]
            if tensor is None:
                found.append(Input(name, 0, steady=True))
                continue
            steady = position in self.facts.steady or isinstance(tensor, torch.nn.Parameter)
            laid_out = tensor.layout is torch.strided and not is_lazy(tensor) and not _overlaps(tensor)
            found.append(Input(name, tensor.numel() * tensor.itemsize, steady, laid_out))
        return found

    # ---- calls that are not an immediate replay
    def _decided(
        self, size: _Size, inputs: Sequence[Any], addresses: tuple[int, ...], pool: Pool
    ) -> Sequence[Any] | None:
        made = size.made
        action = size.policy.decide(
            addresses, lambda capture: made[capture].results.in_use(), lambda capture: made[capture].is_clear())
        if isinstance(action, Launch):
            return self._launched(action.why)
        if isinstance(action, Record):
            capture = self._recorded(size, action, inputs, addresses, pool)
            if capture is None:
                return None
        else:
            assert isinstance(action, Replay)
            capture = action.capture
        return self._results(size, size.use(made[capture]), inputs)

    def _results(self, size: _Size, made: Made, inputs: Sequence[Any]) -> Sequence[Any]:
        """What a replay returns. Where one that writes to inputs raises (no memory for a copy, say), they may hold new
        values."""
        try:
            return made.replay(inputs, size.policy.cloned)
        except Exception as error:
            if self.facts.written:
                setattr(error, CHANGED_INPUTS, True)
            raise

    def _recorded(
        self, size: _Size, action: Record, inputs: Sequence[Any], addresses: tuple[int, ...], pool: Pool
    ) -> Capture | None:
        """The capture that the policy asks for; None, and no others from now on, where that fails."""
        positions, names = self.facts.tensors, self.facts.names
        if action.replaces is not None or action.moved or action.why:
            self.statistics.recaptured(tuple(names[positions[k]] for k in action.moved), action.why)
        try:
            made = self._made([positions[k] for k in sorted(action.copied)], inputs, action.apart, pool)
        except NotReplayable as reason:
            return self._stop(str(reason))
        except BaseException as error:
            _forget_captures(self.mechanism.device)
            if not isinstance(error, Exception):
                raise
            # the wrapper runs instead, and raises what it raises
            return self._stop(f"it cannot be captured: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
        self.statistics.captures += 1
        fixed = {k: address for k, address in enumerate(addresses)
                 if k not in action.copied and inputs[positions[k]] is not None}
        capture = made.as_capture(fixed, action.copied)
        made.fixed = ([positions[k] for k in fixed], list(fixed.values()))
        made.results.policy = weakref.ref(size.policy)
        size.policy.recorded(capture, action)
        if action.replaces is not None:
            size.drop(action.replaces)
        size.made[capture] = made
        return capture

    def _made(self, moving: Sequence[int], inputs: Sequence[Any], apart: bool, pool: Pool) -> Made:
        """A capture that reads copies of the inputs at the positions `moving`."""
        with torch.no_grad():
            copied = [Copied.of(p, inputs[p], self.facts.names[p], self.mechanism.device) for p in moving]
        given = list(inputs)
        for each in copied:
            given[each.position] = each.as_input(inputs[each.position])
        memory = self.mechanism.new_pool() if apart else pool
        outputs, replay = self.mechanism.record(self.wrapper, given, memory)
        views = getattr(self.call, "views", None)
        return Made(self.facts, copied, given, outputs, replay, self.statistics, memory, views)

    def _stop(self, why: str) -> Any:
        """No captures from now on; None."""
        self.statistics.stopped = why
        self._sizes.clear()
        return self._launched(why)

    def _launched(self, why: str) -> Any:
        """Count a call whose wrapper runs; None."""
        self.statistics.launches[why] += 1


class BackwardRunner(GraphRunner):
    """The same for a backward, whose wrapper takes a list, and empties it."""

    def __call__(self, values: list[Any]) -> Sequence[Any]:
        made = self.replayed(values)
        if made is None:
            return self.call(values)
        values.clear()
        return made

    def wrapper(self, inputs: list[Any]) -> Sequence[Any]:
        """Run the wrapper."""
        return self.call(inputs)


class _Size:
    """The captures of a graph for one combination of sizes. `latest` is the one that ran last, `after` which one ran
    after each, the last time that it was another one."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.made: dict[Capture, Made] = {}
        self.latest: Made | None = None
        self.after: dict[Made, Made] = {}

    def use(self, made: Made) -> Made:
        """It runs now: after the one that ran before it, as the next time, probably."""
        if self.latest is not None:
            self.after[self.latest] = made
        self.latest = made
        return made

    def drop(self, capture: Capture) -> None:
        """Forget a capture."""
        gone = self.made.pop(capture)
        self.after = {made: after for made, after in self.after.items() if gone not in (made, after)}
        if self.latest is gone:
            self.latest = None


_RUNNERS: weakref.WeakSet[GraphRunner] = weakref.WeakSet()


def with_graphs(call: Compiled, facts: GraphFacts | None, context: CompileContext) -> Compiled:
    """`call`, captured and replayed if there are `facts`."""
    if facts is None:
        return call
    kind = BackwardRunner if facts.backward else GraphRunner
    return kind(call, facts, begun(str(context.id), context.part), CudaGraphs(facts.device))


def mark_step_begin() -> None:
    """What earlier calls returned is no longer needed: results that were copied because somebody held them are lent
    again. Those that are held all the same keep their values."""
    for runner in list(_RUNNERS):
        for size in list(runner._sizes.values()):
            size.policy.forget()


def _forget_captures(device: torch.device) -> None:
    """All graphs on a device are captured anew: where a capture has failed, the generator of random numbers has another
    state than the one that earlier captures draw from, which raises at their replays."""
    for runner in list(_RUNNERS):
        if runner.mechanism.device == device:
            runner._sizes.clear()


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements share places otherwise than by broadcasting."""
    kept = [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride())]
    return overlapping(kept, tensor.stride())
