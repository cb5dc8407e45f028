"""Whose a file is: in a clone, what is installed in its `.venv`, and a program beside the rooms, is not ptdebug's."""
from __future__ import annotations

from pathlib import Path

import ptdebug
import pytest
from ptdebug.tracer.runtime.skips import file_skip_reason, is_program

CLONE = Path(ptdebug.__file__).resolve().parent


@pytest.mark.parametrize("name", [
    ".venv/lib/python3.11/site-packages/transformers/models/gpt2/modeling_gpt2.py", "mine.py", "work/mine.py",
    "examples/gpt_generate.py", "tests/tracer/core/test_skips.py",
])
def test_files_in_the_folder_of_a_clone_are_the_programs(name):
    assert file_skip_reason(str(CLONE / name)) == ""
    assert is_program(str(CLONE / name))


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py", "cli/launch.py", "tracer/variables/torch/tensor.py"])
def test_files_of_the_rooms_are_not(name):
    assert file_skip_reason(str(CLONE / name)) == "ptdebug itself"
    assert not is_program(str(CLONE / name))
