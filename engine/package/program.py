"""A loaded package: its entry points as callables, over one set of weights."""
from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from ..graph_cache.flow import Graph, callable_flow
from ..graph_cache.half import call_of
from ..kernels.custom_kernel import KERNELS
from ..runtime.cuda_driver import DriverError
from ..runtime.entry import shares_written, uncounted
from ..runtime.frozen_call import FrozenCall
from . import archive, gpus
from .archive import Package, PackageError
from .entry import Entry
from .signature import InputError, NumberInput, Signature, reader
from .structure import rebuild


def load(path: str | Path) -> Program:
    """The package that `ptdebug.export` or `ptdebug export` wrote, ready to be called.

    It is code, which runs in this process: load what you know the origin of. The model's own source is not needed.
    Raises PackageError for a damaged file, another torch, a CPU that lacks instructions or another GPU, and OSError.
    """
    return Program(archive.read(path))


class Program:
    """A package as a callable: its first entry point; others by name, `program["decode"](...)`.

    `weights` are the parameters and buffers, by the names that they had in the model; all entry points share them, and
    what a graph writes (a cache of keys and values) is there. Gradients are not recorded. Calls raise InputError for
    what the code was not compiled for.
    """

    def __init__(self, package: Package) -> None:
        self.weights: Mapping[str, torch.Tensor] = MappingProxyType(dict(package.weights))
        self._decisions = package.decisions
        with _libraries(package) as paths:
            for name, (_, digest) in package.own.items():
                if name not in KERNELS or KERNELS[name].digest != digest:
                    raise PackageError("the package was made by another version of ptdebug: export it again")
                KERNELS[name].adopt(paths[f"own/{name}"])
            try:
                self._entries = {e.signature.name: EntryPoint(e, self.weights, paths, package.binaries)
                                 for e in package.entries}
            except DriverError as error:
                raise PackageError(gpus.refused(error)) from error

    @cached_property
    def decisions(self) -> list[dict[str, Any]]:
        """What the compiler decided, and why."""
        return archive.decisions_of(self._decisions)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the first entry point."""
        return next(iter(self._entries.values()))(*args, **kwargs)

    def __getitem__(self, name: str) -> EntryPoint:
        """An entry point by name. Raises KeyError that lists the names."""
        if name not in self._entries:
            raise KeyError(f"no entry point {name!r}: there is {', '.join(self._entries)}")
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        """The names of the entry points."""
        return iter(self._entries)

    def __len__(self) -> int:
        """How many entry points there are."""
        return len(self._entries)

    def __repr__(self) -> str:
        return "\n".join(str(entry.signature) for entry in self._entries.values())


class EntryPoint:
    """One entry point of a package."""

    def __init__(
        self, entry: Entry, weights: Mapping[str, torch.Tensor], paths: Mapping[str, Path],
        binaries: Mapping[str, bytes],
    ) -> None:
        self.signature: Signature = entry.signature
        self._weights = weights
        self._read = reader(entry.signature)
        self._written = set(entry.written)
        self._inputs = [weights.get(place.weight) for place in entry.signature.places]
        self._given = [(k, place.leaf) for k, place in enumerate(entry.signature.places) if not place.weight]
        numbers = [isinstance(given, NumberInput) for given in entry.signature.inputs]
        self._tensors = [k for k, leaf in self._given if not numbers[leaf]]
        self._apart: list[int] = []  # addresses of arguments none of which shares memory with what is written
        codes = [_called(graph, name, paths.get(name), binaries) for name, graph in entry.codes()]
        self._call: Callable[..., Any] = codes[0] if entry.flow is None else callable_flow(entry.flow, iter(codes))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run it. Raises InputError for what it was not compiled for, and what the model's operators raise."""
        given, leaves = self._read(args, kwargs)
        inputs: list[Any] = self._inputs.copy()
        if self._written:
            self._check_written(inputs, given, leaves)
        for position, leaf in self._given:
            inputs[position] = leaves[leaf]
        with torch.no_grad(), _no_autocast():
            outputs = self._call(*inputs)

        def result(found: Any) -> Any:
            if found.output >= 0:
                return outputs[found.output]
            if found.leaf >= 0:
                return given[found.leaf]
            return self._weights[found.weight] if found.weight else found.value

        return rebuild(self.signature.returned, iter([result(found) for found in self.signature.results]))

    def _check_written(self, inputs: list[Any], given: list[Any], leaves: list[Any]) -> None:
        """Put the leaves that were given into `inputs`, and raise InputError where one shares memory with what is
        written, also if the graph gets a copy: eager would read the new values. Weights stay where they are."""
        for position, leaf in self._given:
            inputs[position] = given[leaf]
        addresses = [inputs[position].data_ptr() for position in self._tensors]
        copied = any(value is not each for value, each in zip(given, leaves))
        if addresses == self._apart and not copied and not self.signature.symbols:
            return
        if shares_written(inputs, self._written):
            raise InputError(f"{self.signature.name} writes to an argument that shares memory with another")
        self._apart = [] if copied else addresses


def _called(graph: Graph, name: str, path: Path | None, binaries: Mapping[str, bytes]) -> Callable[..., Any]:
    """The code of a graph as a function."""
    assert graph.half is not None
    call = call_of(graph.half, f"<package {name}>", path, binaries)
    if graph.folding is not None:
        from ..kernels import int8  # noqa: F401  # which defines the operators that pack

        call = FrozenCall(call, call_of(graph.folding.call, f"<package {name}: weights>"), graph.folding.positions)
    return uncounted(call, graph.uncounted)


def _no_autocast() -> AbstractContextManager[Any]:
    """Library calls compute in the dtypes that they were compiled for, also where the caller is in autocast."""
    return torch._C._DisableAutocast() if torch._C._is_any_autocast_enabled() else nullcontext()


@contextmanager
def _libraries(package: Package) -> Iterator[dict[str, Path]]:
    """The machine code of a package in files, for as long as it takes to load it."""
    with tempfile.TemporaryDirectory(prefix="ptdebug-package-") as folder:
        code = {name: kernels[0] for name, kernels in package.kernels.items()}
        code |= {f"own/{name}": content for name, (content, _) in package.own.items()}
        paths = {name: Path(folder) / f"{name.replace('/', '-')}.so" for name in code}
        for name, path in paths.items():
            path.write_bytes(code[name])
        yield paths
