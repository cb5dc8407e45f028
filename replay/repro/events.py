"""A graph break, or a recompilation, as the few lines that show it: the function, its calls, and what to look for."""
from __future__ import annotations

from collections.abc import Sequence

from ...artifacts.records import Break, Breaks, Recompile
from ..recorded.graphs import ReplayError
from .compilation import Compilation
from .frames import FrameCall
from .script import Body, Header, Repro, check_of, compose

_CHECK = "check_event.py"


def break_repro(compilation: Compilation, name: str, construct: bool) -> Repro:
    """The script that shows a graph break. Raises ReplayError."""
    found: Sequence[Break] = compilation.need(Breaks, "breaks").breaks
    wanted = next((b for b in found if name in ("", b.id)), None)
    if wanted is None:
        raise ReplayError(f"{compilation.id} has no graph break {name}; it has: {', '.join(b.id for b in found)}")
    call = FrameCall(compilation, construct)
    where = wanted.location
    header = Header(
        compilation.title("A graph break"),
        (*compilation.facts(f"{compilation.id}:breaks:{wanted.id}"),
         f"{where.file}:{where.line}: {wanted.source.strip()}  [{wanted.code}]", wanted.message, wanted.hint),
        "python {file} [--compiler ptdebug|torch]")
    return _composed(compilation, header, [call], f"KIND, WANTED = 'break', {wanted.code!r}")


def recompile_repro(before: Compilation, compilation: Compilation, construct: bool) -> Repro:
    """The script that shows a recompilation: the call that an entry was compiled for, then the one that it fails for.
    Raises ReplayError."""
    record: Recompile = compilation.need(Recompile, "guards", "recompile")
    first = FrameCall(before, construct, suffix="_before", unbound=True)
    second = FrameCall(compilation, construct, tensors=first.tensors, unbound=True)
    header = Header(
        compilation.title("A recompilation"),
        (*compilation.facts(f"{compilation.id}:recompiles"), f"{record.guard}: was {record.expected}, is now "
         f"{record.actual}", record.hint), "python {file} [--compiler ptdebug|torch]")
    return _composed(compilation, header, [first, second], f"KIND, WANTED = 'recompile', {record.guard!r}")


def _composed(compilation: Compilation, header: Header, calls: list[FrameCall], settings: str) -> Repro:
    """The script of one call or two. The function is the same object in both: that of the first."""
    last = calls[-1]
    definitions = list(last.definitions)
    make = ["calls = []"]
    for call in calls:
        body, returned = _split(call.make)
        grad = call.compilation.training or not any(getattr(v, "requires_grad", 0) for v in call.compilation.values)
        make += [*body, f"calls.append({returned[0].removeprefix('return ')}", *returned[1:-1],
                 f"{returned[-1].removesuffix(')')}, {grad}))  # grad mode"]
    make += ["return calls"]
    compiler = f"COMPILER = {compilation.compiler!r}"
    body_ = Body(header, [*definitions, "", "", compiler, settings], make, last.tensors, [
        line for call in calls for line in call.imports], globals=last.globals)
    return compose(body_, check_of(_CHECK))


def _split(lines: list[str]) -> tuple[list[str], list[str]]:
    """The statements before the `return`, and the lines of that."""
    at = next(i for i, line in enumerate(lines) if line.startswith("return "))
    returned = [lines[at].replace("return ", "return (", 1), *lines[at + 1:-1], f"{lines[-1]})"]
    return lines[:at], returned
