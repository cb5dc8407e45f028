"""Classes as values: their attributes, and the instances that calling them makes."""
from __future__ import annotations

import enum
import operator
import typing
from collections.abc import Callable, Mapping, Sequence
from types import ClassMethodDescriptorType, FunctionType, GenericAlias, UnionType
from typing import TYPE_CHECKING, Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.roots import WeakrefSource
from ...sources.source import AttrSource, CallSource, Source
from ..containers.sequences import TupleValue, field_names, is_plain
from ..core.attributes import (
    MISSING,
    bind,
    is_behind_descriptor,
    is_python_method,
    is_user_defined,
    lookup,
    method_of,
    part_of,
    special,
    stored_in_class,
)
from ..core.base import Value
from ..core.constant import BoundBuiltin, SnapshotIterator, constant, fold
from ..core.finalizers import refuse_visible_death
from ..core.handlers import PURE, handler_of, handles
from ..core.identity_guards import guard_library_member, guard_unchanged
from ..core.late import late
from ..core.operators import REFLECTED
from ..core.registry import CONSTANT_TYPES, build, builds, existing, from_python, importable, is_library, is_stable
from ..torch.context_manager import CONSTRUCTORS, check_written
from ..torch.graph_functions import is_traced
from .bound_methods import build_bound
from .builtin_functions import BuiltinValue
from .enums import is_plain_enum, member_of
from .exceptions import make_exception
from .instance_checks import by_class, subclasses
from .instances import new_object
from .operand_errors import refuse_construction
from .partials import MethodValue

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class ClassValue(Value):
    """A class."""

    __slots__ = ("cls",)

    def __init__(self, cls: type, source: Source | None = None) -> None:
        super().__init__(source)
        self.cls = cls

    def python_type(self) -> type:
        """The metaclass."""
        return type(self.cls)

    def is_constant(self) -> bool:
        """Classes are taken as they are."""
        return True

    def as_constant(self) -> type:
        """The class."""
        return self.cls

    def truth(self, tx: Translator) -> bool:
        """Classes are true unless the metaclass decides otherwise; an enum's counts its members, of which it has
        some."""
        special = self._special(tx, "__bool__") or self._special(tx, "__len__")
        return special is None or is_plain_enum(self.cls) or special.truth(tx)

    # ---- attributes ------------------------------------------------------------------------------------------------
    def getattr(self, tx: Translator, name: str) -> Value:
        """An attribute of the class, with methods bound as on a class."""
        found = lookup(self.cls, name)
        if name == "__dict__":
            if self in tx.effects.attributes:
                raise Unsupported(Reason.ATTRIBUTE, self, "__dict__", detail="after stores to it")
            shown: Value = late.class_dict(tx, self.cls, self.source)
            return shown
        if name in _TYPE_ATTRIBUTES or isinstance(lookup(type(self.cls), name), property):
            return self._of_metaclass(tx, name)
        if tx.effects.has_pending(self, name):
            return tx.effects.load_attr(self, name) or tx.raise_observed(AttributeError, name)
        stored = stored_in_class(tx, self.cls, name)
        if stored is not None:
            return stored
        if found is MISSING:
            return self._of_metaclass(tx, name)
        guard_library_member(tx, self.cls, name, found)
        if isinstance(found, classmethod):
            where = AttrSource(AttrSource(self.source, name), "__func__") if self.source is not None else None
            function = build(tx, found.__func__, where) if where is not None else from_python(tx, found.__func__)
            return MethodValue(function, self)
        if isinstance(found, ClassMethodDescriptorType) and handler_of(found) is not None:
            return MethodValue(BuiltinValue(found), self)
        if isinstance(found, staticmethod):
            return self._member(tx, found.__func__, name)
        if isinstance(found, FunctionType):
            return self._member(tx, found, name)
        getter = lookup(type(found), "__get__")
        if is_python_method(getter):
            descriptor = from_python(tx, found)
            return method_of(tx, type(found), "__get__", getter).call(tx, [descriptor, constant(None), self], {})
        try:
            found = getattr(self.cls, name)
        except AttributeError as error:
            tx.raise_observed(AttributeError, *error.args)
        return self._member(tx, found, name)

    def _member(self, tx: Translator, found: Any, name: str) -> Value:
        return build(tx, found, AttrSource(self.source, name)) if self.source is not None else existing(tx, found)

    def _of_metaclass(self, tx: Translator, name: str) -> Value:
        found = lookup(type(self.cls), name)
        if isinstance(found, FunctionType):
            return MethodValue(method_of(tx, type(self.cls), name, found), self)
        if isinstance(found, property) and is_user_defined(type(self.cls)) and isinstance(found.fget, FunctionType):
            return part_of(tx, type(self.cls), name, "fget", found.fget).call(tx, [self], {})
        if found is MISSING and is_user_defined(self.cls):
            # both look-ups find nothing
            guard_unchanged(tx, self.cls, lambda cls: lookup(cls, name) is lookup(type(cls), name), name)
        given = self._special(tx, "__getattr__", constant(name)) if found is MISSING else None
        if given is not None:
            return given
        try:
            real = getattr(self.cls, name)
        except AttributeError as error:
            tx.raise_observed(AttributeError, *error.args)
        if callable(real) and not isinstance(real, type):
            return BoundBuiltin(self, name)
        if name in _TYPE_ATTRIBUTES - {"__class__", "__dict__"} and is_user_defined(self.cls):
            guard_unchanged(tx, self.cls, lambda cls: getattr(cls, name) == real, name)
        if found is real and self.source is not None:
            return build(tx, real, AttrSource(CallSource(self.source, "type"), name))
        return existing(tx, real) if found is real else from_python(tx, real)

    def _special(self, tx: Translator, name: str, *args: Value) -> Value | None:
        """The call of a special method that the metaclass defines in Python; None where it does not."""
        found = special(tx, type(self.cls), name)
        if not isinstance(found, FunctionType):
            return None
        return method_of(tx, type(self.cls), name, found).call(tx, [self, *args], {})

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """A side effect on the class. Methods and other descriptors, which instances do not read directly, are left to
        eager."""
        descriptor = any(hasattr(kind, "__get__") for kind in (value.python_type(), type(lookup(self.cls, name))))
        descriptor = descriptor or is_behind_descriptor(type(self.cls), name)
        own = is_python_method(special(tx, type(self.cls), "__setattr__"))
        if self.source is None or descriptor or own or name.startswith("__"):
            raise Unsupported(Reason.SET_ATTRIBUTE, self, name)
        before = tx.effects.load_attr(self, name)
        held = getattr(before, "real", None) if before is not None else lookup(self.cls, name)
        refuse_visible_death(held, self, name)
        tx.effects.store_attr(self, name, value)
        tx.effects.of_classes.setdefault(name, {})[self.cls] = self

    # ---- calls -----------------------------------------------------------------------------------------------------
    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A new instance."""
        cls = self.cls
        construct = CONSTRUCTORS.get(cls)
        if construct is not None:
            check_written(tx, cls, "__init__")
            return construct(tx, args, kwargs)
        handler = handler_of(cls)
        if handler is not None:
            return handler(tx, args, kwargs)
        for matches, make in _FAMILIES:
            if matches(cls):
                return make(tx, cls, args, kwargs)
        meta_call = special(tx, type(cls), "__call__")
        if is_python_method(meta_call):
            return method_of(tx, type(cls), "__call__", meta_call).call(tx, [self, *args], kwargs)
        return instantiate(tx, self, args, kwargs)

    def base_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A method of `type` that a metaclass calls through super()."""
        if name == "__call__":
            return instantiate(tx, self, args, kwargs)
        if name == "__instancecheck__" and not kwargs:
            return constant(by_class(tx, args[0], self.cls))
        if name == "__subclasses__" and not args and not kwargs:
            return subclasses(tx, self.cls, self.source)
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"type.{name} of {self.describe()}")

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Methods of the class or of its metaclass; those of builtin types on constants are called for real."""
        if name == "mro" and not args:
            return from_python(tx, self.cls.mro())
        if name == "__new__":
            return BuiltinNew(self.cls).call(tx, args, kwargs)
        if name == "__delattr__":
            raise Unsupported(Reason.DELETE, self, args[0].as_constant())
        found = lookup(self.cls, name)
        metaclass = lookup(type(self.cls), name)
        if found is MISSING and metaclass is _SUBCLASSES and not args and not kwargs:
            return subclasses(tx, self.cls, self.source)
        if found is MISSING and metaclass is not MISSING and not is_python_method(metaclass):
            return fold(tx, getattr(self.cls, name), args, kwargs)
        return self.getattr(tx, name).call(tx, args, kwargs)

    def getitem(self, tx: Translator, key: Value) -> Value:
        """An enum member by name, or a parametrised type."""
        special = self._special(tx, "__getitem__", key) if not is_plain_enum(self.cls) else None
        if special is not None:
            return special
        found = lookup(self.cls, "__class_getitem__")
        if isinstance(found, classmethod) and not is_library(found.__func__.__module__):
            return self.getattr(tx, "__class_getitem__").call(tx, [key], {})
        if is_plain_enum(self.cls) or hasattr(self.cls, "__class_getitem__"):
            return fold(tx, operator.getitem, [self, key])
        return super().getitem(tx, key)

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """The members of an enum."""
        if is_plain_enum(self.cls):
            members: list[Any] = list(self.cls)
            return [constant(member) for member in members]
        return self.iter(tx).iterate(tx)

    def iter(self, tx: Translator) -> Value:
        """An iterator over the members of an enum, or the one that the metaclass defines."""
        if is_plain_enum(self.cls):
            return SnapshotIterator(self.iterate(tx), iter, self.cls)
        return self._special(tx, "__iter__") or super().iter(tx)

    def contains(self, tx: Translator, item: Value) -> bool:
        """Whether an enum has the member."""
        if is_plain_enum(self.cls):
            return bool(fold(tx, operator.contains, [self, item]).as_constant())
        special = self._special(tx, "__contains__", item)
        if special is not None:
            return special.truth(tx)
        return super().contains(tx, item)

    def length(self, tx: Translator) -> Value:
        """The number of an enum's members."""
        if is_plain_enum(self.cls):
            return constant(len(self.cls))
        return self._special(tx, "__len__") or super().length(tx)

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """`int | None`, equality by identity, or what the metaclass defines."""
        names = REFLECTED.get(function)
        if names is not None:
            special = self._special(tx, names[0], right) if left is self else self._special(tx, names[1], left)
            if special is not None and not (special.is_constant() and special.as_constant() is NotImplemented):
                return special
        if left.is_constant() and right.is_constant():
            return fold(tx, function, [left, right])
        return None

    def reconstruct(self, codegen: Codegen) -> None:
        """Push the class."""
        codegen.const(self.cls)

    def represents(self) -> object:
        """The class."""
        return self.cls

    def describe(self) -> str:
        """Its name."""
        return f"the class {self.cls.__qualname__}"


