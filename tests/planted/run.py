"""Runs planted bugs through the product, and prints what it says of each.

    python tests/planted/run.py [NAMES] [--replay] [--bisect] [--minify] [--benign] [--right] [--json FILE] [-k]

Without options, only checks that each fault shows a difference from eager. NAMES are faults, or patterns ("flip*").
"""
from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted import benign, driver
from planted.faults import FAULTS

STEPS = ("replay", "bisect", "minify")


def main() -> int:
    """Run what is asked for; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["*"])
    for step in STEPS:
        parser.add_argument(f"--{step}", action="store_true")
    parser.add_argument("--benign", action="store_true", help="right programs whose results are rounded otherwise")
    parser.add_argument("--right", action="store_true", help="right programs with arguments of every kind")
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--keep", action="store_true", help="leave the folders with scripts and recordings")
    arguments = parser.parse_args()
    driver.prepare()
    folder = Path(tempfile.mkdtemp(prefix="planted-"))
    right = {**(benign.BENIGN if arguments.benign else {}), **(benign.RIGHT if arguments.right else {})}
    bad = _right(right, arguments, folder) if right else _faults(arguments, folder)
    if arguments.keep:
        print(folder)
    else:
        shutil.rmtree(folder)
    return int(bad)


def _wanted(name: str, arguments: argparse.Namespace) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in arguments.names)


def _faults(arguments: argparse.Namespace, folder: Path) -> bool:
    asked = [step for step in STEPS if getattr(arguments, step)]
    results = []
    for fault in FAULTS.values():
        if _wanted(fault.name, arguments):
            results.append(driver.check(fault, folder / fault.name, asked))
            print(driver.table(results[-1:]).splitlines()[1], flush=True)
    print("\n" + driver.table(results))
    if arguments.json:
        arguments.json.write_text(driver.as_json(results))
    return any("wrong" in (r.shown, r.replay, r.bisect, r.minify) for r in results)


def _right(programs: dict[str, str], arguments: argparse.Namespace, folder: Path) -> bool:
    found = []
    for judged in benign.judge({k: v for k, v in programs.items() if _wanted(k, arguments)}, folder):
        found.append(judged)
        print(f"{judged.name}: {judged.verdict}", flush=True)
    print(benign.as_text(found))
    return any(judged.alarm for judged in found)


if __name__ == "__main__":
    sys.exit(main())
