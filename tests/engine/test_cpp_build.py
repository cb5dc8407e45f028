"""Building: the cache, damaged entries, a missing compiler, one OpenMP runtime, how kernels are called."""
from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from ptdebug.engine.kernels import sgemm
from ptdebug.engine.toolchain import cpp_build as building
from ptdebug.engine.toolchain.cpp_build import BuildFailed, CompilerMissing, build, disassemble, said, vector_report

from .cpp_checking import built


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    return tmp_path / "cpp"


def program():
    made = built(lambda x: x * 2 + 1, torch.randn(100))
    return made.source.text, [s.name for s in made.source.signatures]


def run(function):
    x, y = torch.randn(100), torch.empty(100)
    assert function(x.data_ptr(), y.data_ptr()) == 0
    assert torch.equal(y, x * 2 + 1)


def test_the_second_build_comes_from_the_cache(cache):
    text, names = program()
    assert build(text, names).cached  # `program` built it
    other = build(text + "// another\n", names)
    assert not other.cached and other.seconds > 0 and other.command[-1]
    assert build(text + "// another\n", names).cached
    run(other.functions[names[0]])
    assert {p.suffix for p in cache.iterdir()} == {".so", ".cpp", ".log"}  # no leftovers of a build


def test_a_cache_that_only_others_may_write_to_is_used(cache, monkeypatch):
    from ptdebug.engine.graph_cache import disk

    text, names = program()
    disk.write("a", b"content")

    def refused(*_):
        raise PermissionError

    monkeypatch.setattr(os, "utime", refused)
    assert build(text, names).cached and disk.read("a") == b"content"


