"""The interpreter's entry point to this package: makes Values of real objects, results of nodes, and what the bytecode
builds.

Importing this module imports every module of this package, which fill the tables of `core/registry.py` and
`core/handlers.py`: a new file registers itself.
"""
from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

from .containers.dicts import make_dict
from .containers.lists import make_list
from .containers.sequences import make_tuple
from .containers.sets import make_set
from .containers.slices import SliceValue
from .core.base import Value
from .core.constant import constant
from .core.late import late
from .core.registry import build, from_python, wrap_result
from .python.builtins import format_value
from .python.exceptions import make_exception
from .python.functions import make_function
from .strings.strings import joined

__all__ = [
    "build", "constant", "format_value", "from_python", "joined", "make_dict", "make_exception", "make_function",
    "make_list", "make_set", "make_slice", "make_tuple", "wrap_result",
]  # fmt: skip


def _load_all() -> None:
    """Import every module of this package; each registers the builders and handlers that it holds."""
    package = import_module(__package__)
    for found in walk_packages(package.__path__, f"{__package__}."):
        import_module(found.name)


def make_slice(tx: object, parts: list[Value]) -> Value:
    """A slice made by BUILD_SLICE."""
    padded = [*parts, constant(None)] if len(parts) == 2 else parts
    return SliceValue(padded)


late.make_tuple = make_tuple
late.make_dict = make_dict
late.make_list = make_list
late.make_exception = make_exception

_load_all()
