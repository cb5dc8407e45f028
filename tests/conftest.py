"""Fixtures that several rooms use."""
from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

import pytest

os.environ.setdefault("PTDEBUG_GRAPH_CACHE", "0")  # each test compiles what it tests
os.environ.setdefault("PTDEBUG_VERIFY", "1")  # what flows between the stages is checked
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # a thread that spins takes its core from another worker's
if "PTDEBUG_TESTS_CONFIG" not in os.environ:  # a key of the tests' own for signatures; workers of xdist inherit it
    os.environ["PTDEBUG_TESTS_CONFIG"] = os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="ptdebug-config-")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Workers of xdist take tests from each other: long ones stand together, so one would be left with them."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is loaded now stays: the garbage collector need not walk it, neither meanwhile nor in each test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        atexit.register(gc.unfreeze)


@pytest.fixture(autouse=True)
def nothing_compiled_before() -> None:
    """Calls of compile share what is compiled; tests do not."""
    if (dispatch := sys.modules.get("ptdebug.tracer.frames.dispatch")) is not None:
        dispatch.reset()
        dispatch.set_stance("default")  # which a test may have left
    if (session := sys.modules.get("ptdebug.cli.session")) is not None:
        session.current().options.clear()


@pytest.fixture(autouse=True)
def no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test records is no program of its own: a replay would run all tests again."""
    monkeypatch.setattr(sys, "orig_argv", [sys.executable])


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
