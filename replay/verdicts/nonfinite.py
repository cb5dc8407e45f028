"""Where NaNs and infinities are born: the first values that have some although nothing that they are computed from
has."""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...artifacts.records import Location


@dataclass(frozen=True)
class Operand:
    """What a value is computed from: its name, the element at the same place where there is one, and its range."""

    name: str
    value: Any
    smallest: float | None
    largest: float | None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"name": self.name, "value": self.value, "smallest": self.smallest, "largest": self.largest}


@dataclass(frozen=True)
class Birth:
    """One value with NaNs or infinities that its operands do not have. `stage` is where it was seen; `index` the first
    such element; `exact` that element in float64, as text ("" where unknown)."""

    stage: str
    node: str
    target: str
    kind: str  # NaN | inf | -inf
    count: int
    of: int
    index: tuple[int, ...]
    operands: tuple[Operand, ...]
    location: Location | None = None
    exact: str = ""
    reaches: tuple[str, ...] = ()  # the results that have some, too

    def document(self) -> dict[str, Any]:
        """As JSON."""
        where = self.location
        return {
            "stage": self.stage, "node": self.node, "target": self.target, "kind": self.kind, "count": self.count,
            "of": self.of, "index": list(self.index), "operands": [o.document() for o in self.operands],
            "float64": self.exact, "file": where.file if where else None, "line": where.line if where else None,
            "reaches": list(self.reaches), "text": self.text,
        }

    @property
    def text(self) -> str:
        """As one line."""
        where = f" ({self.location.file}:{self.location.line})" if self.location is not None else ""
        given = "; ".join(_operand_text(o) for o in self.operands)
        exact = f"; in float64 it is {self.exact}" if self.exact else ""
        at = f" at {list(self.index)}" if self.index else ""
        return (f"{self.kind} is born in {self.node} = {self.target}{where}: {self.count} of {self.of} elements, "
                f"first{at}, from {given or 'nothing'}{exact}")


def _operand_text(operand: Operand) -> str:
    if operand.value is not None:
        return f"{operand.name} = {operand.value}"
    if operand.smallest is None:
        return operand.name
    return f"{operand.name} in [{operand.smallest:.4g}, {operand.largest:.4g}]"


def kind_of(value: Any) -> str:
    """What a value has that is not finite: NaN before inf before -inf; "" where nothing is."""
    for leaf in value if isinstance(value, (tuple, list)) else (value,):
        found = _kind(leaf)
        if found:
            return found
    return ""


def _kind(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if not isinstance(value, torch.Tensor) or value.is_meta or not (value.is_floating_point() or value.is_complex()):
        return ""
    if value.layout is not torch.strided or not value.numel():
        return ""
    value = examined(value)
    if bool(value.isfinite().all()):
        return ""
    if bool(value.isnan().any()):
        return "NaN"
    return "inf" if value.is_complex() or bool((value == math.inf).any()) else "-inf"


def examined(value: torch.Tensor) -> torch.Tensor:
    """`value` as numbers of a dtype that torch can say of whether they are finite: not of 8 bits."""
    return value.float() if value.is_floating_point() and value.element_size() == 1 else value


def births(
    nodes: Iterable[tuple[str, str, Sequence[str]]], values: Mapping[str, Any], stage: str,
    exact: Mapping[str, Any], lines: Mapping[str, Location | None],
) -> list[Birth]:
    """The births among `nodes`: (name, what it calls, names of its operands) in order, with their `values`."""
    found = []
    for name, target, operands in nodes:
        kind = kind_of(values.get(name))
        given = [kind_of(values.get(operand)) for operand in operands]
        if not kind or "NaN" in given or kind in given or (kind != "NaN" and any(given)):
            continue
        tensor = _first_tensor(values[name])
        bad = _bad(tensor, kind)
        index = tuple(int(i) for i in bad.nonzero()[0]) if bad.dim() else ()
        found.append(Birth(
            stage, name, target, kind, int(bad.sum()), tensor.numel(), index,
            tuple(_operand(operand, values.get(operand), tensor, index) for operand in operands),
            lines.get(name), _exact(exact.get(name), tensor, index),
        ))  # fmt: skip
    return found


def _first_tensor(value: Any) -> torch.Tensor:
    leaves = value if isinstance(value, (tuple, list)) else (value,)
    tensor = next(leaf for leaf in leaves if _kind(leaf))
    return examined(tensor.detach().cpu()) if isinstance(tensor, torch.Tensor) else torch.tensor(tensor)


def _bad(tensor: torch.Tensor, kind: str) -> torch.Tensor:
    if kind == "NaN":
        return tensor.isnan()
    return tensor.isinf() if tensor.is_complex() else tensor == (math.inf if kind == "inf" else -math.inf)


def _operand(name: str, value: Any, result: torch.Tensor, index: tuple[int, ...]) -> Operand:
    if not isinstance(value, torch.Tensor):
        return Operand(name, value if isinstance(value, (int, float, bool)) else None, None, None)
    tensor = value.detach().cpu()
    place = index[len(index) - tensor.dim():] if tensor.dim() <= len(index) else None
    place = None if place is None else tuple(0 if n == 1 else i for i, n in zip(place, tensor.shape))
    fits = place is not None and _broadcasts(tensor.shape, result.shape)
    element = _text(tensor[place]) if fits and place is not None else None
    if tensor.is_complex() or not tensor.numel():
        return Operand(name, element, None, None)
    finite = tensor.double()
    finite = finite[finite.isfinite()]
    if not finite.numel():
        return Operand(name, element, None, None)
    return Operand(name, element, float(finite.min()), float(finite.max()))


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to)))


def _exact(value: Any, like: torch.Tensor, index: tuple[int, ...]) -> str:
    if isinstance(value, (tuple, list)):
        value = next((leaf for leaf in value if isinstance(leaf, torch.Tensor) and leaf.shape == like.shape), None)
    if not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return ""
    return str(_text(value.detach().cpu()[index]))


def _text(element: torch.Tensor) -> Any:
    number = element.item()
    return f"{number:.6g}" if isinstance(number, float) else str(number)
