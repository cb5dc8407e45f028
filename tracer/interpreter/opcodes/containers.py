"""Building, extending and unpacking containers; f-strings."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...bytecode.opcode_table import opcode
from ...variables import build
from ...variables.containers.iterators import get_iter
from ...variables.core.base import Value
from ...variables.core.iteration import collected

if TYPE_CHECKING:
    from ...bytecode.instructions import Instruction
    from ..interpreter import Interpreter


@opcode("BUILD_TUPLE")
def BUILD_TUPLE(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(build.make_tuple(tx, tx.popn(instruction.arg)))


@opcode("BUILD_LIST")
def BUILD_LIST(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(build.make_list(tx, tx.popn(instruction.arg)))


@opcode("BUILD_SET")
def BUILD_SET(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(build.make_set(tx, tx.popn(instruction.arg)))


@opcode("BUILD_MAP")
def BUILD_MAP(tx: Interpreter, instruction: Instruction) -> None:
    items = tx.popn(2 * instruction.arg)
    tx.stack.append(build.make_dict(tx, items[::2], items[1::2]))


@opcode("BUILD_CONST_KEY_MAP")
def BUILD_CONST_KEY_MAP(tx: Interpreter, instruction: Instruction) -> None:
    keys = [build.from_python(tx, key) for key in tx.pop().as_constant()]
    tx.stack.append(build.make_dict(tx, keys, tx.popn(instruction.arg)))


@opcode("BUILD_SLICE")
def BUILD_SLICE(tx: Interpreter, instruction: Instruction) -> None:
    parts = tx.popn(instruction.arg)
    if len(parts) == 2:
        parts.append(build.constant(None))
    tx.stack.append(build.make_slice(tx, parts))


@opcode("BUILD_STRING")
def BUILD_STRING(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(build.joined(tx, tx.popn(instruction.arg)))


@opcode("FORMAT_VALUE", before=(3, 13))
def FORMAT_VALUE(tx: Interpreter, instruction: Instruction) -> None:
    spec = tx.pop() if instruction.arg & 4 else None
    conversion = ("", "s", "r", "a")[instruction.arg & 3]
    tx.stack.append(build.format_value(tx, tx.pop(), conversion, spec))


# ---- extending (comprehensions, displays with *, calls with **) -----------------------------------------------------
@opcode("LIST_APPEND")
def LIST_APPEND(tx: Interpreter, instruction: Instruction) -> None:
    value = tx.pop()
    tx.stack[-instruction.arg].call_method(tx, "append", [value], {})


@opcode("LIST_EXTEND")
def LIST_EXTEND(tx: Interpreter, instruction: Instruction) -> None:
    value = iterable(tx, tx.pop(), "Value after * must be an iterable, not {}")
    tx.stack[-instruction.arg].call_method(tx, "extend", [value], {})


@opcode("SET_ADD")
def SET_ADD(tx: Interpreter, instruction: Instruction) -> None:
    value = tx.pop()
    tx.stack[-instruction.arg].call_method(tx, "add", [value], {})


@opcode("SET_UPDATE")
def SET_UPDATE(tx: Interpreter, instruction: Instruction) -> None:
    value = tx.pop()
    tx.stack[-instruction.arg].call_method(tx, "update", [value], {})


@opcode("MAP_ADD")
def MAP_ADD(tx: Interpreter, instruction: Instruction) -> None:
    key, value = tx.popn(2)
    tx.stack[-instruction.arg].setitem(tx, key, value)


def mapping(value: Value) -> Value:
    """The value, where it has keys; eager raises TypeError otherwise."""
    if not hasattr(value.python_type(), "keys"):
        raise Unsupported(Reason.RAISES, detail=f"TypeError: `**` of {value.describe()}, which is no mapping")
    return value


@opcode("DICT_UPDATE")
def DICT_UPDATE(tx: Interpreter, instruction: Instruction) -> None:
    value = mapping(tx.pop())
    tx.stack[-instruction.arg].call_method(tx, "update", [value], {})


@opcode("DICT_MERGE")
def DICT_MERGE(tx: Interpreter, instruction: Instruction) -> None:
    more = mapping(tx.pop())
    target = tx.stack[-instruction.arg]
    present = {key.as_constant() for key in target.iterate(tx)}
    for key in more.iterate(tx) if present else ():
        if key.as_constant() in present:
            raise Unsupported(
                Reason.RAISES, detail=f"TypeError: multiple values for keyword argument {key.as_constant()!r}"
            )
    target.call_method(tx, "update", [more], {})


# ---- unpacking ------------------------------------------------------------------------------------------------------
def take(tx: Interpreter, iterator: Value, count: int) -> list[Value]:
    """At most `count` values of an iterator."""
    values: list[Value] = []
    while len(values) < count and (value := iterator.next(tx)) is not None:
        values.append(value)
    return values


_UNPACKED = "cannot unpack non-iterable {} object"


@opcode("UNPACK_SEQUENCE")
def UNPACK_SEQUENCE(tx: Interpreter, instruction: Instruction) -> None:
    count = instruction.arg
    values = take(tx, get_iter(tx, iterable(tx, tx.pop(), _UNPACKED)), count + 1)
    if len(values) < count:
        tx.raise_observed(ValueError, f"not enough values to unpack (expected {count}, got {len(values)})")
    if len(values) > count:
        tx.raise_observed(ValueError, f"too many values to unpack (expected {count})")
    tx.stack.extend(reversed(values))


def iterable(tx: Interpreter, value: Value, message: str) -> Value:
    """The value, where its type is iterable; TypeError in traced code with `message` for a constant that is not."""
    kind = value.python_type()
    if value.is_constant() and not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
        tx.raise_observed(TypeError, message.format(kind.__name__))
    return value


@opcode("UNPACK_EX")
def UNPACK_EX(tx: Interpreter, instruction: Instruction) -> None:
    before, after = instruction.arg & 0xFF, instruction.arg >> 8
    iterator = get_iter(tx, iterable(tx, tx.pop(), _UNPACKED))
    values = list(take(tx, iterator, before))
    if len(values) == before:
        values += collected(tx, iterator)
    if len(values) < before + after:
        message = f"not enough values to unpack (expected at least {before + after}, got {len(values)})"
        tx.raise_observed(ValueError, message)
    split = len(values) - after
    tx.stack.extend(reversed(values[split:]))
    tx.stack.append(build.make_list(tx, values[before:split]))
    tx.stack.extend(reversed(values[:before]))
