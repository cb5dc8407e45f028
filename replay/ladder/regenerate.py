"""The engine's stages made again from a recorded graph, with the recorded decisions: what the later rungs run.

Sizes that were symbols are symbols again, of the same names, and so are data-dependent numbers: the kernels are those
of the recording, which is checked byte by byte (`drift`).
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx
from torch._guards import Source
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv

from ...artifacts.context import CompileContext, CompileId, FanOut, Stage, run_stages
from ...artifacts.decision_kinds import CPP_WRAPPER_ASKED
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import AnyRecord, Decision, Kernel, Node, Pass, SavedInput, TensorMeta, Wrapper
from ...artifacts.stages import NAMES, REPLAYED, order_of
from ...dependencies import msgspec
from ...engine.ir.ir import Group
from ...engine.scheduler.cpu import loop_nests
from ...operators.dynamo_stubs import without_dynamo
from ...operators.fake_mode import FaithfulFakeMode
from ..recorded.graphs import ReplayError
from ..recorded.precision import in_recorded_precision
from ..recorded.sizes import SizeError, evaluate
from ..recorded.state import deterministic


@dataclass(frozen=True)
class Captured:
    """What the engine needs of a captured graph."""

    module: torch.fx.GraphModule
    inputs: tuple[Any, ...]
    grad_enabled: bool = False
    input_names: tuple[str, ...] = ()


@dataclass
class Collector:
    """A recorder that keeps the engine's records, to compare them with the recording, and its decisions."""

    records: dict[tuple[str, str], AnyRecord] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    making: Callable[[str], None] = lambda stage: None  # is told the stage that is made next

    def begin(self, compile_id: str, function: str, file: str, line: int) -> None:
        """Nothing to begin."""

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None:
        """Keep it."""
        self.records[stage, name] = record
        if stage in NAMES[:-1]:
            self.making(NAMES[order_of(stage) + 1])

    def absent(self, compile_id: str, stage: str, why: str) -> None:
        """Not compared."""

    def decision(self, compile_id: str, decision: Decision) -> None:
        """Keep it; not compared: decisions are taken over."""
        self.decisions.append(decision)

    def end(self, compile_id: str, status: str, reason: str, seconds: Mapping[str, float]) -> None:
        """Nothing to end."""

    def source_file(self, path: str) -> None:
        """Not compared."""


def context(
    recording: Recording, compile_id: str, collector: Collector, forced: Mapping[str, str], device: str
) -> CompileContext:
    """A context that decides as the recorded compilation did, but for what is `forced` on top, and for all that depends
    on it; of a recording from another device, only as that was forced to."""
    decisions = [decision for _, decision in recording.decisions(compile_id)]
    overrides = {d.id: d.chosen for d in decisions if d.forced} | dict(forced)
    made = CompileContext(CompileId(0, 0), collector, overrides, recording=True)
    elsewhere = _is_elsewhere(recording, compile_id, device)
    if not forced and not elsewhere:
        made.recorded = {d.id: d.chosen for d in decisions}
    made.freezing = any(d.kind == "freezing" and d.chosen == "fold" for d in decisions)
    in_cpp = [d for d in decisions if d.kind == "wrapper" and d.chosen == "cpp"]
    made.cpp_wrapper = any(d.why == CPP_WRAPPER_ASKED or not elsewhere for d in in_cpp)
    budget = next((d.chosen for d in decisions if d.kind == "memory-budget"), "1.0")
    made.memory_budget = float(budget)
    made.way = next((d.chosen for d in decisions if d.id == "compile:graph"), made.way)
    return made


def made(stages: Sequence[Stage[Any, Any] | FanOut], value: Any, context: CompileContext) -> Any:
    """What the stages make of a value, with random numbers and precision as they were."""
    with deterministic(), in_recorded_precision(), without_dynamo():
        return run_stages(stages, value, context)


ALL_STORED = {"*realize:*": "realize"}
"""The decisions that let each value of a graph be a buffer, which can be looked at."""


