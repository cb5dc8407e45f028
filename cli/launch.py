"""Runs a program as `python` would: in the real `__main__`, with its own `sys.argv`, path, ends and tracebacks.

The module `__main__` of this process is emptied and filled again, so that what the program leaves in it (for pickle,
threads, atexit) is where it is expected. Whatever ends the program propagates through ptdebug's frames to the
interpreter, which then does what it always does: exit codes, finalization, dying by SIGINT. Only `sys.excepthook` is
replaced for that moment, to remove ptdebug's frames from the traceback.
"""
from __future__ import annotations

import contextlib
import io
import marshal
import os
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from importlib.util import MAGIC_NUMBER
from types import CodeType, TracebackType
from typing import Any, NoReturn

from .errors import CommandError

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOMS = ("<ptdebug ", *(os.path.join(PACKAGE, room, "") for room in (
    "artifacts", "cli", "engine", "operators", "replay", "tracer", "tui")))


@dataclass(frozen=True)
class Program:
    """What to run: `kind` is script (a file, folder, zip or `-` for stdin), module (-m) or command (-c)."""

    kind: str
    target: str
    arguments: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words after `python` on a command line."""
        flag = {"module": ("-m",), "command": ("-c",)}.get(self.kind, ())
        return (*flag, self.target, *self.arguments)

    @property
    def label(self) -> str:
        """A short name, after which the recording is named."""
        if self.kind == "command":
            return "command"
        if self.kind == "module":
            return self.target.rpartition(".")[2]
        path = os.path.realpath(self.target)
        return "stdin" if self.target == "-" else os.path.splitext(os.path.basename(path))[0]

    def check(self) -> None:
        """Raise CommandError where `python` could not even open the program."""
        if self.kind != "script" or self.target == "-":
            return
        try:
            with open(self.target, "rb"):
                return
        except IsADirectoryError:
            if not any(os.path.isfile(os.path.join(self.target, main)) for main in ("__main__.py", "__main__.pyc")):
                raise CommandError(f"can't find '__main__' module in '{os.path.abspath(self.target)}'") from None
        except OSError as error:
            raise CommandError(
                f"can't open file '{os.path.abspath(self.target)}': [Errno {error.errno}] {error.strerror}"
            ) from None


def execute(program: Program, ended: Callable[[int], None]) -> NoReturn:
    """Run `program` in `__main__`; `ended` gets the exit code. Always ends by an exception, for the interpreter."""
    namespace = _fresh_main()
    _command_line(program)
    try:
        _body(program, namespace)()
    except SystemExit as end:
        ended(_exit_code(end.code))
        raise
    except BaseException as error:
        ended(130 if type(error) is KeyboardInterrupt else 1)
        _hold_excepthook(error, _forget_file if program.kind == "script" else None)
        raise
    _forget_file()
    ended(0)
    raise SystemExit(0)


def stay_interrupted() -> None:
    """After an uncaught KeyboardInterrupt, let the interpreter die by SIGINT as it was about to.

    It forgets to do so once any source text is run (`unhandled_keyboard_interrupt` in CPython's Python/pythonrun.c),
    which each import of a dataclass does.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


def _fresh_main() -> dict[str, Any]:
    """`__main__` as the interpreter makes it, before it knows what it will run."""
    module = sys.modules["__main__"]
    namespace = module.__dict__
    builtins = sys.modules["builtins"]
    namespace.clear()
    namespace.update(
        __name__="__main__", __doc__=None, __package__=None, __loader__=BuiltinImporter, __spec__=None,
        __annotations__={}, __builtins__=builtins,
    )
    return namespace


def _command_line(program: Program) -> None:
    """Set sys.argv and sys.orig_argv, in place, to what `python` would have."""
    interpreter = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv)] or [sys.executable]
    if len(interpreter) > 1 and interpreter[-1] == "-m":
        del interpreter[-1]
    sys.orig_argv[:] = [*interpreter, *program.words]
    first = program.target if program.kind == "script" else f"-{program.kind[0]}"
    sys.argv[:] = [first, *program.arguments]


def _set_first_path(entry: str) -> None:
    """ptdebug's first entry of sys.path becomes the program's; with -P or -I there is neither."""
    if not sys.flags.safe_path:
        sys.path[0:1] = [entry]
        _forget_shadowed(entry or os.getcwd())


