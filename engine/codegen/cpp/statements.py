"""Emits statements of the loop IR as C++, each value named once in a scope."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import sympy
import torch

from ...ir.affine import Linear
from ...ir.body_affine import form_of
from ...ir.ir import Statement
from ...ir.loop_nest import Part, Scratch
from ...ir.tiles import Tile
from ...scheduler.cpu.bitwise_copies import Moves
from .dtypes import ALONE, bits_literal, ctype, literal
from .emission import Emission
from .indices import c_expression
from .operators import OPERATORS
from .scope import buffer_name, origins_of

_BY_WAY_OF = {  # how floats are converted to narrow or unsigned integers that cannot represent them: as in eager
    **dict.fromkeys(("int8", "uint8", "int16", "uint16"), "(int32)"), "uint32": "unsigned_bits<int32>",
    "uint64": "unsigned_bits<int64>",
}
LAST_FLAG = 30  # of the bits that say which index was out of bounds; statements beyond share it


@dataclass
class StatementWriter(Emission):
    """Prints statements of parts, each value named once in a scope."""

    moves: dict[tuple[int, bool], Moves] = field(default_factory=dict)

    def value(self, part: Part, name: str) -> str:
        """The C++ text of a value of the part's body, emitted now if this scope does not have it."""
        known = self.scopes.get(("value", part.key, name))
        if known is not None:
            return known
        statement = next(s for s in part.statements if s.name == name)
        return self.emit(part, statement)

    def emit(self, part: Part, s: Statement) -> str:
        """Write `s`, unless an equal value has a name already; the text of its value ("" for a store)."""
        if s.op == "store":
            self._store(part, s)
            return ""
        key = ("value", part.key, s.name)
        known = self.scopes.get(key)
        if known is not None:
            return known
        if s.op == "constant":
            assert s.value is not None
            return self.scopes.put(key, literal(s.value, s.dtype))
        if s.op == "part":
            return self.scopes.put(key, self.value(part, s.args[0]))
        if s.op == "erf" and _is_for_a_sum_with_one(part, s):
            return ""
        text = self._load(part, s) if s.op == "load" else _RULES.get(s.op, StatementWriter._operation)(self, part, s)
        if text.isidentifier():
            return self.scopes.put(key, text)
        same = ("text", s.dtype, text, self.changes.get(s.buffer, 0) if s.op == "load" else 0)
        known = self.scopes.get(same)
        if known is not None and s.op != "indirect":
            return self.scopes.put(key, known)
        base = s.buffer or (s.origins[-1] if s.origins else part.body.name)
        name = self.scopes.name(f"{base}_{s.name}")
        origins = origins_of(part.body.name, s.name, s.origins)
        chosen = s.op == "where" and s.dtype is torch.bool  # bytes, as the rule says
        self.writer.line(f"const {'uint8' if chosen else ctype(s.dtype).value} {name} = {text};", origins)
        self.scopes.put(same, name)
        for what in ("bits", "exact"):
            known = self.scopes.get((what, text, s.dtype))
            if known is not None:
                self.scopes.put((what, name, s.dtype), known)
        return self.scopes.put(key, name)

    # ---- memory ------------------------------------------------------------------------------------------------------
    def _element(self, part: Part, s: Statement) -> str:
        """The element of memory, or of an array of the kernel, that a load or store names."""
        if self.tile is not None and (element := self._element_of_tile(s)):
            return element
        if s.op == "store" and s.buffer in self.blocks:
            last = self.loops_around[-1]
            return f"{self.blocks[s.buffer]}[{last.symbol} - {self.span(last)[0]}]"
        scratch = self.nest.arrays.get(s.buffer)
        if scratch is None:
            assert s.index is not None
            return f"{buffer_name(s.buffer)}[{self._index(part, s.index)}]"
        form = form_of(s.index, self.nest.group.axes, self.loops_around)
        place = _place_in(scratch, form, self.nest.outer)
        if self.nest.lane is not None:
            g = self.nest.lane.symbol
            row = f"{self.width}*({place}) + " if place != "0" else ""
            return f"{buffer_name(s.buffer)}[{row}{g} - {g}_0]"
        return f"{buffer_name(s.buffer)}[{place}]"

    def _element_of_tile(self, s: Statement) -> str:
        """Where the tile around holds what `s` loads or stores; "" if it does not."""
        assert self.tile is not None
        row = self.tile.row.symbol
        if isinstance(self.tile, Tile):
            array, column = self.tile.array(s), self.tile.column.symbol
            return f"{array}[{self.tile.columns}*({row} - {row}_0) + {column} - {column}_0]" if array else ""
        operand = self.tile.operand(s, self.loops_around)
        along = self.loops_around[-1].symbol if operand is not None else ""
        return f"{operand.array}[{operand.wide}*({row} - {row}_0) + {along}]" if operand is not None else ""

    def place(self, part: Part, s: Statement, at: Mapping[sympy.Basic, sympy.Expr]) -> str:
        """The address of a load or store, for other values `at` of loop variables."""
        assert s.index is not None
        return f"{buffer_name(s.buffer)} + {self._index(part, s.index.xreplace(at))}"

    def _index(self, part: Part, index: sympy.Expr) -> str:
        names = {}
        index = index.xreplace(self.places) if self.places else index
        index = index.xreplace(self.remainders) if self.remainders else index
        for symbol in index.free_symbols:
            indirect = self.scopes.get(("value", part.key, symbol.name))
            if indirect is None and any(x.name == symbol.name and x.op == "indirect" for x in part.body.statements):
                indirect = self.value(part, symbol.name)
            if indirect is not None:
                names[symbol.name] = indirect
        return c_expression(index, names)

    def _load(self, part: Part, s: Statement) -> str:
        forwarded = self.scopes.get(("stored", s.buffer, s.index))
        kind = ctype(s.dtype)
        start = self.scopes.get(("start", part.key, s.name)) if forwarded is None else None
        floats = self._floats(s) if forwarded is None else None
        if floats is not None:
            return floats
        element = forwarded or self._element(part, s)
        if start is not None:
            element = f"{buffer_name(s.buffer)}[{start} + {self.scopes.get(('step', part.key, s.name))}]"
        if forwarded is not None or s.buffer in self.nest.arrays:
            text = element
        elif s.dtype is torch.bool:
            text = f"{element} != 0"
        else:
            text = f"{self._converting(kind.load)}({element})" if kind.load else element
        mask = self.value(part, s.mask) if s.mask else "true"
        if kind.load and forwarded is None and s.buffer not in self.nest.arrays and mask != "false" and (
                s.name in self._moves(part).loads):
            return self._load_bits(part, s, element, mask, start is not None)
        if self.present and forwarded is None:
            assert s.index is not None
            if self.loops_around[-1].symbol in s.index.free_symbols:
                return f"{self.present} ? {text} : {literal(0, s.dtype)}"
        if mask in ("true", "false"):
            return text if mask == "true" else literal(s.number, s.dtype)
        if start is not None and _chosen_by_mask(part, s):
            return text
        if start is not None:
            name = self.scopes.name(f"{s.buffer}_{s.name}_any")
            self.writer.line(f"const {kind.value} {name} = {text};", origins_of(part.body.name, s.name, s.origins))
            text = name
        return f"{mask} ? {text} : {literal(s.number, s.dtype)}"

    def _floats(self, s: Statement) -> str | None:
        """The element of a float array of converted float16 values."""
        if not s.mask and self.rows and (row := self.rows.get((s.buffer, sympy.expand(s.index)))):
            return row
        return self.floats.get((s.op, s.buffer, s.index))

    def _load_bits(self, part: Part, s: Statement, element: str, mask: str, there: bool) -> str:
        """A load of a 16-bit float whose bits are named, and stored as they are.

        `there`: the element may be read where the mask is false.
        """
        kind = ctype(s.dtype)
        name = self.scopes.name(f"{s.buffer}_{s.name}_bits")
        origins = origins_of(part.body.name, s.name, s.origins)
        if mask != "true" and there and not _chosen_by_mask(part, s):
            self.writer.line(f"const {kind.memory} {name}_any = {element};", origins)
            element = f"{name}_any"
        plain = mask == "true" or (there and _chosen_by_mask(part, s))
        text = element if plain else f"{mask} ? {element} : {bits_literal(s.number, s.dtype)}"
        self.writer.line(f"const {kind.memory} {name} = {text};", origins)
        self.scopes.put(("bits", f"{kind.load}({name})", s.dtype), name)
        return f"{kind.load}({name})"

    def _bits(self, part: Part, name: str, dtype: torch.dtype) -> str | None:
        """The bits of a value that is selected from loaded or viewed 16-bit floats and constants; else None."""
        moves = self._moves(part)
        if moves.leaves(name, dtype) is None:
            return None
        s = moves.made[name]
        if s.op == "constant":
            return bits_literal(s.number, dtype)
        if s.op == "cast":
            return self._bits(part, s.args[0], dtype)
        if s.op in ("load", "bitcast"):
            return self.scopes.get(("bits", self.value(part, name), dtype))
        condition = self.value(part, s.args[0])
        if condition in ("true", "false"):
            return self._bits(part, s.args[1 if condition == "true" else 2], dtype)
        first, second = (self._bits(part, a, dtype) for a in s.args[1:])
        return None if first is None or second is None else f"({condition} ? {first} : {second})"

    def _moves(self, part: Part) -> Moves:
        key = part.key, part.after
        if key not in self.moves:
            self.moves[key] = Moves(part)
        return self.moves[key]

    def _store(self, part: Part, s: Statement) -> None:
        value = self.value(part, s.args[0])
        origins = origins_of(part.body.name, s.buffer, s.origins)
        if s.mode == "":
            self.scopes.put(("stored", s.buffer, s.index), value)
        if s.buffer in self.nest.local and s.buffer not in self.nest.arrays:
            return
        kind = ctype(s.dtype)
        floats = self.floats.get((s.op, s.buffer, s.index))
        element = floats or self._element(part, s)
        self.changes[s.buffer] = self.changes.get(s.buffer, 0) + 1
        if s.mode == "add":
            self._store_add(s, element, value)
            return
        if s.buffer not in self.nest.arrays and kind.store:
            bits, exact = (self.scopes.get((what, value, s.dtype)) for what in ("bits", "exact"))
            value = (exact or value) if floats else bits or f"{self._converting(kind.store)}({exact or value})"
        self.writer.line(f"{f'if ({self.present}) ' if self.present else ''}{element} = {value};", origins)

    def _converting(self, function: str) -> str:
        """The name of a function that converts, here."""
        return f"{function}_alone" if self.alone and function in ALONE else function

    def _store_add(self, s: Statement, element: str, value: str) -> None:
        kind = ctype(s.dtype)
        if kind.store:
            value = f"{self._converting(kind.store)}({self._converting(kind.load)}({element}) + {value})"
            self.writer.line(f"{element} = {value};")
        else:
            self.writer.line(f"{element} {'|' if s.dtype is torch.bool else '+'}= {value};")

    # ---- values ------------------------------------------------------------------------------------------------------
    def _operation(self, part: Part, s: Statement) -> str:
        rule = OPERATORS.get(s.op)
        if rule is None:
            raise NotImplementedError(f"no C++ for the operation {s.op}")
        typed = s.args[1] if s.op == "where" else s.args[0]
        dtype = next(x.dtype for x in part.body.statements if x.name == typed)
        values = [self.value(part, a) for a in s.args]
        if s.op == "where" and values[0] in ("true", "false"):
            return values[1 if values[0] == "true" else 2]
        return rule(values, ctype(dtype).value)

    def _add(self, part: Part, s: Statement) -> str:
        """A sum; erf(x) + 1 (of gelu, and its gradient) is one function, since it needs fewer bits of erf."""
        if s.dtype is torch.float32:
            made = {x.name: x for x in part.body.statements if x.name in s.args}
            for term in (made[a] for a in s.args):
                if term.op == "erf" and _is_for_a_sum_with_one(part, term):
                    return f"erf_plus_one_float({self.value(part, term.args[0])})"
        return self._operation(part, s)

    def _index_value(self, part: Part, s: Statement) -> str:
        assert s.index is not None
        return f"(int64)({self._index(part, s.index)})"

    def _cast(self, part: Part, s: Statement) -> str:
        value = self.value(part, s.args[0])
        source = next(x.dtype for x in part.body.statements if x.name == s.args[0])
        old, new = ctype(source), ctype(s.dtype)
        if new.value == "bool":
            return value if old.value == "bool" else f"{value} != 0"
        if new.store:
            if source is s.dtype:
                return value
            narrowed = self._number(part, s.args[0], s.dtype) if old.value != "float" else value
            bits = self._bits(part, s.args[0], s.dtype)
            if bits is None and s.dtype is torch.float16:  # converted where it is stored
                text = f"{self._converting('as_half')}({narrowed})"
                self.scopes.put(("exact", text, s.dtype), narrowed)
                return text
            bits = bits or f"{new.store}({narrowed})"
            name = self.scopes.name(f"{part.body.name}_{s.name}_bits")
            origins = origins_of(part.body.name, s.name, s.origins)
            self.writer.line(f"const uint16 {name} = {bits};", origins)
            text = f"{new.load}({name})"
            self.scopes.put(("bits", text, s.dtype), name)
            return text
        if old.value == new.value:
            return value
        if old.value in ("float", "double") and new.value in _BY_WAY_OF:
            return f"({new.value}){_BY_WAY_OF[new.value]}({value})"
        return self._number(part, s.args[0], s.dtype) if new.value in ("float", "double") else f"({new.value}){value}"

    def _number(self, part: Part, name: str, dtype: torch.dtype) -> str:
        """The value of that name as a float for `dtype`; a `bool` is a choice, which g++ does in vectors."""
        value = self.value(part, name)
        if next(x.dtype for x in part.body.statements if x.name == name) is torch.bool:
            return f"({value} ? {literal(1, dtype)} : {literal(0, dtype)})"
        return f"({ctype(dtype).value}){f'whole({value})' if self._was_float(part, name) else value}"

    def _was_float(self, part: Part, name: str) -> bool:
        """Whether an integer was truncated from a float, maybe through another dtype."""
        made = {x.name: x for x in part.body.statements}
        while made[name].op == "cast" and not made[name].dtype.is_floating_point:
            name = made[name].args[0]
            if made[name].dtype.is_floating_point:
                return True
        return False

    def _bitcast(self, part: Part, s: Statement) -> str:
        value = self.value(part, s.args[0])
        source = next(x.dtype for x in part.body.statements if x.name == s.args[0])
        old, new = ctype(source), ctype(s.dtype)
        raw = self._bits(part, s.args[0], source) or f"{old.store}({value})" if old.store else value
        bits = raw if old.memory == new.memory else f"bits_as<{new.memory}, {old.memory}>({raw})"
        if not new.load:
            return f"{bits} != 0" if new.value == "bool" else bits
        name = self.scopes.name(f"{part.body.name}_{s.name}_bits")
        self.writer.line(f"const {new.memory} {name} = {bits};", origins_of(part.body.name, s.name, s.origins))
        self.scopes.put(("bits", f"{new.load}({name})", s.dtype), name)
        return f"{new.load}({name})"

    def _indirect(self, part: Part, s: Statement) -> str:
        """An index from data: negative ones wrap, others out of bounds set the flag and read element 0."""
        value, bound = self.value(part, s.args[0]), c_expression(s.bound)
        if s.mode == "unchecked":
            return self._unchecked(value, s)
        code = self._bounds_code(s)
        wrapped = self.scopes.name(f"{part.body.name}_{s.name}_index")
        origins = origins_of(part.body.name, s.name, s.origins)
        shift = f"{value} < 0 ? (int64){value} + {bound} : (int64){value}" if s.mode != "strict" else f"(int64){value}"
        flag = 1 << min(code - 1, LAST_FLAG)
        if self.branched:
            self.writer.line(f"int64 {wrapped} = {shift};", origins)
            self.writer.line(f'asm("" : "+r"({wrapped}));  // not in vectors')
            with self.writer.block(f"if (__builtin_expect((uint64){wrapped} >= (uint64)({bound}), 0))"):
                self.writer.line('asm volatile("");  // a branch, no choice')
                self.writer.line(f"{self.outside} |= {flag}, {wrapped} = 0;", origins)
            return wrapped
        self.writer.line(f"const int64 {wrapped} = {shift};", origins)
        self.writer.line(f"const bool {wrapped}_bad = (uint64){wrapped} >= (uint64)({bound});", origins)
        self.writer.line(f"{self.outside} |= {wrapped}_bad ? {flag} : 0;", origins)
        return f"{wrapped}_bad ? 0 : {wrapped}"

    def _unchecked(self, value: str, s: Statement) -> str:
        """An index that is in bounds for sure; narrow where it can be, for gathers of as many lanes as values."""
        assert s.bound is not None
        bound = c_expression(s.bound)
        if s.bound.is_Integer and int(s.bound) < 1 << 31:
            value, bound = f"(int32){value}", f"(int32){bound}"
        return f"{value} < 0 ? {value} + {bound} : {value}"

    def _bounds_code(self, s: Statement) -> int:
        node = s.origins[-1] if s.origins else s.name
        if node not in self.bounds:
            self.bounds.append(node)
        return 1 + self.bounds.index(node)


