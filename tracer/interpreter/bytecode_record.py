"""Records of bytecode: the original, the rewritten code, the resume functions."""
from __future__ import annotations

import dis
import inspect
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
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return Bytecode(name, tuple(instructions), exceptions, version, role, _parameters(code))


def _parameters(code: CodeType) -> tuple[str, ...]:
    """The parameters as a signature has them, without defaults."""
    positional, keyword = code.co_argcount, code.co_kwonlyargcount
    names = list(code.co_varnames)
    rest = names[positional + keyword:]
    star = [f"*{rest.pop(0)}"] if code.co_flags & inspect.CO_VARARGS else ["*"] if keyword else []
    found = [*names[:positional], *star, *names[positional: positional + keyword]]
    found += [f"**{rest[0]}"] if code.co_flags & inspect.CO_VARKEYWORDS else []
    if code.co_posonlyargcount:
        found.insert(code.co_posonlyargcount, "/")
    return tuple(found)


def _instructions(code: CodeType) -> list[dis.Instruction]:
    return [raw for raw in dis.get_instructions(code) if raw.opname not in ("EXTENDED_ARG", "CACHE")]


def _instruction(code: CodeType, raw: dis.Instruction, origins: tuple[str, ...]) -> Instruction:
    location = location_in(code, raw.positions)
    jump = raw.opcode in dis.hasjrel or raw.opcode in dis.hasjabs
    effect = None if jump else dis.stack_effect(raw.opcode, raw.arg)
    argument = _argument(code, raw, jump)
    return Instruction(str(raw.offset), raw.opname, argument, location, effect, raw.is_jump_target, origins)


def _argument(code: CodeType, raw: dis.Instruction, jump: bool) -> str:
    """The argument as `dis` shows it, with offsets for labels; where it shows none, the number."""
    if jump:
        return f"to {raw.argval}"
    if raw.opname == "KW_NAMES":
        return repr(code.co_consts[raw.arg or 0])
    return raw.argrepr or (str(raw.arg) if raw.arg is not None and raw.opname != "RESUME" else "")
