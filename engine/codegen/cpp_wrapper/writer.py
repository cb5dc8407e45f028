"""Writes the graph as a C++ function, from the tensors of its inputs to those of its results, and the function that
Python calls.

Every step that can fail returns a code (see `load.py`); everything that a function owns is freed when it returns.
"""
from __future__ import annotations

from collections.abc import Collection, Sequence

import sympy
import torch

from ....artifacts.records import ref
from ...graphs.functional_graph import AtenGraph
from ...ir.ir import Buffer, ExternCall, Group, Plan, View, scalar_buffer
from ...kernels import attention, int8, int8_depthwise, sgemm
from ...scheduler.memory import touched_by
from ...scheduler.steps import views_in
from ...unsupported import NoCppWrapper
from ..cpp.dtypes import CTYPES
from ..cpp.entry import Entry
from ..cpp.indices import c_expression
from ..cpp.scope import buffer_name
from ..cpp.source_writer import Writer
from . import dispatched, int8_calls
from .attention import operands, scale, task
from .caller import Caller
from .calls import Arguments, double, function_of
from .entry import HELPERS, ON_CPU, connection, declarations, used_by, without_python
from .layouts import is_contiguous
from .load import AGAIN, FAILED, OUT_OF_BOUNDS
from .magnitude import BOUND, magnitude
from .memory import STACK, plan_memory
from .results import described, results_of
from .shim import abi_version, dtype_code, parameters_of, tensors_are_known
from .state import Native, NativeSource

FROM_MEMORY = "aoti_torch_create_tensor_from_blob"
"""Makes a tensor of memory that it does not own."""


