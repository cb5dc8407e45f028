"""Scripts of what recordings hold: they run with nothing but their own files, and show what they are to show."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from ptdebug.artifacts.fx_graphs import graph_record
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Breaks, Kernel, Recompile
from ptdebug.cli.main import main
from ptdebug.replay.failures.case import Case
from ptdebug.replay.failures.signature import Signature
from ptdebug.replay.recorded.graphs import ReplayError
from ptdebug.replay.repro import check, check_pass
from ptdebug.replay.repro.compilation import Compilation
from ptdebug.replay.repro.found_values import Found
from ptdebug.replay.repro.frames import frame_repro
from ptdebug.replay.repro.graphs import emit_graph, write_repro
from ptdebug.replay.repro.objects import Objects
from ptdebug.replay.repro.program_source import Reached
from ptdebug.replay.repro.recorded import captured_graph, repro
from ptdebug.replay.repro.script import Header, Repro
from ptdebug.replay.repro.tensors import Tensors
from ptdebug.replay.repro.verify import verified, verify

from tests.warm_process import in_copy

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


def record(home: Path, script: Path, name: str, *options: str) -> Recording:
    words = ("run", "-o", str(home), "--name", name, *options, str(script))
    in_copy("ptdebug", *words, cwd=Path.cwd(), timeout=280).check_returncode()
    return Recording.open(home / name)


def run_all(folder: Path, *arguments: str) -> dict[str, tuple[int, str]]:
    """The outcomes of all scripts of a folder, run in one process of their own."""
    ran = in_copy(str(HERE / "run_scripts.py"), str(folder), *arguments, cwd=folder, timeout=280)
    return {name: tuple(found) for name, found in json.loads(ran.stdout.splitlines()[-1]).items()}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    with record(tmp_path_factory.mktemp("home"), HERE / "repro_program.py", "program") as found:
        yield found


@pytest.fixture(scope="module")
def ids(recording: Recording) -> dict[str, str]:
    """The first compilation of each function."""
    found: dict[str, str] = {}
    for info in recording.compiles():
        found.setdefault(info.function.partition(".")[0], info.id)
    return found


def captured(recording: Recording) -> list[str]:
    return [info.id for info in recording.compiles() if "capture" in recording.stages(info.id)]


def write(folder: Path, name: str, made: Repro) -> None:
    made.write(folder / f"{name.replace('/', '_').replace(':', '__').replace('.', '_')}.py")


def of_stage(recording: Recording, compile_id: str, stage: str) -> Iterator[str]:
    for info in recording.artifacts(compile_id, stage):
        kernel = recording.find(Kernel, compile_id, stage, info.name)
        owner = info.name.rpartition(".")[0]
        yield from [f"{owner}.{k}" if owner else k for k in kernel.kernels] if kernel else [info.name]


MKLDNN = "mkldnn_rnn_layer"
"""Eager does not run LSTM's joint graph on a CPU: it has no workspace there."""


def all_pass(found: dict[str, tuple[int, str]]) -> None:
    assert {name: line for name, (code, line) in found.items() if code or line != "outcome: passed"} == {}


# ---- what can be written ---------------------------------------------------------------------------------------------
def test_functions(recording: Recording, tmp_path: Path) -> None:
    """Each function as the program has it: modules made by their constructors, and from what is recorded of them."""
    why = {}
    for compile_id in captured(recording):
        for construct in (True, False):
            try:
                write(tmp_path, f"{compile_id}_{construct}", frame_repro(Compilation(recording, compile_id), construct))
            except ReplayError as error:
                why[compile_id] = str(error)
    found = run_all(tmp_path)
    all_pass(found)
    assert set(why.values()) == {"this compilation is the rest of a function after a graph break"}
    assert len(found) >= 2 * 18


