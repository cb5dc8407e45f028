"""The loop IR: what lowerings leave behind, and what schedulers and code generators read.

A *loop body* computes one buffer (or several of one shape): nested loops over `axes`, then, for a reduction, over
`reduction_axes`, and a straight list of statements. Index expressions and sizes are SymPy expressions over the axis
symbols, size symbols (s0, s1, ...: integer, positive) and the names of statements of op `indirect`.

    body buf3[i0: 4096] reduce [r0: 1024]
      t0 = load x[1024*i0 + r0] : float32
      t1 = constant 0.125 : float32
      t2 = mul t0, t1 : float32
      t3 = reduce sum t2 : float32
      store buf3[i0], t3

A statement that depends on a reduction axis without a `reduce` between runs once for each point of the full space;
every other one once for each point of `axes`. In a body that scans, the reduction axes run in order, and everything,
stores too, runs once for each of their points:

    body buf4[i0: 4096] reduce [r0: 1024]
      t0 = load x[1024*i0 + r0] : float64
      t1 = scan sum t0 : float64
      store buf4[1024*i0 + r0], t1
 Everything is immutable data: a body prints, parses back, hashes, diffs
and runs in the reference interpreter.

A *program* is a list of steps in execution order: loop bodies, and calls of ATen (`ExternCall`) on views of buffers.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

# Banded like the ops of tinygrad's uop/__init__.py; `dtype` of a statement is the dtype of its result.
MEMORY_OPS = ("load", "store")  # store: `mode` "", or "add" or "put" where addresses are data-dependent and may repeat
VALUE_OPS = ("constant", "index")  # index: the value of an index expression as an int64
CONVERT_OPS = ("cast", "bitcast", "indirect")  # indirect: an integer that later index expressions name; bounds checked
UNARY_OPS = (
    "neg", "abs", "sign", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
    "erfinv", "lgamma", "digamma", "sigmoid", "floor", "ceil", "trunc", "round", "isnan", "isinf", "logical_not",
    "bitwise_not",
)
BINARY_OPS = (
    "add", "sub", "mul", "truediv", "floordiv", "truncdiv", "mod", "fmod", "pow", "atan2", "hypot", "copysign",
    "nextafter", "minimum", "maximum", "fmin", "fmax", "bitwise_and", "bitwise_or", "bitwise_xor", "shl", "shr",
    "logical_and", "logical_or", "logical_xor", "eq", "ne", "lt", "le", "gt", "ge",
)
TERNARY_OPS = ("where", "fma")
RANDOM_OPS = ("rand", "randn")  # of (seed, offset): Philox
REDUCE_OPS = ("reduce", "part")  # part: one result of a reduction that has several (`value` is its index)
TILED = ("dot", "dot_tf32")  # sums of a `mul`, which tensor cores may compute; of float32 rounded to TF32
DOTS = (*TILED, "row_dot")  # and one that is to be computed as other sums are, of a product with a vector
REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin", "any", "all", "welford",  # welford: mean, m2, count
              *DOTS)

SCAN_OPS = ("scan",)
SCANS = ("sum", "prod", "max", "min", "argmax", "argmin", "logsumexp")  # of equal extremes, the last one's place

OPS = MEMORY_OPS + SCAN_OPS + VALUE_OPS + CONVERT_OPS + UNARY_OPS + BINARY_OPS + TERNARY_OPS + RANDOM_OPS + REDUCE_OPS


@dataclass(frozen=True)
class Statement:
    """`name = op args`. Only the fields that the op uses are set.

    load: buffer, index, and optionally `mask` (name of a bool statement) with `value` for where it is False;
    store: buffer, index, args[0] the value, `mode` (of a "put", the last point in the order of the loops stays; an
    "add" adds in that order); constant: value; index: index; cast/bitcast: dtype;
    indirect: args[0] an integer, `bound` its size (negative values wrap, others raise IndexError as in eager; with
    `mode` "strict" negative ones raise too, with "unchecked" none does: the compiler made the value);
    reduce: `mode` one of REDUCTIONS; scan: `mode` one of SCANS, the reduction of this point and all before it; part:
    value (which result). `origins` are names of ATen nodes.
    """

    name: str
    op: str
    args: tuple[str, ...] = ()
    dtype: torch.dtype = torch.float32
    buffer: str = ""
    index: sympy.Expr | None = None
    value: bool | int | float | None = None
    mask: str = ""
    mode: str = ""
    bound: sympy.Expr | None = None
    origins: tuple[str, ...] = ()

    @property
    def number(self) -> bool | int | float:
        """The value of a constant, or of a load where its mask is False: -0.0 is not 0."""
        return 0 if self.value is None else self.value


@dataclass(frozen=True)
class Axis:
    """A loop: `symbol` (integer, non-negative) runs from 0 to `extent` - 1."""

    symbol: sympy.Symbol
    extent: sympy.Expr


@dataclass(frozen=True)
class LoopBody:
    """Loops that compute the buffer(s) they store; `name` is that of the first buffer stored."""

    name: str
    axes: tuple[Axis, ...]
    reduction_axes: tuple[Axis, ...]
    statements: tuple[Statement, ...]

    @property
    def scans(self) -> bool:
        """Whether it scans: its reduction axes run in order, and it stores at each of their points."""
        return any(s.op == "scan" for s in self.statements)

    @property
    def is_product(self) -> bool:
        """Whether it is a matrix product, of which a GPU's kernel computes a tile at a time."""
        return any(s.op == "reduce" and s.mode in TILED for s in self.statements)

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the buffers loaded, in order of first use."""
        return tuple(dict.fromkeys(s.buffer for s in self.statements if s.op == "load"))

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the buffers stored, in order of first use."""
        return tuple(dict.fromkeys(s.buffer for s in self.statements if s.op == "store"))


