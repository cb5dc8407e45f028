"""What can be done from where a person stands: command lines, which `act_screen.py` runs."""
from __future__ import annotations

from dataclasses import dataclass

from ..artifacts.decision_kinds import BEFORE_GRAPH
from ..artifacts.records import Decision


@dataclass(frozen=True)
class Act:
    """A command: `words` follow `ptdebug`; {selector} is what is shown, {id} its name in a file."""

    title: str
    words: tuple[str, ...]

    def command(self, selector: str, name: str) -> list[str]:
        """Its words, filled in."""
        return [word.replace("{selector}", selector).replace("{id}", name) for word in self.words]


ACTS = (
    Act("replay: do all stages compute what eager computes?", ("replay", "{selector}")),
    Act("replay: where was the first NaN born?", ("replay", "--nan", "{selector}")),
    Act("bisect: which decisions are to blame?", ("bisect", "{selector}")),
    Act("minify: a small script that shows the failure", ("minify", "{selector}", "-o", "minified_{id}.py")),
    Act("repro: this compilation as a script that runs", ("repro", "{selector}", "-o", "repro_{id}.py")),
    Act("time: eager and compiled, by kernel", ("replay", "--time", "{selector}")),
)


def flips(decision: Decision, selector: str) -> tuple[Act, ...]:
    """For each other option of a decision: the graph compiled again with it, beside the graph as it was."""
    if decision.kind in BEFORE_GRAPH:
        return ()
    return tuple(flip(decision.id, option.name, selector) for option in decision.options
                 if option.name != decision.chosen)


def flip(decision: str, option: str, selector: str) -> Act:
    """The graph compiled again with that option of a decision."""
    return Act(f"flip: {decision} = {option}", ("flip", selector, decision, option))
