"""Which tile a kernel works on, with how many warps and programs.

There are five shapes of kernel:

- `pointwise`: a tile of the outer axes, in one or two dimensions (two where loads and stores are contiguous along
  different axes);
- `parallel`: no reduction, but bodies with different inner loops (the inputs of a concatenation): the tile's second
  dimension runs over the inner loops, in as many programs as the longest needs;
- `persistent`: rows with reductions whose inner loops fit one tile: each value is loaded once and stays in registers;
- `looped`: rows with reductions too long for that: one loop for each reduction that others depend on. With `splits`,
  several programs share a row, and a second kernel combines their partial results.
- `product`: a matrix product (`products/`).

The scores estimate utilization between 0 and 1: active lanes, programs for the multiprocessors, elements for each
thread. They are a heuristic that measurements may replace; the choice is a decision (`tile`).
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import sympy

from ....artifacts.context import CompileContext
from ....artifacts.records import Option
from ...lowering.reductions import IN_REGISTERS, LONG_IN_REGISTERS
from ...scheduler.occupancy import PROCESSORS, SECTOR, are_few
from .form import Form
from .source import STAGES

PERSISTENT_LIMIT = IN_REGISTERS  # of 16 warps; 32 keep longer rows, of few tensors
FEW_LOADS = 3  # with five, 32768 elements in registers took twice as long as in a loop (GELU, layer norm; an H100)
SPLIT_FROM = 16384  # a row this long may be shared by several programs
MOST_SPLITS = 2048  # programs that share a row
LEAST_SHARE = 64  # elements of it that each of them gets, at least, where an override asks for so many
MOST_OF_ROWS = 4096  # elements of a tile of several rows
NO_TIMES: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Tile:
    """Block sizes (powers of two), and how many loads a loop has on the way (`stages`).

    `x` is the outer tile, 0 for one row as a scalar; `inner` by space name."""

    shape: str  # pointwise | parallel | persistent | looped | product
    x: int
    warps: int
    y: int = 0
    y_axis: sympy.Symbol | None = None
    inner: Mapping[str, int] = field(default_factory=dict)
    splits: int = 1
    stages: int = STAGES
    persistent: bool = False  # programs take one tile after the other, and copy operands by descriptors

    @property
    def name(self) -> str:
        """A short name, stable between runs: "persistent-x4-r1024-w8"."""
        if self.shape == "product":
            block = "x".join(map(str, (self.y, self.x, min(self.inner.values()))))
            copied = ["tma"] if self.persistent else []
            return "-".join([self.shape, block, f"w{self.warps}", f"s{self.stages}", *copied])
        parts = [self.shape] + ([f"y{self.y}"] if self.y else []) + ([f"x{self.x}"] if self.x else [])
        parts += [f"{space}{block}" for space, block in self.inner.items()]
        parts += [f"split{self.splits}"] if self.splits > 1 else []
        return "-".join([*parts, f"w{self.warps}"])


def choose(form: Form, context: CompileContext, times: Mapping[str, float] = NO_TIMES) -> Tile:
    """Ask `context.decide` for one of a few tiles; the default is the fastest of those that were timed (seconds, by
    name), or the one with the best score."""
    if times:
        options = [Option(name, round(s * 1e6, 1), unit="us", better="lower") for name, s in times.items()]
        why = f"the fastest of {len(times)} on this device"
        fastest = min(times, key=times.__getitem__)
        chosen = context.decide("tile", form.name, options, fastest, why, origins=_origins(form))
        return next(t for t in tiles_of(form) if t.name == chosen)
    tiles = _split_by_choice(form, tiles_of(form), context)
    scores = [_score(form, t) for t in tiles]
    options = [Option(t.name, round(s, 3), why, better="higher") for t, (s, why) in zip(tiles, scores)]
    best = max(range(len(tiles)), key=lambda k: scores[k][0])
    why = f"best estimate of {len(tiles)}: {scores[best][1]}"
    chosen = context.decide("tile", form.name, options, tiles[best].name, why, origins=_origins(form))
    return next(t for t in tiles if t.name == chosen)


def _split_by_choice(form: Form, tiles: list[Tile], context: CompileContext) -> list[Tile]:
    """`tiles` that share a row among as many programs as a decision says: by default, as the best of them does."""
    if not (context.asked and can_split(form) and any(t.shape == "looped" for t in tiles)):
        return tiles
    default = max(tiles, key=lambda t: _score(form, t)[0]).splits
    longest = form.length(form.spaces[0])
    most = max(default, min(MOST_SPLITS, power_of_two(longest) // LEAST_SHARE))
    options = [str(1 << n) for n in range(most.bit_length())]
    counted = f"{_counted(form.rows, form.numel)} rows of {_counted(longest, form.spaces[0].numel)} elements"
    why = f"{counted}, and {PROCESSORS} processors: " + (
        f"{default} programs for each row keep memory busy" if default > 1 else "a program for each keeps memory busy")
    chosen = int(context.decide("split-reduction", form.name, options, str(default), why, origins=_origins(form)))
    if chosen == default:
        return tiles
    split = [replace(t, splits=chosen) for t in tiles if t.shape == "looped"]
    return split + [t for t in tiles if t.shape != "looped" and chosen == 1]


def _origins(form: Form) -> tuple[str, ...]:
    names = dict.fromkeys(s.buffer for b in form.bodies for s in b.statements if s.op == "store")
    return tuple([f"loop_ir:{name}" for name in names])


def can_split(form: Form) -> bool:
    """True when programs may share a row: one space, and no inner loop waits for a reduction."""
    if len(form.spaces) != 1 or not form.reduces or form.misaligned:
        return False
    results = {s.buffer for b in form.bodies for s in b.statements if s.op == "store" and s.name not in b.inner}
    return all(s.buffer not in results for b in form.bodies for s in b.statements if s.op == "load" and b.space)


def why_idle(form: Form) -> str:
    """Why one program for each row would leave most of the GPU idle; "" when it would not."""
    rows, longest = form.rows, max((form.length(s) for s in form.spaces), default=0)
    columns = bool(form.axes) and form.contiguous_over_rows
    touched = {s.buffer for b in form.bodies for s in b.statements if s.op in ("load", "store") and s.name in b.inner}
    traffic = sum(form.buffers[n].dtype.itemsize * form.hint(sympy.Mul(*form.buffers[n].size)) for n in touched)
    if not form.reduces or not are_few(max(1, rows), columns, traffic):
        return ""
    what = f"{_counted(rows, form.numel)} {'columns' if columns else 'rows'}"
    return f"{what} of {longest} would leave most of the GPU idle; separate kernels use all of it"


def _counted(number: int, size: sympy.Expr) -> str:
    """How a reason tells a number that may vary: it is one of the first call, or a least that is assumed."""
    return str(number) if sympy.sympify(size).is_Integer else f"some {number}"


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least `n` (1 for 0)."""
    return 1 << max(0, n - 1).bit_length()


