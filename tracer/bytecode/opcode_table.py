"""The table of opcode handlers, filled by the `@opcode` decorator.

A handler is `def NAME(tx, instruction)`, named after the opcode. It works on `tx.stack` and `tx.locals`, and returns
nothing. Versions are half-open: `@opcode("PRECALL", since=(3, 11), before=(3, 12))`.
"""
from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from typing import Any

Handler = Callable[[Any, Any], None]
"""Takes the translator and the instruction."""

HANDLERS: dict[str, Handler] = {}

VERSION = sys.version_info[:2]

HALVES: dict[str, tuple[str, str]] = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
"""Super-instructions count as two instructions everywhere: in a resume function, where variables have other indices,
both may be needed (an index above 15 does not fit)."""


def opcode(
    *names: str, since: tuple[int, int] = (3, 11), before: tuple[int, int] = (99, 0)
) -> Callable[[Handler], Handler]:
    """Register a handler for the opcodes `names` on the Python versions since <= version < before.

    Asserts that each exists in the running version and is not registered twice.
    """

    def register(handler: Handler) -> Handler:
        if since <= VERSION < before:
            for name in names:
                assert name in dis.opmap or name in _pseudo(), f"{name} is no opcode of Python {VERSION}"
                assert name not in HANDLERS, f"{name} has two handlers"
                HANDLERS[name] = handler
        return handler

    return register


def _pseudo() -> dict[str, Any]:
    """Opcodes that `dis` shows but does not list in `opmap` (3.13 specializes some names)."""
    return dict.fromkeys(name for name in dis.opname if not name.startswith("<"))
