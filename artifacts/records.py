"""The records: what each stage of a compilation leaves in a recording, as typed, frozen data.

Text is rendered from records (`render.py`), never stored in their place. Records are msgspec structs, so encoding to
and from JSON needs no code, and they hold only plain data: no tensors, no code objects.

Each item of a record (node, instruction, guard, statement, line) has an `id` that is unique within the record, and
`origins`: the references of what it was derived from. A reference (`Ref`) is a string

    STAGE[:NAME]#ID      for example  "capture#add_1", "loop_ir:buf3#t4", "kernels:fused_0#12", "bytecode#24"

within one compilation, which is what makes a line of C++ lead back to a line of the program.
"""
from __future__ import annotations

from typing import Any

from .guard_records import (
    Guard as Guard,
    Guards as Guards,
    Recompile as Recompile,
    Symbol as Symbol,
    SymbolEvent as SymbolEvent,
)
from .record_base import (
    Count as Count,
    Location as Location,
    Record as Record,
    Ref as Ref,
    TensorMeta as TensorMeta,
    ref as ref,
    split_ref as split_ref,
)
from .run_records import (
    Autocast as Autocast,
    CallIdentity as CallIdentity,
    CudaGraph as CudaGraph,
    ProcessState as ProcessState,
    Recapture as Recapture,
    Runtime as Runtime,
    SavedInput as SavedInput,
    SavedInputs as SavedInputs,
)
from .step_records import (
    DELETED as DELETED,
    Step as Step,
    StepFrame as StepFrame,
    StepInstruction as StepInstruction,
    Steps as Steps,
)

SCHEMA = "ptdebug/2"
LIMIT_REACHED = " times, the limit: "
"""Marks the reason of a compilation that the recompile limit prevented."""


# ---- stage 1: frame -------------------------------------------------------------------------------------------------
class Argument(Record, frozen=True):
    """An argument of the frame: a tensor's metadata, or the type and a short, safe description."""

    name: str
    type: str
    value: str = ""
    tensor: TensorMeta | None = None


class TracedFunction(Record, frozen=True):
    """A function that was inlined into the frame's graph: how often, and the seconds that tracing it took, without
    (`own_seconds`) and with what it calls."""

    function: str
    file: str
    line: int
    calls: Count
    own_seconds: float
    seconds: float


class Frame(Record, frozen=True):
    """Stage `frame`: the function that was compiled (or skipped), with its arguments and call stack."""

    function: str
    file: str
    line: int
    module: str = ""
    arguments: tuple[Argument, ...] = ()
    stack: tuple[Location, ...] = ()
    status: str = "compiled"  # compiled | skipped | eager | failed
    reason: str = ""
    origin: str = ""  # of a resume function: the function that it resumes, and where
    isolated: bool = False  # the function was also compiled for another torch.compile call; nothing is shared
    arguments_known: bool = True  # False: they were not inspected
    traced: tuple[TracedFunction, ...] = ()


# ---- bytecode, output_bytecode --------------------------------------------------------------------------------------
class Instruction(Record, frozen=True):
    """One bytecode instruction. `id` is its offset in bytes; `stack_effect` is None where a jump decides it."""

    id: str
    opname: str
    argument: str = ""
    location: Location | None = None
    stack_effect: int | None = None
    jump_target: bool = False
    origins: tuple[Ref, ...] = ()


class ExceptionEntry(Record, frozen=True):
    start: int
    end: int
    target: int
    depth: int
    lasti: bool = False


class Bytecode(Record, frozen=True):
    """Stages `bytecode` (as it was) and `output_bytecode` (rewritten, and one record for each resume function)."""

    name: str
    instructions: tuple[Instruction, ...]
    exceptions: tuple[ExceptionEntry, ...] = ()
    version: str = ""  # of Python: "3.11"
    role: str = ""  # original | rewritten | resume
    parameters: tuple[str, ...] = ()


# ---- graphs: capture, joint, forward, backward, passes --------------------------------------------------------------
class NodeRef(Record, frozen=True):
    """An argument that is another node's result."""

    node: str


class Node(Record, frozen=True):
    """One FX node. `id` is its name. Arguments are JSON-like trees whose leaves may be NodeRef.

    `stack` is the user's, innermost last, without frames of torch or ptdebug; `module` the nn.Module path it ran in.
    `checkpoint` is the number of the torch.utils.checkpoint region that the node is in; 0 for none.
    """

    id: str
    op: str
    target: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    value: TensorMeta | tuple[Any, ...] | str | None = None
    stack: tuple[Location, ...] = ()
    module: str = ""
    origins: tuple[Ref, ...] = ()
    checkpoint: int = 0