class NativeWriter:
    """Writes one wrapper. `entries` are the kernels of the file; with `dispatch` it calls operators without a function
    of their own in the C interface, too. Buffers `apart` are not in the arena."""

    arena = STACK
    device = "cpu"  # in the names of torch's functions
    context = ""  # a parameter of the graph's function
    no_memory = FAILED  # the code of an allocation that fails

    def __init__(
        self, aten: AtenGraph, plan: Plan, entries: Sequence[Entry], dispatch: bool = False,
        apart: Collection[str] = (),
    ) -> None:
        self.aten, self.plan, self.program, self.writer = aten, plan, plan.program, Writer()
        self.entries = {entry.signature.name: entry for entry in entries}
        signatures = {name: entry.signature for name, entry in self.entries.items()}
        self.memory = plan_memory(plan, signatures, aten.is_backward, self.arena, apart)
        self.tensors = [n for n in self.program.inputs if n in self.program.buffers]
        outside = self.program.inputs[aten.first_tangent or 0 :] if aten.is_backward else ()
        self.tangents = [n for n in outside if n in self.program.buffers]
        self.held = tuple(self.program.constants)
        self.results = results_of(aten, self.program, bool(self.context), dispatch)
        self.called: list[str] = []
        self.bounds: list[str] = []
        self.backward = aten.is_backward
        self.written = self.backward  # whether inputs may already hold new values, or are freed
        self.pointers: set[str] = set()  # buffers whose address is in a variable
        self.handles: dict[str, str] = {}  # buffers that are tensors -> the C++ of theirs
        self.counted: set[str] = set()  # tensors whose version counter went on, as a library call was given them
        self.layouts: dict[tuple[tuple[sympy.Expr, ...], bool], str] = {}
        self.scalars: dict[float, str] = {}  # tensors of one number
        self.windows: list[str] = []  # and unused results of the step: they hold memory
        self.count = 0
        self.dispatch = dispatch

    # ---- the text
    def write(self) -> NativeSource:
        """All of it. Raises NoCppWrapper."""
        self._check()
        self._run()
        self.writer.line()
        self._caller().write(self.writer)
        functions = used_by(self.called)
        file = Writer()
        self._head(file, functions)
        file.lines += self.writer.lines
        file.line(connection(functions))
        self._tail(file, functions)
        plain = tuple(r.value for r in self.results if r.kind == "plain")
        native = Native(functions, self.held, plain, tuple(self.bounds), self._kinds(), described(self.results))
        return NativeSource(native, tuple(file.lines))

    def _head(self, file: Writer, functions: tuple[str, ...]) -> None:
        file.line()
        file.line("// The wrapper. Of torch it uses the functions of its stable C interface, by address.")
        file.line(f"{declarations(functions)}\n{ON_CPU}\n{HELPERS}\n")
        for text in dispatched.helpers(functions):
            file.line(text)

    def _tail(self, file: Writer, functions: tuple[str, ...]) -> None:
        if not self.backward:
            file.line(without_python(functions))

    def _check(self) -> None:
        """Refuse at once what has no C++ form."""
        if not tensors_are_known():
            raise NoCppWrapper("the layout of tensor objects in this Python is unknown")
        for symbol, (_, kind, _) in self.program.symbols.items():
            if kind == "value" and (not symbol.is_integer or scalar_buffer(symbol) in self.program.buffers):
                raise NoCppWrapper("a float is an input")
        if any(self.program.buffers[name].dtype.is_complex for name in self.tangents):
            raise NoCppWrapper("a complex gradient")
        self._check_devices()

    def _check_devices(self) -> None:
        devices = {b.device.type for b in self.program.buffers.values()}
        if devices - {"cpu"}:
            raise NoCppWrapper(f"tensors on {', '.join(sorted(devices - {'cpu'}))}")

    # ---- the graph
    def _run(self) -> None:
        inputs = "Owned* in" if self.backward else "const Tensor* in"
        parameters = f"{self.context}{inputs}, const int64* numbers, int64* sizes, Owned* out"
        with self.writer.block(f"static int64 run({parameters})"):
            self._make_arena()
            for k, name in enumerate((*self.tensors, *self.held)):
                self.handles[name] = f"{buffer_name(name)}.tensor" if self.backward else buffer_name(name)
                kind = "Owned&" if self.backward else "const Tensor"
                self.writer.line(f"{kind} {buffer_name(name)} = in[{k}];")
            self._symbols()
            for name in self.tangents:  # in the layout that kernels were generated for
                self._must(f"with_strides({buffer_name(name)}, {self._shape(self.program.buffers[name])})", (), "!")
            for position, item in enumerate(self.plan.items):
                if isinstance(item, Group):
                    self._group(item)
                else:
                    try:
                        self._extern(item)
                    except NoCppWrapper as reason:
                        reason.origins = item.origins
                        raise
                self._free(position)
            self._copies()
            self._results()
            self.writer.line("return 0;")

    def _make_arena(self) -> None:
        if self.memory.arena:
            self.writer.line(f"alignas(64) unsigned char arena[{self.memory.arena}];")

    def _kinds(self) -> str:
        """The kind of each input, as a `Caller` has it."""
        numbers = {index for index, kind, _ in self.program.symbols.values() if kind == "value"}
        return "".join(["t" if name in self.program.buffers else "n" if index in numbers else "-"
                        for index, name in enumerate(self.program.inputs)])

    def _symbols(self) -> None:
        numbers = [k for k, letter in enumerate(self._kinds()) if letter == "n"]
        for symbol, (index, kind, dimension) in self.program.symbols.items():
            if kind == "value":
                self.writer.line(f"const int64 {symbol} = numbers[{numbers.index(index)}];")
                continue
            function = f"aoti_torch_get_{kind}"
            self.writer.line(f"int64 {symbol};")
            self._must(f"{function}({self.handles[self.program.inputs[index]]}, {dimension}, &{symbol})")
        for result in self.results:
            if result.kind == "size" and not result.value.is_Symbol and self._mentions_numbers(result.value):
                self._must(f"({magnitude(result.value)} < {BOUND})", (), "!")

    def _mentions_numbers(self, expr: sympy.Expr) -> bool:
        kinds = {symbol: kind for symbol, (_, kind, _) in self.program.symbols.items()}
        return any(kinds.get(symbol) == "value" for symbol in expr.free_symbols)

    def _must(self, call: str, origins: tuple[str, ...] = (), good: str = "", code: int = FAILED) -> None:
        """A call that fails with something else than 0; with `good` ("!") with 0. `code` is returned where the graph
        cannot run again."""
        self.writer.line(f"if ({good}{call}) return {code if self.written else AGAIN};", origins)

    def unique(self, name: str) -> str:
        """A name for a variable."""
        self.count += 1
        return f"{name}_{self.count}"

    def layout(self, values: tuple[sympy.Expr, ...]) -> str:
        """The name of an array with sizes or strides."""
        if not values:
            return "nullptr"
        fixed = all(v.is_Integer for v in values)
        if (values, fixed) not in self.layouts:
            self.layouts[values, fixed] = name = self.unique("layout")
            numbers = ", ".join([c_expression(v) for v in values])
            self.writer.line(f"{'static ' if fixed else ''}const int64 {name}[] = {{{numbers}}};")
        return self.layouts[values, fixed]

    def _shape(self, buffer: Buffer) -> str:
        """The arguments that say what layout a tensor has."""
        rank, size, stride = len(buffer.size), self.layout(buffer.size), self.layout(buffer.stride)
        return f"{rank}, {size}, {stride}, {dtype_code(buffer.dtype)}"

    def allocate(self, name: str, origins: tuple[str, ...] = ()) -> None:
        """A tensor for a buffer that is written first here."""
        root = self.memory.root.get(name, name)
        if self.program.buffers[name].role != "intermediate" or name in self.handles or root in self.memory.place:
            return
        if root in self.handles:
            if name != root:
                self._take_over(name, root, origins)
            return
        self.writer.line(f"Owned {buffer_name(root)};", origins)
        allocation = f"empty({buffer_name(root)}, {self._shape(self.program.buffers[root])})"
        self._must(allocation, origins, "!", self.no_memory)
        self.handles[root] = f"{buffer_name(root)}.tensor"
        if name != root:
            self._take_over(name, root, origins)

    def _take_over(self, name: str, root: str, origins: tuple[str, ...]) -> None:
        buffer, before = self.program.buffers[name], self.program.buffers[root]
        if (buffer.size, buffer.stride) == (before.size, before.stride):
            self.handles[name] = self.handles[root]
            return
        self.writer.line(f"Owned {buffer_name(name)};  // takes over the memory of {root}", origins)
        self.handles[name] = f"{buffer_name(name)}.tensor"
        self._window(buffer_name(name), self.handles[root], View(root, buffer.size, buffer.stride), origins)

    def _window(self, made: str, of: str, view: View, origins: tuple[str, ...]) -> None:
        size, stride = self.layout(view.size), self.layout(view.stride)
        self._must(f"window({made}, {of}, {len(view.size)}, {size}, {stride}, {c_expression(view.offset)})",
                   origins, "!")

    def tensor(self, view: View) -> str:
        """The tensor that is a window on a buffer."""
        self.allocate(view.buffer)
        buffer = self.program.buffers[view.buffer]
        if view.dtype is not None and view.dtype != buffer.dtype:
            raise NoCppWrapper("a view in another dtype")
        if (view.size, view.stride, view.offset) == (buffer.size, buffer.stride, 0):
            return self.handles[view.buffer]
        made = self.unique("window")
        self.windows.append(made)
        self.writer.line(f"Owned {made};")
        self._window(made, self.handles[view.buffer], view, ())
        return f"{made}.tensor"

    def pointer(self, name: str) -> str:
        """The variable with the address of a buffer."""
        root = self.memory.root.get(name, name)
        at = f"at_{buffer_name(root)}"
        if root not in self.pointers:
            self.pointers.add(root)
            if root in self.memory.place:
                self.writer.line(f"void* const {at} = arena + {self.memory.place[root]};")
            else:
                self.writer.line(f"void* {at};")
                self._must(f"aoti_torch_get_data_ptr({self.handles[root]}, &{at})")
        return at

    def _group(self, group: Group) -> None:
        entry = self.entries[group.kernel]
        signature = entry.signature
        origins = tuple(ref("loop_ir", s.name, b.name) for b in group.bodies for s in b.statements if s.op == "store")
        for name in signature.buffers:
            self.allocate(name, origins)
        at = [self.pointer(name) for name in signature.buffers]
        if self._writes_input(group):
            self.written = True
        if entry.table:
            table = self.unique("table")
            self.writer.line(f"void* const {table}[] = {{{', '.join(at)}}};", origins)
            arguments = [table]
        else:
            arguments = [f"({kind}*){pointer}" for kind, pointer in zip(entry.types, at)]
        call = f"{entry.function}({', '.join([*arguments, *map(str, signature.symbols)])})"
        if not signature.bounds:
            self.writer.line(f"{call};", origins)
            return
        status = self.unique("status")
        code = f"{OUT_OF_BOUNDS + len(self.bounds) - 1} + {status}"
        if not self.written:
            code = f"-({code})"
        self.bounds += signature.bounds
        self.writer.line(f"if (int64 {status} = {call}) return {code};", origins)

    def _writes_input(self, item: Group | ExternCall) -> bool:
        return any(self.program.buffers[name].role == "input" for name in touched_by(item)[1])

    def _extern(self, call: ExternCall) -> None:
        origins = tuple(ref("forward", o) for o in call.origins)
        if call.target is attention.OPERATOR:
            self._attention(call, origins)
            return
        if call.target is sgemm.OPERATOR:
            self._product(call, origins)
            return
        if call.target is int8_depthwise.OPERATOR:
            self._int8_depthwise(call, origins)
            return
        if call.target in int8.SUMS:
            call = self._over_a_copy(call, origins)
        if call.target is int8.ROWS_SUM_IN_PLACE:
            call = int8_calls.rows_sum(call)
        try:
            function, parameters, given = function_of(call, self.device)
        except NoCppWrapper:
            if not self.dispatch or call.binds:
                raise
            self._dispatched(call, origins)
            return
        self.called.append(function)
        views = list(views_in((call.args, dict(call.kwargs))))
        whole = any(not self.program.buffers[v.buffer].dtype.is_floating_point for v in views)
        whole = whole and getattr(call.target, "namespace", "") != "onednn"  # whose scales are float for all operands
        statement = lambda text: self.writer.line(text, origins)
        arguments = Arguments(self.tensor, self._scalar, statement, self.unique, whole).of(call, parameters)
        if given:
            (name,) = call.outputs
            buffer = self.program.buffers[name] if name is not None else None
            if buffer is None or not is_contiguous(buffer):
                raise NoCppWrapper(f"{call.target} with other result strides")
            self.allocate(buffer.name, origins)
            self.counted.add(buffer.name)
            result = self.tensor(View(buffer.name, buffer.size, buffer.stride))
            self._must(f"{function}({', '.join([result, *arguments])})", origins)
            return
        kinds = [p.kind for p in parameters_of(function)[-len(call.outputs) :]]
        places = [self._result(name, kind, origins) for name, kind in zip(call.outputs, kinds)]
        self._must(f"{function}({', '.join([*arguments, *places])})", origins)
        self._made_outside(call, origins)

    def _result(self, name: str | None, kind: str, origins: tuple[str, ...]) -> str:
        """Where a function puts a result."""
        if kind == "int64*":
            unused = self.unique("unused")
            self.writer.line(f"int64 {unused};", origins)
            return f"&{unused}"
        known = name is None or name in self.handles  # it is in the memory of an argument
        made = self.unique("unused") if name is None or known else buffer_name(name)
        self.writer.line(f"Owned {made};", origins)
        if known:
            self.windows.append(made)
        return f"&{made}.tensor"

    def _made_outside(self, call: ExternCall, origins: tuple[str, ...]) -> None:
        """The results of a library call, in the strides that kernels were generated for."""
        for name in call.outputs:
            if name is not None and name not in self.handles:
                buffer = self.program.buffers[name]
                self.handles[name] = f"{buffer_name(name)}.tensor"
                if 0 not in buffer.size:  # of a workspace, the fake is empty
                    self._must(f"with_strides({buffer_name(name)}, {self._shape(buffer)})", origins, "!")

    def _scalar(self, number: float) -> str:
        """A tensor of one number, float64: it lives as long as the call."""
        if number not in self.scalars:
            value, made = self.unique("number"), self.unique("scalar")
            self.called.append(FROM_MEMORY)
            self.writer.line(f"double {value} = {double(number)};")
            self.writer.line(f"Owned {made};")
            layout = f"0, nullptr, nullptr, 0, {dtype_code(torch.float64)}, device_type, device_index"
            self._must(f"{FROM_MEMORY}(&{value}, {layout}, &{made}.tensor)")
            self.scalars[number] = f"{made}.tensor"
        return self.scalars[number]

    def _over_a_copy(self, call: ExternCall, origins: tuple[str, ...]) -> ExternCall:
        """A residual sum of integers, whose operator overwrites what is added: a copy of it."""
        (name,) = call.outputs
        if name is None:
            raise NoCppWrapper("a convolution whose result is not read")
        self.allocate(name, origins)
        self._must(f"aoti_torch_copy_({self.handles[name]}, {self.tensor(call.args[int8.ADDED])}, 0)", origins)
        return int8_calls.sum_over(call, self.program.buffers[name])

    def _dispatched(self, call: ExternCall, origins: tuple[str, ...]) -> None:
        """A call through the dispatcher."""
        self.written = self.written or self._writes_input(call)
        statement = lambda text: self.writer.line(text, origins)
        must = lambda condition: self._must(f"({condition})", origins, "!")
        writing = dispatched.Dispatched(self.tensor, statement, must, self.unique)
        results = writing.write(call, abi_version())
        self.called += writing.called
        names = [*call.outputs, *[None] * (len(results) - len(call.outputs))]
        for name, result in zip(names, results):
            made = buffer_name(name) if name is not None else self.unique("unused")
            self.writer.line(f"Owned {made};", origins)
            self.writer.line(f"{made}.tensor = {result};", origins)
        self.counted.update(call.mutates)
        self._made_outside(call, origins)

    def _attention(self, call: ExternCall, origins: tuple[str, ...]) -> None:
        results = [None if name is None else self.program.buffers[name] for name in call.outputs]
        table, views = self.unique("task"), operands(call)
        self.called.append(attention.ENTRY)
        self.writer.line(f"const int64 {table}[] = {{{task(call, results)}}};", origins)
        places = self._places(views, results, origins)
        assert views[0] is not None
        factor = scale(call, views[0].size[3])
        self._must(f"{attention.ENTRY}({table}, {', '.join(places)}, {factor})", origins)

    def _product(self, call: ExternCall, origins: tuple[str, ...]) -> None:
        (name,) = call.outputs
        buffer = self.program.buffers[name] if name is not None else None
        left, right, *bias = call.args
        if buffer is None or not is_contiguous(buffer):
            raise NoCppWrapper("a matrix product with other result strides")
        table, numbers = self.unique("task"), (*left.size, right.size[1], *left.stride, *right.stride)
        rows, depth, columns, *strides = [c_expression(n) for n in numbers]
        self.called.append(sgemm.ENTRY)
        self.writer.line(f"const int64 {table}[] = {{{', '.join([rows, columns, depth, *strides])}}};", origins)
        places = self._places([left, right, *(bias or [None])], [buffer], origins)
        self._must(f"{sgemm.ENTRY}({table}, {', '.join(places)})", origins)

    def _int8_depthwise(self, call: ExternCall, origins: tuple[str, ...]) -> None:
        (name,) = call.outputs
        result = None if name is None else self.program.buffers[name]
        table = self.unique("task")
        self.called.append(int8_depthwise.ENTRY)
        self.writer.line(f"const int64 {table}[] = {{{int8_calls.task(call, result)}}};", origins)
        places = self._places(int8_calls.operands(call), [result], origins)
        self._must(f"{int8_depthwise.ENTRY}({table}, {', '.join([*places, *int8_calls.scales(call)])})", origins)

    def _places(
        self, views: Sequence[View | None], results: Sequence[Buffer | None], origins: tuple[str, ...]
    ) -> list[str]:
        """The addresses of what one of ptdebug's kernels reads and writes."""
        for buffer in results:
            if buffer is not None:
                self.allocate(buffer.name, origins)
        places = ["nullptr" if view is None else self._place(view) for view in views]
        return [*places, *["nullptr" if buffer is None else self.pointer(buffer.name) for buffer in results]]

    def _place(self, view: View) -> str:
        kind = CTYPES[self.program.buffers[view.buffer].dtype].memory
        return f"({kind}*){self.pointer(view.buffer)} + {c_expression(view.offset)}"

    def _free(self, position: int) -> None:
        """Free what is dead after this step; of inputs, those that a backward owns."""
        if self.windows:
            self.writer.line(" ".join([f"{window}.free();" for window in self.windows]))
            self.windows.clear()
        for root in self.memory.ending.get(position, ()):
            names = [n for n, owner in self.memory.root.items() if owner == root] or [root]
            own = [n for n in names if self.handles.get(n) == f"{buffer_name(n)}.tensor"]
            if own:
                self.writer.line(" ".join([f"{buffer_name(n)}.free();" for n in own]))

    # ---- results
    def _copies(self) -> None:
        """New values of inputs, reading all old values first."""
        copied = [(view, name) for view, name in self.program.copies if view.buffer != name]
        targets = {name for _, name in copied}
        sources = []
        for view, name in copied:
            source = self.tensor(view)
            if view.buffer in targets:
                made = self.unique("new")
                self.writer.line(f"Owned {made};")
                self._must(f"aoti_torch_clone({source}, &{made}.tensor)")
                source = f"{made}.tensor"
            sources.append((source, name))
        for source, name in sources:
            self.written = True
            self._must(f"aoti_torch_copy_({self.handles[name]}, {source}, 0)")

    def _results(self) -> None:
        """Move out the results: windows first, while their memory is still owned here."""
        for k, result in enumerate([r for r in self.results if r.kind == "size"]):
            self.writer.line(f"sizes[{k}] = {c_expression(result.value)};")
        made = [r for r in self.results if r.kind == "made"]
        whole: dict[int, View] = {}
        for k, result in enumerate(made):
            view: View = result.value
            self.allocate(view.buffer)
            buffer = self.program.buffers[view.buffer]
            same = (view.size, view.stride, view.offset) == (buffer.size, buffer.stride, 0)
            if result.copied:
                self._must(f"aoti_torch_clone({self.tensor(view)}, &out[{k}].tensor)")
            elif same and view.buffer not in self.counted:
                whole[k] = view
            else:
                self._window(f"out[{k}]", self.handles[view.buffer], view, ())
        given = [self.handles[view.buffer] for view in whole.values()]
        if len(set(given)) != len(given):
            raise NoCppWrapper("two results are one tensor")
        for k, view in whole.items():
            self.writer.line(f"out[{k}].tensor = {self.handles[view.buffer].removesuffix('.tensor')}.take();")

    def _caller(self) -> Caller:
        changed = [self.program.inputs.index(name) for view, name in self.program.copies if view.buffer == name]
        changed += self.aten.further
        tangents = [self.program.inputs.index(name) for name in self.tangents]
        return Caller(
            self._kinds(), len(self.held), self.results, len(self.aten.outputs), tuple(changed), self.backward,
            tuple(tangents), bool(self.called) or any(entry.long_running for entry in self.entries.values()),
            bool(self.context),
        )
