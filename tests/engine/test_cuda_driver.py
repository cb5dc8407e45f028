"""The driver of CUDA as a library that is called: `fake_driver.cpp` is in its place."""
from __future__ import annotations

import ctypes

import pytest
import torch
from ptdebug.engine.runtime.cuda_driver import Driver, DriverError, version_text

from .gpu_driver import driver_library


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(ctypes.CDLL(str(driver_library(tmp_path_factory.mktemp("driver")))))


@pytest.mark.parametrize("aligned, wide", [(True, False), (False, True)])
def test_machine_code_is_loaded_and_launched(driver: Driver, aligned: bool, wide: bool) -> None:
    x, out = torch.randn(5, 4), torch.zeros(7, 4)
    driver.make_current(0)
    function = driver.function(f"kernel [{aligned}] {wide}".ljust(80).encode(), "kernel", 1 << 10)
    driver.launch(function, (1, 1), 128, 0, 0, [x.data_ptr(), out.data_ptr(), 5])
    assert torch.equal(out[:5], x * 2 + 1) and not out[5:].any()


def test_what_it_refuses_is_told(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_REFUSES", "1")
    with pytest.raises(DriverError, match=r"cuModuleLoadData: device kernel image is invalid \(200\)"):
        driver.function(b"code", "kernel", 0)


def test_versions(driver: Driver) -> None:
    assert version_text(driver.version()) == "12.4" and version_text(11080) == "11.8"
