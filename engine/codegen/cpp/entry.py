"""How Python calls a kernel: one builtin for each, created by the library itself, without headers and without ctypes.

`kernel(pointer, ..., symbol, ...) -> status` takes plain ints (METH_FASTCALL, in CPython's stable interface since
3.10), which costs about 0.1 us where ctypes costs one microsecond or more. The GIL is released around kernels that may
run long.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.ir import KernelSignature
from .source_writer import Writer

DECLARATIONS = """\
extern "C" {
struct PyObject;
typedef PyObject* (*Fast)(PyObject*, PyObject* const*, int64);
struct PyMethodDef { const char* name; Fast function; int flags; const char* doc; };
PyObject* PyCMethod_New(PyMethodDef*, PyObject*, PyObject*, PyObject*);
PyObject* PyLong_FromLong(long);
long PyLong_AsLong(PyObject*);
PyObject* PyErr_Occurred();
PyObject* PyErr_Format(PyObject*, const char*, ...);
void* PyEval_SaveThread();
void PyEval_RestoreThread(void*);
extern PyObject* PyExc_TypeError __attribute__((weak));  // programs without Python load the library, too
}"""


@dataclass(frozen=True)
class Entry:
    """A kernel to be called: its signature, the function that is its code, and the C++ types of its buffers.

    With `long_running` the interpreter lock is given up while it runs; with `table` the function takes all pointers as
    one array.
    """

    signature: KernelSignature
    function: str
    types: tuple[str, ...]
    long_running: bool
    table: bool = False


def write_entries(writer: Writer, entries: Sequence[Entry]) -> None:
    """Write the callables of `entries`, in their order."""
    callers: dict[str, Entry] = {}
    for entry in entries:
        callers.setdefault(entry.function, entry)
    writer.line()
    writer.line("// What Python calls: kernel(pointer, ..., symbol, ...) -> status.")
    writer.line(DECLARATIONS)
    for entry in callers.values():
        _write_entry(writer, entry)
    writer.line("static PyMethodDef methods[] = {")
    for entry in entries:
        writer.line(f'  {{"{entry.signature.name}", call_{entry.function}, 0x80, nullptr}},')
    writer.line("};")
    writer.line('extern "C" __attribute__((visibility("default"))) PyObject* ptdebug_functions(int64 which) {')
    writer.line("  return PyCMethod_New(&methods[which], nullptr, nullptr, nullptr);")
    writer.line("}")


def _write_entry(writer: Writer, entry: Entry) -> None:
    signature, types = entry.signature, entry.types
    count = len(types) + len(signature.symbols)
    with writer.block(f"static PyObject* call_{entry.function}(PyObject*, PyObject* const* a, int64 n)"):
        writer.line(
            f'if (n != {count}) '
            f'return PyErr_Format(PyExc_TypeError, "{entry.function} takes {count} arguments, not %ld", n);'
        )
        writer.line(f"int64 v[{max(count, 1)}];")
        writer.line(f"for (int k = 0; k < {count}; k++) v[k] = PyLong_AsLong(a[k]);")
        writer.line("if (PyErr_Occurred()) return nullptr;")
        arguments = [f"({kind}*)v[{k}]" for k, kind in enumerate(types)]
        arguments += [f"v[{k}]" for k in range(len(types), count)]
        call = f"{entry.function}({'(void**)v' if entry.table else ', '.join(arguments)})"
        if entry.long_running:
            writer.line("void* lock = PyEval_SaveThread();")
            writer.line(f"int64 status = {call};")
            writer.line("PyEval_RestoreThread(lock);")
        else:
            writer.line(f"int64 status = {call};")
        writer.line("return PyLong_FromLong(status);")
