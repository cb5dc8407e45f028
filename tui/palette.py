"""The command palette's places: any stage of any compilation, by a few letters of its name."""
from __future__ import annotations

from collections.abc import Iterator

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.markup import escape

from ..artifacts.listing import printable
from .panes import PanesScreen
from .session import Target

MOST = 20
"""Compilations whose stages are offered at once."""


class Places(Provider):
    """Goes to a stage of a compilation. Of many compilations, those that a word of the query names come first."""

    async def discover(self) -> Hits:
        """Before anything is typed: the stages of the compilation that is shown."""
        if isinstance(self.screen, PanesScreen):
            for title, function, target in places(self.screen, self.screen.target.compile):
                yield DiscoveryHit(title, lambda target=target: _go(self.screen, target), help=function)

    async def search(self, query: str) -> Hits:
        """What matches the query."""
        matcher = self.matcher(query)
        if isinstance(self.screen, PanesScreen):
            for title, function, target in places(self.screen, query):
                if (score := matcher.match(title)) > 0:
                    yield Hit(score, matcher.highlight(title), lambda target=target: _go(self.screen, target),
                              help=function)


def places(screen: PanesScreen, query: str) -> Iterator[tuple[str, str, Target]]:
    """Title, function and target of the stages that a query may mean."""
    infos, words = screen.session.compiles, query.lower().split()
    if len(infos) > MOST:
        named = [info for info in infos if info.id in words]
        begun = [info for info in infos if any(info.id.startswith(word) for word in words if word[:1].isdigit())]
        called = [info for info in infos if any(len(word) > 2 and word in info.function.lower() for word in words)]
        infos = list({info.id: info for info in (*named, *begun, *called)}.values())[:MOST]
    for info in infos:
        for stage in screen.session.stages(info.id):
            name = next(iter(screen.session.names(info.id, stage)), "")
            yield f"go to {info.id} {stage}", escape(printable(info.function)), Target(info.id, stage, name)


def _go(screen: object, target: Target) -> None:
    if isinstance(screen, PanesScreen):
        screen.go_to((target, None))