HELPERS = """
import torch

FACTOR = 3.0


def scaled(x, *, by=FACTOR):
    return x * by


class Gate(torch.nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.proj = torch.nn.Linear(width, width, bias=bias)
        self.steps = [1, 2]

    def forward(self, x, *extra, **options):
        if options.get("flip"):
            x = -x
        for step in self.steps:
            x = torch.sigmoid(self.proj(x)) * x + step
        return scaled(x, by=2.0) + extra[0]
"""
PROGRAM = """
import functools

import helpers
import torch
from helpers import Gate


def outer():
    w, k = torch.randn(4, 4), 3

    @torch.compile
    def inner(x, act=torch.relu):
        return act(x @ w) + k
    return inner


def decorate(function):
    @functools.wraps(function)
    def wrapper(*arguments, **options):
        return function(*arguments, **options) + 1
    return wrapper


@torch.compile
@decorate
def decorated(x):
    return helpers.scaled(x.sin())


class Holder:
    @staticmethod
    def double(x):
        return x * 2

    @property
    def twice(self):
        return self.value * 2

    def added(self, x, *, n=2):
        return x + self.twice * n


gate = Gate(4, bias=False)
torch.compile(gate)(torch.randn(2, 4), torch.ones(4), flip=True).sum().backward()
outer()(torch.randn(2, 4))
decorated(torch.randn(3))
holder = Holder()
holder.value = torch.randn(3)
torch.compile(holder.added)(torch.randn(3), n=3)
torch.compile(Holder.double)(torch.randn(3))
torch.compile(torch.nn.MultiheadAttention(8, 2, batch_first=True))(*[torch.randn(2, 3, 8)] * 3)
step = torch.compile(torch.optim.SGD(gate.parameters(), lr=0.1, momentum=0.9).step)
step()
"""


def test_programs_of_several_files(tmp_path: Path) -> None:
    """Closures, decorators, properties, keyword arguments, modules that are imported whole, library modules."""
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "program.py").write_text(PROGRAM)
    scripts = tmp_path / "scripts"
    with record(tmp_path / "home", tmp_path / "program.py", "several") as recording:
        made, why = {}, {}
        for info in recording.compiles():
            if "capture" not in recording.stages(info.id):
                continue
            compilation = Compilation(recording, info.id)
            try:
                made[info.function] = frame_repro(compilation, construct=True)
            except ReplayError as error:
                why[info.function] = str(error)
                made[info.function] = captured_graph(compilation)
            write(scripts, info.function.replace("<locals>", ""), made[info.function])
    assert set(why) <= {"SGD.step"}, why
    assert "Gate(4, bias=False)" in made["Gate.forward"].text
    assert "helpers = SimpleNamespace(scaled=scaled)" in made["decorated"].text
    all_pass(run_all(scripts))


def test_captured_graphs(recording: Recording, tmp_path: Path) -> None:
    for compile_id in captured(recording):
        for inputs in ("recorded", "random"):
            write(tmp_path, f"{compile_id}_{inputs}", repro(recording, compile_id, "capture", inputs=inputs))
    found = run_all(tmp_path)
    all_pass(found)
    assert len(found) >= 2 * 20


@pytest.mark.parametrize("stages", [("joint", "forward", "backward"), ("passes",), ("kernels",)])
def test_later_stages(recording: Recording, tmp_path: Path, stages: tuple[str, ...]) -> None:
    for compile_id in captured(recording):
        if recording.compile(compile_id).function == "LSTM.forward":
            continue
        for stage in stages:
            for name in of_stage(recording, compile_id, stage):
                if name == "cond_1_1.fused_0_sub":  # the branch that is not taken
                    with pytest.raises(ReplayError, match="does not run a kernel fused_0_sub on these inputs"):
                        repro(recording, compile_id, stage, name)
                    continue
                write(tmp_path, f"{compile_id}_{stage}_{name}", repro(recording, compile_id, stage, name))
    found = run_all(tmp_path)
    all_pass(found)
    assert len(found) >= 5


def test_kernels_on_random_buffers(recording: Recording, ids: dict[str, str], tmp_path: Path) -> None:
    for function in ("Stack", "functions", "dynamic", "embeds"):
        for name in list(of_stage(recording, ids[function], "kernels"))[:2]:
            write(tmp_path, f"{function}_{name}", repro(recording, ids[function], "kernels", name, "random"))
    all_pass(run_all(tmp_path))


