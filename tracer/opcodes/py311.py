"""What only CPython 3.11 has, beyond the handlers marked `before=(3, 12)` in the other files."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ..values.base import Unsupported
from .registry import opcode

if TYPE_CHECKING:
    from ..instructions import Instruction
    from ..interpreter import Interpreter


@opcode(
    "PRINT_EXPR", "LOAD_CLASSDEREF", "IMPORT_STAR", "ASYNC_GEN_WRAP", before=(3, 12)
)
def of_modules_and_classes(tx: Interpreter, instruction: Instruction) -> None:
    raise Unsupported("opcode", f"{instruction.opname} (of a module, a class body or a coroutine)")
