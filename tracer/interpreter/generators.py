"""Generators in traced code: a nested interpreter that is stepped when a value is needed."""
from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported
from ..variables import build
from ..variables.core.base import ObservedException, Value
from ..variables.core.constant import BoundBuiltin
from ..variables.core.late import late
from ..variables.python.exceptions import ExceptionValue
from .interpreter import Interpreter

if TYPE_CHECKING:
    from ..variables.core.base import Translator


VERSION = sys.version_info[:2]


def _thrown(tx: Translator, kind: Value, value: Value | None = None, traceback: Value | None = None) -> Value:
    """The exception that `generator.throw(kind, value, traceback)` raises."""
    given = [] if value is None or (value.is_constant() and value.as_constant() is None) else [value]
    if issubclass(kind.python_type(), BaseException):
        if given:
            tx.raise_observed(TypeError, "instance exception may not have a separate value")
        return kind
    if given and issubclass(value.python_type(), BaseException):  # type: ignore[union-attr]
        return given[0]
    if issubclass(kind.python_type(), type) and issubclass(kind.as_constant(), BaseException):
        return kind.call(tx, given, {})
    raise Unsupported(Reason.GENERATOR, detail=f"throw({kind.describe()})")


class GeneratorValue(Value):
    """A generator object made in the trace. `frame` is its interpreter, stopped at the start or at a yield."""

    __slots__ = ("finished", "frame", "result", "running", "started")

    def __init__(self, frame: Interpreter) -> None:
        super().__init__()
        self.frame = frame
        self.started = False
        self.running = False
        self.finished = False
        self.result: Value | None = None
        frame.trace.generators.append(self)

    def has_cleanup(self) -> bool:
        """Whether closing the generator here is observable: it is suspended inside a `try` or `with`, or holds another
        one that is."""
        seen: dict[GeneratorValue, None] = {}
        pending = [self]
        while pending:
            generator = pending.pop()
            if generator in seen or not generator.started or generator.finished:
                continue
            seen[generator] = None
            frame = generator.frame
            if frame.info.cleans_up_at(frame.index - 1, frame.f_globals):
                return True
            pending += [held for held in (*frame.stack, *frame.locals.values()) if isinstance(held, GeneratorValue)]
        return False

    def may_clean_up(self) -> bool:
        """Whether closing it is observable here, or at a yield at which it may be once Python has it."""
        if self.finished:
            return False
        return self.has_cleanup() or self.frame.info.may_clean_up(self.frame.f_globals)

    def python_type(self) -> type:
        """The type of generators."""
        return GeneratorType

    def iter(self, tx: Translator) -> Value:
        """Itself."""
        return self

    def truth(self, tx: Translator) -> bool:
        """Generators are true."""
        return True

    def next(self, tx: Translator) -> Value | None:
        """The next value; None when the generator is exhausted (its return value is then in `result`)."""
        return self.resume(tx, build.constant(None))

    def resume(self, tx: Translator, sent: Value, error: Value | None = None) -> Value | None:
        """Resume after the yield, whose value is `sent`, or at which `error` is raised."""
        if self.running:
            tx.raise_observed(ValueError, "generator already executing")
        if self.finished:
            if error is not None:
                tx.raise_value(error)
            return None
        if isinstance(error, ExceptionValue) and error.raised_at is None:
            error.raised_at = tx.trace.safe_step()
        if error is not None and error.source is not None:  # its traceback changes where it is caught
            raise Unsupported(Reason.RERAISED_EXCEPTION, error)
        if not self.started and error is None and not (sent.is_constant() and sent.as_constant() is None):
            tx.raise_observed(TypeError, "can't send non-None value to a just-started generator")
        frame = self.frame
        frame.set_parent(cast(Interpreter, tx))
        self.running = True
        try:
            value = self._step(tx, sent, error)
        except ObservedException as raised:
            self.finished = True
            if issubclass(raised.value.python_type(), StopIteration):
                self._turn(tx, raised.value)
            raise
        finally:
            self.running = False
        if frame.returned is not None:
            self.finished = True
            self.result = value
            return None
        frame.yielded = None
        return value

    def _turn(self, tx: Translator, stop: Value) -> NoReturn:
        """PEP 479: a StopIteration that leaves a generator becomes the cause of a RuntimeError. It would end one of the
        tracer's iterators that is written as a generator: Python then runs its own."""
        if self.frame.f_globals.get("__name__", "").startswith("ptdebug."):
            raise Unsupported(Reason.ITERATE, self, detail=", in which StopIteration is raised")
        error = build.make_exception(tx, RuntimeError, [build.constant("generator raised StopIteration")])
        for name, value in (("__cause__", stop), ("__context__", stop), ("__suppress_context__", build.constant(True))):
            error.setattr(tx, name, value)
        tx.raise_value(error, again=True)

    def _step(self, tx: Translator, sent: Value, error: Value | None) -> Value:
        frame = self.frame
        if self.started:
            frame.push(sent)
        if error is not None:
            if not self.started:
                raise ObservedException(error)
            frame.pop()
            value = self._throw(tx, error)
            if value is not None:
                frame.yielded = value
                return value
        self.started = True
        return frame.run()

    def _throw(self, tx: Translator, error: Value) -> Value | None:
        """Raise `error` where the frame is suspended: first in the generator that it delegates to, whose next value may
        be the result; None when the frame resumes."""
        frame = self.frame
        receiver = self._receiver()
        if isinstance(receiver, GeneratorValue):
            try:
                if issubclass(error.python_type(), GeneratorExit):
                    receiver.close(tx)
                else:
                    value = receiver.resume(tx, build.constant(None), error)
                    if value is not None:
                        return value
                    self._delegation_ended(receiver)
                    return None
            except ObservedException as raised:
                error = raised.value
        if isinstance(error, ExceptionValue):
            error.raised_while(frame.handled)
        if not frame.unwind(error):
            raise ObservedException(error)
        return None

    def _receiver(self) -> Value | None:
        """What the frame delegates to with `yield from`, when it is suspended there."""
        resume = self.frame.info.instructions[self.frame.index]
        return self.frame.stack[-1] if resume.opname == "RESUME" and resume.arg & 3 == 2 else None

    def _delegation_ended(self, receiver: GeneratorValue) -> None:
        """Resume after `yield from`, whose value is what `receiver` returned."""
        frame = self.frame
        send = next(i for i in reversed(frame.info.instructions[: frame.index]) if i.opname == "SEND")
        if VERSION < (3, 12):
            frame.pop()
        frame.push(receiver.result if receiver.result is not None else build.constant(None))
        frame.index = send.target

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """All remaining values."""
        values = []
        while (value := self.next(tx)) is not None:
            tx.trace.spend()
            values.append(value)
        return values

    def getattr(self, tx: Translator, name: str) -> Value:
        """Its names, and its methods."""
        if name in ("__name__", "__qualname__"):
            return build.constant(getattr(self.frame.code, f"co_{name.strip('_')}"))
        if name in ("__next__", "__iter__", "send", "throw", "close"):
            return BoundBuiltin(self, name)
        if name == "__class__":
            return build.from_python(tx, GeneratorType)
        if not hasattr(GeneratorType, name):
            tx.raise_observed(AttributeError, f"'generator' object has no attribute '{name}'")
        return super().getattr(tx, name)

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """next, send, throw and close, as user code calls them."""
        if name == "__iter__":
            return self
        if name in ("__next__", "send"):
            value = self.resume(tx, args[0] if args else build.constant(None))
            if value is None:
                self.raise_stop(tx)
            return value  # type: ignore[return-value]
        if name == "close":
            return self.close(tx)
        if name == "throw" and args and (len(args) == 1 or VERSION < (3, 12)):  # more arguments then give a warning
            value = self.resume(tx, build.constant(None), _thrown(tx, *args))
            if value is None:
                self.raise_stop(tx)
            return value  # type: ignore[return-value]
        raise Unsupported(Reason.GENERATOR, self, name)

    def raise_stop(self, tx: Translator) -> Any:
        """StopIteration, with the generator's return value when it has one."""
        result, self.result = self.result, None
        some = result is not None and not (result.is_constant() and result.as_constant() is None)
        tx.raise_value(build.make_exception(tx, StopIteration, [result] if result is not None and some else []))

    def close(self, tx: Translator) -> Value:
        """generator.close()."""
        if self.started and not self.finished:
            exit_ = build.make_exception(tx, GeneratorExit, [])
            try:
                if self.resume(tx, build.constant(None), exit_) is not None:
                    tx.raise_observed(RuntimeError, "generator ignored GeneratorExit")
                if VERSION >= (3, 13) and self.result is not None:
                    result, self.result = self.result, None
                    return result
            except ObservedException as raised:
                if not issubclass(raised.value.python_type(), (GeneratorExit, StopIteration)):
                    raise
        self.finished = True
        return build.constant(None)

    def reconstruct(self, codegen: Any) -> None:
        """A real generator suspended at the same place: `suspended_generators.py`."""
        late.push_generator(codegen, self)

    def describe(self) -> str:
        """For messages."""
        return f"the generator {self.frame.code.co_qualname}"


late.make_generator = GeneratorValue
