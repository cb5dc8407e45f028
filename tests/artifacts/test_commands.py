"""The commands that look at recordings, as a person or a program calls them."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ptdebug.cli.main import main

COMMANDS = ["ls", "show", "breaks", "guards", "recompiles", "fusions", "kernels", "decisions", "why"]
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def home(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTDEBUG_HOME", str(sample.parent))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def ask_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    document = json.loads(ask(capsys, *arguments, "--json"))
    assert next(iter(document)) == "schema"
    assert document["schema"] == "ptdebug/2"
    return document


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main([command, "--help"])
    assert done.value.code == 0
    out = capsys.readouterr().out
    assert out.rstrip().split("\n")[-1].strip().startswith(f"ptdebug {command}")
    assert "--json" in out


def test_ls(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    row, = ask_json(capsys, "ls")["recordings"]
    assert row.items() >= {"name": "model-1", "exit_code": 0, "compiles": 3, "graph_breaks": 1}.items()
    assert re.search(r"^@ +model-1 .* 3 +1 +model.py$", ask(capsys, "ls"), re.M)
    assert "ptdebug run SCRIPT" in ask(capsys, "ls", str(tmp_path))


@pytest.mark.parametrize("selector, text", [
    ("@", "compilations"), ("@:0/0", "loop_ir:buf1"), ("@:0/0:frame", "status: compiled"),
    ("@:0/0:bytecode", "LOAD_GLOBAL"), ("@:0/0:capture", "sigmoid = torch.sigmoid(mul)  # float32[4, 16]"),
    ("@:0/0:breaks", "change: remove the print"), ("@:0/0:guards", "  BOOL           L['self'].training is True"),
    ("@:0/1:guards", "because: L['x'].size()[0] == 4: was 4, is now 6"),
    ("@:0/0:output_bytecode", "rewritten of forward"),
    ("@:joint", "aten.sigmoid.default"), ("@:passes", "common-subexpression: mul_9 -> mul"),
    ("@:0/0:loop_ir:buf1", "t2 = sigmoid t1 : float32"), ("@:0/0:fusion", "enabled by: a lowering"),
    ("@:0/0:schedule", "g1: loops kernel_0"), ("@:0/0:kernels", "std::exp(-t1)"), ("@:0/0:kernels:unit_0.asm", "ret"),
    ("@:0/0:wrapper", "def call(args):"), ("@:0/0:runtime", "10 calls"), ("@:0/0:decisions", "[not fuse]"),
    ("@:0/0:decisions:fallback:addmm", "faster in the library"),
])
def test_show(selector: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = ask(capsys, "show", selector)
    assert text in out
    assert "\x1b" not in out
    ask_json(capsys, "show", selector)


def test_show_json_holds_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    document = ask_json(capsys, "show", "@:0/0:loop_ir")
    artifact, = document["artifacts"]
    assert (artifact["stage"], artifact["name"], artifact["record"]["record"]) == ("loop_ir", "buf1", "Loops")
    compiled = ask_json(capsys, "show", "@:0/0")
    assert compiled["compile"]["id"] == "0/0"
    assert {"stage": "kernels", "name": "unit_0", "kind": "Kernel", "items": 13} in compiled["artifacts"]
    assert ask_json(capsys, "show", "@")["counts"]["graph_breaks"] == 1


def test_show_line_follows_a_line_through_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    out = ask(capsys, "show", "@:0/0:kernels", "--line", "9")
    for text in ("model.py:5 ", "capture ", "joint ", "loop_ir:buf1 ", "wrapper "):
        assert f"\n  {text}" in out
    assert "loop_ir:buf1#t2" in ask_json(capsys, "show", "@:0/0:kernels", "--line", "9")["related"]
    assert main(["show", "@:0/0:kernels", "--line", "999"]) == 2


def test_questions_have_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask_json(capsys, "breaks")["graph_breaks"][0]["times"] == 2
    assert len(ask_json(capsys, "guards", "@:0/0")["guards"]) == 3
    assert len(ask_json(capsys, "guards", "@", "--kind", "BOOL")["guards"]) == 2
    assert ask_json(capsys, "recompiles")["recompiles"][0]["actual"] == 6
    assert [c["fused"] for c in ask_json(capsys, "fusions", "@:0/0")["fusions"]] == [False, True]
    assert [c["fused"] for c in ask_json(capsys, "fusions", "@:0/0", "--refused")["fusions"]] == [False]
    kernels = ask_json(capsys, "kernels", "@:0/0")
    assert [(k["kind"], k["name"]) for k in kernels["kernels"]] == [("extern", "aten.addmm"), ("loops", "kernel_0")]
    assert kernels["units"][0]["metrics"] == {"vector_width": 8}
    assert len(ask_json(capsys, "decisions", "@", "--kind", "fuse")["decisions"]) == 2


def test_questions_have_texts(capsys: pytest.CaptureFixture[str]) -> None:
    assert "print() runs outside of the graph" in ask(capsys, "breaks")
    assert "was 4, is now 6" in ask(capsys, "recompiles")
    assert "not fused buf0 + buf1" in ask(capsys, "fusions")
    assert "kernel_0" in ask(capsys, "kernels")
    assert "no graph breaks" in ask(capsys, "breaks", "@:1/0")
    assert "no recompilations" in ask(capsys, "recompiles", "@:0/0")


def test_why(capsys: pytest.CaptureFixture[str]) -> None:
    out = ask(capsys, "why", "@:0/0", "why was buf0 not fused with buf1?")
    assert "buf0 is a library call: there are no loops to fuse" in out
    assert "* keep  score 1  a library call  (default)" in out
    answers = ask_json(capsys, "why", "@:0/0", "fallback:addmm")["answers"]
    assert answers[0]["chosen"] == "aten"
    assert main(["why", "@", "xyzzy"]) == 1
    assert "nothing recorded about 'xyzzy'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, message", [
    (["show", "@:0/0:backward"], "inference: nothing requires a gradient"),
    (["show", "@:0/0:kernel"], "did you mean kernels?"),
    (["show", "@:0/9"], "did you mean 0/1?"),
    (["breaks", "modle-1"], "did you mean model-1?"),
])
def test_errors_are_one_line_and_code_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err and len(err.strip().split("\n")) == 1


def test_colours_where_they_are_wanted(sample: Path) -> None:
    def shown(**extra: str) -> str:
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
        return subprocess.run([sys.executable, "-m", "ptdebug", "show", "@:0/0:capture"], check=True, text=True,
                              capture_output=True, env={**environment, **extra}, cwd=sample).stdout

    plain = shown()
    assert "\x1b" not in plain
    coloured = shown(FORCE_COLOR="1")
    assert coloured != plain and ESCAPE.sub("", coloured) == plain
    assert shown(FORCE_COLOR="1", NO_COLOR="1") == plain


def test_no_command_that_looks_imports_torch_or_textual() -> None:
    code = ("import sys\nfrom ptdebug.cli.main import main\n"
            "for command in sys.argv[1:]: assert main([command]) == 0\n"
            "print([m for m in ('torch', 'textual', 'rich', 'sympy', 'numpy') if m in sys.modules], file=sys.stderr)")
    done = subprocess.run([sys.executable, "-c", code, *COMMANDS[:-1]], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
