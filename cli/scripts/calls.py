"""The calls of a script's own functions in a run in eager: with arguments as Python that makes them again."""
from __future__ import annotations

import dataclasses
from types import CodeType, FrameType
from typing import Any

import torch

from ...replay.reduce.units import Call
from ...replay.reduce.values import literal, tensor_text

DEPTH = 3  # of containers and constructors
LONGEST = 300
DIFFERENT = 2  # calls of one function that are kept, if their arguments differ


class Calls:
    """Keeps the first calls of each function, and how each object was constructed."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], list[Call]] = {}
        self.results: dict[tuple[str, int], Any] = {}
        self.made: dict[int, tuple[Any, str]] = {}  # by id; objects are held, so that ids stay

    def called(self, path: str, frame: FrameType) -> None:
        """A function of the program begins."""
        code = frame.f_code
        own = [name for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if name in frame.f_locals]
        if code.co_flags & 0x0C or not code.co_flags & 1 or code.co_name.startswith("<"):
            # *args and **kwargs; bodies of classes; lambdas, comprehensions
            return
        key = (path, code.co_firstlineno)
        calls = self.found.setdefault(key, [])
        if code.co_name == "__init__" and own:
            self._constructed(frame.f_locals[own[0]], [(n, self.text(frame.f_locals[n])) for n in own[1:]])
        if len(calls) >= DIFFERENT or "<locals>" in code.co_qualname:
            return
        call = Call(path, code.co_qualname, tuple((n, self.text(frame.f_locals[n])) for n in own), "", _in_class(code))
        if call not in calls:
            calls.append(call)

    def _constructed(self, subject: Any, arguments: list[tuple[str, str]]) -> None:
        if id(subject) in self.made and self.made[id(subject)][0] is subject:
            return  # the constructor of a base class
        self.made[id(subject)] = subject, _call(type(subject), arguments)

    def returned(self, path: str, code: CodeType, value: Any) -> None:
        """It ends."""
        self.results.setdefault((path, code.co_firstlineno), _with_gradient(value))

    def text(self, value: Any, depth: int = DEPTH) -> str:
        """Python that makes such a value; "" where that is not known."""
        text = self._text(value, depth)
        return text if len(text) <= LONGEST else ""

    def _text(self, value: Any, depth: int) -> str:
        if isinstance(value, torch.nn.Parameter):
            return f"torch.nn.Parameter({tensor_text(value.detach())})"
        if isinstance(value, torch.Tensor):
            return tensor_text(value)
        if plain := literal(value):
            return plain
        known = self.made.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        if depth and type(value) in (list, tuple, dict):
            return self._container(value, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value) if field.init]
            return _call(type(value), [(n, self.text(getattr(value, n, None), depth - 1)) for n in names])
        if isinstance(value, torch.nn.Module) and type(value).__module__.startswith("torch.nn.modules"):
            return "" if list(value.children()) else f"torch.nn.{value!r}"
        return ""

    def _container(self, value: Any, depth: int) -> str:
        if len(value) > 8:
            return ""
        if isinstance(value, dict):
            pairs = [(self.text(k, 0), self.text(v, depth - 1)) for k, v in value.items()]
            return f"{{{', '.join(f'{k}: {v}' for k, v in pairs)}}}" if all(k and v for k, v in pairs) else ""
        parts = [self.text(v, depth - 1) for v in value]
        if not all(parts):
            return ""
        return f"[{', '.join(parts)}]" if isinstance(value, list) else f"({', '.join(parts)}{',' * (len(parts) == 1)})"

    def document(self) -> list[dict[str, Any]]:
        """The calls as plain data; what is called last first."""
        return [
            dataclasses.asdict(dataclasses.replace(call, result=self.results.get(key) or ""))
            for key, calls in reversed(self.found.items()) for call in calls
        ]  # fmt: skip


def _call(kind: type, arguments: list[tuple[str, str]]) -> str:
    """The call of a class; "" where an argument is unknown."""
    known = all(text for _, text in arguments) and "<locals>" not in kind.__qualname__
    return f"{kind.__qualname__}({', '.join(f'{name}={text}' for name, text in arguments)})" if known else ""


def _in_class(code: CodeType) -> bool:
    return "." in code.co_qualname


def _with_gradient(value: Any) -> str:
    """How to get a tensor that has a gradient from a result: "" for none, "." for itself, "[1]"."""
    if isinstance(value, torch.Tensor):
        return "." if value.requires_grad else ""
    if isinstance(value, (tuple, list)):
        for index, part in enumerate(value):
            if isinstance(part, torch.Tensor) and part.requires_grad:
                return f"[{index}]"
    return ""
