"""Runs the scripts of a folder one after the other in this process; prints {name: [exit code, last line]} as JSON."""
from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import traceback
from pathlib import Path


def run(script: Path, arguments: list[str]) -> tuple[object, str]:
    sys.argv = [script.name, *arguments]
    output = io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            traceback.print_exc()
    return code, output.getvalue().strip().rpartition("\n")[2]


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    arguments = sys.argv[2:]
    found = {path.stem: run(path, arguments) for path in sorted(Path().glob("*.py"))}
    print(json.dumps(found))
