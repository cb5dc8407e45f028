"""The object behind a weak reference's proxy."""
from __future__ import annotations

import weakref
from typing import Any


def proxied(proxy: Any) -> Any:
    """The referent of weakref.proxy(object). Raises ReferenceError where it is dead, LookupError where the proxy hides
    it: it has a callback, or the object hides what its methods are bound to.

    A proxy forwards every attribute, and without a callback there is one proxy for each object (`weakref.proxy` in
    CPython's _weakref.c).
    """
    found = getattr(proxy.__init__, "__self__", None)
    if found is not None and type(found) is not type(proxy) and weakref.proxy(found) is proxy:
        return found
    raise LookupError("the referent of a weak proxy")
