"""`ptdebug.export`: a model as a package that runs without its Python (see `engine/package/`).

The model is compiled once, as one graph, for example arguments. What the graph gets and returns is told by identity:
each tensor it is called with is one of the arguments or of the model's parameters and buffers, and each tensor that the
call returns is one of its results, or of these. Nothing of the model changes: what the graph writes are copies.
"""
from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.fx.experimental._config

from ..artifacts.context import CompileContext
from ..dependencies import msgspec
from ..engine.compile import compile_graph
from ..engine.graph_cache.parts import Parts
from ..engine.graph_cache.values import DEVICES, Uncacheable
from ..engine.graphs.functional_graph import fake_mode_of
from ..engine.graphs.on_device import on_device
from ..engine.package import archive, cpp_interface, gpus
from ..engine.package.archive import Package
from ..engine.package.entry import Entry
from ..engine.package.program import Program
from ..engine.package.signature import ConstantInput, NumberInput, Place, Result, Signature, Symbol, TensorInput
from ..engine.package.structure import LEAVES, Structure, UnknownContainer, flatten, rebuild
from ..engine.runtime.entry import eager_form
from ..operators.overlap import share_memory
from ..tracer.breaks.raised_errors import FullGraphError
from ..tracer.shapes.frame_shapes import MarkedDynamicError
from . import session
from .compile_anything import compile_anything
from .errors import ExportError
from .explain import Collector
from .export_targets import TARGET_DEVICE, capabilities_of, cuda_of, prepare_for_absent_gpus
from .exported_code import CodeFiles
from .exported_numbers import ComputedFloat, ComputedInt, ComputedNumberUsed, computed
from .exported_sizes import ITSELF, Dims, Sizes, copied, dims_of, marked
from .module import OptimizedModule
from .wiring import requested

COMPUTED = (torch.Tensor, ComputedInt, ComputedFloat)
"""What a graph returns in the example call."""


