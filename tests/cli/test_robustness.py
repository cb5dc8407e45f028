"""What can go wrong around a program: one clear message, exit code 2 before it starts, nothing lost after."""
from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Command = Callable[..., CompletedProcess[str]]
COMPILING = """
import torch
@torch.compile
def f(x):
    return torch.sin(x) + 1
print("sum", f(torch.zeros(8)).sum().item())
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A program that leaves a file, to see whether it ran."""
    (tmp_path / "program.py").write_text("open('ran', 'w').close()\nprint('out')\n")
    return "program.py"


def refused(done: CompletedProcess[str], tmp_path: Path, *hints: str) -> None:
    """Exit code 2, one line, and the program did not start."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("ptdebug: ") and done.stderr.count("\n") == 1
    assert all(hint in done.stderr for hint in hints), done.stderr
    assert not (tmp_path / "ran").exists()


def test_missing_script(ptdebug: Command, tmp_path: Path) -> None:
    refused(ptdebug("run", "nowhere.py"), tmp_path, "can't open file", "nowhere.py", "No such file")


def test_folder_without_main(ptdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(ptdebug("run", "empty"), tmp_path, "can't find '__main__' module")


@pytest.mark.parametrize("out", ["file/below", "/proc/nowhere"])
def test_unwritable_folder(ptdebug: Command, tmp_path: Path, program: str, out: str) -> None:
    (tmp_path / "file").write_text("")
    refused(ptdebug("run", "-o", out, program), tmp_path, "can't write recordings in", "--no-record")


def test_unwritable_summary(ptdebug: Command, tmp_path: Path, program: str) -> None:
    refused(ptdebug("run", "--json", "nowhere/summary.json", program), tmp_path, "can't write the summary")


@pytest.mark.parametrize("name, text, hint", [
    ("missing.toml", None, "can't read the overrides"), ("broken.toml", "= 1", "broken.toml"),
    ("broken.json", "{", "broken.json"), ("list.json", "[]", "a table"), ("number.toml", "'fuse:*' = 1", "an option"),
])
def test_bad_overrides(ptdebug: Command, tmp_path: Path, program: str, name: str, text: str | None, hint: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    refused(ptdebug("run", "--override", name, program), tmp_path, hint)


def test_unknown_setting(ptdebug: Command, tmp_path: Path, program: str) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ptdebug]\ninptus = 'meta'\n")
    refused(ptdebug("run", program), tmp_path, "tool.ptdebug.inptus (did you mean inputs?)")


def test_settings_of_pyproject_yield_to_flags(ptdebug: Command, tmp_path: Path, program: str) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ptdebug]\nname = 'project'\nquiet = true\n")
    assert ptdebug("run", program).stderr == ""
    assert (tmp_path / "recordings" / "project").is_dir()
    ptdebug("run", "--name", "flag", program)
    assert (tmp_path / "recordings" / "flag").is_dir()


def test_recording_lies_where_it_was_asked_for(ptdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os\nos.makedirs('elsewhere')\nos.chdir('elsewhere')\n")
    done = ptdebug("run", "-o", "here", "program.py")
    assert done.stderr.splitlines()[-1].startswith("  look closer: ptdebug ")
    assert (tmp_path / "here" / "program-1" / "recording.db").is_file()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_full_disk(ptdebug: Command, tmp_path: Path) -> None:
    """No file may grow beyond 150 kB: recording ends with one message, the program goes on."""
    (tmp_path / "program.py").write_text(COMPILING)
    limit = 150_000
    done = ptdebug("run", "program.py", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert (done.returncode, done.stdout) == (0, "sum 8.0\n"), done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("ptdebug:")]
    assert sum("recording stopped, the program continues" in line for line in lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    shown = ptdebug("show", "@").stdout
    assert "the recording stopped" in shown and "the process ended" not in shown and "killed" not in shown, shown


def test_disk_that_is_full_before_the_program_starts(ptdebug: Command, tmp_path: Path, program: str) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    done = ptdebug("run", program, preexec_fn=limit)
    refused(done, tmp_path, "can't write recordings in", "disk", "--no-record")
    assert not list((tmp_path / "recordings").iterdir())


def test_full_standard_output(tmp_path: Path, ptdebug: Command, program: str) -> None:
    ends = []
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    for command in ([sys.executable, program], [str(Path(sys.executable).parent / "ptdebug"), "run", "-q", program]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True,
                                  env=environment)
        ends.append((done.returncode, done.stderr))
    assert ends[1] == ends[0]
    assert ends[0][0] == 120


def test_unreadable_recording(ptdebug: Command, tmp_path: Path) -> None:
    broken = tmp_path / "recordings" / "broken"
    broken.mkdir(parents=True)
    (broken / "recording.db").write_bytes(b"not a database at all" * 100)
    for words in (("show", "broken"), ("breaks", str(broken)), ("show", "nowhere"), ("guards", "@~7")):
        done = ptdebug(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("ptdebug: ") and "Traceback" not in done.stderr


def test_the_workbench_without_a_terminal_says_so(ptdebug: Command) -> None:
    for words, selector in (((), "@"), (("tui", "@~1"), "@~1")):
        done = ptdebug(*words, stdin=subprocess.DEVNULL)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"ptdebug: the workbench needs a terminal; as text: ptdebug show {selector}\n"


def test_summary_goes_to_stderr_in_ten_lines(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sys, torch\n"
        + "".join(f"@torch.compile\ndef f{i}(x):\n    x = x + 1\n    print('{i}')\n    return x.sin()\n"
                  for i in range(12))
        + "".join(f"f{i}(torch.ones(2))\n" for i in range(12)))
    done = warm("run", "program.py")
    assert done.stdout == "".join(f"{i}\n" for i in range(12)), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) <= 10
    assert lines[-1].strip() == "look closer: ptdebug tui @"


def test_a_killed_program_leaves_a_readable_recording(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COMPILING + "import os\nos.kill(os.getpid(), 9)\n")
    assert warm("run", "program.py").returncode == -signal.SIGKILL
    document = json.loads(warm("show", "@", "--json").stdout)
    assert document["exit_code"] is None
    assert [c["status"] for c in document["compiles"]] == ["compiled"]
    assert "sin" in warm("show", "@:0/0:capture").stdout


@pytest.mark.parametrize("end, code", [("raise KeyboardInterrupt", -signal.SIGINT), ("raise SystemExit(130)", 130)])
def test_an_interrupted_program_ends_by_the_signal(ptdebug: Command, tmp_path: Path, end: str, code: int) -> None:
    (tmp_path / "program.py").write_text(f"import torch\n{end}\n")
    done = ptdebug("run", "program.py")
    assert done.returncode == code, done.stderr
    assert json.loads(ptdebug("show", "@", "--json").stdout)["exit_code"] == 130


def test_a_cache_that_cannot_be_written(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COMPILING)
    (tmp_path / "file").write_text("")
    places = {"PTDEBUG_CACHE_DIR": str(tmp_path / "file"), "PTDEBUG_HOME": str(tmp_path / "recordings")}
    done = warm("run", "program.py", env={**os.environ, **places})
    assert (done.returncode, done.stdout) == (0, "sum 8.0\n"), done.stderr
    assert "set PTDEBUG_CACHE_DIR to a folder that you can write to" in done.stderr
    assert "internal error" not in done.stderr


def test_without_a_compiler(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COMPILING)
    environment = {**os.environ, "PATH": "/nowhere", "CXX": "", "PTDEBUG_CACHE_DIR": str(tmp_path / "cache"),
                   "PTDEBUG_HOME": str(tmp_path / "recordings")}
    done = warm("run", "--json", "summary.json", "program.py", env=environment)
    assert (done.returncode, done.stdout) == (0, "sum 8.0\n"), done.stderr
    assert done.stderr.count("no C++ compiler found") == 1
    document = json.loads((tmp_path / "summary.json").read_text())
    assert any(a["stage"] == "kernels" and "no C++ compiler" in a["why"] for a in document["absent"])


OWN_MODULES = """
import sys
installed = [n for n, m in sys.modules.items() if "site-packages/" in str(getattr(m, "__file__", ""))
             and not n.startswith(("__editable__", "_distutils_hack", "typing_extensions"))]
