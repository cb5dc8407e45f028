"""Check what works on this machine, and how to fix what does not.

The exit code is 0 if ptdebug can compile here, 1 if something that it needs is missing.
"""
from __future__ import annotations

import argparse

from ..checks import CHECKS, MISSING, Check, run_check
from ..printing import add_json, print_json

EXAMPLE = "ptdebug doctor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--json."""
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run every check and print the results."""
    found = {name: run_check(check) for name, check in CHECKS.items()}
    works = not any(check.status == MISSING and check.needed for check in found.values())
    if arguments.json:
        print_json(works=works, checks=[
            {"name": name, "status": check.status, "detail": check.detail, "fix": check.fix or None,
             "needed": check.needed} for name, check in found.items()
        ])
    else:
        for name, check in found.items():
            _print(name, check)
        print("ptdebug can compile here" if works else "ptdebug cannot compile here: programs run in eager")
    return 0 if works else 1


def _print(name: str, check: Check) -> None:
    print(f"{check.status:8} {name:16} {check.detail}")
    if check.fix:
        print(f"{'':8} {'':16} fix: {check.fix}")
