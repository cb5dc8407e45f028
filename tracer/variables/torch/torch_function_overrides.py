"""`__torch_function__`: modes and arguments that override functions of torch.

Which override torch calls first, for which function and with which arguments, is decided by torch itself: the operation
is called with stand-ins of the arguments' types under a mode that only listens. The override is then interpreted like
any Python. `OverrideState` records what traced code has changed about all this so far.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch.overrides

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...shapes.wrapper_subclasses import has_torchs_overrides
from ..containers.dicts import make_dict
from ..containers.lists import ListValue, make_list
from ..containers.sequences import TupleValue, make_tuple
from ..core.attributes import MISSING, bind, is_python_method, lookup, type_source
from ..core.base import Value
from ..core.constant import constant
from ..core.late import late
from ..core.operators import IN_PLACE, REFLECTED, UNARY
from ..core.registry import from_python

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]
_DISABLED = torch._C._disabled_torch_function_impl


@dataclass
class OverrideState:
    """The modes of traced code, innermost last, and whether overrides of arguments are enabled (`on_types`) and modes
    are disabled (`off`). `seen`: there is an argument with an override. `classes`: the tensor classes seen in the
    trace."""

    modes: list[Value] = field(default_factory=list)
    on_types: bool = field(default_factory=torch._C._is_torch_function_enabled)
    off: bool = field(default_factory=torch._C._is_torch_function_all_disabled)
    seen: bool = False
    classes: set[type] = field(default_factory=set)

    @property
    def may_ask(self) -> bool:
        """Whether any override could be called now."""
        return bool(self.modes) or (self.seen and self.on_types)

    @contextmanager
    def set(self, modes: list[Value], on_types: bool) -> Iterator[None]:
        """Another state inside the block; the block's changes of the modes are undone."""
        before = self.modes, self.on_types
        self.modes, self.on_types = modes, on_types
        try:
            yield
        finally:
            self.modes, self.on_types = before


def has_override(cls: type) -> bool:
    """Whether this class overrides torch functions."""
    if cls is torch.Tensor or cls is torch.nn.Parameter:
        return False
    found = lookup(cls, "__torch_function__")
    if found is MISSING or found is None or found is _DISABLED:
        return False
    return not has_torchs_overrides(cls)


def note_class(tx: Translator, cls: type) -> None:
    """There is an instance of `cls` in the trace."""
    if hasattr(cls, "__torch_function__") and has_override(cls):
        tx.trace.overrides.seen = True


