"""Random torch programs for the differential fuzz of the engine: what they are made of, and how they run.

A program is a list of inputs and a list of calls. It is built by running it: each call is tried in eager on real
tensors, and dropped when eager raises. Everything derives from one seed.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from ptdebug.operators.overlap import repeats

from .fuzz_devices import CREATING, here

NAMES = {"torch": torch, "F": F, "operator": operator, "math": math, "inf": math.inf, "nan": math.nan}
LIMIT = 20000  # elements of a result

FLOATS = (torch.float32,) * 7 + (torch.float64,) * 2 + (torch.bfloat16,) * 2 + (torch.float16,) * 2
INTEGERS = (torch.int64,) * 3 + (torch.int32,) * 2 + (torch.int16, torch.int8, torch.uint8)
BOOLS = (torch.bool,)
COMPLEX = (torch.complex64, torch.complex128)
LOW = (torch.float16, torch.bfloat16)


RANDOM = frozenset(
    ("torch.rand_like", "torch.randn_like", "torch.rand", "torch.randint", "torch.randperm", "F.dropout",
     "torch.bernoulli", "torch.normal")
)
"""Functions that draw random numbers: a program is seeded with its own seed each time it runs."""


@dataclass(frozen=True)
class Ref:
    """An argument that is the value of that name."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Input:
    """A tensor of a program: a strided window on memory filled from `seed`; `data` overrides the filling."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    fill: str
    seed: int
    bound: int = 0
    data: torch.Tensor | None = None

    @property
    def span(self) -> int:
        """Elements of the memory, from its start."""
        if 0 in self.shape:
            return self.offset
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride))

    def make(self, device: torch.device | str | None = None) -> torch.Tensor:
        """A new tensor, where programs run unless told otherwise."""
        own = self.data is None
        memory = filled(self.span, self.dtype, self.fill, self.seed, self.bound) if own else self.data.clone()
        return memory.to(device or here().tensors).as_strided(self.shape, self.stride, self.offset)

    def __str__(self) -> str:
        source = f"filled({self.fill!r}, {self.seed}, {self.bound})"
        if self.data is not None:
            source = f"{self.data.tolist()}" if self.data.numel() <= 24 else f"{self.data[:24].tolist()[:-1]}..."
        return f"{self.name} = {source} as {self.dtype} {self.shape}, strides {self.stride}, offset {self.offset}"


@dataclass(frozen=True)
class Call:
    """`name = function(*args, **kwargs)`; the function is a Python expression over `NAMES`."""

    name: str
    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [repr(a) for a in self.args] + [f"{k}={v!r}" for k, v in self.kwargs.items()]
        return f"{self.name} = {self.function}({', '.join(parts)})"

    @property
    def target(self) -> Callable[..., Any]:
        """The function itself."""
        return eval(self.function, dict(NAMES))  # type: ignore[no-any-return]

    def options(self, device: torch.device) -> dict[str, Any]:
        """The keyword arguments on a device: a function that makes a tensor from numbers is told where."""
        return {**self.kwargs, "device": device} if self.function in CREATING and device.type != "cpu" else self.kwargs


@dataclass(frozen=True)
class Program:
    """Inputs, calls and the names of the results."""

    seed: int
    inputs: tuple[Input, ...]
    calls: tuple[Call, ...]
    results: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(
            [f"# seed {self.seed}", *map(str, self.inputs), *map(str, self.calls), f"return {', '.join(self.results)}"]
        )

    def tensors(self) -> list[torch.Tensor]:
        """New inputs."""
        return [i.make() for i in self.inputs]


def filled(count: int, dtype: torch.dtype, fill: str, seed: int, bound: int) -> torch.Tensor:
    """`count` values: "normal", "special" (NaN, infinities, signed zeros, ends of the range), "small" integers, "index"
    (0 to bound - 1) or "wrapped" (-bound to bound - 1)."""
    source = torch.Generator().manual_seed(seed)
    if fill in ("index", "wrapped"):
        low = 0 if fill == "index" else -bound
        return torch.randint(low, max(bound, low + 1), (count,), generator=source).to(dtype)
    if dtype is torch.bool:
        return torch.randint(0, 2, (count,), generator=source).bool()
    small = torch.randint(0 if dtype is torch.uint8 else -5, 6, (count,), generator=source)
    if fill == "small":
        return small.to(dtype)
    if dtype.is_complex:
        values = torch.randn(count, 2, generator=source, dtype=torch.float64)
        return torch.view_as_complex(values).to(dtype)
    if dtype.is_floating_point:
        values = (torch.randn(count, generator=source, dtype=torch.float64) * 2).to(dtype)
        info = torch.finfo(dtype)
        most = info.max if dtype != torch.float64 else 2.0**100  # in float32's range, which tells errors
        odd = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -2.5, most, -most, info.tiny, info.eps]
    else:
        limits = torch.iinfo(dtype)
        values = torch.randint(limits.min // 2, limits.max // 2, (count,), generator=source).to(dtype)
        odd = [0, 1, limits.max, limits.min, limits.max - 1, 7]
    if fill == "special":
        chosen = torch.tensor(odd, dtype=dtype)[torch.randint(0, len(odd), (count,), generator=source)]
        return torch.where(torch.rand(count, generator=source) < 0.4, chosen, values)
    return values if dtype.is_floating_point else small.to(dtype)


class Builder:
    """A program under construction, with its values in eager."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        torch.manual_seed(seed)
        self.inputs: list[Input] = []
        self.calls: list[Call] = []
        self.values: dict[str, torch.Tensor] = {}
        self.fixed: set[int] = set()  # storages that overlap themselves: never written to
        self.low = self.rng.random() < 0.25  # whether 16-bit floats appear
        self.odd = self.rng.random() < 0.3  # whether NaN, infinities and ends of ranges appear

    # ---- choosing
    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.rng.random() < probability

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """A random shape; sometimes with dimensions of 0 and 1, seldom large."""
        count = self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)) if rank is None else rank
        if self.chance(0.04) and count:
            return tuple(self.rng.choice((1, 5, 33, 130)) for _ in range(min(count, 2))) + (1,) * max(count - 2, 0)
        sizes = [self.rng.choice((1, 2, 3, 4, 5, 7, 8, 9, 16, 17)) for _ in range(count)]
        if self.chance(0.04) and count:
            sizes[self.rng.randrange(count)] = 0
        return tuple(sizes)

    def dtype(self, kinds: str = "fib") -> torch.dtype:
        """A random dtype of the kinds f(loat), i(nteger), b(ool), c(omplex)."""
        kind = self.rng.choice([k for k in kinds for _ in range({"f": 8, "i": 3, "b": 1, "c": 1}[k])])
        if kind == "f":
            return self.rng.choice([d for d in FLOATS if self.low or d not in LOW])
        return self.rng.choice({"i": INTEGERS, "b": BOOLS, "c": COMPLEX}[kind])

    def tensor(
        self,
        kinds: str = "fib",
        shape: tuple[int, ...] | None = None,
        least: int = 0,
        most: int = 9,
    ) -> Ref:
        """A value that fits, old ones before a new input."""
        fits = [
            n
            for n, v in self.values.items()
            if kind_of(v.dtype) in kinds and least <= v.dim() <= most and (shape is None or tuple(v.shape) == shape)
        ]
        if fits and self.chance(0.85):
            return Ref(self.rng.choice(fits[-4:] if self.chance(0.6) else fits))
        if shape is None:
            shape = self.shape(self.rng.randint(least, max(least, min(most, 4))))
        return self.input(shape, self.dtype(kinds))

    def partner(self, other: Ref, kinds: str = "fib") -> Ref:
        """A value that broadcasts with another."""
        shape = tuple(self.values[other.name].shape)
        fits = [n for n, v in self.values.items() if kind_of(v.dtype) in kinds and broadcasts(tuple(v.shape), shape)]
        if fits and self.chance(0.6):
            return Ref(self.rng.choice(fits))
        kept = shape[self.rng.choice((0, 0, 0, 1, len(shape))) :]
        return self.input(tuple(1 if self.chance(0.2) else n for n in kept), self.dtype(kinds))

    def scalar(self, floating: bool = True) -> Any:
        """A Python number."""
        if floating and self.chance(0.6):
            return self.rng.choice((0.5, -1.5, 2.0, 3.0, 0.1, -0.0, 1e-3, 1.0, 7.25))
        return self.rng.choice((0, 1, 2, 3, -1, -2, 5, 7, True))

    def dim(self, x: Ref) -> int:
        """A dimension of a value, from the front or the back."""
        rank = max(self.values[x.name].dim(), 1)
        return self.rng.randrange(-rank, rank)

    def input(self, shape: tuple[int, ...], dtype: torch.dtype, fill: str = "", bound: int = 0) -> Ref:
        """A new input, in some layout."""
        name = f"a{len(self.inputs)}"
        stride, offset, overlaps = self.layout(shape)
        fill = fill or ("special" if self.odd and self.chance(0.7) else self.rng.choice(("normal", "normal", "small")))
        made = Input(name, shape, stride, offset, dtype, fill, self.rng.randrange(2**31), bound)
        self.inputs.append(made)
        self.values[name] = made.make("cpu")
        if overlaps:
            self.fixed.add(self.values[name].untyped_storage()._cdata)
        return Ref(name)

    def layout(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, bool]:
        """(strides, offset, whether elements share memory) for a shape."""
        kinds = ("permuted", "permuted", "channels last", "sliced", "sliced", "expanded", "overlapping")
        kind = self.rng.choice(("dense",) * 6 + kinds)
        order = list(range(len(shape)))
        if kind == "channels last" and len(shape) > 3:
            order = [0, *order[2:], 1]
        if kind == "permuted":
            self.rng.shuffle(order)
        stride = [0] * len(shape)
        running = self.rng.choice((1, 1, 2, 3)) if kind == "sliced" else 1
        for d in reversed(order):
            stride[d] = running
            running *= max(shape[d], 1) + (self.rng.choice((0, 0, 1, 4)) if kind == "sliced" else 0)
        overlaps = False
        if kind in ("expanded", "overlapping") and shape:
            d = self.rng.randrange(len(shape))
            stride[d] = 0 if kind == "expanded" else max(1, stride[d] // 2)
            overlaps = True
        return tuple(stride), self.rng.choice((0, 0, 1, 5)) if kind == "sliced" else 0, overlaps

    # ---- calling
    def emit(self, function: str, *args: Any, **kwargs: Any) -> Ref | None:
        """Try a call in eager; None where it raises or its result does not fit."""
        call = Call(f"v{len(self.calls)}", function, args, kwargs)
        if any(unsafe(call, self.values)):
            return None
        try:
            made = apply(call, self.values, torch.device("cpu"))
        except Exception:
            return None
        if isinstance(made, (tuple, list)) and all(isinstance(m, torch.Tensor) for m in made) and made:
            self.calls.append(call)
            self.values[call.name] = made  # type: ignore[assignment]
            part = self.emit("operator.getitem", Ref(call.name), self.rng.randrange(len(made)))
            del self.values[call.name]
            return part
        if not isinstance(made, torch.Tensor) or made.numel() > LIMIT or made.layout is not torch.strided:
            return None
        self.calls.append(call)
        self.values[call.name] = made
        return Ref(call.name)

    def writable(self, x: Ref) -> bool:
        """Whether a value may be written to in place."""
        return self.values[x.name].untyped_storage()._cdata not in self.fixed

    def finish(self) -> Program:
        """The program, with the values that nothing reads, and a few others, as results."""
        read = {r.name for call in self.calls for r in refs((call.args, call.kwargs))}
        made = [c.name for c in self.calls if c.name in self.values]
        results = [n for n in made if n not in read or self.chance(0.15)] or made[-1:]
        self.rng.shuffle(results)
        used = read | set(results)
        return Program(
            self.seed, tuple(i for i in self.inputs if i.name in used), tuple(self.calls), tuple(results[:6])
        )


def kind_of(dtype: torch.dtype) -> str:
    """f(loat), i(nteger), b(ool) or c(omplex)."""
    return "b" if dtype is torch.bool else "c" if dtype.is_complex else "f" if dtype.is_floating_point else "i"


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two shapes broadcast together."""
    return all(x == y or x == 1 or y == 1 for x, y in zip(a[::-1], b[::-1]))


def refs(tree: Any) -> list[Ref]:
    """The references in an argument tree."""
    if isinstance(tree, Ref):
        return [tree]
    if isinstance(tree, (tuple, list)):
        return [r for item in tree for r in refs(item)]
    if isinstance(tree, dict):
        return refs(list(tree.values()))
    return refs([tree.start, tree.stop, tree.step]) if isinstance(tree, slice) else []


def mapped(tree: Any, values: Any) -> Any:
    """An argument tree with references replaced."""
    if isinstance(tree, Ref):
        return values[tree.name]
    if isinstance(tree, (tuple, list)):
        return type(tree)([mapped(item, values) for item in tree])
    if isinstance(tree, dict):
        return {k: mapped(v, values) for k, v in tree.items()}
    return tree


def apply(call: Call, values: Any, device: torch.device | None = None) -> Any:
    """The result of a call on values by name, made where programs run unless told otherwise."""
    return call.target(*mapped(call.args, values), **mapped(call.options(device or here().tensors), values))


def unsafe(call: Call, values: dict[str, torch.Tensor]) -> Sequence[bool]:
    """Calls whose result C++ leaves undefined: float to integer out of range, the smallest integer divided, attention
    of a query whose elements share memory, memory around statistics."""
    tensors = [values[r.name] for r in refs((call.args, call.kwargs)) if isinstance(values.get(r.name), torch.Tensor)]
    name = call.function.rpartition(".")[2]
    checks = []
    narrowing = name in (
        "to",
        "type",
        "copy_",
        "fill_",
        "index_put_",
        "index_put",
        "masked_fill",
        "masked_fill_",
        "full_like",
        "index_copy",
        "scatter",
        "index_fill",
        "where",
        "cumsum",
        "sum",
        "prod",
        "cumprod",
        "add_",
        "mul_",
        "masked_scatter",
        "slice_scatter",
        "select_scatter",
        "diagonal_scatter",
        "scatter_",
        "bucketize",
    )
    target = call.kwargs.get("dtype") or next((a for a in call.args if isinstance(a, torch.dtype)), None)
    if narrowing and (target is None or not (target.is_floating_point or target.is_complex or target is torch.bool)):
        limit = torch.iinfo(target).max if target is not None else 0
        whole = target is not None or any(kind_of(t.dtype) == "i" for t in tensors)
        checks = [whole and kind_of(t.dtype) == "f" and not bool((t.abs() < max(limit, 100)).all()) for t in tensors]
    if name in ("floor_divide", "remainder", "fmod", "div", "gcd", "lcm"):
        checks += [kind_of(t.dtype) == "i" and bool((t == torch.iinfo(t.dtype).min).any()) for t in tensors]
    if name == "scaled_dot_product_attention":  # of such a query the kernel writes a part of the result only
        checks += map(repeats, tensors[:1])
    if name == "native_layer_norm_backward":  # which takes its statistics for contiguous
        checks += [not t.is_contiguous() for t in tensors[2:4]]
    if name == "ldexp":  # which resizes its argument
        checks += [t.shape != torch.broadcast_shapes(*[t.shape for t in tensors]) for t in tensors[:1]]
    return checks


def needs_another_device(program: Program) -> bool:
    """Whether a program with attention cannot run here: what is compiled for a GPU calls its kernels, which the CPU has
    not; and on a GPU eager itself may end in an error, after which the process can use it no more, since its kernels
    read masks that are broadcast in rows, and tensors that start, or whose rows start, anywhere, from misaligned
    addresses (torch 2.11)."""
    attends = [call for call in program.calls if call.function == "F.scaled_dot_product_attention"]
    if not attends or here().fakes.type == "cpu":
        return False
    masked = any(len(refs((call.args, call.kwargs))) > 3 for call in attends)
    return here().tensors.type == "cpu" or masked or any(map(_starts_anywhere, program.inputs))


def _starts_anywhere(given: Input) -> bool:
    """Whether an input, or a row of one that kernels of attention may take, is not at a multiple of 16 bytes."""
    rows = len(given.shape) == 4 and given.stride[-1] == 1
    steps = [s for n, s in zip(given.shape, given.stride[:-1]) if n > 1] if rows else []
    return bool(given.offset) or any(s * given.dtype.itemsize % 16 for s in steps)


# ---- programs written by hand
A, B, C = (Ref(name) for name in "abc")
V0, V1 = Ref("v0"), Ref("v1")


def given(
    name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, stride: tuple[int, ...] | None = None,
    offset: int = 0, fill: str = "normal", bound: int = 0, data: torch.Tensor | None = None,
) -> Input:
    return Input(name, shape, stride or torch.empty(shape).stride(), offset, dtype, fill, 1, bound, data)


def program(
    inputs: Sequence[Input], *calls: tuple[str, tuple[Any, ...], dict[str, Any]], results: Sequence[str] = ()
) -> Program:
    """Of (function, arguments, keyword arguments); the calls' results are v0, v1, ..., the last the program's."""
    made = tuple(Call(f"v{i}", function, args, kwargs) for i, (function, args, kwargs) in enumerate(calls))
    return Program(len(inputs), tuple(inputs), made, tuple(results) or (made[-1].name,))
