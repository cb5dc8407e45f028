"""A captured frame as the person's own function, in Python, on the objects that it was called with."""
from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...artifacts.records import Argument, Frame, Guards
from ..recorded.graphs import ReplayError
from .compilation import Compilation
from .found_values import Found, found_values
from .graphs import compile_options
from .layout import wrapped
from .names import input_names
from .objects import BUILT, LOADED, Objects
from .program_source import Reached, is_of_program
from .script import Body, Header, Repro, compose
from .state_source import random_facts, state_lines
from .tensors import Tensors, made_up, random_tensor


def frame_repro(compilation: Compilation, construct: bool = False) -> Repro:
    """The script with the function of a compilation. `construct`: modules are made as the program makes them. Raises
    ReplayError where its source or its objects are not known well enough; the captured graph can be written then."""
    call = FrameCall(compilation, construct)
    header = Header(compilation.title("The function"), (*compilation.facts(compilation.id), *call.facts(),
                                                         *random_facts(compilation.graph)))
    settings = call.settings()
    return compose(Body(header, call.definitions, call.make, call.tensors, call.imports, settings, call.globals))


class FrameCall:
    """The parts of a script that calls the function: definitions, globals, and the body of `make`."""

    def __init__(self, compilation: Compilation, construct: bool = False, tensors: Tensors | None = None,
                 suffix: str = "", unbound: bool = False) -> None:
        self.unbound = unbound
        self.compilation = compilation
        self.frame: Frame = compilation.need(Frame, "frame")
        if "torch_dynamo_resume_in" in self.frame.function:
            raise ReplayError("this compilation is the rest of a function after a graph break")
        guards = compilation.recording.find(Guards, compilation.id, "guards")
        try:
            self.root = found_values(compilation.kept, guards)
        except LookupError as error:
            raise ReplayError(f"the graph has an input that is none of the function's variables: {error}") from error
        self.tensors = tensors or Tensors(compilation.is_recorded)
        values = compilation.values
        self.tensors.shared(values if compilation.is_recorded else ())
        outside = {str(key): found for key, found in self._of("G").items().items() if _has_values(found)}
        arguments = {argument.name for argument in self.frame.arguments}
        outside |= {str(key): found for key, found in self._of("L").items().items()
                    if key not in arguments and not found.subject}  # functions are found in the source
        callers = [place.file for place in self.frame.stack] if compilation.may_run else []
        self.reached = Reached(compilation.recording, outside, callers)
        names = [f"{name}{suffix}" for name in input_names(compilation.sources)]
        self.objects = Objects(values, names, _devices(compilation), self.tensors, self.reached,
                               self.frame.file, construct, compilation.may_run)
        self.name = self.frame.function.rpartition(".")[2]
        function = self._take_function()
        self.make = ["torch.manual_seed(0)"] if not compilation.is_recorded else []
        self.make += self._call(function)
        self.globals = {name: self.objects.expression(outside[name], name) for name in sorted(outside)}
        missing = {i for i, v in enumerate(values) if hasattr(v, "dtype")} - self.objects.used
        if missing:
            raise ReplayError(f"{compilation.sources[min(missing)]} is reached in a way that a script cannot show")

    def _of(self, scope: str) -> Found:
        return self.root.items().get(scope, Found())

    def _take_function(self) -> ast.FunctionDef | ast.AsyncFunctionDef:
        """Take over the function, or the class that it is a method of; a library's is imported."""
        if is_of_program(self.frame.file):
            return self.reached.function(self.frame.file, self.frame.line, self.name)
        return self.reached.source(self.frame.file).function_at(self.frame.line, self.name)[0]

    def _call(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
        """The lines of `make`: the callable, and its arguments by position."""
        known = {argument.name: argument for argument in self.frame.arguments}
        parameters = _parameters(function, self.frame.arguments)
        positional = parameters.positional
        owner = positional[0] if positional and self._is_method(positional[0]) else ""
        lines = []
        called = self._callable()
        if owner:
            called = owner if self.name in ("forward", "__call__") else f"{owner}.{self.name}"
            text = wrapped(self._argument(owner, known), 4)
            first, *others = text.split("\n")
            lines = [f"{owner} = {first}", *(line.removeprefix(" " * 4) for line in others)]
        if owner and self.unbound:  # a method as a function of its object
            called = f"type({owner}).{self.name}"
        given = [self._argument(name, known) for name in positional if name != owner]
        items = self._local(parameters.rest).items()
        given += [self.objects.expression(items[i], f"{parameters.rest}[{i}]") for i in sorted(items)]
        named = [f"{name}={self._argument(name, known)}" for name in parameters.named]
        named += [f"{key}={self.objects.expression(value, key)}"
                  for key, value in self._local(parameters.others).items().items()]
        if named:
            self.reached.imports["import functools"] = None
            called = f"functools.partial({called}, {', '.join(named)})"
        comments = [f"  # {name}" for name in positional if name != owner] + [""] * len(given)
        if owner and self.unbound:
            given, comments = [owner, *given], ["", *comments]
        texts = [wrapped(text, 8) + "," + comment for text, comment in zip(given, comments)]
        return [*lines, f"return {called}, [", *(f"    {line}" for text in texts for line in _outdented(text)), "]"]

    def _is_method(self, first: str) -> bool:
        return "." in self.frame.function and "<locals>" not in self.frame.function.rpartition(".")[0] and (
            first == "self" or bool(self._local(first).type))

    def _callable(self) -> str:
        """How the function is named: a static method by its class."""
        qualified = self.frame.function.rpartition("<locals>.")[2]
        if is_of_program(self.frame.file):
            return qualified
        if not self.frame.module.replace(".", "").replace("_", "").isalnum():
            raise ReplayError(f"the function is of the library file {self.frame.file}, whose module is not known")
        self.reached.imports[f"import {self.frame.module}"] = None
        return f"{self.frame.module}.{qualified}"

    def _local(self, name: str) -> Found:
        return self._of("L").items().get(name, Found())

    def _argument(self, name: str, known: dict[str, Argument]) -> str:
        found = self._local(name)
        try:
            return self.objects.expression(found, name)
        except ReplayError:
            argument = known.get(name)
            if found.children or argument is None:
                raise
            return _described(argument)

    @property
    def imports(self) -> list[str]:
        """Lines for the head of the script: imports, then what sets torch's global state."""
        namespaces = ["from types import SimpleNamespace"] if self.reached.parts else []
        return [*self.reached.imports, *namespaces, "import torch", *state_lines(self.compilation.kept.state)]

    @property
    def definitions(self) -> list[str]:
        """What the script takes over of the program, then what makes objects."""
        lines: list[str] = []
        for definition in self.reached.ordered():
            is_block = definition.text.lstrip().startswith(("def ", "class ", "@", "async "))
            gap = ["", ""] if is_block else []
            lines += [*(gap if lines else []), *definition.text.split("\n"), *gap]
        lines += ["", "", *self.reached.namespaces()] if self.reached.parts else []
        helpers = [BUILT] * self.objects.uses_built + [LOADED] * self.objects.uses_loaded
        lines += [line for helper in helpers for line in ("", "", *helper.split("\n"))]
        return lines

    def settings(self) -> dict[str, Any]:
        """The settings of the check."""
        compilation = self.compilation
        case = compilation.case()
        return {"COMPILER": compilation.compiler, "TRAINING": compilation.training, "FORCED": dict(case.forced),
                "OPTIONS": compile_options(compilation.graph, case.options)}

    def facts(self) -> list[str]:
        """Header lines."""
        inputs = "as recorded" if self.compilation.is_recorded else "made up from their recorded metadata"
        return [f"Its source is that of the recorded files; the tensors are {inputs}."]


@dataclass(frozen=True)
class Parameters:
    """The parameters of a code object; `rest` and `others` are those with one star, and two."""

    positional: list[str]
    named: list[str]
    rest: str = ""
    others: str = ""


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, recorded: Sequence[Argument]) -> Parameters:
    """Those of the function; where a decorator's function runs in its place, which has other ones, of that."""
    own = function.args
    found = Parameters(
        [a.arg for a in (*own.posonlyargs, *own.args)], [a.arg for a in own.kwonlyargs],
        own.vararg.arg if own.vararg else "", own.kwarg.arg if own.kwarg else "")
    names = {*found.positional, *found.named, found.rest, found.others} - {""}
    if not recorded or {a.name for a in recorded} == names:
        return found
    first = {kind: next((a.name for a in recorded if a.type == kind), "") for kind in ("tuple", "dict")}
    return Parameters([a.name for a in recorded if a.name not in first.values()], [], first["tuple"], first["dict"])


def _outdented(text: str) -> list[str]:
    """Lines whose second and later ones were indented for a place eight columns deep."""
    first, *others = text.split("\n")
    return [first, *(line.removeprefix(" " * 8) for line in others)]


def _has_values(found: Found) -> bool:
    """Whether a global holds tensors: others are taken over from the source."""
    return found.tensor is not None or any(_has_values(child) for child in found.children.values())


def _devices(compilation: Compilation) -> list[str]:
    return [item.meta.device if item.meta is not None else "cpu" for item in compilation.kept.inputs]


def _described(argument: Argument) -> str:
    """An argument that the function did not read, by its description."""
    if argument.type in ("int", "float", "bool", "str", "NoneType"):
        return str(argument.value)
    if argument.tensor is not None:
        return made_up(random_tensor(argument.tensor))
    return "None"