class Graph(Record, frozen=True):
    """A graph in execution order; its `output` node comes last. For `passes`, `rule` says what made it.

    `inner` has the graphs that its nodes hold, by node: a subgraph that a `get_attr` passes to a higher-order operator
    (`torch.cond`), or the autograd function that a `call_function` calls. See `inner_graphs.py`.
    """

    name: str
    nodes: tuple[Node, ...]
    notes: tuple[str, ...] = ()  # aliasing, mutation, side effects to replay: one sentence each
    inner: dict[str, Graph | AutogradFunction] = {}


class AutogradFunction(Record, frozen=True):
    """A torch.autograd.Function, or a hook of a tensor, that was traced: its two sides as graphs.

    `forward` takes the tensors and returns its results and what the backward reads; `backward` takes the gradients of
    the results, then what it reads. The names are those of torch: `needs_input_grad` has a bool for each input of the
    forward (inputs that need gradients come first); `non_differentiable` and `dirty` are positions of results;
    `once_differentiable` forbids a second derivative; with `materialize_grads` an absent gradient is passed to the
    backward as zeros. `strides` are the strides of the gradients that the backward relies on (None: contiguous).
    """

    forward: Graph
    backward: Graph
    needs_input_grad: tuple[bool, ...]
    strides: tuple[tuple[int, ...] | None, ...] | None = None
    non_differentiable: tuple[int, ...] = ()
    dirty: tuple[int, ...] = ()
    once_differentiable: bool = False
    materialize_grads: bool = True


class RuleMatch(Record, frozen=True):
    """One application of a rewrite rule: the nodes it removed and the nodes it added."""

    rule: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    why: str = ""


class Pass(Record, frozen=True):
    """Stage `passes`: a pass that changed the graph (that the others ran is a decision of kind `pass`)."""

    name: str
    graph: Graph
    matches: tuple[RuleMatch, ...]
    seconds: float = 0.0


# ---- stage 4: graph breaks ------------------------------------------------------------------------------------------
class Break(Record, frozen=True):
    """A graph break. `code` is stable ("data-dependent-branch"); message and hint are about the user's program."""

    id: str
    code: str
    message: str
    hint: str
    location: Location
    source: str  # the expression or line of the program
    stack: tuple[Location, ...] = ()
    on_stack: tuple[str, ...] = ()  # contents of the value stack
    instruction: str = ""
    resume: str = ""  # name of the resume function, "" if the rest of the frame runs in eager
    origins: tuple[Ref, ...] = ()
    expression: str = ""  # the source text between the columns of `location`
    resumes: tuple[str, ...] = ()  # `Frame.origin` of each of its resume functions
    live_tensors: tuple[str, ...] = ()  # variables that the graph computes and the code after the break reads
    seconds: float = 0.0  # of tracing that the break discarded


class Breaks(Record, frozen=True):
    breaks: tuple[Break, ...]


# ---- stage 5: guards ------------------------------------------------------------------------------------------------
class SavedValue(Record, frozen=True):
    """A value that the forward saves for the backward. `id` is its node; `bytes` is None if a size is dynamic.

    `kind` is input or output (alive anyway), tensor or size. `location` is the line that computed it; `used_by` is the
    node of the backward that needs it, and `used_at` the line of the program whose derivative that node belongs to.
    """

    id: str
    kind: str
    bytes: Count | None
    why: str
    value: TensorMeta | tuple[Any, ...] | str | None = None
    location: Location | None = None
    used_by: str = ""
    used_at: Location | None = None
    origins: tuple[Ref, ...] = ()


class RecomputedValue(Record, frozen=True):
    """A value of the forward that the backward recomputes: bytes not saved, operations spent."""

    id: str
    bytes: Count | None
    flops: Count | None
    why: str
    location: Location | None = None
    origins: tuple[Ref, ...] = ()


class Partition(Record, frozen=True):
    """Stage `partition`: what is saved for the backward, and what is recomputed.

    `predicted` are bytes: forward, backward, eager (peak memory), saved, eager_saved (saved for the backward).
    """

    saved: tuple[SavedValue, ...]
    recomputed: tuple[RecomputedValue, ...]
    predicted: dict[str, Count]
    budget: float = 1.0


# ---- stage 10: loop IR ----------------------------------------------------------------------------------------------
class LoopAxis(Record, frozen=True):
    symbol: str
    extent: str


class LoopStatement(Record, frozen=True):
    """One statement: `id = op(args)`; `text` is the printed form that parses back."""

    id: str
    op: str
    text: str
    dtype: str
    args: tuple[str, ...] = ()
    origins: tuple[Ref, ...] = ()


