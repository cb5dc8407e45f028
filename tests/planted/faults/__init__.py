"""The table of planted bugs, one module for each part of the product that they are in."""
from __future__ import annotations

import importlib

from ..fault import Fault

_MODULES = ("capture", "graphs", "lowering", "scheduling", "codegen", "wrapper", "crashes")

FAULTS: dict[str, Fault] = {
    fault.name: fault for name in _MODULES for fault in importlib.import_module(f".{name}", __package__).FAULTS
}
