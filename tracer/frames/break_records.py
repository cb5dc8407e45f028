"""What is reported about a place where tracing stopped: the record of a break, the error of `fullgraph=True`."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING

from ...artifacts import records
from ..breaks.raised_errors import FullGraphError
from ..breaks.reasons import Reason
from ..bytecode.resume_function import resume_id, resume_name
from ..sources.display_names import expression_of, line_of

if TYPE_CHECKING:
    from .output_code import BreakBody


@dataclass(frozen=True)
class GraphBreak:
    """Where tracing stopped: `step` counts the instructions that the outermost frame had started."""

    step: int
    reason: Reason
    message: str
    hint: str
    location: records.Location
    stack: tuple[records.Location, ...]
    on_stack: tuple[str, ...]
    earlier: int | None  # an earlier step at which a break is possible although it is not here
    introspected_by: str = ""  # a function that reads its callers' variables, in which tracing stopped


def break_record(stop: GraphBreak, body: BreakBody | None, instruction: str, seconds: float) -> records.Break:
    """The record of a break; `body` is the ending that resumes after it, None where the whole frame runs in eager."""
    location = stop.location
    expression, line = expression_of(location), line_of(location)
    resumed: list[CodeType] = body.resumed if body is not None else []
    return records.Break(
        id=f"break_{stop.step}",
        code=stop.reason.code,
        message=stop.message,
        hint=stop.hint,
        location=location,
        source=line,
        stack=stop.stack,
        on_stack=stop.on_stack,
        instruction=instruction,
        resume=resume_name(resumed[0]) if resumed else "",
        expression=expression,
        resumes=tuple(dict.fromkeys(map(resume_id, resumed))),
        live_tensors=body.kept_tensors() if body is not None else (),
        seconds=seconds,
    )


def full_graph_error(code: CodeType, stops: Sequence[GraphBreak]) -> FullGraphError:
    """One error that lists all breaks that were found: line, marked expression, reason, what to change."""
    one = len(stops) == 1
    lines = [
        f"{code.co_qualname} does not fit into one graph, as fullgraph=True requires"
        + ("." if one else f": it breaks in {len(stops)} places.")
    ]
    for number, stop in enumerate(stops, 1):
        place, expression, line = stop.location, expression_of(stop.location), line_of(stop.location)
        lines.append(f"  {'' if one else f'{number}. '}{place.file}:{place.line}: {line}")
        lines.append(f"     {expression}: {stop.message} [{stop.reason.code}]")
        if stop.hint:
            lines.append(f"     to change: {stop.hint}")
    return FullGraphError("\n".join(lines))