@dataclass(frozen=True)
class Buffer:
    """A piece of memory with one dense layout. Sizes and strides count elements."""

    name: str
    dtype: torch.dtype
    device: torch.device
    size: tuple[sympy.Expr, ...]
    stride: tuple[sympy.Expr, ...]
    role: str = "intermediate"  # input | constant | intermediate


@dataclass(frozen=True)
class View:
    """A strided window onto a buffer, in elements from the buffer's first."""

    buffer: str
    size: tuple[sympy.Expr, ...]
    stride: tuple[sympy.Expr, ...]
    offset: sympy.Expr = sympy.S.Zero
    dtype: torch.dtype | None = None  # other than the buffer's: view(dtype)


@dataclass(frozen=True)
class ExternCall:
    """A call of an ATen operator on views; `args` and `kwargs` are trees whose leaves may be View or sympy.Expr.

    `outputs` names the buffers it makes (None for a result nobody uses); an operator that mutates names in `mutates`
    the buffers that it changes. `why` says why it is not loops: it is the text of a recorded decision. `binds` are
    symbols that are defined when it has run: (symbol, name of an output, which of its sizes), or (symbol, "", 0) for
    the number that it returns.
    """

    name: str
    target: Any  # torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[str | None, ...]
    mutates: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    why: str = ""
    binds: tuple[tuple[sympy.Symbol, str, int], ...] = ()


@dataclass(frozen=True)
class Program:
    """A lowered graph.

    `inputs` are names of graph inputs in order (tensors have a Buffer; sizes and scalars are symbols); `symbols` says
    how each size symbol is found at run time: (input index, "size" | "stride" | "value", dimension). `outputs` are
    View, sympy.Expr, Python constants or None. `copies` are (View of the new value, input name): inputs that the
    program mutates, written back before it returns, in order. `constants` are tensors that the graph holds. `sizes` are
    the values of symbols in the call that the graph was compiled for, which costs are estimated by.
    """

    inputs: tuple[str, ...]
    symbols: Mapping[sympy.Symbol, tuple[int, str, int]]
    buffers: Mapping[str, Buffer]
    constants: Mapping[str, torch.Tensor]
    steps: tuple[LoopBody | ExternCall, ...]
    outputs: tuple[Any, ...]
    copies: tuple[tuple[View, str], ...] = ()
    sizes: Mapping[sympy.Symbol, int] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Group:
    """One kernel: bodies that run inside the same outer loops, in order.

    Every body's axes start with `axes` (same symbols, same extents); what comes after them, and its reduction axes,
    are inner loops of that body alone. `internal` are buffers that no other group reads: they may stay in registers or
    in row-sized scratch. `kernel` is the name of the generated function.
    """

    kernel: str
    axes: tuple[Axis, ...]
    bodies: tuple[LoopBody, ...]
    internal: frozenset[str] = frozenset()
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def origins(self) -> tuple[str, ...]:
        """The references of its bodies, which a decision about the kernel carries."""
        return tuple([f"loop_ir:{name}" for name in dict.fromkeys(body.name for body in self.bodies)])


@dataclass(frozen=True)
class Template:
    """A pointwise loop nest whose sizes are symbols: what the members of a `Foreach` have in common.

    The one body runs over `axes` of extents n0, n1, ... or 1; its names are those of the first member. `sources` says
    for each statement which (body, statement) it is, counted in the member's group. `parameters` are the buffers in
    memory that it touches, `sizes` the symbols.
    """

    body: LoopBody
    parameters: tuple[str, ...]
    internal: frozenset[str]
    sizes: tuple[sympy.Symbol, ...]
    sources: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Member:
    """One run of a template: the group that it computes, and what its parameters and sizes are there."""

    group: Group
    arguments: tuple[str, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Foreach(Group):
    """A kernel that runs one loop nest for each of several sets of buffers and sizes (horizontal fusion).

    No member touches what another one writes. As a group it has no loops in common, and the bodies of all members: so
    what the kernel computes can be read off them.
    """

    template: Template = field(kw_only=True)
    members: tuple[Member, ...] = field(kw_only=True)


@dataclass(frozen=True)
class Plan:
    """A scheduled program: groups and library calls in execution order, and which buffer takes over whose memory."""

    program: Program
    items: tuple[Group | ExternCall, ...]
    reuse: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelSignature:
    """How a generated kernel is called: data pointers of `buffers` in order, then `symbols` as int64.

    A kernel returns an int64 status: 0, or 1 + the position in `bounds` of the indirect statement that was out of
    bounds (`bounds` are names of ATen nodes), which the wrapper turns into the IndexError that eager raises.
    """

    name: str
    buffers: tuple[str, ...]
    symbols: tuple[sympy.Symbol, ...] = ()
    bounds: tuple[str, ...] = ()


def scalar_buffer(symbol: sympy.Symbol) -> str:
    """The buffer, a 0-d float64, from which kernels load a dynamic float."""
    return f"value_of_{symbol}"


def identity(kind: str, dtype: torch.dtype) -> bool | int | float:
    """What a reduction over nothing gives."""
    if kind in ("sum", "any", *DOTS):
        return 0
    if kind in ("prod", "all"):
        return 1
    if dtype is torch.bool:
        return kind == "min"
    if dtype.is_floating_point:
        return float("-inf") if kind == "max" else float("inf")
    limits = torch.iinfo(dtype)
    return limits.min if kind == "max" else limits.max
