"""Bytecode, loop IR, kernels and wrapper as listings."""
from __future__ import annotations

from .listing import Line, Listing, SourceText, place_refs, printable, text_lines
from .machine_lines import MACHINE, form_of, source_lines
from .records import Bytecode, CodeLine, Kernel, Loops, Ref, Wrapper, ref
from .render_graph import source_text, tensor_text

LANGUAGES = {"cpp": "cpp", "triton": "python", "python": "python", "asm": "gas", "ptx": "ptx", "sass": "gas",
             "llir": "llvm", "ttir": "mlir", "ttgir": "mlir"}


def render_bytecode(record: Bytecode, stage: str, name: str, source: SourceText) -> Listing:
    """Columns: line of the program, jump target, offset, operation, argument, effect on the stack."""
    lines = [Line(printable(f"# {record.role or 'bytecode'} of {record.name}"
                            + (f", Python {record.version}" if record.version else "")))]
    lines += _as_python(record, stage, name) if record.role in ("rewritten", "resume") else []
    shown = None
    for item in record.instructions:
        place = item.location
        number = str(place.line) if place and place.line > 0 and place.line != shown else ""
        if place and number:
            shown = place.line
            text = source_text(place, source)
            if text:
                lines += [Line(printable(f"{number:>5}      # {text}"), place_refs((place,))[0])]
        effect = "" if item.stack_effect is None else f"{item.stack_effect:+d}" if item.stack_effect else "0"
        mark = ">>" if item.jump_target else "  "
        text = f"{'':>5} {mark} {item.id:>5} {effect:>3}  {item.opname:<28}{item.argument}".rstrip()
        lines.append(Line(printable(text), ref(stage, item.id, name),
                          (*item.origins, *(place_refs((place,)) if place else ()))))
    for entry in record.exceptions:
        lines.append(Line(f"# exceptions from {entry.start} to {entry.end} go to {entry.target}, depth {entry.depth}"
                          + (" with last instruction" if entry.lasti else "")))
    return Listing(f"{stage} {name or record.name}", "python", tuple(lines))


def _as_python(record: Bytecode, stage: str, name: str) -> list[Line]:
    """What the instructions below do, as Python; or why that is not shown."""
    from .decompile import INDENT, Unknown, decompiled

    try:
        found = decompiled(record)
    except Unknown as reason:
        return [Line(printable(f"# not shown as Python: {reason}")), Line("")]
    function = record.name.rpartition(".")[2].partition(" ")[0].strip("<>")
    parameters = ", ".join(parameter.lstrip(".") for parameter in record.parameters)
    lines = [Line("# as Python; ours_... are ptdebug's variables, f_at_line_N is the program's code from there on:"),
             Line(printable(f"def {function}({parameters}):"))]
    lines += [Line(printable(INDENT * (one.depth + 1) + one.text), ref(stage, one.instruction, name)) for one in found]
    return [*lines, Line(""), Line("# the instructions:")]


def render_loops(record: Loops, stage: str, name: str, source: SourceText) -> Listing:
    """The printed form of the loop IR."""
    whole = f"{stage}:{name}" if name else stage
    axes = ", ".join(f"{axis.symbol}: {axis.extent}" for axis in record.axes)
    header = f"body {record.name}[{axes}]"
    if record.reduction_axes:
        header += f" reduce [{', '.join(f'{axis.symbol}: {axis.extent}' for axis in record.reduction_axes)}]"
    lines = [Line(printable(header + (f"  # {tensor_text(record.value)}" if record.value else "")), whole)]
    lines += [Line(printable("  " + statement.text), ref(stage, statement.id, name), statement.origins)
              for statement in record.statements]
    lines.append(Line(printable(f"# reads {', '.join(record.reads) or 'nothing'}; writes {', '.join(record.writes)}")))
    return Listing(f"loops {record.name}", "python", tuple(lines))


def render_kernel(record: Kernel, stage: str, name: str, source: SourceText) -> Listing:
    """The source of a kernel, as it was compiled; what is known of its compilation comes last, as comments."""
    mark = "//" if record.language == "cpp" else "#"
    lines = list(code_lines(record.lines, stage, name))
    facts = ", ".join(f"{key} {value}" for key, value in record.metrics.items())
    state = "from the cache" if record.cached else f"{record.seconds:.2f} s"
    tail = [f"{record.target}, {state}" + (f", {facts}" if facts else "")]
    tail += [f"command: {' '.join(record.command)}"] if record.command else []
    tail += [f"library: {record.path}"] if record.path else []
    tail += [f"log: {line}" for line in record.log.splitlines()]
    tail += [f"also recorded: {', '.join(record.outputs)}"] if record.outputs else []
    lines += [Line(""), *(Line(printable(f"{mark} {text}")) for text in tail)]
    return Listing(f"kernels {name or record.name}", LANGUAGES.get(record.language, "text"), tuple(lines))


def render_product(record: Kernel, product: str, name: str) -> Listing:
    """A later form of a kernel (assembly, PTX, LLVM IR, ...). Raises KeyError where it was not recorded."""
    text = record.outputs[product]
    lines = text_lines(text)
    origins = source_lines(product, text)[: len(lines)]
    linked = tuple(
        Line(line.text, product_ref(name, product, number), (ref("kernels", origin, name),)) if origin else line
        for number, (line, origin) in enumerate(zip(lines, origins), 1)
    )
    return Listing(f"{record.name}.{product}", LANGUAGES.get(form_of(product), "text"), linked)


def product_ref(name: str, product: str, number: int) -> Ref:
    """The reference to a line of a later form of the kernel artifact `name`."""
    return ref(MACHINE, number, f"{name}.{product}")


def render_wrapper(record: Wrapper, stage: str, name: str, source: SourceText) -> Listing:
    """The code that allocates and calls."""
    return Listing(f"wrapper {name or record.name}", LANGUAGES.get(record.language, "text"),
                   code_lines(record.lines, stage, name))


def code_lines(lines: tuple[CodeLine, ...], stage: str, name: str) -> tuple[Line, ...]:
    """Generated code: the item of a line is its number, from 1."""
    return tuple(Line(printable(line.text), ref(stage, number, name), line.origins)
                 for number, line in enumerate(lines, 1))
