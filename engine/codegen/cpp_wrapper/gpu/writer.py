"""Writes a graph on a GPU as a C++ function (see `../writer.py`), which launches kernels; Python does what is rare."""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv

from .....artifacts.records import ref
from ....graphs.functional_graph import AtenGraph
from ....ir.ir import ExternCall, Group, Plan, View
from ....runtime.cuda_driver import SCRATCH
from ....unsupported import NoCppWrapper
from ...cpp.entry import Entry
from ...cpp.indices import c_expression
from ...cpp.scope import buffer_name
from ...cpp.source_writer import Writer
from ...python_steps import sizes_of, tensors_of
from ...triton import InterpretedGroup, TritonKernel
from ...triton.source import WIDE_FROM, Launch, TritonSource
from .. import dispatched
from ..entry import HELPERS, declarations, without_python
from ..load import AGAIN, NO_LAUNCH, NO_MEMORY, OUT_OF_BOUNDS, RAISED
from ..memory import POOL
from ..shim import dtype_code
from ..state import NativeSource
from ..writer import NativeWriter
from .text import DEVICES, FUNCTIONS, HEAD, LAUNCHES, WITHOUT_PYTHON, shared_workspace

_MEANT = {"CeilDiv": lambda a, b: FloorDiv(a + b - 1, b), "Max": sympy.Max}  # what sizes of launches name
_APART = 256  # bytes between the starts of workspaces, at least
SHARED_LIMIT = 4 << 20
"""Bytes of workspaces that stay allocated until a call returns."""


FROM_POOL = "aoti_torch__alloc_from_pool"


