"""`ptdebug report`: one HTML file, linked, escaped, without network, that says what is left out."""
from __future__ import annotations

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts import html_report, records as r
from ptdebug.artifacts.store import RecordingWriter
from ptdebug.cli import api
from ptdebug.cli.main import main

EVIL = "</i><script>window.evil=1</script><img src=x onerror=evil()>&\x1b]0;x"


class Page(HTMLParser):
    """The tags and the lines of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "i":
            self.rows.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.rows:
            self.rows[-1] = (self.rows[-1][0], self.rows[-1][1] + data)


def page(selector: Path | str, out: Path, *words: str) -> Page:
    assert main(["report", str(selector), "-o", str(out), *words]) == 0
    return Page(out.read_text())


def up(found: Page, number: str) -> set[str]:
    """Everything that an item comes from."""
    edges = {a["data-r"]: (a.get("data-o") or "").split() for a, _ in found.rows if a.get("data-r")}
    seen, todo = {number}, [number]
    while todo:
        new = [n for n in edges.get(todo.pop(), ()) if n not in seen]
        seen.update(new)
        todo += new
    return seen


def test_all_of_a_recording_linked_from_kernel_to_program(tmp_path: Path) -> None:
    api.reset()

    def f(x):
        y = x.sin()
        print(end="")
        return (y * 2).relu()

    with ptdebug.record("r", out=str(tmp_path)) as recorded:
        compiled = ptdebug.compile(f)
        compiled(torch.ones(3))
        compiled(torch.ones(4))
    found = page(recorded.path, tmp_path / "r.html")
    sections = {attrs["id"] for tag, attrs in found.tags if tag == "section"}
    assert {"summary", "breaks", "recompilations", "compilations", "program"} <= sections
    targets = {attrs["href"] for tag, attrs in found.tags if tag == "a"}
    assert len(targets) > 5 and all(target and target[1:] in sections for target in targets)
    texts = {attrs.get("data-r"): text for attrs, text in found.rows}
    kernel = next(attrs for attrs, text in found.rows if "sin" in text and "t" in text and ";" in text
                  and attrs.get("data-o"))
    behind = {texts.get(number, "") for number in up(found, kernel["data-r"] or "")}
    assert any("y = x.sin()" in text for text in behind), behind
    assert not any(tag in ("img", "link", "iframe") for tag, _ in found.tags)
    assert not any("//" in (value or "") for _, attrs in found.tags for value in attrs.values())


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    path = tmp_path / f"{EVIL[:8].replace('/', '')}.py"
    path.write_text(f"# {EVIL}\n")
    writer = RecordingWriter(tmp_path / "evil", command=[EVIL])
    writer.source_file(str(path))
    for number in range(3):
        writer.begin(f"0/{number}", EVIL, str(path), 1)
        writer.record(f"0/{number}", "capture", "", r.Graph(EVIL, (
            r.Node(EVIL, EVIL, EVIL, (EVIL,), stack=(r.Location(str(path), 1, EVIL),), module=EVIL),)))
        writer.record(f"0/{number}", "breaks", "", r.Breaks((
            r.Break("0", EVIL, EVIL, EVIL, r.Location(str(path), 1, EVIL), EVIL, expression=EVIL),)))
        writer.record(f"0/{number}", "kernels", EVIL, r.Kernel(EVIL, "cpp", tuple(
            r.CodeLine(f"{EVIL} {n}", (EVIL,)) for n in range(50))))
        writer.end(f"0/{number}", "eager", EVIL, {"total": 1.0})
    writer.note(EVIL)
    writer.set_meta("exception", f"ValueError: {EVIL}")
    writer.close(1)
    return tmp_path / "evil"


def test_recorded_text_stays_text(evil: Path, tmp_path: Path) -> None:
    found = page(evil, tmp_path / "r.html")
    assert [tag for tag, _ in found.tags].count("script") == 1 and not any(tag == "img" for tag, _ in found.tags)
    assert all(not name.startswith("on") for _, attrs in found.tags for name in attrs)
    assert "\x1b" not in (tmp_path / "r.html").read_text() and any("window.evil" in text for _, text in found.rows)
    policy = next(attrs["content"] for tag, attrs in found.tags if attrs.get("http-equiv"))
    assert policy and policy.startswith("default-src 'none'") and "'unsafe-inline'; script" in policy


def test_what_is_left_out_is_said(
    evil: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(html_report, "LINES", 20)
    assert main(["report", str(evil), "-o", str(tmp_path / "r.html"), "--limit", "0.01", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    left = document["left_out"]
    assert any("compilations: the report is limited to 0.01 MB" in text for text in left)
    assert main(["report", str(evil), "-o", str(tmp_path / "r.html"), "--limit", "0", "--json"]) == 0
    assert any("graph breaks" in text for text in json.loads(capsys.readouterr().out)["left_out"])
    assert main(["report", f"{evil}:0/0", "-o", str(tmp_path / "r.html"), "--json"]) == 0
    assert any("kernels" in text and " lines" in text for text in json.loads(capsys.readouterr().out)["left_out"])
    assert "Left out" in (tmp_path / "r.html").read_text()
    assert main(["report", f"{evil}:0/0:capture"]) == 2 and main(["report", str(evil), "-o", "/nowhere/x.html"]) == 2


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_script_is_valid() -> None:
    assert subprocess.run(["node", "--check", "-"], input=html_report.SCRIPT, text=True).returncode == 0
