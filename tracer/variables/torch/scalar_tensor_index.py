"""`x[i]` and `x[:, i]` where `i` is a tensor with one integer: the selected row, whose index is data-dependent.

Eager returns a view. Its storage offset is data-dependent, which no graph could express for its results. So the graph
takes a copy with the strides of the view, and where user code needs the view itself after the graph, it is taken there
(`RowCopy.take_view`). `RowCopy.stays_unseen` checks at the end of the graph whether anything could distinguish the copy
from the view: a result that shares its memory, or a write to the tensor or to the copy. There the graph breaks before
`x[i]`. `x[i] += 1` and `x[i] = v` are supported: a row that was copied before must not be used after. The remaining
difference: autograd saves the copy, and not the view, so a write to the tensor between the graph and its backward is
not an error; the gradients are those of what the graph has read.
"""
from __future__ import annotations

import builtins
import itertools
import operator
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch._C import _functorch
from torch._prims_common import make_contiguous_strides_for
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ....operators.graph_calls import chosen_row, without_dimension
from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...shapes.fake_mode import memory_of
from ..containers.sequences import TupleValue
from ..containers.slices import SliceValue
from ..core.base import Value
from ..core.constant import constant
from ..core.late import late
from .runtime_asserts import rely_on_rerun
from .tensor import PLAIN_TYPES, TensorValue
from .tensor_assignment import is_recorded

if TYPE_CHECKING:
    from ..core.base import Codegen, Graph, Translator

_REFUSED = partial(Unsupported, Reason.DATA_DEPENDENT_SHAPE, operator.getitem)
_OFFSETS = frozenset(("as_strided", "as_strided_", "data"))
"""Methods and attributes that expose addresses, or a tensor without its version counter."""


def _view(x: torch.Tensor, position: torch.Tensor, dim: int) -> torch.Tensor:
    return x[(slice(None),) * dim + (position,)] if dim else x[position]


