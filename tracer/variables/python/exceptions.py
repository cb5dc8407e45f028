"""Exceptions that traced code makes, raises and catches itself."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import GetSetDescriptorType, MemberDescriptorType, NoneType, TracebackType
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import Source
from ..core.attributes import MISSING, bind, is_data_descriptor, is_python_method, lookup, special
from ..core.base import Value
from ..core.constant import constant, fold_result
from ..core.late import late
from ..core.registry import builds

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

LINKS = ("__cause__", "__context__", "__suppress_context__", "__traceback__")


class TracebackValue(Value):
    """The traceback of an exception raised in the trace: nothing can be read from it."""

    __slots__ = ()

    def python_type(self) -> type:
        """traceback."""
        return TracebackType

    def truth(self, tx: Translator) -> bool:
        """It is true."""
        return True


class ExceptionValue(Value):
    """An instance of an exception class, made in the trace. `attributes` are those that traced code set, `raised_at` is
    the step of the outermost frame at which it was first raised."""

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

    def truth(self, tx: Translator) -> bool:
        """Exceptions are true."""
        return True

    def raised_while(self, handled: Value | None) -> None:
        """It is raised while `handled` is being handled, which becomes its context."""
        if handled is None or handled is self:
            return
        link: Value = handled
        passed: set[Value] = set()
        while isinstance(link, ExceptionValue) and link not in passed:  # the user may have closed the chain
            passed.add(link)
            if link.attributes.get("__context__") is self:  # Python breaks the cycle, too
                link.attributes["__context__"] = constant(None)
            link = link.attributes.get("__context__", constant(None))
        self.attributes["__context__"] = handled

    def getattr(self, tx: Translator, name: str) -> Value:
        """`args`, attributes set or computed by the class; links that were not set are None."""
        if name in self.attributes:
            return self.attributes[name]
        if name == "args":
            if issubclass(self.cls, OSError) and len(self.args) > 2:  # it extracts the names of files
                return fold_result(tx, self.as_real().args)
            return late.make_tuple(tx, list(self.args))
        if name == "exceptions" and issubclass(self.cls, BaseExceptionGroup) and len(self.args) == 2:
            return late.make_tuple(tx, self.args[1].iterate(tx))
        if name == "message" and issubclass(self.cls, BaseExceptionGroup) and len(self.args) == 2:
            return self.args[0]
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else constant(None)
        if name == "code" and issubclass(self.cls, SystemExit) and len(self.args) == 1:
            return self.args[0]
        if name == "__class__":
            return late.from_python(tx, self.cls)
        if name in LINKS:
            if name == "__context__" and self.raised_at is not None and not tx.guards.nothing_is_handled():
                raise Unsupported(Reason.ATTRIBUTE, self, name)  # it is what a caller of the frame handles
            if name == "__traceback__" and self.raised_at is not None:
                return TracebackValue()
            return constant(False if name == "__suppress_context__" else None)
        found = lookup(self.cls, name)
        if found is MISSING:
            tx.raise_observed(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        if isinstance(found, (MemberDescriptorType, GetSetDescriptorType)) and name != "__dict__":
            if issubclass(self.cls, (AttributeError, NameError, ImportError)) and name != "msg":
                raise Unsupported(Reason.ATTRIBUTE, self, name)  # Python sets them where it raises
            return fold_result(tx, getattr(self.as_real(), name))
        return bind(tx, found, name, self, self.cls, None)

    def base_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Methods of BaseException: `super().__init__(*args)` in a user-defined constructor, str and repr, notes."""
        if name == "__init__":
            self.args = tuple(args)
            return constant(None)
        if name in ("__str__", "__repr__"):
            return constant((str if name == "__str__" else repr)(self.as_real()))
        if name == "add_note":
            if len(args) != 1 or not issubclass(args[0].python_type(), str):
                raise Unsupported(Reason.RAISES, detail=f"TypeError: {self.describe()}.add_note")
            notes = self.attributes.setdefault("__notes__", late.make_list(tx, []))
            return notes.call_method(tx, "append", args, {})
        if name == "with_traceback":
            self.setattr(tx, "__traceback__", args[0])
            return self
        raise Unsupported(Reason.UNSUPPORTED_METHOD, self, name)

    def as_real(self) -> BaseException:
        """A real exception with the same arguments, to compute what builtin classes derive from them."""
        args = [arg.as_constant() for arg in self.args]
        real = self.cls.__new__(self.cls, *args)
        if not is_python_method(lookup(self.cls, "__init__")):
            real.__init__(*args)  # type: ignore[misc]
        return real

    def text(self, tx: Translator, function: Callable[[Any], str]) -> Value:
        """str or repr of the exception."""
        name = f"__{function.__name__}__"
        found = special(tx, self.cls, name)
        if is_python_method(found):
            return bind(tx, found, name, self, self.cls, None).call(tx, [], {})
        own_repr = is_python_method(special(tx, self.cls, "__repr__"))
        if found is BaseException.__str__ and len(self.args) == 1 and not self.args[0].is_constant():
            return late.string_of(tx, self.args[0], str)
        if own_repr and function is not repr and found is not BaseException.__str__:
            raise Unsupported(Reason.UNSUPPORTED_BUILTIN, str, given=(self,))
        return constant(function(self.as_real()))

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """Set an attribute of the exception; it is built with the exception where that escapes."""
        if name == "args":
            self.args = tuple(value.iterate(tx))
            return
        found = lookup(self.cls, name)
        in_c = isinstance(found, (MemberDescriptorType, GetSetDescriptorType)) and name not in LINKS
        if isinstance(found, property) or is_data_descriptor(found) or in_c:
            raise Unsupported(Reason.SET_ATTRIBUTE, self, name)
        kind = value.python_type()
        if name in ("__cause__", "__context__") and not issubclass(kind, (BaseException, NoneType)):
            what = f"exception {name.strip('_')} must be None or derive from BaseException"
            tx.raise_observed(TypeError, what)
        if name == "__traceback__" and not issubclass(kind, (TracebackType, NoneType)):
            tx.raise_observed(TypeError, "__traceback__ must be a traceback or None")
        self.attributes[name] = value
        if name == "__cause__":  # which also hides the context: after what was set before
            self.attributes.pop("__suppress_context__", None)
            self.attributes["__suppress_context__"] = constant(True)

    def reconstruct(self, codegen: Codegen) -> None:
        """The exception with its arguments and attributes, if it was never raised. One that was has a traceback and a
        context, which only eager can give it: the graph breaks where it is raised."""
        if self.raised_at is not None:
            raise Unsupported(Reason.RECONSTRUCT, self, earlier=self.raised_at)
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


