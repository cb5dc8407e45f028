"""Kernels compiled for sm_90 on whatever machine this is: what the later forms say."""
from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import sympy
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.machine_lines import source_lines
from ptdebug.artifacts.provenance import links
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Kernel
from ptdebug.dependencies import msgspec
from ptdebug.engine.codegen.triton import describe_for_target, describe_kernel, generate, machine_code
from ptdebug.engine.codegen.triton.occupancy import occupancy
from ptdebug.engine.ir.ir import Axis, Buffer, Group, LoopBody, Plan, Program, Statement

i0, r0 = (sympy.Symbol(name, integer=True, nonnegative=True) for name in ("i0", "r0"))


def _buffer(name: str, *size: int, dtype: torch.dtype = torch.float32) -> Buffer:
    strides = [1]
    for n in reversed(size[1:]):
        strides.insert(0, strides[0] * n)
    integers = tuple(map(sympy.Integer, size)), tuple(map(sympy.Integer, strides[: len(size)]))
    return Buffer(name, dtype, torch.device("cpu"), *integers)


def _row_sum(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> tuple[Group, dict[str, Buffer]]:
    statements = (
        Statement("t0", "load", buffer="x", index=columns * i0 + r0, dtype=dtype, origins=("x",)),
        Statement("t1", "cast", ("t0",), origins=("sum_1",)),
        Statement("t2", "reduce", ("t1",), mode="sum", origins=("sum_1",)),
        Statement("t3", "store", ("t2",), buffer="buf0", index=i0, origins=("sum_1",)),
    )
    axes = (Axis(i0, sympy.Integer(rows)),)
    body = LoopBody("buf0", axes, (Axis(r0, sympy.Integer(columns)),), statements)
    buffers = {"x": _buffer("x", rows, columns, dtype=dtype), "buf0": _buffer("buf0", rows)}
    return Group("row_sum", axes, (body,)), buffers


@pytest.fixture(scope="module")
def row_sum() -> Kernel:
    group, buffers = _row_sum(4096, 1024, torch.bfloat16)
    return describe_kernel(generate(group, buffers, CompileContext()), "cuda:90")


def test_every_form_is_recorded(row_sum: Kernel) -> None:
    assert row_sum.log == "" or "was not found" in row_sum.log
    assert {"ttir", "ttgir", "llir", "ptx"} <= set(row_sum.outputs)
    assert row_sum.target == "cuda:90" and row_sum.kernels == ("row_sum",)


def test_the_row_is_loaded_once_and_wide(row_sum: Kernel) -> None:
    """1024 bfloat16 in registers: one 16-byte load for each thread, shuffles to add up, and one store."""
    assert row_sum.outputs["ttir"].count("tt.load") == 1
    assert "tt.reduce" in row_sum.outputs["ttir"]
    ptx = row_sum.outputs["ptx"]
    assert ".target sm_90" in ptx
    assert re.search(r"ld\.global\S*\.v4\.b32", ptx)
    assert "shfl.sync.bfly" in ptx
    assert len(re.findall(r"\bst\.global", ptx)) == 1


def test_facts_are_of_this_kernel(row_sum: Kernel) -> None:
    assert row_sum.metrics["num_warps"] * 32 <= 1024
    if "registers" in row_sum.metrics:
        assert 0 < row_sum.metrics["registers"] <= 255 and row_sum.metrics["spills"] == 0
        assert row_sum.metrics["occupancy"] == 1 and row_sum.metrics["occupancy_limit"] == "warps"
    if "sass" in row_sum.outputs:
        assert "LDG.E.128" in row_sum.outputs["sass"]


def test_every_form_leads_to_the_line_that_loads(row_sum: Kernel) -> None:
    """Also the load itself, which is inline assembly in PTX."""
    loads = {"ttir": "tt.load", "ttgir": "tt.load", "ptx": "ld.global", "sass": "LDG"}
    for form, mark in loads.items():
        text = row_sum.outputs.get(form, "")
        both = zip(source_lines(form, text), text.split("\n"))
        lines = {line for line, code in both if re.search(rf"{mark}\b", code)}
        assert not text or ["tl.load" in row_sum.lines[line - 1].text for line in lines] == [True], form
        assert max(source_lines(form, text), default=0) <= len(row_sum.lines)  # not one of tl.sum's file
        reduced = [line for line, code in zip(source_lines(form, text), text.split("\n")) if "shfl" in code.lower()]
        assert all("tl.sum" in row_sum.lines[line - 1].text for line in reduced), form


def test_each_launch_has_forms_with_lines_of_the_whole_module() -> None:
    """Compiled apart, and the second one shares its binary with a kernel of another name."""
    group, buffers = _row_sum(2, 1 << 20)
    first = describe_kernel(generate(group, buffers, CompileContext()), "cuda:90")
    second = describe_kernel(generate(replace(group, kernel="other"), buffers, CompileContext()), "cuda:90")
    assert second.path == first.path and "one binary with row_sum_combine" in second.log
    for record in (first, second):
        combine = record.kernels[1]
        text = record.outputs[f"{combine}.ptx"]
        assert f".entry {combine}(" in text
        origins = [line for line in source_lines(f"{combine}.ptx", text) if line]
        stores = {line for line, code in zip(source_lines("ptx", text), text.split("\n")) if "st.global" in code}
        start = next(k for k, line in enumerate(record.lines, 1) if line.text.startswith(f"def {combine}("))
        assert min(origins) >= start and ["tl.store" in record.lines[k - 1].text for k in stores] == [True]


@pytest.mark.parametrize("capability, warps, registers, shared, share, limit", [
    (90, 4, 32, 0, 1.0, "warps"),
    (90, 8, 255, 0, 0.125, "registers"),  # 8 warps of 8160 registers, allocated as 8192
    (90, 4, 168, 0, 0.1875, "registers"),  # a quarter of the registers holds 3 warps of 5376
    (80, 4, 64, 48 * 1024, 0.1875, "shared memory"),  # 49 KiB each of 164
    (75, 1, 16, 0, 0.5, "blocks"),
])
def test_occupancy(capability: int, warps: int, registers: int, shared: int, share: float, limit: str) -> None:
    held = occupancy(capability, warps, registers, shared)
    assert held is not None and (held.share, held.limit) == (share, limit)


def test_without_the_tools_the_record_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, row_sum: Kernel
) -> None:
    monkeypatch.setattr(machine_code, "_found", lambda name: None)
    (record,) = machine_code.with_sass([msgspec.structs.replace(row_sum, outputs={}, metrics={})])
    assert record is not None and record.outputs == {} and "registers" not in record.metrics
    assert "nvdisasm was not found" in record.log and "cuobjdump was not found" in record.log
    monkeypatch.undo()
    bare = msgspec.structs.replace(row_sum, outputs={}, metrics={})
    assert machine_code._found("nvdisasm") is None or machine_code.with_sass([bare], seconds=-1) == [None]
    (broken,) = machine_code.with_sass([msgspec.structs.replace(bare, path="/not/there.cubin")])
    assert (broken is not None and "not/there.cubin" in broken.log) or "was not found" in row_sum.log


