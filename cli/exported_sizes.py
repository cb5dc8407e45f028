"""The sizes of an exported graph: which dimensions vary, as `dynamic_shapes` says, and within which bounds."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from ..engine.package.signature import Number, Symbol
from ..operators.overlap import repeats

HIGHEST = 1 << 31
"""Sizes from here on are as good as unbounded."""


@dataclass(frozen=True)
class Dim:
    """A dimension that varies: its name, and the bounds that the person gave."""

    name: str
    low: int = 0
    high: int | None = None
    hinted: bool = False  # torch.export.Dim.AUTO: it varies unless the graph cannot have it so


Dims = Mapping[int, Dim]
"""The dimensions of one tensor that vary; of a number ITSELF."""

ITSELF = -1


def dims_of(value: Any, wanted: Any, path: str, tensor: type = torch.Tensor) -> Iterator[Dims]:
    """For each leaf of `value`, in order, what `wanted` (parallel to it, as in torch.export) says.

    Raises ValueError that names the place where the two do not fit.
    """
    if isinstance(value, tensor):
        yield _of_tensor(value, wanted, path)
        return
    if isinstance(value, Mapping):
        fits = wanted is None or (isinstance(wanted, Mapping) and set(wanted) <= set(value))
        _check(fits, path, "a dict with its keys")
        for key, each in value.items():
            yield from dims_of(each, None if wanted is None else wanted.get(key), f"{path}[{key!r}]", tensor)
        return
    if isinstance(value, (list, tuple)):
        fits = wanted is None or (isinstance(wanted, (list, tuple)) and len(wanted) == len(value))
        _check(fits, path, f"a sequence of {len(value)}")
        for position, each in enumerate(value):
            yield from dims_of(each, None if wanted is None else wanted[position], f"{path}[{position}]", tensor)
        return
    if wanted is None or type(value) not in (int, float):
        _check(wanted is None, path, "None, since it is no tensor and no number")
        yield {}
        return
    dim = _dim(wanted, path)
    yield {} if dim is None else {ITSELF: dim}


def _check(fits: bool, path: str, what: str) -> None:
    if not fits:
        raise ValueError(f"dynamic_shapes: what belongs to {path} has to be {what}")


def _of_tensor(value: Any, wanted: Any, path: str) -> Dims:
    if wanted is None:
        return {}
    if isinstance(wanted, (list, tuple)):
        _check(len(wanted) == value.dim(), path, f"a sequence of {value.dim()}, or a dict of dimensions")
        wanted = dict(enumerate(wanted))
    _check(isinstance(wanted, Mapping), path, "a dict of dimensions, a sequence, or None")
    found = {}
    for position, each in wanted.items():
        fits = isinstance(position, int) and -value.dim() <= position < value.dim()
        _check(fits, path, f"a dict of dimensions from 0 to {value.dim() - 1}")
        dim = _dim(each, f"{path}.shape[{position}]")
        if dim is not None:
            _check_example(dim, value.shape[position], f"dimension {position} of {path}")
            found[position % value.dim()] = dim
    return found


def _check_example(dim: Dim, size: int, path: str) -> None:
    if size < 2 and not dim.hinted:
        raise ValueError(f"dynamic_shapes: {path} is {size} in the example, and code for 0 and 1 is for these alone: "
                         "give an example of 2 or more")
    if size < dim.low or (dim.high is not None and size > dim.high):
        raise ValueError(f"dynamic_shapes: {path} is {size} in the example, outside of the bounds of {dim.name}")


def _dim(given: Any, path: str) -> Dim | None:
    """A dimension as torch.export writes it: None, an int, `Dim(...)`, a hint, or a name."""
    if given is None or type(given) is int:
        return None
    if isinstance(given, str):
        return Dim(given)
    kind = getattr(getattr(given, "type", None), "name", "")  # torch.export.Dim.AUTO, STATIC, DYNAMIC
    if kind:
        bounds = getattr(given, "min", None) or 0, getattr(given, "max", None)
        return None if kind == "STATIC" else Dim(path, *bounds, hinted=kind == "AUTO")
    name, low, high = getattr(given, "__name__", ""), getattr(given, "min", None), getattr(given, "max", None)
    _check(bool(name), path, "a torch.export.Dim, a name, an int or None")
    if getattr(given, "root", None) is not None:
        raise ValueError(f"dynamic_shapes: {path} is derived from another Dim ({given}): give it a Dim of its own, and "
                         "the relation becomes a condition of the package")
    return Dim(name, 0 if low is None else int(low), None if high is None or high >= HIGHEST else int(high))


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, on memory of its own: arguments that are the same tensor in the example need not be
    in a call. One whose elements share memory (`expand`) becomes contiguous."""
    source = tensor.detach()
    made = torch.empty_strided(source.shape, source.stride(), dtype=source.dtype, device=source.device)
    if repeats(source):
        return source.clone(memory_format=torch.contiguous_format)
    return made.copy_(source)


