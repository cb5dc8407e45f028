"""Rows of more than 16384 elements: as few passes over memory as there can be."""
from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from ptdebug.artifacts.context import CompileContext, Stage, run_stages
from ptdebug.engine.codegen.triton import kernels_for_plan
from ptdebug.engine.scheduler import occupancy
from ptdebug.engine.stages import INFERENCE

from tests.engine.fuzz_capture import captured, faked
from tests.engine.fuzz_devices import choose
from tests.engine.fuzz_graphs import results_of
from tests.engine.fuzz_programs import A, Program, given, program

SCHEDULED = [s.name if isinstance(s, Stage) else "" for s in INFERENCE].index("scheduling") + 1


@pytest.fixture(autouse=True)
def _as_on_a_gpu() -> Iterator[None]:
    choose("interpreter")
    yield
    choose("cpu")


def _of_rows(rows: int, size: int, dtype: torch.dtype = torch.float32) -> dict[str, Program]:
    x = given("a", (rows, size), dtype)
    return {
        "softmax": program([x], ("F.softmax", (A, -1), {})),
        "log softmax": program([x], ("F.log_softmax", (A, -1), {})),
        "layer norm": program([x], ("F.layer_norm", (A, (size,)), {})),
        "RMS norm": program([x], ("F.rms_norm", (A, (size,)), {})),
    }


@pytest.mark.parametrize("size, dtype, tile", (
    (32000, torch.float32, "persistent-r32768-w32"), (128256, torch.float32, "looped-r8192-w32"),
    (50304, torch.bfloat16, "looped-r4096-w16"),
))
def test_a_row_is_kept_in_registers_or_in_the_cache(size, dtype, tile):
    """What a loop has computed is not written to memory for the next."""
    for made in _of_rows(512, size, dtype).values():
        work = run_stages(INFERENCE[:SCHEDULED], captured(faked([made])), CompileContext())
        (kernel,) = kernels_for_plan(work.plan, CompileContext()).values()
        (launch,) = kernel.source.launches
        assert launch.tile == tile
        text = "\n".join(line.text for line in launch.lines)
        loops = text.count("for r_offset")
        assert (text.count("evict_last"), text.count("evict_first")) == (max(0, loops - 1), min(1, loops))
        assert text.count("tl.store") == 1


def test_values_of_long_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(occupancy, "LAUNCH", 1.0)  # one kernel, as for many rows
    rows = _of_rows(1, 40000)
    for made in (rows["softmax"], rows["RMS norm"]):
        _, _, results, (x,) = next(results_of([made], {}))
        (call,) = made.calls
        torch.testing.assert_close(results[0], call.target(x, *call.args[1:]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size, tile", (
    (129, "looped-x4-r256-w4"), (513, "looped-r1024-w4"), (4000, "looped-r1024-w4"),
))
def test_rows_of_a_length_that_varies(size, tile):
    """The tile suits the length at hand."""
    rows = _of_rows(2000, size)
    for name in ("softmax", "log softmax"):
        made = rows[name]
        work = run_stages(INFERENCE[:SCHEDULED], captured(faked([made], dynamic=True)), CompileContext())
        assert set(work.plan.program.sizes.values()) == {size, 2000}, name
        (kernel,) = kernels_for_plan(work.plan, CompileContext()).values()
        (launch,) = kernel.source.launches
        assert launch.tile == tile, name
        assert "\n".join(line.text for line in launch.lines).count("for r_offset") == 3


def test_values_of_rows_of_a_length_that_varies():
    for made in _of_rows(37, 129).values():
        (call,) = made.calls
        for _, _, results, (x,) in results_of([made], {}, dynamic=True):
            torch.testing.assert_close(results[0], call.target(x, *call.args[1:]), rtol=1e-5, atol=1e-5)


def test_the_tile_of_a_small_first_call_suits_larger_ones():
    """As of a batch of one, and a sequence of one token."""
    x = given("a", (2, 3), torch.float32)
    for made, tile in ((program([x], ("torch.exp", (A,), {})), "pointwise-x1024-w4"),
                       (program([x], ("F.softmax", (A, -1), {})), "looped-x16-r64-w4")):
        work = run_stages(INFERENCE[:SCHEDULED], captured(faked([made], dynamic=True)), CompileContext())
        (kernel,) = kernels_for_plan(work.plan, CompileContext()).values()
        assert kernel.source.launches[0].tile == tile