def exposing(stages: Sequence[Stage[Any, Any] | FanOut]) -> tuple[Stage[Any, Any] | FanOut, ...]:
    """The stages of a compilation whose kernels keep nothing to themselves: each buffer is in memory."""
    expose = Stage[Any, Any]("expose", _expose, lambda work: (), "scheduling")
    found: list[Stage[Any, Any] | FanOut] = []
    for stage in stages:
        if isinstance(stage, FanOut):
            found.append(replace(stage, stages=tuple(exposing(group) for group in stage.stages)))  # type: ignore[misc]
        else:
            found += [stage, expose] if stage.name == "scheduling" else [stage]
    return tuple(found)


def _expose(work: Any, context: CompileContext) -> Any:
    items = tuple(replace(item, internal=frozenset()) if type(item) is Group else item for item in work.plan.items)
    nests = loop_nests(items, work.plan.program, context)
    return replace(work, plan=replace(work.plan, items=items, nests=nests))


# ---- fake inputs -----------------------------------------------------------------------------------------------------
_SYMBOL = re.compile(r"(s|zf)(\d{1,6})")


class RecordedShapeEnv(ShapeEnv):
    """A ShapeEnv whose symbols have the names that they had."""

    def _generate_unique_id(self, source_name: str) -> int:
        match = _SYMBOL.fullmatch(source_name)
        return int(match[2]) if match is not None else len(source_name)

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: str | None = None) -> tuple[Any, str]:
        return symbolic_shapes.SLoc("", None), ""


@dataclass(frozen=True, eq=False)
class _Named(Source):
    """Where a symbol comes from, as ShapeEnv asks for it."""

    symbol: str

    @property
    def name(self) -> str:
        return self.symbol


@without_dynamo()
def fakes(
    values: tuple[Any, ...], kept: Iterable[SavedInput], placeholders: Iterable[Node], symbols: Mapping[str, float],
    device: str, module: torch.fx.GraphModule | None = None,
) -> tuple[Any, ...]:
    """Fake inputs for `values`: the sizes that `placeholders` have as symbols are symbols. Where `module` has
    data-dependent numbers, it has run on them once, as when it was captured: fake tensors remember such numbers."""
    env = RecordedShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    mode = FaithfulFakeMode(shape_env=env)
    mode.cache_enabled = False  # what is cached has lost which results of an operator are one tensor
    placeholders = list(placeholders)
    numbers = {node.value for node in placeholders if isinstance(node.value, str)}
    known = {name: _symbol(env, name, value, name in numbers) for name, value in symbols.items()} 

    def fake(value: Any, item: SavedInput, node: Node) -> Any:
        if not isinstance(value, torch.Tensor):
            return _number(node.value, known) if isinstance(node.value, str) else value
        meta = node.value
        requires_grad = item.meta is not None and item.meta.requires_grad
        if not isinstance(meta, TensorMeta) or not _varies(meta):
            return mode.from_tensor(value, static_shapes=True).requires_grad_(requires_grad)
        shape, stride = ([_number(n, known) for n in part] for part in (meta.shape, meta.stride))
        with mode:
            made = torch.empty_strided(shape, stride, dtype=value.dtype, device=device)
        return made.requires_grad_(requires_grad)

    made = tuple(fake(*three) for three in zip(values, kept, placeholders))
    if module is not None:
        with suppress(Exception), mode, torch.no_grad():
            module(*made)
    return made


def _symbol(env: ShapeEnv, name: str, value: float, is_number: bool) -> Any:
    if is_number and name.startswith(("u", "zuf")):  # drawn by Python: nothing may depend on its value
        return value
    match = _SYMBOL.fullmatch(name)
    if match is None or (match[1] == "zf") != isinstance(value, float):
        raise ReplayError(f"replay does not know the symbol {name!r}")
    if is_number:
        symbol = env.create_unspecified_symbol(value, _Named(name), DimDynamic.DYNAMIC)
    else:
        symbol = env.create_symbol(int(value), _Named(name), DimDynamic.DYNAMIC, do_not_specialize_zero_one=True)
    if isinstance(value, float):
        return env.create_symfloatnode(symbol, hint=value, source=_Named(name))
    return env.create_symintnode(symbol, hint=int(value), source=_Named(name))


