"""A program under `ptdebug run` against the same program under `python`: output, errors and how it ends."""
from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

COMMAND = [str(Path(sys.executable).parent / "ptdebug"), "run", "-q"]

FACTS = """
import sys, os, threading, inspect, warnings
facts = {name: globals().get(name, "absent") for name in
         ("__name__", "__file__", "__doc__", "__package__", "__cached__", "__annotations__")}
facts["spec"] = __spec__ and (__spec__.name, __spec__.origin)
facts["loader"] = getattr(__loader__, "__name__", None) or type(__loader__).__name__
facts["loader_path"] = getattr(__loader__, "path", None) or getattr(__loader__, "archive", None)
facts["builtins"] = type(__builtins__).__name__
facts["main_is_globals"] = sys.modules["__main__"].__dict__ is globals()
facts["names"] = sorted(globals())
facts["argv"], facts["orig_argv"], facts["path"] = sys.argv, sys.orig_argv[1:], sys.path
facts["cwd"], facts["code"] = os.getcwd(), (lambda: 0).__code__.co_filename
facts["threads"], facts["trace"] = threading.active_count(), (sys.gettrace(), sys.getprofile())
facts["filters"], facts["flags"] = warnings.filters, sys.flags
facts["handlers"] = [str(__import__("signal").getsignal(n)) for n in (2, 13, 15)]
facts["streams"] = [s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)]
facts["environment"] = {k: v for k, v in os.environ.items() if "PTDEBUG" not in k and k != "_"}
for name, value in sorted(facts.items()):
    print(name, value)
"""


@dataclass(frozen=True)
class Probe:
    """A program: its files, the words after `python`, and what it gets on stdin."""

    name: str
    files: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ("script.py",)
    stdin: str = ""
    flags: tuple[str, ...] = ()  # of the interpreter


def script(name: str, text: str, *arguments: str, **others: object) -> Probe:
    """A probe of one file."""
    return Probe(name, {"script.py": text}, ("script.py", *arguments), **others)  # type: ignore[arg-type]


def room(name: str) -> Probe:
    """A package beside the script that is called as one of our rooms."""
    return Probe(f"a package called {name}", {f"{name}/__init__.py": f"who = 'the {name} of the program'",
                                             "script.py": f"import {name}; print({name}.who, {name}.__file__)"})