def tiles_of(form: Form) -> list[Tile]:
    """The tiles that a form could have."""
    if not form.spaces:
        return _pointwise(form)
    tiles = _looped(form) if form.reduces or form.misaligned else _parallel(form)
    if form.reduces or form.misaligned:
        if all(sympy.sympify(s.numel).is_Integer for s in form.spaces):
            tiles = _persistent(form, max(int(s.numel) for s in form.spaces)) + tiles
    return tiles


def _pointwise(form: Form) -> list[Tile]:
    numel = power_of_two(form.rows)
    if not form.axes:
        return [Tile("pointwise", 0, 1)]
    tiles = [Tile("pointwise", min(x, numel), w) for x, w in ((256, 4), (512, 4), (1024, 4), (1024, 8))]
    tiles = list({t.name: t for t in tiles}.values())
    other = form.other_contiguous_axis
    if other is None:
        return tiles
    tiles = [Tile("pointwise", x, w, y, other) for y, x, w in ((32, 32, 4), (64, 32, 8), (16, 64, 4))]
    return tiles + [Tile("pointwise", min(1024, numel), 4)]


def _parallel(form: Form) -> list[Tile]:
    longest = power_of_two(max(form.length(s) for s in form.spaces))
    blocks = sorted({min(longest, 256), min(longest, 1024)})
    tiles = []
    for block in blocks:
        rows = 0 if block >= 256 or not form.axes else min(power_of_two(form.rows), 512 // block)
        inner = {s.name: min(block, power_of_two(form.length(s))) for s in form.spaces}
        tiles.append(Tile("parallel", rows, 4, inner=inner))
    return tiles


def _persistent(form: Form, length: int) -> list[Tile]:
    if length > PERSISTENT_LIMIT and not (length in LONG_IN_REGISTERS and _is_light(form)):
        return []
    inner = {s.name: power_of_two(int(s.numel)) for s in form.spaces}
    longest = max(inner.values())
    most = 16 if length <= PERSISTENT_LIMIT else 32
    rows = [0] if longest >= 256 or not form.axes else []
    rows += [x for x in (1, 2, 4, 8, 16, 32, 64) if form.axes and 512 <= x * longest <= MOST_OF_ROWS and x > 1]
    rows = [x for x in rows if x <= max(1, power_of_two(form.rows))] or [0]
    tiles = []
    for x in rows:
        elements = max(1, x) * longest
        for per_thread in (8, 16, 32) if elements >= 1024 else (8,):
            tiles.append(Tile("persistent", x, max(1, min(most, elements // (32 * per_thread))), inner=inner))
    return list({t.name: t for t in tiles}.values())


def _looped(form: Form) -> list[Tile]:
    longest = power_of_two(max(form.length(s) for s in form.spaces))
    outer = power_of_two(form.rows) if form.axes else 1
    varies = not all(sympy.sympify(s.numel).is_Integer for s in form.spaces)
    shapes = [(0, min(longest, 2048), 8), (0, min(longest, 1024), 4)][::-1 if varies else 1]
    if longest > PERSISTENT_LIMIT and not can_split(form) and _is_light(form):
        shapes = [*_of_few_rows(form), *shapes]
    if varies and longest < 1024:
        many = [x for x in (2, 4, 8, 16, 32, 64) if x <= outer and 1024 <= x * longest <= MOST_OF_ROWS]
        shapes += [(x, longest, warps) for x in many for warps in (4, 8)]
    if form.axes and outer > 1 and form.contiguous_over_rows:
        blocks = (64, 32, 4), (128, 16, 4), (32, 64, 8), (32, 16, 4)
        shapes = [(min(outer, x), min(longest, r), w) for x, r, w in blocks]
    tiles = []
    for x, block, warps in shapes:
        splits = _splits(form, max(1, x), block)
        tiles.append(Tile("looped", x, warps, inner={s.name: block for s in form.spaces}, splits=splits))
    return list({t.name: t for t in tiles}.values())


def _is_light(form: Form) -> bool:
    """Whether 32 warps have registers for what a row's elements need: there are 64 for each thread."""
    loads = {(s.buffer, s.index) for b in form.bodies for s in b.statements if s.op == "load" and s.name in b.inner}
    return len(loads) <= FEW_LOADS and all(form.buffers[name].dtype.itemsize <= 4 for name, _ in loads)


def _of_few_rows(form: Form) -> list[tuple[int, int, int]]:
    """(no rows, elements, warps) of programs of which a multiprocessor holds few, so that the second loop over a row
    finds it in the cache. Measured on an H100, for softmax, layer norm and RMS norm of 32768 to 128256 elements."""
    read = {s.buffer for b in form.bodies for s in b.statements if s.op == "load" and s.name in b.inner}
    wide = all(form.buffers[name].dtype.itemsize >= 4 for name in read)
    return [(0, 8192, 32), (0, 4096, 16)] if wide else [(0, 4096, 16)]


def _splits(form: Form, x: int, block: int) -> int:
    """How many programs share a row: enough to keep memory busy."""
    programs = -(-form.rows // x)
    length = form.length(form.spaces[0])
    enough = 8 * PROCESSORS
    if not can_split(form) or programs >= enough or length * x < SPLIT_FROM:
        return 1
    wanted = 1 << (enough // programs).bit_length() - 1
    return max(1, min(wanted, power_of_two(length // (2 * block)), MOST_SPLITS))


def _score(form: Form, tile: Tile) -> tuple[float, str]:
    """(estimate, its reason): lanes with work x programs for the processors x elements for each thread."""
    rows, longest = form.rows, max((form.length(s) for s in form.spaces), default=1)
    if tile.y:
        axis = next(a for a in form.axes if a.symbol == tile.y_axis)
        y = form.hint(axis.extent)
        lanes = _fill(y, tile.y) * _fill(rows // max(1, y), tile.x)
        programs = -(-y // tile.y) * -(-max(1, rows // max(1, y)) // tile.x)
        elements, penalty = tile.x * tile.y, 1.0
    else:
        x = max(1, tile.x)
        lanes = _fill(rows, x)
        programs = -(-rows // x) * tile.splits
        elements = x * max(tile.inner.values(), default=1)
        for space in form.spaces:
            lanes *= _fill(form.length(space), tile.inner[space.name])
        rereads = tile.shape == "looped" and tile.splits == 1 and not can_split(form)
        penalty = 1.0
        if rereads:  # it reads its input more than once
            penalty = 0.6 if longest > PERSISTENT_LIMIT and tile.warps >= 16 else 0.5
        if form.spaces and form.axes and form.contiguous_over_rows:
            penalty *= min(1.0, x / min(SECTOR, power_of_two(rows)))  # a narrow tile uses a part of what it fetches
        if tile.shape == "pointwise" and form.axes and form.other_contiguous_axis:
            penalty = 0.25  # one side of the copy is not contiguous
    busy = min(1.0, programs / PROCESSORS)
    per_thread = elements / (32 * tile.warps)
    width = min(per_thread, 8) / 8 * min(1.0, 32 / per_thread)
    if tile.shape == "persistent" and rows * longest >= 4 * PROCESSORS * MOST_OF_ROWS and form.reduces:
        width = _rows_at_work(form, tile, per_thread)
    score = (0.2 + 0.8 * busy) * (0.3 + 0.7 * width) * lanes * penalty
    return score, f"{programs} programs, {per_thread:g} elements for each thread, {lanes:.0%} of the lanes in use"


def _rows_at_work(form: Form, tile: Tile, per_thread: float) -> float:
    """How well threads are used where rows abound: measured on an H100 and an H200, for softmax and layer norm of 128
    to 8192 elements, masked, and behind a GELU.

    16 or 32 elements for each thread hide what loads wait for, as long as registers last; warps that share a row wait
    for each other at each sum, and those of a program where they meet; of programs of one warp a multiprocessor holds
    so few that they leave it half empty, unless each thread has much to do.
    """
    rows = max(1, tile.x)
    several = rows >= 2 * tile.warps  # rows of each warp
    width = (0.7 + 0.3 * min(per_thread, 16) / 16) * (1.0 if per_thread >= 32 else 0.99)
    if per_thread > 16 and not several:
        loads = {(s.buffer, s.index) for b in form.bodies for s in b.statements if s.op == "load" and s.name in b.inner}
        width *= 0.85 if len(loads) > 4 else 0.93 if rows == 1 else 1.0
    together = 0.93 ** max(0.0, math.log2(tile.warps / rows))
    meeting = {1: 0.9, 2: 0.98}.get(tile.warps, 1.0)
    if several and per_thread >= 32:
        meeting = 0.99 ** math.log2(tile.warps)
    return width * together * meeting * min(1.0, 32 / per_thread)


def _fill(numel: int, block: int) -> float:
    numel = max(1, numel)
    return numel / (-(-numel // block) * block)
