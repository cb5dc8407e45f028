"""Near the limit of Python's stack: what eager has room for runs, and the recording goes on."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch


def below(depth: int, call: Callable[[], Any]) -> Any:
    return call() if depth == 0 else below(depth - 1, call)


def room(deeper: int = 1) -> int:
    """How many more frames there is room for: calls of C functions below this one take some of it, too."""
    try:
        return room(deeper + 1)
    except RecursionError:
        return deeper


@pytest.mark.parametrize("left", [*range(13, 40, 3), *range(40, 200, 20)])
def test_a_call_for_which_there_is_no_room_to_compile(left: int, tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() + 1).cos() * left

    x = torch.ones(3)
    with ptdebug.record("deep", out=str(tmp_path)) as recording:
        compiled = ptdebug.compile(function)
        result = below(room() - left, lambda: compiled(x))
        torch.testing.assert_close(result, function(x))
        later = ptdebug.compile(lambda x: x.tan() * 3)
        torch.testing.assert_close(later(x), x.tan() * 3)
        last = recording.compiles()[-1]
        assert last.status == "compiled" and recording.stages(last.id).count("capture") == 1
        torch.testing.assert_close(compiled(x), function(x))
        assert not recording.problems
