"""The `match` statement."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...bytecode.opcode_table import opcode
from ...variables import build
from ...variables.containers.mappings import DictValue
from ...variables.core.base import ObservedException, Value
from ...variables.python.instance_checks import is_instance

if TYPE_CHECKING:
    from ...bytecode.instructions import Instruction
    from ..interpreter import Interpreter

_MATCH_SELF = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


@opcode("GET_LEN")
def GET_LEN(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(build.from_python(tx, len).call(tx, [tx.stack[-1]], {}))


@opcode("MATCH_MAPPING")
def MATCH_MAPPING(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(build.constant(issubclass(tx.stack[-1].python_type(), Mapping)))


@opcode("MATCH_SEQUENCE")
def MATCH_SEQUENCE(tx: Interpreter, instruction: Instruction) -> None:
    cls = tx.stack[-1].python_type()
    tx.push(build.constant(issubclass(cls, Sequence) and not issubclass(cls, (str, bytes, bytearray))))


@opcode("MATCH_KEYS")
def MATCH_KEYS(tx: Interpreter, instruction: Instruction) -> None:
    subject, keys = tx.stack[-2], tx.stack[-1]
    if not isinstance(subject, DictValue):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"get of {subject.describe()}")
    constants = [key.as_constant() for key in keys.iterate(tx)]
    twice = next((key for i, key in enumerate(constants) if key in constants[:i]), None)
    if twice is not None:
        tx.raise_observed(ValueError, f"mapping pattern checks duplicate key ({twice!r})")
    present = {key.as_constant() for key in subject.iterate(tx)}
    wanted = list(keys.iterate(tx))
    if all(key.as_constant() in present for key in wanted):
        tx.push(build.make_tuple(tx, [subject.getitem(tx, key) for key in wanted]))
    else:
        tx.push(build.constant(None))


@opcode("MATCH_CLASS")
def MATCH_CLASS(tx: Interpreter, instruction: Instruction) -> None:
    subject, cls, names = tx.popn(3)
    found = _match_class(tx, subject, cls, instruction.arg, names.as_constant())
    tx.push(build.make_tuple(tx, found) if found is not None else build.constant(None))


def _match_class(
    tx: Interpreter, subject: Value, cls: Value, positional: int, names: tuple[str, ...]
) -> list[Value] | None:
    """The attributes that `case cls(...)` binds, None when `subject` does not match."""
    real = cls.as_constant()
    if not is_instance(tx, subject, cls):
        return None
    found: list[Value] = []
    match_args = getattr(real, "__match_args__", None)
    if positional and match_args is None and issubclass(real, _MATCH_SELF):
        if positional > 1:
            tx.raise_observed(TypeError, f"{real.__name__}() accepts 1 positional sub-pattern ({positional} given)")
        found.append(subject)
        positional = 0
    if positional > len(match_args or ()):
        allowed = len(match_args or ())
        plural = "" if allowed == 1 else "s"
        message = f"{real.__name__}() accepts {allowed} positional sub-pattern{plural} ({positional} given)"
        tx.raise_observed(TypeError, message)
    wanted = (*(match_args or ())[:positional], *names)
    if match_args is not None and type(match_args) is not tuple:
        kind = type(match_args).__name__
        tx.raise_observed(TypeError, f"{real.__name__}.__match_args__ must be a tuple (got {kind})")
    wrong = next((name for name in wanted if type(name) is not str), None)
    if wrong is not None:
        kind = type(wrong).__name__
        tx.raise_observed(TypeError, f"__match_args__ elements must be strings (got {kind})")
    twice = next((name for i, name in enumerate(wanted) if name in wanted[:i]), None)
    if twice is not None:
        tx.raise_observed(TypeError, f"{real.__name__}() got multiple sub-patterns for attribute {twice!r}")
    try:
        found += [subject.getattr(tx, name) for name in wanted]
    except ObservedException as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            return None
        raise
    return found
