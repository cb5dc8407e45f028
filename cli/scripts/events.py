"""The values that a program computes through its compiled functions, in order: compared between two runs of it.

An event is a call of a compiled function (its results, and what it changed of its arguments), a backward (its root,
and the gradients of the leaves), or the end of the program (the tensors in its variables, and its modules). Gradients
of leaves are known by the content that a leaf had when it was first seen, since a compiled graph may reach them in
another order.
"""
from __future__ import annotations

import functools
import hashlib
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
import torch.utils._pytree as pytree

from ...tracer.runtime import eval_frame
from ...tracer.runtime.compile_wrappers import mark_compiled

ALLOWED = {torch.float64: 1e-9, torch.float32: 3e-4, torch.float16: 2e-2, torch.bfloat16: 8e-2}
"""How far apart two runs of a program may be by rounding, relative to the largest number of a tensor."""


Value = torch.Tensor | str | None


@dataclass(frozen=True)
class Event:
    """Something that a program computed. Each value has a label; a gradient that there is none of is None; what is no
    tensor is text."""

    kind: str  # call | backward | end
    name: str
    values: tuple[tuple[str, Value], ...]
    scale: float = 0.0  # of the numbers that are added up to values: what is small beside it may be rounding alone


CANCELLED = 16
"""Units in the last place of the numbers that went into a value: so far it may be off where they cancel out."""
MOST_CANCELLED = 1e-3
"""And at most this share of them: in bfloat16 and float16, units in the last place are as large as most gradients."""
TELLING = 1e-3
"""The largest element of a leaf, below which the size of its gradient is not guessed from it."""
MOST_HELD = 1000
"""Tensors of a list or a dict that are looked at when the program has run."""


@dataclass(frozen=True)
class Apart:
    """Two events that differ: what of them, and by how much of the largest number (infinite for NaN and layouts)."""

    what: str  # result | gradient | state | order; "missing gradient" where there is none
    why: str
    size: float
    nan: bool = False