_TYPE_ATTRIBUTES = frozenset(("__name__", "__qualname__", "__mro__", "__bases__", "__class__", "__base__", "__dict__"))
_SUBCLASSES = type.__dict__["__subclasses__"]


class BuiltinNew(Value):
    """`cls.__new__` where no user-defined class overrides it; called by an override through super()."""

    __slots__ = ("cls",)

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """object.__new__(cls), tuple.__new__(cls, items), ..."""
        cls = args[0].as_constant()
        if issubclass(cls, torch.Tensor):
            return late.new_tensor(tx, cls, args[1:])
        if field_names(cls) and is_plain(cls):
            return TupleValue(args[1].iterate(tx), cls)
        if not _is_made_by_builtin(cls, self.cls.__new__):
            raise Unsupported(Reason.UNSUPPORTED_CLASS, cls)
        if self.cls.__new__ is object.__new__ and (len(args) > 1 or kwargs):
            raise Unsupported(Reason.RAISES, detail="TypeError: the arguments of object.__new__")
        return new_object(tx, cls, args[1].iterate(tx) if len(args) > 1 and issubclass(cls, (tuple, frozenset)) else ())

    def represents(self) -> object:
        """The class."""
        return self.cls

    def describe(self) -> str:
        """For messages."""
        return f"{self.cls.__name__}.__new__"


