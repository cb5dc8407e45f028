"""What a program without Python reads of a package: `cpp.txt`, lines of fields that tabs separate.

`native/ptdebug_package.cpp` reads it, and refuses the calls that `signature.py` refuses, in fewer words. Sizes and
conditions are in postfix notation, with symbols as `$0`, `$1` in the order of their lines. Weights and constants are
named with their place in the file of all tensors.
"""
from __future__ import annotations

import ast
import json
import struct
from collections.abc import Iterator, Mapping, Sequence

import torch

from ..codegen.cpp_wrapper.load import OUT_OF_BOUNDS
from ..codegen.cpp_wrapper.shim import abi_version, dtype_code
from ..codegen.cpp_wrapper.state import Native
from ..graph_cache.flow import Flow
from ..graph_cache.half import Half, tensor_of
from .entry import Entry
from .gpus import Gpu, devices_of
from .signature import ConstantInput, Number, NumberInput, Signature, TensorInput, shown

SCHEMA = "ptdebug-cpp/3"
WEIGHTS, CONSTANTS = "weights.safetensors", "constants.safetensors"
_OPERATIONS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.Eq: "==",
    ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.And: "and", ast.Or: "or",
    ast.Not: "not", ast.USub: "neg",
}
_FUNCTIONS = {"Max": "max", "Min": "min", "max": "max", "min": "min", "Mod": "%", "PythonMod": "%", "FloorDiv": "//",
              "Eq": "==", "Ne": "!=", "Lt": "<", "Le": "<=", "Gt": ">", "Ge": ">="}


class NotFromCpp(ValueError):
    """An entry point cannot be called without Python; the message says why."""


def held_by(entries: Sequence[Entry]) -> dict[str, torch.Tensor]:
    """The tensors that the C++ wrappers hold besides weights, by entry point and name."""
    return {f"{code}/{name}": tensor_of(half.names[name]) for entry in entries for code, half in entry.named_halves()
            if half.native is not None for name in half.native.held}


def text(
    entries: Sequence[Entry], weights: Mapping[str, torch.Tensor], places: Mapping[str, torch.device],
    files: Mapping[str, bytes], own: Mapping[str, tuple[bytes, str]], cpu: Sequence[str], gpus: Sequence[Gpu] = (),
    cuda: str = "",
) -> bytes:
    """The content of `cpp.txt`; `places` says where weights are to be, `files` has the two files of tensors, `own` the
    kernels of ptdebug, `cpu` the instructions that the code needs, `gpus` where it runs besides, with a driver for
    `cuda`."""
    lines = [["format", SCHEMA], ["torch", str(abi_version()), str(torch.__version__)], ["cpu", *cpu]]
    for index in dict.fromkeys([gpu.index for gpu in gpus]):
        own_gpus = [gpu for gpu in gpus if gpu.index == index]
        lines.append(["gpu", str(index), own_gpus[0].name, cuda.partition(".")[0] or "0",
                      *[str(gpu.capability) for gpu in own_gpus]])
    for kind, file, tensors in (("weight", WEIGHTS, weights), ("constant", CONSTANTS, held_by(entries))):
        rows = _rows(files[file])
        for name, tensor in tensors.items():
            begin, end = rows[name]
            device = places[name] if kind == "weight" else tensor.device
            lines.append([kind, name, str(dtype_code(tensor.dtype)), file, str(begin), str(end),
                          _numbers(tensor.shape), _numbers(tensor.stride()), _place(device)])
    lines += [["own", name, f"own/{name}-{digest}.so"] for name, (_, digest) in own.items()]
    for entry in entries:
        try:
            lines += list(_entry(entry))
        except NotFromCpp as reason:
            lines.append(["refused", entry.signature.name, str(reason)])
    return "".join("\t".join(map(_field, line)) + "\n" for line in lines).encode()


def reason_against(entry: Entry) -> str:
    """Why an entry point cannot be called without Python; "" where it can."""
    try:
        list(_entry(entry))
    except NotFromCpp as reason:
        return str(reason)
    return ""


def _field(value: str) -> str:
    return value.translate({9: " ", 10: " ", 13: " "})


