"""What a C or C++ program needs to run a package without Python: a header and a loader, to be compiled with it.

`ptdebug export --cpp FOLDER` writes both there. They need torch's libraries, of which they call the stable C interface
(`torch/csrc/inductor/aoti_torch/c/shim.h`), and nothing of Python.
"""
from __future__ import annotations

from pathlib import Path

FILES = ("ptdebug_package.h", "ptdebug_package.cpp", "ptdebug_files.h", "ptdebug_gpu.h", "ptdebug_graphs.h",
         "ptdebug_sizes.h", "ptdebug_tensors.h")


def write_to(folder: Path) -> tuple[Path, ...]:
    """Copy the header and the loader. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    made = tuple(folder / name for name in FILES)
    for path in made:
        path.write_bytes((Path(__file__).parent / path.name).read_bytes())
    return made