@dataclass(frozen=True)
class EntryPoint:
    """Example arguments of one entry point of a package. `method` is the name of a method of the model, "" for a call
    of the model itself; `dynamic_shapes` as in torch.export."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    method: str = ""


@dataclass(frozen=True)
class Exported:
    """What `export` made: save it, or call it here."""

    package: Package

    def save(self, path: str | Path) -> Path:
        """Write it to a file, which `ptdebug.load` reads. Raises OSError."""
        archive.write(path, self.package)
        return Path(path)

    def program(self) -> Program:
        """The same as `ptdebug.load` gives: weights of its own, which its calls may write to."""
        return Program(archive.unpacked("the package", archive.packed(self.package)))

    def __repr__(self) -> str:
        return "\n".join(str(entry.signature) for entry in self.package.entries)


def export(
    model: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None,
    entry_points: Mapping[str, EntryPoint] | None = None, cpp: bool = False, target: str | Sequence[str] = (),
) -> Exported:
    """Compile a model (a module, a function, a `torch.export.ExportedProgram`) for the CPU or GPU that it is on, to be
    saved and loaded where its source is not.

    `args` and `kwargs` are an example call. Sizes are those of the example, except the dimensions that `dynamic_shapes`
    names, parallel to the arguments as in torch.export: a dict by parameter, or a sequence; for each tensor a dict
    {dimension: torch.export.Dim, or a name}, for a number that varies the Dim or name itself. Other numbers, strings
    and None are constants. No gradients are recorded.
    `entry_points` has several calls by name that share the weights (in its place, `args` are not given). With `cpp`,
    what cannot be called from C++ without Python is refused. With a `target` ("cuda:90", or several), a model and
    arguments that are on the CPU are compiled for GPUs of those compute capabilities, which need not be here: where the
    package is loaded, they are on `cuda:0`.

    Raises ExportError with everything that keeps the model from being one graph, ValueError for `dynamic_shapes` that
    do not fit or a `target` that is none, and what the model raises.
    """
    capabilities = capabilities_of((target,) if isinstance(target, str) else target)
    if capabilities:
        prepare_for_absent_gpus()
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    if isinstance(model, OptimizedModule) or type(model).__name__ == "OptimizedModule":  # torch.compile's
        model = model._orig_mod
    wanted = entry_points or {"forward": EntryPoint(tuple(args), dict(kwargs or {}), dynamic_shapes)}
    weights = _Weights(model)
    entries, decisions, files = [], [], CodeFiles(capabilities)
    for name, point in wanted.items():
        if not archive.is_name(name):
            raise ValueError(f"the entry point {name!r} needs a name of letters (a to z), digits and _")
        entries.append(files.moved(_Export(name, model, point, weights, capabilities).made()))
        why_not = cpp_interface.reason_against(entries[-1])
        if cpp and why_not:
            raise ExportError(f"{name} cannot be called from C++ without Python: {why_not}")
        decisions += [{"entry": name, **each} for each in weights.decisions]
    used = {place.weight for entry in entries for place in entry.signature.places if place.weight}
    used |= {result.weight for entry in entries for result in entry.signature.results if result.weight}
    kept = {name: tensor.detach() for name, tensor in weights.tensors.items() if name in used}
    _check_apart(entries, kept)
    there = gpus.elsewhere(capabilities) or gpus.here(entries, kept.values())
    return Exported(Package(tuple(entries), files.kernels, kept, msgspec.json.encode(decisions), files.own,
                            files.binaries, there, cuda_of(capabilities)))


def _check_apart(entries: Sequence[Entry], weights: Mapping[str, torch.Tensor]) -> None:
    """Raise ExportError where a weight that is written shares memory with another: each is a row of the file."""
    written = {entry.signature.places[k].weight for entry in entries for k in entry.written}
    for name in sorted(written & set(weights)):
        for other, tensor in weights.items():
            if other != name and share_memory(weights[name], tensor):
                raise ExportError(f"{name} is written and shares memory with {other}: a package cannot have that yet; "
                                  "register one buffer and make views of it where they are used")


class _Weights:
    """The tensors that the model holds, by name; those that only its code holds get a name when they are met."""

    def __init__(self, model: Any) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.names: dict[int, str] = {}
        self.decisions: list[dict[str, Any]] = []
        if isinstance(model, torch.nn.Module):
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                self.tensors[name], self.names[id(tensor)] = tensor, name

    def named(self, tensor: torch.Tensor) -> str:
        """Its name."""
        name = self.names.get(id(tensor))
        if name is None:
            name = next(new for k in itertools.count() if (new := f"constant{k}") not in self.tensors)
            self.tensors[name], self.names[id(tensor)] = tensor, name
        return name


class _Export:
    """The export of one entry point."""

    def __init__(
        self, name: str, model: Any, point: EntryPoint, weights: _Weights, capabilities: tuple[int, ...]
    ) -> None:
        self.name, self.model, self.weights, self.capabilities = name, model, weights, capabilities
        self.function = getattr(model, point.method) if point.method else model
        self.parameters, self.positional, values = _bound(self.function, point)
        self.structures: list[Structure] = []
        self.paths: list[str] = []
        leaves: list[Any] = []
        self.dims: list[Dims] = []
        for parameter, value, shapes in zip(self.parameters, values, _shapes(self.parameters, point.dynamic_shapes)):
            structure, found = _flattened(value, parameter)
            self.structures.append(structure)
            self.paths += [path for path, _ in found]
            leaves += [leaf for _, leaf in found]
            self.dims += dims_of(value, shapes, parameter)
        self.leaves = [marked(leaf, dims) if isinstance(leaf, torch.Tensor) else leaf
                       for leaf, dims in zip(leaves, self.dims)]
        self.sources = {leaf: _source(self.paths[leaf]) for leaf, dims in enumerate(self.dims) if ITSELF in dims
                        and not isinstance(self.leaves[leaf], torch.Tensor)}  # of the numbers that vary
        self.guards: list[Any] = []
        self.captured: Any = None
        self.attributes = _attributes(model)
        self.parts: Parts | None = None
        self.refused: ExportError | None = None
        self.inputs: tuple[Any, ...] = ()
        self.outputs: dict[int, int] = {}
        self.copies: dict[int, Any] = {}  # of tensors that the graph writes: what each is a copy of
        self._held: list[Any] = []

    def made(self) -> Entry:
        """The entry point. Raises ExportError."""
        returned = self._run()
        if self._sets():
            raise self._changing()
        if self.captured is None or self.parts is None or self.parts.entry is None:
            raise ExportError(f"{self.name} computes nothing with tensors, so there is no graph to export")
        structure, results = _flattened(returned, "the result")
        facts, half = self.parts.entry, self.parts.call
        self._check_numbers()
        inputs, symbols, conditions = self._inputs(set(facts.written))
        signature = Signature(
            self.name, tuple(self.parameters), self.positional, tuple(self.structures),
            inputs, symbols, conditions, tuple(map(self._place, self.inputs, self.captured.input_names)),
            tuple(self._result(*each) for each in results), structure)
        return Entry(signature, half, facts.written, facts.uncounted, self._python_only(), self.parts.flow,
                     self.parts.folding)

    def _run(self) -> Any:
        collector = Collector()
        quiet = session.Settings(inputs="none", overrides=session.current().settings.overrides)
        inside = session.enter(session.Session(quiet, collector, graphs=self._compile))
        leaves = iter(self.leaves)
        values = [rebuild(structure, leaves) for structure in self.structures]
        by_name = dict(zip(self.parameters[self.positional:], values[self.positional:]))
        try:
            # a choice that ATen makes by a size (of a convolution's backend) is no condition on it; one that a number
            # makes (where a slice ends) is
            settings = torch.fx.experimental._config.patch(backed_size_oblivious=not self.sources)  # type: ignore[attr-defined]
            with torch.no_grad(), settings:
                varying = tuple(self.sources.values())
                request = requested(fullgraph=True, isolated=True, automatic_dynamic=False, varying=varying)
                compiled = compile_anything(_with_hooks(self.function), request)
                returned = compiled(*values[:self.positional], **by_name)
                compiled(*values[:self.positional], **by_name)  # compiles again if the first changed something
                return returned
        except (FullGraphError, MarkedDynamicError, ComputedNumberUsed) as error:
            if self.refused is not None:
                raise self.refused from None
            if self._held and isinstance(error, FullGraphError):
                raise self._changing() from None
            advice = "\nThe marks are those of dynamic_shapes; torch.export.Dim.AUTO is a weak one."
            text = f"{error}{advice if isinstance(error, MarkedDynamicError) else ''}"
            raise ExportError(f"{self.name} cannot be exported as one graph.\n{text}") from None
        finally:
            session.leave(inside)
            self.weights.decisions = [msgspec.to_builtins(decision) for decision in collector.decisions]
            self.guards = [guard for record in collector.of_stage("guards") for guard in getattr(record, "guards", ())]

    def _python_only(self) -> str:
        """Why there is no C++ wrapper."""
        return next((each["why"] for each in self.weights.decisions if each["kind"] == "python-wrapper"), "")

    def _sets(self) -> list[str]:
        """The attributes that the call set."""
        before, after = self.attributes, _attributes(self.model)
        return [name for name in {**before, **after} if before.get(name, after) is not after.get(name, before)]

    def _changing(self) -> ExportError:
        names = self._sets()
        if names:
            return ExportError(f"{self.name} sets {', '.join(names[:5])}: a package cannot change attributes of the "
                               "model; register a buffer and write to it in place (copy_)")
        return ExportError(
            f"{self.name} changes what it depends on (an attribute, a list, a global), so a second call is compiled "
            "otherwise. Where that is a cache that the first call fills, call the model once before the export; else "
            "register a buffer and write to it in place (copy_)")

    def _compile(self, captured: Any, context: CompileContext) -> Callable[..., Any]:
        try:
            return self._compiled(captured, context)
        except ExportError as error:
            self.refused = self.refused or error
            raise FullGraphError(str(error)) from None  # other errors make the tracer go on in eager

    def _compiled(self, captured: Any, context: CompileContext) -> Callable[..., Any]:
        if self._held:
            raise self._changing()
        if self.captured is not None:
            raise ExportError(f"{self.name} is more than one graph")
        context.cpp_wrapper = context.without_python = True
        context.compiled_for = self.capabilities
        kept: list[Any] = []
        compiled = compile_graph(self._there(captured), context, kept.append)
        if self.capabilities:  # the example call runs here
            compiled = eager_form(captured.module)
        if context.fallback:
            raise ExportError(f"{self.name} cannot be compiled: {context.fallback.splitlines()[0]}")
        if not kept:
            raise ExportError(f"{self.name} is a graph of tensor subclasses: packages cannot have them")
        try:
            self.parts = kept[0]()
        except Uncacheable as reason:
            raise ExportError(f"{self.name} cannot be exported: {reason}") from None
        self.captured = captured
        written = set(self.parts.entry.written) if self.parts.entry is not None else set()

        def run(*inputs: Any) -> Sequence[Any]:
            given = [copied(value) if k in written else value for k, value in enumerate(inputs)]
            outputs = compiled(*given)
            if self._held:  # the second call
                return outputs
            outputs = [computed(value) for value in outputs]
            self.copies = {id(copy): value for copy, value in zip(given, inputs) if copy is not value}
            self.inputs, self._held = inputs, [given, outputs]
            self.outputs = {id(output): k for k, output in reversed(list(enumerate(outputs)))}
            return outputs

        return run

    def _there(self, captured: Any) -> Any:
        """The graph where it is to run. Raises ExportError where that is another GPU than the one it is on."""
        if not self.capabilities:
            return captured
        devices = {value.device for value in captured.inputs if isinstance(value, torch.Tensor)} - {torch.device("cpu")}
        if devices:
            raise ExportError(f"{self.name} is on {', '.join(sorted(map(str, devices)))}: with a target, a model and "
                              "its arguments are on the CPU")
        return on_device(captured, TARGET_DEVICE)

    def _leaf(self, value: Any) -> int:
        return next((k for k, leaf in enumerate(self.leaves) if leaf is value), -1)

    def _check_numbers(self) -> None:
        """Raise ExportError where what was compiled depends on a number that is to vary otherwise than by a symbol."""
        for leaf, source in self.sources.items():
            for guard in self.guards:
                if source in guard.source and guard.kind not in ("TYPE_MATCH", "SHAPE_ENV"):
                    raise ExportError(f"{self.paths[leaf]} cannot vary: {self.name} was compiled for {guard.code}")

    def _check_constant(self, path: str, value: Any) -> None:
        """Raise ExportError where a result that no graph computes may depend on a number that varies: what is made of
        floats and texts stays Python's."""
        for leaf in self.sources:
            given = self.leaves[leaf]
            made = type(value) in (int, float) and (type(given) is float or value == given)
            if made or isinstance(value, str):
                raise ExportError(f"{path} is {value!r}, which may come from the argument {self.paths[leaf]}, that is "
                                  "to vary: return tensors only, or give another example value")

    def _number(self, source: str) -> int:
        """The leaf that is the number at a source; -1 where it is none."""
        return next((leaf for leaf, each in self.sources.items() if each == source), -1)

    def _place(self, value: Any, source: str) -> Place:
        leaf = self._leaf(value) if isinstance(value, torch.Tensor) else self._number(source)
        if leaf >= 0:
            return Place(leaf)
        if not isinstance(value, torch.Tensor):
            raise ExportError(f"{self.name} depends on the number {value} ({source}), which varies: give it as a "
                              "tensor, or name it in dynamic_shapes")
        return Place(weight=self.weights.named(value))

    def _result(self, path: str, value: Any) -> Result:
        value = self.copies.get(id(value), value)
        if not isinstance(value, COMPUTED):
            self._check_constant(path, value)
            return Result(value=value)
        leaf = self._leaf(value)
        if leaf >= 0:
            return Result(leaf=leaf)
        if id(value) in self.outputs:
            return Result(output=self.outputs[id(value)])
        if id(value) in self.weights.names:
            return Result(weight=self.weights.names[id(value)])
        raise ExportError(f"{path} is a tensor that the graph does not make: it is made outside of it")

    def _inputs(self, written: set[int]) -> tuple[tuple[Any, ...], tuple[Symbol, ...], tuple[str, ...]]:
        """The inputs, symbols and conditions of the signature."""
        read = {self._leaf(value): k for k, value in enumerate(self.inputs) if self._leaf(value) >= 0}
        read |= {leaf: k for k, name in enumerate(self.captured.input_names) if (leaf := self._number(name)) >= 0}
        fakes = self.captured.inputs
        sizes = Sizes(fake_mode_of(self.captured).shape_env, [(leaf, fakes[k]) for leaf, k in read.items()], self.dims)
        inputs: list[Any] = []
        for leaf, (path, value) in enumerate(zip(self.paths, self.leaves)):
            if leaf in self.sources:
                if leaf not in read or not sizes.varies(leaf):
                    raise ExportError(f"{path} cannot vary: {self.name} was compiled for its value {value}, on which "
                                      "a condition, a text or the number of turns of a loop depends, or nothing at all")
                inputs.append(NumberInput(path, type(value).__name__))
                continue
            if not isinstance(value, torch.Tensor):
                inputs.append(ConstantInput(path, value))
                continue
            dtype, device = str(value.dtype).removeprefix("torch."), str(self._device(value))
            if leaf not in read:
                inputs.append(TensorInput(path, dtype, device, None, None))
                continue
            fake = fakes[read[leaf]]
            size, stride = tuple(map(sizes.number, fake.shape)), tuple(map(sizes.number, fake.stride()))
            inputs.append(TensorInput(path, dtype, device, size, stride, read[leaf] in written))
        return tuple(inputs), tuple(sizes.symbols.values()), sizes.conditions()

    def _device(self, value: torch.Tensor) -> torch.device:
        """Where an argument is to be."""
        return TARGET_DEVICE if self.capabilities else value.device