def _place_in(scratch: Scratch, form: Linear, outer: Collection[str]) -> str:
    """The index in a scratch array of the element that `form` (of the buffer) names inside the loops `outer`."""
    parts = []
    for atom, factor in form.terms.items():
        if atom.name not in outer:
            stride = scratch.strides[factor]
            parts.append(atom.name if stride == 1 else f"{stride}*{atom.name}")
    return " + ".join(parts) or "0"


def _chosen_by_mask(part: Part, s: Statement) -> bool:
    """Whether a masked load is only used in selects by the same mask, so that its value elsewhere is unused."""
    uses = [x for x in part.body.statements if s.name in x.args or s.name == x.mask]
    return all(x.op == "where" and x.args[:2] == (s.mask, s.name) and x.args[2] != s.name for x in uses)


def _is_for_a_sum_with_one(part: Part, s: Statement) -> bool:
    """Whether nothing but erf(x) + 1 reads this erf(x)."""
    uses = [x for x in part.body.statements if s.name in x.args or s.name == x.mask]
    if s.dtype is not torch.float32 or len(uses) != 1 or uses[0].op != "add":
        return False
    return any(x.name in uses[0].args and x.op == "constant" and x.value == 1.0 for x in part.body.statements)


_RULES: dict[str, Callable[[StatementWriter, Part, Statement], str]] = {
    "add": StatementWriter._add,
    "index": StatementWriter._index_value,
    "cast": StatementWriter._cast,
    "bitcast": StatementWriter._bitcast,
    "indirect": StatementWriter._indirect,
}
