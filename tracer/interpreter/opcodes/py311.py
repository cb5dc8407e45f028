"""Instructions that occur only in modules and coroutines, which are not traced; and those that only CPython 3.11 has,
besides the handlers marked `before=(3, 12)` in the other files."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...bytecode.opcode_table import opcode

if TYPE_CHECKING:
    from ...bytecode.instructions import Instruction
    from ..interpreter import Interpreter


@opcode("PRINT_EXPR", "IMPORT_STAR", "ASYNC_GEN_WRAP", before=(3, 12))
@opcode("GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR")
def of_modules_and_coroutines(tx: Interpreter, instruction: Instruction) -> None:
    raise Unsupported(Reason.OPCODE, detail=f"{instruction.opname} (of a module or a coroutine)")
