"""The table of guard kinds: what each checks in C++, how it reads, and what a failure says.

A kind installs itself on the C++ guard manager of the guarded object and returns its *expectation*: what is needed to
explain a failure later. An expectation holds no reference to the user's objects, so a cache entry keeps nothing alive.
To add a kind, add an entry to `KINDS`.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from ..runtime.global_modes import without_overrides
from .class_members import Members, members_of
from .conditions import conditions_code
from .describe import describe, subject, type_name
from .interrupted import protected
from .same_constants import INEXACT, is_same_constant
from .settings import settings_text
from .spec import Check, GuardSpec
from .tree import GuardTree


@dataclass(frozen=True)
class Kind:
    """How one kind of guard is checked and how its messages read.

    `install(tree, spec)` adds the check and returns the expectation; `code(x, expectation)` is the check as Python on
    `x`, the source's expression; `expected` and `actual` fill in the message of a failure; `fails` says whether a value
    fails, where comparing these two does not; `key` distinguishes guards of one kind on one source.
    """

    install: Callable[[GuardTree, GuardSpec], Any]
    code: Callable[[str, Any], str]
    expected: Callable[[Any], str] = str
    actual: Callable[[Any, Any], str] = lambda value, expectation: describe(value)
    hint: str = ""
    key: Callable[[Any], Any] = lambda value: None
    subject: Callable[[Any], str] = lambda expectation: ""
    fails: Callable[[Any, Any], bool] | None = None


# ---- types and identities -------------------------------------------------------------------------------------------
def _install_type(tree: GuardTree, spec: GuardSpec) -> str:
    cls = spec.value if isinstance(spec.value, type) else type(tree.value(spec.source))
    tree.watch(cls)
    tree.manager(spec.source).add_type_match_guard(id(cls), tree.parts(spec), None)
    return type_name(cls)


@dataclass(frozen=True)
class Identity:
    """An object that a guard compares by address: its description, and the address."""

    words: str
    id: int

    def __str__(self) -> str:
        return self.words


def _install_identity(tree: GuardTree, spec: GuardSpec) -> Identity:
    value = tree.value(spec.source) if spec.value is None else spec.value
    tree.watch(value)
    tree.manager(spec.source).add_id_match_guard(id(value), tree.parts(spec), None)
    return Identity(subject(value), id(value))


def _install_function(tree: GuardTree, spec: GuardSpec) -> Identity:
    """The same code: a function that `def` or `lambda` makes anew in a loop is as good as the traced one."""
    function = tree.value(spec.source)
    code = getattr(function, "__code__", None)
    if code is None:
        return _install_identity(tree, spec)
    tree.watch(code)
    manager = tree.manager(spec.source)
    manager.add_type_match_guard(id(type(function)), tree.parts(spec), None)
    manager.code_manager(
        source=f"{spec.source}.__code__", example_value=code, guard_manager_enum=tree.plain
    ).add_id_match_guard(id(code), tree.parts(spec), None)
    return Identity(subject(function), id(code))


def _install_same(tree: GuardTree, spec: GuardSpec) -> str:
    tree.alias(spec.source, spec.value, tree.parts(spec))
    return spec.value.expression


# ---- constants ------------------------------------------------------------------------------------------------------
_SINGLETONS = (torch.dtype, torch.layout, torch.memory_format, type)


def _install_equals(tree: GuardTree, spec: GuardSpec) -> Any:
    value, manager, parts = spec.value, tree.manager(spec.source), tree.parts(spec)
    if value is None:
        manager.add_none_match_guard(parts, None)
    elif value is True:
        manager.add_true_match_guard(parts, None)
    elif value is False:
        manager.add_false_match_guard(parts, None)
    elif isinstance(value, _SINGLETONS):
        manager.add_id_match_guard(id(value), parts, None)
    elif _is_plainly_equal(value):
        manager.add_equals_match_guard(value, parts, None)
    else:
        manager.add_lambda_guard(protected(lambda other: is_same_constant(value, other)), parts, None)
    return value


def _install_computed(tree: GuardTree, spec: GuardSpec) -> Any:
    """At the very end, when everything that it is computed from has been checked."""
    holds = tree.equals_on_frame(spec.source, spec.value)
    tree.root.add_epilogue_lambda_guard(protected(holds), tree.parts(spec), None)
    return spec.value


def _install_computable(tree: GuardTree, spec: GuardSpec) -> None:
    """For a number that Python computes before the graph runs: where nothing needs it, no line of the function would
    raise the error of computing it."""
    read = tree.reader(spec.source)

    def holds(f_locals: dict[str, Any]) -> bool:
        try:
            read(f_locals)
        except (ArithmeticError, ValueError, TypeError):
            return False
        return True

    tree.root.add_epilogue_lambda_guard(protected(holds), tree.parts(spec), None)


def _is_plainly_equal(value: Any) -> bool:
    """Whether `type(x) is type(value) and x == value` suffices to accept x."""
    if isinstance(value, (complex, np.complexfloating)) and not (value.real and value.imag):
        return False  # parts do not distinguish the sign of a zero either
    if isinstance(value, INEXACT):
        return bool(value != 0 and value == value)  # 0.0 == -0.0, and no NaN equals itself
    if type(value) is range:
        return False  # equal ranges have equal items
    if type(value) in (tuple, list, set, frozenset, dict):
        return len(value) == 0 or (type(value) in (tuple, frozenset) and all(type(item) is str for item in value))
    return True


# ---- containers and attributes --------------------------------------------------------------------------------------
def _container(tree: GuardTree, spec: GuardSpec) -> tuple[Any, Any, list[str]]:
    """(object, manager, parts) of a container whose type is checked: C++'s container guards crash on other types."""
    container, manager, parts = tree.value(spec.source), tree.manager(spec.source), tree.parts(spec)
    tree.watch(type(container))
    manager.add_type_match_guard(id(type(container)), parts, None)
    return container, manager, parts


