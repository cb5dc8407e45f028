"""Emits statements of the loop IR as lines of a Triton kernel.

`Emitter` turns statements into values on demand, each once for each scope: at the level of the outer axes, or inside
the loop that is being written. A load of what this kernel itself computed is the value in its register; if that was
computed in an earlier loop, the value is recomputed (internal buffers) or loaded back after a barrier (others).
"""
from __future__ import annotations

from collections.abc import Iterable

import sympy
import torch

from ....artifacts.records import Ref, ref
from ...ir.ir import Statement
from ...unsupported import TritonUnsupported
from .dims import Dims
from .dtypes import literal, value_type
from .form import Form, Space, TileBody
from .index import index_text
from .ops import TAKES_LITERALS, cast, expression
from .source import SourceWriter
from .values import Namer, Value


class Scope:
    """Where lines go, and which values are available there. A scope inside a loop sees its parent's values."""

    def __init__(self, writer: SourceWriter, parent: Scope | None = None) -> None:
        self.writer = writer
        self.parent = parent
        self.statements: dict[tuple[int, str], Value] = {}
        self.texts: dict[str, Value] = {}

    def known_text(self, text: str) -> Value | None:
        """The value that was computed by the same text, here or in an enclosing scope."""
        found = self.texts.get(text)
        return found if found is not None or self.parent is None else self.parent.known_text(text)