assert not installed, installed
import torch
@torch.compile
def f(x):
    return torch.sin(x) + 1
f(torch.zeros(8))
sys.path.insert(0, "own")
import msgspec, zstandard, safetensors
print(msgspec.x, zstandard.x, safetensors.x, f(torch.zeros(8)).sum().item(), f(torch.zeros(2, 8)).sum().item())
"""


@pytest.mark.parametrize("how", ["beside it", "on the path later", "on PYTHONPATH", "used without ptdebug run"])
def test_modules_with_the_names_of_our_libraries(ptdebug: Command, tmp_path: Path, how: str) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for name in ("msgspec", "zstandard", "safetensors"):
        (own / f"{name}.py").write_text("x = 1\n")
    program = own / "program.py" if how in ("beside it", "used without ptdebug run") else tmp_path / "program.py"
    text = OWN_MODULES.replace('"own"', repr(str(own)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(own), os.environ.get("PYTHONPATH", "")))}
    if how == "used without ptdebug run":
        program.write_text(text.replace("import torch\n", "import torch, ptdebug\n").replace("torch.c", "ptdebug.c"))
        done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path)
    else:
        program.write_text(text)
        done = ptdebug("run", str(program), **({"env": environment} if how == "on PYTHONPATH" else {}))
    assert (done.returncode, done.stdout) == (0, "1 1 1 8.0 16.0\n"), done.stderr
    assert how == "used without ptdebug run" or "2 graphs" in done.stderr, done.stderr


@pytest.mark.parametrize("options", [(), ("--name", "y" * 300)], ids=["of the program", "as asked for"])
def test_long_names(ptdebug: Command, tmp_path: Path, options: tuple[str, ...]) -> None:
    name = "x" * 252 + ".py"
    (tmp_path / name).write_text("print('out')\n")
    for count in (1, 2):
        done = ptdebug("run", *options, name)
        assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
        assert len(list((tmp_path / "recordings").iterdir())) == count
    assert ptdebug("show", "@").returncode == 0
