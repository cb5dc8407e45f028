"""What happens in a copy of this process, made by fork, stays there, but for what it returns."""
from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

LIMIT = 30.0
"""Seconds for a copy: where a lock is held that nobody will give back, it never ends."""


class CopyLost(Exception):
    """A copy has not returned: it crashed, raised, or ran into the limit; the message says which."""


def in_copy(call: Callable[[], Any], limit: float = LIMIT) -> Any:
    """What `call` returns in a copy of this process, which sees nothing of it. Raises CopyLost."""
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _in_child(call, writer)
    os.close(writer)
    until = time.monotonic() + limit
    try:
        data = _received(reader, until)
    finally:
        os.close(reader)
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if not data:
        code = os.waitstatus_to_exitcode(status)
        why = f"did not return within {limit:g} s" if time.monotonic() >= until else f"ended with exit code {code}"
        raise CopyLost(f"a copy of the process {why}")
    returned, answer = pickle.loads(data)  # which this very process has written
    if not returned:
        raise CopyLost(answer)
    return answer


def _in_child(call: Callable[[], Any], writer: int) -> None:
    try:
        sys.setprofile(None)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        torch.set_num_threads(1)  # of a pool, a copy has no other threads
        data = memoryview(pickle.dumps(_answer(call)))
        while data:
            data = data[os.write(writer, data):]
        os.close(writer)
        time.sleep(60)  # until the other side has read it, and kills this process
    finally:
        os._exit(1)


def _answer(call: Callable[[], Any]) -> tuple[bool, Any]:
    """(whether it returned, its result or why it did not)."""
    try:
        return True, call()
    except BaseException as error:
        return False, f"a copy of the process raised {type(error).__name__}: {error}"


def _received(reader: int, until: float) -> bytes:
    """All that is written until the end; nothing if that does not come."""
    data = bytearray()
    while select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        more = os.read(reader, 1 << 20)
        if not more:
            return bytes(data)
        data += more
    return b""
