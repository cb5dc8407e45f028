"""Detects whether objects and their dicts are unchanged, by CPython's dict versions.

In CPython 3.11 and 3.12 each change of a dict gives it a version that no dict had before (PEP 509), which only C code
can read. So one C++ function, compiled once for all programs, walks a table of objects and compares the class, the
`__dict__`, and the version of each. An object is only touched when the dict that holds it is unchanged, so it is alive;
and nothing in the walk allocates or runs Python code.
"""
from __future__ import annotations

import collections
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

FUNCTIONS = ("take", "look")
SOURCE = r"""
extern "C" {
struct PyObject { long references; void* cls; };
typedef PyObject* (*Fast)(PyObject*, PyObject* const*, long);
struct PyMethodDef { const char* name; Fast function; int flags; const char* doc; };
PyObject* PyCMethod_New(PyMethodDef*, PyObject*, PyObject*, PyObject*);
PyObject* PyBool_FromLong(long);
PyObject* PyErr_Format(PyObject*, const char*, ...);
char* PyByteArray_AsString(PyObject*);
long PyByteArray_Size(PyObject*);
int PyList_SetItem(PyObject*, long, PyObject*);
void Py_IncRef(PyObject*);
PyObject** _PyObject_GetDictPtr(PyObject*);
extern PyObject* PyExc_TypeError;
extern PyObject PyByteArray_Type;
}
typedef unsigned long Version;
struct Step { PyObject* object; void* cls; PyObject* dict; Version version; long slot; };

// `ma_version_tag`, which follows the head and the number of items.
static Version version_of(PyObject* dict) { return ((Version*)dict)[3]; }

static bool holds(const Step& step) {
  if (step.object->cls != step.cls) return false;
  PyObject* dict = step.object;
  if (step.dict) {
    PyObject** place = _PyObject_GetDictPtr(step.object);
    if (!place || *place != step.dict) return false;
    dict = step.dict;
  }
  return !step.version || version_of(dict) == step.version;
}

// take(table): note the classes and versions of now.
static PyObject* take(PyObject*, PyObject* const* a, long n) {
  if (n != 1 || a[0]->cls != &PyByteArray_Type) return PyErr_Format(PyExc_TypeError, "take(table)");
  Step* step = (Step*)PyByteArray_AsString(a[0]);
  for (Step* end = step + PyByteArray_Size(a[0]) / sizeof(Step); step < end; step++) {
    step->cls = step->object->cls;
    if (step->version) step->version = version_of(step->dict ? step->dict : step->object);
  }
  return PyBool_FromLong(1);
}

// look(table, slots): whether all is as noted; then `slots` holds the objects that the table has a slot for.
static PyObject* look(PyObject*, PyObject* const* a, long n) {
  if (n != 2 || a[0]->cls != &PyByteArray_Type) return PyErr_Format(PyExc_TypeError, "look(table, slots)");
  const Step* step = (const Step*)PyByteArray_AsString(a[0]);
  for (const Step* end = step + PyByteArray_Size(a[0]) / sizeof(Step); step < end; step++) {
    if (!holds(*step)) return PyBool_FromLong(0);
    if (step->slot < 0) continue;
    Py_IncRef(step->object);
    if (PyList_SetItem(a[1], step->slot, step->object)) return nullptr;
  }
  return PyBool_FromLong(1);
}

static PyMethodDef methods[] = {{"take", take, 0x80, nullptr}, {"look", look, 0x80, nullptr}};
extern "C" __attribute__((visibility("default"))) PyObject* ptdebug_functions(long which) {
  return PyCMethod_New(&methods[which], nullptr, nullptr, nullptr);
}
"""
_STEP = struct.Struct("=QQQQq")


@dataclass(frozen=True, slots=True)
class Step:
    """An object of a table: with `dict_` it has this `__dict__`, with `versioned` it is a dict or has one; `slot` is
    its index in the list that `look` fills, -1 for none."""

    object: Any
    dict_: dict[str, Any] | None = None
    versioned: bool = False
    slot: int = -1


@dataclass(frozen=True, slots=True)
class Versions:
    """The functions of the library. A table keeps nothing alive: each object but the first must be held by a dict (or,
    through tuples only, by an item of a dict) earlier in the table; the caller holds the first."""

    take: Callable[[bytearray], bool]
    look: Callable[[bytearray, list[Any]], bool]

    def table(self, steps: Iterable[Step]) -> bytearray:
        """The steps with the current classes and versions."""
        table = bytearray()
        for step in steps:
            dict_ = 0 if step.dict_ is None else id(step.dict_)
            table += _STEP.pack(id(step.object), 0, dict_, step.versioned, step.slot)
        self.take(table)
        return table


def possible() -> bool:
    """Whether this Python has dict versions, and objects laid out as `SOURCE` expects. From 3.13 on an attribute may be
    stored without a new version."""
    return (
        sys.implementation.name == "cpython" and sys.version_info < (3, 13) and sys.maxsize > 2**32
        and not sysconfig.get_config_var("Py_DEBUG") and not hasattr(sys, "getobjects")  # (Py_TRACE_REFS)
    )


def tried(functions: Mapping[str, Callable[..., Any]]) -> Versions | None:
    """The functions of a library, if they see all changes of a few test objects and nothing else."""
    versions = Versions(functions["take"], functions["look"])
    seen = (_is_seen(versions, change, asked) for change in _CHANGES for asked in (False, True))
    return versions if all(seen) else None


class _Probe:
    def __init__(self) -> None:
        self.value: object = 0


class _Other(_Probe):
    pass


def _store(owner: _Probe) -> None:
    owner.value = object()  # storing the present value is no change


_CHANGES: tuple[Callable[[_Probe, dict[Any, Any], dict[Any, Any]], object], ...] = (
    lambda probe, plain, ordered: _store(probe),
    lambda probe, plain, ordered: setattr(probe, "more", 1),
    lambda probe, plain, ordered: delattr(probe, "value"),
    lambda probe, plain, ordered: probe.__dict__.update(value=1),
    lambda probe, plain, ordered: setattr(probe, "__dict__", {**probe.__dict__}),
    lambda probe, plain, ordered: setattr(probe, "__class__", _Other),
    lambda probe, plain, ordered: plain.update(a=2),
    lambda probe, plain, ordered: plain.__setitem__("b", 2),
    lambda probe, plain, ordered: plain.setdefault("b", 2),
    lambda probe, plain, ordered: plain.pop("a"),
    lambda probe, plain, ordered: plain.popitem(),
    lambda probe, plain, ordered: plain.clear(),
    lambda probe, plain, ordered: ordered.update(a=1),
    lambda probe, plain, ordered: ordered.__ior__({"a": 1}),
)


def _is_seen(
    versions: Versions, change: Callable[[_Probe, dict[Any, Any], dict[Any, Any]], object], asked: bool
) -> bool:
    """Whether `look` sees this change, and sees none where there is none. Code that has run for a while stores
    attributes by another path, and by yet another where the object's dict was `asked` for before."""
    probe, plain, ordered = _Probe(), {"a": 1}, collections.OrderedDict[str, int]()
    if asked:
        probe.__dict__["other"] = 1
    for _ in range(100):
        _store(probe)
    steps = Step(probe, probe.__dict__, True, 0), Step(plain, None, True), Step(ordered, None, True)
    table, slots = versions.table(steps), [None]
    before = versions.look(table, slots) and versions.look(table, slots) and slots[0] is probe
    change(probe, plain, ordered)
    return before and not versions.look(table, slots)