def test_breaks_and_recompilations(recording: Recording, tmp_path: Path) -> None:
    for compile_id, record_ in recording.records(Breaks):
        for found in record_.breaks:
            write(tmp_path, f"break_{compile_id}", repro(recording, compile_id, "breaks", found.id))
    for compile_id, _ in recording.records(Recompile):
        if "resume_in" not in recording.compile(compile_id).function:
            write(tmp_path, f"again_{compile_id}", repro(recording, compile_id, "recompiles"))
    found = run_all(tmp_path)
    kinds = {(name.partition("_")[0], line.split(":")[1].strip()) for name, (_, line) in found.items()}
    assert kinds == {("break", "break"), ("again", "recompile")}
    assert all(code == 1 for code, _ in found.values()) and len(found) >= 4
    assert {code for code, _ in run_all(tmp_path, "--compiler", "eager").values()} == {0}


EXAMPLES_RUN = ("conv_classifier", "graph_breaks", "mlp_batches", "ten_recompiles", "train_transformer",
                "twenty_breaks")


def test_examples(tmp_path: Path) -> None:
    """Their functions, or where these are not known well enough the captured graphs, of the first four compilations."""
    scripts = tmp_path / "scripts"
    for name in EXAMPLES_RUN:
        with record(tmp_path / "home", EXAMPLES / f"{name}.py", name) as recording:
            for compile_id in captured(recording)[:4]:
                compilation = Compilation(recording, compile_id)
                try:
                    made = frame_repro(compilation, construct=True)
                except ReplayError:
                    made = captured_graph(compilation)
                write(scripts, f"{name}_{compile_id}", made)
    found = run_all(scripts)
    all_pass(found)
    assert len(found) >= 16


def test_stock(tmp_path: Path) -> None:
    """Graphs that stock PyTorch captured: with random inputs, since it records none."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "layer = torch.nn.Linear(8, 4)\n"
        "@torch.compile(backend='aot_eager')\n"
        "def f(x):\n"
        "    y = torch.relu(layer(x))\n"
        "    return y[:, 1:].softmax(-1, dtype=torch.float64)\n"
        "f(torch.randn(3, 8)).sum().backward()\n"
    )
    with record(tmp_path / "home", program, "stock", "--compiler", "torch") as recording:
        for stage in ("", "capture", "forward", "backward"):
            write(tmp_path / "scripts", f"stock_{stage}", repro(recording, "0/0", stage))
    assert "y = torch.relu(" in (tmp_path / "scripts" / "stock_capture.py").read_text()
    all_pass(run_all(tmp_path / "scripts", "--compiler", "torch:aot_eager"))


# ---- how it reads ----------------------------------------------------------------------------------------------------
def body(made: Repro, start: str, end: str = "\n\n\n") -> str:
    return made.text[made.text.index(start):].partition(end)[0]


def test_a_graph_reads_as_a_person_would_write_it(recording: Recording, ids: dict[str, str]) -> None:
    text = body(repro(recording, ids["Stack"], "capture"), "def graph(").split("\n")
    code = [line.partition("  # ")[0] for line in text if not line.lstrip().startswith("#")]
    start = code.index("):") + 1
    assert code[start: start + 4] == [
        "    layer_norm = F.layer_norm(x, [8], blocks_0_norm_weight, blocks_0_norm_bias, 1e-05)",
        "    linear = F.linear(layer_norm, blocks_0_up_weight, blocks_0_up_bias)",
        "    hidden = torch.tanh(linear)",
        "    linear_1 = F.linear(hidden, blocks_0_down_weight, blocks_0_down_bias)",
    ]
    assert "\n    x[0] = mul\n" in body(repro(recording, ids["mutates"], "capture"), "def graph(")
    mixed = body(repro(recording, ids["mixed"], "capture"), "def graph(")
    assert "    with torch.autocast('cpu', dtype=torch.bfloat16):\n" in mixed
    assert "class Square(torch.autograd.Function):" in repro(recording, ids["custom"], "capture").text
    dynamic = body(repro(recording, ids["dynamic"], "capture"), "def graph(")
    assert "x.size(0)" in dynamic and "rows = x.reshape(" in dynamic


def test_a_function_is_the_programs(recording: Recording, ids: dict[str, str]) -> None:
    source = (HERE / "repro_program.py").read_text()
    made = frame_repro(Compilation(recording, ids["functions"]))
    for start in ("def gelu(x):", "def helper_of_helper(x, k=2):", "def functions(x):"):
        assert body(made, start) == source[source.index(start):].partition("\n\n\n")[0]
    assert "SCALE = 2.5" in made.text and "@torch.compile" not in made.text and "class Stack" not in made.text
    loaded = frame_repro(Compilation(recording, ids["Stack"]), construct=True)
    assert "self = loaded(\n        Stack(),\n" in loaded.text
    assert "Config, flip=True, gain=1.5" in frame_repro(Compilation(recording, ids["containers"])).text


def test_header(recording: Recording, ids: dict[str, str]) -> None:
    text = repro(recording, ids["functions"], "capture").text.split('"""')[1]
    for part in ("The captured graph of functions", ":capture of:", f"torch {torch.__version__}", "Python 3.", "Run: ",
                 "Exit code 1"):
        assert part in text


