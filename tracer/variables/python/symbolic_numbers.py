"""Numbers that vary with the shapes: torch.SymInt, SymFloat and SymBool of the shape environment.

Arithmetic stays symbolic; a comparison is evaluated by the ShapeEnv, which records the condition as a guard, and gives
a constant.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
import torch.fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.computed import ComputedSource, ConstantSource
from ...sources.display_names import display_name, expression_of
from ...sources.source import Source
from ..core.base import Value
from ..core.constant import attribute_of_builtin, constant, fold, of_64_bits
from ..core.late import late
from ..core.operators import IN_PLACE, apply
from ..core.registry import RESULTS

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

_TYPES = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}

_MATH = {math.sqrt: torch.sym_sqrt, math.floor: math.floor, math.ceil: math.ceil, math.trunc: math.trunc}


class NumberValue(Value):
    """An int, float or bool of unknown value. `make_node` makes its node when the graph first needs it; it uses the
    nodes of `operands`, from which `function` computes the number."""

    __slots__ = ("_make_node", "_node", "_operands", "function", "symbol")

    is_random = False
    """Whether it comes from Python's random, so that there is no value of this call to branch on."""

    def __init__(
        self, symbol: Any, node: torch.fx.Node | None = None, make_node: Callable[[], torch.fx.Node] | None = None,
        source: Source | None = None, operands: Sequence[Value] = (), function: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(source)
        self.symbol = symbol
        self._node = node
        self._make_node = make_node
        self._operands = operands
        self.function = function

    @property
    def node(self) -> torch.fx.Node:
        """The node of the graph that computes the number. Operands come first, without recursion: a counter may be the
        last of a thousand sums."""
        pending = [self]
        while self._node is None:
            number = pending[-1]
            unmade = [o for o in number._operands if isinstance(o, NumberValue) and o._is_unmade()]
            if number._node is None and not unmade:
                assert number._make_node is not None
                number._node = number._make_node()
            if unmade:
                pending += unmade
            else:
                pending.pop()
        return self._node

    def _is_unmade(self) -> bool:
        return self._node is None and _known(self.symbol) is None

    def python_type(self) -> type:
        """int, float or bool."""
        return _TYPES[type(self.symbol)]

    def is_constant(self) -> bool:
        """Once the guards leave a single value."""
        return _known(self.symbol) is not None

    def is_backed(self) -> bool:
        """Whether it has a hint, its value at this call: it depends on no data and no random number."""
        return not self.is_random and not free_unbacked_symbols(self.symbol)

    def as_constant(self) -> Any:
        """The single value that the guards leave."""
        value = _known(self.symbol)
        if value is None:
            raise Unsupported(Reason.NOT_A_CONSTANT, self)
        return value

    def specialize(self, tx: Translator) -> int | float | bool:
        """The number at this call, guarded."""
        kind = self.python_type()
        try:
            return kind(self.symbol)
        except Exception as error:
            raise Unsupported(_reason(self.symbol, Reason.DATA_DEPENDENT_VALUE), self) from error

    def as_proxy(self) -> Any:
        """Its node, or the number once it is known."""
        value = _known(self.symbol)
        return of_64_bits(value) if value is not None else self.node

    def truth(self, tx: Translator) -> bool:
        """bool(number), guarded."""
        try:
            return bool(self.symbol)
        except Exception as error:
            of_item = self._node is not None and self._node.target == "item" and self.python_type() is bool
            read = {"read_at": self._node.meta["step"]} if of_item and self._node is not None else {}
            reason = Reason.BRANCH_ON_SIZE if self._is_size() else Reason.DATA_DEPENDENT_BRANCH
            raise Unsupported(_reason(self.symbol, reason), self, **read) from error

    def key(self) -> Any:
        """As a key of a dict the number is specialised."""
        return self.specialize(None)  # type: ignore[arg-type]

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Arithmetic makes a node; a comparison is decided and guarded."""
        for side in (left, right):
            if isinstance(side, NumberValue) and side.symbol is None:  # a float that is an input decides itself
                return side.binary(tx, function, left, right)
            if not isinstance(side, NumberValue) and not is_number(side):
                differs = side.is_constant() and function in (operator.eq, operator.ne)
                return constant(function is operator.ne) if differs else None
        tx.trace.spend(10)
        a, b = (side.symbol if isinstance(side, NumberValue) else side.as_constant() for side in (left, right))
        if torch.SymBool not in (type(a), type(b)):  # torch's formulas cannot compare a number with True
            a, b = (int(side) if type(side) is bool else side for side in (a, b))
        function = IN_PLACE.get(function, function)  # numbers have no in-place operators, and FX would print `2 += s0`
        if function in _COMPARISONS and (_is_read_float(a) or _is_read_float(b)):
            raise Unsupported(Reason.DATA_DEPENDENT_BRANCH, self)
        if function in _DIVISIONS and len(_symbols(a) | _symbols(b)) > MOST_DIVIDED:
            a, b = (_fixed(tx, side) if type(side) in _TYPES else side for side in (a, b))
        if function is operator.pow and type(b) is torch.SymInt and tx.graph.shapes.may_fix([*_symbols(b)]):
            if type(a) in (float, torch.SymFloat):  # 0.9**step
                return late.compute_from_ints(tx, function, [left, right])
            b = _fixed(tx, b)  # torch's formulas have no such power of a negative number, nor do kernels
        _check_divisor(tx, function, b)
        if _is_error(function, a, b):
            known = [constant(s.specialize(tx)) if isinstance(s, NumberValue) else s for s in (left, right)]
            return fold(tx, function, known)
        try:
            result = function(a, b)
        except Exception:  # no symbolic rule, or Python raises too: specialize
            sides = (left, right)
            known = [constant(s.specialize(tx)) if isinstance(s, NumberValue) else s for s in sides]
            return fold(tx, function, known)
        if _is_reassociated(result, a, b):
            raise Unsupported(Reason.DATA_DEPENDENT_VALUE, self, detail="in arithmetic")
        return self.computed(tx, function, [left, right], result)

    def computed(self, tx: Translator, function: Callable[..., Any], args: Sequence[Value], result: Any) -> Value:
        """The number `result`, which `function` computes from `args` when the graph needs it."""
        if isinstance(result, torch.SymBool) and not free_unbacked_symbols(result):
            return constant(NumberValue(result).truth(tx))
        value = _known(result) if type(result) in _TYPES else result
        if value is None and _is_too_large(result.node.expr):
            value = _fixed(tx, result)
        if value is not None:
            return constant(value)
        graph = tx.graph
        locations, module = tx.stack_locations(), tx.trace.module_path

        def make() -> torch.fx.Node:
            node = graph.make_number(function, tuple(arg.as_proxy() for arg in args))
            node.meta.update(val=result, stack=locations, module=module)
            return node

        return NumberValue(result, make_node=make, operands=args, function=function)

    def converted(self, tx: Translator, kind: type) -> Value:
        """int(number) or float(number)."""
        if self.python_type() is bool:
            return constant(kind(self.specialize(tx)))
        if kind is int and issubclass(self.python_type(), int):
            return self
        function = torch.sym_int if kind is int else torch.sym_float
        return self.computed(tx, function, [self], function(self.symbol))

    def rounded(self, tx: Translator, digits: Value | None) -> Value:
        """round(number[, digits])."""
        return fold(tx, round, [constant(self.specialize(tx)), *([] if digits is None else [digits])])

    def unary(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """Negation and the like."""
        if function is operator.index:
            return self
        if function is operator.invert and self.python_type() is int:
            return apply(tx, operator.sub, constant(-1), self)
        if function not in _UNARY:
            return fold(tx, function, [constant(self.specialize(tx))])
        return self.computed(tx, function, [self], function(self.symbol))

    def math(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """math.sqrt, floor, ceil of the number. Other functions of `math` are computed in Python before the graph runs,
        where the number is made from the user's own numbers; else they specialize it."""
        known = _MATH.get(function)
        if known is None:
            return late.compute_from_ints(tx, function, [self])
        if function is math.sqrt and self.is_backed() and bool(self.symbol < 0):
            return fold(tx, function, [constant(self.specialize(tx))])
        return self.computed(tx, known, [self], known(self.symbol))

    def getattr(self, tx: Translator, name: str) -> Value:
        """Attributes of numbers."""
        if name in ("real", "numerator"):
            return self
        if name in ("imag", "denominator"):
            return constant(int(name == "denominator"))
        found = attribute_of_builtin(tx, self, self.python_type(), name)
        if found is not None:
            return found
        return tx.raise_observed(AttributeError, f"'{self.python_type().__name__}' object has no attribute '{name}'")

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Methods specialize the number, except conversions."""
        if name in ("__index__", "__int__", "__trunc__", "conjugate") and not args:
            return self
        return constant(self.specialize(tx)).call_method(tx, name, args, kwargs)

    def reconstruct(self, codegen: Codegen) -> None:
        """The result of the graph."""
        value = _known(self.symbol)
        codegen.const(value) if value is not None else codegen.load_node(self.node)

    def _is_size(self) -> bool:
        """Whether unbacked sizes alone decide it."""
        told = free_unbacked_symbols(self.symbol)
        return bool(told) and told <= self.symbol.node.shape_env.size_like

    def describe(self) -> str:
        """Where user code reads it, or the expression that computes it, else the expression over symbols."""
        if self.source is not None:
            return f"the number `{display_name(self.source)}`"
        stack = self._node.meta.get("stack") if self._node is not None else None
        return f"the number `{(expression_of(stack[-1]) if stack else '') or self.symbol}`"


_UNARY = (operator.neg, operator.pos, operator.abs, abs)


MOST_TERMS, MOST_NESTED = 500, 50
"""Limit for a formula over symbols. sympy's time grows faster than the formula, and Python's stack with its depth."""


MOST_DIVIDED = 16
"""Limit of symbols in a division. sympy looks for common factors of polynomials, which takes seconds for 64 symbols."""

_DIVISIONS = (operator.mod, operator.floordiv)


def _reason(symbol: Any, of_data: Reason) -> Reason:
    """Of the break where a number that only data or Python's random tells would have to be known."""
    random = getattr(symbol.node.shape_env, "random_symbols", ())
    return of_data if symbol.node.expr.free_symbols.isdisjoint(random) else Reason.RANDOM_VALUE


def _check_divisor(tx: Translator, function: Callable[..., Any], divisor: Any) -> None:
    """A data-dependent divisor is checked by the graph. Raises Unsupported where that is impossible."""
    if function in (*_DIVISIONS, operator.truediv) and type(divisor) in _TYPES and free_unbacked_symbols(divisor):
        nonzero = sympy.Ne(divisor.node.expr, 0)
        why = Unsupported(_reason(divisor, Reason.DATA_DEPENDENT_VALUE), function)
        late.check_at_run_time(tx, [nonzero], why)


def _is_error(function: Callable[..., Any], a: Any, b: Any) -> bool:
    """Whether Python raises for these numbers, guarded: the graph would raise later than user code does, and not at all
    where nothing needs the result. Unknown for data-dependent numbers."""
    if any(type(number) in _TYPES and free_unbacked_symbols(number) for number in (a, b)):
        return False
    if function in (*_DIVISIONS, operator.truediv):
        return bool(b == 0)
    if function in (operator.lshift, operator.rshift):
        return bool(b < 0)
    return function is operator.pow and bool(b < 0) and bool(a == 0)


def _symbols(number: Any) -> set[sympy.Basic]:
    return number.node.expr.free_symbols if type(number) in _TYPES else set()


def _is_too_large(formula: sympy.Basic) -> bool:
    pending, terms = [(formula, 0)], 0
    while pending:
        part, depth = pending.pop()
        terms += 1
        if terms > MOST_TERMS or depth > MOST_NESTED:
            return True
        pending += [(argument, depth + 1) for argument in part.args]
    return False


def _fixed(tx: Translator, number: Any) -> int | float | bool:
    """The number at this call; each symbol of its formula is specialized, so that the formulas that follow are
    short."""
    symbols = sorted(number.node.expr.free_symbols, key=str)
    if not tx.graph.shapes.may_fix(symbols):
        size = f"more than {MOST_TERMS} terms, {MOST_NESTED} levels or, in a division, {MOST_DIVIDED} symbols"
        raise Unsupported(Reason.TRACE_LIMIT, detail=f"a number with a formula of {size}")
    for symbol in symbols:
        number.node.shape_env.evaluate_expr(symbol)
    return NumberValue(number).specialize(tx)


_COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)


