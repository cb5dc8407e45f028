"""The command itself: help, unknown words, what it costs to start, what it imports."""
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from ptdebug.cli import main as front
from ptdebug.cli.commands import run as run_command
from ptdebug.cli.launch import Program

Command = Callable[..., CompletedProcess[str]]
FOLDER = Path(run_command.__file__).parent


def test_every_command_is_listed() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert files <= set(front.COMMANDS)


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__"))
def test_help_ends_with_an_example(name: str) -> None:
    module = front._load(name)
    text = front.command_parser(name, module).format_help()
    assert text.rstrip().splitlines()[-1].strip().startswith("ptdebug")
    assert module.__doc__ and module.__doc__.splitlines()[0] in text


def test_version_and_overview(ptdebug: Command) -> None:
    assert ptdebug("--version").stdout.startswith("ptdebug 0.")
    overview = ptdebug("--help").stdout
    assert all(name in overview for name in front.COMMANDS)


@pytest.mark.parametrize("words, hint", [
    (("rnu", "x.py"), "did you mean run?"), (("run", "--compille", "torch", "x.py"), "did you mean --compiler?"),
    (("ls", "--jsn"), "did you mean --json?"), (("nonsense-altogether",), "no command"),
    (("run",), "which program?"), (("run", "-m"), "argument expected for the -m option"),
    (("run", "--compiler", "gcc", "x.py"), "invalid choice"), (("run", "--inputs-limit", "much", "x.py"), "bytes"),
    (("run", "--target", "h100", "x.py"), "cuda:90"),
])
def test_wrong_usage(ptdebug: Command, tmp_path: Path, words: tuple[str, ...], hint: str) -> None:
    (tmp_path / "x.py").write_text("print('ran')")
    done = ptdebug(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ptdebug: ") and hint in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words, options, program", [
    ((), [], []),
    (("a.py", "-o", "x"), [], ["a.py", "-o", "x"]),
    (("-o", "x", "a.py", "--", "-q"), ["-o", "x"], ["a.py", "--", "-q"]),
    (("--out=x", "-q", "-m", "mod", "-q"), ["--out=x", "-q"], ["-m", "mod", "-q"]),
    (("-q", "--", "a.py"), ["-q"], ["a.py"]),
    (("--name", "-m", "a.py"), ["--name", "-m"], ["a.py"]),
    (("--no-record", "-"), ["--no-record"], ["-"]),
])
def test_where_options_end(words: tuple[str, ...], options: list[str], program: list[str]) -> None:
    parser = front.command_parser("run", run_command)
    assert run_command.split(parser, words) == (options, program)


@pytest.mark.parametrize("words, program", [
    (["a.py", "-x"], Program("script", "a.py", ("-x",))), (["-m", "mod", "1"], Program("module", "mod", ("1",))),
    (["-mmod", "1"], Program("module", "mod", ("1",))), (["-cpass"], Program("command", "pass")),
])
def test_programs(words: list[str], program: Program) -> None:
    assert run_command.parse_program(words) == program


def test_looking_imports_neither_torch_nor_textual(tmp_path: Path) -> None:
    code = """
import sys
from ptdebug.cli.main import main
main(sys.argv[1:])
assert not {"torch", "textual", "numpy", "sympy"} & set(sys.modules), sys.argv
"""
    looking = (["ls"], ["ls", "--json"], ["show", "@"], ["breaks"], ["decisions"], ["show", "--help"])
    missing = (["replay", "none-of-that-name"], ["replay", "--time", "none-of-that-name"])
    for words in looking + missing:
        done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True)
        assert "AssertionError" not in done.stderr, done.stderr


def test_starting_is_cheap() -> None:
    """The front door loads three modules of ours, with the version's, and none of the libraries that take long."""
    code = "import sys; from ptdebug.cli.main import main; main(['--version']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    own = {name for name in loaded if name.startswith("ptdebug.")}
    assert own == {"ptdebug.cli", "ptdebug.cli.main", "ptdebug.cli.errors", "ptdebug.version"}
    assert not {"torch", "numpy", "sympy", "textual", "rich", "msgspec", "sqlite3", "asyncio", "inspect"} & set(loaded)
