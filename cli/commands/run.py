"""Run a program as `python` would, and record what the compiler does with it.

Options come before the program; everything after it is passed to the program. `torch.compile` is handled by ptdebug's
compiler (by PyTorch's own with --compiler torch). ptdebug prints a summary to stderr after the program ends.
"""
from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from ..errors import CommandError
from ..launch import Program, execute
from ..session import COMPILERS, INPUT_KINDS

EXAMPLE = "ptdebug run --name first examples/gpt_generate.py"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, which come before the program."""
    parser.usage = "ptdebug run [options] (SCRIPT | -m MODULE | -c COMMAND) [ARGS...]"
    add = parser.add_argument
    add("-o", "--out", metavar="DIR", help="where recordings go (default .ptdebug, or $PTDEBUG_HOME)")
    add("--name", help="the recording's name (default: the program's, numbered)")
    add("--compiler", choices=COMPILERS,
        help="what handles torch.compile: ptdebug (default), stock PyTorch (recorded too), or nothing")
    add("--compile-all", action="store_true", default=None,
        help="also compile the outermost nn.Module calls of a program that never calls torch.compile")
    add("--inputs", choices=INPUT_KINDS, help="which graph inputs are saved for replay (default first)")
    add("--inputs-limit", metavar="SIZE", help="limit on saved inputs, for example 64M or 2G (default 256M)")
    add("--override", metavar="FILE", help="decisions to force: TOML or JSON, decision id (or pattern) = option")
    add("--target", metavar="cuda:CC", help="also generate code for this device, which need not be present (cuda:90)")
    add("--check-calls", action="store_true", default=None,
        help="compare each call of what is compiled with eager; the first that differs ends the program (code 70)")
    add("--time-calls", action="store_true", default=None,
        help="time the fifth call of what is compiled beside eager (what it changes, it changes again), by GPU kernel")
    add("--profile", metavar="SECONDS", type=float,
        help="profile what compiled graphs run, for so long from their first call on (`ptdebug trace`)")
    add("--steps", metavar="F/C,...", help="record each step of the tracer in these compilations (or `all`): the stack,"
        " the variables, nodes and guards, to be looked at forwards and backwards (stage `steps`)")
    add("--keep-output", metavar="N", type=int, help="keep the last N lines that the program prints, in the recording")
    add("--tui", action="store_true", help="open the workbench beside the program; its output is printed afterwards")
    add("--live", action="store_true", help="write the counts of calls while the program runs, for `tui --follow`")
    add("--no-record", action="store_true", help="run without recording")
    add("--json", metavar="FILE", help="write the summary there")
    add("-q", "--quiet", action="store_true", default=None, help="no summary")


def split(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the command line into ptdebug's options and the program with its arguments.

    The program starts at the first word that is not an option, at `-m MODULE` or `-c COMMAND` (also -mMODULE), or after
    `--`.
    """
    takes_value = {o for action in parser._actions if action.nargs != 0 for o in action.option_strings}
    position = 0
    while position < len(words):
        word = words[position]
        if word == "--":
            return list(words[:position]), list(words[position + 1 :])
        if word[:2] in ("-m", "-c") or not word.startswith("-") or word == "-":
            break
        position += 2 if word in takes_value else 1
    return list(words[:position]), list(words[position:])


def run(arguments: argparse.Namespace) -> int | Callable[[], NoReturn]:
    """Prepare everything that can fail, then return the call that runs the program."""
    from ..recorded_run import prepare  # after the arguments have been read: this imports the recorder

    program = parse_program(arguments.program)
    program.check()
    if arguments.tui:
        return _watched(arguments)
    finished = prepare(program, arguments)
    return partial(execute, program, finished)


def _watched(arguments: argparse.Namespace) -> int:
    """Run the program in a process of its own, and the workbench in this one."""
    from ...artifacts.home import recordings_home
    from ..settings import gather
    from ..watched_run import check_terminal, watch

    if arguments.no_record:
        raise CommandError("--tui shows a recording: leave --no-record out")
    check_terminal()
    from ...tui.app import run as open_workbench

    options = [word for word in arguments.options if word != "--tui"]
    home = recordings_home(gather(arguments)["out"])
    return watch([*options, "--", *arguments.program], home, partial(open_workbench, follow=True))


def parse_program(words: Sequence[str]) -> Program:
    """The program from its words on the command line."""
    if not words:
        raise CommandError("which program? Give a script, `-m MODULE` or `-c COMMAND`\nsee: ptdebug run --help")
    first, rest = words[0], words[1:]
    kinds = {"-m": "module", "-c": "command"}
    if first[:2] not in kinds:
        return Program("script", _installed_script(first) or first, tuple(rest))
    kind = kinds[first[:2]]
    if len(first) > 2:
        return Program(kind, first[2:], tuple(rest))
    if not rest:
        raise CommandError(f"argument expected for the {first} option\nsee: ptdebug run --help")
    return Program(kind, rest[0], tuple(rest[1:]))


def _installed_script(name: str) -> str | None:
    """Where a command is that is a Python script (`torchrun`), unless a file here has that name: beside this Python,
    whose environment need not be activated, or in PATH."""
    if os.path.dirname(name) or os.path.exists(name):
        return None
    found = shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name)
    if found is None:
        return None
    try:
        with open(found, "rb") as file:
            first = file.readline(256)
    except OSError:
        return None
    return found if first.startswith(b"#!") and b"python" in first else None