class RowCopy:
    """A copy in the graph that represents a view, and the state when it was made."""

    def __init__(self, tx: Translator, row: TensorValue, whole: TensorValue, position: TensorValue, dim: int) -> None:
        self.row, self.node, self.dim = row.fake, row.node, dim
        self.parts = {whole: whole.fake, position: position.fake}
        self.number = memory_of(position.fake)
        self.memory = {memory_of(whole.fake), memory_of(self.row)}
        self.modes = {torch.is_grad_enabled(), tx.trace.modes.grad}
        self.unrecorded = whole.fake.requires_grad and not self.row.requires_grad  # eager's view requires gradients
        self.taken = False  # the view itself, after the graph
        self.ended: torch.fx.Node | None = None  # the tensor is written afterwards
        row.node.meta["row"] = self
        self.version = self.row._version
        self.writes: list[torch.fx.Node] = []  # to the row
        self.versions = {node: fake._version for node, fake in self._sharing(tx.graph) if not fake.is_inference()}
        where = {"location": tx.own_location(), "stack": tx.stack_locations(), "earlier": tx.trace.safe_step()}
        self.refused = partial(_REFUSED, **where)

    def _sharing(self, graph: Graph) -> Iterator[tuple[torch.fx.Node, torch.Tensor]]:
        """The nodes of tensors that alias the tensor, the row, or the index."""
        for node in graph.graph.nodes:
            fake = node.meta.get("val")
            if isinstance(fake, torch.Tensor) and memory_of(fake) in self.memory | {self.number}:
                yield node, fake

    def is_in_memory_of(self, fake: torch.Tensor) -> bool:
        """Whether `fake` is the row or a view of it."""
        return memory_of(fake) == memory_of(self.row)

    def is_used(self, node: torch.fx.Node) -> None:
        """An operation was added. Raises Unsupported where autograd would record it on eager's view."""
        if self.row._version != self.version:
            self.version = self.row._version
            self.writes.append(node)
        if self.unrecorded and torch.is_grad_enabled() and self._is_input_of(node):
            raise self.refused()

    def take_view(self, codegen: Codegen) -> bool:
        """Push the view, which is taken after the graph has run; False where it would differ."""
        if len(self.modes | {torch.is_grad_enabled()}) > 1 or not self._has_parts():
            return False
        self.taken = True
        codegen.push_function(_view)
        for value in self.parts:
            codegen(value)
        codegen.const(self.dim)
        codegen.call(3)
        return True

    def stays_unseen(self, graph: Graph, outputs: Sequence[torch.fx.Node]) -> bool:
        """Whether the copy is indistinguishable from the view: no result shares its memory, and nothing wrote since."""
        results = [part for node in outputs for part in _tensors(node.meta.get("val"))]
        if graph.assigned or any(map(self.is_in_memory_of, results)):
            return False
        if self.ended is None:
            return self.is_as_taken(graph)
        return not self.taken and not any(map(self._is_input_of, _from(self.ended.next)))

    def is_as_taken(self, graph: Graph, changed: bool = False) -> bool:
        """Whether nothing has been written so far (`changed`: except to the row)."""
        sharing = dict(self._sharing(graph))
        if not self.taken and not changed:  # the index is not used again
            sharing = {node: fake for node, fake in sharing.items() if memory_of(fake) in self.memory}
        for node, fake in sharing.items():
            if fake.is_inference():  # its version does not count writes to it
                return False
            before = self.versions.get(node, graph.versions.get(node, fake._version))
            own = self.is_in_memory_of(fake)
            if (own and fake.dtype != self.row.dtype) or (fake._version != before and not (own and changed)):
                return False
        users = (later for later in _from(self.node.next) if not sharing.keys().isdisjoint(later.all_input_nodes))
        return not any(map(_may_write_unseen, users))

    def is_changed(self, graph: Graph, whole: Value, position: Value) -> bool:
        """Whether this is the row at `position`, which has been written, and the tensor neither read nor written since:
        no view of it, either, which in eager might alias what is written."""
        if not self.writes or self.dim or list(self.parts) != [whole, position] or not self._has_parts():
            return False
        rows = [row for row in graph.rows if not row.memory.isdisjoint(self.memory)]
        if any(row.writes and row.ended is None for row in rows if row is not self):
            return False
        memory = self.memory.union(*[row.memory for row in rows])
        touched = [part for node in _from(self.writes[0]) for part in _inputs(node) if memory_of(part) in memory]
        return all(any(part is row.row for row in rows) for part in touched) and self.is_as_taken(graph, True)

    def _has_parts(self) -> bool:
        return all(value.fake is fake for value, fake in self.parts.items())

    def is_recorded(self) -> bool:
        """Whether autograd records something of the row."""
        users = filter(self._is_input_of, _from(self.node.next))
        return self.row.requires_grad or any(map(is_recorded, users))

    def _is_input_of(self, node: torch.fx.Node) -> bool:
        return any(map(self.is_in_memory_of, _inputs(node)))


