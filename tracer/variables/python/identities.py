"""id() of objects that the trace makes: integers known only at run time, distinguished by the objects."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.base import Value
from ..core.constant import constant

if TYPE_CHECKING:
    from ..core.base import Translator


class IdentityValue(Value):
    """id(owner). Two are equal when their owners are one object."""

    __slots__ = ("owner",)

    def __init__(self, owner: Value) -> None:
        super().__init__()
        self.owner = owner

    def python_type(self) -> type:
        """int."""
        return int

    def truth(self, tx: Translator) -> bool:
        """It is never 0."""
        return True

    def key(self) -> Any:
        """As a key it is found by its owner."""
        return self

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Whether it is equal to another."""
        if function not in (operator.eq, operator.ne):
            return None
        if not (isinstance(left, IdentityValue) and isinstance(right, IdentityValue)):
            return None
        return constant((left.owner is right.owner) == (function is operator.eq))

    def describe(self) -> str:
        """For messages."""
        return f"id() of {self.owner.describe()}"


def identity_of(tx: Translator, owner: Value) -> Value:
    """id(owner) of an object that the trace made."""
    return tx.trace.identities.setdefault(owner, IdentityValue(owner))
