"""What a call of the program leaves behind: its result, its arguments, and the variables of its module.

A call runs in copies of one process, once in eager and once compiled. What each leaves is written down as values by
their places, and those are compared.
"""
from __future__ import annotations

import sys
import sysconfig
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from ..verdicts.compare import Comparison, compare
from .identity import LITERALS, describe

MOST = 20_000
"""Values of a call that are looked at."""
LARGEST = 1 << 20
"""Elements of a tensor that is compared one by one; of a larger one, sums are."""

Value = tuple[str, Any]
"""A kind (tensor, same, literal, object) and what is known of the value."""
SAME: Value = ("same", None)
"""A tensor that the call has not written."""


def reachable(roots: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of `roots` by their places: tensors, literals, and objects that are not looked into."""
    found: dict[str, Any] = {}
    met: set[int] = set()
    waiting = deque(roots.items())
    while waiting and len(found) < MOST:
        place, value = waiting.popleft()
        if isinstance(value, torch.Tensor):
            found[place] = value
            if value.is_leaf and value.grad is not None:
                found[f"{place}.grad"] = value.grad
            continue
        inside = list(_inside(value))
        if not inside and not isinstance(value, (list, dict, tuple, set, deque)):
            found[place] = value
        elif id(value) not in met:
            met.add(id(value))
            if not isinstance(value, torch.nn.Module):
                found[f"len({place})"] = len(inside)
            waiting.extend((place + step, item) for step, item in inside)
    return found


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a container or object, each with what its place ends with."""
    if isinstance(value, dict):
        for number, (key, item) in enumerate(list(value.items())):
            yield f"[{key!r}]" if type(key) in LITERALS else f"[key {number}]", item
    elif isinstance(value, (list, tuple, deque)):
        yield from ((f"[{number}]", item) for number, item in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from (("{}", text) for text in sorted(describe(item)[0] for item in value))
    elif _is_open(value):
        yield from ((f".{name}", item) for name, item in vars(value).items() if not name.startswith("_compiled"))


def _is_open(value: Any) -> bool:
    """Whether the attributes of an object count: those of modules, optimizers, and the program's own classes."""
    if isinstance(value, (ModuleType, type, FunctionType, MethodType, BuiltinFunctionType)):
        return False
    if isinstance(value, (torch.nn.Module, torch.optim.Optimizer)):
        return True
    return isinstance(getattr(value, "__dict__", None), dict) and is_of_program(type(value).__module__)


def is_of_program(module: str) -> bool:
    """Whether a module is the program's own: from no library."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return module == "__main__" or (isinstance(file, str) and not file.startswith(_LIBRARIES)
                                    and module.partition(".")[0] != "ptdebug")


_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
                   | {str(Path(torch.__file__).parent.parent)})


def variables(module: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a module that a function may set; not what it imports or defines."""
    kinds = (ModuleType, type, FunctionType, BuiltinFunctionType)
    return {f"G[{name!r}]": value for name, value in list(module.items())
            if not name.startswith("__") and not isinstance(value, kinds)}


def written(after: Mapping[str, Any], before: Mapping[str, tuple[int, int]]) -> dict[str, Value]:
    """The leaves of a call as they are compared; tensors that are what they were `before` are not looked at again."""
    return {place: SAME if before.get(place) == mark(value) is not None else _value(value)
            for place, value in after.items()}


def mark(value: Any) -> tuple[int, int] | None:
    """What changes if a tensor is replaced or written."""
    if not isinstance(value, torch.Tensor) or value.is_inference():
        return None
    return id(value), value._version


def _value(value: Any) -> Value:
    if isinstance(value, np.ndarray) and value.dtype != object:
        value = torch.from_numpy(value.copy())
    if isinstance(value, torch.Tensor):
        return "tensor", (value.requires_grad, _content(value))
    if type(value) in (bool, int, float, complex, str, type(None)):
        return "literal", value
    return "object", describe(value)[0]


def _content(value: torch.Tensor) -> Any:
    """The numbers of a tensor, or what is known of them."""
    if value.layout is not torch.strided or value.is_meta or value.is_quantized or type(value) not in _PLAIN:
        return f"{type(value).__name__} {value.dtype} {tuple(value.shape)} {value.layout}"
    plain = value.detach().cpu().resolve_conj().resolve_neg()
    if plain.numel() <= LARGEST:
        return plain.clone()
    numbers = plain.to(torch.complex128 if plain.is_complex() else torch.float64)
    return torch.stack([numbers.sum(), numbers.abs().sum().to(numbers.dtype), numbers.reshape(-1)[-1]])


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def differences(
    found: Mapping[str, Value], eager: Mapping[str, Value], before: Mapping[str, Any]
) -> Iterator[tuple[str, Comparison]]:
    """The places where a compiled call left something else than eager. `before` has what was there."""
    for place in dict.fromkeys((*eager, *found)):
        mine, wanted = found.get(place), eager.get(place)
        if mine is None or wanted is None:
            yield place, Comparison("different", why="eager has none" if wanted is None else "eager has one")
            continue
        if mine == SAME and wanted == SAME:
            continue
        mine, wanted = (_value(before[place]) if one == SAME else one for one in (mine, wanted))
        verdict = _compared(mine, wanted)
        if verdict.verdict == "different":
            yield place, verdict


def _compared(mine: Value, eager: Value) -> Comparison:
    if mine[0] != eager[0]:
        return Comparison("different", why=f"{_words(mine)} is not {_words(eager)}")
    if mine[0] != "tensor":
        return compare(mine[1], eager[1])
    found = compare(mine[1][1], eager[1][1])
    if found.verdict != "different" and mine[1][0] != eager[1][0]:
        return Comparison("different", why=f"requires_grad is {mine[1][0]}, in eager {eager[1][0]}")
    return found


def _words(value: Value) -> str:
    return "a tensor" if value[0] == "tensor" else str(value[1])[:100]


def gradients(result: Any, leaves: Sequence[tuple[str, torch.Tensor]]) -> dict[str, Any]:
    """The gradients of what a call began with, for fixed tangents of its results."""
    roots = [t for t in reachable({"result": result}).values()
             if isinstance(t, torch.Tensor) and t.requires_grad and t.grad_fn is not None]
    if not roots or not leaves:
        return {}
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(r.shape, generator=generator, device="cpu", dtype=torch.float32) for r in roots]
    tangents = [torch.empty_like(r, requires_grad=False).copy_(m) for r, m in zip(roots, made)]
    try:
        found = torch.autograd.grad(roots, [leaf for _, leaf in leaves], tangents, allow_unused=True)
    except RuntimeError as error:
        return {"the gradients": f"{type(error).__name__}"}
    return {f"gradient of {place}": torch.zeros_like(leaf) if gradient is None else gradient
            for (place, leaf), gradient in zip(leaves, found)}
