"""Symbolic handlers of CPython's bytecode instructions, one function for each opcode.

`bytecode/opcode_table.py` has the table and the decorator; each file here has one family of instructions: read
`variables.py`, `operators.py`, `containers.py`, `calls.py`, `control.py`, `functions.py`, `exceptions.py`, then
`classes.py`, `matching.py` and `stack.py`. `py311.py`, `py312.py` and `py313.py` hold what only one version has or does
differently. Importing this package fills the table.
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
