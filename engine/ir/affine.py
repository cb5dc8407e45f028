"""Index expressions during lowering: linear forms over axes, with the simplifications that views need.

The loop IR stores SymPy, but building and simplifying a SymPy expression costs tens of microseconds, and a view of a
view of a view needs many. A `Linear` is a sum of `coefficient * atom` plus a constant; an atom is an axis, an indirect
value, or the quotient or remainder of a linear form. Every atom has bounds, so `(1024*i + r) // 1024` with 0 <= r <
1024 simplifies to `i` at once. Sizes are Python ints, or SymPy expressions over size symbols where dynamic.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cmp_to_key, lru_cache
from math import gcd
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from ...operators.overlap import overlapping

Size = Any  # int | sympy.Expr: a size, a stride or a coefficient


@cache
def axis_symbol(name: str) -> sympy.Symbol:
    """The index symbol of that name: integer and non-negative, equal in every body."""
    return sympy.Symbol(name, integer=True, nonnegative=True)


@lru_cache(maxsize=4096)
def _expanded(expr: sympy.Expr) -> Size:
    full = sympy.expand(expr)
    return int(full) if full.is_Integer else full


def size(value: Any) -> Size:
    """`value` as an int where it is one, else as an expanded SymPy expression."""
    if type(value) is int:
        return value
    if isinstance(value, sympy.Expr):
        return _expanded(value)
    node = getattr(value, "node", None)  # torch.SymInt
    return size(node.expr) if node is not None else int(value)


@lru_cache(maxsize=65536)
def _integer(value: int) -> sympy.Integer:
    return sympy.Integer(value)


def expr(value: Size) -> sympy.Expr:
    """`value` as a SymPy expression, which is what the IR stores."""
    return _integer(value) if type(value) is int else value


def product(sizes: Iterable[Size]) -> Size:
    """The product of `sizes`, 1 of none."""
    total: Size = 1
    for s in sizes:
        total = total * s
    return size(total)


def sizes(numbers: Sequence[Any]) -> tuple[Size, ...]:
    """Sizes or strides of a fake tensor as ints and expressions; a symbol that a guard fixes to 0 or 1 is that
    number."""
    return tuple([n if type(n) is int else _small(n) for n in numbers])


def _small(number: torch.SymInt) -> Size:
    """ShapeEnv puts a number in the place of a symbol that is guarded to have it, but not of a quotient or a minimum:
    a dimension of that size, which was broadcast, must not be walked along."""
    hint = number.node.hint
    for known in (0, 1):
        if hint in (None, known) and statically_known_true(number == known):
            return known
    return size(number)


def contiguous_strides(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Row-major strides; a dimension of size 0 counts as 1, as in torch."""
    strides: list[Size] = []
    running: Size = 1
    for s in reversed(sizes):
        strides.append(running)
        running = running if type(s) is int and s <= 1 else size(running * s)
    return tuple(reversed(strides))


def stored_strides(sizes: Sequence[Size], strides: Sequence[Size]) -> tuple[Size, ...]:
    """`strides` for new memory: row-major ones instead where elements would overlap."""
    return contiguous_strides(sizes) if overlapping(sizes, strides) else tuple(strides)


def less(a: Size, b: Size) -> bool:
    """True when `a < b` surely (False when unknown)."""
    if type(a) is int and type(b) is int:
        return a < b
    return bool(size(b - a).is_positive) if type(size(b - a)) is not int else size(b - a) > 0


def exact_quotient(a: Size, b: Size) -> Size | None:
    """`a / b` when it is an integer (for symbols: a polynomial with integer coefficients), else None."""
    if type(a) is int and type(b) is int:
        return a // b if a % b == 0 else None
    if a == b:
        return 1
    if type(a) is int:
        return 0 if a == 0 else None
    quotient = a / b
    if quotient.is_Add:  # never made by division of a product; a sum divides term by term
        return None
    if a.is_Add:
        parts = [exact_quotient(size(part), b) for part in a.args]
        return None if any(p is None for p in parts) else size(sum(parts))
    if quotient.is_Integer:
        return int(quotient)
    _, denominator = quotient.as_numer_denom()
    return size(quotient) if denominator == 1 else None


class Atom:
    """What a linear form is linear in. `kind` is axis | indirect | div | mod; bounds are inclusive, None unknown."""

    __slots__ = ("_hash", "divisor", "high", "inner", "key", "kind", "low", "name")

    def __init__(self, kind: str, name: str, inner: Linear | None, divisor: Size, low: Size, high: Size | None) -> None:
        self.kind, self.name, self.inner, self.divisor, self.low, self.high = kind, name, inner, divisor, low, high
        self.key = (kind, name, high) if inner is None else (kind, inner.key, divisor)
        self._hash = hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.key == other.key)

    @property
    def expr(self) -> sympy.Expr:
        """The atom in SymPy."""
        if self.inner is None:
            return axis_symbol(self.name)
        function = FloorDiv if self.kind == "div" else Mod if self.inner.nonnegative else PythonMod
        return function(self.inner.expr, expr(self.divisor), evaluate=False)


