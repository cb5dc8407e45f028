"""A script put together: header, imports, what it runs, how its inputs are made, the check; and written to disk."""
from __future__ import annotations

import datetime
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ...artifacts.listing import printable
from ...artifacts.recording import Recording
from .tensors import Tensors

_THIS = "THIS_FILE"
MARKER = "# ---- the check"
INDENT = "    "


@dataclass(frozen=True)
class Repro:
    """A script and the tensors that it loads from the file beside it. `note` says what is less than asked for."""

    text: str
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)
    note: str = ""

    def write(self, path: Path) -> list[Path]:
        """Write the script to `path`, and its tensors beside it; the files that were written."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text.replace(_THIS, _escaped(path.name), 1), encoding="utf-8")
        beside = path.with_suffix(".safetensors")
        if not self.tensors:
            return [path]
        save_file({key: value.contiguous() for key, value in self.tensors.items()}, beside)
        return [path, beside]


@dataclass(frozen=True)
class Header:
    """What a script says of itself."""

    what: str
    facts: tuple[str, ...] = ()
    usage: str = "python {file} [--compiler ptdebug|torch|torch:BACKEND|eager]"

    def lines(self) -> list[str]:
        """The docstring's lines."""
        own = [self.what, "", *self.facts, *environment(), f"Run: {self.usage.format(file=_THIS)}",
               "Exit code 1: the failure shows; 0: it does not; 2: the script itself fails in eager."]
        text = [_escaped(line) for line in own]
        return [f'"""{text[0]}', *text[1:], '"""']


def _escaped(line: str) -> str:
    """A line of a docstring."""
    return printable(line).replace("\\", "\\\\").replace('"""', "'''")


def environment() -> list[str]:
    """What a bug report needs: versions, and the machine."""
    from ...version import __version__

    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return [f"Written on {datetime.date.today()} with ptdebug {__version__}, torch {torch.__version__}, "
            f"Python {platform.python_version()}, on {platform.system()} {platform.machine()}, {_cpu()}{gpu}."]


@lru_cache(maxsize=1)
def _cpu() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor()


def origin(recording: Recording, selector: str) -> list[str]:
    """Header lines: from which recording, and the versions that it was made with."""
    meta = recording.meta
    versions = ", ".join(f"{name} {version}" for name, version in meta.get("versions", {}).items())
    return [f"From the recording {selector} of: {' '.join(meta.get('command', [])) or 'a program'}",
            f"Recorded with {versions or 'unknown versions'}"
            f"{' by stock torch.compile' if meta.get('compiler') == 'torch' else ''}."]


@dataclass
class Body:
    """The parts of a script between its header and its check."""

    header: Header
    definitions: Sequence[str]  # lines
    make: Sequence[str]  # lines of the body of `make`
    tensors: Tensors
    imports: Iterable[str] = ()
    constants: dict[str, Any] = field(default_factory=dict)  # of the check: COMPILER, TRAINING, ...
    globals: Mapping[str, str] = field(default_factory=dict)  # expressions for names that definitions use


def compose(body: Body, check: str | None = None) -> Repro:
    """The script; `check`: another last part than the usual one."""
    text = check_of("check.py") if check is None else check
    loads = ["saved = load_file(Path(__file__).with_suffix('.safetensors'))"] if body.tensors.file else []
    beside = ["from pathlib import Path", "from safetensors.torch import load_file"] if loads else []
    imports = [line for line in body.imports if line.startswith(("import ", "from "))]
    others = [line for line in body.imports if line not in imports]
    everything = "\n".join([*body.definitions, *body.make, text])
    wanted = {*imports, *beside, *_imports_of(everything), "import torch"}
    settings = [f"{name} = {value!r}{_COMMENTS.get(name, '')}" for name, value in (_KNOWN | body.constants).items()]
    named = [f"{name} = {expression}" for name, expression in body.globals.items()]
    fresh = [f"{INDENT}{line}" for line in (*loads, *body.make)]
    lines = [
        *body.header.lines(), *_sorted(wanted), *([""] if others else []), *others, "",
        *([] if not body.definitions else ["", *body.definitions]), "", "",
        *([*loads, *named, "", ""] if named else []),
        "def make():", f'{INDENT}"""The function, and its arguments, new for each run."""', *fresh, "", "",
        *(settings if check is None else []), "", "", text.rstrip(), "",
    ]
    whole = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines))
    return Repro(whole, {key: value for key, value in body.tensors.file.items() if f"saved[{key!r}]" in whole})


_KNOWN: dict[str, Any] = {
    "COMPILER": "ptdebug", "TRAINING": False, "COPIED": False, "REFERENCE": True, "OPTIONS": {}, "FORCED": {},
}
_COMMENTS = {
    "TRAINING": "  # whether gradients are compared, too", "OPTIONS": "  # of the compiler",
    "FORCED": "  # decisions of ptdebug, by id",
    "COPIED": "  # whether inputs that require gradients are written to",
    "REFERENCE": "  # whether float64 says how much of a difference is rounding",
}


def check_of(file: str) -> str:
    """The text of a check, from its marker on."""
    text = Path(__file__).with_name(file).read_text()
    return text[text.index(MARKER):]


_USED = {
    "argparse.": "import argparse", "sys.": "import sys", "time.": "import time", "traceback.": "import traceback",
    "nullcontext(": "from contextlib import nullcontext", "Any": "from typing import Any",
    "TorchFunctionMode": "from torch.overrides import TorchFunctionMode", "subprocess.": "import subprocess",
    "tree_leaves": "from torch.utils._pytree import tree_leaves, tree_map", "ctypes.": "import ctypes",
    "tempfile.": "import tempfile", "Path(": "from pathlib import Path",
}


def _imports_of(text: str) -> list[str]:
    return [line for word, line in _USED.items() if re.search(rf"(?<![\w.]){re.escape(word)}", text)]


def _sorted(imports: Iterable[str]) -> list[str]:
    """Standard library first, then torch and the rest."""
    def key(line: str) -> tuple[bool, bool, str]:
        module = line.split()[1].partition(".")[0]
        return module not in _STANDARD, line.startswith("from "), line

    ordered = sorted(imports, key=key)
    split = next((i for i, line in enumerate(ordered) if key(line)[0]), len(ordered))
    return [*ordered[:split], *([""] if split else []), *ordered[split:]]


_STANDARD = sys.stdlib_module_names
