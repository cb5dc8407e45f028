"""What stops tracing: the one exception that becomes a graph break."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .reasons import Reason
from .subjects import name_of_subject


class Unsupported(Exception):
    """The tracer cannot follow: becomes a graph break.

    `subject` is the object that it is about, a callable, a class, a module or a Value (with `member`, its attribute of
    that name), and `given` what it is applied to. Their text is made when somebody reads it. `detail` is what is said
    beyond them. `context` says where it happened, and where the graph may break instead (`earlier`).
    """

    def __init__(
        self, reason: Reason, subject: object = None, member: str = "", *, given: Sequence[object] = (),
        detail: str = "", **context: Any,
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.reason = reason
        self.subject = subject
        self.member = member
        self.given = given
        self.detail = detail
        self.context = context

    def again(self, **context: Any) -> Unsupported:
        """The same once more, to be raised elsewhere."""
        return Unsupported(self.reason, self.subject, self.member, given=self.given, detail=self.detail, **context)

    def text(self) -> str:
        """The subject, what it is applied to, and the detail, in one phrase."""
        parts = [name_of_subject(self.subject, self.member)] if self.subject is not None else []
        if self.given:
            joint = "to" if self.reason is Reason.OPERATOR else "of"
            parts.append(f"{joint} {' and '.join(name_of_subject(part) for part in self.given)}")
        if self.detail:
            parts.append(self.detail)
        return " ".join(parts).replace(" ,", ",").replace(" : ", ": ")

    def __str__(self) -> str:
        return f"{self.reason.code}: {self.text()}".removesuffix(": ")


def stopped_by(error: Exception) -> Unsupported:
    """The graph break that an exception of the tracer stands for: one that it raised as such, or a question about a
    data-dependent size, asked while it handled an instruction."""
    return error if isinstance(error, Unsupported) else Unsupported(Reason.DATA_DEPENDENT_SHAPE)
