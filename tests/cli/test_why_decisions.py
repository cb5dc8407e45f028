"""Each decision is found from what it is about: a line, a node, a buffer, a kernel, a compilation."""
from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.provenance import links
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Fusion, Schedule, ref
from ptdebug.artifacts.why import answers, left_out
from ptdebug.cli import api

Command = Callable[..., subprocess.CompletedProcess[str]]


def helper(v: torch.Tensor) -> torch.Tensor:
    return torch.tanh(v) * 2


def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a = helper(x)
    b = (a @ w).softmax(-1)
    c = F.layer_norm(b, (b.shape[-1],))
    d = x.detach()
    return c, x.amax(0), x.amax(1), x.sum(), d.cumsum(0).flip(0) * d.amax()


FIRST = program.__code__.co_firstlineno
NORM_LINE = FIRST + 3


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    api.reset()
    place = tmp_path_factory.mktemp("why")
    with ptdebug.record("r", out=str(place)) as recorded:
        x = torch.randn(300, 300, requires_grad=True)
        ptdebug.compile(program)(x, torch.randn(300, 300))[0].sum().backward()
    with Recording.open(recorded.path) as opened:
        yield opened
    api.reset()


def test_every_decision_leads_to_a_line_of_the_program(recording: Recording) -> None:
    found = links(recording, recording.compiles()[0].id)
    decisions = recording.decisions(recording.compiles()[0].id)
    assert {"realize", "fuse", "variance", "vector-axis", "parallel-loops", "accumulators", "split-reduction",
            "save-for-backward",
            "inline", "frame"} <= {d.kind for _, d in decisions}
    for _, decision in decisions:
        above = found.origins(ref("decisions", decision.id))
        assert any(item.startswith("source:") for item in above), decision.id


def kinds(recording: Recording, question: str) -> set[str]:
    found = answers(recording, question, recording.compiles()[0].id, 60)
    return {a.document["kind"] for a in found if a.kind == "decision"}


def test_decisions_are_found_from_a_line_a_node_a_buffer_and_a_kernel(recording: Recording) -> None:
    assert {"variance", "fuse", "parallel-loops"} <= kinds(recording, f"line {NORM_LINE}")
    assert "variance" in kinds(recording, "native_layer_norm")
    (_, schedule), *_ = recording.records(Schedule, recording.compiles()[0].id)
    kernel = next(g for g in schedule.groups if g.kind == "loops" and "layer_norm" in g.kernel)
    assert {"variance", "fuse", "parallel-loops", "vector-axis"} <= kinds(recording, kernel.kernel)
    assert {"fuse", "parallel-loops"} <= kinds(recording, kernel.members[-1])
    assert {"frame", "inline"} <= kinds(recording, recording.compiles()[0].id)


def test_a_refused_pair_says_which_of_both_it_is(recording: Recording, ptdebug: Command) -> None:
    pairs = [c for _, fusion in recording.records(Fusion) for c in fusion.candidates if not c.fused]
    shown = ptdebug("fusions", str(recording.path), "--refused").stdout
    for pair in [next(c for c in pairs if c.legal), next(c for c in pairs if not c.legal)]:
        assert pair.why in ptdebug("why", str(recording.path), pair.id).stdout
    assert {c.legal for c in pairs} == {True, False}
    for pair in pairs:
        assert pair.why in shown
        if pair.legal:
            assert pair.why.startswith("not profitable: ")
            assert f'force with "{pair.decision}" = "fuse"' in pair.why
        else:
            assert pair.why.startswith("illegal: ") and not pair.decision


def test_a_refused_override_is_told_at_the_end(tmp_path: Path, warm: Command) -> None:
    script = tmp_path / "prog.py"
    script.write_text("import torch\n"
                      "f = torch.compile(lambda x: x.cumsum(0).flip(0) * x.amax())\n"
                      "f(torch.randn(300, 40))\n")
    warm("run", "-q", "--name", "first", str(script))
    with Recording.open(tmp_path / "recordings" / "first") as first:
        pair = next(c for _, fusion in first.records(Fusion) for c in fusion.candidates if not c.legal)
    forced = tmp_path / "forced.toml"
    forced.write_text(f'"fuse:{pair.id}" = "fuse"\n')
    done = warm("run", "--name", "second", "--override", str(forced), str(script))
    assert f'the override "fuse:{pair.id}" = "fuse" is refused: illegal: ' in done.stderr


def test_a_file_narrows_a_line_and_a_part_a_buffer(recording: Recording) -> None:
    here = kinds(recording, f"{Path(__file__).name}:{NORM_LINE}")
    assert here == kinds(recording, f"line {NORM_LINE}") and here
    assert not answers(recording, f"another.py:{NORM_LINE}")
    backward, forward = (answers(recording, name)[0] for name in ("backward.buf0", "buf0"))
    assert backward.lines[0].text.startswith("backward.buf0: ") and backward != forward


def test_that_nothing_is_about_all_names_is_said_of_several_only(recording: Recording) -> None:
    for name in ("buf1", "backward.buf0"):
        found = answers(recording, name)
        assert len(found) > 1 and left_out(recording, name, found) == []
    found = answers(recording, "buf0 buf99")
    assert found and left_out(recording, "buf0 buf99", found) == ["buf99"]


def test_scores_have_a_unit_and_a_direction_and_defaults_agree_with_them(recording: Recording) -> None:
    scored = [(d, [o for o in d.options if o.score is not None]) for _, d in recording.decisions()]
    compared = [(d, options) for d, options in scored if len(options) > 1]
    assert "fuse" in {d.kind for d, _ in compared}
    for decision, options in compared:
        assert all(o.unit and o.better in ("lower", "higher") for o in options), decision.id
        best = (max if options[0].better == "higher" else min)(o.score or 0.0 for o in options)
        chosen = next(o.score for o in options if o.name == decision.chosen)
        assert chosen == best or decision.kind == "matmul", decision.id  # there a kernel has to win by a margin