class Linear:
    """An immutable integer expression: the sum of `coefficient * atom` over `terms`, plus `const`."""

    __slots__ = ("_hash", "_key", "const", "terms")

    def __init__(self, terms: dict[Atom, Size], const: Size = 0) -> None:
        self.terms, self.const = terms, const
        self._key: tuple[Any, ...] | None = None
        self._hash: int | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What equality and hashing look at."""
        if self._key is None:
            self._key = (frozenset(self.terms.items()), self.const)
        return self._key

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.key)
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Linear) and self.key == other.key)

    def __repr__(self) -> str:
        return str(self.expr)

    def __add__(self, other: Linear | Size) -> Linear:
        if not isinstance(other, Linear):
            return Linear(self.terms, size(self.const + other)) if other != 0 else self
        if not self.terms:
            return other + self.const
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = size(terms.get(atom, 0) + coefficient)
            if total == 0:
                del terms[atom]
            else:
                terms[atom] = total
        return Linear(terms, size(self.const + other.const))

    def __mul__(self, factor: Size) -> Linear:
        if type(factor) is int:
            if factor == 1:
                return self
            if factor == 0:
                return ZERO
        return Linear({a: size(c * factor) for a, c in self.terms.items()}, size(self.const * factor))

    def __sub__(self, other: Linear | Size) -> Linear:
        return self + other * -1

    def __floordiv__(self, divisor: Size) -> Linear:
        return _divide(self, size(divisor))

    def __mod__(self, divisor: Size) -> Linear:
        return _remainder(self, size(divisor))

    @property
    def bounds(self) -> tuple[Size | None, Size | None]:
        """Inclusive lower and upper bound; None where unknown."""
        return _bounds(self)

    @property
    def nonnegative(self) -> bool:
        """True when the value is surely at least 0."""
        low = self.bounds[0]
        return low is not None and less(-1, low)

    @property
    def expr(self) -> sympy.Expr:
        """The form in SymPy, with quotients and remainders of one form put together where they cancel."""
        return _to_sympy(self)


ZERO = Linear({}, 0)


def constant(value: Size) -> Linear:
    """A form without atoms."""
    return Linear({}, size(value)) if value != 0 else ZERO


@lru_cache(maxsize=4096)
def axis(name: str, extent: Size) -> Linear:
    """The axis `name`, which runs from 0 to extent - 1; the constant 0 for an extent of 1."""
    if extent == 1:
        return ZERO
    return Linear({Atom("axis", name, None, 0, 0, size(extent - 1)): 1}, 0)


def indirect(name: str, bound: Size) -> Linear:
    """The value of the indirect statement `name`, which lies in [0, bound)."""
    return Linear({Atom("indirect", name, None, 0, 0, size(bound - 1)): 1}, 0)


@lru_cache(maxsize=16384)
def _bounds(form: Linear) -> tuple[Size | None, Size | None]:
    low: Size | None = form.const
    high: Size | None = form.const
    for atom, c in form.terms.items():
        at_low, at_high = atom.low, atom.high
        if (c < 0) if type(c) is int else not c.is_nonnegative:
            if type(c) is not int and not c.is_nonpositive:
                return None, None
            at_low, at_high = at_high, at_low
        low = None if low is None or at_low is None else low + c * at_low
        high = None if high is None or at_high is None else high + c * at_high
    return None if low is None else size(low), None if high is None else size(high)


def _within(form: Linear, extent: Size) -> bool:
    """True when 0 <= form < extent surely."""
    low, high = form.bounds
    return low is not None and high is not None and less(-1, low) and less(high, extent)


def _split(form: Linear, divisor: Size) -> tuple[Linear, Linear]:
    """(q, r) with form == divisor*q + r, where r keeps the terms that the divisor does not divide."""
    quotient: dict[Atom, Size] = {}
    rest: dict[Atom, Size] = {}
    for atom, c in form.terms.items():
        q = exact_quotient(c, divisor)
        if q is None:
            rest[atom] = c
        else:
            quotient[atom] = q
    if type(form.const) is int and type(divisor) is int:
        return Linear(quotient, form.const // divisor), Linear(rest, form.const % divisor)
    q = exact_quotient(form.const, divisor)
    return (Linear(quotient, 0), Linear(rest, form.const)) if q is None else (Linear(quotient, q), Linear(rest, 0))


def _coarsen(form: Linear, divisor: Size) -> tuple[int, Linear, Linear] | None:
    """(g, big, small) with form == g*big + small, 0 <= small < g and g > 1 dividing `divisor`, or None."""
    if type(divisor) is not int or type(form.const) is not int or not all(type(c) is int for c in form.terms.values()):
        return None
    for candidate in sorted({abs(c) for c in form.terms.values()}, reverse=True):
        g = gcd(candidate, divisor)
        if g > 1:
            big, small = _split(form, g)
            if _within(small, g):
                return g, big, small
    return None


@lru_cache(maxsize=16384)
def _divide(form: Linear, divisor: Size) -> Linear:
    if divisor == 1:
        return form
    quotient, rest = _split(form, divisor)
    if _within(rest, divisor):
        return quotient
    coarse = _coarsen(rest, divisor)
    if coarse is not None:
        return quotient + coarse[1] // (divisor // coarse[0])
    if len(rest.terms) == 1 and rest.const == 0:
        (atom, c), = rest.terms.items()
        if c == 1 and atom.kind == "div":
            assert atom.inner is not None
            return quotient + atom.inner // size(atom.divisor * divisor)
    low, high = rest.bounds
    ints = type(divisor) is int
    low = low // divisor if ints and type(low) is int else 0 if rest.nonnegative else None
    high = high // divisor if ints and type(high) is int else high
    return quotient + Linear({Atom("div", "", rest, divisor, low, high): 1}, 0)


@lru_cache(maxsize=16384)
def _remainder(form: Linear, divisor: Size) -> Linear:
    if divisor == 1:
        return ZERO
    _, rest = _split(form, divisor)
    if _within(rest, divisor):
        return rest
    coarse = _coarsen(rest, divisor)
    if coarse is not None:
        g, big, small = coarse
        return (big % (divisor // g)) * g + small
    if len(rest.terms) == 1 and rest.const == 0:
        (atom, c), = rest.terms.items()
        if c == 1 and atom.kind == "mod" and exact_quotient(atom.divisor, divisor) is not None:
            assert atom.inner is not None
            return atom.inner % divisor
    return Linear({Atom("mod", "", rest, divisor, 0, size(divisor - 1)): 1}, 0)


@lru_cache(maxsize=16384)
def recombine(form: Linear) -> Linear:
    """Put `d*(x // d) + x % d` back together to `x`."""
    for atom, c in form.terms.items():
        if atom.kind != "mod":
            continue
        assert atom.inner is not None
        whole = atom.inner // atom.divisor
        if len(whole.terms) == 1 and whole.const == 0:
            (partner, k), = whole.terms.items()
            if k == 1 and form.terms.get(partner) == size(c * atom.divisor):
                terms = {a: v for a, v in form.terms.items() if a is not atom and a != partner}
                return recombine(Linear(terms, form.const) + atom.inner * c)
    return form


_IN_SYMPYS_ORDER = cmp_to_key(sympy.Basic.compare)


@lru_cache(maxsize=65536)
def _to_sympy(form: Linear) -> sympy.Expr:
    form = recombine(form)
    parts = [atom.expr if type(c) is int and c == 1 else expr(c) * atom.expr for atom, c in form.terms.items()]
    if type(form.const) is not int or any(part.is_Add for part in parts):
        return sympy.Add(*parts, expr(form.const))
    # The same as Add(*parts, const), whose first call in a process imports a third of SymPy (0.2 s).
    parts.sort(key=_IN_SYMPYS_ORDER)
    if form.const != 0 or not parts:
        parts.insert(0, expr(form.const))
    return parts[0] if len(parts) == 1 else sympy.Add._from_args(parts)


# What follows does without Add, too, where it can.
def without(index: sympy.Expr, symbol: sympy.Symbol) -> sympy.Expr:
    """`index - symbol`, expanded."""
    terms = sympy.Add.make_args(index)
    others = [term for term in terms if term != symbol]
    if len(others) == len(terms):
        return sympy.expand(index - symbol)
    return sympy.expand(sympy.Add._from_args(others))


def renamed(index: sympy.Expr, names: Mapping[sympy.Symbol, sympy.Symbol]) -> sympy.Expr:
    """The index in terms of other symbols, which are not in it yet."""
    if not index.is_Add:
        return index.xreplace(names)
    terms = [term.xreplace(names) for term in index.args]
    return sympy.Add._from_args(sorted(terms, key=lambda term: (not term.is_Number, _IN_SYMPYS_ORDER(term))))


def shifted(index: sympy.Expr, distance: int) -> sympy.Expr:
    """The index plus a number."""
    terms = sympy.Add.make_args(index)
    others = [term for term in terms if not term.is_Integer]
    total = distance + sum(int(term) for term in terms if term.is_Integer)
    return sympy.Add._from_args([*[_integer(total)] * (total != 0), *others])
