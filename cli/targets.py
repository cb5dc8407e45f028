"""Checks, before the program starts, that code can be generated for a target (`--target cuda:90`)."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec

from .errors import CommandError

USUAL = ("70", "75", "80", "86", "87", "89", "90", "100", "103", "120", "121")
PATIENCE = 120  # seconds for a kernel of two lines


def check_target(target: str) -> None:
    """Raise CommandError for an invalid target, or one that Triton cannot compile for."""
    found = re.fullmatch(r"cuda:(\d{2,3})", target)
    if found is None:
        raise CommandError(f"--target {target}: expected a CUDA compute capability, for example cuda:90")
    if find_spec("triton") is None:
        raise CommandError(f"--target {target}: Triton, which it needs, is not installed (pip install triton)")
    probe = os.path.join(os.path.dirname(os.path.abspath(__file__)), "target_probe.py")
    try:
        done = subprocess.run([sys.executable, probe, found[1]], capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"--target {target}: a first kernel for it was not compiled: {error}") from None
    if done.returncode:
        usual = ", ".join(f"cuda:{capability}" for capability in USUAL)
        raise CommandError(f"--target {target}: the installed Triton does not know it; usual targets are {usual}")
