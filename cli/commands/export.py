"""Export a model as a package that runs without its Python: `ptdebug.load("model.ptd")` gives a callable.

The script runs as `python` would run it; NAME is then looked up in it: a module that the script called (with the
arguments of that first call), a `torch.export.ExportedProgram`, or a function without parameters that returns the
arguments of `ptdebug.export` as a dict.
"""
from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from ..errors import CommandError
from ..main import did_you_mean
from ..printing import print_json, say
from ..targets import check_target

EXAMPLE = "ptdebug export examples/export_classifier.py:model -o model.ptd"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SCRIPT:NAME and the options."""
    add = parser.add_argument
    add("model", metavar="SCRIPT:NAME", help="a Python file, and what in it is to be exported")
    add("-o", "--out", metavar="FILE", required=True, help="the package to write (.ptd)")
    add("--dynamic", metavar="ARGUMENT:DIM[=NAME]", action="append", default=[],
        help="a dimension that varies, for a module that the script calls; may be given several times")
    add("--cpp", metavar="FOLDER", help="refuse what cannot be called from C++ without Python, and write a header "
        "and a loader for C++ programs there")
    add("--target", metavar="cuda:CC", action="append", default=[], help="compile for GPUs of this compute capability "
        "(cuda:90), which need not be here; may be given several times")
    add("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Run the script, export, and say what was written."""
    script, _, name = arguments.model.rpartition(":")
    if not script or not name:
        raise CommandError(f"{arguments.model} is not SCRIPT:NAME\ntry: {EXAMPLE}")
    if not os.path.isfile(script):
        raise CommandError(f"no file {script}")
    from ..exporting import ExportError, export  # imports torch

    for target in arguments.target:
        check_target(target)
    found, calls = _namespace(script)
    if name not in found:
        names = [each for each in found if not each.startswith("_")]
        raise CommandError(f"{script} has no {name}{did_you_mean(name, names)}")
    request = _request(found[name], name, calls, arguments.dynamic)
    try:
        made = export(**(request | ({"cpp": True} if arguments.cpp else {})
                         | ({"target": arguments.target} if arguments.target else {})))
        path = made.save(arguments.out)
    except (ExportError, ValueError) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"can't write {arguments.out}: {error.strerror}") from None
    written = _write_loader(arguments.cpp) if arguments.cpp else ()
    size = path.stat().st_size
    if arguments.json:
        print_json(file=str(path), bytes=size, entry_points=[entry.signature.name for entry in made.package.entries],
                   signature=str(made), weights=len(made.package.weights), cpp=[str(each) for each in written])
    else:
        say(f"{path}: {size:,} bytes, {len(made.package.weights)} weights\n{made}")
        for each in written:
            say(f"{each}: for C++ programs")
    return 0


def _write_loader(folder: str) -> tuple[Path, ...]:
    from ...engine.package.native import write_to

    try:
        return write_to(Path(folder))
    except OSError as error:
        raise CommandError(f"can't write to {folder}: {error.strerror}") from None


def _namespace(script: str) -> tuple[dict[str, Any], dict[int, tuple[Any, Any]]]:
    """The names of the script after it has run, and of each module the arguments of its first call."""
    import torch

    calls: dict[int, tuple[Any, Any]] = {}

    def note(module: torch.nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        if not torch.compiler.is_compiling():  # in a function of torch.cond, which Dynamo traces also in eager
            calls.setdefault(id(module), (args, kwargs))

    hook = torch.nn.modules.module.register_module_forward_hook(note, with_kwargs=True)
    restored = sys.argv, sys.path[:]
    sys.argv, sys.path[0] = [script], os.path.dirname(os.path.abspath(script))
    try:
        return runpy.run_path(script, run_name="__main__"), calls
    except SystemExit as error:
        if error.code:
            raise CommandError(f"{script} ended with exit code {error.code}") from None
        raise CommandError(f"{script} ended by sys.exit, so its names are gone") from None
    finally:
        sys.argv, sys.path[:] = restored
        hook.remove()


def _request(value: Any, name: str, calls: dict[int, tuple[Any, Any]], dynamic: list[str]) -> dict[str, Any]:
    """The arguments of `export`."""
    import torch

    from ..module import OptimizedModule

    if isinstance(value, torch.export.ExportedProgram):
        args, kwargs = value.example_inputs or ((), {})
        return {"model": value, "args": args, "kwargs": kwargs, "dynamic_shapes": _dynamic(dynamic)}
    if isinstance(value, OptimizedModule):
        value = value._orig_mod
    if isinstance(value, torch.nn.Module):
        if id(value) not in calls:
            raise CommandError(f"the script never calls {name}, so there are no example arguments: call it once, or "
                               "name a function that returns the arguments of ptdebug.export")
        args, kwargs = calls[id(value)]
        return {"model": value, "args": args, "kwargs": kwargs, "dynamic_shapes": _dynamic(dynamic)}
    if callable(value) and not dynamic:
        given = value()
        if isinstance(given, dict) and "model" in given:
            return given
    raise CommandError(f"{name} is neither a module that the script calls, nor an ExportedProgram, nor a function "
                       'that returns the arguments of ptdebug.export as a dict ({"model": ..., "args": ...})')


def _dynamic(given: list[str]) -> dict[str, dict[int, str]] | None:
    """`dynamic_shapes` from the options."""
    found: dict[str, dict[int, str]] = {}
    for text in given:
        place, _, title = text.partition("=")
        argument, _, dim = place.rpartition(":")
        if not argument or not dim.lstrip("-").isdigit():
            raise CommandError(f"--dynamic {text} is not ARGUMENT:DIM or ARGUMENT:DIM=NAME (x:0=batch)")
        found.setdefault(argument, {})[int(dim)] = title or f"{argument}.shape[{dim}]"
    return found or None
