"""`ptdebug run` on programs that use torch: whose compiler, what is kept, children, and what the program sees."""
from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Frame, SavedInputs
from safetensors.torch import load_file

Command = Callable[..., CompletedProcess[str]]
EXAMPLES = Path(__file__).parents[2] / "examples"
FUNCTION = """
import torch
@torch.compile
def f(x):
    return torch.sin(x).sum(0) + 1
"""


def summary(command: Command, folder: Path, text: str, *options: str) -> tuple[dict[str, Any], str]:
    """Run a program that must succeed; its summary and its output."""
    (folder / "program.py").write_text(text)
    done = command("run", *options, "--json", "summary.json", "program.py", timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "summary.json").read_text()), done.stdout


@pytest.mark.parametrize("name, counts", [
    ("gpt_generate", {"graphs": 2, "graph_breaks": 0, "recompiles": 1}),
    ("conv_classifier", {"graphs": 1, "graph_breaks": 0, "recompiles": 0}),
    ("mlp_batches", {"graphs": 3, "graph_breaks": 0, "recompiles": 2}),
    ("graph_breaks", {"graph_breaks": 2}),  # its .item() stays in the graph
])
def test_examples(warm: Command, tmp_path: Path, name: str, counts: dict[str, int]) -> None:
    """The program's own output is that of eager, and says that values agree."""
    program = str(EXAMPLES / f"{name}.py")
    done = warm("run", "--json", "summary.json", program, timeout=300)
    eager = warm("run", "--no-record", "--compiler", "eager", program)
    assert (done.returncode, done.stdout) == (0, eager.stdout), done.stderr
    assert "True" in done.stdout and "False" not in done.stdout
    document = json.loads((tmp_path / "summary.json").read_text())
    assert {key: document["counts"][key] for key in counts} == counts
    assert all(c["status"] in ("compiled", "skipped") for c in document["compiles"]), document["compiles"]
    assert document["counts"]["kernels"] > 0 and document["exit_code"] == 0


def test_the_summary_says_how_often(warm: Command, tmp_path: Path) -> None:
    raises = """
for n in (3, 3, 4, 5, 6): f(torch.ones(n, 2))
for _ in range(2):
    try:
        torch.compile(lambda x, i: x.relu()[i])(torch.ones(3), torch.tensor([9]))
    except IndexError:
        pass
"""
    document, _ = summary(warm, tmp_path, FUNCTION + raises)
    first, second = document["compiles"][:2]
    [note] = document["notes"]
    assert note.startswith("2 calls ran in eager a second time: a graph raised IndexError")
    assert (first["calls"], second["calls"]) == (2, 3)
    [again] = document["recompiles"]
    assert (again["compile"], again["expected"], again["actual"]) == ("0/1", 3, 4)
    assert document["command"] == ["program.py"]
    phases = {"total", "capture", "joint", "passes", "lowering", "scheduling", "codegen", "kernels"}
    assert set(first["seconds"]) >= phases


def test_nobody_compiles(ptdebug: Command, tmp_path: Path) -> None:
    text = FUNCTION + "import sys; print(f(torch.ones(3)), 'torch._dynamo' in sys.modules, f.__name__)"
    document, out = summary(ptdebug, tmp_path, text, "--compiler", "eager")
    assert document["counts"]["graphs"] == 0 and out.endswith("False f\n")


def test_no_record(warm: Command, tmp_path: Path) -> None:
    document, _ = summary(warm, tmp_path, FUNCTION + "f(torch.ones(3))", "--no-record")
    assert (document["recording"], document["counts"]["graphs"], document["counts"]["ops"]) == (None, 1, 3)
    assert not (tmp_path / "recordings").exists()


def test_compile_all(warm: Command, tmp_path: Path) -> None:
    program = """
import pickle, torch
net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
with torch.no_grad():
    print(net(torch.ones(2, 3)).shape, sorted(net.state_dict()))
    print(pickle.loads(pickle.dumps(net))(torch.ones(2, 3)).shape)
"""
    document, out = summary(warm, tmp_path, program)
    assert document["counts"]["graphs"] == 0
    compiled, same = summary(warm, tmp_path, program, "--compile-all")
    assert compiled["counts"]["graphs"] >= 1 and same == out


