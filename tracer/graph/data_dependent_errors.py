"""Operators that raise for some data only, inside `try` blocks of the user that handle the error."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch.fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

if TYPE_CHECKING:
    from ..bytecode.instructions import Instruction
    from ..variables.core.base import Translator, Value

MAY_RAISE = frozenset(
    "getitem setitem index_select index_add index_add_ index_copy index_copy_ index_fill index_fill_ index_put"
    " index_put_ gather scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ take take_along_dim"
    " embedding embedding_bag cross_entropy nll_loss one_hot bincount multinomial bernoulli bernoulli_"
    " binary_cross_entropy repeat_interleave floor_divide remainder floordiv mod ifloordiv imod fmod inverse"
    " cholesky cholesky_solve linalg_inv linalg_solve linalg_cholesky linalg_eigh linalg_eig linalg_svd linalg_qr"
    " linalg_det linalg_lstsq linalg_matrix_power item _assert_scalar _assert_async".split()
)
"""Operators that raise for some data only, by name."""


def may_raise(name: str, args: Sequence[Any]) -> bool:
    """Whether an operator with these arguments raises for some data; an index does where a part of it varies."""
    if name in ("getitem", "setitem"):
        return any(map(_may_be_out_of_range, args[1] if isinstance(args[1], tuple) else (args[1],)))
    return name in MAY_RAISE


def _may_be_out_of_range(item: Any) -> bool:
    """A slice fits any size, but its bounds may be data: a tensor, or a data-dependent number."""
    nodes: list[torch.fx.Node] = []
    torch.fx.node.map_arg(item, nodes.append)
    if not isinstance(item, slice) or item.step is not None:
        return bool(nodes)
    found = [node.meta["val"] for node in nodes]
    return any(isinstance(part, torch.Tensor) or free_unbacked_symbols(part) for part in found)


def is_caught(tx: Translator) -> bool:
    """Whether user code handles exceptions of the current instruction, in this frame or in a caller: an `except` covers
    it, or a `with` block whose manager is not torch's or is not known (the block was entered before the frame broke).
    `finally` does not count: it re-raises."""
    frame: Translator | None = tx
    while frame is not None:
        known = {context.depth + 1 for context in frame.open_contexts}  # below the handler's stack is `__exit__`
        instructions = frame.info.instructions
        for entry in frame.info.handlers_of(frame.current.index):
            leaves_block = instructions[entry.target + 1].opname == "WITH_EXCEPT_START"
            if entry.depth not in known if leaves_block else _handles(instructions, entry.target):
                return True
        if any(not _is_torchs(context.manager, frame) for context in frame.open_contexts):
            return True
        frame = frame.parent
    return False


def _is_torchs(manager: Value, frame: Translator) -> bool:
    """Whether the context manager that `frame` has entered never swallows an exception: torch's do not, including those
    of decorated functions."""
    if not manager.handles_exceptions:
        return True
    names = manager.python_type().__module__, str(frame.f_globals.get("__name__"))
    return any(name.partition(".")[0] == "torch" for name in names)


def _handles(instructions: list[Instruction], start: int) -> bool:
    """Whether the handler is an `except`; that of a comprehension, from Python 3.12 on, restores a variable."""
    if instructions[start].opname != "PUSH_EXC_INFO":
        return False
    for instruction in instructions[start + 1 :]:
        if instruction.opname in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH"):
            return True
        if instruction.opname == "POP_TOP" and instruction.index == start + 1:  # a bare `except:`
            return True
        if instruction.opname in ("RERAISE", "POP_EXCEPT", "WITH_EXCEPT_START"):
            return False
    return False
