"""Keeps torch's device guard alive: with fake modes used in threads that end, torch is left with a freed one."""
from __future__ import annotations

import _thread
import threading
from functools import cache

import torch


@cache
def hold_device_guard() -> None:
    """Register torch's device guard in a thread that never ends.

    Where torch was built for CUDA and there is no device, the first thread that enters a fake mode registers a device
    guard for the whole process and owns it (`ensureCUDADeviceGuardSet` in c10's DeviceGuardImplInterface.cpp). Once
    that thread ends, the next fake mode uses freed memory. So the main thread registers it first, or a thread made for
    this where another thread asks.
    """
    if not torch.backends.cuda.is_built() or torch.cuda.is_available():
        return
    if threading.current_thread() is threading.main_thread():
        _register()
        return
    registered, never = _thread.allocate_lock(), _thread.allocate_lock()

    def hold() -> None:
        try:
            _register()
        finally:
            registered.release()
        never.acquire()

    registered.acquire()
    never.acquire()
    _thread.start_new_thread(hold, ())  # `threading` would list it among the user's threads
    registered.acquire()


def _register() -> None:
    register = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    if register is not None:
        register()