class Emitter:
    """Values, loads and stores of one kernel. kernel.py writes reductions and loops."""

    def __init__(self, form: Form, dims: Dims, namer: Namer, bounds: tuple[str, ...], stored: frozenset[str]) -> None:
        self.form = form
        self.dims = dims
        self.namer = namer
        self.bounds = bounds
        self.stored = stored  # buffers that are written to memory
        self.outer = Scope(SourceWriter(1))
        self.loop: Scope | None = None
        self.results: dict[tuple[int, str], tuple[Value, ...]] = {}  # of reductions
        self.used: list[str] = []  # buffers whose pointers appear
        self.zeros = False  # whether loads give zeros where there are no elements
        self.policies: dict[str, str] = {}  # buffers that another loop over the row reads too, and what caches do
        self._symbol_dims = dims.by_symbol()
        self._written: dict[str, list[tuple[sympy.Expr, Space | None, TileBody, str]]] = {}
        self._unsynchronized: set[str] = set()

    # ---- scopes and lines ------------------------------------------------------------------------------------------
    def scope(self, body: TileBody, name: str) -> Scope:
        """Where statement `name` of `body` is computed."""
        return self.loop if self.loop is not None and name in body.inner else self.outer

    def assign(
        self, scope: Scope, wanted: str, text: str, dtype: torch.dtype, dims: Iterable[str],
        origins: tuple[Ref, ...] = (), note: str = "",
    ) -> Value:
        """A variable with the value of `text`; an existing one, if any."""
        known = scope.known_text(text)
        if known is not None:
            return known
        value = Value(self.namer.fresh(wanted), dtype, frozenset(dims))
        scope.writer.line(f"{value.text} = {text}" + (f"  # {note}" if note else ""), origins)
        scope.texts[text] = value
        return value

    # ---- values -----------------------------------------------------------------------------------------------------
    def value(self, body: TileBody, name: str) -> Value:
        """The value of statement `name` of `body` in the present scope."""
        scope = self.scope(body, name)
        key = (body.key, name)
        found = scope.statements.get(key)
        if found is None:
            found = self._compute(body, body.by_name[name], scope)
            scope.statements[key] = found
        return found

    def _compute(self, body: TileBody, s: Statement, scope: Scope) -> Value:
        if s.op == "constant":
            return Value(literal(s.value if s.value is not None else 0, s.dtype), s.dtype, constant=s.value)
        if s.op == "load":
            return self._load(body, s, scope)
        if s.op == "reduce":
            return self.results[body.key, s.name][0]
        if s.op == "part":
            return self.results[body.key, s.args[0]][int(s.value or 0)]
        if s.op == "index":
            text, dims = self._index(body, s.index)
            text = f"({text}).to(tl.int64)" if dims else f"tl.full([], {text}, tl.int64)"
            return self.assign(scope, s.name, text, s.dtype, dims, origins_of(body, s))
        operands = [self.value(body, a) for a in s.args]
        dims = frozenset().union(*(v.dims for v in operands))
        if s.op == "indirect":
            return self._indirect(body, s, operands[0], scope)
        text = self._expression(body, s, operands)
        return self.assign(scope, body.wanted_name(s), text, s.dtype, dims, origins_of(body, s), _note(s))

    def _expression(self, body: TileBody, s: Statement, operands: list[Value]) -> str:
        if s.op == "cast":
            return cast(operands[0].typed, operands[0].dtype, s.dtype)
        if s.op == "bitcast":
            return f"{operands[0].typed}.to({value_type(s.dtype)}, bitcast=True)"
        if s.op in ("rand", "randn"):
            raise TritonUnsupported(f"{s.op} has no Triton form that agrees with the other backends")
        if s.op == "truediv" and s.dtype == torch.float32:
            quotient = self._quotient(operands[0], operands[1], body.is_narrow(s))
            if quotient:
                return quotient
        values = operands[1:] if s.op == "where" else operands
        weak = s.op in TAKES_LITERALS and any(v.constant is None and v.dtype == values[0].dtype for v in values)
        texts = [v.text if weak and v in values and _plain(v) else v.typed for v in operands]
        return expression(s.op, texts, values[0].dtype)

    def _quotient(self, a: Value, b: Value, is_narrow: bool) -> str:
        """A division of many elements by one number, in float32; "" for others. One that is known is a product with its
        inverse, as in eager on a GPU. `is_narrow`: the result is rounded to fewer bits."""
        if b.constant is not None:
            inverse = float(1 / torch.tensor(float(b.constant), dtype=torch.float32))
            return f"{a.typed} * {literal(inverse, torch.float32)}"
        blocks = {d.name for d in self.dims.all if d.block}
        shared = blocks & b.dims < blocks & a.dims
        return f"{'narrow_quotient' if is_narrow else 'divided_by_shared'}({a.typed}, {b.text})" if shared else ""

    # ---- positions --------------------------------------------------------------------------------------------------
    def _index(self, body: TileBody, index: sympy.Expr | None) -> tuple[str, frozenset[str]]:
        """Text of an index expression, and the dimensions it varies along."""
        expr, dims = self._resolved(body, index)
        return index_text(expr), dims

    def _resolved(self, body: TileBody, index: sympy.Expr | None) -> tuple[sympy.Expr, frozenset[str]]:
        """`index` with the names of indirect statements replaced by the variables that hold them."""
        if index is None:
            raise AssertionError("a memory access has an index")
        changes: dict[sympy.Symbol, sympy.Symbol] = {}
        dims: set[str] = set()
        for symbol in index.free_symbols:
            if symbol.name in self._symbol_dims:
                dims.add(self._symbol_dims[symbol.name])
            elif symbol.name in body.by_name:
                value = self.value(body, symbol.name)
                changes[symbol] = sympy.Symbol(value.text, integer=True, nonnegative=True)
                dims |= value.dims
        return (index.xreplace(changes) if changes else index), frozenset(dims)

    def _indirect(self, body: TileBody, s: Statement, operand: Value, scope: Scope) -> Value:
        """An index that is data: negative values wrap; the rest is asserted, as torch's own CUDA kernels do."""
        origins = origins_of(body, s)
        bound = index_text(sympy.sympify(s.bound))
        at = operand
        if operand.dtype != torch.int64 or operand.constant is not None:
            text = cast(operand.typed, operand.dtype, torch.int64)
            at = self.assign(scope, f"{operand.text}_index", text, torch.int64, operand.dims, origins)
        if s.mode != "strict":
            text = f"tl.where({at.text} < 0, {at.text} + {_operand(bound)}, {at.text})"
            at = self.assign(scope, f"{at.text}_wrapped", text, torch.int64, at.dims, origins)
        inside = f"(({at.text} >= 0) & ({at.text} < {bound}))"
        masks = self.dims.masks(at.dims)
        allowed = f"{inside} | ({' & '.join(masks)} == 0)" if len(masks) == 1 else inside
        if len(masks) > 1:
            allowed = f"{inside} | (({' & '.join(masks)}) == 0)"
        node = s.origins[-1] if s.origins else body.name
        message = f"{OUT_OF_BOUNDS}{self.bounds.index(node)}: {node}"
        line = f'tl.device_assert({allowed}, "{message}")'
        if scope.known_text(line) is None:
            scope.writer.line(line, origins)
            scope.texts[line] = at
        return at

    # ---- memory -----------------------------------------------------------------------------------------------------
    def _load(self, body: TileBody, s: Statement, scope: Scope) -> Value:
        forwarded = self._forwarded(body, s)
        if forwarded is not None:
            return forwarded
        if s.buffer in self._unsynchronized:
            self.outer.writer.line("tl.debug_barrier()", origins_of(body, s))
            self._unsynchronized.clear()
        index, dims = self._index(body, s.index)
        masks = self.dims.masks(dims)
        other = ""
        if s.mask:
            mask = self.value(body, s.mask)
            dims |= mask.dims
            masks = [mask.typed, *self.dims.masks(dims)]
            other = f", other={literal(s.number, s.dtype)}"
        elif self.zeros and masks:
            other = f", other={literal(0, s.dtype)}"
        where = self._spread(index, self._index(body, s.index)[1], dims)
        policy = self.policies.get(s.buffer, "") if scope is self.loop else ""
        policy = f', eviction_policy="{policy}"' if policy else ""
        text = f"tl.load({self.pointer(s.buffer)} + {where}{_mask_argument(masks)}{other}{policy})"
        if s.buffer in self._written:
            text += f"  # written {len(self._written[s.buffer])} times above"  # not the text of an earlier load
        return self.assign(scope, s.buffer, text, s.dtype, dims, origins_of(body, s))

    def _forwarded(self, body: TileBody, s: Statement) -> Value | None:
        """The register that holds what this kernel stored at the address that `s` loads, if there is one."""
        level = body.space if s.name in body.inner else None
        for index, space, writer, stored in reversed(self._written.get(s.buffer, ())):
            if space != level or index != s.index:
                continue
            at_hand = (writer.key, stored) in self.scope(writer, stored).statements
            if at_hand or s.buffer not in self.stored or stored not in writer.inner:
                return self._where_masked(body, s, self.value(writer, stored))
        return None

    def _where_masked(self, body: TileBody, s: Statement, value: Value) -> Value:
        if not s.mask:
            return value
        mask = self.value(body, s.mask)
        text = f"tl.where({mask.typed}, {value.typed}, {literal(s.number, s.dtype)})"
        scope = self.scope(body, s.name)
        return self.assign(scope, s.buffer, text, s.dtype, value.dims | mask.dims, origins_of(body, s))

    def store(self, body: TileBody, s: Statement) -> None:
        """Remember what is stored; write it to memory unless the buffer is internal."""
        value = self.value(body, s.args[0])
        level = body.space if s.name in body.inner else None
        if s.mode != "add" and s.index is not None:
            self._written.setdefault(s.buffer, []).append((s.index, level, body, s.args[0]))
        if s.buffer not in self.stored:
            return
        scope = self.scope(body, s.name)
        index, index_dims = self._index(body, s.index)
        dims = index_dims | value.dims
        where = self._spread(index, index_dims, dims)
        pointer = f"{self.pointer(s.buffer)} + {where}"
        mask = _mask_argument(self.dims.masks(dims))
        note = f"  # {s.buffer}[{s.index}]"
        if s.mode == "add":
            atomic = f'tl.atomic_add({pointer}, {value.typed}{mask}, sem="relaxed")'
            scope.writer.line(atomic + note, origins_of(body, s))
            return
        scope.writer.line(f"tl.store({pointer}, {value.typed}{mask}){note}", origins_of(body, s))
        self._unsynchronized.add(s.buffer)

    def _spread(self, index: str, index_dims: frozenset[str], dims: frozenset[str]) -> str:
        """`index` with the shape of a tile over `dims`: masks and values must not be larger than the pointers."""
        text = _operand(index)
        missing = [d for d in self.dims.all if d.block and d.name in dims and d.name not in index_dims]
        if missing:
            zeros = " + ".join(f"tl.zeros([{d.constant}], tl.int32){d.slot}" for d in missing)
            return f"({text} + {zeros})"
        return text

    def pointer(self, buffer: str) -> str:
        """The parameter that points to `buffer`, which the kernel then has."""
        if buffer not in self.used:
            self.used.append(buffer)
        return pointer_name(buffer)


OUT_OF_BOUNDS = "index out of bounds "


def pointer_name(buffer: str) -> str:
    """The parameter that points to `buffer`."""
    return f"{buffer}_ptr"


def origins_of(body: TileBody, s: Statement) -> tuple[Ref, ...]:
    """References of a line that comes from statement `s`: the statement, and its ATen nodes."""
    return (ref("loop_ir", s.name, body.name), *(ref("forward", node) for node in s.origins))


def _note(s: Statement) -> str:
    return f"{s.name} = {s.op} {', '.join(s.args)}"


def _plain(value: Value) -> bool:
    """True when a Python literal of this value takes the other operand's dtype without loss."""
    return value.dtype in (torch.float32, torch.float64, torch.int32, torch.int64)


def _operand(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _mask_argument(masks: list[str]) -> str:
    return f", mask={' & '.join(masks)}" if masks else ""