def _forget_shadowed(folder: str) -> None:
    """Let the program import its own `queue.py` or `msgspec/`, although ptdebug has imported another by that name.

    ptdebug's modules keep what they imported. Frozen and built-in modules are loaded before any program and stay.
    """
    try:
        beside = set(os.listdir(folder))
    except OSError:
        return
    own = __name__.partition(".")[0]
    shadowed = {
        name for name, module in list(sys.modules.items())
        if (f"{name}.py" in beside or (name in beside and os.path.isfile(os.path.join(folder, name, "__init__.py"))))
        and name not in ("__main__", "encodings", own)
        and getattr(getattr(module, "__spec__", None), "origin", None) not in ("built-in", "frozen")
    }
    for name in list(sys.modules):
        if name.partition(".")[0] in shadowed:
            del sys.modules[name]


def _body(program: Program, namespace: dict[str, Any]) -> Callable[[], None]:
    """The call that runs the program, with sys.path ready for it."""
    if program.kind == "module":
        _set_first_path(os.getcwd())
        return lambda: _run_module(program.target, True)
    if program.kind == "command" or program.target == "-":
        _set_first_path("")
        name = "<string>" if program.kind == "command" else "<stdin>"
        if name == "<stdin>":
            namespace.update(__file__=name, __cached__=None)
        return lambda: exec(_compile(program.target if name == "<string>" else sys.stdin.read(), name), namespace)
    path = os.path.abspath(program.target)
    if os.path.isdir(path) or _is_archive(path):
        # Here `python` inserts the path whatever the flags say, and -P only keeps the working folder away.
        sys.path[0 : 0 if sys.flags.safe_path else 1] = [path]
        _forget_shadowed(path)
        return lambda: _run_module("__main__", False)
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    return lambda: _run_file(path, namespace)


def _run_module(name: str, alter_argv: bool) -> None:
    # The very function that `python -m` calls: the same namespace, messages and traceback.
    runpy._run_module_as_main(name, alter_argv)  # type: ignore[attr-defined]


def _run_file(path: str, namespace: dict[str, Any]) -> None:
    with io.open_code(path) as file:
        source = file.read()
    compiled = source[:4] == MAGIC_NUMBER
    loader = (SourcelessFileLoader if compiled else SourceFileLoader)("__main__", path)
    namespace.update(__file__=path, __cached__=None, __loader__=loader)
    exec(marshal.loads(source[16:]) if compiled else _compile(source, path), namespace)


def _compile(source: str | bytes, name: str) -> CodeType:
    code: CodeType = compile(source, name, "exec", dont_inherit=True)
    return code


def _is_archive(path: str) -> bool:
    """Whether the import system finds a `__main__` inside `path` (a zip file)."""
    from pkgutil import get_importer

    return get_importer(path) is not None and type(get_importer(path)).__name__ != "FileFinder"


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _forget_file() -> None:
    """The interpreter removes these two once a script has run, before atexit handlers."""
    namespace = sys.modules["__main__"].__dict__
    if namespace.get("__spec__") is None:
        namespace.pop("__file__", None)
        namespace.pop("__cached__", None)


def _hold_excepthook(error: BaseException, after: Callable[[], None] | None) -> None:
    """Let the interpreter report `error` through the current hook, without ptdebug's frames in the traceback."""
    hook = sys.excepthook
    program_part = _without_our_frames(error.__traceback__)
    _clean_chain(error)

    def report(kind: type[BaseException], value: BaseException, _traceback: TracebackType | None) -> None:
        sys.excepthook = hook
        sys.last_traceback = program_part
        value.__traceback__ = program_part
        try:
            hook(kind, value, program_part)
        except Exception as failed:  # the interpreter's words, which would show this frame
            sys.stderr.write("Error in sys.excepthook:\n")
            failed.__traceback__ = _without_our_frames(failed.__traceback__)
            sys.__excepthook__(type(failed), failed, failed.__traceback__)
            sys.stderr.write("\nOriginal exception was:\n")
            sys.__excepthook__(kind, value, program_part)
        finally:
            if after is not None:
                after()

    sys.excepthook = report


def _without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of ptdebug: those above the program, and those between its functions."""
    kept = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(ROOMS):
            kept.append(traceback)
        traceback = traceback.tb_next
    below: TracebackType | None = None
    for entry in reversed(kept):
        below = TracebackType(below, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return below


def _clean_chain(error: BaseException) -> None:
    """Remove ptdebug's frames from chained exceptions, too."""
    seen: set[int] = set()
    waiting = [error.__cause__, error.__context__]
    while waiting:
        earlier = waiting.pop()
        if earlier is not None and id(earlier) not in seen:
            seen.add(id(earlier))
            earlier.__traceback__ = _without_our_frames(earlier.__traceback__)
            waiting += [earlier.__cause__, earlier.__context__]
