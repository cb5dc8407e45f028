"""Finds the command, loads only its module, and turns errors meant for people into a message and an exit code.

To add a command: a module in `commands/`, and a line in COMMANDS.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from types import ModuleType
from typing import NoReturn

from ..version import __version__
from .errors import CommandError

COMMANDS = {
    "run": "run a program as python would, and record what the compiler does",
    "tui": "open the workbench",
    "serve": "open the workbench in a browser, on localhost only",
    "import": "make a recording of a trace that PyTorch wrote (TORCH_TRACE)",
    "ls": "list the recordings, newest first",
    "show": "print one artifact, or the summary of a recording",
    "breaks": "the graph breaks: where, why, what to change",
    "guards": "the guards: what each compilation depends on",
    "recompiles": "the recompilations: which guard failed",
    "fusions": "which operations were fused, which were not, and why",
    "kernels": "the kernels and library calls",
    "cudagraphs": "the CUDA graphs: captured or not, why, copies and captures made again",
    "decisions": "every decision of the compiler",
    "why": "the decision about one subject, its options and its reason",
    "flip": "take another option of one decision: what changes in values, time, kernels",
    "search": "find text in every stage of one or more recordings",
    "diff": "what differs between two recordings, compilations or stages",
    "ranks": "the ranks of a distributed program, and where they first differ",
    "replay": "run the recorded graphs again, stage by stage, against eager",
    "bisect": "find the decisions to blame for a wrong, crashing or slow result",
    "repro": "write anything recorded as a script that runs by itself",
    "minify": "make a failing compilation or script small, and write it as a script",
    "trace": "write the timeline of a recording in Chrome's trace format (Perfetto)",
    "report": "write a recording as one HTML file",
    "pack": "write a recording as one file, to hand over",
    "unpack": "make a recording of such a file",
    "check": "hold a recording against limits: so many breaks, recompilations, kernels",
    "export": "compile a model to a file that runs without its Python",
    "doctor": "what works on this machine, and how to fix what does not",
}


Outcome = int | Callable[[], NoReturn]
"""What a command returns: an exit code, or (only `run`) the call that runs a program and never returns."""


class Parser(argparse.ArgumentParser):
    """An argument parser that suggests the nearest option for one that does not exist."""

    def error(self, message: str) -> NoReturn:
        """Raise a CommandError with the message, the nearest option, and a pointer to the help."""
        head, _, unknown = message.partition("unrecognized arguments: ")
        hint = ""
        if unknown and not head:
            known = [option for action in self._actions for option in action.option_strings]
            hint = did_you_mean(unknown.split()[0].partition("=")[0], known)
        raise CommandError(f"{message}{hint}\nsee: {self.prog} --help")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """' (did you mean X?)' for the nearest known word, '' if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def main(argv: Sequence[str] | None = None) -> int:
    """The command `ptdebug`. Returns the exit code; under `run` the program itself ends the process."""
    outcome = _outcome(list(sys.argv[1:] if argv is None else argv))
    # The program starts here, outside of the error handling above: its errors are its own.
    return outcome if isinstance(outcome, int) else outcome()


def _outcome(argv: list[str]) -> Outcome:
    try:
        return _invoke(argv)
    except BrokenPipeError:  # `ptdebug ls | head`
        sys.stderr.close()
        return 141
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if not isinstance(code, int) or not _is_ptdebugs(error):
            raise
        from ..artifacts.listing import printable_lines  # parts of the message may come from a recording

        print(printable_lines(f"ptdebug: {error}"), file=sys.stderr)
        return code


def _is_ptdebugs(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] == __name__.partition(".")[0]


def _invoke(argv: list[str]) -> Outcome:
    if not argv:
        argv = ["tui"]
    name, rest = argv[0], argv[1:]
    if name in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if name in ("-V", "--version"):
        print(f"ptdebug {__version__}")
        return 0
    if name not in COMMANDS:
        raise CommandError(f"there is no command {name!r}{did_you_mean(name, COMMANDS)}\nsee: ptdebug --help")
    module = _load(name)
    parser = command_parser(name, module)
    program: list[str] = []
    if hasattr(module, "split"):  # options end at the first positional; the rest belongs to the program
        rest, program = module.split(parser, rest)
    arguments = parser.parse_args(rest)
    arguments.options, arguments.program = rest, program
    outcome: Outcome = module.run(arguments)
    return outcome


def _load(name: str) -> ModuleType:
    try:
        return import_module(f".commands.{name}", __package__)
    except ModuleNotFoundError as error:
        if error.name != f"{__package__}.commands.{name}":
            raise
        raise CommandError(f"the command {name!r} is not part of this version ({__version__})") from None


def command_parser(name: str, module: ModuleType) -> Parser:
    """The parser of a command, from its module: docstring, arguments, and the example that ends its help."""
    parser = Parser(
        prog=f"ptdebug {name}", description=module.__doc__, allow_abbrev=False,
        epilog=f"example:\n  {module.EXAMPLE}", formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return parser


def _overview() -> str:
    lines = ["usage: ptdebug COMMAND [arguments]     (without a command: the workbench)", "", "commands:"]
    lines += [f"  {name:12}{text}" for name, text in COMMANDS.items()]
    lines += ["", "`ptdebug COMMAND --help` has the details. Options: --version, --help.", "",
              "example:", "  ptdebug run train.py --epochs 1"]
    return "\n".join(lines)
