"""The mapping behind a `types.MappingProxyType`."""
from __future__ import annotations

import gc
from types import MappingProxyType
from typing import Any


def mapping_of(proxy: MappingProxyType[Any, Any]) -> Any:
    """The mapping that the proxy wraps: the only object that it refers to (`mappingproxy_traverse` in CPython's
    descrobject.c)."""
    (mapping,) = gc.get_referents(proxy)
    return mapping
