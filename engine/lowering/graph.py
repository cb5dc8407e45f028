"""The walk over an ATen graph that builds a `Program` of loop bodies and extern calls."""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch
import torch.fx

from ...artifacts.context import CompileContext
from ...operators.traits import traits_named
from ...operators.unbacked import is_unbacked, unbacked_in
from ..ir.affine import Linear, Size, axis, constant, contiguous_strides, expr, product, size, sizes, stored_strides
from ..ir.ir import Buffer, ExternCall, LoopBody, Program, View, scalar_buffer
from ..unsupported import EngineUnsupported, NoLowering
from .body import BodyBuilder
from .extern import fallback, library_copy, number_of
from .lazy_tensors import Base, Compute, Index, Value, loop_index, offset, strided
from .loop_splitting import axis_splits
from .realization import leaving, read_in_part, reduced_to_few_columns, repeated, scattered
from .registry import LOWERINGS, RESHAPE, VIEW, in_loops
from .stored_values import STORE, StoredValues
from .views import viewed

LIBRARY_VECTORIZES: dict[Any, str] = {
    torch.ops.aten.lgamma.default: "lgamma is scalar in the C library, and vectorized in ATen",
}
WITHOUT_TRITON_FORM: dict[Any, str] = {
    torch.ops.aten.digamma.default: "Triton's math library has no digamma",
}
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
        self.inputs: list[str] = []
        self.values: dict[torch.fx.Node, Any] = {}
        self.node: torch.fx.Node = None  # type: ignore[assignment]  # the node that is being lowered
        self.stored = StoredValues(context, self.buffers, self.leaving)
        self.bound: set[sympy.Symbol] = set()  # unbacked symbols that a call has told
        self._made = 0

    # ---- the walk
    def run(self) -> Program:
        """Lower every node, then realize what the outputs need."""
        outputs: tuple[Any, ...] = ()
        for node in self.module.graph.nodes:
            self.node = node
            if node.op == "placeholder":
                self.values[node] = self._placeholder(node)
            elif node.op == "get_attr":
                self.values[node] = self._constant(node)
            elif node.op == "output":
                outputs = tuple(node.args[0]) if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
            else:
                self.values[node] = self._call(node)
        self._check_symbols()
        mutations: Mapping[int, str] = self.module.meta.get("mutations", {})
        copies, results = [], []
        for i, out in enumerate(outputs):
            if i in mutations:
                copies.append((self._new_value(self.values[out], mutations[i], mutations), mutations[i]))
            else:
                results.append(self._output(out))
        self.stored.record_inlined()
        return Program(tuple(self.inputs), self.symbols, self.buffers, self.constants, tuple(self.steps),
                       tuple(results), tuple(copies))

    def _new_value(self, value: Value, name: str, mutations: Mapping[int, str]) -> View:
        """What is copied to the mutated input `name`: not memory that an earlier copy has already changed. The input
        itself is its new value where a part of it was written in place (see passes/reinplace.py)."""
        view = self.view_of(value)
        if view.buffer in mutations.values() and view.buffer != name:
            return self.view_of(self.copied(value))
        return view

    def _check_symbols(self) -> None:
        for buffer in self.buffers.values():
            for number in (*buffer.size, *buffer.stride):
                unknown = number.free_symbols - set(self.symbols) - self.bound
                if unknown:
                    raise EngineUnsupported(f"the size {number} of {buffer.name} is not known before the graph runs")

    def _placeholder(self, node: torch.fx.Node) -> Any:
        value = node.meta["val"]
        position = len(self.inputs)
        self.inputs.append(node.name)
        if not isinstance(value, torch.Tensor):
            number = symbolic(value)
            if isinstance(number, sympy.Symbol):
                self.symbols[number] = (position, "value", 0)
                if isinstance(value, torch.SymFloat):
                    self._add_scalar(number)
            return number
        base = self.given(value, node.name)
        self._add_buffer(node.name, base, "input")
        base.buffer = node.name
        for kind, numbers in (("size", base.size), ("stride", base.stride)):
            for d, number in enumerate(numbers):
                if isinstance(number, sympy.Symbol):
                    self.symbols.setdefault(number, (position, kind, d))
        return Value(base, base.size)

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

    def _is_lowered(self, value: Any, of_view: bool) -> bool:
        """Whether loops can read all symbolic numbers in an argument tree, of a view or another operator."""
        if isinstance(value, (tuple, list)):
            return all(self._is_lowered(item, of_view) for item in value)
        if not isinstance(value, sympy.Expr):
            return not isinstance(value, sympy.Basic)  # a truth: u0 == 1
        if value.is_integer and all(s.is_integer for s in value.free_symbols):
            return self._bits(value, of_view) < 64
        known = all(s.is_integer or scalar_buffer(s) in self.buffers for s in value.free_symbols)
        return known and all(e.func in _ARITHMETIC or e.is_Atom for e in sympy.preorder_traversal(value))

    def _bits(self, number: sympy.Expr, fits: bool) -> int:
        """How many bits what is computed on the way to `number` may take. Loops have 64, Python as many as it wants.
        Numbers of the program are taken to have 32, sizes 12 (those of one tensor are multiplied), or 21 in powers.

        Arguments of a view are sizes and offsets: what `fits` fits, whatever intermediate sums and products wrap to.
        """
        if fits and (number.is_Atom or number.func in (sympy.Add, sympy.Mul, sympy.Pow)):
            return max((self._bits(part, True) for part in number.args), default=0)
        if number.is_Symbol:
            return 12 if self.symbols.get(number, (0, "value", 0))[1] in ("size", "stride") else 32
        if number.is_Atom:
            return int(abs(number)).bit_length()
        parts = [self._bits(part, False) for part in number.args]
        if number.is_Pow:
            return max(parts[0], 21) * int(number.exp) if number.exp.is_Integer else max(parts)
        return sum(parts) if number.is_Mul else max(parts) + number.is_Add

    def _constant(self, node: torch.fx.Node) -> Value:
        tensor = operator.attrgetter(str(node.target))(self.module)
        base = self.given(tensor, node.name)
        name = node.name
        self.constants[name] = tensor
        self._add_buffer(name, base, "constant")
        base.buffer = name
        return Value(base, base.size)

    def _call(self, node: torch.fx.Node) -> Any:
        fake = node.meta.get("val")
        if node.target is torch.ops.aten._local_scalar_dense.default:
            return number_of(self, node, self.arguments(node.args))
        if isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return symbolic(fake)
        if node.target is operator.getitem:
            return self.values[node.all_input_nodes[0]][node.args[1]]
        args, kwargs = self.arguments(node.args), self.arguments(node.kwargs)
        known = LOWERINGS.get(node.target)
        why = f"{node.target} has no lowering"
        of_view = known is not None and known.kind in (RESHAPE, VIEW)
        if not self._is_lowered((*args, *kwargs.values()), of_view):
            why = "a symbolic number that generated loops cannot compute"
            if of_view:
                raise EngineUnsupported(f"{why}, for a view")
        elif _may_be_empty(node):
            why = "it raises where its data-dependent size is 0"
        elif node.target in WITHOUT_TRITON_FORM and fake.device.type != "cpu":
            why = WITHOUT_TRITON_FORM[node.target]
        elif known is not None and (of_view or self._wants_loops(node)):
            try:
                _check_dense((fake, [n.meta.get("val") for n in node.all_input_nodes]), of_view)
                value = known.function(self, node, *args, **kwargs)
                if node.name in self.whole:
                    self.realize(value.base)
                return value
            except NoLowering as reason:
                why = str(reason)
        elif known is not None:
            why = LIBRARY_VECTORIZES.get(node.target, "forced by an override")
        return fallback(self, node, args, kwargs, why)

    def _wants_loops(self, node: torch.fx.Node) -> bool:
        """Lowerings of all but views may be overridden with the extern kernel; recorded where somebody searches, and
        where the extern kernel is faster."""
        default, why = "loops", f"{node.target} has a lowering"
        slower = LIBRARY_VECTORIZES.get(node.target)
        if slower and node.meta["val"].device.type == "cpu":
            default, why = "extern", slower
        elif not self.context.searched:
            return True
        origins = (f"forward#{node.name}",)
        return self.context.decide("lowering", node.name, ("loops", "extern"), default, why, origins=origins) == "loops"

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
            return library_copy(self, value, fake_strides)
        base = Base(self.node.name, value.size, fake_strides, value.dtype, value.device, value.load, "",
                    value.base.depth + 1, value.base.reads, value.base.heavy)
        return Value(base, value.size)

    def _output(self, out: Any) -> Any:
        if not isinstance(out, torch.fx.Node):
            return expr(size(out)) if isinstance(out, torch.SymInt) else out
        value = self.values[out]
        if not isinstance(value, Value):
            return expr(value) if isinstance(value, int) and not isinstance(value, bool) else value
        fake = out.meta["val"]
        wanted = sizes(fake.stride())
        view = self._same_window(out, value) or self.view_of(value, like=wanted)
        if tuple(map(size, view.stride)) != wanted and 0 not in wanted and product(map(size, view.size)) != 0:
            view = self.view_of(self.copied(value, wanted), like=wanted)
        return view


    def _same_window(self, out: torch.fx.Node, value: Value) -> View | None:
        """The window that torch took of a value in memory, where ptdebug's index mappings have no strides for it, or
        by such of which we cannot tell that they are equal."""
        root = viewed(out)
        fake, whole = out.meta["val"], root.meta.get("val")
        source = self.values[root]
        if root is out or not isinstance(whole, torch.Tensor) or not isinstance(source, Value):
            return None
        if source.reindex is not None or source.size != source.base.size:
            return None
        cast = whole.dtype != fake.dtype
        bits = (fake.is_conj(), fake.is_neg()) == (whole.is_conj(), whole.is_neg())
        recast = cast or (value.base is not source.base and bits)  # another dtype, here or in between
        if recast and whole.dtype.itemsize == fake.dtype.itemsize and root.op == "call_function":
            value = source
        self.realize(value.base, exact=True)
        wanted = sizes(fake.stride())
        window = strided(value, like=wanted if len(wanted) == len(value.size) else None)
        differs = window is None or tuple(map(size, window.stride)) != wanted  # or it is not known that they are equal
        if value.base is not source.base or value.base.stored is not None or not (recast or differs):
            return None
        if fake.untyped_storage()._cdata != whole.untyped_storage()._cdata:
            return None
        if value.base.stride != sizes(whole.stride()):
            return None
        start = expr(size(fake.storage_offset() - whole.storage_offset()))
        dtype = fake.dtype if cast else None
        return View(value.base.buffer, tuple(map(expr, sizes(fake.shape))), tuple(map(expr, wanted)), start, dtype)