def _varies(meta: TensorMeta) -> bool:
    return any(isinstance(number, str) for number in (*meta.shape, *meta.stride))


def _number(recorded: int | str, known: Mapping[str, Any]) -> Any:
    try:
        return recorded if isinstance(recorded, int) else evaluate(recorded, known)
    except SizeError as error:
        raise ReplayError(f"replay cannot evaluate the recorded size {recorded!r}: {error}") from error


def reason(error: BaseException) -> str:
    """Why a stage cannot be run, in words."""
    if isinstance(error, ReplayError):
        return str(error)
    if isinstance(error, GuardOnDataDependentSymNode):
        return f"it requires a data-dependent value while it is traced again: {error.cond}"
    return f"{type(error).__name__}: {str(error).partition(chr(10) + 'Exception raised from')[0]}"


# ---- is it what was recorded? ----------------------------------------------------------------------------------------
COMPARED = (*REPLAYED, "kernels", "wrapper")


def drift(recording: Recording, compile_id: str, collector: Collector, device: str) -> tuple[str, ...]:
    """Stages whose record, made again, is not the recorded one; of kernels and wrappers, those with other source text.
    Not compared on another device, which has other kernels."""
    if _is_elsewhere(recording, compile_id, device):
        return ()
    changed = []
    for (stage, name), record in collector.records.items():
        if stage in COMPARED:
            found = _recorded(recording, compile_id, stage, name)
            if stage in ("kernels", "wrapper") and found is None:
                continue  # loaded from a cache that did not keep it
            if _comparable(found) != _comparable(record):
                changed.append(stage)
    return tuple(dict.fromkeys(changed))


def _is_elsewhere(recording: Recording, compile_id: str, device: str) -> bool:
    """Whether inputs were recorded on another kind of device."""
    kept = _recorded(recording, compile_id, "runtime", "inputs")
    metas = [item.meta for item in getattr(kept, "inputs", ()) if item.meta is not None]
    return bool({meta.device.partition(":")[0] for meta in metas} - {device.partition(":")[0]})


def _comparable(record: AnyRecord | None) -> Any:
    """What is to be the same: everything but times, the numbers of data-dependent symbols and, of code, what the
    compiler says of it."""
    names: dict[str, str] = {}

    def counted(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"{found[1]}{len(names)}")

    if isinstance(record, (Kernel, Wrapper)):
        return [_UNBACKED.sub(counted, _CHANGED.sub(_once, line.text)) for line in record.lines]
    record = msgspec.structs.replace(record, seconds=0.0) if isinstance(record, Pass) else record
    return _settled(msgspec.to_builtins(record), lambda text: _UNBACKED.sub(counted, text))


_UNBACKED = re.compile(r"\b(u|zuf)\d+\b")
"""A data-dependent symbol: a tracer that asked for some that the graph does not have counts from another number on."""

_CHANGED = re.compile(r"^(\s*changed\(\()(.*),\)\)$")
"""A wrapper's line that counts writes to inputs, as often as eager writes: how often is not in a graph's record."""


def _once(line: re.Match[str]) -> str:
    return f"{line[1]}{', '.join(dict.fromkeys(line[2].split(', ')))},))"


def _settled(tree: Any, text: Callable[[str], str]) -> Any:
    """A record with numbers for sizes that were symbols first and turned out to be constant ("64", {"symbol": "64"}),
    and other strings as `text` has them."""
    if isinstance(tree, dict):
        only = tree.get("symbol") if len(tree) == 1 else None
        return _settled(only, text) if only is not None else {k: _settled(value, text) for k, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_settled(item, text) for item in tree]
    return (int(tree) if tree.isdecimal() else text(tree)) if isinstance(tree, str) else tree


def _recorded(recording: Recording, compile_id: str, stage: str, name: str) -> AnyRecord | None:
    try:
        return recording.artifact(compile_id, stage, name)
    except RecordingError:
        return None
