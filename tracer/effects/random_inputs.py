"""What a frame asks of Python's random number generators (`random`): done once, in order, before its graph runs.

While tracing, each call of a generator's method is noted here. The code that takes the frame's place makes the calls
on the real generators, and what they give enters the graph as inputs of which nothing is known: no guard can read them,
since guards are checked before anything is drawn. Where the program decides by one the graph breaks, and what was drawn
by then is drawn. So a generator's state is at each break, and at the end, what it is in eager. Before a second run of a
graph that raised (`eager_fallback.py`), which draws again, the generators are put back.

TorchDynamo does the same for calls of the module `random` (RandomValueSource in torch/_dynamo/source.py).
"""
from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..sources.source import RandomValueSource, Source

if TYPE_CHECKING:
    from ..variables.core.base import Codegen

_STATES = ".ours_states"


@dataclass(frozen=True)
class RandomCall:
    """One call: `function(*args, **kwargs)`; the last arguments are those by keyword. `owner` is the generator, None
    where the call makes it."""

    function: Callable[..., Any]
    owner: Source | None
    args: tuple[Source, ...]
    names: tuple[str, ...]
    result: RandomValueSource


class RandomCalls:
    """The calls of one frame so far, in program order."""

    def __init__(self) -> None:
        self.made: list[RandomCall] = []
        self._copies: dict[int, tuple[random.Random, random.Random]] = {}  # by id: the generator, and its copy

    def copy_of(self, real: random.Random) -> random.Random:
        """A generator that goes through the same states as `real` will: what it gives is an example."""
        if id(real) not in self._copies:
            copy = random.Random()
            copy.setstate(real.getstate())
            self._copies[id(real)] = real, copy
        return self._copies[id(real)][1]

    def add(
        self, function: Callable[..., Any], owner: Source | None, args: Sequence[Source], names: tuple[str, ...],
        text: str,
    ) -> RandomValueSource:  # fmt: skip
        """Note a call; returns where its result is found. `text` is the call as the program writes it."""
        result = RandomValueSource(len(self.made), text)
        self.made.append(RandomCall(function, owner, tuple(args), names, result))
        return result

    # ---- in the code that takes the frame's place --------------------------------------------------------------------
    def remember(self, codegen: Codegen) -> None:
        """Keep the states of the generators that the calls change."""
        owners = self._owners()
        codegen.plan.expect(owners)
        codegen.push_function(states)
        for owner in owners:
            codegen.load_source(owner)
        codegen.call(len(owners))
        codegen.emit("STORE_FAST", _STATES)

    def take_back(self, codegen: Codegen) -> None:
        """Put the generators into the states that were kept."""
        codegen.push_function(put_back)
        codegen.emit("LOAD_FAST", _STATES)
        codegen.call(1)
        codegen.emit("POP_TOP")

    def emit(self, codegen: Codegen) -> None:
        """Make the calls."""
        for draw in self.made:
            sources = (*(() if draw.owner is None else (draw.owner,)), *draw.args)
            codegen.plan.expect(sources)
            codegen.push_function(draw.function)
            for source in sources:
                codegen.load_source(source)
            codegen.call(len(sources), draw.names)
            codegen.emit("STORE_FAST", draw.result.variable)

    def _owners(self) -> list[Source]:
        """The generators that were there before."""
        return list(dict.fromkeys(d.owner for d in self.made if d.owner and not isinstance(d.owner, RandomValueSource)))


def states(*generators: random.Random) -> list[tuple[random.Random, Any]]:
    """Each generator with its state."""
    return [(generator, generator.getstate()) for generator in generators]


def put_back(kept: list[tuple[random.Random, Any]]) -> None:
    """Undo what was drawn since `states`."""
    for generator, state in kept:
        generator.setstate(state)