def instantiate(tx: Translator, cls_value: ClassValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """type.__call__: `__new__`, then `__init__`, both interpreted where they are written in Python."""
    cls = cls_value.cls
    if id(cls) in PURE:
        return fold(tx, cls, args, kwargs)
    new = special(tx, cls, "__new__")
    function = getattr(new, "__func__", new)
    if isinstance(function, FunctionType):
        made = method_of(tx, cls, "__new__", function).call(tx, [cls_value, *args], kwargs)
        if not issubclass(made.python_type(), cls):
            return made
    elif _is_made_by_builtin(cls):
        if issubclass(cls, (tuple, frozenset)):
            given = kwargs if not is_python_method(special(tx, cls, "__init__")) else {}
            if len(args) > 1 or given:
                refuse_construction(tx, cls, len(args), given)
        items = args[0].iterate(tx) if args and issubclass(cls, (tuple, frozenset)) else ()
        made = new_object(tx, cls, items)
    elif getattr(cls, "__abstractmethods__", None) and new is object.__new__:
        return fold(tx, object.__new__, [cls_value])  # raises
    else:
        raise Unsupported(Reason.UNSUPPORTED_CLASS, cls)
    source = cls_value.source
    if made.python_type() is not cls:  # a subclass, whose constructor is then called
        cls, source = made.python_type(), None
    init = special(tx, cls, "__init__")
    if init is not object.__init__ and (is_python_method(init) or not issubclass(cls, (tuple, frozenset))):
        bind(tx, init, "__init__", made, cls, source).call(tx, args, kwargs)
    elif (args or kwargs) and init is object.__init__ and new is object.__new__:
        tx.raise_observed(TypeError, f"{cls.__name__}() takes no arguments")
    return made


_HEAP_TYPE = 1 << 9


def _is_made_by_builtin(cls: type, new: Any = None) -> bool:
    """Whether `new(cls)` suffices to make an instance, where `new` is its `__new__` or the one that an override calls:
    classes written in Python that derive from object or a container, and object."""
    if cls is object:
        return True
    if not cls.__flags__ & _HEAP_TYPE or getattr(cls, "__abstractmethods__", None):
        return False
    if lookup(cls, "__del__") is not MISSING:  # it runs when the object dies
        return False
    if issubclass(cls, (*_MORE_THAN_ATTRIBUTES, torch.Tensor, type)):
        return False
    return (lookup(cls, "__new__") if new is None else new) in _NEWS


_MORE_THAN_ATTRIBUTES = torch.jit.ScriptModule, torch.nn.parallel.DistributedDataParallel, torch.fx.GraphModule
"""Modules that consist of more than what `__init__` stores; other classes make ordinary objects."""

_NEWS = tuple(kind.__new__ for kind in (object, dict, list, set, tuple, frozenset))


@handles(_SUBCLASSES)
def _subclasses(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    if len(args) != 1 or not isinstance(args[0], ClassValue):
        raise Unsupported(Reason.RAISES, detail="TypeError: the arguments of type.__subclasses__")
    return args[0].base_method(tx, "__subclasses__", (), kwargs)


def _named_tuple(tx: Translator, cls: type, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    fields = field_names(cls)
    if not hasattr(cls, "_fields"):
        return TupleValue(args[0].iterate(tx), cls)
    defaults = cls._field_defaults  # type: ignore[attr-defined]
    items: dict[str, Value] = dict(zip(fields, args))
    if len(args) > len(fields) or not kwargs.keys() <= set(fields) - items.keys():
        raise Unsupported(Reason.RAISES, detail=f"TypeError: the arguments of {cls.__qualname__}")
    items.update(kwargs)
    if missing := [name for name in fields if name not in items and name not in defaults]:
        raise Unsupported(Reason.RAISES, detail=f"TypeError: {cls.__qualname__} without {', '.join(missing)}")
    items.update({name: from_python(tx, defaults[name]) for name in fields if name not in items})
    given = [items[name] for name in fields]
    return TupleValue(given, cls) if is_plain(cls) else new_object(tx, cls, given)


def _exception(tx: Translator, cls: type, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    return make_exception(tx, cls, args, kwargs)


def _refused(tx: Translator, cls: type, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    raise Unsupported(Reason.UNSUPPORTED_CLASS, cls)


def _has_plain_new(cls: type) -> bool:
    """Whether the `__new__` of a named tuple is the generated one, and there is no `__init__`."""
    if is_python_method(lookup(cls, "__init__")):
        return False
    return "_fields" in next(base for base in cls.__mro__ if "__new__" in base.__dict__).__dict__ or (
        not hasattr(cls, "_fields")
    )


def _typed_dict(tx: Translator, cls: type, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    return from_python(tx, dict).call(tx, args, kwargs)


_REFUSED = ("torch._C", "torch.autograd", "threading")

_FAMILIES: list[tuple[Callable[[type], bool], Callable[..., Value]]] = [
    (lambda cls: issubclass(cls, BaseException), _exception),
    (lambda cls: issubclass(cls, tuple) and bool(field_names(cls)) and _has_plain_new(cls), _named_tuple),
    (typing.is_typeddict, _typed_dict),
    (lambda cls: isinstance(cls, enum.EnumMeta), member_of),
    (lambda cls: issubclass(cls, torch.Tensor), lambda tx, *call: late.make_tensor(tx, *call)),
    (lambda cls: cls.__module__.startswith(_REFUSED) and not is_traced(cls), _refused),
]
"""(predicate, make(tx, cls, args, kwargs)): the result of calling a class of the family. First match."""


@builds(type)
def build_class(tx: Translator, obj: type, source: Source | None) -> Value:
    """A class, guarded by identity where user code could rebind it."""
    if source is None:
        source = importable(obj) or (WeakrefSource.of(obj) if is_user_defined(obj) else None)
    elif not is_stable(source):
        tx.guards.add(source, "ID_MATCH", obj)
    return ClassValue(obj, source)


CONSTANT_TYPES.update((
    GenericAlias, UnionType, typing.TypeVar, type(typing.Union[int, str]), type(typing.Sequence[int]), type(typing.Any),  # noqa: UP007
    type(typing.Callable[[int], int]), type(typing.Literal[1]), type(Callable[[int], int]),
    type(typing.Sequence), type(typing.Tuple), type(typing.Callable), type(typing.Optional), type(typing.Literal),  # noqa: UP006
))  # fmt: skip
"""Generic aliases and unions are constants, and so are their parts."""


@builds(type(object.__new__))
def build_new(tx: Translator, obj: Any, source: Source | None) -> Value:
    """Builtin functions; `__new__` of builtin types makes instances in the trace."""
    owner = getattr(obj, "__self__", None)
    if getattr(obj, "__name__", "") == "__new__" and isinstance(owner, type):
        return BuiltinNew(owner)
    return build_bound(tx, obj, source)
