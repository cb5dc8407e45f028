"""Errors that are meant for the user at the terminal."""
from __future__ import annotations

INTERRUPTED = 130
"""The exit code after Ctrl-C, when the best so far has been printed."""


class CommandError(Exception):
    """The command cannot be carried out: `message` says why, in one line if possible.

    `exit_code` is 1 if the answer is "no", 2 for wrong usage or something unreadable.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ExportError(RuntimeError):
    """The model cannot be exported as it is; the message lists why, with lines and what to change."""
