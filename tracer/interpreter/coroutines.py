"""Which functions make generators and coroutines."""
from __future__ import annotations

import inspect
from types import CodeType

from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported


def is_generator(code: CodeType) -> bool:
    """Whether calling a function with this code makes a generator."""
    return bool(code.co_flags & inspect.CO_GENERATOR)


def refuse_coroutine(code: CodeType) -> None:
    """Coroutines and asynchronous generators are left to eager."""
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE):
        raise Unsupported(Reason.ASYNC, detail=code.co_qualname)
