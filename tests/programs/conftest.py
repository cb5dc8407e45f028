"""How `checking.check` compiles a program, where it is not as a backend that gets the captured graph."""
from __future__ import annotations

from typing import Any

import ptdebug
import pytest
from ptdebug.cli import wiring

from . import checking


@pytest.fixture
def as_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs that the engine would compile run as captured, and may be rerun in eager."""
    monkeypatch.setattr(wiring, "engine_backend", checking.as_the_engine)


@pytest.fixture
def by_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine compiles, whatever backend is named."""
    _leave_out("backend", monkeypatch)


@pytest.fixture
def breaks_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs may break, those that ask for `fullgraph=True`, too."""
    _leave_out("fullgraph", monkeypatch)


def _leave_out(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = ptdebug.compile

    def compile(function: Any, **options: Any) -> Any:
        options.pop(option, None)
        return original(function, **options)

    monkeypatch.setattr(ptdebug, "compile", compile)
