"""Which matrix products generated loops compute: on a GPU Triton kernels, with what is pointwise around them.

With max-autotune a product is measured together with what surrounds it (`surroundings.py`): by the library, with the
rest in loops, and by tiles, into which the loops are fused. Otherwise the library computes it, but for few rows times a
weight that is converted from fewer bytes: there the time is that of reading the weight, which a library wants
converted first. A product with a single row can add up the rows of the weight, without tensor cores.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import Option, RuleMatch
from ...graphs.functional_graph import AtenGraph
from ...kernels import tiled_product
from ...lowering.realization import kind_of
from ...lowering.registry import GATHER, POINTWISE, RESHAPE, VIEW
from ...toolchain.benchmarking import verdict
from .product_costs import LAUNCH, MEMORY, bytes_of
from .surroundings import Change, Measuring, Others, Ways

aten = torch.ops.aten

GPU, KIND = "cuda", "triton-matmul"
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten._int_mm.default)
LIBRARY, TILES, ROWS = "library", "tiles", "rows"
WORTH = 0.97  # share of the library's time below which a generated kernel is chosen
FEW = 16  # rows of the smallest tile, up to which a product takes as long as reading its weight
IN_LOOPS = (POINTWISE, GATHER, RESHAPE, VIEW)
EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
TERMS = 16  # of a sum that is worth a tile


def choose_tiled(graph: AtenGraph, context: CompileContext, others: Others) -> list[RuleMatch]:
    """Let loops compute products, decisions of kind "triton-matmul"; `others` are the passes that choose between
    libraries."""
    matches, measuring = [], Measuring(others)
    products = [n for n in graph.module.graph.nodes if n.target in PRODUCTS] if context.way == "kernels" else []
    for node in products if context.max_autotune else ():
        if context.override(KIND, node.name) is None and not _why_not(node, context.compiled_for):
            measuring.begin(node, _ways(node))
    for node in products:
        forced = context.override(KIND, node.name)
        on_gpu = isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].device.type == GPU
        looked_at = context.asked or context.max_autotune or _reads_fewer_bytes(node, context.compiled_for)
        if not forced and not (on_gpu and looked_at):
            continue
        origins = (f"forward#{node.name}",)
        refusal = _why_not(node, context.compiled_for)
        if refusal:
            if forced in (TILES, ROWS):
                context.refuse(KIND, node.name, forced, LIBRARY, refusal, origins=origins)
            elif context.asked:
                context.decide(KIND, node.name, (LIBRARY,), LIBRARY, refusal, origins=origins)
            continue
        options, default, why = _choice(node, context, measuring)
        chosen = context.decide(KIND, node.name, options, default, why, origins=origins)
        if chosen != LIBRARY:
            matches.append(RuleMatch(f"product-in-{chosen}", (node.name,), (node.name,), why))
            _take(node, chosen == ROWS)
    return matches


def _operands(node: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
    """Left, right, and maybe a bias."""
    *bias, left, right = cast(tuple[torch.fx.Node, ...], node.args)
    return left, right, *bias


def _choice(node: torch.fx.Node, context: CompileContext, measuring: Measuring) -> tuple[list[Option], str, str]:
    """Options, the default among them, and why."""
    ways = _ways(node)
    if context.max_autotune and not context.compiled_for:
        known = measuring.seconds(node, ways)
        if known:
            default = min(known, key=lambda way: known[way] * (WORTH if way == LIBRARY else 1))
            options = [Option(way, round(s * 1e6, 1), unit="us", better="lower") for way, s in known.items()]
            held = f"a generated kernel has to save {1 - WORTH:.0%}"
            return options, default, verdict(known, default, "with what surrounds the product,", held)
    if node.meta["val"].device.type == GPU and _reads_fewer_bytes(node, context.compiled_for):
        return _by_bytes(node, tuple(ways))
    why = "nothing could be measured" if context.max_autotune else "products are measured with max-autotune alone"
    return [Option(way) for way in ways], LIBRARY, f"as in eager: {why}"


def _why_not(node: torch.fx.Node, targets: Sequence[int]) -> str:
    """Why a product cannot be one of loops; "" where it can."""
    values: list[Any] = [n.meta.get("val") for n in _operands(node)] + [node.meta.get("val")]
    if node.kwargs or any(not isinstance(v, torch.Tensor) for v in values):
        return "as in eager: the product has factors"
    left, right, result = values[0], values[1], values[-1]
    if any(not isinstance(size, int) for v in values for size in (*v.shape, *v.stride())):
        return "as in eager: its sizes vary, and the fastest kernel with them"
    if 0 in result.shape or left.shape[-1] < TERMS:
        return f"as in eager: a product of less than {TERMS} terms"
    if left.dtype is not right.dtype or (len(values) == 4 and values[2].dtype is not result.dtype):
        return "as in eager: a product of different dtypes"
    integers = left.dtype is torch.int8 and result.dtype is torch.int32
    if not integers and left.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return f"as in eager: no tile multiplies {left.dtype}"
    if left.dtype is torch.float32 and result.device.type == GPU and not tiled_product.allows_tf32():
        return "as in eager: tensor cores do not multiply float32 as precisely, and the program does not allow TF32"
    return _too_old(node, targets)


# ---- few rows --------------------------------------------------------------------------------------------------------
def _reads_fewer_bytes(node: torch.fx.Node, targets: Sequence[int]) -> bool:
    """Whether few rows are multiplied by a weight that is made of fewer bytes, for this product alone."""
    left, right, *_ = _operands(node)
    rows, value = left.meta["val"].shape[-2], right.meta["val"]
    if left.meta["val"].dim() != 2 or type(rows) is not int or rows > FEW or _why_not(node, targets):
        return False
    return value.itemsize > 1 and 0 < _source_bytes(right) < bytes_of(value)


def _source_bytes(node: torch.fx.Node) -> int:
    """Bytes of what loops compute a weight from, 0 where it lies in memory, or other nodes read it too."""
    nodes = _loops_before(node)
    leaves = [n for n in nodes if kind_of(n) not in IN_LOOPS]
    if len(leaves) == len(nodes) or any(not _is_in_memory(n) for n in leaves):
        return 0
    computed = [n for n in nodes if kind_of(n) in (POINTWISE, GATHER)]
    alone = all(len(n.users) == 1 for n in computed)
    return sum(bytes_of(n.meta["val"]) for n in leaves) if computed and alone else 0


def _loops_before(node: torch.fx.Node) -> list[torch.fx.Node]:
    """A node and what loops compute it from, down to what they read from memory."""
    found, waiting = dict[torch.fx.Node, None](), [node]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one] = None
            waiting += one.all_input_nodes if kind_of(one) in IN_LOOPS else []
    return list(found)


def _is_in_memory(node: torch.fx.Node) -> bool:
    return node.op in ("placeholder", "get_attr") and isinstance(node.meta.get("val"), torch.Tensor)


def _too_old(node: torch.fx.Node, targets: Sequence[int]) -> str:
    """Why the GPU that is there, or one of the `targets` (compute capabilities), has no instructions for a tile; ""
    where they have, or nothing is known of them."""
    device = node.meta["val"].device
    if device.type != GPU or not (targets or torch.cuda.is_available()):
        return ""
    values = [n.meta.get("val") for operand in _operands(node)[:2] for n in _loops_before(operand)]
    bytes_as_floats = any(isinstance(v, torch.Tensor) and v.dtype in EIGHT_BITS for v in values)
    needed = (8, 9) if bytes_as_floats else (8, 0)
    oldest = divmod(min(targets), 10) if targets else torch.cuda.get_device_capability(device)
    return "" if oldest >= needed else (
        f"as in eager: a tile needs a GPU of compute capability {needed[0]}.{needed[1]}")


def _by_bytes(node: torch.fx.Node, ways: tuple[str, ...]) -> tuple[list[Option], str, str]:
    """The times of a kernel that reads a weight as it is, and of one that converts it for the library."""
    right = _operands(node)[1]
    source, whole = _source_bytes(right), bytes_of(right.meta["val"])
    times = dict.fromkeys(ways, LAUNCH + source / MEMORY)
    times[LIBRARY] = 2 * LAUNCH + (source + 2 * whole) / MEMORY
    options = [Option(way, round(s * 1e6, 1), unit="us", better="lower") for way, s in times.items()]
    rows = node.meta["val"].shape[-2]
    why = (f"{rows} row{'s take' if rows > 1 else ' takes'} as long as reading the weight: {source:,} bytes as it is "
           f"stored; for the library it is written and read as {whole:,} more (estimated)")
    return options, TILES, why


# ---- the rewrite -----------------------------------------------------------------------------------------------------
def _ways(node: torch.fx.Node) -> Ways:
    """The ways to compute a product, the library's first, and what makes it one of each."""
    ways: dict[str, Change] = {LIBRARY: lambda node: None, TILES: lambda node: _take(node, False)}
    if node.meta["val"].shape[-2] == 1:
        ways[ROWS] = lambda node: _take(node, True)
    return ways


def _take(node: torch.fx.Node, by_rows: bool) -> None:
    node.args = _operands(node)
    node.kwargs = {"by_rows": True} if by_rows else {}
    node.target = tiled_product.OPERATOR