def _from(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The nodes of a graph from one on."""
    while node.op != "root":
        yield node
        node = node.next


def _inputs(node: torch.fx.Node) -> list[torch.Tensor]:
    return [part for arg in node.all_input_nodes for part in _tensors(arg.meta.get("val"))]


def _may_write_unseen(node: torch.fx.Node) -> bool:
    """Whether a call may write to its arguments, or read their addresses, without a change of their versions."""
    if node.op == "output":
        return False
    target: Any = node.target
    if target is builtins.getattr:
        return node.args[1] in _OFFSETS
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.is_mutable or "as_strided" in target.__name__
    if isinstance(target, (torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)):
        return True
    return (target if isinstance(target, str) else getattr(target, "__name__", "")) in _OFFSETS


def _tensors(value: Any) -> list[torch.Tensor]:
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return [part for part in parts if isinstance(part, torch.Tensor)]


def take_rows(tx: Translator, whole: TensorValue, key: Value) -> Value | None:
    """`whole[key]` where the key begins with such an index, or has one after known integers and full slices."""
    if not isinstance(key, TupleValue):
        return _take_row(tx, whole, key, 0)
    known = len(list(itertools.takewhile(_is_known, key.items)))
    if known == len(key.items) or not _is_position(key.items[known]) or not _is_plain(whole):
        return None
    slices = [item for item in key.items[:known] if isinstance(item, SliceValue)]
    part = whole.getitem(tx, TupleValue(key.items[:known], tuple)) if known > len(slices) else whole
    row = _take_row(tx, part, key.items[known], len(slices))  # type: ignore[arg-type]
    rest = [*slices, *key.items[known + 1 :]] if key.items[known + 1 :] else []
    return row.getitem(tx, TupleValue(rest, tuple)) if row is not None and rest else row


def written_at(tx: Translator, whole: TensorValue, key: Value, value: Value) -> tuple[Value, Value]:
    """The operands of `whole[key] = value`: the index that a tensor holds, as eager reads it, and the written value,
    which in `x[i] += 1` is a row that represents its own destination."""
    if not isinstance(key, TensorValue) or not _is_position(key) or not _is_plain(whole):
        return key, value
    if tx.trace.overrides.may_ask or _functorch.get_dynamic_layer_stack_depth() or len(tx.graph.scopes.open) > 1:
        return key, value
    rows = [row for row in tx.graph.rows if row.ended is None and memory_of(whole.fake) in row.memory]
    kept = [row for row in rows if row.is_as_taken(tx.graph)]
    for row in rows:
        if isinstance(value, TensorValue) and value.fake is row.row and row.is_changed(tx.graph, whole, key):
            value = tx.graph.call("clone", [value], {}, tx, op="call_method")
            kept.append(row)
    number = key.call_method(tx, "item", [], {})
    for row in kept:
        row.ended = None if row.is_recorded() else next(iter(reversed(tx.graph.graph.nodes)))
    return number, value


def _take_row(tx: Translator, whole: TensorValue, position: Value, dim: int) -> Value | None:
    """The row at `position` in a dimension; None where it is not a row of a tensor as a graph can copy it."""
    if not _is_position(position) or not _has_rows(tx, whole, dim):
        return None
    rely_on_rerun(tx, _REFUSED())  # for numbers out of range
    memory = whole.fake.untyped_storage()
    size = memory.nbytes()
    row = tx.graph.call(chosen_row, [whole, position, constant(dim)], {}, tx)
    if isinstance(size, int) and memory.nbytes() != size:
        memory.resize_(size)  # torch's fake kernel of `index` sometimes allocates one more element
    assert isinstance(row, TensorValue) and isinstance(position, TensorValue)
    if tuple(row.fake.stride()) != without_dimension(whole.fake.stride(), dim):
        raise _REFUSED()
    tx.graph.rows.append(RowCopy(tx, row, whole, position, dim))
    return row


def _is_known(item: Value) -> bool:
    known = item.as_constant() if item.is_constant() else None
    return type(known) is int or (isinstance(known, slice) and known == slice(None))


def _is_plain(value: TensorValue) -> bool:
    return type(value) is TensorValue and value.kind in PLAIN_TYPES


def _is_position(value: Value) -> bool:
    """Whether eager takes `value` for an integer index: bytes and bools are masks."""
    if not isinstance(value, TensorValue) or not _is_plain(value) or value.fake.dim():
        return False
    wrapped = _functorch.is_functorch_wrapped_tensor(value.fake)
    return not wrapped and value.fake.dtype in (torch.int64, torch.int32) and value.fake.device.type == "cpu"


def _has_rows(tx: Translator, whole: TensorValue, dim: int) -> bool:
    """Whether a copied row has the layout of a view of it, its writes are counted, and each index is checked: for an
    empty row it is not. On other devices an index out of range would not be an IndexError."""
    fake = whole.fake
    if not _is_plain(whole) or tx.trace.overrides.may_ask:
        return False
    if torch.is_inference_mode_enabled() or fake.is_inference() or _functorch.get_dynamic_layer_stack_depth():
        return False
    if fake.layout is not torch.strided or fake.device.type != "cpu" or len(tx.graph.scopes.open) > 1:
        return False
    if fake.dim() <= dim or fake.is_conj() or fake.is_neg():
        return False
    if any(free_unbacked_symbols(number) for number in (*fake.shape, *fake.stride())) or 0 in fake.shape:
        return False
    if dim:
        return tuple(fake.stride()) == make_contiguous_strides_for(fake.shape)
    return tuple(fake.stride()[1:]) == make_contiguous_strides_for(fake.shape[1:])


late.take_rows = take_rows
late.written_at = written_at
