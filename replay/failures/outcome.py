"""What came of running a case."""
from __future__ import annotations

from dataclasses import dataclass

PASSED = "passed"
KINDS = {
    PASSED: "results and gradients are eager's, or apart from them by rounding",
    "invalid": "eager itself fails: the case says nothing of a compiler",
    "fallback": "the compiler did not take the graph, which ran in eager: the case says nothing of its code",
    "exception": "the compiler, or what it made, raised what eager does not",
    "values": "results or gradients are not eager's",
    "nan": "there are NaNs or infinities where eager has numbers",
    "signal": "the process died of a signal",
    "hang": "it took longer than the limit",
    "slow": "it took longer than eager by the ratio that was asked for",
    "break": "a graph break of the code that was asked for",
    "recompile": "a recompilation of the guard that was asked for",
    "exit": "the script's exit code",
    "output": "the script's output has what was looked for",
}
"""The kinds of outcomes, in words."""

SAYS_NOTHING = ("invalid", "fallback")
"""Kinds that are neither the failure nor its absence."""


@dataclass(frozen=True)
class Outcome:
    """What came of one run. `detail` depends on the kind: "TYPE: message" of an exception, the comparison of values, a
    signal's name, a ratio, a code. `node` is the result or gradient that shows it; `cpu` counts CPU seconds."""

    kind: str
    detail: str = ""
    node: str = ""
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the case ran through the compiler, and all is well."""
        return self.kind == PASSED

    @property
    def failed(self) -> bool:
        """Whether it is a failure: not where it says nothing."""
        return self.kind != PASSED and self.kind not in SAYS_NOTHING

    def __str__(self) -> str:
        where = f" ({self.node})" if self.node else ""
        first = self.detail.strip().partition("\n")[0]  # a C++ compiler says much
        return f"{self.kind}{where}: {first}" if first else f"{self.kind}{where}"
