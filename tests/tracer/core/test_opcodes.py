"""Every instruction of this Python is handled, or refused with a reason of its own."""
from __future__ import annotations

import dis

from ptdebug.tracer.bytecode import instructions as instructions  # fills the table
from ptdebug.tracer.bytecode.opcode_table import HALVES, HANDLERS

_NOT_IN_CODE = {"CACHE", "EXTENDED_ARG", "RESERVED", "INTERPRETER_EXIT", "EXIT_INIT_CHECK", "ENTER_EXECUTOR", *HALVES}


def test_every_opcode_has_a_handler():
    wanted = {
        name for name, number in dis.opmap.items()
        if number < 256 and name not in _NOT_IN_CODE and not name.startswith("INSTRUMENTED")
    }
    assert not wanted - set(HANDLERS)
