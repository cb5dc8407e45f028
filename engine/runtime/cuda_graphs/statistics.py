"""What became of the CUDA graphs of each compilation, counted while the program runs."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ....artifacts.run_records import CudaGraph, InputCopies, Recapture


@dataclass(eq=False)
class Statistics:
    """The counters of one compiled graph. `launches` counts the calls that ran the wrapper, by reason; `copies` those
    of inputs, by name, with their bytes."""

    part: str = ""
    stopped: str = ""
    sizes: int = 0
    captures: int = 0
    replays: int = 0
    cloned: int = 0
    launches: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    copied_bytes: Counter[str] = field(default_factory=Counter)
    recaptures: list[Recapture] = field(default_factory=list)

    def copied(self, name: str, size: int) -> None:
        """An input was copied into a capture's memory (or back)."""
        self.copies[name] += 1
        self.copied_bytes[name] += size

    def recaptured(self, names: tuple[str, ...], why: str) -> None:
        """A capture was made although there was one for these sizes."""
        self.recaptures.append(Recapture(names, why))

    def record(self) -> CudaGraph:
        """The counters as they are now."""
        copies = tuple(InputCopies(name, times, self.copied_bytes[name]) for name, times in self.copies.items())
        return CudaGraph(
            self.part, self.stopped, self.sizes, self.captures, self.replays, self.cloned,
            sum(self.copied_bytes.values()), copies, dict(self.launches), tuple(self.recaptures))


OF_COMPILATION: dict[str, list[Statistics]] = {}
"""By compile id, of this process."""


def begun(compile_id: str, part: str) -> Statistics:
    """Counters for a graph of a compilation."""
    found = Statistics(part)
    OF_COMPILATION.setdefault(compile_id, []).append(found)
    return found


def records() -> Mapping[str, tuple[CudaGraph, ...]]:
    """What there is to record, by compile id."""
    return {compile_id: tuple(_latest(found)) for compile_id, found in dict(OF_COMPILATION).items()}


def _latest(found: list[Statistics]) -> Iterator[CudaGraph]:
    """One for each part: a compilation that began again has two."""
    yield from (statistics.record() for statistics in {each.part: each for each in list(found)}.values())
