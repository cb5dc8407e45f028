"""A lock that a child process finds free: the thread that held it in the parent is not in the child."""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


class ForkLock:
    """`lock`, made anew in each child process. A `with` statement around the fork releases the lock that it took."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.lock: Any = make()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = self._make()
