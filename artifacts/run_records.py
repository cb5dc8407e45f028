"""The records of stage `runtime`: how compiled code did, and the inputs of its calls, for replay."""
from __future__ import annotations

from typing import Any

from .record_base import Count, Record, TensorMeta


class InputCopies(Record, frozen=True):
    """How often an input was copied into the memory of a CUDA graph (or back), and how many bytes that were in all."""

    name: str
    times: Count
    bytes: Count


class Recapture(Record, frozen=True):
    """A CUDA graph that was captured again for sizes that had one: the inputs that had moved, or why."""

    inputs: tuple[str, ...] = ()
    why: str = ""


class CudaGraph(Record, frozen=True):
    """What became of the CUDA graphs of one compiled graph ("" or its part, "backward").

    `stopped`: why nothing is captured any more. `sizes` that were seen, `captures` made, `replays` of them, `cloned`
    results; `launches` counts the calls that ran kernel by kernel, by reason.
    """

    part: str = ""
    stopped: str = ""
    sizes: Count = 0
    captures: Count = 0
    replays: Count = 0
    cloned: Count = 0
    copied_bytes: Count = 0
    copies: tuple[InputCopies, ...] = ()
    launches: dict[str, Count] = {}
    recaptures: tuple[Recapture, ...] = ()


class Runtime(Record, frozen=True):
    """How a compilation did while the program ran. `failed` counts failures of guards by the source of the object that
    they are about, where that is known."""

    calls: Count
    guard_failures: Count = 0
    failed: dict[str, Count] = {}
    cuda_graphs: tuple[CudaGraph, ...] = ()


class SavedInput(Record, frozen=True):
    """One graph input kept for replay. `tensor` is its key in the safetensors file; else `value` is a literal.

    The file holds each storage once, as a flat tensor of the elements that inputs touch (bytes, where they see it with
    several dtypes): an input is its flat tensor seen with `meta`'s dtype, sizes, strides and offset, and lazily
    conjugated or negated. `alias_of` names the first input that shares this one's storage.
    """

    name: str
    meta: TensorMeta | None
    tensor: str = ""
    value: Any = None
    alias_of: str = ""
    conjugated: bool = False
    negated: bool = False
    unsaved: str = ""  # why its values cannot be kept: it is not strided memory


class Autocast(Record, frozen=True):
    """torch.autocast on one device."""

    enabled: bool
    dtype: str


class ProcessState(Record, frozen=True):
    """torch's global state at a call. `device` is the default one, "" if none was set; `flags` are settings of
    libraries and of determinism by name (replay/recorded/state.py)."""

    grad: bool = True
    inference: bool = False
    dtype: str = "float32"
    device: str = ""
    autocast: dict[str, Autocast] = {}
    autocast_cache: bool = True
    flags: dict[str, bool | str] = {}


class CallIdentity(Record, frozen=True):
    """How a call of the program is known again: what was in its variables, as described by replay/program/identity.py.

    `values` are descriptions by place (`L['act']`, `G['scale']`); `unsure` are places whose description does not
    distinguish all objects that the guards do; `seconds` is how long the program had run; `file`, `line` and `code` (a
    digest) are those of the code that was called: a decorator's wrapper, where `Frame` names what it wraps.
    """

    values: dict[str, str] = {}
    unsure: tuple[str, ...] = ()
    seconds: float = 0.0
    file: str = ""
    line: int = 0
    code: str = ""


class SavedInputs(Record, frozen=True):
    """Stage `runtime`, names `inputs`, `inputs_1`, ...: the inputs of the first and later calls of a compiled graph,
    and the state of the process around the call. The file also holds the states of random number generators before
    the call, as `random:cpu`, `random:cuda:0`."""

    inputs: tuple[SavedInput, ...]
    file: str = ""  # relative to the recording, "" when only metadata was kept
    note: str = ""
    state: ProcessState | None = None
    call: CallIdentity | None = None
