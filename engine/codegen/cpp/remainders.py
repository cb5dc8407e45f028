"""Names remainders of indices before the loops in which they do not change: gcc moves no division out of a loop that
may not need it, as under a mask."""
from __future__ import annotations

from collections.abc import Iterable

import sympy
from torch.utils._sympy.functions import PythonMod

from ...ir.ir import Statement
from .emission import Emission
from .indices import c_expression


def name_remainders(p: Emission, statements: Iterable[Statement], around: Iterable[sympy.Symbol]) -> list[sympy.Basic]:
    """Declare the remainders in the statements' indices that are made of sizes and the variables of the loops `around`;
    the new ones. Of a divisor that is 0, they are 0."""
    known = p.sizes.union(around)
    found = {e for s in statements if s.index is not None for e in s.index.atoms(PythonMod, sympy.Mod)}
    new = sorted((e for e in found if e not in p.remainders and e.free_symbols <= known), key=str)
    for e in new:
        name = p.scopes.name("remainder")
        p.writer.line(f"const int64 {name} = {c_expression(e)};")
        p.remainders[e] = sympy.Symbol(name, integer=True)
    return new
