"""The screens that keys open. They are loaded after the first one is seen, which waits for none of them."""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .act_screen import ActScreen
    from .answer_screen import AnswerScreen
    from .breaks_screen import BreaksScreen
    from .diff_screen import DiffScreen
    from .search_screen import SearchScreen
    from .session import Session, Target


def load() -> None:
    """Load all of them: from then on a key opens one at once."""
    from . import act_screen, answer_screen, breaks_screen, diff_screen, search_screen  # noqa: F401


def act(session: Session, target: Target) -> ActScreen:
    """What can be done with a compilation."""
    from .act_screen import ActScreen

    return ActScreen(session, target)


def answer(session: Session, question: str, compile_id: str) -> AnswerScreen:
    """The answer to a question of `answers/questions.py`."""
    from .answer_screen import AnswerScreen
    from .answers.questions import BY_ID

    return AnswerScreen(session, BY_ID[question], compile_id)


def breaks(session: Session) -> BreaksScreen:
    """The graph breaks."""
    from .breaks_screen import BreaksScreen

    return BreaksScreen(session)


def diff(first: Session, one: Target, second: Session, other: Target) -> DiffScreen:
    """What differs between two targets."""
    from .diff_screen import DiffScreen

    return DiffScreen(first, one, second, other)


def search(session: Session) -> SearchScreen:
    """Search in everything."""
    from .search_screen import SearchScreen

    return SearchScreen(session)