def test_override(warm: Command, tmp_path: Path) -> None:
    program = FUNCTION + "print(f(torch.ones(3)).item())"
    plain, out = summary(warm, tmp_path, program)
    (tmp_path / "override.toml").write_text("[compile]\ngraph = 'eager'\n")
    forced, same = summary(warm, tmp_path, program, "--override", "override.toml")
    assert (same, plain["counts"]["kernels"] > 0, forced["counts"]["kernels"]) == (out, True, 0)
    (tmp_path / "override.json").write_text('{"compile:*": "eager"}')
    forced, _ = summary(warm, tmp_path, program, "--override", "override.json")
    assert forced["counts"]["kernels"] == 0


def test_every_fusion_off(warm: Command, tmp_path: Path) -> None:
    program = FUNCTION + "print(f(torch.arange(12.0).reshape(3, 4)).tolist())"
    plain, out = summary(warm, tmp_path, program)
    (tmp_path / "separate.toml").write_text('"fuse:*" = "separate"\n')
    separate, same = summary(warm, tmp_path, program, "--override", "separate.toml")
    assert (same, separate["counts"]["kernels"] > plain["counts"]["kernels"]) == (out, True)


def test_target(warm: Command, tmp_path: Path) -> None:
    document, _ = summary(warm, tmp_path, FUNCTION + "f(torch.ones(3, 4))", "--target", "cuda:90")
    recording = Recording.open(Path(document["recording"]))
    targets = {recording.artifact(i.compile, i.stage, i.name).target for i in recording.artifacts(kind="Kernel")}
    assert targets == {"cpu", "cuda:90"}


@pytest.mark.parametrize("kind, files", [("none", 0), ("meta", 0), ("first", 1), ("all", 3)])
def test_inputs(warm: Command, tmp_path: Path, kind: str, files: int) -> None:
    program = """
import torch
@torch.compile
def f(x, y, z):
    return x + y.sum() + z
base = torch.arange(12.0).reshape(3, 4)
for _ in range(3):
    f(base[1:, ::2], base[1:], torch.ones(2, 2))
"""
    document, _ = summary(warm, tmp_path, program, "--inputs", kind)
    folder = Path(document["recording"])
    assert len(list(folder.glob("tensors/*.safetensors"))) == files
    if kind == "none":
        return
    recording = Recording.open(folder)
    saved = recording.artifact("0/0", "runtime", "inputs")
    assert isinstance(saved, SavedInputs) and len(saved.inputs) == 3
    assert bool(saved.file) == bool(files)
    if not files:
        assert "metadata only" in saved.note
        return
    flat = {key: tensor for key, tensor in load_file(folder / saved.file).items() if not key.startswith("random:")}
    assert len(flat) == 2
    made = {i.name: flat[i.tensor].as_strided(i.meta.shape, i.meta.stride, i.meta.offset) for i in saved.inputs}
    base = torch.arange(12.0).reshape(3, 4)
    for name, expected in {"L['x']": base[1:, ::2], "L['y']": base[1:], "L['z']": torch.ones(2, 2)}.items():
        assert torch.equal(made[name], expected)
    assert sorted(bool(i.alias_of) for i in saved.inputs) == [False, False, True]


def test_inputs_over_the_limit(warm: Command, tmp_path: Path) -> None:
    document, _ = summary(warm, tmp_path, FUNCTION + "f(torch.ones(1000))", "--inputs-limit", "1K")
    saved = Recording.open(Path(document["recording"])).artifact("0/0", "runtime", "inputs")
    assert isinstance(saved, SavedInputs) and not saved.file and "--inputs-limit" in saved.note


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_are_recorded(ptdebug: Command, tmp_path: Path, method: str) -> None:
    document, out = summary(ptdebug, tmp_path, FUNCTION + f"""
import multiprocessing
def work(n):
    return f(torch.zeros(n)).item(), torch.compile.__module__
if __name__ == "__main__":
    torch.set_num_threads(1)
    with multiprocessing.get_context("{method}").Pool(1) as pool:
        print(pool.map(work, [3]))
""", "-q")
    assert out == "[(1.0, 'torch')]\n"
    assert [c["function"] for c in document["compiles"]] == ["f"], document["compiles"]
    assert "@" in document["compiles"][0]["id"]