_HALVES = frozenset((torch.bfloat16, torch.float16))


def _may_be_empty(node: torch.fx.Node) -> bool:
    packet = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    return traits_named(packet).needs_elements and bool(unbacked_in([n.meta.get("val") for n in node.all_input_nodes]))


_ARITHMETIC = (sympy.Add, sympy.Mul, sympy.Pow)


def symbolic(value: Any) -> Any:
    """A SymInt, SymFloat or SymBool as its expression; anything else as it is."""
    if isinstance(value, torch.SymInt):
        return size(value)
    return value.node.expr if isinstance(value, (torch.SymFloat, torch.SymBool)) else value


def _check_dense(fakes: Any, moves_nothing: bool) -> None:
    if isinstance(fakes, (tuple, list)):
        for fake in fakes:
            _check_dense(fake, moves_nothing)
    elif isinstance(fakes, torch.Tensor):
        if not moves_nothing and not in_loops(fakes.dtype, fakes.device):
            raise NoLowering(f"{'complex numbers' if fakes.dtype.is_complex else fakes.dtype} are left to ATen")
        if fakes.layout is not torch.strided or fakes.is_quantized:
            raise NoLowering("only strided tensors are lowered to loops")


def _split_axes(axes: Sequence[tuple[str, Size]], index: Index, splits: Mapping[str, tuple[int, ...]],
                prefix: str) -> tuple[list[tuple[str, Size]], Index]:
    """Axes with those in `splits` split, outer to inner, and `index` rewritten to the new axes."""
    renamed: list[tuple[str, Size]] = []
    replacement: dict[str, Linear] = {}
    for name, extent in axes:
        pieces = []
        above = extent
        for divisor in reversed(splits.get(name, ())):
            pieces.append((size(above) // divisor, divisor))
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
