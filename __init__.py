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
    from .cli.exporting import EntryPoint, export
    from .engine.package import load
    from .version import __version__

__all__ = [
    "EntryPoint", "__version__", "compile", "disable", "explain", "export", "graph_break", "load", "load_cache",
    "mark_dynamic", "record", "save_cache", "stats", "warm_up",
]
_ELSEWHERE = {
    "__version__": ".version", "export": ".cli.exporting", "EntryPoint": ".cli.exporting", "load": ".engine.package",
}
"""Where names are that are not in `cli/api.py`: a package is loaded without the tracer and the compiler."""


def __dir__() -> list[str]:
    """The public names, also those that are loaded on first use."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Load the Python interface on first use (PEP 562): `import ptdebug` itself loads neither torch nor Textual."""
    if name in __all__:
        from .artifacts.garbage import fewer_collections  # here: pytest imports this file by itself

        with fewer_collections():
            return getattr(import_module(_ELSEWHERE.get(name, ".cli.api"), __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
