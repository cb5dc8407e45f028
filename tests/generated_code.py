"""What did my refactoring change? The generated code of a set of programs, in two checkouts, side by side.

    python tests/generated_code.py ../before                     # all examples: C++ kernels and wrappers
    python tests/generated_code.py ../before --target cuda:90    # Triton kernels, too (slow: they are compiled)
    python tests/generated_code.py ../before my_model.py ...     # other programs

Each program runs under `ptdebug run` of either checkout, in fresh processes with fresh caches; every kernel and wrapper
that it records is compared byte for byte. Prints a unified diff of what differs, and exits with 1 where anything does.
Recordings are read by the checkout that wrote them, so a change of the schema is no difference.
"""
from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]

READ = """
import pathlib, sys
from ptdebug.artifacts.recording import Recording
recording, out = Recording.open(sys.argv[1]), pathlib.Path(sys.argv[2])
for info in recording.artifacts():
    if info.stage in ("kernels", "wrapper"):
        record = recording.artifact(info.compile, info.stage, info.name)
        text = "".join(f"{line.text}\\n" for line in getattr(record, "lines", ()))
        name = f"{info.compile.replace('/', '-')}.{info.stage}.{info.name}".replace("/", "_")
        (out / name).write_text(text)
"""
"""Runs in the checkout that recorded: writes the source of each kernel and wrapper to a file of its own."""


def generated(checkout: Path, program: Path, target: str) -> dict[str, str]:
    """The generated sources of one program, by compilation, stage and name. Raises RuntimeError where it fails."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "out"
        out.mkdir()
        environment = {
            **os.environ, "PYTHONPATH": str(checkout / ".types"), "PTDEBUG_CACHE_DIR": f"{place}/cache",
            "PTDEBUG_HOME": f"{place}/home",
        }
        options = ["--name", "run", *(["--target", target] if target else [])]
        for command in (
            [sys.executable, "-m", "ptdebug", "run", "-q", *options, str(program)],
            [sys.executable, "-c", READ, f"{place}/home/run", str(out)],
        ):
            done = subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{program.name} in {checkout}: {done.stderr[-2000:]}")
        return {path.name: path.read_text() for path in sorted(out.iterdir())}


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Lines of a unified diff for each source that is not the same, or that only one side has."""
    lines: list[str] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            lines.append(f"only {'after' if old is None else 'before'}: {name}")
        elif old != new:
            sides = f"before/{name}", f"after/{name}"
            lines += difflib.unified_diff(old.splitlines(), new.splitlines(), *sides, n=2, lineterm="")
    return lines


def main() -> int:
    """Compare this checkout with another one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("programs", type=Path, nargs="*", help="scripts (default: examples/*.py of this checkout)")
    parser.add_argument("--target", default="", help="cuda:CC: compare the Triton kernels for that device, too")
    arguments = parser.parse_args()
    changed = False
    for program in arguments.programs or sorted((HERE / "examples").glob("*.py")):
        places = arguments.before.resolve(), HERE
        before, after = (generated(place, program.resolve(), arguments.target) for place in places)
        lines = differences(before, after)
        print(f"{program.name}: {len(after)} sources, {'differ' if lines else 'the same'}", flush=True)
        print("\n".join(lines), end="\n" if lines else "")
        changed |= bool(lines)
    return int(changed)


if __name__ == "__main__":
    sys.exit(main())