class Loops(Record, frozen=True):
    """Stage `loops`, one record for each buffer that loops compute."""

    name: str
    axes: tuple[LoopAxis, ...]
    reduction_axes: tuple[LoopAxis, ...]
    statements: tuple[LoopStatement, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    value: TensorMeta | None = None


# ---- stage 11: fusion, schedule -------------------------------------------------------------------------------------
class FusionCandidate(Record, frozen=True):
    """A pair that could have been fused: the verdict, why, what it would save, and what would allow it if refused.

    `legal`: fused or not, it could be, and `decision` is the id by which an override says so.
    """

    id: str
    first: str
    second: str
    kind: str  # producer-consumer | siblings | horizontal
    fused: bool
    why: str
    bytes_saved: Count | None = None
    enabled_by: str = ""
    decision: str = ""
    legal: bool = True


class Fusion(Record, frozen=True):
    candidates: tuple[FusionCandidate, ...]


class LoopSchedule(Record, frozen=True):
    """How the loops of a kernel on a CPU run: what was chosen, and all of the loop nest as text, which says where."""

    threads: tuple[str, ...] = ()  # which loops they share, in how many chunks
    vectors: tuple[str, ...] = ()  # along which loops, with which width where it is not the widest
    tile: str = ""
    pieces: tuple[str, ...] = ()  # of loops that are split
    accumulators: tuple[str, ...] = ()  # several for each reduction, float sums in blocks, rows that are jammed
    stores: tuple[str, ...] = ()  # those that are non-temporal
    conversions: tuple[str, ...] = ()  # of float16, in blocks
    prefetch: tuple[str, ...] = ()
    scatter: str = ""
    scratch: tuple[str, ...] = ()  # buffers that stay inside, and their elements
    nest: tuple[str, ...] = ()


class ScheduledGroup(Record, frozen=True):
    """One kernel or one library call, in execution order."""

    id: str
    kind: str  # loops | extern
    members: tuple[str, ...]  # names of loop bodies or of the extern call
    kernel: str  # name of the kernel or the operator called
    loop_order: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    internal: tuple[str, ...] = ()  # buffers that never reach memory
    bytes: Count | None = None
    flops: Count | None = None
    origins: tuple[Ref, ...] = ()
    schedule: LoopSchedule | None = None  # of a kernel on a CPU


class BufferPlan(Record, frozen=True):
    """The life of a buffer: bytes, first and last group that touch it, and whose memory it takes over."""

    id: str
    bytes: Count | None
    first: str
    last: str
    reuses: str = ""
    role: str = "intermediate"  # input | constant | intermediate | output


class Schedule(Record, frozen=True):
    groups: tuple[ScheduledGroup, ...]
    buffers: tuple[BufferPlan, ...] = ()
    peak_bytes: Count | None = None


# ---- stages 12 and 13: kernels, wrapper -----------------------------------------------------------------------------
class CodeLine(Record, frozen=True):
    text: str
    origins: tuple[Ref, ...] = ()


class Kernel(Record, frozen=True):
    """Stage `kernels`: source of one kernel or translation unit and what the compiler made of it.

    `outputs` holds what the compiler made of it, as text, by name (asm; ttir, ttgir, llir, ptx, sass); `metrics` holds
    numbers such as registers, spills, shared_bytes, vector_width.
    """

    name: str
    language: str  # cpp | triton
    lines: tuple[CodeLine, ...]
    kernels: tuple[str, ...] = ()  # entry points in it
    command: tuple[str, ...] = ()
    log: str = ""
    seconds: float = 0.0
    cached: bool = False
    path: str = ""
    target: str = "cpu"
    outputs: dict[str, str] = {}
    metrics: dict[str, Any] = {}


class Wrapper(Record, frozen=True):
    """Stage `wrapper`: the code that allocates and calls."""

    name: str
    language: str
    lines: tuple[CodeLine, ...]


# ---- decisions ------------------------------------------------------------------------------------------------------
class Option(Record, frozen=True):
    """One alternative of a decision. `score` is its estimated or measured cost or gain, in `unit`; `better` says which
    way it is to be read."""

    name: str
    score: float | None = None
    why: str = ""
    unit: str = ""  # "us", "bytes saved"; "" for an estimate that only compares
    better: str = ""  # lower | higher


class Decision(Record, frozen=True):
    """One choice. `id` is KIND:SUBJECT, stable between runs of one program, which is what an override names."""

    id: str
    kind: str
    subject: str
    options: tuple[Option, ...]
    default: str
    chosen: str
    why: str
    forced: bool = False
    location: Location | None = None
    origins: tuple[Ref, ...] = ()


class Absent(Record, frozen=True):
    """A stage that was not produced, and why."""

    stage: str
    why: str


AnyRecord = (
    Frame | Bytecode | Graph | Pass | Partition | Breaks | Guards | Recompile | Loops | Fusion | Schedule | Kernel
    | Wrapper | Runtime | SavedInputs | Decision | Absent | Steps
)
