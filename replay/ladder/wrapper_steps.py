"""The wrapper, line by line: the first of its lines that leaves a value which the kernels, run one by one, do not."""
from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from ...engine.ir.ir import Group
from ..program.lines import same
from ..recorded.inputs import clones
from ..recorded.state import deterministic
from ..verdicts.compare import compare
from .locate import Lowering, place_of
from .pairs import LoweredPart, makers_of
from .report import Difference
from .rungs import snapshot
from .steps import lowered, run_group, run_steps

LARGEST = 1 << 20
"""Elements of a buffer that is looked at after each line."""


@dataclass
class Stepped:
    """What the lines of a wrapper left in its variables: (variable, text of the line, value), in order."""

    written: list[tuple[str, str, torch.Tensor]] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    _line: int = 0
    _known: dict[str, torch.Tensor] = field(default_factory=dict)
    _arguments: frozenset[str] = frozenset()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        """A line has ended."""
        if event == "call":
            self._arguments = frozenset(frame.f_locals)
        elif event in ("line", "return"):
            self._look(frame)
            self._line = frame.f_lineno
        return self

    def _look(self, frame: FrameType) -> None:
        text = self._text[self._line - 1].strip() if 0 < self._line <= len(self._text) else ""
        for name, value in frame.f_locals.items():
            if not isinstance(value, torch.Tensor) or name in self._arguments or value.numel() > LARGEST:
                continue
            before = self._known.get(name)
            if before is not None and _is(before, value):
                continue
            self._known[name] = snapshot(value)
            if not _only_names(text):
                self.written.append((name, text, self._known[name]))


def _only_names(text: str) -> bool:
    """Whether a line gives names to memory, or lays it out, and computes nothing."""
    return "empty_" in text or text.startswith("if ") or "values.clear()" in text


def _is(before: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether a variable still holds these very numbers."""
    if before.shape != value.shape or before.dtype != value.dtype or before.stride() != value.stride():
        return False
    return bool(((before == value) | ((before != before) & (value != value))).all())


@contextmanager
def stepping(text: str, file: str) -> Iterator[Stepped]:
    """Inside, what each line of a wrapper leaves is kept; `file` is its name in tracebacks."""
    stepped = Stepped(_text=text.splitlines())

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != file or frame.f_code.co_name != "call":
            return None
        return stepped(frame, event, argument)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield stepped
    finally:
        sys.settrace(before)


@dataclass(frozen=True)
class _Right:
    """What a step writes where each runs by itself, and the node that it is for."""

    name: str
    value: torch.Tensor
    node: str


def first_step(ladder: Lowering) -> Difference | None:
    """The first line of a wrapper whose value is wrong: it writes a buffer that has another value where the kernels run
    one by one."""
    for part in ladder.parts():
        text, file = part.work.wrapper.text, part.work.call.__code__.co_filename
        right = list(_one_by_one(part))
        with deterministic(), stepping(text, file) as stepped:
            lowered("wrapper", part.work, clones(part.inputs))
        times: Counter[str] = Counter()
        for name, line, value in stepped.written:
            own = [one for one in right if one.name == name]
            times[name] += 1
            if not own or any(_alike(value, one.value) for one in right):
                continue
            wanted = own[min(times[name], len(own)) - 1]
            place = ladder.location(part.sources.get(wanted.node, ""))
            found, at = compare(value, wanted.value), place_of(value, wanted.value)
            inside = f"{part.prefix}wrapper: {line}"
            return Difference("wrapper", f"{part.label}{wanted.node}", place, found, inside, at)
    return None


def _one_by_one(part: LoweredPart) -> Iterator[_Right]:
    """What the steps of a part write, in order."""
    work, found = part.work, list[_Right]()

    def group(step: Group, memory: Any, symbols: Any) -> None:
        run_group(step, work.kernels, work.signatures, memory, symbols)

    def left(step: Any, written: Mapping[str, Any]) -> None:
        makers = {name: nodes[0] for name, nodes in makers_of(step) if nodes}
        found.extend(_Right(name, value, makers.get(name, "")) for name, value in written.items()
                     if isinstance(value, torch.Tensor))

    with deterministic():
        run_steps(work.aten, work.plan.program, work.plan.items, clones(part.inputs), group, left=left)
    return iter(found)


def _alike(value: torch.Tensor, other: torch.Tensor) -> bool:
    return value.numel() == other.numel() and same(other.reshape(-1), value.reshape(-1))
