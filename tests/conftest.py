"""Fixtures that several rooms use."""
from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

os.environ.setdefault("PTDEBUG_GRAPH_CACHE", "0")  # each test compiles what it tests
os.environ.setdefault("PTDEBUG_VERIFY", "1")  # what flows between the stages is checked
if "PTDEBUG_TESTS_CONFIG" not in os.environ:  # a key of the tests' own for signatures; workers of xdist inherit it
    os.environ["PTDEBUG_TESTS_CONFIG"] = os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="ptdebug-config-")


@pytest.fixture(autouse=True)
def nothing_compiled_before() -> None:
    """Calls of compile share what is compiled; tests do not."""
    if (dispatch := sys.modules.get("ptdebug.tracer.frames.dispatch")) is not None:
        dispatch.reset()
        dispatch.set_stance("default")  # which a test may have left
    if (session := sys.modules.get("ptdebug.cli.session")) is not None:
        session.current().options.clear()


KNOWN_FAULTS = {
    "test_deep.py::test_a_call_for_which_there_is_no_room_to_compile[13]": "13 frames of stack are left",
    "test_torch_operators.py::test_a_program_with_operators_is_the_program[fake_kernels_that_call":
        "a fake kernel that calls what TorchDynamo disabled, once a test has loaded it",
    "test_words.py::test_library_code_that_is_compiled_itself": "library code, once a test has loaded TorchDynamo",
}
"""Faults that are known, found by these tests and not mended yet: a program differs from eager."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name, why in KNOWN_FAULTS.items():
            if name in item.nodeid:
                item.add_marker(pytest.mark.xfail(reason=f"known fault: {why}"))


@pytest.fixture(scope="session")
def sample_module() -> ModuleType:
    """tests/sample.py as a module (tests are no package, so it cannot be imported by name)."""
    spec = importlib.util.spec_from_file_location("ptdebug_tests_sample", Path(__file__).parent / "sample.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def sample(sample_module: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with a record for every stage, in a home of its own."""
    return sample_module.write_sample(tmp_path_factory.mktemp("home") / ".ptdebug" / "model-1")