def marked(tensor: torch.Tensor, dims: Dims) -> torch.Tensor:
    """A copy of a tensor whose dimensions `dims` are compiled for any size."""
    made = copied(tensor)
    strict = {d for d, dim in dims.items() if not dim.hinted}
    made._dynamo_dynamic_indices = strict  # type: ignore[attr-defined]
    made._dynamo_weak_dynamic_indices = set(dims) - strict  # type: ignore[attr-defined]
    return made


@dataclass
class Sizes:
    """The sizes of the tensors that a graph reads, in symbols, and its numbers that vary. `leaves` are (leaf, its fake
    tensor or symbolic number), `dims` what was asked for each leaf."""

    env: Any
    leaves: Sequence[tuple[int, Any]]
    dims: Sequence[Dims]
    symbols: dict[sympy.Symbol, Symbol] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for leaf, fake in self.leaves:
            for dim, size in enumerate(fake.shape) if isinstance(fake, torch.Tensor) else [(ITSELF, fake)]:
                symbol = self._expression(size)
                if isinstance(symbol, sympy.Symbol):
                    self._note(symbol, leaf, dim)

    def _note(self, symbol: sympy.Symbol, leaf: int, dim: int) -> None:
        asked = self.dims[leaf].get(dim, Dim(str(symbol)))
        known = self.symbols.get(symbol)
        if known is not None and known.title != asked.name and dim in self.dims[leaf] and not asked.hinted:
            raise ValueError(
                f"dynamic_shapes: {known.title} and {asked.name} have the same size in the example, so that they were "
                "taken for one: give example arguments of different sizes")
        for other in self.symbols.values():
            if other.title == asked.name and other.name != str(symbol) and dim in self.dims[leaf]:
                raise ValueError(f"dynamic_shapes: {asked.name} has two sizes in the example: give the two dimensions "
                                 "other names, or example arguments of one size")
        bounds = self.env.var_to_range.get(symbol)
        if dim == ITSELF:
            self.symbols[symbol] = Symbol(str(symbol), leaf, dim, asked.name, *_bounds_of_number(bounds, asked))
            return
        low = max(asked.low, int(bounds.lower) if bounds is not None else 0, (known.low or 0) if known else 0)
        upper = [int(bounds.upper)] if bounds is not None and bounds.upper < HIGHEST else []
        highs = [high for high in (*upper, asked.high, known.high if known else None) if high is not None]
        place = (known.leaf, known.dim, known.title) if known is not None else (leaf, dim, asked.name)
        self.symbols[symbol] = Symbol(str(symbol), *place, low, min(highs) if highs else None)

    def _expression(self, size: Any) -> Any:
        return self.env.simplify(size.node.expr) if isinstance(size, (torch.SymInt, torch.SymFloat)) else size

    def varies(self, leaf: int) -> bool:
        """Whether a number is a symbol still: conditions may have fixed it."""
        return any(symbol.leaf == leaf and symbol.dim == ITSELF for symbol in self.symbols.values())

    def number(self, size: Any) -> Number:
        """A size or stride as a number, or a Python expression in symbols."""
        return _text(self._expression(size))

    def conditions(self) -> tuple[str, ...]:
        """What compiling assumed of the sizes, besides their bounds."""
        if self.env is None:
            return ()
        found = (self.env.simplify(guard.expr) for guard in self.env.guards)
        kept = (each for each in found if each is not sympy.true and not self._within(each))
        return tuple(dict.fromkeys(str(_text(each)) for each in kept))

    def _within(self, condition: Any) -> bool:
        """Whether the lower bound of a symbol says it already."""
        if not isinstance(condition, (sympy.Ge, sympy.Gt)) or len(condition.free_symbols) != 1:
            return False
        (symbol,) = condition.free_symbols
        above = condition.lhs - condition.rhs
        rising = above.is_polynomial(symbol) and sympy.degree(above, symbol) == 1 and above.coeff(symbol) > 0
        low = self.symbols[symbol].low if symbol in self.symbols else None
        return low is not None and rising and bool(condition.subs(symbol, low))


def _bounds_of_number(bounds: Any, asked: Dim) -> tuple[int | None, int | None]:
    """The lowest and the highest value of a number, None where it has none."""
    lows, highs = [asked.low] if asked.low else [], [] if asked.high is None else [asked.high]
    if bounds is not None and bounds.lower > -HIGHEST:
        lows.append(int(bounds.lower))
    if bounds is not None and bounds.upper < HIGHEST:
        highs.append(int(bounds.upper))
    return max(lows, default=None), min(highs, default=None)


def _text(expression: Any) -> Number:
    if isinstance(expression, int) or expression.is_Integer:
        return int(expression)
    from torch.utils._sympy.printers import PythonPrinter

    text: str = PythonPrinter().doprint(expression)
    return text