def test_what_the_program_sees_of_torch(ptdebug: Command, tmp_path: Path) -> None:
    program = """
import inspect, sys
import torch
print(type(torch.__loader__).__name__, torch.__loader__ is torch.__spec__.loader, torch.compile.__name__)
print(inspect.signature(torch.compile), inspect.signature(torch.compiler.disable), len(torch.compile.__doc__))
print([type(finder).__module__ for finder in sys.meta_path if not isinstance(finder, type)][:1])
print(torch.compiler.is_compiling(), torch.is_grad_enabled())
"""
    (tmp_path / "program.py").write_text(program)
    outs = [ptdebug("run", "-q", *options, "program.py").stdout for options in ((), ("--compiler", "torch"))]
    assert outs[0].splitlines()[0] == "SourceFileLoader True compile"
    assert outs[0].splitlines()[1] == outs[1].splitlines()[1]
    assert outs[0].splitlines()[3] == "False True"


def test_torch_compiler_functions_are_honoured(ptdebug: Command, tmp_path: Path) -> None:
    program = """
import sys, torch
seen = []
@torch.compiler.disable
def eager(x):
    seen.append(torch.compiler.is_compiling())
    return x + 1
@torch.compile(backend="aot_eager")
def f(x):
    return eager(x * 2) * 3
net = torch.nn.Linear(3, 3)
net.compile(mode="reduce-overhead")
with torch.no_grad():
    assert f(torch.ones(2)).tolist() == [9.0, 9.0] and seen == [False]
    assert net(torch.ones(1, 3)).shape == (1, 3) and list(net.state_dict()) == ["weight", "bias"]
    torch.compiler.reset()
    with torch.compiler.set_stance("force_eager"):
        f(torch.ones(5))
    f(torch.ones(2))
assert not any(name.startswith(("torch._dynamo", "torch._inductor")) for name in sys.modules)
"""
    document, _ = summary(ptdebug, tmp_path, program)
    assert document["counts"]["graph_breaks"] >= 1
    assert not [c for c in document["compiles"] if c["status"] in ("failed", "eager")], document["compiles"]


def test_a_program_that_uses_dynamo_directly(warm: Command, tmp_path: Path) -> None:
    program = """
import torch, torch._dynamo, torch._dynamo.testing
torch._dynamo.config.suppress_errors = True
torch._dynamo.reset()
@torch._dynamo.disable
def eager(x):
    return x + 1
@torch.compile
def f(x):
    x = eager(x)
    torch._dynamo.graph_break()
    return x * 2
for size in (4, 5):
    x = torch.ones(size)
    torch._dynamo.mark_dynamic(x, 0)
    assert f(x).tolist() == [4.0] * size
assert torch._dynamo.optimize("eager")(lambda x: x.abs())(x).tolist() == [1.0] * 5
counter = torch._dynamo.testing.CompileCounter()
assert torch.compile(lambda x: x * 3, backend=counter)(x).tolist() == [3.0] * 5 and counter.frame_count == 1
assert not torch._dynamo.is_compiling()
"""
    document, _ = summary(warm, tmp_path, program)
    assert sorted({b["code"] for b in document["graph_breaks"]}) == ["disabled-function", "graph-break-requested"]


def test_uncaught_exception_of_compiled_code(warm: Command, tmp_path: Path) -> None:
    """The traceback names the program's lines; exit code 1; the recording is whole."""
    (tmp_path / "program.py").write_text(
        "import torch\n@torch.compile\ndef f(x):\n    y = x + 1\n    raise ValueError('of the program')\n"
        "f(torch.ones(2))\n")
    done = warm("run", "program.py")
    assert done.returncode == 1
    trace = done.stderr.partition("ptdebug:")[0].splitlines()
    assert [line.strip() for line in trace if line.startswith("  File")] == [
        f'File "{tmp_path / "program.py"}", line {number}, in {name}' for number, name in ((6, "<module>"), (5, "f"))]
    assert trace[-1] == "ValueError: of the program"
    assert json.loads(warm("show", "@", "--json").stdout)["exit_code"] == 1


def test_machine_code_is_recorded(warm: Command, tmp_path: Path) -> None:
    """After the program has ended, so that it costs the program nothing."""
    if shutil.which("objdump") is None:
        pytest.skip("no objdump here")
    done = warm("run", "--name", "r", str(EXAMPLES / "mlp_batches.py"), timeout=300)
    assert done.returncode == 0, done.stderr
    shown = warm("show", "r:0/0:kernels:cpp.asm")
    assert shown.returncode == 0, shown.stderr
    assert "fused_" in shown.stdout and "ret" in shown.stdout


