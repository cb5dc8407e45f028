"""ptdebug: a debugging and introspection workbench built around a complete compiler for PyTorch programs."""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cli.api import (
        compile,
        disable,
        explain,
        graph_break,
        load_cache,
        mark_dynamic,
        record,
        save_cache,
        stats,
        warm_up,
    )
    from .version import __version__

__all__ = [
    "__version__", "compile", "disable", "explain", "graph_break", "load_cache", "mark_dynamic", "record", "save_cache",
    "stats", "warm_up",
]


def __dir__() -> list[str]:
    """The public names, also those that are loaded on first use."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Load the Python interface on first use (PEP 562): `import ptdebug` itself loads neither torch nor Textual."""
    if name in __all__:
        return getattr(import_module(".version" if name == "__version__" else ".cli.api", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