def _is_read_float(number: Any) -> bool:
    """Whether the graph reads this float from a tensor. It may be NaN, which sympy does not model: it takes `a == a`
    for true, and torch even `a < a`."""
    return isinstance(number, torch.SymFloat) and bool(free_unbacked_symbols(number))


def _is_reassociated(result: Any, *operands: Any) -> bool:
    """Whether sympy may have reordered float arithmetic on a number that the graph reads, which then rounds differently
    from Python, or dropped an operand: `a - a` is not 0 for infinity, nor `a + 0` a for -0."""
    read = [operand for operand in operands if _is_read_float(operand)]
    if not read:
        return False
    if not isinstance(result, torch.SymFloat):
        return True
    expressions = [operand.node.expr for operand in operands if isinstance(operand, torch.SymFloat)]
    if any(isinstance(expression, (sympy.Add, sympy.Mul, sympy.Pow)) for expression in expressions):
        return True
    left_out = any(not free_unbacked_symbols(operand) <= free_unbacked_symbols(result) for operand in read)
    return left_out or result.node.expr in expressions


def _known(symbol: Any) -> Any:
    """The number, when the guards leave a single value."""
    expression = symbol.node.expr
    if expression.is_number:
        return symbol.node.pytype(expression)
    if getattr(expression, "is_Boolean", False) and not expression.free_symbols:
        return bool(expression)
    env = symbol.node.shape_env
    replaced = env.replace(expression) if env is not None and not isinstance(symbol, torch.SymBool) else expression
    return symbol.node.pytype(replaced) if getattr(replaced, "is_number", False) else None