def test_lines_know_their_origins(row_sum: Kernel) -> None:
    (line,) = [x for x in row_sum.lines if "tl.store" in x.text]
    assert line.origins == ("loop_ir:buf0#t3", "forward#sum_1")
    (line,) = [x for x in row_sum.lines if "tl.sum" in x.text]
    assert "loop_ir:buf0#t2" in line.origins


def test_positions_beyond_int32_are_int64() -> None:
    group, buffers = _row_sum(1 << 20, 4096)
    source = generate(group, buffers, CompileContext())
    assert "tl.program_id(0).to(tl.int64)" in source.text
    assert "int64" not in generate(*_row_sum(1 << 10, 4096), CompileContext()).text


def test_few_long_rows_are_shared_without_atomics() -> None:
    source = generate(*_row_sum(2, 1 << 20), CompileContext())
    assert [k.name for k in source.launches] == ["row_sum_partial", "row_sum_combine"]
    assert source.signature.buffers == ("x", "buf0")
    assert source.grid("row_sum_partial")()[1] > 1
    assert "atomic" not in source.text


def test_the_tile_is_a_decision_that_can_be_forced() -> None:
    forced = CompileContext(overrides={"tile:row_sum": "looped-r1024-w4"})
    assert "for r_offset in range(0, 1024, R_BLOCK)" in generate(*_row_sum(4096, 1024), forced).text
    with pytest.raises(ValueError, match="persistent-"):
        generate(*_row_sum(4096, 1024), CompileContext(overrides={"tile:row_sum": "none"}))


def test_what_a_plan_would_be_on_a_gpu() -> None:
    group, buffers = _row_sum(64, 64)
    program = Program(("x",), {}, buffers, {}, group.bodies, ())
    ((stage, name, record),) = describe_for_target(Plan(program, (group,)), "cuda:90", CompileContext())
    assert (stage, name) == ("kernels", "row_sum@cuda:90")
    assert "row_sum" in record.outputs["ptx"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_recording_has_what_a_gpu_ran(tmp_path: Path) -> None:
    """All forms of the kernels that ran, with their lines; the SASS is added when the program has ended."""
    (tmp_path / "program.py").write_text(
        "import torch\n\n@torch.compile\ndef f(x):\n    return torch.softmax(x * 2, -1) + x.sum(0)\n\n"
        "f(torch.randn(300, 1000, device='cuda'))\n")
    command = [sys.executable, "-m", "ptdebug", "run", "--out", str(tmp_path), "--name", "ran"]
    done = subprocess.run([*command, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "1 graph" in done.stderr, done.stderr
    with Recording.open(tmp_path / "ran") as recording:
        kernels = [kernel for _, kernel in recording.records(Kernel)]
        chains = links(recording, "0/0")
    assert kernels
    for kernel in kernels:
        assert kernel.target.startswith("cuda:") and not kernel.log
        for launch in kernel.kernels:
            prefix = machine_code.prefix_of(launch, kernel.kernels)
            assert {f"{prefix}{form}" for form in ("ttir", "ttgir", "llir", "ptx", "sass")} <= set(kernel.outputs)
            assert 0 < kernel.metrics[f"{prefix}occupancy"] <= 1
        sass = next(name for name in kernel.outputs if name.endswith("sass"))
        number = next(k for k, line in enumerate(kernel.outputs[sass].split("\n"), 1) if "LDG" in line)
        assert any(r.startswith("source:") for r in chains.origins(f"machine_code:{kernel.name}.{sass}#{number}"))