# ---- failures --------------------------------------------------------------------------------------------------------
WRONG = {
    "values": "lambda *a: tuple(r + 1 for r in f(*a))",
    "nan": "lambda *a: tuple(r / 0 * 0 for r in f(*a))",
    "exception": "lambda *a: f(*a)[7]",
}


def with_compiler(made: Repro, compiled: str) -> Repro:
    """The script, with another compiler in ptdebug's place: `compiled` is what it makes of the function `f`."""
    patch = f"import ptdebug\nptdebug.compile = lambda f, **options: {compiled}\n"
    return Repro(made.text.replace("\ndef make():", f"\n{patch}\n\ndef make():"), made.tensors)


def test_a_failure_shows(recording: Recording, ids: dict[str, str], tmp_path: Path) -> None:
    made = repro(recording, ids["mixed"], "capture")
    for kind, compiled in WRONG.items():
        write(tmp_path, kind, with_compiler(made, compiled))
    write(tmp_path, "right", with_compiler(made, "f"))
    write(tmp_path, "invalid", Repro(made.text.replace("truediv = h", "truediv = missing"), made.tensors))
    found = run_all(tmp_path)
    assert {name: code for name, (code, _) in found.items()} == {
        "values": 1, "nan": 1, "exception": 1, "right": 0, "invalid": 2}
    for kind in WRONG:
        assert found[kind][1].startswith(f"outcome: {kind}")


def test_a_wrong_kernel_and_a_wrong_pass_show(recording: Recording, ids: dict[str, str], tmp_path: Path) -> None:
    kernel = repro(recording, ids["containers"], "kernels")
    wrong = kernel.text.replace(" - ", " + ", kernel.text.count(" - "))
    write(tmp_path, "kernel", Repro(wrong, kernel.tensors))
    name = next(of_stage(recording, ids["Stack"], "passes"))
    passed = repro(recording, ids["Stack"], "passes", name)
    head, after = passed.text.split("def after(")
    write(tmp_path, "pass", Repro(head + "def after(" + after.replace("aten.tanh.default(", "aten.sin.default(", 1),
                                  passed.tensors))
    found = run_all(tmp_path)
    assert {code for code, _ in found.values()} == {1}
    assert all(line.startswith("outcome: values") for _, line in found.values())


def test_crashes_and_hangs_are_contained(recording: Recording, ids: dict[str, str], tmp_path: Path) -> None:
    made = repro(recording, ids["mixed"], "capture")
    crash = verified(with_compiler(made, "lambda *a: __import__('os').kill(__import__('os').getpid(), 11)"))
    assert (crash.outcome.kind, crash.outcome.detail) == ("signal", "SIGSEGV")
    assert crash.shows(Signature("signal", "SIGSEGV"))
    hang = verified(with_compiler(made, "__import__('time').sleep(60)"), limit=12.0)
    assert hang.outcome.kind == "hang"


# ---- the interface of searches, and the command ----------------------------------------------------------------------
def graph_of(function: Callable[..., object], names: str):
    traced = torch.fx.symbolic_trace(function)
    for node in traced.graph.nodes:
        node.meta["val"] = torch.empty(3)
    return graph_record(traced.graph, "capture", "bytecode"), names


def test_a_graph_without_a_recording(tmp_path: Path) -> None:
    graph, _ = graph_of(lambda x, y: ((x + y).relu() * 2,), "x y")
    values = torch.tensor([1.0, -2.0, float("nan")]), torch.ones(3)
    text = emit_graph(graph, values, title="A small one.")
    assert "torch.tensor([1.0, -2.0, float('nan')])" in text and "torch.ones((3,))" in text
    files = write_repro(tmp_path / "small.py", graph, values)
    assert [file.name for file in files] == ["small.py"]
    found = verify(files)
    assert found.outcome.passed, found.output


