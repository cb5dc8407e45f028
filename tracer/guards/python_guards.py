"""The guards of everything that a module holds, written as Python.

A model is mostly modules: 96 in 100 of a BERT's guards are below one. In the C++ tree each step to one of them costs as
much as a dozen instructions of Python, and more where a dict is on the way, since C++ reads its version. So from the
outermost module on, `PythonGuardManager`s, which have the methods of C++'s `GuardManager`, write as Python what C++
would do: one read for each object on the way, one `assert` for each guard. Everything is read anew at each call, so no
change goes unnoticed. Tensors are collected and compared by one C++ `TensorGuards` at the end.

Part of this can be skipped while CPython's versions say that no dict has changed: `fast_path.py`. For that, managers
know two properties: an object is *settled* when it is reached through plain dicts and tuples only; a condition is
*lasting* when it cannot be broken by a settled object that has kept its class, and its items if it is a dict.
"""
from __future__ import annotations

import bisect
import collections
import keyword
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C._dynamo import guards as cpp

from .interrupted import from_the_start, holds_after_all, unprotected

_ATTRIBUTES_ARE_CHEAPER = sys.version_info >= (3, 13)
"""From CPython 3.13 on, reading `x.name` is specialized for modules and is cheaper than a look-up in `x.__dict__`."""
_EXACT_DICTS = (dict, collections.OrderedDict)  # of these `x[key]` finds or raises, without running user code
_LITERALS = (int, str)
NEVER_CHANGE = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
"""Classes whose objects are immutable."""
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by Python code, which may die
_MISSING = object()


class Failed(Exception):
    """The guard with this index does not hold."""


class GuardFunction:
    """A function `check(x)` under construction: whether all guards hold for the object `x` and what is reached from it.

    `alias_parts` makes the failure report of the guard that all tensors are different.
    """

    def __init__(self, example: Any, alias_parts: Callable[[], list[str]]) -> None:
        self.alias_parts = alias_parts
        self.names: dict[str, Any] = {"missing": _MISSING}
        self.same: list[tuple[PythonGuardManager, PythonGuardManager, str]] = []
        self._known: dict[int, str] = {}
        self._weak: dict[str, str] = {}
        self._tensor_checks: list[tuple[str, list[PythonGuardManager]]] = []
        self.root = PythonGuardManager(self, "", example, settled=True)

    def name(self, prefix: str, value: Any) -> str:
        """The name under which the function refers to an object."""
        if id(value) not in self._known:
            self._known[id(value)] = f"{prefix}{len(self.names)}"
            self.names[self._known[id(value)]] = value
        return self._known[id(value)]

    def class_name(self, cls: type) -> str:
        """The name of a class, which is held weakly where it may be collected."""
        if not cls.__flags__ & _HEAP_TYPE:
            return self.name("Class", cls)
        if id(cls) not in self._known:
            self._known[id(cls)] = f"Class{len(self.names)}"
            self._weak[self._known[id(cls)]] = f"weak{len(self.names)}"
            self.names[f"weak{len(self.names)}"] = weakref.ref(cls)
        return self._known[id(cls)]

    def managers(self) -> Iterator[PythonGuardManager]:
        """All managers, each before those that are reached from it."""
        left = [self.root]
        while left:
            manager = left.pop()
            yield manager
            left.extend(reversed(manager.children.values()))

    def compiled(self) -> tuple[Callable[[Any], bool], list[str]]:
        """The function, and a list whose item is the index of the failed guard after a call that returned False."""
        lines = Lines("check(x)", "failed(error, x)")
        self.write_classes(lines)
        compared = {id(manager) for pair in self.same for manager in pair[:2]}
        for number, manager in enumerate(self.managers()):
            manager.write(lines, number, keep=id(manager) in compared)
        for first, second, index in self.same:
            lines.add(f"assert {first.variable} is {second.variable}", index)
        for compare, managers in self.tensor_checks():
            lines.add(f"{compare}({', '.join(manager.variable for manager in managers)})")
        parts = [""]

        def failed(error: BaseException, value: Any) -> bool:
            if isinstance(error, Failed):
                parts[0] = error.args[0]
                return False
            parts[0] = lines.index_of(error)
            return holds_after_all(check, value, error)

        self.names["failed"] = failed
        lines.add("return True")
        check: Callable[[Any], bool] = from_the_start(lines.function(self.names))
        return check, parts

    def indices(self) -> tuple[int, ...]:
        """The indices of all guards that the function checks."""
        found = {index for _, _, index in self.same}
        for manager in self.managers():
            found |= {*manager.conditions.values()} | ({manager.tensor.index} if manager.tensor is not None else set())
        return tuple(sorted(int(index) for index in found if index))

    def write_classes(self, lines: Lines) -> None:
        """Define the names of the classes that are held weakly; None once one has died."""
        for name, weak in self._weak.items():
            lines.add(f"{name} = {weak}()")

    def forget(self) -> None:
        """Release the example objects once the function is written."""
        for manager in self.managers():
            manager.example = manager.tensor = None

    def tensor_checks(self) -> list[tuple[str, list[PythonGuardManager]]]:
        """(name of a function of tensors, their managers), settled tensors first: it raises Failed where a tensor has
        changed or two are the same. Tensors that were the same from the start are compared separately."""
        left = [] if self._tensor_checks else [manager for manager in self.managers() if manager.tensor is not None]
        while left:
            now = {id(manager.example): manager for manager in reversed(left)}
            managers = [manager for manager in left if now[id(manager.example)] is manager]
            left = [manager for manager in left if now[id(manager.example)] is not manager]
            managers.sort(key=lambda manager: not manager.settled)
            checks = [manager.tensor for manager in managers if manager.tensor is not None]
            self._tensor_checks.append((self.name("tensors", _tensor_check(checks, self.alias_parts)), managers))
        return self._tensor_checks


