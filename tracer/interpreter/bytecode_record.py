"""Records of bytecode: the original, the rewritten code, the resume functions."""
from __future__ import annotations

import dis
import sys
from types import CodeType

from ...artifacts.records import Bytecode, ExceptionEntry, Instruction, Ref, ref
from ..bytecode.instructions import code_info, location_in
from ..bytecode.resume_function import Origin, origin_of


def bytecode_record(code: CodeType, role: str, origin: Origin | None = None) -> Bytecode:
    """`code` as a record; with `origin`, each instruction of a resume function refers to the one it was copied from."""
    original = code_info(origin.code).instructions if origin is not None else []
    instructions = []
    for index, raw in enumerate(_instructions(code)):
        origins: tuple[Ref, ...] = ()
        if origin is not None and index >= origin.own:
            origins = (ref("bytecode", original[index + origin.shift].offset),)
        instructions.append(_instruction(code, raw, origins))
    exceptions = tuple(
        ExceptionEntry(entry.start, entry.end, entry.target, entry.depth, bool(entry.lasti))
        for entry in dis._parse_exception_table(code)  # type: ignore[attr-defined]
    )
    name = code.co_qualname if origin_of(code) is None else f"{code.co_qualname} (resumed)"
    return Bytecode(name, tuple(instructions), exceptions, f"{sys.version_info[0]}.{sys.version_info[1]}", role)


def _instructions(code: CodeType) -> list[dis.Instruction]:
    return [raw for raw in dis.get_instructions(code) if raw.opname not in ("EXTENDED_ARG", "CACHE")]


def _instruction(code: CodeType, raw: dis.Instruction, origins: tuple[str, ...]) -> Instruction:
    location = location_in(code, raw.positions)
    jump = raw.opcode in dis.hasjrel or raw.opcode in dis.hasjabs
    effect = None if jump else dis.stack_effect(raw.opcode, raw.arg)
    return Instruction(str(raw.offset), raw.opname, raw.argrepr, location, effect, raw.is_jump_target, origins)
