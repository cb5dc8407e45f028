"""Shelves: managers of torch's guard tree that share the items of a large container.

A manager searches all its children for that of an item, which is quadratic with one child for each item. A shelf is a
child that returns the container itself and has some of its items as children.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_SIZE = 256


def shelf_of_item(manager: Any, index: int, step: dict[str, Any]) -> Any:
    """The manager to hold item `index` of the list or tuple of `manager`, which `step` describes."""
    return _shelf(manager, index // _SIZE, step)


def shelf_of_key(manager: Any, key: Any, count: int, step: dict[str, Any]) -> Any:
    """The manager to hold the item under `key` of the dict of `manager`, which has `count` items."""
    return _shelf(manager, (id(key) >> 4) % (count // _SIZE + 1), step)


def _shelf(manager: Any, number: int, step: dict[str, Any]) -> Any:
    return manager if number == 0 else manager.lambda_manager(python_lambda=_itself(number), **step)


@functools.cache
def _itself(number: int) -> Callable[[Any], Any]:
    """A manager recognizes the child by this function, so each number has the same one."""
    return lambda owner: owner
