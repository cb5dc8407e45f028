"""`ptdebug bisect --commits`: the commit that made a program worse, and what it changed."""
from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ptdebug.cli.commit_bisection import _search
from ptdebug.cli.commit_runs import Commit, CommitRun

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
BREAKING = MODEL.replace("    return y + 1", "    print(end=\"\")\n    return y + 1")


def git(folder: Path, *words: str) -> str:
    own = ("-c", "user.name=A Person", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", "-C", str(folder), *own, *words], check=True, capture_output=True, text=True).stdout


def repository(folder: Path, script: str, *models: str) -> Path:
    """A repository whose commits v1, v2, ... each have another src/model.py; the folder of the script."""
    source = folder / "project" / "src"
    source.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main", "project")
    (source / "train.py").write_text(script)
    for number, text in enumerate(models, 1):
        (source / "model.py").write_text(text)
        git(source, "add", "-A")
        git(source, "commit", "-q", "-m", f"change {number}")
        git(source, "tag", f"v{number}")
    return source


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Commits that print their number, the third of which cannot be imported; nothing is compiled."""
    numbers = ["N = 1", "N = 2", "syntax error", "N = 4", "N = 5"]
    return repository(tmp_path, "from model import N\nprint(N)\n", *numbers)


def test_the_commit_that_added_a_graph_break(tmp_path: Path, warm: Command) -> None:
    here = repository(tmp_path, TRAIN, MODEL, MODEL.replace("* 2", "* 3"), BREAKING, BREAKING.replace("* 2", "* 5"))
    (here / "model.py").write_text("the person is in the middle of something")
    found = warm("bisect", "--commits", "v1..v3", "train.py", cwd=here)
    assert found.returncode == 0, found.stderr
    assert "A Person  change 3" in found.stdout.splitlines()[0]
    assert "graph breaks: 0 -> 1" in found.stdout and 'print(end="")' in found.stdout
    assert (here / "model.py").read_text().startswith("the person")
    assert len(git(here, "worktree", "list").splitlines()) == 1
    names = next(line for line in found.stdout.splitlines() if "ptdebug diff" in line).split()[-2:]
    compared = warm("diff", *names)
    assert compared.returncode == 1 and "1 graph break" in compared.stdout


def test_what_is_bad_can_be_said_and_what_cannot_be_judged_is_skipped(plain: Path, warm: Command) -> None:
    check = "test $PTDEBUG_EXIT_CODE = 0 || exit 125; test $(tail -1) -lt 4"
    found = warm("bisect", "--json", "--commits", "v1", "--check", check, "train.py", cwd=plain)
    document = json.loads(found.stdout)
    assert document["first_bad"]["subject"] == "change 4" and document["last_good"]["subject"] == "change 2"
    assert [commit["subject"] for commit in document["skipped"]] == ["change 3"]
    assert document["why"] == "the check exits with 1"
    found = warm("bisect", "--commits", "v1", "--match", "^[45]$", "train.py", cwd=plain)
    assert "change 4" in found.stdout.splitlines()[0] and "its output has ^[45]$" in found.stdout


def test_what_is_no_question(plain: Path, warm: Command, tmp_path: Path) -> None:
    fine = warm("bisect", "--commits", "v1..v2", "train.py", cwd=plain)
    assert fine.returncode == 1 and "is no worse than" in fine.stdout
    (tmp_path / "alone.py").write_text("")
    for words, said in {
        ("v2..v1", "train.py"): "v2 is not before v1", ("nothing", "train.py"): "there is no commit nothing here",
        ("v5", "train.py"): "there is no commit after v5", ("v3..v4", "train.py"): "v3 is not good: exit code 1:",
        ("v1", "@"): "give the script",
    }.items():
        refused = warm("bisect", "--commits", *words, cwd=plain)
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr
    refused = warm("bisect", "--commits", "v1", "alone.py")
    assert refused.returncode == 2 and "is in no git repository" in refused.stderr


def test_a_module_installed_from_the_working_folder_is_told(warm: Command, tmp_path: Path) -> None:
    here = repository(tmp_path, TRAIN, MODEL, MODEL.replace("* 2", "* 3"))
    (tmp_path / "outside.py").write_text(f"import sys\nsys.path.insert(0, {str(here)!r})\n{TRAIN}")
    refused = warm("bisect", "--commits", "v1..v2", str(tmp_path / "outside.py"), cwd=here)
    assert refused.returncode == 2 and "was loaded from the working folder, not from the commit" in refused.stderr


def test_an_interrupted_search_says_what_it_knows(tmp_path: Path) -> None:
    """Ctrl-C while the third commit runs: the first was good, the last bad."""
    runs = [CommitRun(Commit(str(n), "", "", ""), 0, "", "", tmp_path, None) for n in range(5)]

    def ran(number: int) -> CommitRun:
        if number == 2:
            raise KeyboardInterrupt
        return runs[number]

    found = _search(5, ran, lambda run: "bad" if run is runs[4] else "")
    assert (found.good, found.bad, found.finished) == (runs[0], runs[4], False)


@pytest.mark.parametrize("command", ["bisect", "minify"])
def test_what_is_no_regular_expression(command: str, warm: Command, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("")
    refused = warm(command, "--match", "(", "p.py")
    assert refused.returncode == 2 and "is no regular expression" in refused.stderr
