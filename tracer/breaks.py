"""Why tracing stopped, in the program's words.

`BREAKS` is the table of everything that the tracer gives up on: a stable code, a message template (`{detail}` is filled
in by whoever raised `Unsupported`) and a hint that says what to change in the program. Add an entry to add a reason.
"""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BreakKind:
    """One reason: the message shown for it, and what the person can do about it ("" when nothing)."""

    message: str
    hint: str = ""


class FullGraphError(RuntimeError):
    """The frame does not fit into one graph although `fullgraph=True` asked for it."""


BREAKS: dict[str, BreakKind] = {
    # ---- control flow
    "data-dependent-branch": BreakKind(
        "the condition depends on the values of a tensor: {detail}",
        "use torch.where or torch.cond, or move the test out of the compiled function",
    ),
    "data-dependent-value": BreakKind(
        "a Python number is read from a tensor: {detail}", "keep the value in a tensor, or read it outside"
    ),
    "data-dependent-shape": BreakKind(
        "the size of a result depends on the values of a tensor: {detail}",
        "use an operation with a size known in advance (torch.where instead of boolean indexing)",
    ),
    "raises": BreakKind("the program raises an exception here: {detail}"),
    "operator-error": BreakKind("the operator fails on these arguments: {detail}", "eager raises the same error"),
    # ---- calls
    "call": BreakKind(
        "cannot trace the call of {detail}", "mark it with torch.compiler.allow_in_graph, or move it out"
    ),
    "skipped-function": BreakKind("{detail} is not traced", "move the call out of the compiled function"),
    "graph-break-requested": BreakKind("the program asks for a graph break: {detail}"),
    "forced-break": BreakKind("an override forbids to inline {detail}", "take the override away"),
    "disabled-function": BreakKind("{detail} is marked as not to be compiled"),
    "inline-depth": BreakKind("calls nest too deeply: {detail}"),
    # ---- language
    "opcode": BreakKind("the bytecode instruction {detail} is not supported"),
    "async": BreakKind("coroutines and asynchronous iteration are not traced: {detail}"),
    "import": BreakKind("cannot trace this import: {detail}", "import at the top of the file"),
    "del": BreakKind("cannot trace this deletion: {detail}"),
    # ---- values
    "unknown-type": BreakKind("the type of {detail} is not known while tracing"),
    "not-a-constant": BreakKind("{detail} is not a constant"),
    "iterate": BreakKind("cannot iterate over {detail}"),
    "attribute": BreakKind("cannot read {detail}"),
    "set-attribute": BreakKind("cannot set {detail}"),
    "subscript": BreakKind("cannot index {detail}"),
    "set-item": BreakKind("cannot assign an item of {detail}"),
    "operator": BreakKind("cannot apply {detail}"),
    "reconstruct": BreakKind("{detail} cannot be rebuilt after the graph"),
    "metadata-mutation": BreakKind("{detail} changes the shape of a tensor in place", "use the out-of-place form"),
    "missing-fake-kernel": BreakKind(
        "the operator has no rule for shapes and dtypes: {detail}", "register a fake implementation for it"
    ),
    "generator": BreakKind("a generator is in flight here: {detail}"),
    "context-manager": BreakKind("the context manager {detail} cannot be traced"),
    "global-state": BreakKind("{detail} changes global state that is not traced"),
}


def message(code: str, detail: str) -> str:
    """The message of a break. An unknown code gives the code itself: a missing entry never hides a break."""
    kind = BREAKS.get(code)
    return kind.message.format(detail=detail) if kind is not None else f"{code}: {detail}"


def hint(code: str) -> str:
    """What to change in the program, or ""."""
    kind = BREAKS.get(code)
    return kind.hint if kind is not None else ""