_WITH_KEYWORDS = (ImportError, AttributeError, NameError)
"""Builtin exceptions whose constructors take keywords."""

_NOT_ASKED = ("__new__", "__setattr__", "__bool__", "__len__", "__eq__", "__ne__")
"""Methods of a user-defined class that an ExceptionValue does not call."""


def make_exception(
    tx: Translator, exc_type: type[BaseException], args: Sequence[Value], kwargs: Mapping[str, Value] | None = None
) -> Value:
    """`exc_type(*args)`; a constructor written in Python is interpreted."""
    for name in _NOT_ASKED:
        if is_python_method(special(tx, exc_type, name)):
            raise Unsupported(Reason.RAISES, detail=f"{exc_type.__qualname__}, whose {name} is written in Python")
    value = ExceptionValue(exc_type, args)
    if exc_type is OSError and 2 <= len(args) <= 5:  # the number selects a subclass
        value.cls = type(value.as_real())
    init = special(tx, exc_type, "__init__")
    if is_python_method(init):
        bind(tx, init, "__init__", value, exc_type, None).call(tx, args, kwargs or {})
    elif kwargs and not issubclass(exc_type, _WITH_KEYWORDS):
        tx.raise_observed(TypeError, f"{exc_type.__name__}() takes no keyword arguments")
    elif kwargs:
        raise Unsupported(Reason.RAISES, detail=f"{exc_type.__qualname__} with keyword arguments")
    return value


@builds(BaseException)
def build_exception(tx: Translator, obj: BaseException, source: Source | None) -> Value:
    """An existing exception, such as one that eager raised: an ordinary object."""
    if source is None:
        raise Unsupported(Reason.UNKNOWN_TYPE, type(obj))
    return late.build_object(tx, obj, source)


class Handling(Value):
    """What PUSH_EXC_INFO leaves below the exception: `exception` is now being handled, `previous` was before."""

    __slots__ = ("exception", "previous")

    def __init__(self, exception: Value, previous: Value | None) -> None:
        super().__init__()
        self.exception = exception
        self.previous = previous
