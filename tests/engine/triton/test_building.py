"""Kernels compiled by the server: which ones are the same, what is kept, and what a failure says."""
from __future__ import annotations

import threading
from pathlib import Path

import pytest
import sympy
from ptdebug.artifacts.records import CodeLine
from ptdebug.engine.codegen.triton import TritonUnsupported, building
from ptdebug.engine.codegen.triton.source import Launch

pytest.importorskip("triton")

ADD = """@triton.jit
def {name}({x}_ptr, {y}_ptr, X_BLOCK: tl.constexpr):
    at = tl.program_id(0) * X_BLOCK + tl.arange(0, X_BLOCK)
    {value} = tl.load({x}_ptr + at, mask=at < 100, other=0.0)  # {value} of {x}
    tl.store({y}_ptr + at, {value} + {amount}, mask=at < 100)
"""


def _launch(types: tuple[str, ...] = ("*fp32", "*fp32"), **names: str) -> Launch:
    given = {"name": "kernel", "x": "x", "y": "y", "value": "value", "amount": "1.0", **names}
    lines = tuple(CodeLine(line) for line in ADD.format(**given).splitlines())
    grid = (sympy.Integer(1),)
    return Launch(given["name"], ("x", "y"), types, (), {"X_BLOCK": 128}, grid, 4, "int32", lines)


def _text(**names: str) -> str:
    launch = _launch(**names)
    return building.canonical("\n".join(line.text for line in launch.lines), launch.name)


def test_names_and_comments_do_not_count() -> None:
    """Kernels of two layers are one; a number, or an argument in another place, makes two."""
    assert _text() == _text(name="fused_7", x="buf3", y="buf9", value="add_12")
    assert _text() != _text(amount="2.0")
    assert building.canonical("def f(a, b):\n    a = b", "f") == building.canonical("def g(b, a):\n    b = a", "g")
    assert building.canonical("def f(a, b):\n    a = b", "f") != building.canonical("def f(a, b):\n    b = a", "f")


def test_keyword_arguments_and_attributes_keep_their_names() -> None:
    """A variable may be called like one: `mask=mask` and `other=other` are two things."""
    mask = "def f(mask):\n    tl.load(0, mask=mask)\n    return tl.mask(mask == 1)"
    assert building.canonical(mask, "f") == "def n0(n1):\n    tl.load(0, mask=n1)\n    return tl.mask(n1 == 1)"
    assert building.canonical(mask, "f") != building.canonical(mask.replace("mask", "other"), "f")


def test_each_kernel_is_compiled_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a process by memory, in the next from disk, and anew where the file is damaged."""
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(building, "_BUILDS", {})
    aligned = (True, True)
    first = building.begin(_launch(), 90, aligned, False)
    assert building.begin(_launch(name="other", x="a", y="b"), 90, aligned, False) is first
    half = building.begin(_launch(types=("*fp16", "*fp16")), 90, aligned, False)
    binary = first.wait()
    assert half.wait().path != binary.path
    assert Path(binary.path).read_bytes()[:4] == b"\x7fELF"
    assert (binary.name, binary.warps) == ("kernel", 4)

    monkeypatch.setattr(building, "_BUILDS", {})
    monkeypatch.setattr(building, "_service", lambda: pytest.fail("it is on disk"))
    assert building.begin(_launch(name="other"), 90, aligned, False).wait() == binary
    monkeypatch.undo()
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(building, "_BUILDS", {})
    Path(binary.path).write_bytes(b"damaged")
    again = building.begin(_launch(name="other"), 90, aligned, False).wait()
    assert Path(again.path).read_bytes()[:4] == b"\x7fELF"


def test_processes_that_compile_one_kernel_under_two_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each has the machine code in which its name is, whoever ends last."""
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    builds = []
    for name in ("one", "other"):  # neither sees that the other has begun
        monkeypatch.setattr(building, "_BUILDS", {})
        builds.append(building.begin(_launch(name=name), 90, (True, True), False))
    jobs = [dict(b.job) for b in builds]
    assert jobs[0]["key"] == jobs[1]["key"]
    for build, name in zip(reversed(builds), ("other", "one")):
        binary = build.wait()
        assert binary.name == name and name.encode() in Path(binary.path).read_bytes()
    assert b"other" in Path(builds[1].wait().path).read_bytes()
    monkeypatch.setattr(building, "_BUILDS", {})
    kept = building.begin(_launch(name="third"), 90, (True, True), False).wait()
    assert kept.name.encode() in Path(kept.path).read_bytes()


def _refusal(build: building.Build) -> TritonUnsupported | None:
    try:
        build.wait()
    except TritonUnsupported as error:
        return error
    return None


def test_threads_that_wait_for_one_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(building, "_BUILDS", {})
    found: list[building.Binary] = []
    one = building.begin(_launch(), 90, (True, True), False)
    threads = [threading.Thread(target=lambda: found.append(one.wait()), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [one.wait()] * 3


def test_what_triton_refuses_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the server, and by this process where the server has gone."""
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(building, "_BUILDS", {})
    with pytest.raises(TritonUnsupported, match=r"(?s)kernel: .*not_there"):
        building.begin(_launch(amount="not_there"), 90, (True, True), False).wait()
    same = building.begin(_launch(amount="not_there", name="another"), 90, (True, True), False)
    answered: list[BaseException | None] = []  # the service has told it once, and waits for nothing more
    waiting = threading.Thread(target=lambda: answered.append(_refusal(same)), daemon=True)
    waiting.start()
    waiting.join(30)
    assert "not_there" in str(answered)
    gone = building._Service()
    gone._process.kill()
    gone._process.wait()
    monkeypatch.setattr(building, "_SERVICES", [])
    monkeypatch.setattr(building, "_service", lambda: gone)
    with pytest.raises(TritonUnsupported, match=r"(?s)kernel: .*not_here"):
        building.begin(_launch(amount="not_here"), 90, (True, True), False).wait()
