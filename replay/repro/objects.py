"""Expressions that make the objects of a frame again, from what a recording knows of them."""
from __future__ import annotations

import ast
import importlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..recorded.graphs import ReplayError
from .found_values import UNKNOWN, Expression, Found
from .program_source import Reached
from .tensors import Tensors

BUILT = '''def built(made, **state):
    """An object with this state. Of a class, without its constructor, whose arguments were not recorded."""
    if isinstance(made, type):
        made = made.__new__(made)
        if isinstance(made, torch.nn.Module):
            torch.nn.Module.__init__(made)
    for name, value in state.items():
        setattr(made, name, value)
    return made'''
LOADED = '''def loaded(module, state):
    """The module with these parameters and buffers, as they were recorded."""
    own = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    for name, value in state.items():
        assert own[name].shape == value.shape, name
        own[name].data = value
    return module'''
_INSIDE = re.compile(r"_(global_)?(forward|backward|state|load|is_full|non_persistent|version|compiled|flat)\w*$")
"""Attributes of modules that torch keeps itself."""
_SUBJECT = re.compile(r"the (?:function|builtin|class|module) `([\w.<>]+)`")


class Objects:
    """Writes expressions. `values` are the inputs of the graph; `reached` takes over what they need of the program.
    `construct`: modules of the program's classes are made by their constructors, as the program calls them.
    `may_import`: libraries that the recording names may be imported; else those count that are."""

    def __init__(
        self, values: Sequence[Any], names: Sequence[str], devices: Sequence[str], tensors: Tensors, reached: Reached,
        file: str, construct: bool = False, may_import: bool = True,
    ) -> None:
        self.construct = construct
        self.module: Callable[[str], Any] = importlib.import_module if may_import else sys.modules.__getitem__
        self.uses_loaded = False
        self.siblings: dict[str, dict[str, Found]] = {}
        self.values = values
        self.names = names
        self.devices = devices
        self.tensors = tensors
        self.reached = reached
        self.file = file
        self.uses_built = False
        self.used: set[int] = set()

    def expression(self, found: Found, name: str) -> str:
        """An expression for an object. Raises ReplayError where too little is known of it."""
        if found.tensor is not None:
            return self._tensor(found)
        if isinstance(found.value, Expression):
            return str(found.value)
        if found.value is not UNKNOWN and not found.children:
            return _plain(found.value)
        if found.subject:
            return self._named(found.subject, name)
        if found.type in ("list", "tuple", "torch.Size", "dict", "collections.OrderedDict", "set"):
            return self._container(found, name)
        if found.type and found.type != "types.NoneType":
            return self._object(found, name)
        if found.items() and all(isinstance(key, int) for key in found.items()):
            return self._container(found, name, "list")
        raise ReplayError(f"nothing is known of {name}, which the function reads")

    def _tensor(self, found: Found) -> str:
        number = found.tensor
        assert number is not None
        self.used.add(number)
        value = self.values[number]
        text = self.tensors.expression(self.names[number], value, False, self.devices[number])
        if found.is_array:
            return f"{text}.numpy()"
        requires = isinstance(value, torch.Tensor) and value.requires_grad
        if found.kind == "parameter":
            return f"torch.nn.Parameter({text}{'' if requires else ', requires_grad=False'})"
        if found.kind == "buffer":
            return f"torch.nn.Buffer({text})"
        return text + (".requires_grad_()" if requires else "")

    def _named(self, subject: str, name: str) -> str:
        """A function, class or module by its name."""
        match = _SUBJECT.match(subject)
        if match is None or "<" in match[1]:
            raise ReplayError(f"{name} is {subject}, which a script cannot name")
        text = match[1]
        head = text.partition(".")[0]
        if head == "torch" and self._resolves(text):
            return text
        if self.reached.anywhere(head, self.file):
            return text
        for library, spelled in (("torch.nn.functional", "torch.nn.functional"), ("torch", "torch")):
            if "." not in text and self._resolves(f"{library}.{text}"):  # a builtin has no module
                return f"{spelled}.{text}"
        if self._resolves(text):
            self.reached.imports[f"import {head}"] = None
            return text
        raise ReplayError(f"{name} is {subject}, which the recorded files do not define")

    def _container(self, found: Found, name: str, kind: str = "") -> str:
        items, kind = found.items(), kind or found.type
        if kind in ("dict", "collections.OrderedDict"):
            inside = ", ".join(f"{key!r}: {self.expression(item, f'{name}[{key!r}]')}" for key, item in items.items())
            return "{" + inside + "}"
        length = found.length if found.length is not None else len(items)
        parts = [self.expression(items[i], f"{name}[{i}]") if i in items else "None" for i in range(length)]
        if kind == "list":
            return f"[{', '.join(parts)}]"
        if kind == "set":
            raise ReplayError(f"{name} is a set, whose elements are not recorded")
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    # ---- objects of classes
    def _object(self, found: Found, name: str) -> str:
        constructed = self._as_the_program(found) if self.construct and not found.type.startswith("torch.") else ""
        if constructed:
            return constructed
        cls = self._class(found.type, name)
        library = self._library_class(found.type)
        state = {key: value for key, value in found.attributes() if not _is_inside(key, value)}
        made = cls
        known = self.siblings.setdefault(found.type, {})  # what is guarded for one object only, of many with the same
        state = {key: value for key, value in known.items() if key not in state} | state
        known |= {key: value for key, value in state.items() if value.subject}
        if library is not None and issubclass(library, torch.nn.Module):
            made, state = self._constructed(cls, library, found, state)
        self.uses_built = self.uses_built or bool(state) or made == cls
        if not state and made != cls:
            return made
        parts = []
        for key, value in state.items():
            text = self.expression(value, f"{name}.{key}")
            parts.append(f"{key}={text}" if key.isidentifier() else f"**{{{key!r}: {text}}}")
        return f"built({', '.join([made, *parts])})"

    def _class(self, type_: str, name: str) -> str:
        library = self._library_class(type_)
        last = type_.rpartition(".")[2]
        if library is not None and type_.startswith("torch."):
            return f"torch.nn.{last}" if getattr(torch.nn, last, None) is library else type_
        if self.reached.anywhere(last, self.file):
            return last
        if library is not None:
            self.reached.imports[f"import {type_.rpartition('.')[0]}"] = None
            return type_
        raise ReplayError(f"{name} is of the class {type_}, which the recorded files do not define")

    def _library_class(self, type_: str) -> type | None:
        """The class of that name in a library that can be imported; None for the program's."""
        module, _, name = type_.rpartition(".")
        if not module or module == "__main__":
            return None
        try:
            found = getattr(self.module(module), name, None)
        except Exception:  # of the program's, which this process cannot import
            return None
        return found if isinstance(found, type) else None

    def _resolves(self, name: str) -> bool:
        head, *rest = name.split(".")
        try:
            found: Any = self.module(head)
        except Exception:  # as above
            return False
        for part in rest:
            found = getattr(found, part, None)
        return found is not None

    def _as_the_program(self, found: Found) -> str:
        """A module made by a call that the program has for its class, with the recorded tensors; "" without one."""
        tensors = dict(_tensors_in(found, ""))
        call = next(self.reached.calls(found.type.rpartition(".")[2], self.file), "")
        if not call or not tensors:
            return ""
        for node in ast.walk(ast.parse(call)):
            if isinstance(node, ast.Name):
                self.reached.anywhere(node.id, self.file)
        self.uses_loaded = True
        entries = [f"{key!r}: {self._plain_tensor(value)}" for key, value in tensors.items()]
        flags = {value for _, value in _flags_in(found)}
        ending = ".eval()" if flags == {False} else ""
        parameters = [value for value in tensors.values() if value.kind == "parameter"]
        if parameters and not any(_requires(self.values, value) for value in parameters):
            ending += ".requires_grad_(False)"
        return f"loaded({call}{ending}, {{{', '.join(entries)}}})"

    def _plain_tensor(self, found: Found) -> str:
        assert found.tensor is not None
        self.used.add(found.tensor)
        number = found.tensor
        return self.tensors.expression(self.names[number], self.values[number], False, self.devices[number])

    def _constructed(
        self, cls: str, library: type, found: Found, state: dict[str, Found]
    ) -> tuple[str, dict[str, Found]]:
        """The call of a library's constructor, and the state that it does not say; the class where that is unknown."""
        known = {key: _known(value) for key, value in state.items()}
        shapes = {key: tuple(self.values[v.tensor].shape) for key, v in state.items() if v.tensor is not None}
        derived = DERIVED.get(library.__name__, lambda *_: {})(shapes, known)
        try:
            parameters = list(inspect.signature(library).parameters.values())
        except (TypeError, ValueError):
            return cls, state
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            parameters = RECURRENT if library.__name__ in ("LSTM", "GRU", "RNN") else []
            if not parameters:
                return cls, state
        if "bias" in [p.name for p in parameters] and "weight" in shapes:
            derived["bias"] = "bias" in shapes
        said: dict[str, Any] = {}
        for parameter in parameters:
            value = derived.get(parameter.name, known.get(parameter.name, UNKNOWN))
            if value is UNKNOWN and parameter.default is parameter.empty:
                return cls, state
            if value is not UNKNOWN and value != parameter.default:
                said[parameter.name] = value
        left = {key: value for key, value in state.items()
                if value.tensor is not None or (key not in known or key not in {p.name for p in parameters})}
        return f"{cls}({', '.join(f'{key}={_plain(value)}' for key, value in said.items())})", {
            key: value for key, value in left.items() if known.get(key) is not True or key != "training"}


