"""Whether dicts changed, asked at the price of one call: CPython's dict watchers (PEP 699's successor of version tags, from
3.12 on), which Python code reaches through torch's C++ guards only.

torch uses them to pass over the subtree of a module ("recursive dict tag matching" in torch/csrc/dynamo/guards.cpp). Here
a guard tree of its own is made of nothing but the dicts.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

from torch._C._dynamo import guards as cpp

from ..lean import guard_manager_type, without_dynamo


class _Held:
    """What C++ knows the dicts by; gives them out while it looks at them for the first time."""

    dicts: tuple[dict[Any, Any], ...] = ()


class WatchedDicts:
    """Some dicts, from now on: none is kept alive, and one that dies counts as changed.

    The order of an OrderedDict (`move_to_end`) is not watched.
    """

    def __init__(self, dicts: Sequence[dict[Any, Any]]) -> None:
        held = _Held()
        held.dicts = tuple(dicts)
        with without_dynamo():
            plain = guard_manager_type().GUARD_MANAGER
            self._root = cpp.RootGuardManager()
            first = self._root.tuple_getitem_manager(0, "held", held, plain)
            second = first.getattr_manager("dicts", "held.dicts", held.dicts, plain)
            for index, watched in enumerate(held.dicts):
                second.tuple_getitem_manager(index, f"held.dicts[{index}]", watched, plain).mark_tag_safe()
            second.mark_tag_safe()
            first.mark_tag_safe()
            first.mark_tag_safe_root()
        self._held = (held,)
        self._root.check(self._held)
        held.dicts = ()  # a walk over the tree fails from now on, so only the watchers can say that nothing changed

    def unchanged(self) -> bool:
        """Whether no dict has changed; once False, always False."""
        return bool(self._root.check(self._held))


class _Probe:
    def __init__(self) -> None:
        self.value = 0


def _store(owner: _Probe) -> None:
    owner.value = 1


@functools.cache
def available() -> bool:
    """Whether watching works with this CPython and this torch: tried out, since neither promises it. CPython 3.13.0, for
    one, does not tell of attributes stored by code that has run for a while."""
    if sys.version_info < (3, 99):  # torch compares version tags there, also of dicts that are gone
        return False
    try:
        for _ in range(100):
            _store(_Probe())
        warmed = _Probe()
        warmed.__dict__["other"] = 1
        for _ in range(100):
            _store(warmed)
        return all(_is_seen(owner) for owner in (_Probe(), warmed))
    except (AttributeError, TypeError, RuntimeError):  # not the interface that is known
        return False


def _is_seen(owner: _Probe) -> bool:
    """Whether a change of an attribute, of an item and of an empty dict is seen, and nothing else."""
    own, empty = owner.__dict__, dict[str, int]()
    changes = (lambda: _store(owner), lambda: own.update(value=2), lambda: empty.update(new=1), empty.clear)
    for change in changes:
        watched = WatchedDicts([own, empty])
        if not (watched.unchanged() and watched.unchanged()):
            return False
        change()
        if watched.unchanged():
            return False
    watched = WatchedDicts([{}])
    return not watched.unchanged()
