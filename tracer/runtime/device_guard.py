"""A guard of devices that stays: fake modes in threads that end leave torch with one that is freed."""
from __future__ import annotations

import _thread
import threading
from functools import cache

import torch


@cache
def hold_device_guard() -> None:
    """Where torch was built for CUDA and there is no device, the first thread that enters a fake mode registers a guard
    of devices for the process, and owns it (`ensureCUDADeviceGuardSet` in c10's DeviceGuardImplInterface.cpp): once
    that thread ends, the next fake mode calls what is freed. So a thread that never ends registers it first: the main
    thread, or, where another one asks, a thread made for it."""
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
    _thread.start_new_thread(hold, ())  # `threading` would count it among the program's
    registered.acquire()


def _register() -> None:
    register = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    if register is not None:
        register()