def test_the_stack_of_a_frame_starts_in_the_program(warm: Command, tmp_path: Path) -> None:
    document, _ = summary(warm, tmp_path, FUNCTION + "\ndef main():\n    f(torch.ones(3))\n\nmain()\n")
    with Recording.open(document["recording"]) as recording:
        [(_, frame)] = recording.records(Frame)
    assert [place.function for place in frame.stack] == ["<module>", "main"]
    assert {Path(place.file).name for place in frame.stack} == {"program.py"}


def test_overrides_that_cannot_be_followed_are_told(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FUNCTION + "print(f(torch.ones(3)).item())\n")
    (tmp_path / "wrong.toml").write_text('"compile:*" = "kernels"\n"column-sum:*" = "by-rows"\n')
    done = warm("run", "--override", "wrong.toml", "program.py")
    assert done.returncode == 0
    assert float(done.stdout) == pytest.approx(3.5244, abs=1e-3)
    assert "no decision answers to the override column-sum:* " in done.stderr
    (tmp_path / "wrong.toml").write_text('"fuse:*" = "nope"\n')  # such a thing is refused before the program starts
    done = warm("run", "--override", "wrong.toml", "program.py")
    assert (done.returncode, done.stdout) == (2, "") and "'nope' is no option of fuse" in done.stderr


def test_what_an_autograd_function_does_is_shown_and_replayed(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\n\nclass Sq(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n        return x * x\n\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return 2 * ctx.saved_tensors[0] * g\n\n"
        "@torch.compile\ndef f(x):\n    return Sq.apply(x.sin()).sum()\n\n"
        "f(torch.ones(5, requires_grad=True)).backward()\n")
    assert warm("run", "program.py").returncode == 0
    shown = warm("show", "@:0/0:capture").stdout
    assert "    class Sq(torch.autograd.Function):\n        def forward(\n" in shown
    assert "# program.py:11 in Sq.backward: return 2 * ctx.saved_tensors[0] * g" in shown
    document, = json.loads(warm("show", "@:0/0:capture", "--json").stdout)["artifacts"]
    assert [node["id"] for node in document["record"]["inner"]["sq"]["forward"]["nodes"]][1:] == ["mul", "output"]
    replayed = warm("replay", "@")
    assert replayed.returncode == 0 and "kernels" in replayed.stdout and "absent" not in replayed.stdout, replayed


def test_what_torch_compiles_inside_itself_raises_nothing(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\nfrom torch.nn.attention.flex_attention import flex_attention\n\n"
        "q = torch.ones(1, 8, 2, 16).transpose(1, 2)\nprint(flex_attention(q, q, q).sum().item())\n\n"
        "def broken(x):\n    print('here')\n    return x + 1\n\n"
        "layer = torch.nn.Linear(2, 2)\nlayer.forward = broken\nlayer.compile(fullgraph=True)\n"
        "try:\n    layer(torch.ones(2))\nexcept Exception as error:\n    print(type(error).__name__)\n")
    done = warm("run", "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["256.0", "FullGraphError"]


def test_the_exception_that_ended_the_program_is_in_the_recording(tmp_path):
    script = tmp_path / "ends.py"
    script.write_text(
        "import sys\n"
        "class Own(Exception):\n"
        "    def __str__(self):\n        print('asked', file=sys.stderr)\n        return 'own'\n"
        "def f():\n    raise (Own if 'own' in sys.argv else KeyError)('what')\n"
        "f()\n")
    for argument, last in (("plain", "KeyError: 'what'"), ("own", "Own")):
        done = subprocess.run([sys.executable, "-m", "ptdebug", "run", "--name", argument, str(script), argument],
                              cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.count("asked") == (argument == "own")
        with Recording.open(tmp_path / ".ptdebug" / argument) as recording:
            text = recording.meta["exception"]
            assert text.startswith("Traceback (most recent call last):\n") and text.splitlines()[-1] == last
            assert f'File "{script}", line 7, in f' in text and "ptdebug" not in text.replace(str(tmp_path), "")
            assert recording.meta["options"]["name"] == argument