PROBES = [
    script("facts of a script", FACTS),
    script("facts of a script with arguments", FACTS, "-x", "--json", "f", "--", "-m", "a b"),
    Probe("facts of a script in a folder", {"sub/script.py": FACTS}, ("sub/script.py",)),
    Probe("facts of a module", {"pack/__init__.py": "print('init', __name__)", "pack/mod.py": FACTS},
          ("-m", "pack.mod", "-v", "--out", "x")),
    Probe("facts of a package", {"pack/__init__.py": "", "pack/__main__.py": FACTS}, ("-m", "pack", "a")),
    Probe("facts of a folder", {"pack/__main__.py": FACTS}, ("pack", "a")),
    Probe("facts of a zip file", {"program.zip": FACTS}, ("program.zip", "a")),
    Probe("facts of a command", {}, ("-c", FACTS, "a", "-b")),
    Probe("facts of stdin", {}, ("-", "a"), stdin=FACTS),
    script("facts with -P", FACTS, flags=("-P",)),
    script("facts with -I", FACTS, flags=("-I",)),
    script("facts with -O and -W", FACTS + "\nassert False\nimport warnings; warnings.warn('w', UserWarning)",
           flags=("-O", "-W", "ignore")),
    Probe("facts of a module with -P", {"pack/__init__.py": "", "pack/mod.py": FACTS}, ("-m", "pack.mod"),
          flags=("-P",)),
    Probe("a link to the script", {"sub/script.py": FACTS, "link.py": "-> sub/script.py"}, ("link.py",)),
    script("return", "print('done')"),
    script("exit without a code", "import sys; sys.exit()"),
    script("exit None", "raise SystemExit(None)"),
    script("exit 3", "import sys; print('out'); sys.exit(3)"),
    script("exit 256", "import sys; sys.exit(256)"),
    script("exit -1", "import sys; sys.exit(-1)"),
    script("exit True", "import sys; sys.exit(True)"),
    script("exit with a message", "import sys; sys.exit('what went wrong')"),
    script("exit with an object", "import sys; sys.exit({'a': 1})"),
    script("exit in a function with finally", "import sys\ndef f():\n  try: sys.exit(4)\n  finally: print('f')\nf()"),
    script("quit", "quit(5)"),
    script("an exception", "def f(x):\n    return 1 / x\n\nf(0)\n"),
    script("an exception with a cause", "try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('v') from e\n"),
    script("an exception with a note", "e = ValueError('v'); e.add_note('look'); raise e"),
    script("an exception group", "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])"),
    script("an exception with an exit_code", "class E(Exception): exit_code = 7\nraise E('x')"),
    script("a broken pipe", "raise BrokenPipeError(32, 'gone')"),
    script("recursion", "import sys\nsys.setrecursionlimit(200)\ndef f(): f()\ntry: f()\n"
           "except RecursionError as e: print(e)"),
    script("a syntax error", "x = (1,\ny = 2\n"),
    script("a tab error", "if 1:\n\tx = 1\n        y = 2\n"),
    script("a hook of its own", "import sys\nsys.excepthook = lambda t, v, tb: print('hook', t, v, tb.tb_lineno,"
           " tb.tb_frame.f_code.co_name)\nraise ValueError('v')"),
    script("a hook that fails", "import sys\ndef h(*a): raise TypeError('in the hook')\nsys.excepthook = h\n1/0"),
    script("the last exception", "import atexit, sys, traceback\natexit.register(lambda: "
           "(traceback.print_tb(sys.last_traceback), print(sys.last_type, sys.last_value)))\n1/0"),
    script("the hook is restored", "import atexit, sys\natexit.register(lambda: print(sys.excepthook is "
           "sys.__excepthook__))\n1/0"),
    script("interrupted", "raise KeyboardInterrupt"),
    script("interrupted by a signal", "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"),
    script("terminated", "import os, signal\nprint('x', flush=True)\nos.kill(os.getpid(), signal.SIGTERM)"),
    script("killed", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"),
    script("aborted", "import os; os.abort()"),
    script("os._exit", "import os; os._exit(6)"),
    script("exit in a thread", "import sys, threading\nt = threading.Thread(target=sys.exit, args=(3,))\nt.start(); "
           "t.join(); print('on')"),
    script("an exception in a thread", "import threading\ndef work(): 1/0\n"
           "t = threading.Thread(target=work, name='w')\nt.start(); t.join()"),
    script("a thread that outlives the script", "import threading, time\ndef work():\n    time.sleep(0.2)\n"
           "    print('thread', sorted(globals()))\nthreading.Thread(target=work).start()\nprint('end')"),
    script("atexit", "import atexit, sys\natexit.register(lambda: print('bye', sorted(globals()), "
           "sys.modules['__main__'].__dict__ is globals()))\nprint('end')"),
    script("atexit after exit", "import atexit, sys\natexit.register(lambda: print(sorted(globals())))\nsys.exit(2)"),
    script("atexit after an exception", "import atexit\natexit.register(lambda: print(sorted(globals())))\n1/0"),
    Probe("atexit of a module", {"mod.py": "import atexit\natexit.register(lambda: print(sorted(globals())))\n"},
          ("-m", "mod")),
    Probe("an exception in a module", {"mod.py": "def f():\n    1/0\nf()\n"}, ("-m", "mod")),
    Probe("an exception in a folder", {"pack/__main__.py": "1/0\n"}, ("pack",)),
    Probe("an exception in a command", {}, ("-c", "def f(): 1/0\nf()")),
    Probe("no such module", {}, ("-m", "nowhere")),
    Probe("no such submodule", {"pack/__init__.py": ""}, ("-m", "pack.nowhere")),
    Probe("a package without __main__", {"pack/__init__.py": ""}, ("-m", "pack")),
    Probe("a module whose package fails", {"pack/__init__.py": "1/0", "pack/mod.py": ""}, ("-m", "pack.mod")),
    script("stdin", "import sys\nprint(input('? '), sys.stdin.read())", stdin="one\ntwo\nthree"),
    script("binary stdin", "import sys\nprint(len(sys.stdin.buffer.read()))", stdin="x" * 100_000),
    script("pickle of its own class", "import pickle\nclass C: pass\nprint(pickle.loads(pickle.dumps(C())).__class__)"),
    script("source of its own function", "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f))"),
    script("an encoding cookie", "# -*- coding: utf-8 -*-\nprint('\u00e9\u20ac')"),
    script("future imports", "def f(x: undefined_name): pass\nprint(f.__annotations__)"),
    script("a deprecation warning", "import warnings\nwarnings.warn('old', DeprecationWarning)"),
    script("a warning of the compiler", "x = 1\nprint(x is 1)"),
    script("chdir and a relative import", "import os, sys\nos.makedirs('d'); os.chdir('d')\nimport beside\n"
           "print(beside.__file__)\nopen('left', 'w').close()\nprint(os.listdir('.'))"),
    script("closed stdout", "import sys; print('x'); sys.stdout.close()"),
    script("replaced stderr", "import io, sys; sys.stderr = io.StringIO(); print('x'); 1/0"),
    script("fork", "import os, sys\npid = os.fork()\nif pid == 0:\n    print('child', flush=True); sys.exit(7)\n"
           "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"),
    script("a child with subprocess", "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', "
           "'import sys; print(sys.argv, sys.path[0])', 'a'], capture_output=True, text=True))"),
    *[script(f"multiprocessing, {method}", f"""
import multiprocessing, sys
class Task:
    def __call__(self, x):
        return x * x, __name__, sys.argv
if __name__ == "__main__":
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        print(pool.map(Task(), range(4)))
""", "argument") for method in ("fork", "spawn", "forkserver")],
    Probe("multiprocessing of a module, spawn", {"pack/__init__.py": "", "pack/mod.py": """
import multiprocessing
def work(x): return x + 1, __name__
if __name__ == "__main__":
    p = multiprocessing.get_context("spawn").Process(target=print, args=("child",))
    p.start(); p.join(); print(p.exitcode)
    with multiprocessing.get_context("spawn").Pool(1) as pool: print(pool.map(work, [1]))
"""}, ("-m", "pack.mod")),
    script("a process pool of futures", """
from concurrent.futures import ProcessPoolExecutor
def work(x): return x + 1
if __name__ == "__main__":
    with ProcessPoolExecutor(1) as pool: print(list(pool.map(work, [1, 2])))
"""),
    *[room(name) for name in ("engine", "operators", "replay", "cli", "tracer", "artifacts", "tui")],
    *[Probe(f"a module beside it called {name}",
            {"script.py": f"import {name}; print({name}.x)", f"{name}.py": "x = 1"})
      for name in ("records", "session", "launch", "queue", "email", "argparse", "sqlite3", "msgspec", "bytecode")],
    Probe("a folder beside it that is no package", {"email/data.txt": "", "script.py": "import email; "
                                                    "print(email.__file__)"}),
    Probe("a module beside it that python has loaded before", {"script.py": "import os, codecs; print(os.sep)",
                                                               "os.py": "1/0", "codecs.py": "1/0"}),
]


def prepare(folder: Path, probe: Probe) -> None:
    """Write the files of a probe (and `beside.py`, which one of them imports)."""
    for name, text in {"beside.py": "", **probe.files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text[3:])
        elif name.endswith(".zip"):
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("__main__.py", text)
        else:
            path.write_text(text, encoding="utf-8")


def start(command: list[str], folder: Path, probe: Probe) -> subprocess.CompletedProcess[str]:
    """Run a command where the probe's files lie."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PTDEBUG", "PYTHON"))}
    environment["PTDEBUG_HOME"] = str(folder.parent / "recordings")
    return subprocess.run(command, cwd=folder, env=environment, input=probe.stdin, capture_output=True, text=True,
                          timeout=60, check=False)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_program_cannot_tell(probe: Probe, tmp_path: Path) -> None:
    ends = []
    for command in ([sys.executable, *probe.flags], [sys.executable, *probe.flags, *COMMAND]):
        folder = tmp_path / "work"
        folder.mkdir()
        prepare(folder, probe)
        end = start([*command, *probe.words], folder, probe)
        left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        ends.append((end.returncode, end.stdout, end.stderr, left))
        folder.rename(tmp_path / f"done{len(ends)}")
    assert ends[1] == ends[0]