def _source(path: str) -> str:
    """What the tracer calls the argument at a path."""
    name = re.match(r"\w+", path)
    assert name is not None
    return f"L[{name[0]!r}]{path[name.end():]}"


def _with_hooks(function: Any) -> Any:
    """What is compiled as one graph with the hooks of the module itself, if it has any."""
    if not isinstance(function, torch.nn.Module) or not (function._forward_hooks or function._forward_pre_hooks):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _bound(function: Any, point: EntryPoint) -> tuple[list[str], int, list[Any]]:
    """(names of the arguments given, how many of them by position, their values)."""
    call = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        bound = inspect.signature(call).bind_partial(*point.args)
        inspect.signature(call).bind(*point.args, **point.kwargs)
    except (TypeError, ValueError) as error:
        raise ExportError(f"the example arguments do not fit: {error}") from None
    kinds = inspect.signature(call).parameters
    given: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        several = kinds[name].kind is inspect.Parameter.VAR_POSITIONAL
        given |= {f"{name}{k}": each for k, each in enumerate(value)} if several else {name: value}
    return [*given, *point.kwargs], len(given), [*given.values(), *point.kwargs.values()]


def _shapes(parameters: Sequence[str], given: Any) -> list[Any]:
    """What `dynamic_shapes` says for each parameter."""
    if given is None:
        return [None] * len(parameters)
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in parameters]
        if unknown:
            raise ValueError(f"dynamic_shapes names {', '.join(map(str, unknown))}, and the arguments are "
                             f"{', '.join(parameters)}")
        return [given.get(name) for name in parameters]
    if not isinstance(given, (list, tuple)) or len(given) != len(parameters):
        raise ValueError(f"dynamic_shapes has to be a dict by parameter, or a sequence of {len(parameters)}")
    return list(given)


