"""Exceptions that the traced program makes, raises and catches itself."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .attributes import MISSING, bind, is_python_method, lookup
from .base import Unsupported, Value
from .constant import constant
from .registry import REGISTRY, builds

if TYPE_CHECKING:
    from ..codegen import Codegen
    from ..interpreter import Interpreter

LINKS = ("__cause__", "__context__", "__suppress_context__", "__traceback__")


class ExceptionValue(Value):
    """An instance of an exception class, made in the trace. `attributes` are those that the program set, `raised_at` is
    the step of the outermost frame in which it was raised first."""

    __slots__ = ("args", "attributes", "cls", "raised_at")

    def __init__(self, cls: type[BaseException], args: Sequence[Value]) -> None:
        super().__init__()
        self.cls = cls
        self.args = tuple(args)
        self.attributes: dict[str, Value] = {}
        self.raised_at: int | None = None

    def python_type(self) -> type:
        """The exception's class."""
        return self.cls

    def truth(self, tx: Interpreter) -> bool:
        """Exceptions are true."""
        return True

    def getattr(self, tx: Interpreter, name: str) -> Value:
        """`args`, `value` of StopIteration, what the program set; links that it did not set are None."""
        if name in self.attributes:
            return self.attributes[name]
        if name == "args":
            return REGISTRY["make_tuple"](tx, list(self.args))
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else constant(None)
        if name == "__class__":
            return REGISTRY["from_python"](tx, self.cls)
        if name in LINKS:
            return constant(False if name == "__suppress_context__" else None)
        found = lookup(self.cls, name)
        if found is MISSING:
            tx.raise_observed(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        return bind(tx, found, name, self, self.cls, None)

    def base_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`super().__init__(*args)` in a constructor of the program."""
        if name == "__init__":
            self.args = tuple(args)
            return constant(None)
        raise Unsupported("call", f"{self.describe()}.{name}")

    def as_real(self) -> BaseException:
        """An exception with the same arguments, for its text; a class that makes its own text is left to eager."""
        if any(is_python_method(lookup(self.cls, name)) for name in ("__str__", "__repr__")):
            raise Unsupported("call", f"str() of {self.describe()}")
        return self.cls.__new__(self.cls, *[arg.as_constant() for arg in self.args])

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        """Set an attribute of the exception; it is built with the exception where that escapes."""
        self.attributes[name] = value

    def reconstruct(self, codegen: Codegen) -> None:
        """The exception with its arguments and attributes, for one that was never raised. One that was has a traceback
        and a context, which only eager can give it: the graph breaks where it is raised."""
        if self.raised_at is not None:
            raise Unsupported("reconstruct", self.describe(), earlier=self.raised_at)
        codegen.push_function(unraised)
        codegen.const(self.cls)
        for group in (self.args, tuple(self.attributes.values())):
            for value in group:
                codegen(value)
            codegen.build("BUILD_TUPLE", len(group))
        codegen.const(tuple(self.attributes))
        codegen.call(4)

    def describe(self) -> str:
        """For messages."""
        return f"{self.cls.__name__}({', '.join(arg.describe() for arg in self.args)})"


def unraised(cls: type[BaseException], args: tuple[Any, ...], values: tuple[Any, ...], names: tuple[str, ...]) -> Any:
    """An exception whose constructor has been traced."""
    exception = cls.__new__(cls, *args)
    if not is_python_method(lookup(cls, "__init__")):
        exception.__init__(*args)  # type: ignore[misc]
    for name, value in zip(names, values):
        setattr(exception, name, value)
    return exception


def make_exception(
    tx: Interpreter, exc_type: type[BaseException], args: Sequence[Value], kwargs: Mapping[str, Value] | None = None
) -> Value:
    """`exc_type(*args)`; a constructor written in Python is interpreted."""
    if is_python_method(lookup(exc_type, "__new__")):
        raise Unsupported("raises", f"{exc_type.__qualname__}, whose __new__ is written in Python")
    value = ExceptionValue(exc_type, args)
    init = lookup(exc_type, "__init__")
    if is_python_method(init):
        bind(tx, init, "__init__", value, exc_type, None).call(tx, args, kwargs or {})
    elif kwargs:
        raise Unsupported("raises", f"{exc_type.__qualname__} with keyword arguments")
    return value


@builds(BaseException)
def build_exception(tx: Interpreter, obj: object, source: object) -> Value:
    """An exception that exists already: not followed."""
    raise Unsupported("unknown-type", type(obj).__qualname__)
