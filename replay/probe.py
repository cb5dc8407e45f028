"""Runs a program in eager until one call of one function, and keeps what that call returned.

    python -m ptdebug.replay.probe SPEC.json

It is its own process, started by `program.py`. The call that counts is the first one whose local tensors equal the
recorded ones, bit for bit; the process ends as soon as that call returned.
"""
from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.utils._pytree import tree_leaves


class Probe:
    """A profile function that watches for the call. `expected` maps names of locals to tensors."""

    def __init__(self, spec: dict[str, Any], expected: dict[str, torch.Tensor]) -> None:
        self.spec = spec
        self.expected = expected
        self.frame: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """See a call begin or end."""
        if event == "call" and self.frame is None and self._is_the_function(frame) and self._same_inputs(frame):
            self.frame = frame
            torch.manual_seed(self.spec["seed"])  # random numbers as where the graph is run
        elif event == "return" and frame is self.frame:
            sys.setprofile(None)
            self._keep(argument)

    def _is_the_function(self, frame: FrameType) -> bool:
        code = frame.f_code
        return code.co_name == self.spec["function"] and code.co_firstlineno == self.spec["line"] and (
            os.path.realpath(code.co_filename) == self.spec["file"]
        )

    def _same_inputs(self, frame: FrameType) -> bool:
        for name, wanted in self.expected.items():
            found = frame.f_locals.get(name)
            if not isinstance(found, torch.Tensor) or found.shape != wanted.shape or found.dtype != wanted.dtype:
                return False
            if not torch.equal(found.detach().cpu().nan_to_num(), wanted.nan_to_num()):
                return False
        return True

    def _keep(self, returned: Any) -> None:
        tensors = [leaf for leaf in tree_leaves(returned) if isinstance(leaf, torch.Tensor)]
        dense = {str(i): t.detach().cpu().contiguous().clone() for i, t in enumerate(tensors)}
        save_file(dense, self.spec["outputs"])
        sys.stdout.flush()
        os._exit(0)  # what the program does afterwards does not matter here


def main(path: str) -> None:
    """Run the program that the spec names. The environment has turned torch.compile off (TORCHDYNAMO_DISABLE)."""
    spec = json.loads(Path(path).read_text())
    expected = load_file(spec["inputs"]) if spec["inputs"] else {}
    sys.argv = list(spec["command"])
    os.chdir(spec["folder"])
    probe = Probe(spec, expected)
    if sys.argv[0] == "-m":
        module = sys.argv[1]
        sys.argv = sys.argv[1:]
        sys.path.insert(0, os.getcwd())
        sys.setprofile(probe)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.realpath(sys.argv[0])))
        sys.setprofile(probe)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