def _flattened(value: Any, path: str) -> tuple[Structure, list[tuple[str, Any]]]:
    try:
        structure, leaves = flatten(value, path, COMPUTED)
    except UnknownContainer as error:
        raise ExportError(str(error)) from None
    for place, leaf in leaves:
        plain = type(leaf) in (*LEAVES, *COMPUTED, torch.nn.Parameter, torch.nn.Buffer)
        if not plain or (isinstance(leaf, torch.Tensor) and leaf.device.type not in DEVICES):
            what = f"on {leaf.device}" if plain else f"of type {type(leaf).__qualname__}"
            raise ExportError(f"{place} is {what}: packages are for plain tensors on a CPU or a GPU of NVIDIA")
        if type(leaf) is int and not -(1 << 63) <= leaf < 1 << 63:
            raise ExportError(f"{place} is an integer of more than 64 bits: packages cannot have those")
    return structure, leaves


def _attributes(model: Any) -> dict[str, Any]:
    """The attributes of the model's modules."""
    if not isinstance(model, torch.nn.Module):
        return {}
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        for place in (vars(module), module._buffers, module._parameters):
            found |= {f"{path}.{name}".lstrip("."): value for name, value in place.items()
                      if not name.startswith("_") and not isinstance(value, (dict, list))}
    return found