def _tensors_in(found: Found, path: str) -> Iterator[tuple[str, Found]]:
    """Parameters and buffers of a module and of those in it, by their keys in its state dict."""
    for key, value in found.attributes():
        if value.tensor is not None and value.kind in ("parameter", "buffer"):
            yield f"{path}{key}", value
        elif value.kind == "module":
            yield from _tensors_in(value, f"{path}{key}.")


def _flags_in(found: Found) -> Iterator[tuple[str, Any]]:
    """What is known of `training`, of a module and of those in it."""
    for key, value in found.attributes():
        if key == "training":
            yield key, value.value
        elif value.kind == "module":
            yield from _flags_in(value)


def _requires(values: Sequence[Any], found: Found) -> bool:
    return found.tensor is not None and bool(values[found.tensor].requires_grad)


def _known(found: Found) -> Any:
    """A plain value, or a tuple or list of such; UNKNOWN."""
    if found.value is not UNKNOWN and not isinstance(found.value, Expression):
        return found.value
    items = found.items()
    if found.type in ("tuple", "list") and found.length is not None and all(i in items for i in range(found.length)):
        parts = [_known(items[i]) for i in range(found.length)]
        if UNKNOWN not in parts:
            return tuple(parts) if found.type == "tuple" else parts
    return UNKNOWN