def is_number(value: Value) -> bool:
    """Whether a value is a known int or float. Raises Unsupported for complex numbers, and for NumPy's."""
    if not value.is_constant():
        return False
    known = value.as_constant()
    if isinstance(known, complex) or hasattr(type(known), "__array__"):  # NumPy's scalars make NumPy's scalars
        raise Unsupported(Reason.OPERATOR, detail=f"arithmetic to {value.describe()} and a number that is not known")
    return isinstance(known, (int, float))


def origin(tx: Translator, value: Value) -> Source | None:
    """The source of a number before the graph runs, or what it is computed from there; None where only the graph knows
    it, or it is a float that varies or a random one."""
    if value.is_constant():
        known = value.as_constant()
        return ConstantSource(repr(known), known) if type(known) in (int, float) else None
    if not isinstance(value, NumberValue) or value.symbol is None or free_unbacked_symbols(value.symbol):
        return None
    if value.source is not None or value.function is None:
        return value.source or tx.graph.shapes.place_of(value.symbol.node.expr)
    parts = [origin(tx, operand) for operand in value._operands]
    return None if None in parts else ComputedSource(value.function, tuple(p for p in parts if p is not None))


def size_value(
    tx: Translator, size: Any, owner: Value, function: Callable[..., Any], dimension: int | None = None
) -> Value:
    """One size or stride of a fake tensor: a constant, or a number whose node is `function(owner[, dimension])`."""
    if not isinstance(size, torch.SymInt):
        return constant(size)
    if size.node.is_nested_int():
        ragged: Value = late.ragged_size(tx, size, owner, function, dimension)
        return ragged
    known = _known(size)
    if known is not None:
        return constant(known)
    locations, module = tx.stack_locations(), tx.trace.module_path

    def make() -> torch.fx.Node:
        args = (owner.as_proxy(),) if dimension is None else (owner.as_proxy(), dimension)
        node = tx.graph.make_number(function, args)
        node.meta.update(val=size, stack=locations, module=module)
        return node

    return NumberValue(size, make_node=make)


def symbolic_int(tx: Translator, obj: int, source: Source) -> Value | None:
    """The int at `source` as an input of the graph, when the policy makes it dynamic."""
    number = tx.graph.shapes.symbolic_int(obj, source)
    if not isinstance(number, torch.SymInt):
        return None
    tx.guards.add(source, "TYPE_MATCH", int)
    return NumberValue(number, node=tx.graph.add_placeholder(source, number), source=source)


late.symbolic_int = symbolic_int


def _wrap_number(tx: Translator, node: torch.fx.Node, fake: Any) -> Value:
    known = _known(fake)
    return constant(known) if known is not None else NumberValue(fake, node=node)


RESULTS.append((lambda fake: type(fake) in _TYPES, _wrap_number))
