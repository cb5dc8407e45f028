"""What a person asks of a replay."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MAKING = "making "
"""Before the name of a stage that is told while it is generated again, of a compilation that had not ended when its
recording did."""


@dataclass(frozen=True)
class Options:
    """What a replay does beyond, or instead of, one run of each rung.

    It runs eager and the kernels `repeat` times, looks for the origin of NaNs and infinities even if results have none
    (`nan`), has a rung for each pass (`each_pass`), runs only `stages` (all, if empty), and takes the inputs of a
    later `call` of the graph. `told` is called before each stage with its name, the rungs so far and the first
    difference, and after it with "".
    """

    repeat: int = 1
    nan: bool = False
    each_pass: bool = False
    stages: frozenset[str] = frozenset()
    call: int = 0
    told: Callable[[str, Sequence[Any], Any], None] = lambda stage, rungs, first: None

    def wants(self, stage: str) -> bool:
        """Whether the rung of that stage is asked for."""
        return not self.stages or stage in self.stages
