"""Sources of numbers that bytecode computes: no manager of the guard tree leads to them."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .source import Source
from .source_functions import call_text


@dataclass(frozen=True, eq=False)
class ConstantSource(Source):
    """A number in a computation; `text` distinguishes 1 from 1.0 and 0.0 from -0.0."""

    text: str
    value: int | float

    @cached_property
    def expression(self) -> str:
        return self.text

    def read(self, start: Any) -> Any:
        return self.value

    def load(self, codegen: Any) -> None:
        codegen.const(self.value)


@dataclass(frozen=True, eq=False)
class ComputedSource(Source):
    """`function(*args)` for a pure function of numbers: what the user's code computes from a float that varies."""

    function: Callable[..., Any]
    args: tuple[Source, ...]

    @cached_property
    def expression(self) -> str:
        return call_text(self.function, [arg.expression for arg in self.args])

    @cached_property
    def display_name(self) -> str:
        return call_text(self.function, [arg.display_name for arg in self.args])

    def read(self, start: Any) -> Any:
        return self.function(*[start.value(arg) for arg in self.args])

    def load(self, codegen: Any) -> None:
        codegen.push_function(self.function)
        for arg in self.args:
            codegen.load_source(arg)
        codegen.call(len(self.args))

    def read_from(self) -> Iterator[Source]:
        for arg in self.args:
            yield arg
            yield from arg.read_from()


@dataclass(frozen=True, eq=False)
class RandomValueSource(Source):
    """The result of the frame's random call `number` (see `random_inputs.py`); `text` is the call. No guard can read
    it: guards are checked before anything is sampled."""

    number: int
    text: str

    @cached_property
    def expression(self) -> str:
        return f"{self.text} (draw {self.number})"

    @cached_property
    def display_name(self) -> str:
        return self.text

    def load(self, codegen: Any) -> None:
        codegen.emit("LOAD_FAST", self.variable)

    @property
    def variable(self) -> str:
        """The local variable that holds it."""
        return f".ours_draw_{self.number}"
