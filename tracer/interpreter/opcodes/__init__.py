"""Symbolic handlers of CPython's bytecode instructions, one function for each opcode.

`opcode_table.py` has the table and the decorator; each other file one family of instructions. `py311.py`, `py312.py`
and `py313.py` hold what only one version has or does differently. Importing this package fills the table.
"""
from . import (
    calls,
    classes,
    containers,
    control,
    exceptions,
    functions,
    matching,
    operators,
    py311,
    py312,
    py313,
    stack,
    variables,
)

__all__ = [
    "calls", "classes", "containers", "control", "exceptions", "functions", "matching", "operators", "py311", "py312",
    "py313", "stack", "variables",
]
