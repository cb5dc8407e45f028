"""Tiles of matrix products: those that are worth trying for a shape, and which one is taken where none is measured.

The scores are shares of what a GPU's tensor cores, or its memory, could do: large tiles read operands less often, small
ones leave no processor without work. With max-autotune all candidates are compiled and timed on the device.
"""
from __future__ import annotations

from collections.abc import Mapping

import sympy

from .....artifacts.context import CompileContext
from .....artifacts.records import Option
from ....scheduler.occupancy import PROCESSORS
from ..tiling import Tile, power_of_two
from .form import LEFT, RIGHT, Product, descriptions

SHAPES: tuple[tuple[int, int, int, int, int], ...] = (
    (128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 128, 8, 3), (128, 128, 64, 4, 3), (128, 64, 64, 4, 3),
    (64, 128, 64, 4, 3), (64, 64, 64, 4, 4), (64, 32, 128, 4, 4), (32, 64, 128, 4, 4), (32, 32, 256, 4, 3),
    (16, 128, 128, 4, 4), (16, 64, 256, 8, 4), (16, 32, 128, 4, 5), (16, 32, 256, 4, 4), (16, 32, 512, 4, 3),
    (16, 16, 256, 4, 4),
)
"""Rows, columns and terms of a tile of 16-bit numbers, warps, and stages."""
COPIED: tuple[tuple[int, int, int, int, int], ...] = (
    (128, 256, 64, 8, 4), (128, 128, 64, 8, 4), (64, 128, 64, 4, 4),
)
"""The same for programs that take one tile after the other, and whose operands a Hopper's tensor memory accelerator
copies."""
SHARED = 220 * 1024  # bytes of shared memory that a processor of an H100 has for one program, less what else is there
USUAL = 96 * 1024  # bytes that any GPU since Ampere has
LARGE = 128 * 128  # elements of a tile that is large enough for any matrix
MANY = 16  # of smaller ones for each processor: of more, they are too small
LEAST = 16  # rows and columns of a tile, which `tl.dot` asks for


def candidates(product: Product) -> list[Tile]:
    """The tiles worth trying, at least one."""
    _, rows, columns, terms = product.shape
    wide = max(1, product.factor.itemsize // 2)
    found = []
    for y, x, r, warps, stages in SHAPES:
        r = max(LEAST, min(r // wide, power_of_two(terms)))
        if product.factor.itemsize == 1:
            r = max(32, r)
        many = y * x < LARGE and rows * columns > MANY * y * x * PROCESSORS
        if _fits(y, rows) and _fits(x, columns) and not many:
            found.append(Tile("product", x, warps, y, inner={LEFT: r, RIGHT: r}, stages=stages))
    if len(descriptions(product)) >= 2 and min(rows, columns) >= 128 and terms >= 64 and not product.batch:
        found += [Tile("product", x, w, y, inner=dict.fromkeys((LEFT, RIGHT), max(32, r // wide)), stages=s,
                       persistent=True) for y, x, r, w, s in COPIED]
    found = [t for t in found if shared_bytes(product, t) <= SHARED]
    return list({t.name: t for t in found}.values()) or [
        Tile("product", LEAST, 4, LEAST, inner={LEFT: 32, RIGHT: 32})]


def _fits(block: int, count: int) -> bool:
    """Whether a tile is neither much longer than the matrix nor so short that many would be needed."""
    whole = max(LEAST, power_of_two(count))
    return block <= whole and (block >= 32 or whole <= 32)


def programs(product: Product, tile: Tile, tiles: sympy.Expr) -> sympy.Expr:
    """How many programs share the tiles: two on each processor where its memory holds two, one of which has the tensor
    cores while the other computes what follows its product."""
    if not tile.persistent:
        return tiles
    each = max(1, min(2, SHARED // shared_bytes(product, tile)))
    return sympy.Min(each * PROCESSORS, tiles)


def shared_bytes(product: Product, tile: Tile) -> int:
    """Bytes of shared memory that the operands of a tile take."""
    return (tile.x + tile.y) * tile.inner[LEFT] * product.factor.itemsize * tile.stages


def choose(product: Product, tiles: list[Tile], times: Mapping[str, float], context: CompileContext) -> Tile:
    """Ask `context.decide` for one of the tiles: the fastest of those that were timed (seconds, by name), else the one
    with the best estimate."""
    form = product.form
    origins = tuple([f"loop_ir:{name}" for name in dict.fromkeys(
        s.buffer for b in form.bodies for s in b.statements if s.op == "store")])
    if times:
        best = min(times, key=times.__getitem__)
        options = [Option(name, round(s * 1e6, 1), unit="us", better="lower") for name, s in times.items()]
        why = f"the fastest of {len(times)} on this device, of {len(tiles)} that were compiled"
    else:
        scores = {t.name: _score(product, t) for t in tiles}
        best = max(scores, key=lambda name: scores[name][0])
        options = [Option(name, round(score, 3), why, better="higher") for name, (score, why) in scores.items()]
        why = f"best estimate of {len(tiles)}: {scores[best][1]}"
    chosen = context.decide("tile", form.name, options, best, why, origins=origins)
    return next(t for t in tiles if t.name == chosen)


def _score(product: Product, tile: Tile) -> tuple[float, str]:
    """(estimate, its reason): processors at work, elements of the tile that exist, and how often they are read."""
    batch, rows, columns, _ = product.shape
    down, across = -(-rows // tile.y), -(-columns // tile.x)
    count = batch * down * across
    waves = -(-count // PROCESSORS)
    busy = count / (waves * PROCESSORS)
    filled = rows * columns / (down * tile.y * across * tile.x)
    reuse = min(1.0, (tile.x * tile.y / (tile.x + tile.y)) / 64)
    ahead = min(1.0, tile.inner[LEFT] / 256)  # with few rows all depends on how much of the weight is on the way
    score = (0.1 + 0.9 * busy) * (0.2 + 0.8 * filled) * (0.3 + 0.7 * (ahead if rows <= LEAST else reuse))
    if shared_bytes(product, tile) > USUAL or tile.persistent:
        score *= 0.5  # where nothing is measured, a tile that every GPU has memory, and instructions, for
    return score, f"{count} tiles on {PROCESSORS} processors, {filled:.0%} of the tiles in use"