def _is_inside(name: str, found: Found) -> bool:
    """Whether an attribute is torch's own, or says nothing."""
    says = (found.tensor is not None or found.value is not UNKNOWN or found.subject or found.type or found.children)
    return bool(_INSIDE.match(name)) or not says or bool(found.same_as) or name == "_reversed_padding_repeated_twice"


def _plain(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)


Shapes = dict[str, tuple[int, ...]]
Derived = Callable[[Shapes, dict[str, Any]], dict[str, Any]]


def _of_weight(*names: str) -> Derived:
    """Constructor arguments that are sizes of the weight."""
    return lambda shapes, known: dict(zip(names, shapes["weight"])) if "weight" in shapes else {}


def _of_convolution(shapes: Shapes, known: dict[str, Any]) -> dict[str, Any]:
    groups = known.get("groups", 1)
    if "weight" not in shapes or not isinstance(groups, int):
        return {}
    out, inside, *kernel = shapes["weight"]
    return {"in_channels": inside * groups, "out_channels": out, "kernel_size": tuple(kernel)}


def _of_statistics(shapes: Shapes, known: dict[str, Any]) -> dict[str, Any]:
    sizes = shapes.get("weight") or shapes.get("running_mean")
    return {"num_features": sizes[0], "affine": "weight" in shapes} if sizes else {}


DERIVED: dict[str, Derived] = {
    "Linear": _of_weight("out_features", "in_features"), "Embedding": _of_weight("num_embeddings", "embedding_dim"),
    "GroupNorm": _of_weight("num_channels"), "PReLU": _of_weight("num_parameters"),
    **{f"Conv{n}d": _of_convolution for n in (1, 2, 3)}, **{f"BatchNorm{n}d": _of_statistics for n in (1, 2, 3)},
}
"""What constructors of torch.nn are told and modules do not keep, or the compiler did not read."""
RECURRENT = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default) for name, default in (
    ("input_size", inspect.Parameter.empty), ("hidden_size", inspect.Parameter.empty), ("num_layers", 1),
    ("bias", True), ("batch_first", False), ("dropout", 0.0), ("bidirectional", False), ("proj_size", 0))]
