"""A question answered in a fork of this process, which the answer may kill."""
from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress

HANG = "hang"


def in_fork(answer: Callable[[], str], limit: float) -> str:
    """What `answer` returns there; of an exception its type and message, of a process that dies the signal's name, and
    HANG for what takes more than `limit` seconds."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            text = answer()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        with suppress(OSError), os.fdopen(write, "wb") as pipe:
            pipe.write(text.encode(errors="replace"))
        os._exit(0)
    os.close(write)
    until, found = time.monotonic() + limit, b""
    try:
        while select.select([read], [], [], max(0.0, until - time.monotonic()))[0]:
            part = os.read(read, 1 << 16)
            if not part:
                _, status = os.waitpid(child, 0)
                return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else found.decode()
            found += part
    finally:
        os.close(read)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return HANG
