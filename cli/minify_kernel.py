"""`ptdebug minify RECORDING:F/C:kernels:NAME`: the loops of one kernel, reduced."""
from __future__ import annotations

import argparse
from pathlib import Path

from ..artifacts.recording import Recording
from ..artifacts.records import Kernel
from ..engine.ir.printer import format_group
from ..replay.failures.observe import load_import
from ..replay.recorded.graphs import ReplayError
from ..replay.reduce.loops import LIMIT, MinifiedLoops, minify_loops, statements
from ..replay.repro.compilation import RECORDED, Compilation
from ..replay.repro.loops import Loops, loops_repro
from ..replay.repro.recorded import kernel_call
from ..replay.repro.script import Header
from ..replay.repro.verify import verify
from .errors import CommandError
from .printing import print_json, say


def run_kernel(arguments: argparse.Namespace, recording: Recording, compile_id: str, name: str) -> int:
    """Reduce the loops of a kernel, and write them as a script that was seen to fail."""
    _check_is_one(recording, compile_id, name)
    for module in arguments.imports:
        load_import(module)
    compilation = Compilation(recording, compile_id, RECORDED, arguments.trust)
    try:
        _, call = kernel_call(compilation, name)
        loops = Loops.of(call, {**arguments.forced, **compilation.case().forced}, tuple(arguments.imports))
    except ReplayError as error:
        raise CommandError(str(error)) from error
    found = minify_loops(loops, arguments.limit or LIMIT)
    if found is None:
        raise CommandError(f"{call.group.kernel}, compiled alone, computes what its loop IR says: nothing to minify", 1)
    before = statements(loops.group)
    header = Header(compilation.title(f"The loops of the kernel {call.group.kernel}, reduced from {before} statements"),
                    tuple(compilation.facts(f"{compile_id}:kernels:{name}")), "python {file}")
    files = loops_repro(loops, found.group, header).write(Path(arguments.out))
    _report(arguments, found, before, files)
    return 0


def _check_is_one(recording: Recording, compile_id: str, name: str) -> None:
    """Raises CommandError for the name of a library of several kernels."""
    record = recording.find(Kernel, compile_id, "kernels", name)
    if record is not None and len(record.kernels) > 1:
        names = f"{', '.join(record.kernels[:3])}{', ...' if len(record.kernels) > 3 else ''}"
        raise CommandError(f"{name} has {len(record.kernels)} kernels: name one of them ({names}); "
                           f"`ptdebug replay {recording.name}:{compile_id}` says which is wrong")


def _report(arguments: argparse.Namespace, found: MinifiedLoops, before: int, files: list[Path]) -> None:
    ran = verify(files, path=[str(Path.cwd())] if arguments.imports else [])
    if arguments.json:
        print_json(selector=arguments.target, shown=found.shown, files=list(map(str, files)), statements_before=before,
                   statements=statements(found.group), runs=found.runs, verified=ran.outcome.failed,
                   outcome=str(ran.outcome))
        return
    print(f"{found.shown}: {before} statements to {statements(found.group)}, {found.runs} runs")
    print(format_group(found.group), end="")
    for file in files:
        print(file)
    print(f"run in a fresh process: {ran.outcome}")
    if not ran.outcome.failed:
        say("ptdebug: the script does not show the failure by itself")