class NotInArena(Exception):
    """These buffers have to be tensors of their own: what torch's C interface does not do, Python does with them."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names


def written(
    aten: AtenGraph, plan: Plan, kernels: Mapping[str, TritonKernel | InterpretedGroup], dispatch: bool = False
) -> tuple[GpuWriter, NativeSource]:
    """The wrapper of a graph, and what has written it. Raises NoCppWrapper."""
    apart: set[str] = set()
    while True:
        writer = GpuWriter(aten, plan, kernels, dispatch, apart)
        try:
            return writer, writer.write()
        except NotInArena as found:
            apart |= {*found.names}


class GpuWriter(NativeWriter):
    """Writes one wrapper. `launches` are its launches by the driver, in the order of the table (the kernel's name, and
    which of its launches); `steps` what Python does for it: a kernel's name, or a call and whether inputs may be
    written by then."""

    arena = POOL
    context = "Context& context, "
    no_memory = NO_MEMORY

    def __init__(
        self, aten: AtenGraph, plan: Plan, kernels: Mapping[str, TritonKernel | InterpretedGroup],
        dispatch: bool = False, apart: Collection[str] = (),
    ) -> None:
        entries = [Entry(k.signature, name, (), False) for name, k in kernels.items()]
        super().__init__(aten, plan, entries, dispatch, apart)
        self.pooled: dict[View, str] = {}  # windows on the arena -> the C++ of theirs
        self.kernels = kernels
        self.launches: list[tuple[str, int]] = []
        self.steps: list[str | tuple[ExternCall, bool]] = []
        self.shared = 0  # bytes of the memory that kernels share for their workspaces
        self.kind, self.index = "cuda", 0

    def write(self) -> NativeSource:
        """All of it. Raises NoCppWrapper."""
        self._check_devices()  # first: what is called depends on them
        self.called += FUNCTIONS if self.kind == "cuda" else ()
        return super().write()

    def _check_devices(self) -> None:
        devices = {buffer.device for buffer in self.program.buffers.values()}
        if len(devices) != 1:
            raise NoCppWrapper(f"tensors on {', '.join(sorted(map(str, devices))) or 'no device'}")
        (device,) = devices
        if device.type not in DEVICES or (device.type == "cuda" and device.index is None):
            raise NoCppWrapper(f"tensors on {device}")
        if not self.tensors:
            raise NoCppWrapper("no tensor goes in, so nothing tells the GPU of a call")
        self.kind, self.index = device.type, device.index or 0
        self.device = self.kind

    def _head(self, file: Writer, functions: tuple[str, ...]) -> None:
        number, is_current = DEVICES[self.kind]
        file.line(f"{HEAD}\n{declarations(functions)}")
        file.line(f"static const int32 device_type = {number}, device_index = {self.index};  // of what is allocated")
        file.line(f"{HELPERS}\n{LAUNCHES}\n{is_current}\n")
        if self.shared:
            file.line(shared_workspace(self.shared, dtype_code(torch.uint8)))
        for text in dispatched.helpers(functions):
            file.line(text)

    def _tail(self, file: Writer, functions: tuple[str, ...]) -> None:
        if self.dispatch:
            file.line(WITHOUT_PYTHON + without_python(functions, "run_on_gpu(in, numbers, sizes, out)"))

    def _make_arena(self) -> None:
        if not self.memory.arena:
            return
        self.called.append(FROM_POOL)
        self.writer.line(f"static const int64 arena_size[] = {{{self.memory.arena}}}, arena_stride[] = {{1}};")
        self.writer.line("Owned pool; void* arena_at;")
        self._must(f"empty(pool, 1, arena_size, arena_stride, {dtype_code(torch.uint8)})", (), "!", NO_MEMORY)
        self._must("aoti_torch_get_data_ptr(pool.tensor, &arena_at)")
        self.writer.line("char* const arena = (char*)arena_at;")

    def tensor(self, view: View) -> str:
        """The tensor that is a window on a buffer, also on one in the arena."""
        root = self.memory.root.get(view.buffer, view.buffer)
        if root not in self.memory.place:
            return super().tensor(view)
        dtype = self.program.buffers[view.buffer].dtype
        if view.dtype is not None and view.dtype != dtype:
            raise NoCppWrapper("a view in another dtype")
        if view not in self.pooled:
            made = self.unique("pooled")
            size, stride = self.layout(view.size), self.layout(view.stride)
            at = f"{self.memory.place[root]} + ({c_expression(view.offset)}) * {dtype.itemsize}"
            self.writer.line(f"Owned {made};")
            self._must(f"{FROM_POOL}(pool.tensor, {at}, {dtype_code(dtype)}, {len(view.size)}, {size}, {stride}, "
                       f"&{made}.tensor)")
            self.pooled[view] = f"{made}.tensor"
        return self.pooled[view]

    def _symbols(self) -> None:
        self.writer.line("context.ready = is_ready(context);")
        if self.kind == "cuda":
            self._must("aoti_torch_get_current_cuda_stream(device_index, &context.stream)")
        if any(_shared_bytes(kernel.source) for kernel in self.kernels.values() if isinstance(kernel, TritonKernel)):
            self.writer.line("Owned shared; void* shared_at = nullptr;  // workspaces")
        super()._symbols()

    # ---- kernels
    def _group(self, group: Group) -> None:
        kernel = self.kernels[group.kernel]
        signature = kernel.signature
        origins = tuple(ref("loop_ir", s.name, b.name) for b in group.bodies for s in b.statements if s.op == "store")
        for name in signature.buffers:
            self.allocate(name, origins)
        at = {name: self.pointer(name) for name in signature.buffers}
        self.written = self.written or self._writes_input(group)
        source = kernel.source if isinstance(kernel, TritonKernel) else None
        if source is None or source.table is not None:
            self._by_python(group.kernel, list(at.values()), origins)
            return
        first = len(self.launches)
        if _is_one(source):
            self._launch(source.launches[0], group.kernel, at, origins)
            return
        self.launches += [(group.kernel, k) for k in range(len(source.launches))]
        rare = [f"{_text(extent)} >= {WIDE_FROM // 2}" for extent in source.extents] if signature.symbols else []
        if at:
            rare.insert(0, f"(({' | '.join([f'(uint64){p}' for p in at.values()])}) & 15)")
        general = self.unique("general")
        self.writer.line(f"const bool {general} = {' || '.join(rare) or 'false'};", origins)
        with self.writer.block(f"if (!is_there(context, {first}, {len(source.launches)}, {general}))", origins):
            self._by_python(group.kernel, list(at.values()), origins)
        with self.writer.block("else", origins):
            self._launches(source, first, general, at, origins)

    def _by_python(self, name: str, at: Sequence[str], origins: tuple[str, ...]) -> None:
        """A kernel that Python launches."""
        signature = self.kernels[name].signature
        values, status = self.unique("values"), self.unique("status")
        given = [*[f"(int64){p}" for p in at], *map(str, signature.symbols)]
        self.writer.line(f"const int64 {values}[] = {{{', '.join(given or ['0'])}}};", origins)
        call = f"kernel_by_python(context, {len(self.steps)}, {values}, {len(given)})"
        self.steps.append(name)
        self.writer.line(f"const int64 {status} = {call};", origins)
        self._checked(status, signature.bounds)

    def _checked(self, status: str, bounds: tuple[str, ...], by_driver: bool = False) -> None:
        """Return where a kernel's status is not 0."""
        refused = f"{status} == REFUSED ? {NO_LAUNCH} : " if by_driver else ""
        code = f"{refused}{OUT_OF_BOUNDS + len(self.bounds) - 1} + {status}" if self.written else str(AGAIN)
        self.bounds += bounds
        self.writer.line(f"if ({status}) return {status} < 0 ? {RAISED} : {code};")

    def _launch(self, launch: Launch, name: str, at: Mapping[str, str], origins: tuple[str, ...]) -> None:
        """A kernel of one launch and fixed sizes."""
        parameters, status = self.unique("parameters"), self.unique("status")
        self.writer.line(f"void* {parameters}[] = {{{', '.join(_places(launch, at))}}};", origins)
        place = f"{len(self.steps)}, {len(self.launches)}, {', '.join(_grid(launch))}"
        self.launches.append((name, 0))
        self.steps.append(name)
        call = f"kernel_by_driver(context, {place}, {parameters}, {len(at)})"
        self.writer.line(f"const int64 {status} = {call};", origins)
        self._checked(status, self.kernels[name].signature.bounds, True)

    def _launches(
        self, source: TritonSource, first: int, general: str, at: Mapping[str, str], origins: tuple[str, ...]
    ) -> None:
        at = {**at, **self._workspaces(source, origins)}
        for number, each in enumerate(source.launches):
            parameters = self.unique("parameters")
            self.writer.line(f"void* {parameters}[] = {{{', '.join(_places(each, at))}}};", origins)
            x, y = _grid(each)
            launch = f"launch(context, {first + number}, {general}, {x}, {y}, {parameters})"
            self._must(launch, origins, "!", NO_LAUNCH)

    def _workspaces(self, source: TritonSource, origins: tuple[str, ...]) -> dict[str, str]:
        """Memory for what its launches hand on; the variable with each one's address."""
        if not source.workspaces:
            return {}
        memory, at, end = self.unique("scratch"), {}, "0"
        for workspace in source.workspaces:
            at[workspace.name] = variable = self.unique("at")
            self.writer.line(f"const int64 {variable}_from = {end};", origins)
            size = f"({_text(workspace.numel)}) * {workspace.dtype.itemsize}"
            end = f"{variable}_from + ({size} + {_APART - 1}) / {_APART} * {_APART}"
        if shared := _shared_bytes(source):
            memory, self.shared = "shared", max(self.shared, shared)
            self._must("has_workspace(shared, &shared_at)", origins, "!", NO_MEMORY)
        else:
            self.writer.line(f"const int64 {memory}_size[] = {{{end}}}, {memory}_stride[] = {{1}};", origins)
            self.writer.line(f"Owned {memory};", origins)
            layout = f"1, {memory}_size, {memory}_stride, {dtype_code(torch.uint8)}"
            self._must(f"empty({memory}, {layout})", origins, "!", NO_MEMORY)
            self.writer.line(f"void* {memory}_at;", origins)
            self._must(f"aoti_torch_get_data_ptr({memory}.tensor, &{memory}_at)", origins)
        for variable in at.values():
            self.writer.line(f"void* {variable} = (char*){memory}_at + {variable}_from;", origins)
        return at

    # ---- ATen
    def _extern(self, call: ExternCall) -> None:
        restore = self._restoring()
        try:
            super()._extern(call)
        except NoCppWrapper:
            if call.binds:
                raise
            restore()
            self._call_by_python(call)

    def _made_outside(self, call: ExternCall, origins: tuple[str, ...]) -> None:
        self._need_tensors(call.outputs)
        super()._made_outside(call, origins)

    def _need_tensors(self, names: Iterable[str | None]) -> None:
        """Raise NotInArena where buffers are in the arena that an operator reads or makes as tensors of their own."""
        if pooled := {n for n in names if n is not None and self.memory.root.get(n, n) in self.memory.place}:
            raise NotInArena(pooled)

    def _restoring(self) -> Callable[[], None]:
        """What takes back all that is written from now on."""
        lines, called, bounds = len(self.writer.lines), len(self.called), len(self.bounds)
        handles, layouts, pointers = dict(self.handles), dict(self.layouts), set(self.pointers)
        counted, written, windows, pooled = set(self.counted), self.written, list(self.windows), dict(self.pooled)

        def restore() -> None:
            del self.writer.lines[lines:], self.called[called:], self.bounds[bounds:]
            self.handles, self.layouts, self.pointers = handles, layouts, pointers
            self.counted, self.written, self.windows, self.pooled = counted, written, windows, pooled

        return restore

    def _call_by_python(self, call: ExternCall) -> None:
        """A call of a function that torch's C interface has not got."""
        origins = tuple(ref("forward", o) for o in call.origins)
        names = tensors_of(call)
        self._need_tensors((*names, *call.outputs))
        for name in names:
            self.allocate(name, origins)
        self.written = self.written or self._writes_input(call)
        given, sizes, made = self.unique("given"), self.unique("sizes"), self.unique("made")
        results = [buffer_name(name) for name in call.outputs if name is not None]
        symbols = list(map(str, sizes_of(call, self.plan)))
        self.writer.line(f"const Tensor {given}[] = {{{', '.join([self.handles[n] for n in names] or ['nullptr'])}}};",
                         origins)
        self.writer.line(f"const int64 {sizes}[] = {{{', '.join(symbols or ['0'])}}};", origins)
        self.writer.line(f"Owned {made}[{max(len(results), 1)}];", origins)
        step, count = len(self.steps), len(results)
        self.steps.append((call, self.written))
        self.writer.line(f"if (!call_by_python(context, {step}, {given}, {len(names)}, {sizes}, {len(symbols)}, "
                         f"{made}, {count})) return {RAISED};", origins)
        for k, result in enumerate(results):
            self.writer.line(f"Owned {result};", origins)
            self.writer.line(f"{result}.tensor = {made}[{k}].take();", origins)
        self.counted.update(call.mutates)
        self.handles |= {n: f"{buffer_name(n)}.tensor" for n in call.outputs if n is not None}


