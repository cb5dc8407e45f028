"""Code objects that are equal to Python, and what is said of each."""
from __future__ import annotations

import gc
import importlib.util
import traceback
from pathlib import Path
from types import CodeType, ModuleType

import ptdebug
import pytest
import torch
from ptdebug.tracer.bytecode.instructions import code_info
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.runtime.per_code import PerCode

BREAKS = """\
import torch

def breaks(x):
    y = x + 1
    print("here")
    return y.view(7)
"""


def code_of(name: str) -> CodeType:
    namespace: dict[str, object] = {}
    exec(compile(BREAKS, name, "exec"), namespace)
    return namespace["breaks"].__code__  # type: ignore[attr-defined]


@pytest.fixture
def twins(tmp_path: Path) -> tuple[ModuleType, ModuleType]:
    """Two modules with the same text, in files of their own."""
    found = []
    for name in ("first", "second"):
        path = tmp_path / f"{name}.py"
        path.write_text(BREAKS)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        found.append(importlib.util.module_from_spec(spec))
        spec.loader.exec_module(found[-1])
    assert found[0].breaks.__code__ == found[1].breaks.__code__
    return found[0], found[1]


def test_equal_code_objects_have_values_of_their_own() -> None:
    values: PerCode[str] = PerCode()
    first, second = code_of("first.py"), code_of("second.py")
    values[first] = "first"
    values[second] = "second"
    assert (values.get(first), values.get(second)) == ("first", "second")
    del first
    gc.collect()
    assert values.get(second) == "second"
    assert code_of("first.py") not in values


def test_decoded_by_the_object() -> None:
    first, second = code_of("first.py"), code_of("second.py")
    assert code_info(first) is code_info(first)
    assert [code_info(code).code.co_filename for code in (first, second)] == ["first.py", "second.py"]


def test_each_of_two_copies_of_a_file_is_named(twins: tuple[ModuleType, ModuleType]) -> None:
    """Calls in files with the same text, one after the other: what fails behind a break is a line of its own file."""
    dispatch.reset()
    for module in twins:
        with pytest.raises(RuntimeError, match="shape") as raised:
            ptdebug.compile(module.breaks)(torch.ones(3))
        files = [frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)]
        assert [file for file in files if file in (twins[0].__file__, twins[1].__file__)] == [module.__file__]


def test_a_resume_call_is_no_frame_after_compiling_again() -> None:
    """A frame is compiled again to an equal code object, and the first one dies: its calls of resume functions are
    still those of one frame."""

    def fails(x: torch.Tensor, k: int) -> torch.Tensor:
        class Views:
            def apply(self) -> None:
                try:
                    x.view(k, 4)
                except RuntimeError:
                    if k < 3:
                        print("small")
                    else:
                        missing  # type: ignore[name-defined]  # noqa: B018, F821

        Views().apply()
        return x

    dispatch.reset()
    compiled = ptdebug.compile(fails)
    compiled(torch.ones(2, 3), 2)
    gc.collect()
    for k in (3, 4, 3):
        gc.collect()
        with pytest.raises(NameError) as raised:
            compiled(torch.ones(2, 3), k)
        names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__) if frame.filename == __file__]
        assert names == ["test_a_resume_call_is_no_frame_after_compiling_again", "fails", "apply"]