@pytest.mark.parametrize("damage", [b"", b"\x7fELF and then nothing", None])
def test_a_damaged_entry_is_built_again(cache, damage):
    text, names = program()
    path = build(text, names).path
    copy = path.read_bytes()
    path.unlink()  # the loaded library keeps its own file
    path.write_bytes(copy[: len(copy) // 2] if damage is None else damage)
    again = build(text, names)
    assert not again.cached
    run(again.functions[names[0]])


def test_builds_of_one_source_at_the_same_time_do_not_disturb_each_other(cache):
    text, names = program()
    text += "// at once\n"
    with ThreadPoolExecutor(4) as pool:
        for library in pool.map(lambda _: build(text, names), range(4)):
            run(library.functions[names[0]])


def test_a_library_is_the_same_whoever_builds_it(cache):
    """Its entry is a library and its checksum, which two processes may write at the same time."""
    text, names = program()
    path = build(text, names).path
    before = path.read_bytes()
    path.unlink()
    assert not build(text, names).cached and path.read_bytes() == before
    assert str(path.with_suffix(".cpp")).encode() in before  # where debuggers and profilers look for the source


def test_a_refused_source_says_what_the_compiler_said(cache):
    with pytest.raises(BuildFailed, match="nonsense") as caught:
        build("nonsense;", [])
    assert caught.value.command[0].endswith(("g++", "c++"))


def test_a_refused_source_says_so_each_time_that_it_is_wanted(cache):
    pending = building.Building("nonsense;", [])
    for _ in range(2):
        with pytest.raises(BuildFailed, match="nonsense"):
            pending.wait()


def test_without_a_compiler_the_message_says_how_to_get_one(cache, monkeypatch):
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.delenv("CXX", raising=False)
    building.find_compiler.cache_clear()
    try:
        with pytest.raises(CompilerMissing, match="install"):
            build("// nothing", [])
    finally:
        building.find_compiler.cache_clear()


def test_the_cache_stays_below_its_limit(cache, monkeypatch):
    text, names = program()
    first = build(text + "// 1\n", names).path
    os.utime(first, (1, 1))
    monkeypatch.setattr(building, "CACHE_LIMIT", first.stat().st_size * 2)
    for number in range(2, 5):
        last = build(text + f"// {number}\n", names).path
    assert not first.exists() and last.exists()


def test_what_a_killed_process_left_is_removed_in_time(cache):
    text, names = program()
    folder = build(text, names).path.parent
    left, going_on = folder / "build-left", folder / "build-going-on"
    for private in (left, going_on):
        private.mkdir()
        (private / "half.so").write_bytes(b"half")
    os.utime(left, (1, 1))
    build(text + "// another\n", names)
    assert not left.exists() and going_on.exists()


def test_a_kernel_checks_how_many_arguments_it_gets_and_that_they_are_numbers(cache):
    text, names = program()
    function = build(text, names).functions[names[0]]
    with pytest.raises(TypeError, match="takes 2 arguments"):
        function(1)
    with pytest.raises(TypeError):
        function("a", "b")


def test_the_machine_code_can_be_shown(cache):
    text, names = program()
    assert "addps" in disassemble(build(text, names).path)


def test_without_lines_there_is_no_machine_code(cache, tmp_path, monkeypatch):
    text, names = program()
    path = build(text, names).path
    old = tmp_path / "objdump"
    old.write_text("#!/bin/sh\necho 'unrecognized option --inlines' >&2\nexit 1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert disassemble(path) == ""


def test_one_openmp_runtime_and_torchs_number_of_threads(cache):
    x = torch.randn(2000, 1000)
    built(lambda x: x.exp().sum(1), x)(x)
    with open("/proc/self/maps") as file:
        runtimes = {line.split()[-1] for line in file if "libgomp" in line or "libomp" in line or "libiomp" in line}
    assert len(runtimes) == 1
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert ctypes.CDLL(runtimes.pop()).omp_get_max_threads() == 1
    finally:
        torch.set_num_threads(threads)


def test_the_cache_serves_another_process(cache):
    text, names = program()
    script = (
        "import sys, torch\nfrom ptdebug.engine.toolchain.cpp_build import build\n"
        f"print(build(open(sys.argv[1]).read(), {names!r}).cached)\n"
    )
    source = cache / "copy.txt"
    source.write_text(text)
    done = subprocess.run([sys.executable, "-c", script, str(source)], capture_output=True, text=True, cwd=cache)
    assert done.stdout.strip() == "True", done.stderr


def left(cache):
    return [path.name for path in cache.iterdir() if path.is_dir()]


def test_what_nobody_waits_for_is_stopped_and_leaves_nothing(cache):
    text, names = program()
    pending = building.Building(text + "// dropped\n", names)
    compiler = pending._call._compiler
    assert left(cache) and not pending.finished()
    del pending
    assert compiler.returncode and not left(cache)


def test_what_is_being_built_at_the_end_is_kept(cache):
    text, names = program()
    code = (
        "import sys, torch\nfrom ptdebug.engine.toolchain.cpp_build import Building\n"
        f"pending = Building({text + '// at the end'!r}, {names!r})\nassert not pending.finished()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert building.cached(text + "// at the end", names) is not None and not left(cache)


def test_a_child_of_fork_builds_itself_and_leaves_the_parents_compiler_alone(cache):
    text, names = program()
    pending = building.Building(text + "// forked\n", names)
    child = os.fork()
    if child == 0:
        try:
            run(pending.wait().functions[names[0]])
        finally:
            del pending
            os._exit(sys.exc_info()[0] is not None)
    assert os.waitpid(child, 0)[1] == 0
    run(pending.wait().functions[names[0]])
    assert not left(cache)


def test_no_thread_takes_an_exception_that_is_set_for_the_one_that_builds(cache):
    """CPython gives the state of a thread that is being started the identity of its creator."""
    before = threading.active_count()
    text, names = program()
    pending = building.Building(text + "// alone\n", names)
    assert threading.active_count() == before
    pending.wait()


def test_instructions_have_lines_and_loops_say_whether_they_are_vectors(cache):
    text, names = program()
    assert not build(text, names).log
    made = build(text, names, reported=True)
    assert not made.cached and build(text, names, reported=True).cached and build(text, names).log == made.log
    run(made.functions[names[0]])
    assert said(made.log) == ""
    lines = text.splitlines()
    loops = [int(found) for found in re.findall(r"line (\d+): loop vectorized using \d+ byte", vector_report(made.log))]
    assert any("i0" in lines[number - 1] for number in loops)  # of the loop, or the first statement in it
    marks = [int(found) for found in re.findall(r"; line (\d+)", disassemble(made.path))]
    assert any(" * 2" in lines[number - 1] for number in marks)


REPORT = """\
k.cpp:7:3: optimized: loop vectorized using 64 byte vectors
k.cpp:9:3: missed: not vectorized: no vectype for stmt: _1 = MEM[(const float &)x_2(D)];
 scalar_type: const float
k.cpp:9:3: missed: statement clobbers memory: f ();
"""
REFUSED = """\
k.cpp:3:19: error: too few arguments to function 'int g(int, int)'
    3 | int h() { return g(1); }
k.cpp:2:5: note: declared here
    2 | int g(int a, int b);"""


def test_the_report_on_vectors_is_not_taken_for_warnings_nor_notes_for_the_report():
    assert said(REPORT) == "" and said(REPORT + REFUSED) == said(REFUSED) == REFUSED
    assert vector_report(REPORT + REFUSED).splitlines() == [
        "line 7: loop vectorized using 64 byte vectors",
        "line 9: not vectorized: no vectype for stmt: _1 = MEM[(const float &)x_2(D)];"]


def test_a_hand_written_kernels_record_has_its_report_apart():
    record = sgemm.KERNEL.record("product")
    assert record.log == "" and "vectorized using" in record.outputs["vectors"]
