"""The function that Python calls: unpacks the tensors of its arguments, runs the graph, and builds the tuple of
results.

Arguments of other kinds than the graph was compiled for (tensor subclasses, missing or negated gradients) go to the
Python wrapper, which is the first item of the state. A backward takes a list and empties it: it owns its arguments, and
frees them as it goes.
"""
from __future__ import annotations

from dataclasses import dataclass

from ..cpp.source_writer import Writer
from .load import AGAIN, RAISED
from .results import Result

PYTHON, RAISE, CHANGED, LAZY, HELD = range(5)
"""Positions in the state (see `load.py`); constants of the graph come last, then Python values."""


@dataclass(frozen=True)
class Caller:
    """One such function. `inputs` has the kind of each: "t", a tensor, "n", a number, "-", not looked at. `held` is a
    number of tensors, `length` that of the tuple; `changed` are the inputs that kernels have written; `tangents` the
    inputs that come from outside of a `backward`. With `long_running` other threads of Python run meanwhile.
    `on_gpu`: it runs where its GPU is the current one, and may call Python (see `gpu/`)."""

    inputs: str
    held: int
    results: tuple[Result, ...]
    length: int
    changed: tuple[int, ...]
    backward: bool
    tangents: tuple[int, ...]
    long_running: bool
    on_gpu: bool = False

    def write(self, writer: Writer) -> None:
        """The function."""
        with writer.block("static PyObject* call(PyObject* state, PyObject* const* a, int64 n)"):
            (self._list if self.backward else self._arguments)(writer)
            made = sum(1 for result in self.results if result.kind == "made")
            writer.line(f"Owned out[{max(made, 1)}];")
            writer.line(f"int64 sizes[{len(self.results) + 1}];")
            if self.on_gpu:
                self._on_gpu(writer)
            elif self.long_running:
                writer.line("void* lock = PyEval_SaveThread();")
                writer.line("const int64 code = run(in, numbers, sizes, out);")
                writer.line("PyEval_RestoreThread(lock);")
            else:
                writer.line("const int64 code = run(in, numbers, sizes, out);")
            writer.line(f"if (code == {AGAIN} || code < 0) return {_python()};")
            writer.line(f"if (code) return called({_state(RAISE)}, PyLong_FromLong(code));")
            self._changed(writer)
            self._tuple(writer)
            writer.line("return results;")

    def _on_gpu(self, writer: Writer) -> None:
        """Run with what a wrapper for a GPU has besides."""
        last = self._last()
        writer.line(f"Context context = {{(const Table*)PyLong_AsLong({_state(last)}), {_state(last + 1)}}};")
        writer.line("context.lock = PyEval_SaveThread();")
        writer.line("const int64 code = run(context, in, numbers, sizes, out);")
        writer.line("PyEval_RestoreThread(context.lock);")
        writer.line(f"if (code == {RAISED}) return nullptr;")

    def _last(self) -> int:
        """The position in the state of what a wrapper for a GPU has: the table of launches, then what Python does."""
        return HELD + self.held + sum(result.kind == "plain" for result in self.results)

    def _arguments(self, writer: Writer) -> None:
        count = self.inputs.count("t")
        writer.line(f"Tensor in[{count + self.held + 1}];")
        self._take(writer, "a[k]", f"n == {len(self.inputs)}", "in[t++] = handle(a[k]);")
        writer.line(f"if (!known) return {_python()};")
        for k in range(self.held):
            writer.line(f"in[{count + k}] = handle({_state(HELD + k)});")

    def _take(self, writer: Writer, item: str, length: str, tensor: str) -> None:
        """Take tensors and numbers out of the arguments; `known` is false if they are not of their kinds."""
        writer.line(f"int64 numbers[{self.inputs.count('n') + 1}];")
        writer.line(f'const char* const kinds = "{self.inputs}";')
        writer.line(f"bool known = {length}{' && is_current()' if self.on_gpu else ''};")
        with writer.block(f"for (int64 k = 0, t = 0, m = 0; known && k < {len(self.inputs)}; k++)"):
            writer.line(f"known = fits({item}, kinds[k]);")
            writer.line(f"if (known && kinds[k] == 't') {tensor}")
            if "n" in self.inputs:
                writer.line(f"if (known && kinds[k] == 'n') numbers[m++] = PyLong_AsLong({item});")
        if "n" in self.inputs:
            writer.line("if (known && PyErr_Occurred()) { PyErr_Clear(); known = false; }")

    def _list(self, writer: Writer) -> None:
        """A backward takes ownership of its arguments; from then on it cannot run again."""
        count = self.inputs.count("t")
        writer.line(f"Owned in[{count + self.held + 1}];")
        tensor = "known = !aoti_torch_new_tensor_handle(handle(PyList_GetItem(a[0], k)), &in[t++].tensor);"
        self._take(writer, "PyList_GetItem(a[0], k)", f"n == 1 && PyList_Size(a[0]) == {len(self.inputs)}", tensor)
        for k in self.tangents:
            writer.line(f"known = known && !holds({_state(LAZY)}, PyList_GetItem(a[0], {k}));")
        for k in range(self.held):
            held = f"handle({_state(HELD + k)})"
            writer.line(f"known = known && !aoti_torch_new_tensor_handle({held}, &in[{count + k}].tensor);")
        writer.line(f"if (!known) return {_python()};")
        writer.line(f"PyList_SetSlice(a[0], 0, {len(self.inputs)}, nullptr);")

    def _changed(self, writer: Writer) -> None:
        """Tell autograd which inputs kernels have written."""
        if not self.changed:
            return
        writer.line(f"PyObject* changed = PyTuple_New({len(self.changed)});")
        for k, index in enumerate(self.changed):
            writer.line(f"Py_IncRef(a[{index}]); PyTuple_SetItem(changed, {k}, a[{index}]);")
        writer.line(f"PyObject* none = called({_state(CHANGED)}, changed);")
        writer.line("if (!none) return nullptr;")
        writer.line("Py_DecRef(none);")

    def _tuple(self, writer: Writer) -> None:
        if any(result.kind == "view" for result in self.results):
            steps = f"PyTuple_GetItem(state, {self._last() + 1})"
            views = f"PyTuple_GetItem({steps}, PyTuple_Size({steps}) - 1)"
            writer.line(f"PyObject* views = PyObject_Vectorcall({views}, a, n, nullptr);")
            writer.line("if (!views) return nullptr;")
        writer.line(f"PyObject* results = PyTuple_New({self.length});")
        plain, made, sizes = HELD + self.held, 0, 0
        for result in self.results:
            if result.kind == "input":
                value = f"a[{result.value}]"
            elif result.kind == "plain":
                value = _state(plain)
                plain += 1
            elif result.kind == "view":
                value = f"PyTuple_GetItem(views, {result.value})"
            elif result.kind == "size":
                value = f"size{sizes}"
                writer.line(f"PyObject* {value} = PyLong_FromLong(sizes[{sizes}]);")
                sizes += 1
            else:
                value = f"result{made}"
                writer.line(f"PyObject* {value} = wrap(out[{made}].tensor);")
                writer.line(f"if (!{value}) {{ Py_DecRef(results); return nullptr; }}")
                made += 1
            for k, place in enumerate(result.places):
                if k > 0 or result.kind in ("input", "plain", "view"):
                    writer.line(f"Py_IncRef({value});")
                writer.line(f"PyTuple_SetItem(results, {place}, {value});")
        if any(result.kind == "view" for result in self.results):
            writer.line("Py_DecRef(views);")


def _state(position: int) -> str:
    return f"PyTuple_GetItem(state, {position})"


def _python() -> str:
    return f"PyObject_Vectorcall({_state(PYTHON)}, a, n, nullptr)"
