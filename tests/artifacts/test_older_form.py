"""Recordings in the form before this one are read as they always were."""
from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.render import listing
from ptdebug.artifacts.summary import summary
from ptdebug.artifacts.tables import FORM

from .older_form import make_older


@pytest.fixture
def older(sample: Path, tmp_path: Path) -> Path:
    folder = shutil.copytree(sample, tmp_path / "older")
    make_older(folder)
    return folder


def test_everything_in_it_is_found(sample: Path, older: Path) -> None:
    with Recording.open(sample) as new, Recording.open(older) as old:
        assert (new.meta["schema"], old.meta["schema"]) == (FORM, "ptdebug/2")
        assert old.decisions() == new.decisions() != []
        kinds = {decision.kind for _, decision in new.decisions()}
        assert all(old.decisions("0/0", kind) == new.decisions("0/0", kind) for kind in kinds)
        assert old.decisions_by_compile() == new.decisions_by_compile()
        assert old.decisions_by_compile("0/0") == new.decisions_by_compile("0/0")
        for info in new.artifacts():
            asked = info.compile, info.stage, info.name
            assert old.artifact(*asked) == new.artifact(*asked)
            assert listing(old, *asked) == listing(new, *asked)
        assert {file: old.source(file) for file in old.sources()} == {file: new.source(file) for file in new.sources()}
        assert without_times(summary(old)) == without_times(summary(new))
        assert old.problems == new.problems == []


def without_times(document: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in document.items() if key not in ("recording", "overhead_seconds")}