def _install_length(tree: GuardTree, spec: GuardSpec) -> int:
    container, manager, parts = _container(tree, spec)
    length = len(container) if spec.value is None else spec.value
    if isinstance(container, dict):
        manager.add_dict_length_check_guard(length, parts, None)
    elif isinstance(container, (set, frozenset)):
        manager.add_lambda_guard(protected(lambda other: len(other) == length), parts, None)
    else:
        manager.add_length_check_guard(length, parts, None)
    return length


def _install_keys(tree: GuardTree, spec: GuardSpec) -> str:
    container, manager, parts = _container(tree, spec)
    keys = list(container if spec.value is None else spec.value)
    manager.add_mapping_keys_guard(dict.fromkeys(keys), parts, None)
    return _keys(keys)


def _keys(keys: Iterable[Any]) -> str:
    return f"[{', '.join(map(describe, keys))}]"


@dataclass(frozen=True)
class Key:
    """A key as text, and the key itself where it is a plain constant."""

    words: str
    plain: Any

    def __str__(self) -> str:
        return self.words


def _install_contains(tree: GuardTree, spec: GuardSpec, present: bool) -> Key:
    container, manager, parts = _container(tree, spec)
    if isinstance(container, (set, frozenset)):
        manager.add_set_contains_guard(present, spec.value, parts, None)
    else:
        manager.add_dict_contains_guard(present, spec.value, parts, None)
    return Key(describe(spec.value), spec.value if type(spec.value) in (str, int, bool) else None)


def _lacks(container: Any, key: Key) -> bool:
    return key.plain is not None and key.plain not in container


def _has(container: Any, key: Key) -> bool:
    return key.plain is not None and key.plain in container


def _install_attribute(tree: GuardTree, spec: GuardSpec) -> str:
    tree.attribute_manager(spec.source, spec.value)  # reaching it is the check
    return spec.value


