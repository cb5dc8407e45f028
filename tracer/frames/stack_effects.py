"""What an instruction does to the value stack."""
from __future__ import annotations

import dis

from ..bytecode.instructions import Instruction
from ..effects.reconstruct import VERSION

_PUSH_NOTHING = ("STORE_", "DELETE_", "POP_", "JUMP_", "LIST_", "SET_", "MAP_ADD", "DICT_")
"""Prefixes of the names of instructions that push nothing, at most leave what was there."""


def loads_method(instruction: Instruction) -> bool:
    """Whether it reads an attribute that is about to be called."""
    if instruction.opname == "LOAD_METHOD":
        return True
    return VERSION >= (3, 12) and instruction.opname in ("LOAD_ATTR", "LOAD_SUPER_ATTR") and bool(instruction.arg & 1)


def pushed(instruction: Instruction) -> int:
    """How many objects the instruction pushes."""
    opname, arg = instruction.opname, instruction.arg
    if opname == "UNPACK_SEQUENCE":
        return arg
    if opname == "UNPACK_EX":
        return (arg & 0xFF) + 1 + (arg >> 8)
    if opname == "BEFORE_WITH":
        return 2
    return 0 if opname.startswith(_PUSH_NOTHING) and opname != "LIST_TO_TUPLE" else 1


def stack_effect(instruction: Instruction, jump: bool) -> int:
    """By how much the instruction changes the stack depth, where it jumps or where it does not."""
    if instruction.opname == "CALL" and VERSION < (3, 12):
        return -instruction.arg - 1  # PRECALL's part included
    opcode = dis.opmap[instruction.opname]
    return dis.stack_effect(opcode, instruction.arg if opcode >= dis.HAVE_ARGUMENT else None, jump=jump)
