"""What an entry point of a package takes and returns, and the check of a call against that.

Compiled code assumes ranks, dtypes, sizes and strides, which guards ensure for `torch.compile`. A package has no guards
and nothing to fall back to: each input is checked, and what does not fit is told by name.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...dependencies import msgspec
from .structure import Structure, leaves_of

PLAIN = (torch.Tensor, torch.nn.Parameter)

Number = int | str
"""A size or stride: a number, or a Python expression in symbols."""


class TensorInput(msgspec.Struct, frozen=True, tag="tensor"):
    """A tensor. `size` and `stride` are None where the graph does not read it; one that is `written` is never
    copied."""

    path: str
    dtype: str
    device: str
    size: tuple[Number, ...] | None
    stride: tuple[Number, ...] | None
    written: bool = False


class ConstantInput(msgspec.Struct, frozen=True, tag="constant"):
    """A value that is part of what was compiled: calls have to give the same."""

    path: str
    value: bool | int | float | str | None


class NumberInput(msgspec.Struct, frozen=True, tag="number"):
    """A number that varies; `kind` is "int" or "float"."""

    path: str
    kind: str


class Symbol(msgspec.Struct, frozen=True):
    """A size that varies: dimension `dim` of the leaf `leaf` (-1: a number itself), from `low` to `high` (None: no
    bound)."""

    name: str
    leaf: int
    dim: int
    title: str
    low: int | None
    high: int | None


class Place(msgspec.Struct, frozen=True):
    """What the graph gets at a position: the leaf `leaf` of the call, or the weight `weight`."""

    leaf: int = -1
    weight: str = ""


class Result(msgspec.Struct, frozen=True):
    """A leaf of what is returned: the graph's result number `output`, the leaf `leaf` of the call, a weight, or else
    `value`."""

    output: int = -1
    leaf: int = -1
    weight: str = ""
    value: bool | int | float | str | None = None


class Signature(msgspec.Struct, frozen=True):
    """All about one entry point. `parameters` are those that the example call gave, in order, with their structures;
    `positional` of them may be given by position. `conditions` on symbols are Python expressions."""

    name: str
    parameters: tuple[str, ...]
    positional: int
    structures: tuple[Structure, ...]
    inputs: tuple[TensorInput | ConstantInput | NumberInput, ...]
    symbols: tuple[Symbol, ...]
    conditions: tuple[str, ...]
    places: tuple[Place, ...]
    results: tuple[Result, ...]
    returned: Structure

    def __str__(self) -> str:
        titles = {symbol.name: symbol.title for symbol in self.symbols}
        lines = [f"{self.name}({', '.join(self.parameters)})"]
        for given in self.inputs:
            if isinstance(given, ConstantInput):
                lines.append(f"  {given.path}: {given.value!r}, a constant")
                continue
            if isinstance(given, NumberInput):
                lines.append(f"  {given.path}: {given.kind}")
                continue
            size = "any size" if given.size is None else f"[{', '.join(shown(n, titles) for n in given.size)}]"
            written = ", written" if given.written else ""
            lines.append(f"  {given.path}: {given.dtype} {size} on {given.device}{written}")
        for symbol in self.symbols:
            if symbol.dim >= 0 or symbol.low is not None or symbol.high is not None:
                lines.append(f"  {symbol.title}: {_range(symbol)}")
        lines += [f"  requires {shown(condition, titles)}" for condition in self.conditions]
        return "\n".join(lines)


class InputError(ValueError):
    """A call of a package gives something that it was not compiled for; the message names it."""


def shown(number: Number, titles: Mapping[str, str]) -> str:
    """A size or condition with the names that the person gave to symbols."""
    text = re.sub(r"[A-Za-z_]\w*", lambda found: titles.get(found[0], found[0]), str(number))
    return text.replace("(-1)*", "-")


def _range(symbol: Symbol) -> str:
    if symbol.low is None:
        return f"{symbol.high} or less"
    return f"{symbol.low} or more" if symbol.high is None else f"{symbol.low} to {symbol.high}"


Reader = Callable[[Sequence[Any], Mapping[str, Any]], tuple[list[Any], list[Any]]]


def reader(signature: Signature) -> Reader:
    """What makes the leaves of a call, checked: as they were given, and laid out as the graph wants them (copies of
    those in other strides). It raises InputError."""
    checks = _Checks(signature)

    def read(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
        values = _bound(signature, args, kwargs)
        leaves: list[Any] = []
        try:
            for name, structure in zip(signature.parameters, signature.structures):
                leaves += [value for _, value in leaves_of(structure, values[name], name)]
        except TypeError as error:
            raise InputError(str(error)) from None
        return leaves, checks.checked(leaves)

    return read


def _bound(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    names = signature.parameters
    if len(args) > signature.positional:
        raise InputError(f"{signature.name} takes {signature.positional} arguments by position, not {len(args)}")
    values = dict(zip(names, args))
    for name, value in kwargs.items():
        if name not in names:
            why = "it was exported without it, so with its default, if it has one"
            raise InputError(f"{signature.name} takes no argument {name!r}: {why}")
        if name in values:
            raise InputError(f"{signature.name} got {name!r} twice")
        values[name] = value
    missing = [name for name in names if name not in values]
    if missing:
        raise InputError(f"{signature.name} lacks {', '.join(missing)}: it was exported with {', '.join(names)}")
    return values


class _Checks:
    """The checks of the leaves of a call, prepared."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.titles = {symbol.name: symbol.title for symbol in signature.symbols}
        texts = [text for given in signature.inputs if isinstance(given, TensorInput)
                 for text in (*(given.size or ()), *(given.stride or ())) if isinstance(text, str)]
        self.code = {text: compile(text, "<package>", "eval") for text in (*texts, *signature.conditions)}
        self.names = _functions() if any("(" in text for text in self.code) else {}

    def checked(self, leaves: list[Any]) -> list[Any]:
        """The leaves, those in another layout copied."""
        for given, value in zip(self.signature.inputs, leaves):
            self._kind(given, value)
        symbols = {symbol.name: leaves[symbol.leaf] if symbol.dim < 0 else leaves[symbol.leaf].shape[symbol.dim]
                   for symbol in self.signature.symbols}
        for symbol in self.signature.symbols:
            self._in_range(symbol, symbols[symbol.name])
        for condition in self.signature.conditions:
            if not self._number(condition, symbols):
                values = ", ".join(f"{self.titles[name]} = {value}" for name, value in symbols.items())
                wanted = shown(condition, self.titles)
                raise InputError(f"it was compiled for {wanted}, which is not so for {values}")
        return [self._laid_out(given, value, symbols) if isinstance(given, TensorInput) else value
                for given, value in zip(self.signature.inputs, leaves)]

    def _kind(self, given: TensorInput | ConstantInput | NumberInput, value: Any) -> None:
        if isinstance(given, NumberInput):
            if type(value).__name__ != given.kind:
                raise InputError(f"{given.path} has to be a number of type {given.kind}, not {value!r}")
            if given.kind == "int" and not -(1 << 63) <= value < 1 << 63:
                raise InputError(f"{given.path} has to fit 64 bits, and is {value}")
            return
        if isinstance(given, ConstantInput):
            if type(value) is not type(given.value) or repr(value) != repr(given.value):  # of nan and -0.0, too
                raise InputError(f"{given.path} has to be {given.value!r}, with which it was exported, not {value!r}")
            return
        if not isinstance(value, torch.Tensor):
            raise InputError(f"{given.path} has to be a tensor, not a value of type {type(value).__name__}")
        if type(value) not in PLAIN and torch._C._dispatch_keys(value).has(torch._C.DispatchKey.Python):
            kind = type(value).__qualname__
            raise InputError(f"{given.path} has to be a plain tensor, not a {kind}, which has no memory of its own")
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype != given.dtype or str(value.device) != given.device or value.layout is not torch.strided:
            wanted = f"a strided {given.dtype} tensor on {given.device}"
            raise InputError(f"{given.path} has to be {wanted}, not {value.layout} {dtype} on {value.device}")
        if given.size is not None and value.dim() != len(given.size):
            sizes = [shown(n, self.titles) for n in given.size]
            raise InputError(f"{given.path} has to have {len(sizes)} dimensions [{', '.join(sizes)}], not "
                             f"{list(value.shape)}")

    def _in_range(self, symbol: Symbol, value: float) -> None:
        if (symbol.low is not None and value < symbol.low) or (symbol.high is not None and value > symbol.high):
            path = self.signature.inputs[symbol.leaf].path
            what = path if symbol.dim < 0 else f"dimension {symbol.dim} of {path} ({symbol.title})"
            raise InputError(f"{what} has to be {_range(symbol)}, not {value}")

    def _number(self, text: Number, symbols: Mapping[str, Any]) -> Any:
        return eval(self.code[text], dict(self.names), dict(symbols)) if isinstance(text, str) else text

    def _laid_out(self, given: TensorInput, value: torch.Tensor, symbols: Mapping[str, int]) -> torch.Tensor:
        if given.size is None or given.stride is None:
            return value
        size = tuple([self._number(n, symbols) for n in given.size])
        for dim, (wanted, found) in enumerate(zip(size, value.shape)):
            if wanted != found:
                meant = shown(given.size[dim], self.titles)
                what = meant if meant == str(wanted) else f"{meant} = {wanted}"
                raise InputError(f"dimension {dim} of {given.path} has to be {what}, not {found}")
        stride = tuple([self._number(n, symbols) for n in given.stride])
        plain = not (value.is_conj() or value.is_neg())
        if plain and all(a == b or n == 1 for a, b, n in zip(stride, value.stride(), size)):
            return value
        if given.written:
            raise InputError(f"{given.path} is written, so it has to have the strides {stride}, not {value.stride()}")
        return torch.empty_strided(size, stride, dtype=value.dtype, device=value.device).copy_(value)


def _functions() -> Mapping[str, Any]:
    """The functions of expressions in symbols (0.3 s to import)."""
    from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP

    return SYMPY_INTERP