def _install_no_attribute(tree: GuardTree, spec: GuardSpec) -> str:
    tree.forbid_attribute(spec.source, spec.value, tree.parts(spec))
    return spec.value


# ---- tensors --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TensorExpectation:
    """What TENSOR_MATCH compares; a size or stride of None is not compared (conditions on symbols cover it)."""

    cls: str
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    dispatch_keys: str


@without_overrides
def _install_tensor(tree: GuardTree, spec: GuardSpec) -> TensorExpectation:
    tensor = tree.value(spec.source) if spec.value is None else spec.value
    sizes, strides = tree.shapes.static_dims(tensor)
    keys = torch._C._dispatch_keys(tensor)
    manager = tree.manager(spec.source)
    manager.add_tensor_match_guard(
        tensor, list(sizes), list(strides), spec.source.expression, tree.parts(spec), None, type(tensor), keys
    )
    tree.watch(type(tensor))
    tree.add_to_alias_check(spec.source, tensor, manager)
    return TensorExpectation(
        type_name(type(tensor)), tensor.dtype, tensor.device, tensor.requires_grad, sizes, strides, str(keys)
    )


def _tensor_code(x: str, e: TensorExpectation) -> str:
    return (
        f"type({x}) is {e.cls} and {x}.dtype is {_printed(e.dtype)} and {x}.device == {_printed(e.device)!r} and "
        f"{x}.requires_grad is {e.requires_grad} and {x}.size() is {_dims(e.sizes)} and "
        f"{x}.stride() is {_dims(e.strides)}"
    )


