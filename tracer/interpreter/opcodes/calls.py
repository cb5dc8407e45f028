"""Calls."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...bytecode.opcode_table import opcode
from ...variables import build
from ...variables.core.attributes import lookup
from ...variables.core.base import NULL, Value
from ...variables.core.iteration import collected

if TYPE_CHECKING:
    from ...bytecode.instructions import Instruction
    from ...variables.core.base import Translator
    from ..interpreter import Interpreter


class MethodReference(Value):
    """`owner.name` about to be called: what LOAD_METHOD leaves on the stack, so that no bound method is made."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Value, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Call the method."""
        return self.owner.call_method(tx, self.name, args, kwargs)

    def reconstruct(self, codegen: Any) -> None:
        """The bound method."""
        codegen(self.owner)
        codegen.load_attr(self.name)

    def describe(self) -> str:
        """For messages."""
        return f"the method {self.name} of {self.owner.describe()}"


def method_of(tx: Interpreter, owner: Value, name: str) -> Value:
    """`owner.name` about to be called. It is looked up now, before the arguments are computed; methods of builtin
    types, which surely exist, are looked up when they are called."""
    there = callable(lookup(owner.python_type(), name))
    if there and type(owner).call_method is not Value.call_method:
        return MethodReference(owner, name)
    try:
        return owner.getattr(tx, name)
    except Unsupported as error:
        if not there or "stack" in error.context:  # user code ran, in a property
            raise
        return MethodReference(owner, name)


def call(tx: Interpreter, function: Value, args: list[Value], kwargs: Mapping[str, Value]) -> None:
    """Call and push the result; a call of the `__exit__` of the innermost open `with` block closes it."""
    if tx.open_contexts and tx.open_contexts[-1].exit is function:
        tx.open_contexts.pop()
    tx.stack.append(function.call(tx, args, kwargs))


@opcode("PRECALL", before=(3, 12))
def PRECALL(tx: Interpreter, instruction: Instruction) -> None:
    pass


@opcode("KW_NAMES", before=(3, 13))
def KW_NAMES(tx: Interpreter, instruction: Instruction) -> None:
    tx.kw_names = instruction.value


@opcode("CALL", before=(3, 13))
def CALL(tx: Interpreter, instruction: Instruction) -> None:
    below, function, *args = tx.popn(instruction.arg + 2)
    if below is not NULL:
        args.insert(0, function)
        function = below
    names = tx.kw_names
    if not names:
        call(tx, function, args, {})
        return
    tx.kw_names = ()
    split = len(args) - len(names)
    call(tx, function, args[:split], dict(zip(names, args[split:])))


@opcode("CALL_FUNCTION_EX")
def CALL_FUNCTION_EX(tx: Interpreter, instruction: Instruction) -> None:
    kwargs = keyword_arguments(tx, tx.pop()) if instruction.arg & 1 else {}
    starred = tx.pop()
    if not hasattr(starred.python_type(), "__iter__") and not hasattr(starred.python_type(), "__getitem__"):
        raise Unsupported(Reason.RAISES, detail=f"TypeError: `*` of {starred.describe()}")
    args = collected(tx, starred)
    below, function = tx.popn(2)
    call(tx, function if below is NULL else below, args, kwargs)


def keyword_arguments(tx: Interpreter, mapping: Value) -> dict[str, Value]:
    """The arguments that `**mapping` gives."""
    kwargs = {}
    for key in mapping.iterate(tx):
        name = key.as_constant()
        if not isinstance(name, str):
            raise Unsupported(Reason.RAISES, detail="TypeError: keywords must be strings")
        kwargs[name] = mapping.getitem(tx, key)
    return kwargs


@opcode("LOAD_METHOD", before=(3, 12))
def LOAD_METHOD(tx: Interpreter, instruction: Instruction) -> None:
    owner = tx.stack[-1]
    method = method_of(tx, owner, instruction.value)
    tx.stack[-1] = NULL
    tx.stack.append(method)


@opcode("LOAD_ATTR", before=(3, 12))
def LOAD_ATTR(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack[-1] = tx.stack[-1].getattr(tx, instruction.value)


@opcode("LIST_TO_TUPLE", before=(3, 12))
def LIST_TO_TUPLE(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(build.make_tuple(tx, list(tx.stack.pop().iterate(tx))))