def test_a_case(recording: Recording, ids: dict[str, str], tmp_path: Path) -> None:
    case = Case.from_recording(recording, ids["Stack"])
    files = write_repro(tmp_path / "case.py", case)
    assert {file.suffix for file in files} == {".py", ".safetensors"}
    assert "TRAINING = True" in files[0].read_text()
    all_pass(run_all(tmp_path))


def test_the_command(recording: Recording, ids: dict[str, str], tmp_path: Path, capsys) -> None:
    selector = f"{recording.path}:{ids['functions']}"
    assert main(["repro", selector, "-o", str(tmp_path / "r.py"), "--json", "--check"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["outcome"] == "passed" and not document["note"]
    assert [os.path.basename(file) for file in document["files"]] == ["r.py", "r.safetensors"]
    resumed = next(info.id for info in recording.compiles() if "resume_in" in info.function)
    assert main(["repro", f"{recording.path}:{resumed}", "-o", str(tmp_path / "r.py")]) == 0
    assert "the captured graph, and not the function, was written" in capsys.readouterr().err
    assert main(["repro", f"{selector}:kernels:nothing", "-o", str(tmp_path / "r.py")]) == 2
    assert "has no kernel nothing; it has: fused_0" in capsys.readouterr().err


def test_code_of_others_does_not_run(recording: Recording, ids: dict[str, str], tmp_path: Path, monkeypatch) -> None:
    """Nothing of a recording from elsewhere runs when its script is written; --check asks for --trust."""
    monkeypatch.setattr("ptdebug.replay.repro.compilation.is_ours", lambda recording: False)
    monkeypatch.setattr("ptdebug.replay.program.program.is_ours", lambda recording: False)
    monkeypatch.setattr(subprocess, "run", None)
    made = repro(recording, ids["Stack"])
    assert "was not tried" in made.note
    assert main(["repro", f"{recording.path}:{ids['Stack']}", "-o", str(tmp_path / "r.py"), "--check"]) == 2


@pytest.mark.parametrize("found", [Found(type="imported_by_a_script.Thing"),
                                   Found(subject="the function `imported_by_a_script.run`")])
def test_modules_that_a_recording_names_are_imported_with_trust_only(
    recording: Recording, tmp_path: Path, monkeypatch, found: Found
) -> None:
    (tmp_path / "imported_by_a_script.py").write_text("class Thing:\n    pass\n\ndef run():\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "imported_by_a_script", raising=False)

    def objects(may_import: bool) -> Objects:
        return Objects([], [], [], Tensors(), Reached(recording, {}), "none.py", may_import=may_import)

    with pytest.raises(ReplayError, match="which the recorded files do not define"):
        objects(False).expression(found, "x")
    assert "imported_by_a_script" not in sys.modules
    assert "imported_by_a_script." in objects(True).expression(found, "x")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_other_numbers_differ_where_no_reference_says_how_far_rounding_goes(dtype: torch.dtype) -> None:
    value = torch.linspace(-1, 1, 100).to(dtype)
    assert check.difference(value * 1.25, value, None) and check.difference(value.flip(0), value, None)
    assert not check.difference(value * (1 + 2 * torch.finfo(dtype).eps), value, None)
    assert check_pass.difference(value * 1.25, value) and not check_pass.difference(value, value.clone())


@pytest.mark.parametrize("difference", [check_pass.difference, lambda v, e: check.difference(v, e, None)])
def test_infinities_and_nan_are_not_each_other(difference: Callable[..., str]) -> None:
    one, inf, nan = 1.0, float("inf"), float("nan")
    for value, expected in ((inf, -inf), (nan, inf), (inf, nan), (inf, one), (one, nan)):
        assert difference(torch.tensor([one, value]), torch.tensor([one, expected]))
        assert not difference(torch.tensor([one, value]), torch.tensor([one, value]))


def test_a_file_name_is_text_of_the_header(tmp_path: Path) -> None:
    (path,) = Repro("\n".join([*Header("What.").lines(), "print(1)"])).write(tmp_path / 'a"""\\N b.py')
    compile(path.read_text(encoding="utf-8"), "script", "exec")
