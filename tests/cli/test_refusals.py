"""What cannot be is refused before the program starts, with what there is instead."""
from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts.decision_kinds import OPTIONS, RENAMED, RENAMED_OPTIONS, problem

Command = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("override", "option", "wrong"), [
    ("frame:f@*", "ager", "options are compile, eager"), ("frme:f", "eager", "did you mean frame?"),
    ("*", "nothing", "is no option of"), ("f*:*", "seperate", "fuse, separate"),
    ("memory-budget:graph", "much", "a number"),
    ("tile:k", "Tiles", "tiles, lanes, rows"), ("fuse:a+b", "separate", ""), ("*:x", "eager", ""),
    ("memory-budget:graph", "0.35", ""), ("tile:k", "persistent-x4-r1024-w8", ""), ("loop-order:k", "i0,i1", ""),
])
def test_overrides_are_checked_by_kind(override: str, option: str, wrong: str) -> None:
    found = problem(override, option)
    assert bool(found) == bool(wrong) and wrong in found


@pytest.mark.parametrize(("override", "option", "told"), [
    ("library:product-mm_1", "own", "now of kind matmul (\"matmul:mm_1\"; options mkl, onednn, mkl-packed, ptdebug)"),
    ("library:convolution", "channels-last", "now of kind conv-layout (\"conv-layout:convolution\";"),
    ("library:*", "mm", "now of kind bmm-to-mm, unfuse-addmm"), ("library:*", "padded", "now of kind pad-mm"),
    ("stores:*", "past it", "now of kind store-policy"), ("save:exp", "save", '"save-for-backward:exp"'),
    ("store-policy:*", "past it", "is now 'nontemporal'"), ("prefetch:*", "next row", "is now 'next-row'"),
])
def test_an_old_spelling_is_refused_with_the_new_one(override: str, option: str, told: str) -> None:
    assert told in problem(override, option)


def test_kinds_and_options_have_one_spelling() -> None:
    for kind, options in OPTIONS.items():
        for name in (kind, *(o for o in options if "\\" not in o)):
            assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name), (kind, name)
    assert not set(RENAMED) & set(OPTIONS) and {new for names in RENAMED.values() for new in names} <= set(OPTIONS)
    for (kind, old), new in RENAMED_OPTIONS.items():
        assert new in OPTIONS[kind] and old not in OPTIONS[kind]


def test_a_misspelt_option_is_refused_before_the_program_starts(ptdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text('[frame]\n"f@*" = "ager"\n')
    done = ptdebug("run", "--override", "o.toml", "-c", "print('started')")
    assert (done.returncode, done.stdout) == (2, "") and "the options are compile, eager" in done.stderr


def test_from_python_too(tmp_path: Path) -> None:
    for settings in ({"overrides": {"fuse:*": "seperate"}}, {"target": "cuda:9"}):
        with pytest.raises(ValueError, match=r"options are fuse, separate|compute capability"):
            with ptdebug.record("r", out=str(tmp_path), **settings):
                raise AssertionError("it began")
    assert not list(tmp_path.iterdir())


def test_kinds_and_their_options_are_those_of_the_documentation() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|[^|]*\|([^|]*)\|", (ROOT / "docs" / "decisions.md").read_text(), re.M)
    assert {kind for kind, _ in rows} == set(OPTIONS)
    for kind, told in rows:
        for option in re.split(r"[,;] ", told.strip()):
            if re.fullmatch(r"[a-z][\w -]*|\d+ bits|\d\.\d", option) and not option.startswith("the "):
                assert not problem(f"{kind}:x", option), (kind, option)


def test_every_decision_that_is_taken_has_a_known_kind_and_known_options(tmp_path: Path) -> None:
    def step(x: torch.Tensor, w: torch.Tensor, n: int) -> torch.Tensor:
        y = torch.softmax(x @ w, -1).var(0) * n
        return torch.cat([y, y.cumsum(0)]).sum() + x.to(torch.bfloat16).mul(2).add(1).float().sum()

    w = torch.randn(64, 64, requires_grad=True)
    with ptdebug.record("r", out=str(tmp_path)) as recording:
        for n in (2, 3):
            ptdebug.compile(step)(torch.randn(64 + n, 64), w, n).backward()
    decisions = recording.decisions()
    assert len({d.kind for _, d in decisions}) > 8
    for _, decision in decisions:
        for option in decision.options:
            assert not problem(decision.id, option.name), (decision.id, option.name)


@pytest.mark.parametrize("target", ["cuda:999", "cuda:88", "cuda:9", "cuda", "rocm:90"])
def test_impossible_targets(ptdebug: Command, target: str) -> None:
    pytest.importorskip("triton")
    done = ptdebug("run", "--no-record", "--target", target, "-c", "print('started')")
    assert (done.returncode, done.stdout) == (2, "") and f"--target {target}: " in done.stderr


def test_unknown_kinds(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import torch\ntorch.compile(lambda x: x + 1)(torch.ones(1))\n")
    assert warm("run", "--name", "r", "program.py").returncode == 0
    for command, kind, there in (("guards", "FOO", "TENSOR_MATCH"), ("decisions", "fus", "frame")):
        for words in ((), ("--json",)):
            done = warm(command, "r", "--kind", kind, *words)
            assert (done.returncode, done.stdout) == (2, "") and there in done.stderr
    assert warm("decisions", "r", "--kind", "horizontal-fusion").returncode == 0  # there is none here
    assert "TENSOR_MATCH" in warm("guards", "r", "--kind", "TENSOR_MATCH").stdout
