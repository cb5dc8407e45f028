"""Large graphs are shown while their nodes are decoded: the same lines as of whole ones; damage is said."""
from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import zstandard
from msgspec import json
from ptdebug.artifacts import recording as recordings
from ptdebug.artifacts.recording import Recording, RecordingError
from ptdebug.artifacts.render import listing
from ptdebug.artifacts.tables import DATABASE, content_hash
from ptdebug.cli import api


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compilation with a joint graph, halves, and a graph that has one inside."""

    @api.compile
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x @ w,)) * 2

    @api.compile
    def g(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).sin() * 2

    with api.record(out=str(tmp_path_factory.mktemp("home"))) as made:
        f(torch.ones(3, 4), torch.ones(4, 5))
        g(torch.ones(3, 4), torch.ones(4, 5, requires_grad=True)).sum().backward()
    return made.path


def test_the_lines_are_those_of_a_whole_graph(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Recording.open(recorded) as found:
        graphs = [(info.compile, info.stage, info.name) for info in found.artifacts(kind="Graph")]
        whole = [listing(found, *graph) for graph in graphs]
        monkeypatch.setattr(recordings, "LARGE", 0)
        assert all(found.large_graph(*graph) for graph in graphs)
        assert [listing(found, *graph) for graph in graphs] == whole
    assert {"capture", "joint", "forward", "backward"} <= {stage for _, stage, _ in graphs}


@pytest.mark.parametrize("damage", [
    lambda node: node.update(args=7),
    lambda node: node.pop("op"),
    lambda node: node.update(args=[{"record": "NodeRef"}]),
])
def test_a_damaged_node(
    damage: Callable[[dict[str, object]], object], recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The graph it is in is not shown; others are, without names that it would have given."""
    with Recording.open(recorded) as found:
        owner = next(info.compile for info in found.artifacts(stage="forward", kind="Graph") if not info.name)
        whole = listing(found, owner, "forward")
    damaged = shutil.copytree(recorded, tmp_path / "damaged")
    with sqlite3.connect(damaged / DATABASE) as database:
        query = "SELECT blobs.hash, data FROM blobs, artifacts USING (hash) WHERE compile=? AND stage='capture'"
        [(key, data)] = database.execute(query, (owner,)).fetchall()
        record = json.decode(zstandard.ZstdDecompressor().decompress(data))
        damage(record["nodes"][0])
        content = json.encode(record)
        database.execute("UPDATE blobs SET hash=?, size=?, data=? WHERE hash=?", (
            content_hash(content), len(content), zstandard.ZstdCompressor().compress(content), key))
        database.execute("UPDATE artifacts SET hash=? WHERE hash=?", (content_hash(content), key))
    database.close()
    for large in (recordings.LARGE, 0):
        monkeypatch.setattr(recordings, "LARGE", large)
        with Recording.open(damaged) as found:
            with pytest.raises(RecordingError, match="capture: the content is damaged"):
                listing(found, owner, "capture")
            shown = listing(found, owner, "forward")
            assert shown != whole and len(shown.lines) == len(whole.lines)