def _is_one(source: TritonSource) -> bool:
    """Whether the kernel is one launch of what it is called with, without sizes that vary."""
    launches, signature = source.launches, source.signature
    return len(launches) == 1 and not signature.symbols and launches[0].pointers == signature.buffers


def _shared_bytes(source: TritonSource | None) -> int:
    """The bytes of a kernel's workspaces where it shares their memory with other kernels, which run before or after it
    in the same stream; 0 where it has none, or its own."""
    sizes = [w.numel * w.dtype.itemsize for w in (source.workspaces if source is not None else ())]
    if not all(size.is_Integer for size in sizes):
        return 0
    total = sum(-(-int(size) // _APART) * _APART for size in sizes)
    return total if total <= SHARED_LIMIT else 0


def _places(launch: Launch, at: Mapping[str, str]) -> list[str]:
    """Where the arguments of a launch are; of a size, its low half where that is a 32-bit integer."""
    values = [*[at[name] for name in launch.pointers], *map(str, launch.symbols), *["nothing"] * SCRATCH]
    return [f"(void*)&{value}" for value in values]


def _grid(launch: Launch) -> tuple[str, str]:
    x, *others = [_text(n) for n in launch.grid]
    return x, others[0] if others else "1"


def _text(size: sympy.Expr) -> str:
    """A size of a launch in C++."""
    made = sympy.sympify(size)
    for name, meant in _MEANT.items():
        made = made.replace(sympy.Function(name), meant)
    return c_expression(made)
