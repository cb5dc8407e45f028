"""Recordings made by hand, by somebody who means harm."""
from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from ptdebug.artifacts import records as r
from ptdebug.artifacts.store import RecordingWriter
from safetensors.torch import save_file

META = r.TensorMeta("float32", (3,), (1,), "cpu")
X = r.NodeRef("x")
TENSORS = "tensors/0-0-inputs.safetensors"


def node(target: str, *args: Any, name: str = "bad", op: str = "call_function", **kwargs: Any) -> r.Node:
    """A node that calls `target`."""
    return r.Node(name, op, target, args, kwargs, META)


def graph(*nodes: r.Node, name: str = "forward", result: Any = X, inner: Mapping[str, Any] | None = None,
          placeholder: str = "x") -> r.Graph:
    """A graph of one input, `nodes` and a result."""
    first = r.Node("x", "placeholder", placeholder, (), {}, META)
    last = r.Node("output", "output", "output", ([result],))
    return r.Graph(name, (first, *nodes, last), (), dict(inner or {}))


def craft(folder: Path, capture: r.Graph, file: str = TENSORS, meta: r.TensorMeta = META,
          command: Sequence[str] = ("crafted.py",), facts: Mapping[str, Any] | None = None) -> Path:
    """A recording with that captured graph; `facts` are claims about the run."""
    writer = RecordingWriter(folder, command=command)
    source = folder.parent / "crafted.py"
    writer.begin("0/0", "forward", str(source), 1)
    writer.record("0/0", "frame", "", r.Frame("forward", str(source), 1))
    writer.record("0/0", "capture", "", capture)
    writer.record("0/0", "runtime", "inputs", r.SavedInputs((r.SavedInput("L['x']", meta, "input_0"),), file))
    if source.exists():
        writer.source_file(str(source))
    writer.end("0/0", "compiled", "", {})
    writer.set_meta("signature", "0" * 64)
    for key, value in (facts or {}).items():
        writer.set_meta(key, value)
    writer.close(0)
    (folder / "tensors").mkdir()
    save_file({"input_0": torch.ones(3)}, folder / TENSORS)
    return folder


def change(folder: Path, statement: str, *values: object) -> None:
    """Run SQL in the recording's database."""
    db = sqlite3.connect(folder / "recording.db", isolation_level=None)
    db.execute(statement, values)
    db.close()


def claim(folder: Path, **facts: Any) -> None:
    """Let the recording say something else of its run."""
    for key, value in facts.items():
        change(folder, "INSERT OR REPLACE INTO meta VALUES(?,?)", key, msgspec.json.encode(value).decode())


def here() -> str:
    """What a recording of this machine says of its machine."""
    return " ".join(os.uname())