class Lines:
    """Lines of a function `head` that returns `on_error` where one raises, each with the index of its guard."""

    def __init__(self, head: str, on_error: str) -> None:
        self.name = head.partition("(")[0]
        self.on_error = on_error
        self.texts = [f"def {head}:", " try:"]
        self._starts = [0]
        self._indices = [""]

    def add(self, text: str, index: str = "") -> None:
        """Append a line."""
        self.texts.append(f"  {text}")
        if self._indices[-1] != index:
            self._starts.append(len(self.texts))
            self._indices.append(index)

    def index_of(self, error: BaseException) -> str:
        """The index of the line that raised."""
        line = error.__traceback__.tb_lineno if error.__traceback__ is not None else 0
        return self._indices[bisect.bisect(self._starts, line) - 1]

    def function(self, names: dict[str, Any]) -> Any:
        """The function with these globals; discards the text."""
        self.texts += [" except BaseException as error:", f"  return {self.on_error}"]
        exec(compile("\n".join(self.texts), "<guards>", "exec", optimize=0), names)  # -O would drop `assert`
        self.texts.clear()
        return names.pop(self.name)


@dataclass(eq=False)
class _TensorCheck:
    """What a tensor is compared with."""

    example: torch.Tensor
    sizes: Sequence[int | None]
    strides: Sequence[int | None]
    index: str


def _tensor_check(checks: Sequence[_TensorCheck], alias_parts: Callable[[], list[str]]) -> Callable[..., None]:
    """A function that raises Failed where its arguments do not match `checks`, or two of them are the same tensor."""
    make: Any = cpp.TensorGuards  # the stub expects the sizes of one tensor instead of those of all
    guards = make(
        *(check.example for check in checks), dynamic_dims_sizes=[list(check.sizes) for check in checks],
        dynamic_dims_strides=[list(check.strides) for check in checks],
    )
    names = [f"<{check.index}>" for check in checks]
    alias = alias_parts()[0] if len(checks) > 1 else ""
    holds = guards.check

    def check_tensors(*tensors: Any) -> None:
        if not holds(*tensors):
            message = str(guards.check_verbose(*tensors, tensor_check_names=names))
            found = re.search(r"<(\d+)>", message)
            duplicate = message.startswith("Duplicate tensor") or found is None
            raise Failed(alias if duplicate or found is None else found.group(1))

    return check_tensors


