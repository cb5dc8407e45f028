"""Exceptions and `with` blocks. The exception table is followed by `Interpreter.unwind`."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...bytecode.opcode_table import opcode
from ...variables import build
from ...variables.core.base import Value
from ...variables.python.exceptions import Handling
from ...variables.python.objects import ObjectValue
from ...variables.torch.context_manager import ModeValue
from .control import is_none

if TYPE_CHECKING:
    from ...bytecode.instructions import Instruction
    from ..interpreter import Interpreter


@opcode("PUSH_EXC_INFO")
def PUSH_EXC_INFO(tx: Interpreter, instruction: Instruction) -> None:
    exception = tx.pop()
    tx.push(Handling(exception, tx.handled))
    tx.push(exception)
    tx.handled = exception


@opcode("POP_EXCEPT")
def POP_EXCEPT(tx: Interpreter, instruction: Instruction) -> None:
    handling = tx.pop()
    assert isinstance(handling, Handling)
    tx.handled = handling.previous
    # Cleanup code pops a copy. What is below it no longer applies: only what was handled before.
    before = build.constant(None) if handling.previous is None else handling.previous
    tx.stack[:] = [before if value is handling else value for value in tx.stack]


@opcode("CHECK_EXC_MATCH")
def CHECK_EXC_MATCH(tx: Interpreter, instruction: Instruction) -> None:
    classes = exception_classes(tx, tx.pop())
    tx.push(build.constant(issubclass(tx.stack[-1].python_type(), classes)))


def exception_classes(tx: Interpreter, value: Value) -> tuple[type, ...]:
    """The classes that an except clause names."""
    if issubclass(value.python_type(), tuple):
        return tuple(cls for item in value.iterate(tx) for cls in exception_classes(tx, item))
    cls = value.as_constant()
    if not (isinstance(cls, type) and issubclass(cls, BaseException)):
        tx.raise_observed(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    return (cls,)


@opcode("CHECK_EG_MATCH")
def CHECK_EG_MATCH(tx: Interpreter, instruction: Instruction) -> None:
    raise Unsupported(Reason.OPCODE, detail="except*")


@opcode("RERAISE")
def RERAISE(tx: Interpreter, instruction: Instruction) -> None:
    tx.raise_value(tx.pop(), again=True)


@opcode("RAISE_VARARGS")
def RAISE_VARARGS(tx: Interpreter, instruction: Instruction) -> None:
    if instruction.arg == 0:
        current = tx.current_exception()
        if current is None and not tx.guards.nothing_is_handled():
            raise Unsupported(Reason.OPCODE, detail="raise of an exception that a caller handles")
        if current is None:
            tx.raise_observed(RuntimeError, "No active exception to reraise")
        tx.raise_value(current, again=True)
    cause = tx.pop() if instruction.arg == 2 else None
    exception = exception_instance(tx, tx.pop())
    if cause is not None:
        given = cause if is_none(cause) else exception_instance(tx, cause, "exception causes")
        exception.setattr(tx, "__cause__", given)
        exception.setattr(tx, "__suppress_context__", build.constant(True))
    tx.raise_value(exception)


def exception_instance(tx: Interpreter, value: Value, what: str = "exceptions") -> Value:
    """The exception that `raise value` raises: an exception class is called."""
    if issubclass(value.python_type(), type) and issubclass(value.as_constant(), BaseException):
        value = value.call(tx, [], {})
    if not issubclass(value.python_type(), BaseException):
        tx.raise_observed(TypeError, f"{what} must derive from BaseException")
    return value


@opcode("LOAD_ASSERTION_ERROR")
def LOAD_ASSERTION_ERROR(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(build.from_python(tx, AssertionError))


@opcode("BEFORE_WITH")
def BEFORE_WITH(tx: Interpreter, instruction: Instruction) -> None:
    manager = tx.pop()
    if not _is_context_manager(tx, manager):
        raise Unsupported(
            Reason.RAISES, detail=f"TypeError: `with` {manager.describe()}, which has no __enter__ or __exit__"
        )
    leave = manager.getattr(tx, "__exit__")
    entered = manager.call_method(tx, "__enter__", [], {})
    tx.enter_context(manager, leave)
    tx.push(leave)
    tx.push(entered)


def _is_context_manager(tx: Interpreter, value: Value) -> bool:
    """Whether the class of the value has the methods that `with` calls: a class that makes context managers is not one
    itself."""
    names = ("__enter__", "__exit__")
    if isinstance(value, ModeValue):
        return True
    if isinstance(value, ObjectValue):
        return None not in [value.method(tx, name) for name in names]
    kind = value.python_type()
    found = all(any(name in vars(cls) for cls in kind.__mro__) for name in names)
    if found and issubclass(kind, type):  # its metaclass makes it one; it may have other methods of these names
        raise Unsupported(Reason.CONTEXT_MANAGER, value, detail=", a class")
    return found


@opcode("WITH_EXCEPT_START")
def WITH_EXCEPT_START(tx: Interpreter, instruction: Instruction) -> None:
    exception, leave = tx.stack[-1], tx.stack[-4]
    if tx.open_contexts and tx.open_contexts[-1].exit is leave:
        tx.open_contexts.pop()
    cls = build.from_python(tx, exception.python_type())
    tx.push(leave.call(tx, [cls, exception, exception.getattr(tx, "__traceback__")], {}))


@opcode("PREP_RERAISE_STAR", before=(3, 12))
def PREP_RERAISE_STAR(tx: Interpreter, instruction: Instruction) -> None:
    raise Unsupported(Reason.OPCODE, detail="except*")