class Observer:
    """Sees the events of a run. `on_event` gets each of them."""

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self.on_event = on_event
        self.labels: dict[int, tuple[torch.Tensor, str]] = {}  # of leaves, by id; held, so that ids stay
        self.depth = 0
        self.scale = 0.0  # the largest of a backward

    # ---- calls of compiled functions
    def around(self, compiled: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
        """`compiled`, with its calls observed."""

        def observed(*args: Any, **kwargs: Any) -> Any:
            if self.depth:
                return compiled(*args, **kwargs)
            given = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
            given += _written_by(original)
            before, plain = [t._version for t in given], _plain((args, kwargs))
            self.depth += 1
            try:
                result = compiled(*args, **kwargs)
            finally:
                self.depth -= 1
            changed = [t for t, version in zip(given, before) if t._version != version]
            changed += _others(given, (args, kwargs))
            after = _plain((args, kwargs))
            self._called(getattr(original, "__qualname__", ""), result, changed, "" if after == plain else after,
                         _usual(given))
            return result

        eval_frame.skip_code(observed.__code__)
        functools.update_wrapper(observed, original, updated=())
        mark_compiled(observed, original)
        return observed

    def _called(
        self, name: str, result: Any, changed: Sequence[torch.Tensor], arguments: str, scale: float
    ) -> None:
        values: list[tuple[str, Value]] = [(f"result {i}", _snapshot(t)) for i, t in enumerate(_numbers(result))]
        values += [(f"changed {i}", _snapshot(t)) for i, t in enumerate(changed)]
        values += [("results", _plain(result)), ("arguments", arguments)]
        self.on_event(Event("call", name, tuple(values), scale))

    # ---- backwards
    def watch_backwards(self) -> None:
        """Observe what autograd computes, through the one function that starts its engine."""
        autograd: Any = torch.autograd
        engine = autograd._engine_run_backward

        def run_backward(roots: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            if self.depth:
                return engine(roots, *args, **kwargs)
            leaves = list(_leaves(roots))
            labels = [self._label(leaf) for leaf in leaves]
            self.depth += 1
            try:
                result = engine(roots, *args, **kwargs)
            finally:
                self.depth -= 1
            self._went_back(roots, leaves, labels, result)
            return result

        autograd._engine_run_backward = run_backward

    def _label(self, leaf: torch.Tensor) -> str:
        if id(leaf) not in self.labels:
            content = leaf.detach().cpu().contiguous()
            digest = hashlib.sha256(content.reshape(-1).view(torch.uint8).numpy().data).hexdigest()[:16]
            self.labels[id(leaf)] = leaf, f"{leaf.dtype}{list(leaf.shape)} {digest}"
        return self.labels[id(leaf)][1]

    def _went_back(self, roots: Sequence[Any], leaves: Sequence[torch.Tensor], labels: Sequence[str], result: Any,
                   ) -> None:
        values: list[tuple[str, Value]] = [
            (f"root {i}", _snapshot(r)) for i, r in enumerate(roots) if isinstance(r, torch.Tensor)]
        if isinstance(result, (tuple, list)):
            values += [(f"gradient {i}", _snapshot(g)) for i, g in enumerate(result)]
        found = sorted(
            ((label, _snapshot(leaf.grad)) for label, leaf in zip(labels, leaves)),
            key=lambda pair: (pair[0], _size(pair[1])),
        )
        values += [pair for pair in found if pair[1] is not None]
        self.on_event(Event("backward", "", tuple(values), _per_element(roots, leaves)))
        self.scale = max(self.scale, _per_element(roots, leaves))

    # ---- the end
    def ended(self, namespace: dict[str, Any]) -> None:
        """The program has run: the tensors in the variables of its module, and the state of modules there."""
        values: list[tuple[str, Value]] = []
        for name, value in sorted(namespace.items()):
            if isinstance(value, torch.Tensor):
                values.append((name, _snapshot(value)))
                if value.is_leaf and value.grad is not None:
                    values.append((f"gradient of {name}", _snapshot(value.grad)))
            elif isinstance(value, torch.nn.Module):
                values += [(f"{name}.{key}", _snapshot(t)) for key, t in sorted(_state(value))]
                values += [(f"{name}.{key}", text) for key, text in sorted(_attributes(value))]
            elif isinstance(value, (list, tuple, dict)) and not name.startswith("_"):
                held = _others((), value)
                values.append((f"number of tensors in {name}", str(len(held))))
                values += [(f"{name} {i}", _snapshot(t)) for i, t in enumerate(held[:MOST_HELD])]
        self.on_event(Event("end", "", tuple(values), self.scale))


def _state(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        yield from module.named_parameters()
        yield from module.named_buffers()
    except Exception:  # a module of its own kind
        return


def _attributes(module: torch.nn.Module) -> Iterator[tuple[str, str]]:
    """The plain attributes of a module and of those in it, which are its own."""
    for path, inner in module.named_modules():
        for name, value in vars(inner).items():
            if not name.startswith("_") and isinstance(value, (bool, int, str, type(None))):
                yield f"{path}.{name}".lstrip("."), repr(value)


def _plain(tree: Any) -> str:
    """How values are nested, with the plain ones; of others their types."""
    leaves, structure = pytree.tree_flatten(tree)
    texts = ["Tensor" if isinstance(leaf, torch.Tensor) else repr(leaf) if type(leaf) in _TEXTS else type(leaf).__name__
             for leaf in leaves]  # fmt: skip
    return f"{structure.num_leaves} values: {', '.join(texts)}"


_TEXTS = (bool, int, str, type(None))


def _numbers(tree: Any) -> list[torch.Tensor]:
    """The tensors among values, and floats as such."""
    leaves = [torch.tensor(v, dtype=torch.float32) if type(v) is float else v for v in pytree.tree_leaves(tree)]
    return [v for v in leaves if isinstance(v, torch.Tensor)]


def _others(known: Sequence[torch.Tensor], tree: Any) -> list[torch.Tensor]:
    """The tensors among values that are none of `known`."""
    ids = {id(t) for t in known}
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor) and id(t) not in ids]


def _written_by(function: Any) -> list[torch.Tensor]:
    """Tensors that a function may change without getting them: an optimizer's."""
    owner = function.__self__ if isinstance(function, MethodType) else None
    if not isinstance(owner, torch.optim.Optimizer):
        return []
    return [p for group in owner.param_groups for p in group["params"]]


def _leaves(roots: Sequence[Any]) -> Iterator[torch.Tensor]:
    """The leaves that a backward from `roots` reaches."""
    waiting = [r.grad_fn for r in roots if isinstance(r, torch.Tensor) and r.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            yield leaf
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


def _top(value: Any) -> float:
    """The largest finite number of a tensor of floats; 0.0 for what is none."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or not value.is_floating_point():
        return 0.0
    finite = value.detach()[value.detach().isfinite()] if value.numel() and not value.is_meta else value.new_empty(0)
    return finite.abs().max().item() if finite.numel() else 0.0


def _per_element(roots: Sequence[Any], leaves: Sequence[torch.Tensor]) -> float:
    """How large the parts are that a gradient adds up, at a guess: a root's change with one element of a leaf, if that
    has its share at random; at most the root, as small leaves say little. One of zeros (a bias, before training) tells
    nothing of it."""
    top, sizes = max(map(_top, roots), default=0.0), [(leaf.numel(), _top(leaf)) for leaf in leaves if leaf.numel()]
    return max((top / max(count**0.5 * size, 1.0) for count, size in sizes if size > TELLING), default=0.0)


def _usual(given: Sequence[torch.Tensor]) -> float:
    """How large the numbers are that a call adds up, at a guess: not as a mask, whose -1e9 is there to be lost."""
    tops = [top for t in given if (top := _top(t))]
    return statistics.median_low(tops) if tops else 0.0


def _snapshot(value: Any) -> torch.Tensor | None:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_meta:
        return None
    return value.detach().resolve_conj().cpu().clone()


def _size(value: torch.Tensor | None) -> float:
    return -1.0 if value is None else value.double().abs().nan_to_num().sum().item() if not value.is_complex() else 0.0


# ---- comparing ------------------------------------------------------------------------------------------------------
def first_apart(event: Event, expected: Event | None) -> Apart | None:
    """How an event of the compiled run differs from eager's; None if it does not."""
    if expected is None or (event.kind, event.name) != (expected.kind, expected.name):
        other = "nothing" if expected is None else f"{expected.kind} {expected.name}".strip()
        return Apart("order", f"{event.kind} {event.name}".strip() + f" where eager has {other}", math.inf)
    mine = _by_label(event)
    for label, values in _by_label(expected).items():
        what = "gradient" if event.kind == "backward" and not label.startswith("root") else _WHAT[event.kind]
        others = mine.get(label, [])
        for index, of_eager in enumerate(values):
            value = others[index] if index < len(others) else None
            found = _apart(value, of_eager, what, expected.scale)
            if found is not None:
                return found
    return None


_WHAT = {"call": "result", "backward": "result", "end": "state"}


def _by_label(event: Event) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for label, value in event.values:
        found.setdefault(label, []).append(value)
    return found


def _apart(value: Value, eager: Value, what: str, scale: float) -> Apart | None:
    if isinstance(eager, str) or isinstance(value, str):
        return None if value == eager else Apart(what, f"{str(value)[:60]} is not {str(eager)[:60]}", math.inf)
    if eager is None:
        return None
    if value is None:  # no gradient, which is one of zeros
        return Apart(f"missing {what}", "there is none", 1.0) if eager.count_nonzero() else None
    if value.shape != eager.shape or value.dtype != eager.dtype:
        return Apart(what, f"{value.dtype}{list(value.shape)} is not {eager.dtype}{list(eager.shape)}", math.inf)
    if value.numel() == 0 or torch.equal(value, eager):
        return None
    if not (value.is_floating_point() or value.is_complex()):
        different = int((value != eager).sum())
        return Apart(what, f"{different} of {eager.numel()} elements differ", different / eager.numel())
    wide = torch.complex128 if value.is_complex() else torch.float64
    v, e = value.to(wide), eager.to(wide)
    if not torch.equal(v.isfinite(), e.isfinite()):
        return Apart(what, "NaN or infinite where eager's is not", math.inf, bool((e.isfinite() & ~v.isfinite()).any()))
    finite = e.isfinite()
    distance = (v - e)[finite].abs().max().item() if finite.any() else 0.0
    top = e[finite].abs().max().item() if finite.any() else 0.0
    if eager.is_floating_point() and distance <= scale * min(
            CANCELLED * torch.finfo(eager.dtype).eps, MOST_CANCELLED):
        return None
    size = distance / top if top else (math.inf if distance else 0.0)
    if size <= ALLOWED.get(eager.dtype, 3e-4):
        return None
    return Apart(what, f"max abs {distance:.3g} of {top:.3g}", size)


def program_globals() -> dict[str, Any]:
    """The variables of the program's module."""
    return sys.modules["__main__"].__dict__
