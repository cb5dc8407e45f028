"""Which pairs of groups are fused: a decision for each that may be, and a verdict for each that was looked at.

What is legal (`legality.py`) is separate from what is worth it: a legal pair can be forced either way. An illegal pair
that an override names is refused, with the reason, and the person is told.
"""
from __future__ import annotations

from dataclasses import dataclass

from ...artifacts.context import CompileContext
from ...artifacts.records import FusionCandidate, Option, Ref
from .legality import Illegal, Unprofitable

FUSE, SEPARATE = "fuse", "separate"


@dataclass(frozen=True)
class Pair:
    """Two groups, by the names of the bodies that touch what both share; `saved`: bytes, None where sizes vary."""

    first: str
    second: str
    kind: str  # producer-consumer | siblings
    saved: int | None

    @property
    def subject(self) -> str:
        """What an override names after "fuse:"."""
        return f"{self.first}+{self.second}"

    @property
    def origins(self) -> tuple[Ref, ...]:
        """The loops of both."""
        return f"loop_ir:{self.first}", f"loop_ir:{self.second}"


class Choices:
    """The decisions of one search, and the candidates that a recording shows."""

    def __init__(self, context: CompileContext) -> None:
        self.context = context
        self.asked = context.asked  # whether a pair that does not pay is looked into
        self.candidates: dict[str, FusionCandidate] = {}
        self._separate: set[str] = set()  # pairs that were asked for before, as parts of smaller groups
        self._denied: dict[str, str] = {}  # illegal pairs that an override wants fused, and why they are

    def profitable(self, pair: Pair, saved: int, why: str) -> bool:
        """Whether a pair that saves so many bytes of traffic is fused: by default."""
        options = _option(FUSE, saved), _option(SEPARATE, 0)
        fused = self._decide(pair, options, FUSE, why)
        self._keep(pair, fused, why if fused else "an override keeps them separate",
                   "" if fused else "dropping the override")
        return fused

    def unprofitable(self, pair: Pair, against: Unprofitable) -> bool:
        """Whether a pair that is legal, but not worth it, is fused: by default not."""
        why = f"not profitable: {against.why}"
        fused = False
        if pair.subject not in self._separate or self.context.override("fuse", pair.subject) is not None:
            self._separate.add(pair.subject)
            fused = self._decide(pair, _scores(against), SEPARATE, why)
        forced = f"an override fuses them ({why})"
        hint = f'{why}; force with "fuse:{self.context.subject(pair.subject)}" = "{FUSE}"'
        self._keep(pair, fused, forced if fused else hint, "" if fused else against.allow)
        return fused

    def illegal(self, pair: Pair, found: Illegal) -> None:
        """Note a pair that cannot be fused, and refuse an override that asks for it."""
        why = f"illegal: {found.why}"
        if self.context.override("fuse", pair.subject) == FUSE:
            self._denied[pair.subject] = why
            self.context.refuse("fuse", pair.subject, FUSE, SEPARATE, why, origins=pair.origins)
        self._keep(pair, False, why, found.allow, legal=False)

    def tell(self) -> None:
        """Say which overrides were refused, of those that name one pair: of a pattern ("fuse:*") many will be."""
        for subject, why in self._denied.items():
            name = f"fuse:{self.context.subject(subject)}"
            if name in self.context.overrides or f"{self.context.id}:{name}" in self.context.overrides:
                self.context.notes.append(f'the override "{name}" = "{FUSE}" is refused: {why}')

    def _decide(self, pair: Pair, options: tuple[Option, ...], default: str, why: str) -> bool:
        fused = self.context.decide("fuse", pair.subject, options, default, why, origins=pair.origins) == FUSE
        if fused:
            self._denied.pop(pair.subject, None)
        return fused

    def _keep(self, pair: Pair, fused: bool, why: str, allow: str, legal: bool = True) -> None:
        if self.context.recording:
            self.candidates[pair.subject] = FusionCandidate(
                pair.subject, pair.first, pair.second, pair.kind, fused, why, pair.saved, allow,
                f"fuse:{pair.subject}" if legal else "", legal,
            )


def _scores(against: Unprofitable) -> tuple[Option, ...]:
    """What fusing saves, and what it would have to save."""
    if against.saved is None:
        return Option(FUSE), Option(SEPARATE)
    needed = "what fusing would have to save" if against.needed else ""
    return _option(FUSE, against.saved), _option(SEPARATE, against.needed, needed)


def _option(name: str, saved: int, why: str = "") -> Option:
    return Option(name, float(saved), why, "bytes of memory traffic saved", "higher")
