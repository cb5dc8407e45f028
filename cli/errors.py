"""Errors that are meant for the person at the terminal."""
from __future__ import annotations


class CommandError(Exception):
    """What the person asked for cannot be done: `message` says why, in one line where possible.

    `exit_code` is 1 where the answer is "no", 2 for wrong usage or something unreadable.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code
