"""Loop nests up to names and sizes, so that nests of one form can share code.

The nest of a group becomes one straight-line body; its extents and strides become symbols, equal numbers the same
symbol (so equal addresses stay equal). Two groups have equal keys if one body, called with other pointers and sizes,
computes both.
"""
from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import sympy

from ...artifacts.records import CodeLine, ref
from ..ir.affine import axis_symbol, expr, size
from ..ir.body_affine import Environment, NotLinear, environment, linear
from ..ir.ir import Axis, Buffer, Foreach, Group, LoopBody, Member, Statement, Template
from .legality import Illegal

LONGEST = 400  # statements of a nest


@dataclass(frozen=True)
class Templated:
    """A group as a run of a template, and what is equal for all that share it."""

    template: Template
    member: Member
    key: Hashable


def templated(group: Group, buffers: Mapping[str, Buffer]) -> Templated | Illegal:
    """`group` as a member of a template, or why it cannot be one."""
    refusal = _refusal(group)
    if refusal is not None:
        return refusal
    draft = _Draft(group)
    try:
        body = draft.body()
    except NotLinear as error:
        return Illegal(f"an index is not linear: {error}", "linear indices")
    if not _elementwise(body):
        return Illegal("one point reads what another one writes", "reading a buffer where it is written")
    names = tuple(dict.fromkeys((*body.reads, *body.writes)))
    parameters = tuple([n for n in names if n not in group.internal])
    template = Template(body, parameters, group.internal, tuple(draft.symbols.values()), tuple(draft.sources))
    return Templated(template, Member(group, parameters, tuple(draft.symbols)), _key(template, names, buffers))


def _refusal(group: Group) -> Illegal | None:
    statements = [s for b in group.bodies for s in b.statements]
    if any(b.reduction_axes or b.axes != group.axes for b in group.bodies):
        return Illegal("it has inner loops", "pointwise kernels")
    if not all(a.extent.is_Integer for a in group.axes):
        return Illegal("its sizes vary", "fixed sizes")
    if any(a.extent == 0 for a in group.axes):
        return Illegal("it computes nothing", "")
    if any(s.op == "indirect" or s.mode for s in statements):
        return Illegal("its addresses are data-dependent", "indices that do not depend on data")
    if len(statements) > LONGEST:
        return Illegal(f"it has {len(statements)} statements, and shared code at most {LONGEST}", "fewer statements")
    return None


def _elementwise(body: LoopBody) -> bool:
    """Whether each buffer that is stored is touched at one place by each point: no loop must complete before
    another."""
    stored = set(body.writes)
    places: dict[str, set[sympy.Expr | None]] = {}
    for s in body.statements:
        if s.buffer in stored:
            places.setdefault(s.buffer, set()).add(s.index)
    return all(len(found) == 1 for found in places.values())


@dataclass
class _Draft:
    """The one body of a group under construction; `symbols` has the symbol of each number so far."""

    group: Group
    symbols: dict[int, sympy.Symbol] = field(default_factory=dict)
    sources: list[tuple[int, int]] = field(default_factory=list)

    def body(self) -> LoopBody:
        """Raises NotLinear for an index that is not linear."""
        axes = {a.symbol: f"i{k}" for k, a in enumerate(self.group.axes)}
        loops = tuple([Axis(axis_symbol(axes[a.symbol]), self.number(int(a.extent))) for a in self.group.axes])
        names = {a.name: new for a, new in axes.items()}
        statements: list[Statement] = []
        for k, body in enumerate(self.group.bodies):
            where = environment(body)
            renamed: dict[str, str] = {}
            for position, s in enumerate(body.statements):
                name = renamed[s.name] = f"t{len(statements)}" if s.name else ""
                args, mask = tuple([renamed[a] for a in s.args]), renamed[s.mask] if s.mask else ""
                index = None if s.index is None else self.index(s.index, where, names)
                statements.append(
                    Statement(name, s.op, args, s.dtype, s.buffer, index, s.value, mask, origins=s.origins)
                )
                self.sources.append((k, position))
        return LoopBody(self.group.bodies[0].name, loops, (), tuple(statements))

    def number(self, value: int) -> sympy.Expr:
        """0 and 1 themselves, a symbol for any other number."""
        if value in (0, 1):
            return expr(value)
        return self.symbols.setdefault(value, sympy.Symbol(f"n{len(self.symbols)}", integer=True, positive=True))

    def index(self, index: sympy.Expr, where: Environment, names: Mapping[str, str]) -> sympy.Expr:
        """An index with numbers replaced; positive ones only, for that is what the symbols are."""
        if index.is_Symbol and index.name in names:
            return axis_symbol(names[index.name])
        form = linear(index, where)
        total = self.number(self.positive(form.const))
        for atom, factor in form.terms.items():
            if atom.kind != "axis":
                raise NotLinear(str(form.expr))
            total = total + self.number(self.positive(factor)) * axis_symbol(names[atom.name])
        return total

    @staticmethod
    def positive(value: object) -> int:
        known = size(value)
        if type(known) is not int or known < 0:
            raise NotLinear(str(value))
        return known


def _key(template: Template, names: tuple[str, ...], buffers: Mapping[str, Buffer]) -> Hashable:
    """Everything but the names of buffers and the origins. Constants as text: 0.0 and -0.0 are equal, as 1 and True."""
    numbers = {n: k for k, n in enumerate(names)}
    statements = [
        (s.op, s.args, s.dtype, numbers.get(s.buffer), s.index, s.mask, repr(s.value)) for s in template.body.statements
    ]
    places = [(buffers[n].device, buffers[n].dtype, n in template.internal) for n in names]
    return template.body.axes, tuple(statements), tuple(places)


def with_all_origins(foreach: Foreach, lines: Iterable[CodeLine]) -> list[CodeLine]:
    """Lines written for the template, which names the first member, with what they come from in all members."""
    body = foreach.template.body
    real: dict[str, list[str]] = {ref("loop_ir", "", body.name): [ref("loop_ir", "", b.name) for b in foreach.bodies]}
    for s, (k, position) in zip(body.statements, foreach.template.sources):
        for member in foreach.members:
            own = member.group.bodies[k]
            statement = own.statements[position]
            item = ref("loop_ir", statement.name or statement.buffer, own.name)
            real.setdefault(ref("loop_ir", s.name or s.buffer, body.name), []).append(item)
            for node, other in zip(s.origins, statement.origins):
                real.setdefault(ref("forward", node), []).append(ref("forward", other))
    return [
        CodeLine(line.text, tuple(dict.fromkeys(o for origin in line.origins for o in real.get(origin, (origin,)))))
        for line in lines
    ]


__all__ = ["Templated", "templated", "with_all_origins"]
