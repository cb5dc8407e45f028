"""The walk over an ATen graph that builds a `Program` of loop bodies and extern calls."""
from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import sympy
import torch
import torch.fx

from ...operators.traits import traits_named
from ...operators.unbacked import unbacked_in
from ..graphs.aliasing import viewed
from ..ir.affine import expr, product, size, sizes
from ..ir.ir import Program, View, scalar_buffer
from ..unsupported import EngineUnsupported, NoLowering
from .extern import fallback, number_of
from .graph import GraphLowering, symbolic
from .lazy_tensors import Value, strided
from .registry import LOWERINGS, RESHAPE, VIEW, in_loops

LIBRARY_VECTORIZES: dict[Any, str] = {
    torch.ops.aten.lgamma.default: "lgamma is scalar in the C library, and vectorized in ATen",
}
WITHOUT_TRITON_FORM: dict[Any, str] = {
    torch.ops.aten.digamma.default: "Triton's math library has no digamma",
}


class Walk(GraphLowering):
    """Lowers a graph, node by node."""

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
                       tuple(results), tuple(copies), self.sizes)

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
                self._remember(number, value)
                if isinstance(value, torch.SymFloat):
                    self._add_scalar(number)
            return number
        base = self.given(value, node.name)
        self._add_buffer(node.name, base, "input")
        base.buffer = node.name
        for kind, numbers, given in (("size", base.size, value.shape), ("stride", base.stride, value.stride())):
            for d, (number, known) in enumerate(zip(numbers, given)):
                if isinstance(number, sympy.Symbol):
                    self.symbols.setdefault(number, (position, kind, d))
                    self._remember(number, known)
        return Value(base, base.size)

    def _remember(self, symbol: sympy.Symbol, value: Any) -> None:
        """What `symbol` is in the call that the graph is compiled for, where that is known and a size."""
        if isinstance(value, torch.SymInt) and value.node.expr == symbol and value.node.hint is not None:
            self.sizes[symbol] = int(value.node.hint)

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
        elif self.context.way == "aten" and not of_view:
            why = "the graph runs as ATen operators (compile:graph = aten)"
        elif node.target in WITHOUT_TRITON_FORM and node.meta["val"].device.type != "cpu":
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


def _may_be_empty(node: torch.fx.Node) -> bool:
    packet = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    return traits_named(packet).needs_elements and bool(unbacked_in([n.meta.get("val") for n in node.all_input_nodes]))


_ARITHMETIC = (sympy.Add, sympy.Mul, sympy.Pow)


def _check_dense(fakes: Any, moves_nothing: bool) -> None:
    if isinstance(fakes, (tuple, list)):
        for fake in fakes:
            _check_dense(fake, moves_nothing)
    elif isinstance(fakes, torch.Tensor):
        if not moves_nothing and not in_loops(fakes.dtype, fakes.device):
            raise NoLowering(f"{'complex numbers' if fakes.dtype.is_complex else fakes.dtype} are left to ATen")
        if fakes.layout is not torch.strided or fakes.is_quantized:
            raise NoLowering("only strided tensors are lowered to loops")
