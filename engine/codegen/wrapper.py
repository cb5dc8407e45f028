"""The wrapper: Python that allocates buffers, calls kernels and ATen, and returns what the user's code expects.

It is generated as source, with provenance for each line, compiled once, and runs on every call: whatever can be decided
at compile time is not left for run time. Dynamic sizes are read from the inputs on entry.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from torch.utils._sympy.printers import PythonPrinter

from ...artifacts.context import CHANGED_INPUTS, CompileContext
from ...artifacts.records import CodeLine
from ..graphs.functional_graph import (
    LAZY_VIEWS,
    AtenGraph,
    Constant,
    FromGraph,
    FromInput,
    Output,
    ViewOfGraph,
    ViewOfInput,
    pairs_numbers,
)
from ..graphs.wrapper_source import WrapperSource
from ..ir.ir import Buffer, ExternCall, Foreach, Group, KernelSignature, Plan, View, scalar_buffer
from ..runtime import runtime
from ..scheduler.memory import touched_by


def generate(
    aten: AtenGraph, plan: Plan, kernels: Mapping[str, Callable[..., int]], signatures: Mapping[str, KernelSignature],
    views: bool = False,
) -> WrapperSource:
    """Source of the wrapper for `plan`; `kernels` and `signatures` have an entry for each group's kernel. With `views`
    it also defines what makes the results that are views of inputs, if there are any: a replay makes none."""
    writer = WrapperWriter(aten, plan, kernels, signatures)
    source = writer.write()
    if views and any(isinstance(output, ViewOfInput) for output in aten.outputs):
        writer.views()
        return WrapperSource(tuple(writer.lines), writer.names, writer.operators)
    return source


def load(source: WrapperSource, context: CompileContext) -> Callable[..., tuple[Any, ...]]:
    """Compile the source; tracebacks show its lines."""
    return runtime.load(source.text, source.names, runtime.wrapper_file(context))


class WrapperWriter:
    """Writes one wrapper, from the first line to the last."""

    def __init__(
        self, aten: AtenGraph, plan: Plan, kernels: Mapping[str, Callable[..., int]],
        signatures: Mapping[str, KernelSignature],
    ) -> None:
        self.aten = aten
        self.plan = plan
        self.program = plan.program
        self.signatures = signatures
        self.lines: list[CodeLine] = []
        self.names: dict[str, Any] = {**runtime.STANDARD, **kernels, **self.program.constants}
        self.bound = {id(value): name for name, value in reversed(self.names.items())}
        self.printer = PythonPrinter()
        self.ending: dict[int, list[str]] = {}  # position of a step -> the buffers that nothing after it uses
        taken = set(plan.reuse.values())
        roles = ("intermediate", "input") if aten.is_backward else ("intermediate",)
        for name, position in _last_uses(plan, roles).items():
            if name not in taken:
                self.ending.setdefault(position, []).append(name)
        self.input_index = {name: i for i, name in enumerate(self.program.inputs)}
        self.operators: dict[str, str] = {}  # names of the wrapper -> the operators of ATen that they call
        self.allocated: set[str] = set()
        self.gpu: int | None = None  # the GPU that is the current one while the wrapper runs
        self.given: dict[str, View] = {}  # buffers that are a gradient, and which window on them

    # ---- text
    def line(self, text: str, origins: tuple[str, ...] = (), indent: int = 1) -> None:
        """Add a line of the body."""
        self.lines.append(CodeLine("    " * indent + text, origins))

    def expr(self, value: Any) -> str:
        """Python for a size, stride or number."""
        if isinstance(value, sympy.Integer):
            return str(int(value))
        return self.printer.doprint(value) if isinstance(value, sympy.Basic) else repr(value)

    def sizes(self, values: Any) -> str:
        """Python for a tuple of sizes."""
        inner = ", ".join(self.expr(v) for v in values)
        return f"({inner},)" if len(values) == 1 else f"({inner})"

    def bind(self, value: Any, name: str) -> str:
        """A global of the wrapper for an object that has no literal."""
        if id(value) not in self.bound:
            unique = name
            while unique in self.names:
                unique += "_"
            self.names[unique] = value
            self.bound[id(value)] = unique
        return self.bound[id(value)]

    # ---- the function
    def write(self) -> WrapperSource:
        """All lines, in order."""
        self.signature()
        signed = len(self.lines)
        self.read_symbols()
        self.tangents()
        before_writes = None
        for position, item in enumerate(self.plan.items):
            first_write = before_writes is None and self._writes_input(item)
            if first_write and isinstance(item, Group):
                before_writes = len(self.lines)
            if isinstance(item, Group):
                self.group(item)
            else:
                self.extern(item)
                before_writes = len(self.lines) if first_write else before_writes  # it writes nothing if it raises
            self.release(position)
        if before_writes is None and self.program.copies:
            before_writes = len(self.lines)
        self.copies()
        if before_writes is not None:
            self.mark_errors(before_writes)
        self.results()
        if self.gpu is not None:
            self.lines.insert(signed - bool(self.aten.is_backward and self.program.inputs), self.on_its_gpu(self.gpu))
        return WrapperSource(tuple(self.lines), self.names, self.operators)

    def _writes_input(self, item: Group | ExternCall) -> bool:
        return any(self.program.buffers[name].role == "input" for name in touched_by(item)[1])

    def on_its_gpu(self, index: int) -> CodeLine:
        """A first line that makes the GPU of the graph's buffers the current one: that is where `empty_cuda` allocates,
        whatever the program has made current since the graph was traced."""
        inputs = "values" if self.aten.is_backward else ", ".join(self.program.inputs)
        return CodeLine(f"    if gpu() != {index}: return on_gpu({index}, call, {inputs})")

    def mark_errors(self, start: int) -> None:
        """Mark what the lines from `start` on raise (out of memory, say): inputs may hold new values by then."""
        body = [CodeLine(f"    {line.text}", line.origins) for line in self.lines[start:]]
        self.lines[start:] = [CodeLine("    try:"), *body]
        self.line("except Exception as error:")
        self.line(f"error.{CHANGED_INPUTS} = True  # so the call is not run again", indent=2)
        self.line("raise", indent=2)

    def signature(self) -> None:
        """The first lines: inputs by name. A backward empties the list that it gets, so that `del` frees memory."""
        names = self.program.inputs
        if not self.aten.is_backward:
            self.line(f"def call({', '.join(names)}):", indent=0)
            return
        self.line("def call(values):", indent=0)
        if names:
            self.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = values; values.clear()")

    def read_symbols(self) -> None:
        """A name for each dynamic size, read from the inputs."""
        for symbol, (index, kind, dimension) in self.program.symbols.items():
            owner = self.program.inputs[index]
            read = {"size": f"{owner}.shape[{dimension}]", "stride": f"{owner}.stride()[{dimension}]", "value": owner}
            self.line(f"{symbol} = {read[kind]}")
            self.scalar(symbol)

    def scalar(self, symbol: sympy.Symbol) -> None:
        """Store a dynamic float where kernels load it from, if one does."""
        buffer = self.program.buffers.get(scalar_buffer(symbol))
        if buffer is not None and self._is_read(buffer.name):
            self.line(f"{buffer.name} = {self.empty(buffer)}.fill_({symbol})")

    def _is_read(self, name: str) -> bool:
        return any(name in signature.buffers for signature in self.signatures.values())

    def tangents(self) -> None:
        """Tangents in the layout that kernels were generated for; None is zeros."""
        if self.aten.first_tangent is None:
            return
        for name in self.program.inputs[self.aten.first_tangent :]:
            buffer = self.program.buffers[name]
            size, stride = self.sizes(buffer.size), self.sizes(buffer.stride)
            like = f"{size}, {stride}, {buffer.dtype}, {self.bind(buffer.device, f'device_{buffer.device.type}')}"
            self.line(f"if {name} is None or {name}.stride() != {stride} or is_lazy({name}): "
                      f"{name} = tangent({name}, {like})")

    def group(self, group: Group) -> None:
        """Allocate what the kernel writes and call it."""
        signature = self.signatures[group.kernel]
        stores = [(body.name, s.name) for body in group.bodies for s in body.statements if s.op == "store"]
        origins = tuple(f"loop_ir:{body}#{name}" for body, name in stores)
        for name in signature.buffers:
            self.allocate(name, origins)
        there = self.numbers_sent(group, signature, origins)
        args = [f"{there.get(name, name)}.data_ptr()" for name in signature.buffers]
        args += [str(s) for s in signature.symbols]
        call = f"{group.kernel}({', '.join(args)})"
        if signature.bounds:
            self.line(f"status = {call}", origins)
            bounds = self.bind(signature.bounds, f"{group.kernel}_bounds")
            self.line(f"if status: out_of_bounds({bounds}[status - 1])", origins)
        else:
            self.line(call, origins)
        between = [name for name in signature.buffers if name in group.internal]  # several launches of one group
        between += there.values()
        if between:
            self.line(f"del {', '.join(between)}")

    def numbers_sent(self, group: Group, signature: KernelSignature, origins: tuple[str, ...]) -> dict[str, str]:
        """Copy CPU scalars to the GPU where a kernel there reads them; returns their names there.

        Scalars in a table are copied with the table.
        """
        names: dict[str, str] = {}
        for name in signature.buffers if group.device.type != "cpu" and not isinstance(group, Foreach) else ():
            if self.program.buffers[name].device.type == "cpu":
                names[name] = f"{name}_there"
                device = self.bind(group.device, f"device_{group.device.type}")
                self.line(f"{names[name]} = {name}.to({device}, non_blocking=True)", origins)
        return names

    def allocate(self, name: str, origins: tuple[str, ...]) -> None:
        """Memory for a buffer that a kernel writes first: new, or a dead buffer's."""
        buffer = self.program.buffers[name]
        if buffer.role != "intermediate" or name in self.allocated:
            return
        self.allocated.add(name)
        old = self.plan.reuse.get(name)
        if old is not None:
            before = self.program.buffers[old]
            same = (before.size, before.stride) == (buffer.size, buffer.stride)
            view = old if same else f"reinterpret({old}, {self.sizes(buffer.size)}, {self.sizes(buffer.stride)}, 0)"
            self.line(f"{name} = {view}; del {old}  # takes over its memory", origins)
            return
        self.line(f"{name} = {self.empty(buffer)}", origins)

    def empty(self, buffer: Buffer) -> str:
        """Python that allocates a buffer."""
        size, stride = self.sizes(buffer.size), self.sizes(buffer.stride)
        if buffer.device.type == "cpu":
            return f"empty_cpu({size}, {stride}, {buffer.dtype})"
        if buffer.device.type == "cuda" and runtime.empty_cuda is not None and buffer.device.index is not None:
            self.gpu = buffer.device.index if self.gpu is None else self.gpu
        if buffer.device.type == "cuda" and self.gpu is not None and buffer.device.index == self.gpu:
            return f"empty_cuda({size}, {stride}, {buffer.dtype})"
        return f"torch.empty_strided({size}, {stride}, dtype={buffer.dtype}, device={str(buffer.device)!r})"

    def view(self, view: View, name: str = "") -> str:
        """Python for a window onto a buffer, which may go by another name."""
        buffer = self.program.buffers[view.buffer]
        text = name or view.buffer
        if (view.size, view.stride, view.offset) != (buffer.size, buffer.stride, 0):
            text = f"reinterpret({text}, {self.sizes(view.size)}, {self.sizes(view.stride)}, {self.expr(view.offset)})"
        if view.dtype is not None and view.dtype != buffer.dtype:
            text += f".view({view.dtype})"
        return text

    def argument(self, value: Any) -> str:
        """Python for an argument tree of a library call."""
        if isinstance(value, View):
            return self.view(value)
        if isinstance(value, sympy.Basic):
            return self.expr(value)
        if isinstance(value, list):
            return f"[{', '.join(self.argument(v) for v in value)}]"
        if isinstance(value, tuple):
            return f"({', '.join(self.argument(v) for v in value)}{',' if len(value) == 1 else ''})"
        if isinstance(value, float) and repr(value) in ("inf", "-inf", "nan"):
            return f'float("{value}")'
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value)
        if isinstance(value, torch.device):
            return self.bind(value, f"device_{value.type}")
        return self.bind(value, type(value).__name__.lower())

    def extern(self, call: ExternCall) -> None:
        """Call ATen; results whose strides differ from the fake's are copied."""
        for view in _views((call.args, call.kwargs)):
            self.allocate(view.buffer, ())
        function = self.bind(runtime.callable_of(call.target), str(call.target).replace(".", "_"))
        self.operators[function] = str(call.target)
        args = [self.argument(a) for a in call.args] + [f"{k}={self.argument(v)}" for k, v in call.kwargs.items()]
        origins = tuple(f"forward#{origin}" for origin in call.origins)
        results = [name or "_" for name in call.outputs] if call.target._schema.returns else []
        single = len(call.target._schema.returns) == 1 and not _returns_list(call.target)
        number = next((str(symbol) for symbol, buffer, _ in call.binds if not buffer), "")
        target = ", ".join(results) + ("," if len(results) == 1 and not single else "")
        target = number or target
        self.line(f"{target} = {function}({', '.join(args)})" if target else f"{function}({', '.join(args)})", origins)
        for symbol, owner, dimension in call.binds:
            if owner:
                self.line(f"{symbol} = {owner}.shape[{dimension}]", origins)
            self.scalar(symbol)
        self.allocated.update(name for name in call.outputs if name is not None)
        for name in call.outputs:
            if name is not None and 0 not in self.program.buffers[name].size:  # of a workspace, the fake is empty
                buffer = self.program.buffers[name]
                size, stride = self.sizes(buffer.size), self.sizes(buffer.stride)
                self.line(f"if {name}.stride() != {stride}: {name} = with_strides({name}, {size}, {stride})", origins)

    def release(self, position: int) -> None:
        """Drop buffers whose last use is here, so that their memory can be used again."""
        if position in self.ending:
            self.line(f"del {', '.join(self.ending[position])}")

    def copies(self) -> None:
        """Write new values of mutated inputs back, reading all old values first."""
        written = [name for view, name in self.program.copies if view.buffer == name]  # by a kernel, in place
        written += [self.program.inputs[position] for position in self.aten.further]
        if written:
            self.line(f"changed(({', '.join(written)},))")
        copied = [(view, name) for view, name in self.program.copies if view.buffer != name]
        targets = {name for _, name in copied}
        sources = []
        for i, (view, _) in enumerate(copied):
            self.allocate(view.buffer, ())
            text = self.view(view)
            if view.buffer in targets:
                self.line(f"new{i} = {text}.clone()")
                text = f"new{i}"
            sources.append(text)
        for source, (_, name) in zip(sources, copied):
            self.line(f"{name}.copy_({source})")

    def results(self) -> None:
        """The return statement, and before it a name for each result that is used twice."""
        made: dict[int, str] = {}  # one object of the program is one `Output`: equal ones are two objects
        texts: set[str] = set()
        for i, output in enumerate(self.aten.outputs):
            if id(output) not in made:
                text = self.result(i, output)
                if self.aten.is_backward:
                    text = self.gradient(i, output, text)
                elif text in texts and not (isinstance(output, Constant) or _is_ours(output)):
                    self.line(f"result{i} = {text}.view_as({text})")
                    text = f"result{i}"
                made[id(output)] = text
                texts.add(text)
        given = [made[id(output)] for output in self.aten.outputs]
        self.line(f"return ({', '.join(given)}{',' if len(given) == 1 else ''})")

    def result(self, number: int, output: Output) -> str:
        """Python for one result."""
        if isinstance(output, FromInput):
            return self.program.inputs[output.index]
        if isinstance(output, Constant):
            value = output.value
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                return self.expr(value.node.expr)
            return self.argument(value)
        if isinstance(output, ViewOfInput):
            return self.view_of_input(number, output)
        value = self.program.outputs[output.index - len(self.program.copies)]  # new values of inputs come first
        if isinstance(value, View):
            self.allocate(value.buffer, ())  # an empty one, which no kernel writes
            text = self.view(value, self.owned(value.buffer))
            text = self.lazy_view(text, output)
            if not text.isidentifier():
                self.line(f"result{number} = {text}")
                text = f"result{number}"
            return text
        return self.argument(value)

    def gradient(self, number: int, output: Output, text: str) -> str:
        """A gradient that its receiver may keep: not a window on memory that is used elsewhere.

        The same object twice is fine: autograd counts references. A window on a tangent is what eager returns.
        """
        value = self.program.outputs[output.index] if isinstance(output, FromGraph) else None
        if not isinstance(value, View):
            return text
        role = self.program.buffers[value.buffer].role
        is_tangent = role == "input" and self.input_index[value.buffer] >= (self.aten.first_tangent or 0)
        taken = self.given.setdefault(value.buffer, value)
        if taken != value or (role == "input" and not is_tangent):
            self.line(f"result{number} = {text}.clone()")
            return f"result{number}"
        return text

    def owned(self, name: str) -> str:
        """The buffer, or a copy of a constant: the caller may write to it, and the next call needs it unchanged."""
        if name not in self.program.constants:
            return name
        copy = f"own_{name}"
        if copy not in self.allocated:
            self.allocated.add(copy)
            self.line(f"{copy} = {name}.clone()")
        return copy

    def view_of_input(self, number: int, output: ViewOfInput) -> str:
        """A true view of an input."""
        owner = self.program.inputs[output.index]
        recorded = "with torch.enable_grad(): " if output.differentiable or output.creation == "DEFAULT" else ""
        view = self.strided_view(owner, self.aten.inputs[output.index], output)
        self.line(f"{recorded}result{number} = {view}{'' if output.view else '.detach()'}")
        return f"result{number}"

    def views(self) -> None:
        """The function `views` of the inputs: the results that are views of them, in order."""
        self.line(f"def views({', '.join(self.program.inputs)}):", indent=0)
        self.read_symbols()
        made: dict[int, str] = {}
        found = [(i, output) for i, output in enumerate(self.aten.outputs) if isinstance(output, ViewOfInput)]
        for i, output in found:
            if id(output) not in made:
                made[id(output)] = self.view_of_input(i, output)
        self.line(f"return ({', '.join(made[id(output)] for _, output in found)},)")

    def strided_view(self, owner: str, real: torch.Tensor, output: ViewOfInput | ViewOfGraph) -> str:
        """Python for a view of the tensor `owner`, which was `real` (a fake), relative to where it starts in memory."""
        base = f"{owner}.detach()" if output.detached else owner
        first, start = _symbolic(real.storage_offset()), _symbolic(output.offset)
        offset = f"{base}.storage_offset()" + (f" + {self.expr(start - first)}" if start != first else "")
        if output.dtype != real.dtype:
            old, new = real.dtype.itemsize, output.dtype.itemsize
            if pairs_numbers(real.dtype, output.dtype):
                base = self.paired_view(base, real, output.dtype)
            else:
                window = 0 if real.numel() == 0 else max(1, new // old)  # view(dtype) wants unit strides
                base = f"{base}.as_strided(({window},), (1,), 0).view({output.dtype})"
            offset = f"({owner}.storage_offset() - {self.expr(first)}) * {old} // {new} + {self.expr(start)}"
        size, stride = (self.sizes([_symbolic(v) for v in values]) for values in (output.size, output.stride))
        view = self.lazy_view(f"{base}.as_strided({size}, {stride}, {offset})", output)
        return view if output.creation in ("", "DEFAULT") else f"made_as({view}, {output.creation!r})"

    def paired_view(self, base: str, real: torch.Tensor, dtype: torch.dtype) -> str:
        """Python for all memory of `base` as complex numbers or as reals, in a way that gradients flow through."""
        span = 1 + sum((_symbolic(n) - 1) * _symbolic(s) for n, s in zip(real.shape, real.stride()))
        count = f"{base}.storage_offset() + {self.expr(span)}" if real.numel() != 0 else "0"
        if dtype.is_complex:
            return f"torch.view_as_complex({base}.as_strided((({count}) // 2, 2), (2, 1), 0))"
        return f"torch.view_as_real({base}.as_strided(({count},), (1,), 0))"

    def lazy_view(self, text: str, output: Output) -> str:
        """Python for a tensor, conjugated or negated lazily where the program's result is."""
        kind = getattr(output, "lazily", "")
        return f"{self.bind(LAZY_VIEWS[kind], kind)}({text})" if kind else text


def _is_ours(output: Output) -> bool:
    return isinstance(output, FromGraph) and output.saved


def _symbolic(value: Any) -> sympy.Expr:
    return value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)


def _returns_list(target: Any) -> bool:
    return str(target._schema.returns[0].type).startswith("List")


def _views(value: Any) -> list[View]:
    if isinstance(value, View):
        return [value]
    if isinstance(value, (tuple, list)):
        return [v for item in value for v in _views(item)]
    if isinstance(value, Mapping):
        return [v for item in value.values() for v in _views(item)]
    return []


def _last_uses(plan: Plan, roles: tuple[str, ...]) -> dict[str, int]:
    """Position of the item after which each buffer of these roles is dead; results are never."""
    last: dict[str, int] = {}
    made: set[str] = set()
    for position, item in enumerate(plan.items):
        if isinstance(item, Group):
            names = [n for body in item.bodies for n in (*body.reads, *body.writes) if n not in item.internal]
        else:
            names = [v.buffer for v in _views((item.args, item.kwargs))] + [n for n in item.outputs if n]
            names += list(item.mutates)
        made.update(n for n in names if plan.program.buffers[n].role in roles)
        last.update((n, position) for n in names)
    for view in _views((plan.program.outputs, [view for view, _ in plan.program.copies])):
        last.pop(view.buffer, None)
    return {n: p for n, p in last.items() if n in made}