@dataclass(eq=False)
class PythonGuardManager:
    """The guards of one object: the part of C++'s `GuardManager` that the guard tree uses, written as Python.

    `read` and the conditions are templates, in which {0} is the variable of the owner, and of the object itself.
    """

    function: GuardFunction
    read: str
    example: Any
    owner: PythonGuardManager | None = None
    variable: str = "x"
    depth: int = 0
    settled: bool = False
    key: Any = None  # of a settled object in its owner, unless it is the `__dict__` of `instance`
    conditions: dict[str, str] = field(default_factory=dict)  # and the indices of their guards, "" for the next
    lasting: set[str] = field(default_factory=set)
    children: dict[str, PythonGuardManager] = field(default_factory=dict)
    tensor: _TensorCheck | None = None
    instance: PythonGuardManager | None = None  # the object whose __dict__ this is

    def __post_init__(self) -> None:
        if isinstance(self.example, dict):
            self._require_class()

    def write(self, lines: Lines, number: int, keep: bool) -> None:
        """Write the read and the conditions. One variable serves all objects of a depth that are not compared later."""
        if self.owner is not None:
            self.variable = f"kept{number}" if keep or self.tensor is not None else f"at{self.depth}"
            lines.add(f"{self.variable} = {self.read.format(self.owner.variable)}", self._first_index())
        for condition, index in self.conditions.items():
            lines.add(f"assert {condition.format(self.variable)}", index or self._first_index())

    def passing(self) -> list[str]:
        """The conditions that must be checked even where no dict has changed."""
        return [condition for condition in self.conditions if not (self.settled and condition in self.lasting)]

    def _first_index(self) -> str:
        """The index of the first guard here or below."""
        left = [self]
        while left:
            manager = left.pop()
            found = [index for index in manager.conditions.values() if index]
            found += [manager.tensor.index] if manager.tensor is not None else []
            if found:
                return found[0]
            left.extend(reversed(manager.children.values()))
        return ""

    def _child(self, read: str, example: Any, settles: bool = False, key: Any = None) -> PythonGuardManager:
        """The manager of what `read` reaches; what is found there depends on the class, so that is guarded. `settles`:
        from a settled object this leads to a settled one."""
        if read not in self.children:
            self._require_class()
            self.children[read] = PythonGuardManager(
                self.function, read, example, self, depth=self.depth + 1, settled=self.settled and settles, key=key
            )
        return self.children[read]

    def _require_class(self) -> None:
        self.conditions.setdefault(self._class_condition(type(self.example)), "")

    def _class_condition(self, cls: type) -> str:
        condition = f"type({{0}}) is {self.function.class_name(cls)}"
        self.lasting.add(condition)
        return condition

    def _require(self, condition: str, parts: list[str], lasts: bool = False) -> None:
        if not self.conditions.get(condition):
            self.conditions[condition] = parts[0]
        if lasts:
            self.lasting.add(condition)

    def _constant(self, value: Any) -> str:
        if type(value) in _LITERALS:
            return repr(value).replace("{", "{{").replace("}", "}}")
        return self.function.name("constant", value)

    def _call(self, function: Callable[..., Any]) -> str:
        return self.function.name("function", function)

    def must_be(self, other: PythonGuardManager, parts: list[str]) -> None:
        """Guard that this is the object of another manager of the same function."""
        self.function.same.append((self, other, parts[0]))

    # ---- guards of the object, named as in C++ ----------------------------------------------------------------------
    def add_type_match_guard(self, class_id: int, parts: list[str], _: None) -> None:
        if class_id == id(type(self.example)):
            self._require(self._class_condition(type(self.example)), parts)
        else:
            self._require(f"id(type({{0}})) == {class_id}", parts)

    def add_id_match_guard(self, object_id: int, parts: list[str], _: None) -> None:
        self._require(f"id({{0}}) == {object_id}", parts, lasts=True)

    def add_none_match_guard(self, parts: list[str], _: None) -> None:
        self._require("{0} is None", parts, lasts=True)

    def add_true_match_guard(self, parts: list[str], _: None) -> None:
        self._require("{0} is True", parts, lasts=True)

    def add_false_match_guard(self, parts: list[str], _: None) -> None:
        self._require("{0} is False", parts, lasts=True)

    def add_equals_match_guard(self, value: Any, parts: list[str], _: None) -> None:
        self._require(self._class_condition(type(value)), parts)
        self._require(f"{{0}} == {self._constant(value)}", parts, lasts=type(value) in NEVER_CHANGE)

    def add_lambda_guard(self, function: Callable[[Any], bool], parts: list[str], _: None) -> None:
        self._require(f"{self._call(unprotected(function))}({{0}})", parts)

    def add_length_check_guard(self, length: int, parts: list[str], _: None) -> None:
        self._require(f"len({{0}}) == {length}", parts, lasts=type(self.example) is tuple)

    def add_dict_length_check_guard(self, length: int, parts: list[str], _: None) -> None:
        if type(self.example) not in _EXACT_DICTS:
            self._require(f"{self._call(dict.__len__)}({{0}}) == {length}", parts)
        else:
            self._require("not {0}" if length == 0 else f"len({{0}}) == {length}", parts, lasts=True)

    def add_mapping_keys_guard(self, keys: dict[Any, None], parts: list[str], _: None) -> None:
        lasts = type(self.example) is dict and all(type(key) in NEVER_CHANGE for key in keys)  # no version covers order
        self._require(f"list({{0}}.keys()) == {self.function.name('keys', list(keys))}", parts, lasts)

    def add_dict_contains_guard(self, present: bool, key: Any, parts: list[str], _: None) -> None:
        word = "" if present else "not "
        if type(self.example) in _EXACT_DICTS:
            self._require(f"{self._constant(key)} {word}in {{0}}", parts, lasts=type(key) in NEVER_CHANGE)
        else:
            self._require(f"{word}{self._call(dict.__contains__)}({{0}}, {self._constant(key)})", parts)

    def add_set_contains_guard(self, present: bool, key: Any, parts: list[str], _: None) -> None:
        contains = frozenset.__contains__ if isinstance(self.example, frozenset) else set.__contains__
        word = "" if present else "not "
        self._require(f"{word}{self._call(contains)}({{0}}, {self._constant(key)})", parts)

    def add_no_hasattr_guard(self, name: str, parts: list[str], _: None) -> None:
        self._require(f"not hasattr({{0}}, {name!r})", parts)

    def add_tensor_match_guard(
        self, example: torch.Tensor, sizes: Sequence[int | None], strides: Sequence[int | None], _name: str,
        parts: list[str], _: None, _cls: type, _keys: Any,
    ) -> None:
        if self.tensor is None:
            self.tensor = _TensorCheck(example, sizes, strides, parts[0])

    # ---- steps to other objects, named as in C++ --------------------------------------------------------------------
    def dict_getitem_manager(self, key: Any, example_value: Any, **_: Any) -> PythonGuardManager:
        of = self.instance
        if of is not None and _ATTRIBUTES_ARE_CHEAPER and type(key) is str and not hasattr(type(of.example), key):
            return of.getattr_manager(key, example_value)
        if type(self.example) in _EXACT_DICTS:
            return self._child(f"{{0}}[{self._constant(key)}]", example_value, type(key) in _LITERALS, key)
        get = self._call(dict.get)  # no `__missing__`, which may add the key
        child = self._child(f"{get}({{0}}, {self._constant(key)}, missing)", example_value)
        child.conditions.setdefault("{0} is not missing", "")
        return child

    def get_generic_dict_manager(self, example_value: Any, **_: Any) -> PythonGuardManager:
        child = self._child("{0}.__dict__", example_value, settles=type(example_value) is dict)
        child.instance = self
        return child

    def getattr_manager(self, attr: str, example_value: Any, **_: Any) -> PythonGuardManager:
        if attr.isidentifier() and not keyword.iskeyword(attr):
            return self._child(f"{{0}}.{attr}", example_value)
        return self._child(f"getattr({{0}}, {self._constant(attr)})", example_value)

    def generic_getattr_manager(self, attr: str, example_value: Any, **_: Any) -> PythonGuardManager:
        if attr == "__dict__" and type(self.example).__getattribute__ is object.__getattribute__:
            return self.get_generic_dict_manager(example_value)
        return self._child(f"object.__getattribute__({{0}}, {self._constant(attr)})", example_value)

    def getitem_manager(self, key: Any, example_value: Any, **_: Any) -> PythonGuardManager:
        settles = type(self.example) is tuple and type(key) is int
        return self._child(f"{{0}}[{self._constant(key)}]", example_value, settles, key)

    list_getitem_manager = tuple_getitem_manager = getitem_manager

    def lambda_manager(self, python_lambda: Callable[[Any], Any], example_value: Any, **_: Any) -> PythonGuardManager:
        return self._child(f"{self._call(python_lambda)}({{0}})", example_value)

    def type_manager(self, example_value: Any, **_: Any) -> PythonGuardManager:
        return self._child("type({0})", example_value)

    def code_manager(self, example_value: Any, **_: Any) -> PythonGuardManager:
        return self._child("{0}.__code__", example_value)

    def closure_manager(self, example_value: Any, **_: Any) -> PythonGuardManager:
        return self._child("{0}.__closure__", example_value)

    def func_defaults_manager(self, example_value: Any, **_: Any) -> PythonGuardManager:
        return self._child("{0}.__defaults__", example_value)

    def func_kwdefaults_manager(self, example_value: Any, **_: Any) -> PythonGuardManager:
        return self._child("{0}.__kwdefaults__", example_value)

    def tensor_property_size_manager(self, idx: int, example_value: Any, **_: Any) -> PythonGuardManager:
        return self._child(f"{self._call(torch._C.TensorBase.size)}({{0}}, {idx})", example_value)

    def tensor_property_stride_manager(self, idx: int, example_value: Any, **_: Any) -> PythonGuardManager:
        return self._child(f"{self._call(torch._C.TensorBase.stride)}({{0}}, {idx})", example_value)

    def tensor_property_storage_offset_manager(
        self, idx: int | None, example_value: Any, **_: Any
    ) -> PythonGuardManager:
        return self._child(f"{self._call(torch._C.TensorBase.storage_offset)}({{0}})", example_value)