def _rows(content: bytes) -> dict[str, tuple[int, int]]:
    """Where each tensor of a safetensors file begins and ends in it."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    begin = 8 + length
    return {name: (begin + each["data_offsets"][0], begin + each["data_offsets"][1])
            for name, each in header.items() if name != "__metadata__"}


def _place(device: torch.device) -> str:
    """The number of a GPU; -1 for the CPU."""
    return str(device.index if device.type == "cuda" else -1)


def _numbers(values: Sequence[int]) -> str:
    return " ".join(map(str, values))


# ---- an entry point --------------------------------------------------------------------------------------------------
def _entry(entry: Entry) -> Iterator[list[str]]:
    """Its lines. Raises NotFromCpp."""
    signature = entry.signature
    for _, half in entry.named_halves():
        _check_code(half, entry.python_only)
    if len(devices_of([entry], ())) > 1:
        raise NotFromCpp("it is for more than one GPU")
    if any(graph.folding is not None for _, graph in entry.codes()):
        raise NotFromCpp("its weights are packed when they are loaded, by Python")
    titles = {symbol.name: symbol.title for symbol in signature.symbols}
    order = {symbol.name: f"${k}" for k, symbol in enumerate(signature.symbols)}
    leaves = [k for k, given in enumerate(signature.inputs) if not isinstance(given, ConstantInput)]
    yield ["entry", signature.name]
    for leaf in leaves:
        given = signature.inputs[leaf]
        if isinstance(given, NumberInput):
            if given.kind != "int":
                raise NotFromCpp(f"{given.path} is a {given.kind} that varies")
            yield ["input", given.path, str(dtype_code(torch.int64)), "int64", "0", "0", "-1", "", "", "[]"]
            continue
        assert isinstance(given, TensorInput)
        dtype = getattr(torch, given.dtype)
        if given.written and dtype.is_complex:
            raise NotFromCpp(f"{given.path} is complex and written")
        shape = [] if given.size is None or given.stride is None else [
            _postfixes(given.size, order), _postfixes(given.stride, order),
            f"[{', '.join(shown(n, titles) for n in given.size)}]"]
        yield ["input", given.path, str(dtype_code(dtype)), given.dtype, str(int(given.written)),
               str(int(dtype.is_complex)), _place(torch.device(given.device)), *shape]
    for symbol in signature.symbols:
        low, high = ["" if bound is None else str(bound) for bound in (symbol.low, symbol.high)]
        yield ["symbol", symbol.title, str(leaves.index(symbol.leaf)), str(symbol.dim), low, high]
    for condition in signature.conditions:
        yield ["condition", _postfix(condition, order), shown(condition, titles)]
    native = entry.half.native if entry.flow is None else None
    yield from _graph_inputs(entry, native, leaves)
    if native is not None:
        yield from _code(entry.half, native)
    elif entry.flow is not None:
        yield from _flow(entry.flow, entry.named_halves())
    yield from _results(signature, native, leaves)


def _graph_inputs(entry: Entry, native: Native | None, leaves: list[int]) -> Iterator[list[str]]:
    """What the graph is called with: code with what it reads, and a flow with everything."""
    for position, place in enumerate(entry.signature.places):
        if native is not None and native.inputs[position] == "-":
            continue
        if place.leaf < 0:
            yield ["argument", "weight", place.weight, str(int(position in entry.written))]
        else:
            number = isinstance(entry.signature.inputs[place.leaf], NumberInput)
            yield ["argument", "number" if number else "leaf", str(leaves.index(place.leaf))]
    for name in native.held if native is not None else ():
        yield ["argument", "constant", f"{entry.signature.name}/{name}"]


def _check_code(half: Half, why: str) -> None:
    """Raise NotFromCpp for what needs Python."""
    if half.native is None:
        raise NotFromCpp(why or "its wrapper is Python's")
    if half.launches is None:
        return
    if None in half.launches.by_python:
        names = half.functions.names.values() if half.functions is not None else ()
        operators = sorted({each.name for each in names if each.kind == "operator"})
        raise NotFromCpp(f"{', '.join(operators) or 'an operator'} is called by Python only")
    if any(code.table is not None for code in half.code):
        raise NotFromCpp("a kernel reads the addresses of its tensors from a table, which Python makes")
    if any(kind == "view" for kind, _, _ in half.native.results):
        raise NotFromCpp("a result is a view of an argument that Python makes")


def _code(half: Half, native: Native) -> Iterator[list[str]]:
    """A code: which of its indices may be out of range, how much it makes, and what it launches on a GPU."""
    yield ["bounds", str(OUT_OF_BOUNDS), *native.bounds]
    for kind in ("made", "size"):
        yield ["count", kind, str(sum(1 for result in native.results if result[0] == kind))]
    for name, number in half.launches.launches if half.launches is not None else ():
        for code in [code for code in half.code if code.name == name]:
            launch = code.launches[number]
            files = [field for each in (launch.usual, launch.general) for field in (
                f"gpu/{each.file}.cubin", each.function, str(each.threads), str(each.shared))]
            yield ["launch", str(code.capability), *files]


def _flow(flow: Flow, codes: Iterator[tuple[str, Half]]) -> Iterator[list[str]]:
    """A flow, of which `codes` are the next: its graphs, then its steps."""
    yield ["flow", str(flow.values), _numbers(flow.results)]
    for graph in flow.graphs:
        if graph.flow is not None:
            yield from _flow(graph.flow, codes)
            continue
        name, half = next(codes)
        assert half.native is not None
        yield ["code", name, half.native.inputs]
        yield from _code(half, half.native)
        for held in half.native.held:
            yield ["held", f"{name}/{held}"]
        made = {place: (kind, number) for kind, number, places in half.native.results for place in places}
        for _, (kind, number) in sorted(made.items()):
            yield ["gives", kind, str(number)]
    for step in flow.steps:
        places = (step.graphs, step.inputs, step.places, step.last)
        yield ["step", step.kind, *map(_numbers, places), str(step.carried), str(step.sliced)]
    yield ["end"]


def _results(signature: Signature, native: Native | None, leaves: list[int]) -> Iterator[list[str]]:
    """What each tensor or computed number of the result is; constants have no line. All that a flow computes is made.
    """
    made = {} if native is None else {
        place: (kind, number) for kind, number, places in native.results for place in places}
    for result in signature.results:
        if result.leaf >= 0:
            yield ["result", "leaf", str(leaves.index(result.leaf))]
        elif result.weight:
            yield ["result", "weight", result.weight]
        elif result.output >= 0:
            kind, number = made.get(result.output, ("made", result.output))
            if kind == "input":
                place = signature.places[number]
                yield (["result", "leaf", str(leaves.index(place.leaf))] if place.leaf >= 0
                       else ["result", "weight", place.weight])
            elif kind != "plain":
                yield ["result", kind, str(number)]


# ---- expressions -----------------------------------------------------------------------------------------------------
def _postfixes(values: Sequence[Number], order: Mapping[str, str]) -> str:
    return ",".join(_postfix(value, order) for value in values)


def _postfix(value: Number, order: Mapping[str, str]) -> str:
    """A size, stride or condition in postfix notation. Raises NotFromCpp for what has none."""
    return str(value) if isinstance(value, int) else " ".join(_tokens(ast.parse(value, mode="eval").body, order))


def _tokens(node: ast.expr, order: Mapping[str, str]) -> list[str]:
    match node:
        case ast.Constant(value=bool() | int() as value):
            return [str(int(value))]
        case ast.Name(id=name) if name in order:
            return [order[name]]
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            return [*_tokens(left, order), *_tokens(right, order), _OPERATIONS[type(operation)]]
        case ast.Compare(left=left, ops=[operation], comparators=[right]) if type(operation) in _OPERATIONS:
            return [*_tokens(left, order), *_tokens(right, order), _OPERATIONS[type(operation)]]
        case ast.UnaryOp(op=operation, operand=operand) if type(operation) in _OPERATIONS:
            return [*_tokens(operand, order), _OPERATIONS[type(operation)]]
        case ast.BoolOp(op=operation, values=values):
            return _joined([_tokens(each, order) for each in values], _OPERATIONS[type(operation)])
        case ast.Call(func=ast.Name(id=name), args=values) if name in _FUNCTIONS:
            return _joined([_tokens(each, order) for each in values], _FUNCTIONS[name])
    raise NotFromCpp(f"the size {ast.unparse(node)} has no form without Python")


def _joined(parts: list[list[str]], operation: str) -> list[str]:
    found = parts[0]
    for part in parts[1:]:
        found = [*found, *part, operation]
    return found
