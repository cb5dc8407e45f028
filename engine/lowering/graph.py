"""What lowerings build a `Program` with: the buffers, steps and constants so far, and the value of each node."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch
import torch.fx

from ...artifacts.context import CompileContext
from ...operators.unbacked import is_unbacked
from ..ir.affine import (
    Linear,
    Size,
    axis,
    constant,
    contiguous_strides,
    exact_quotient,
    expr,
    size,
    sizes,
    stored_strides,
)
from ..ir.ir import Buffer, ExternCall, LoopBody, View, scalar_buffer
from ..unsupported import EngineUnsupported
from .body import BodyBuilder
from .lazy_tensors import Base, Compute, Index, Value, loop_index, offset, strided
from .loop_splitting import axis_splits
from .realization import leaving, read_in_part, reduced_to_few_columns, repeated, scattered
from .registry import in_loops
from .stored_values import STORE, StoredValues

_BROADCAST = "broadcast: inlined, it would be recomputed for each element, or in scalar code"


class GraphLowering:
    """State of one lowering: buffers, steps and constants so far, and the value of each node."""

    def __init__(self, module: torch.fx.GraphModule, context: CompileContext) -> None:
        self.module = module
        self.context = context
        self.scattered = scattered(module.graph)
        self.leaving = leaving(module.graph)
        self.whole = read_in_part(module.graph)
        self.buffers: dict[str, Buffer] = {}
        self.steps: list[LoopBody | ExternCall] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.symbols: dict[sympy.Symbol, tuple[int, str, int]] = {}
        self.sizes: dict[sympy.Symbol, int] = {}
        self.inputs: list[str] = []
        self.values: dict[torch.fx.Node, Any] = {}
        self.node: torch.fx.Node = None  # type: ignore[assignment]  # the node that is being lowered
        self.stored = StoredValues(context, self.buffers, self.leaving)
        self.bound: set[sympy.Symbol] = set()  # unbacked symbols that a call has told
        self._made = 0

    # ---- numbers and arguments
    def defines(self, symbol: Any) -> bool:
        """Whether the current call is the first to define an unbacked symbol, which it then does; a backward
        has it from an input, too."""
        known = symbol in self.bound or symbol in self.symbols
        if known or not isinstance(symbol, sympy.Symbol) or not is_unbacked(symbol):
            return False
        self.bound.add(symbol)
        if not symbol.is_integer:
            self._add_scalar(symbol)
        return True

    def _add_scalar(self, symbol: sympy.Symbol) -> None:
        """Memory for a dynamic float, from which kernels load it: on the CPU, if they run there and on a GPU.

        None where they run on several devices of a kind.
        """
        fakes = [node.meta.get("val") for node in self.module.graph.nodes]
        devices = {fake.device for fake in fakes if isinstance(fake, torch.Tensor)}
        if {device.type for device in devices} == {"cpu", "cuda"}:
            devices = {torch.device("cpu")}
        if len(devices) == 1:
            name = scalar_buffer(symbol)
            self.buffers[name] = Buffer(name, torch.float64, devices.pop(), (), (), "constant")

    def arguments(self, tree: Any) -> Any:
        """A tree of arguments with nodes replaced by their values and SymInts by expressions."""
        if isinstance(tree, torch.fx.Node):
            return self.values[tree]
        if isinstance(tree, (tuple, list)):
            return list(map(self.arguments, tree)) if type(tree) is list else tuple(map(self.arguments, tree))
        if isinstance(tree, dict):
            return {k: self.arguments(v) for k, v in tree.items()}
        return symbolic(tree)

    # ---- making values
    def base_of(self, fake: torch.Tensor, name: str) -> Base:
        """Memory for a tensor like `fake`; fakes of what copies an expanded tensor may be expanded, too."""
        size = sizes(fake.shape)
        return Base(name, size, stored_strides(size, sizes(fake.stride())), fake.dtype, fake.device)

    def given(self, fake: torch.Tensor, name: str) -> Base:
        """Existing memory: an input's or a constant's."""
        return Base(name, sizes(fake.shape), sizes(fake.stride()), fake.dtype, fake.device)

    def pointwise(self, node: torch.fx.Node, fake: torch.Tensor, inputs: Sequence[Any], compute: Compute,
                  heavy: bool = False) -> Value:
        """A lazy tensor with the metadata of `fake`, computed by `compute(builder, index)` from `inputs`.

        It stays lazy when its consumers end in one body or when it is cheap; else it is realized (a decision).
        """
        base = self.base_of(fake, node.name)
        base.compute = compute
        values = [v for v in inputs if isinstance(v, Value)]
        for value in values if base.device.type == "cpu" else ():
            if not value.base.buffer and value.base.heavy and repeated(value, base.size, base.stride):
                self.decide_stored(value.base, _BROADCAST)
        bases = [v.base for v in values]
        base.depth = 1 + max((b.depth for b in bases if not b.buffer), default=0)
        base.reads = frozenset().union(*[(b.buffer,) if b.buffer else b.reads for b in bases])
        base.windows = frozenset().union(*[(v,) if v.base.buffer else v.base.windows for v in values])
        base.heavy = heavy or any(b.heavy for b in bases if not b.buffer)
        if self.stored.stores(base, node.name in self.scattered):
            self.realize(base)
        made = Value(base, base.size)
        if heavy and not base.buffer and base.device.type == "cpu" and reduced_to_few_columns(node, made):
            self.decide_stored(base, "its readers have few columns, so inlined code would vectorize over few elements")
        return made

    def gather(self, node: torch.fx.Node, inputs: Sequence[Value], compute: Compute) -> Value:
        """A lazy tensor that reads its inputs at other indices: as `pointwise`, for one result."""
        return self.pointwise(node, node.meta["val"], inputs, compute)

    def decide_stored(self, base: Base, why: str) -> None:
        """Realize a lazy value (a decision of kind "realize")."""
        if self.stored.decide(base, STORE, why):
            self.realize(base)

    # ---- realizing
    def new_buffer(self, base: Base) -> str:
        """A new intermediate buffer with the layout of `base`."""
        name = f"buf{self._made}"
        self._made += 1
        if name in self.buffers:  # an input has that name
            return self.new_buffer(base)
        self._add_buffer(name, base, "intermediate")
        return name

    def _add_buffer(self, name: str, base: Base, role: str) -> None:
        self.buffers[name] = Buffer(name, base.dtype, base.device, tuple([expr(s) for s in base.size]),
                                    tuple([expr(s) for s in base.stride]), role)

    def realize(self, base: Base, *, exact: bool = False) -> str:
        """Make sure that `base` is in memory; the name of its buffer.

        Only generated loops read most buffers, so a float32 tensor whose elements were rounded to 16 bits is stored in
        those (a decision), unless something else reads it or `exact` requires its own dtype.
        """
        if not base.buffer:
            name = self.new_buffer(base)
            value = Value(base, base.size)
            exact = exact or base.dtype is not torch.float32 or base.node in self.leaving

            def emit(e: BodyBuilder, index: Index, _: Index) -> None:
                e.origin = base.node
                element = value.load(e, index)
                narrow = None if exact else e.rounded_to(element)
                if base.stored is None and narrow in _HALVES:
                    base.stored = self._storage(base, narrow)
                e.store(name, offset(index, base.stride), element, base.stored or base.dtype)

            self.loops(base.size, base.stride, (), emit)
            if base.stored is not None:
                self.buffers[name] = replace(self.buffers[name], dtype=base.stored)
            base.buffer, base.compute, base.reads, base.depth = name, None, frozenset(), 0
        return base.buffer

    def _storage(self, base: Base, narrow: torch.dtype | None) -> torch.dtype | None:
        own, half = str(base.dtype).removeprefix("torch."), str(narrow).removeprefix("torch.")
        why = f"every element was already rounded to {half}: lossless, with half the memory traffic"
        return narrow if self.context.decide("storage", base.node, (half, own), half, why,
                                             origins=(f"forward#{base.node}",)) == half else None

    def loops(self, sizes: Sequence[Size], strides: Sequence[Size], reduced: Sequence[Size],
              emit: Callable[[BodyBuilder, Index, Index], None]) -> None:
        """Append the body that `emit(builder, index, reduction index)` writes; none for a result without elements.

        When an axis is only used in quotients and remainders by one divisor, the loops are split there and the body is
        written again, so that its index expressions are linear.
        """
        if 0 in sizes:
            return
        axes, index = loop_index(sizes, strides)
        inner: list[tuple[str, Size]] = [(f"r{d}", s) for d, s in enumerate(reduced)]
        reduction_index: Index = tuple([axis(*a) for a in inner])
        for _ in range(3):
            e = BodyBuilder()
            e.nothing = any(extent == 0 for _, extent in inner)
            e.reduces = any(extent != 1 for _, extent in inner)
            e.origin = self.node.name if self.node.op == "call_function" else ""
            emit(e, index, reduction_index)
            splits = axis_splits(e.indices(), dict(axes + inner))
            if not splits:
                break
            axes, index = _split_axes(axes, index, splits, "i")
            inner, reduction_index = _split_axes(inner, reduction_index, splits, "r")
        kept = [] if e.nothing else [a for a in inner if a[1] != 1]
        self.steps.append(e.build(axes, kept))

    def view_of(self, value: Value, like: Sequence[Size] | None = None) -> View:
        """The value as a strided window of memory; it is realized, and copied where no strides express it."""
        self.realize(value.base, exact=True)
        view = strided(value, like)
        if view is None or value.base.stored is not None:
            value = self.copied(value)
            self.realize(value.base, exact=True)
            view = strided(value, like)
            assert view is not None
        return view

    def copied(self, value: Value, stride: Sequence[Size] | None = None) -> Value:
        """A new lazy tensor with the same elements, contiguous unless strides are given."""
        fake_strides = tuple(stride) if stride is not None else contiguous_strides(value.size)
        if not in_loops(value.dtype, value.device):
            return self._library_copy(value, fake_strides)
        base = Base(self.node.name, value.size, fake_strides, value.dtype, value.device, value.load, "",
                    value.base.depth + 1, value.base.reads, value.base.heavy)
        return Value(base, value.size)

    def _library_copy(self, value: Value, stride: tuple[Size, ...]) -> Value:
        """A copy of a realized value in a given layout by ATen, for dtypes that loops do not support."""
        source = strided(value)
        if source is None:
            raise EngineUnsupported("a view of a complex tensor that is not strided")
        node, made = self.node.name, []
        for _ in range(2):
            base = Base(node, value.size, stride, value.dtype, value.device)
            base.buffer = self.new_buffer(base)
            made.append(Value(base, base.size))
        empty, full = made
        window = self.view_of(empty)
        shape, strides = list(value.size), list(stride)
        why = "a complex tensor in another memory layout"
        for target, args, out in ((torch.ops.aten.new_empty_strided.default, (source, shape, strides), empty),
                                  (torch.ops.aten.copy.default, (window, source), full)):
            self.steps.append(ExternCall(out.base.buffer, target, args, {}, (out.base.buffer,), (), (node,), why))
        return full


_HALVES = frozenset((torch.bfloat16, torch.float16))


def symbolic(value: Any) -> Any:
    """A SymInt, SymFloat or SymBool as its expression; anything else as it is."""
    if isinstance(value, torch.SymInt):
        return size(value)
    return value.node.expr if isinstance(value, (torch.SymFloat, torch.SymBool)) else value


def _split_axes(axes: Sequence[tuple[str, Size]], index: Index, splits: Mapping[str, tuple[Size, ...]],
                prefix: str) -> tuple[list[tuple[str, Size]], Index]:
    """Axes with those in `splits` split, outer to inner, and `index` rewritten to the new axes."""
    renamed: list[tuple[str, Size]] = []
    replacement: dict[str, Linear] = {}
    for name, extent in axes:
        pieces = []
        above = extent
        for divisor in reversed(splits.get(name, ())):
            times = exact_quotient(above, divisor)
            assert times is not None
            pieces.append((times, divisor))
            above = divisor
        pieces.append((above, 1))
        total = constant(0)
        for piece, weight in pieces:
            renamed.append((f"{prefix}{len(renamed)}", piece))
            total = total + axis(*renamed[-1]) * weight
        replacement[name] = total
    return renamed, tuple([_substitute(form, replacement) for form in index])


def _substitute(form: Linear, replacement: Mapping[str, Linear]) -> Linear:
    total = constant(form.const)
    for atom, c in form.terms.items():
        total = total + replacement[atom.name] * c
    return total