def override(tx: Translator, operation: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value | None:
    """The result of a mode or an argument for `operation(*args, **kwargs)`; None where nothing overrides it. Raises
    Unsupported where all return NotImplemented, which is an error."""
    state = tx.trace.overrides
    if not state.may_ask:
        return None
    found = [*parts(args), *parts(list(kwargs.values()))]
    asked_types = state.on_types and any(has_override(_class(value)) for value in found)
    if not state.modes and not asked_types:
        return None
    question = _question(tx, operation, args, kwargs)
    if question is None or not (question.types or state.modes):
        if question is not None and isinstance(operation, FunctionType):  # nested calls are overridden too
            return tx.inline(late.existing_function(tx, operation), args, kwargs)
        return None
    return _answer(tx, question, found)


def asks(tx: Translator, values: Args) -> bool:
    """Whether a mode, or one of these arguments, overrides torch functions."""
    state = tx.trace.overrides
    return bool(state.modes) or (state.on_types and any(has_override(_class(value)) for value in values))


def parts(values: Sequence[Value]) -> Iterator[Value]:
    """The values, and those in lists and tuples among them."""
    for value in values:
        if isinstance(value, (TupleValue, ListValue)):
            yield from parts(value.items)
        else:
            yield value


def _class(value: Value) -> type:
    """The class that decides whether a value overrides: only tensors and objects may."""
    cls = getattr(value, "kind", None) or getattr(value, "cls", None)
    return cls if isinstance(cls, type) and not value.is_constant() else object


# ---- which override torch calls --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Question:
    """The arguments of `__torch_function__`; `kwargs` is None where torch passes none."""

    func: Value
    types: tuple[type, ...]
    args: Value
    kwargs: Value | None


class _Asked(BaseException):
    """Ends the call of an operation with stand-ins."""


class _Listener(torch.overrides.TorchFunctionMode):
    """Records the first call of a mode."""

    def __init__(self) -> None:
        self.question: tuple[Any, ...] | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.question = func, types, args, kwargs
        raise _Asked


class _StandIns:
    """Objects of the arguments' types, and the way back."""

    def __init__(self, tx: Translator) -> None:
        self.tx = tx
        self.values: dict[int, tuple[Any, Value]] = {}

    def of(self, value: Value) -> Any:
        """The stand-in for `value`."""
        made = self._made(value)
        self.values[id(made)] = made, value
        return made

    def _made(self, value: Value) -> Any:
        cls = _class(value)
        if isinstance(value, TupleValue) and not value.is_constant():
            return tuple([self.of(item) for item in value.items])
        if isinstance(value, ListValue):
            return [self.of(item) for item in value.items]
        if value.is_constant():
            return value.as_constant()
        if issubclass(value.python_type(), torch.Tensor):
            with torch._C.DisableTorchFunctionSubclass():
                return torch.empty(0).as_subclass(cls if has_override(cls) else torch.Tensor)
        return object.__new__(cls) if has_override(cls) else _number(value)

    def back(self, part: Any) -> Value:
        """The Value of what torch passes for an argument."""
        known = self.values.get(id(part))
        if known is not None:
            return known[1]
        if type(part) is tuple:
            return make_tuple(self.tx, [self.back(item) for item in part])
        if type(part) is list:
            return make_list(self.tx, [self.back(item) for item in part])
        if type(part) is dict:
            return make_dict(self.tx, [constant(name) for name in part], [self.back(item) for item in part.values()])
        return from_python(self.tx, part)


def _number(value: Value) -> Any:
    """The symbol of a number that varies; any object, if it is not an argument of an operator."""
    return getattr(value, "symbol", object())


def _question(tx: Translator, operation: Callable[..., Any], args: Args, kwargs: Kwargs) -> Question | None:
    if _runs_program(operation, args):
        raise Unsupported(
            Reason.OPERATOR, detail=f"{_name(operation)} to {' and '.join(arg.describe() for arg in args)}"
        )
    stand_ins, listener = _StandIns(tx), _Listener()
    given = [stand_ins.of(arg) for arg in args]
    named = {name: stand_ins.of(arg) for name, arg in kwargs.items()}
    try:
        with listener:
            operation(*given, **named)
    except _Asked:
        pass
    except Exception as error:
        raise Unsupported(Reason.OPERATOR_ERROR, detail=f"{_name(operation)}: {error}") from error
    if listener.question is None:
        return None
    func, types, call_args, call_kwargs = listener.question
    state = tx.trace.overrides
    return Question(
        from_python(tx, func), tuple(types) if state.on_types else (), stand_ins.back(tuple(call_args)),
        None if call_kwargs is None else stand_ins.back(call_kwargs),
    )  # fmt: skip


def _runs_program(operation: Callable[..., Any], args: Args) -> bool:
    """Whether Python would call an operator of a user-defined class instead of torch's."""
    if operation in UNARY:
        return program_defines(args[0].python_type(), UNARY[operation])
    names = REFLECTED.get(IN_PLACE.get(operation, operation))
    if names is None:
        return False
    left, right = args[0].python_type(), args[1].python_type()
    if program_defines(left, names[0]) or (operation in IN_PLACE and program_defines(left, f"__{_name(operation)}__")):
        return True
    return left is not right and issubclass(right, left) and program_defines(right, names[1])


def program_defines(cls: type, name: str) -> bool:
    """Whether a user-defined class has the method, rather than the torch class from which it derives."""
    found = lookup(cls, name)
    return is_python_method(found) and found is not lookup(torch.Tensor, name)


def _name(operation: Any) -> str:
    return getattr(operation, "__name__", str(operation))


def _answer(tx: Translator, question: Question, found: Sequence[Value]) -> Value:
    """Call the innermost mode, then the arguments in torch's order."""
    state = tx.trace.overrides
    types = make_tuple(tx, [from_python(tx, cls) for cls in question.types])
    given = [question.func, types, question.args, *([] if question.kwargs is None else [question.kwargs])]
    if state.modes:
        mode = state.modes[-1]
        with state.set(state.modes[:-1], state.on_types):
            answer = mode.getattr(tx, "__torch_function__").call(tx, given, {})
        if not _declined(answer):
            return answer
    for cls in question.types:
        owner = next(value for value in found if _class(value) is cls)
        member = lookup(cls, "__torch_function__")
        if not isinstance(member, (classmethod, staticmethod)):
            raise Unsupported(
                Reason.UNSUPPORTED_METHOD, cls, "__torch_function__", detail=", which is no class method,"
            )
        answer = bind(tx, member, "__torch_function__", owner, cls, type_source(owner)).call(tx, given, {})
        if not _declined(answer):
            return answer
    raise Unsupported(Reason.RAISES, detail=f"no implementation found for {question.func.describe()}")


def _declined(answer: Value) -> bool:
    return answer.is_constant() and answer.as_constant() is NotImplemented


def call_method(name: str) -> Callable[..., Any]:
    """The call of a torch method, as an operation."""

    def operation(owner: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(torch.Tensor, name)(owner, *args, **kwargs)

    operation.__name__ = name
    return operation


def override_node(tx: Translator, target: Any, op: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`override`, for what is about to become a node; functions of torch.func levels cannot be overridden."""
    if id(target) in _OF_LEVELS:
        return None
    return override(tx, call_method(target) if op == "call_method" else target, args, kwargs)


_OF_LEVELS = {id(function): function for function in vars(torch._C._functorch).values() if callable(function)}


def is_overridable(function: Any) -> bool:
    """Whether torch lists the function as overridable."""
    try:
        return function in torch.overrides.get_testing_overrides()
    except TypeError:
        return False


late.torch_function_override = override
late.is_overridable = is_overridable
