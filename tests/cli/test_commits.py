"""`ptdebug bisect --commits`: the commit that made a program worse, and what it changed."""
from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]

MODEL = """\
import torch


def scale(x):
    return x * 2


@torch.compile
def f(x):
    y = scale(x)
    return y + 1
"""
TRAIN = """\
import torch
from model import f

print(f(torch.ones(4)).sum().item())
"""


def git(folder: Path, *words: str) -> str:
    own = ("-c", "user.name=A Person", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", "-C", str(folder), *own, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Seven commits; the fourth logs a value, which breaks the graph, the sixth cannot be imported, the last can."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    git(tmp_path, "init", "-q", "-b", "main", "project")
    breaking = MODEL.replace("    return y + 1", "    print(end=\"\")\n    return y + 1")
    texts = [MODEL, MODEL.replace("* 2", "* 3"), MODEL.replace("* 2", "* 4"), breaking,
             breaking.replace("* 2", "* 5"), "syntax error", breaking.replace("* 2", "* 6")]
    (folder / "src" / "train.py").write_text(TRAIN)
    for number, text in enumerate(texts, 1):
        (folder / "src" / "model.py").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"change {number}")
        git(folder, "tag", f"v{number}")
    return folder


def test_the_commit_that_added_a_graph_break(repository: Path, warm: Command) -> None:
    (repository / "src" / "model.py").write_text("the person is in the middle of something")
    found = warm("bisect", "--commits", "v1..v5", "train.py", cwd=repository / "src")
    assert found.returncode == 0, found.stderr
    assert "A Person  change 4" in found.stdout.splitlines()[0]
    assert "graph breaks: 0 -> 1" in found.stdout and 'print(end="")' in found.stdout
    assert (repository / "src" / "model.py").read_text().startswith("the person")
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    names = next(line for line in found.stdout.splitlines() if "ptdebug diff" in line).split()[-2:]
    compared = warm("diff", *names)
    assert compared.returncode == 1 and "1 graph break" in compared.stdout


def test_what_is_bad_can_be_said_and_what_cannot_be_judged_is_skipped(repository: Path, warm: Command) -> None:
    check = "python3 -c \"import os, sys; c = os.environ['PTDEBUG_EXIT_CODE']; x = sys.stdin.read(); " \
            "sys.exit(125 if c != '0' else float(x.split()[-1]) > 25)\""
    found = warm("bisect", "--json", "--commits", "v4", "--check", check, "train.py", cwd=repository / "src")
    document = json.loads(found.stdout)
    assert document["first_bad"]["subject"] == "change 7" and document["last_good"]["subject"] == "change 5"
    assert [commit["subject"] for commit in document["skipped"]] == ["change 6"]
    assert document["why"] == "the check exits with 1"


def test_what_is_no_question(repository: Path, warm: Command, tmp_path: Path) -> None:
    here = repository / "src"
    fine = warm("bisect", "--commits", "v1..v3", "train.py", cwd=here)
    assert fine.returncode == 1 and "is no worse than" in fine.stdout
    for words, said in {
        ("v3..v1",): "v3 is not before v1", ("nothing",): "there is no commit nothing here",
        ("v7",): "there is no commit after v7", ("v6..v7",): "v6 is not good: exit code 1: SyntaxError",
    }.items():
        refused = warm("bisect", "--commits", *words, "train.py", cwd=here)
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr
    (tmp_path / "alone.py").write_text("")
    refused = warm("bisect", "--commits", "v1", "alone.py")
    assert refused.returncode == 2 and "is in no git repository" in refused.stderr
    refused = warm("bisect", "--commits", "v1", "@")
    assert refused.returncode == 2 and "give the script" in refused.stderr


def test_a_module_installed_from_the_working_folder_is_told(repository: Path, warm: Command, tmp_path: Path,
                                                            environment: dict[str, str]) -> None:
    (tmp_path / "outside.py").write_text(f"import sys\nsys.path.insert(0, {str(repository / 'src')!r})\n{TRAIN}")
    refused = warm("bisect", "--commits", "v1..v3", str(tmp_path / "outside.py"), cwd=repository)
    assert refused.returncode == 2 and "was loaded from the working folder, not from the commit" in refused.stderr
