"""Fake tensors for the inputs of a frame: the fake tensor mode and shape environment of one attempt to trace it, and
finally the conditions on the symbols under which the trace is valid."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._guards import Source as TorchSource
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import DimDynamic
from torch.utils._sympy.value_ranges import ValueRanges

from ...artifacts import records
from ...artifacts.records import Location
from ..runtime.device_guard import hold_device_guard
from ..sources.display_names import display_name
from ..sources.source import SizeSource, Source
from .conditions import ShapeGuard, python, with_sign
from .dynamic_policy import MARKED, DynamicPolicy, Sizes, marked_range
from .fake_mode import CaptureFakeMode, WithoutGradients, memory_of
from .shape_env import CaptureShapeEnv


@dataclass(frozen=True, eq=False)
class _SymbolSource(TorchSource):
    """A ptdebug source in the form that ShapeEnv expects."""

    ours: Source

    @property
    def name(self) -> str:
        return self.ours.expression


class MarkedDynamicError(symbolic_shapes.ConstraintViolationError):
    """A size marked dynamic was specialized; stock raises ConstraintViolationError as well."""


class FrameShapes:
    """The fake mode, shape environment and fake tensors of one attempt to trace a frame. Needs
    `dynamo_stubs.without_dynamo()` around it."""

    def __init__(self, policy: DynamicPolicy) -> None:
        hold_device_guard()
        self.policy = policy
        # Data-dependent sizes and values become unbacked symbols, which `TraceGraph` may refuse.
        self.shape_env = CaptureShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
        self.fake_mode = CaptureFakeMode(shape_env=self.shape_env, allow_non_fake_inputs=False)
        self.fake_mode.fake_tensor_converter.meta_converter.describer = WithoutGradients()
        self._fakes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._sources: dict[int, Source] = {}  # of the real tensors with fakes, by id
        self._dims: dict[int, tuple[Sizes, Sizes]] = {}  # of the real tensors with symbols, by id
        self._symbols: dict[sympy.Symbol, Source] = {}
        self._hints: dict[sympy.Symbol, float] = {}  # their values at this call
        self._relations: list[tuple[Source, sympy.Expr]] = []  # the value at the source equals the expression
        self._ranges: dict[sympy.Symbol, tuple[sympy.Expr, sympy.Expr]] = {}  # at creation

    def fakify(self, tensor: torch.Tensor, source: Source, static: bool = False) -> torch.Tensor:
        """The fake tensor of a real one; the same for the same tensor. The caller adds `guards.add(source,
        "TENSOR_MATCH", tensor)`. `static`: no size of it is a symbol."""
        known = self._fakes.get(id(tensor))
        if known is not None:
            return known[1]
        kept = tuple(tensor.size()), tuple(tensor.stride())
        sizes, strides = kept if static else self.policy.tensor(source, tensor)
        lazy = tensor.is_neg() or tensor.is_conj()  # a fake tensor with symbolic sizes would not be
        if tensor.layout is not torch.strided or lazy or (None not in sizes and None not in strides):
            fake: torch.Tensor = self.fake_mode.from_tensor(tensor, static_shapes=True, source=_SymbolSource(source))
        else:
            fake = self._symbolic(tensor, source, sizes, strides)
        self._fakes[id(tensor)] = (tensor, fake)
        self._sources[id(tensor)] = source
        return fake

    def real_values(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The real tensors of fake ones, until `forget`; what has none is given back."""
        real = {id(fake): tensor for tensor, fake in reversed(self._fakes.values())}
        return tuple(real.get(id(value), value) for value in values)

    def forget(self) -> None:
        """Release the real tensors: torch swaps two tensors (`swap_tensors`, in conversions of modules) only where
        nothing refers to them, not even weakly. Their fakes are not looked up any more."""
        self._fakes.clear()
        describer = self.fake_mode.fake_tensor_converter.meta_converter.describer
        describer.lookup_tensor.clear()
        describer.lookup_storage.clear()

    def beginnings(self, fake: torch.Tensor) -> list[tuple[Source, int, int | torch.SymInt]]:
        """The sources of the tensors whose elements are in the memory of `fake`, each with its storage offset and that
        of its fake, which is 0 where a size is a symbol. TENSOR_MATCH does not cover these."""
        memory = memory_of(fake)
        given = [(self._sources.get(number), *pair) for number, pair in self._fakes.items()]
        return [
            (source, int(real.storage_offset()), other.storage_offset()) for source, real, other in given
            if source is not None and memory is not None and memory_of(other) == memory
        ]  # fmt: skip

    def has_base(self, view: torch.Tensor) -> bool:
        """Whether the real view is a view of its base in the way that fake tensors model it. It is not where the base
        got other memory (`base.data = ...`) or where an operation of the graph made the base require gradients; nor can
        a view be read that was made without gradients and whose base has had some since. Nor where an operation gave
        the base a gradient function and the view's node was not requested since: until then the view must not be
        written, and requesting it (`Tensor.is_leaf` does, `aten.is_leaf` does not) changes that."""
        base = view._base
        assert base is not None
        if view.requires_grad and view._version and torch.ops.aten.is_leaf(view):
            return False
        fake = self.fake_mode.fake_tensor_converter._get_memo(base)
        if fake is not None and fake.requires_grad != base.requires_grad:
            return False
        try:
            _ = view.is_leaf  # makes autograd create the view's node
        except RuntimeError:
            return False
        return base.untyped_storage()._cdata == view.untyped_storage()._cdata

    def represents(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """`other` has the sizes of `tensor`, which has a fake tensor."""
        self._fakes[id(other)] = other, self._fakes[id(tensor)][1]
        if id(tensor) in self._dims:
            self._dims[id(other)] = self._dims[id(tensor)]

    def wrapper_sizes(
        self, tensor: torch.Tensor, source: Source, static: bool
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Sizes and strides of the fake tensor of a wrapper subclass (`wrapper_subclasses.py`). A ragged size stays as
        it is; TENSOR_MATCH compares those that are integers."""
        real, steps = tuple(tensor.shape), tuple(tensor.stride())
        sizes: tuple[Any, ...] = real
        strides: tuple[Any, ...] = steps
        if not static and all(type(n) is int for n in (*real, *steps)):
            wanted, wanted_strides = self.policy.tensor(source, tensor)
            if None in wanted or None in wanted_strides:
                sizes = tuple([
                    self._symbol(size, SizeSource(source, "size", i)) if wanted[i] is None else size
                    for i, size in enumerate(real)
                ])  # fmt: skip
                strides = tuple(self._strides(tensor, source, sizes, wanted_strides))
        self._dims[id(tensor)] = _numbers(sizes), _numbers(strides)
        return sizes, strides

    def symbolic_int(self, value: int, source: Source) -> torch.SymInt | int:
        """The int behind `source`: a symbol when it has been seen to vary, else `value` itself, which the caller
        guards.

        An int of more than 64 bits is never a symbol: operators refuse it.
        """
        if not -(2**63) <= value < 2**63 or not self.policy.number(source, value):
            return value
        return self.int_symbol(value, source)

    def int_symbol(self, value: int, source: Source) -> torch.SymInt:
        """A symbol for an int that is an input of the graph."""
        theirs = _SymbolSource(source)
        symbol = self.shape_env.create_unspecified_symbol(value, source=theirs, dynamic_dim=DimDynamic.DYNAMIC)
        self._bind(symbol, source, value)
        made: Any = self.shape_env.create_symintnode(symbol, hint=value, source=theirs)
        return made

    def float_symbol(self, value: float, source: Source) -> torch.SymFloat:
        """A symbol for a float that is an input of the graph."""
        theirs = _SymbolSource(source)
        symbol = self.shape_env.create_unspecified_symbol(value, source=theirs, dynamic_dim=DimDynamic.DYNAMIC)
        self._bind(symbol, source, value)
        made: Any = self.shape_env.create_symfloatnode(symbol, hint=value, source=theirs)
        return made

    def random_symbol(self, kind: type, bounds: tuple[int, int] | None = None) -> torch.SymInt | torch.SymFloat:
        """A symbol for an int (within `bounds`, inclusive) or a float that is sampled before the graph runs."""
        env = self.shape_env
        made = env.create_unbacked_symint() if kind is int else env.create_unbacked_symfloat()
        symbol = made.node.expr
        env.pending_fresh_unbacked_symbols.remove(symbol)
        env.random_symbols.add(symbol)
        if bounds is not None:
            env.var_to_range[symbol] &= ValueRanges(*bounds)
        return made

    def assertions(self) -> set[sympy.Expr]:
        """The conditions on unbacked symbols that torch has assumed so far and would check at run time."""
        return {a.expr for group in self.shape_env.deferred_runtime_asserts.values() for a in group}

    def static_dims(self, tensor: torch.Tensor) -> tuple[Sizes, Sizes]:
        """Sizes and strides that a TENSOR_MATCH checks; None where conditions on a symbol cover them."""
        return self._dims.get(id(tensor)) or (tuple(tensor.size()), tuple(tensor.stride()))

    def _symbolic(self, tensor: torch.Tensor, source: Source, sizes: Sizes, strides: Sizes) -> torch.Tensor:
        fake_sizes = [
            self._symbol(value, SizeSource(source, "size", i), marked_range(tensor, i)) if sizes[i] is None else value
            for i, value in enumerate(tensor.size())
        ]
        fake_strides = self._strides(tensor, source, fake_sizes, strides)
        # An input may first be read inside torch.func.grad, or in another mode than it was made in.
        with temporarily_clear_interpreter_stack(), torch.inference_mode(tensor.is_inference()):
            with self.fake_mode, torch.no_grad():
                fake = torch.empty_strided(fake_sizes, fake_strides, dtype=tensor.dtype, device=tensor.device)
            if tensor.requires_grad:
                fake.requires_grad_()
                if not tensor.is_leaf and tensor._is_view():
                    with self.fake_mode, torch.enable_grad():
                        fake = fake.view_as(fake)
                elif not tensor.is_leaf:  # with a history, and not a view of a leaf, which must not be written
                    fake = torch._C._functions.DelayedError("the history of an input", 1)(fake)
        self._dims[id(tensor)] = (_numbers(fake_sizes), _numbers(fake_strides))
        return fake

    def _strides(
        self, tensor: torch.Tensor, source: Source, sizes: Sequence[int | torch.SymInt], wanted: Sizes
    ) -> list[int | torch.SymInt]:
        """Strides of the fake tensor, from the innermost out: the product of an inner size and stride where it equals
        that (so a contiguous tensor stays contiguous at every size), else the integer, or a symbol where it has
        changed."""
        real_sizes, real = tensor.size(), tensor.stride()
        result: dict[int, int | torch.SymInt] = {}
        candidates: dict[int, int | torch.SymInt] = {}
        for i in sorted(range(tensor.dim()), key=lambda d: (real[d], -d)):
            step = SizeSource(source, "stride", i)
            product = candidates.get(real[i])
            if isinstance(product, torch.SymInt):
                result[i] = product
                self._relations.append((step, product.node.expr))
            elif wanted[i] is None and product is None:
                result[i] = self._symbol(real[i], step)
            else:
                result[i] = real[i]
            candidates[real[i] * real_sizes[i]] = result[i] * sizes[i]
        return [result[i] for i in range(tensor.dim())]

    def _symbol(self, value: int, source: Source, bounds: ValueRanges[Any] | None = None) -> torch.SymInt | int:
        """A symbol for a size or stride; 0 and 1 stay constants, and equal sizes share one symbol, as in stock."""
        theirs = _SymbolSource(source)
        expression = self.shape_env.create_symbol(value, source=theirs, dynamic_dim=DimDynamic.DUCK)
        if isinstance(expression, sympy.Symbol):
            if bounds is not None:
                self._narrow(expression, value, source, bounds)
            self._bind(expression, source, value)
        return self.shape_env.create_symintnode(expression, hint=value, source=theirs)

    def _narrow(self, symbol: sympy.Symbol, value: int, source: Source, bounds: ValueRanges[Any]) -> None:
        """Restrict the symbol to the range that the user marked: the code is compiled for it, and guards check it."""
        if not bounds.lower <= value <= bounds.upper:
            name, marked = display_name(source), f"{bounds.lower} to {bounds.upper}"
            raise MarkedDynamicError(f"Constraints violated ({name})! It is {value}, and is marked with {marked}")
        self.shape_env.var_to_range[symbol] &= bounds
        if symbol in self._ranges:
            narrowed = self.shape_env.var_to_range[symbol]
            self._ranges[symbol] = narrowed.lower, narrowed.upper

    def _bind(self, symbol: sympy.Symbol, source: Source, value: float) -> None:
        if symbol not in self._symbols:
            self._symbols[symbol] = source
            self._hints[symbol] = value
            bounds = self.shape_env.var_to_range[symbol]
            self._ranges[symbol] = (bounds.lower, bounds.upper)
        else:
            self._relations.append((source, symbol))

    def place_of(self, number: sympy.Expr) -> Source | None:
        """The source of a symbolic size."""
        return self._symbols.get(number)

    def symbol_history(self) -> tuple[records.Symbol, ...]:
        """Each symbol with its source, why it varies, and what narrowed it, in the order in which that happened."""
        events: dict[str, list[records.SymbolEvent]] = {}
        for stated in self.shape_env.guards:
            text, location = python(stated.expr), getattr(stated.sloc, "ours", None)
            for symbol in stated.expr.free_symbols:
                events.setdefault(str(symbol), []).append(records.SymbolEvent(f"needs {text}", location))
        for symbol, target, location in dict.fromkeys(self.shape_env.settled):
            verb = "is specialized to" if target.is_number else "equals"
            text = f"{verb} {python(target)} from here on"
            events.setdefault(str(symbol), []).append(records.SymbolEvent(text, location))
        for source, related in self._relations:
            if not (isinstance(source, SizeSource) and source.kind != "size"):  # strides follow from sizes
                event = records.SymbolEvent(f"{display_name(source)} must be {python(related)}, as at this call")
                for symbol in related.free_symbols:
                    events.setdefault(str(symbol), []).append(event)
        made = []
        for symbol, source in self._symbols.items():
            expression = source.expression
            value = str(self._hints.get(symbol, ""))
            why = self.policy.reasons.get(expression, "")
            name = str(symbol)
            made.append(
                records.Symbol(name, display_name(source), expression, value, why, tuple(events.get(name, ())))
            )
        return tuple(made)

    def check_marks(self) -> None:
        """Raise MarkedDynamicError where a size that the user marked dynamic was specialized."""
        fixed = {symbol for symbol, target, _ in self.shape_env.settled if target.is_number}
        for symbol in fixed:
            source = self._symbols.get(symbol)
            if source is None or self.policy.reasons.get(source.expression) != MARKED:
                continue
            events = next(s.events for s in self.symbol_history() if s.name == str(symbol))
            lines = [f"  {e.text}" + (f"  ({e.location.file}:{e.location.line})" if e.location else "") for e in events]
            raise MarkedDynamicError(
                f"Constraints violated ({display_name(source)})! It is marked dynamic (mark_dynamic), but the function "
                f"works for one value of it only. Its symbol is {symbol}, {self._hints[symbol]} at this call:\n"
                + "\n".join(lines) + "\nRemove the mark, use maybe_mark_dynamic, or change the lines above."
            )

    def may_fix(self, symbols: Sequence[sympy.Symbol]) -> bool:
        """Whether guards may specialize each symbol: its value is known at the call, and it is not marked dynamic."""
        sources = [self._symbols.get(symbol) for symbol in symbols]
        return all(source is not None and self.policy.reasons.get(source.expression) != MARKED for source in sources)

    # ---- conditions -------------------------------------------------------------------------------------------------
    def conditions(self) -> Iterator[ShapeGuard]:
        """The conditions on the symbols' values under which the trace is valid; each symbol's range first."""
        for symbol, (lower, upper) in self._ranges.items():
            bounds = [f"{lower} <= {symbol}"] if lower.is_Integer else []
            bounds += [f"{symbol} <= {upper}"] if upper.is_Integer else []
            if bounds:
                yield self._guard(" and ".join(bounds), [symbol])
        for number, (source, expression) in enumerate(self._relations):
            guard = self._guard(python(expression), sorted(expression.free_symbols, key=str))
            name = f"actual_{number}"
            yield ShapeGuard(f"{name} == {guard.expression}", (name, *guard.names), (source, *guard.sources))
        seen = set()
        for stated in self.shape_env.guards:
            expression = stated.expr
            if expression in seen or expression is sympy.true or not expression.free_symbols:
                continue
            seen.add(expression)
            location = getattr(stated.sloc, "ours", None)
            yield self._guard(with_sign(expression), sorted(expression.free_symbols, key=str), location)

    def _guard(self, text: str, symbols: Sequence[sympy.Symbol], location: Location | None = None) -> ShapeGuard:
        return ShapeGuard(text, tuple(map(str, symbols)), tuple(self._symbols[s] for s in symbols), location)


def _numbers(values: Sequence[int | torch.SymInt]) -> Sizes:
    return tuple(v if isinstance(v, int) else None for v in values)
