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

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import driver  # noqa: E402
from faults import FAULTS  # noqa: E402


def main() -> int:
    """Run what is asked for; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["*"])
    steps = ("replay", "bisect", "minify")
    for step in steps:
        parser.add_argument(f"--{step}", action="store_true")
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--keep", action="store_true", help="leave the folders with scripts and recordings")
    arguments = parser.parse_args()
    wanted = [f for f in FAULTS.values() if any(fnmatchcase(f.name, p) for p in arguments.names)]
    asked = [step for step in steps if getattr(arguments, step)]
    driver.prepare()
    folder = Path(tempfile.mkdtemp(prefix="planted-"))
    results = []
    for fault in wanted:
        results.append(driver.check(fault, folder / fault.name, asked))
        print(driver.table(results[-1:]).splitlines()[1], flush=True)
    print("\n" + driver.table(results))
    if arguments.json:
        arguments.json.write_text(driver.as_json(results))
    if arguments.keep:
        print(folder)
    else:
        shutil.rmtree(folder)
    return int(any("wrong" in (r.shown, r.replay, r.bisect, r.minify) for r in results))


if __name__ == "__main__":
    sys.exit(main())
