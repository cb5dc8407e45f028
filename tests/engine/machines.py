"""A kernel of our own as it is compiled for each kind of machine."""
from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from ptdebug.engine.toolchain import cpp_build

MACHINES = {"this one": "native", "AVX2": "haswell", "without AVX": "x86-64"}


def on_each_machine(module: ModuleType) -> Any:
    """A fixture for the tests of a module that has a KERNEL; its value is what g++ calls the machine."""

    @pytest.fixture(scope="module", params=MACHINES)
    def machine(request: pytest.FixtureRequest) -> Iterator[str]:
        kind = MACHINES[request.param]
        if kind != "native" and platform.machine() != "x86_64":
            pytest.skip("another processor")
        with pytest.MonkeyPatch.context() as patch:
            flags = tuple(f"-march={kind}" if flag == "-march=native" else flag for flag in cpp_build.FLAGS)
            patch.setattr(cpp_build, "FLAGS", flags)
            patch.setattr(module, "KERNEL", replace(module.KERNEL))
            assert module.KERNEL.available
            yield kind

    return machine