@lru_cache(maxsize=1024)
def _dims(numbers: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("*" if n is None else str(n) for n in numbers) + "]"


@lru_cache(maxsize=64)
def _printed(value: Any) -> str:
    """Of a dtype or a device."""
    return str(value)


@without_overrides
def tensor_differences(value: Any, e: TensorExpectation) -> list[tuple[str, str, str]]:
    """(what, expected, actual) for each property in which `value` differs."""
    if not isinstance(value, torch.Tensor):
        return [("type()", e.cls, type_name(type(value)))]
    sizes, strides = tuple(value.size()), tuple(value.stride())
    found = [
        ("type()", e.cls, type_name(type(value))),
        (".dtype", str(e.dtype), str(value.dtype)),
        (".device", str(e.device), str(value.device)),
        (".requires_grad", str(e.requires_grad), str(value.requires_grad)),
        (".dim()", str(len(e.sizes)), str(len(sizes))),
    ]
    if len(sizes) == len(e.sizes):
        for name, wanted, have in (("size", e.sizes, sizes), ("stride", e.strides, strides)):
            pairs = enumerate(zip(wanted, have))
            found += [(f".{name}()[{i}]", str(want), str(got)) for i, (want, got) in pairs if want is not None]
    found.append((" dispatch keys", e.dispatch_keys, str(torch._C._dispatch_keys(value))))
    return [row for row in found if row[1] != row[2]]


# ---- the rest -------------------------------------------------------------------------------------------------------
def _install_lambda(tree: GuardTree, spec: GuardSpec) -> str:
    predicate, text = spec.value
    tree.manager(spec.source).add_lambda_guard(protected(predicate), tree.parts(spec), None)
    return text


def _install_members(tree: GuardTree, spec: GuardSpec) -> Members:
    members = members_of((cls, name, function) for (cls, name), function in spec.value.items())
    tree.root.add_epilogue_lambda_guard(protected(members.check()), tree.parts(spec), None)
    return members


def _members_text(members: Members) -> str:
    """The members that are guarded, the first few by name."""
    names = members.names
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{', '.join(names[:4])}{more}, as at the first call"


_NO_LEVEL = -1  # of forward AD: a frame inside one runs in eager


def _install_global_state(tree: GuardTree, spec: GuardSpec) -> dict[str, str]:
    # C++ formats the failure of the first itself; these follow its style.
    modes, device = ["GLOBAL_STATE changed: torch function modes"], ["GLOBAL_STATE changed: default device"]
    tree.root.add_global_state_guard(tree.frame.global_state, tree.parts(spec), None)
    tree.root.add_torch_function_mode_stack_guard(tree.frame.function_modes, modes, None)
    tree.root.add_default_device_guard(device, None)
    tree.root.add_dual_level_match_guard(_NO_LEVEL, ["GLOBAL_STATE changed: a level of forward AD"], None)
    return tree.frame.settings


def _implied(tree: GuardTree, spec: GuardSpec) -> Any:
    raise ValueError(f"{spec.kind} guards are added by the guard tree itself")


def _constant(x: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return f"{x} is {value}"
    return f"{x} == {describe(value)}"


def _fails_in_cpp(value: Any, expectation: Any) -> bool:
    """Only C++ can decide whether such a guard fails."""
    return False


_CHANGED_OBJECT = (
    "use one object for all calls: define functions and objects once, outside the loop that calls. Each different "
    "object is compiled once"
)

KINDS: dict[str, Kind] = {
    "TYPE_MATCH": Kind(
        _install_type, lambda x, e: f"type({x}) is {e}", actual=lambda v, e: type_name(type(v)),
        hint="call the function with values of one type", subject=lambda e: f"the class `{e}`",
    ),
    "ID_MATCH": Kind(
        _install_identity, lambda x, e: f"{x} is {e}", actual=lambda v, e: _other(subject(v), e),
        hint=_CHANGED_OBJECT, subject=str, fails=lambda v, e: id(v) != e.id,
    ),
    "FUNCTION_MATCH": Kind(
        _install_function, lambda x, e: f"{x}.__code__ is that of {e}", actual=lambda v, e: _other(subject(v), e),
        hint=_CHANGED_OBJECT, subject=str, fails=lambda v, e: id(getattr(v, "__code__", v)) != e.id,
    ),
    "EQUALS_MATCH": Kind(
        _install_equals, _constant, describe,
        hint="each value of a string, or of a number that the function branches on, is compiled once; pass a number "
        "with many values as a tensor",
        fails=lambda v, e: not is_same_constant(v, e),
    ),
    "COMPUTED": Kind(
        _install_computed, _constant, describe,
        hint="the function branches on this number; each outcome (each value, where it becomes a string, a size or a "
        "key) is compiled once",
        fails=lambda v, e: not is_same_constant(v, e), key=repr,
    ),
    "COMPUTABLE": Kind(
        _install_computable, lambda x, e: f"{x} does not raise", lambda e: "computed without an error",
        hint="this computation raises for some numbers; the two cases are compiled once each",
        fails=_fails_in_cpp,
    ),
    "NONE": Kind(
        _install_equals, _constant, describe, hint="with and without the argument are compiled once each",
        fails=lambda v, e: v is not e,
    ),
    "BOOL": Kind(
        _install_equals, _constant, describe, hint="nothing to do: True and False are compiled once each",
        fails=lambda v, e: v is not e,
    ),
    "LENGTH": Kind(
        _install_length, lambda x, e: f"len({x}) == {e}", actual=lambda v, e: str(len(v)),
        hint="stack the items into one tensor and mark its size (torch._dynamo.mark_dynamic(tensor, 0)), or keep the "
        "number of items constant",
    ),
    "DICT_KEYS": Kind(
        _install_keys, lambda x, e: f"list({x}) == {e}", actual=lambda v, e: _keys(v),
        hint="use the same keys, in the same order, at each call",
    ),
    "IN_DICT": Kind(
        lambda tree, spec: _install_contains(tree, spec, True), lambda x, e: f"{e} in {x}",
        lambda e: f"with {e}", lambda v, e: f"without {e}", key=lambda value: value, fails=_lacks,
        hint="give the dict the same keys before the first call and at each call",
    ),
    "NOT_IN_DICT": Kind(
        lambda tree, spec: _install_contains(tree, spec, False), lambda x, e: f"{e} not in {x}",
        lambda e: f"without {e}", lambda v, e: f"with {e}", key=lambda value: value, fails=_has,
        hint="give the dict the same keys before the first call and at each call",
    ),
    "HAS_ATTR": Kind(
        _install_attribute, lambda x, e: f"hasattr({x}, {e!r})", lambda e: f"with `{e}`", lambda v, e: f"without `{e}`",
        key=lambda value: value, fails=lambda v, e: not hasattr(v, e),
        hint="set the attribute in __init__, before the first call",
    ),
    "NO_ATTR": Kind(
        _install_no_attribute, lambda x, e: f"not hasattr({x}, {e!r})", lambda e: f"without `{e}`",
        lambda v, e: f"with `{e}`", key=lambda value: value, fails=lambda v, e: hasattr(v, e),
        hint="set the attribute in __init__, before the first call",
    ),
    "TENSOR_MATCH": Kind(
        _install_tensor, _tensor_code, lambda e: f"{e.cls} {_printed(e.dtype)}{_dims(e.sizes)} on {_printed(e.device)}",
        lambda v, e: describe(v),
        hint="call the function with tensors of one type, dtype and device",
        fails=lambda v, e: bool(tensor_differences(v, e)),
    ),
    "DUPLICATE_INPUT": Kind(
        _install_same, lambda x, e: f"{x} is {e}", lambda e: f"the same object as {e}", lambda v, e: "another object",
        key=lambda value: value, hint="pass the same object in both places, as at the first call", fails=_fails_in_cpp,
    ),
    "DISTINCT": Kind(
        _install_computed, lambda x, e: x, lambda e: "different objects", lambda v, e: "the same object twice",
        hint="pass different objects, as at the first call: the function changes or compares them",
        fails=lambda v, e: not v,
    ),
    "LAMBDA": Kind(
        _install_lambda, lambda x, e: e.replace("{}", x), lambda e: e.replace("{}", "it"), key=lambda value: value[1],
        hint="keep it as it was at the first call", fails=_fails_in_cpp,
    ),
    "CLASS_MEMBERS": Kind(
        _install_members, lambda x, e: f"members of library classes are as they were: {e}", _members_text,
        lambda v, e: "another function", hint="put a method into a library's class before the first call",
    ),
    "GLOBAL_STATE": Kind(
        _install_global_state,
        lambda x, e: "grad mode, autocast, default dtype and device, deterministic algorithms, threads and function "
        "modes are unchanged",
        expected=settings_text,
        hint="call the function under the same torch settings",
    ),
    # ---- implied: added by the tree itself
    "SHAPE_ENV": Kind(
        _implied, lambda x, e: conditions_code(e), lambda e: "true",
        hint="the compiled code is valid for a range of sizes; this one is outside of it", fails=_fails_in_cpp,
    ),
    "NO_ALIASING": Kind(
        _implied, lambda x, e: f"{', '.join(e)} are different tensors", lambda e: "different tensors",
        lambda v, e: "the same tensor twice", hint="pass different tensors, as at the first call", fails=_fails_in_cpp,
    ),
    "BUILTIN": Kind(
        _implied, lambda x, e: f"{e!r} not in G", lambda e: f"the builtin `{e}`",
        lambda v, e: f"a global `{e}` hides it", hint="give the global another name than the builtin's",
        fails=_fails_in_cpp,
    ),
}


def _other(actual: str, expected: Identity) -> str:
    return f"another object: {actual}" if actual == expected.words else actual


def check_code(check: Check) -> str:
    """A guard of a tree as Python over L and G."""
    return KINDS[check.kind].code(check.source.expression, check.expectation)
