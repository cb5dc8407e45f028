"""Replaying what somebody else has made runs nothing of it without --trust, reads nothing outside, and ends."""
from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ptdebug.artifacts import records as r
from ptdebug.artifacts.signature import key_file, sign
from ptdebug.cli.main import main
from ptdebug.replay.recorded.graphs import ReplayError, graph_module, resolve, size_value
from safetensors.torch import save_file

from .crafting import META, TENSORS, X, craft, graph, here, node

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that no attack may make."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CANARY", str(tmp_path / "canary"))
    return tmp_path / "canary"


TOUCH = "touch canary"
CODE = "__import__('os').system('touch canary')"
DEFAULT = r.Node("y", "placeholder", "y", (CODE,), {}, META)
INNER = r.Graph("inner", (r.Node("x", "placeholder", "x", (), {}, META), r.Node("output", "output", "output", ([X],))))
SQUARE = r.AutogradFunction(INNER, INNER, (True,))

GRAPHS: dict[str, Callable[[], r.Graph]] = {
    "the default of a placeholder": lambda: graph(placeholder=f"x = {CODE}"),
    "the annotation of a placeholder": lambda: graph(placeholder=f"x : {CODE}"),
    "a shell through torch": lambda: graph(node("torch.serialization.os.system", TOUCH)),
    "a shell through an operator's module": lambda: graph(node("torch._ops.os.system", TOUCH)),
    "a shell through math of torch": lambda: graph(node("torch.functional.os.system", TOUCH)),
    "a library": lambda: graph(node("load_library", "evil.so")),
    "a library of operators": lambda: graph(node("torch.ops.load_library", "evil.so")),
    "a class of torch": lambda: graph(node("torch.classes.load_library", "evil.so")),
    "a pickle": lambda: graph(node("torch.load", "evil.pkl", weights_only=False)),
    "a pickle of numpy": lambda: graph(node("torch.testing._internal.common_utils.np.load", "evil.pkl")),
    "a module of TorchScript": lambda: graph(node("torch.jit.load", "evil.pt")),
    "TorchScript's save": lambda: graph(node("aten.save", X, "canary")),
    "a file made by an operator": lambda: graph(node("aten.from_file.default", "canary", True, 4)),
    "a file made by a function": lambda: graph(node("torch.from_file", "canary", shared=True, size=4)),
    "a view past the memory": lambda: graph(node("aten._reshape_alias.default", X, [1 << 20], [1])),
    "memory at an address": lambda: graph(node("torch._from_blob", 1, [4])),
    "eval": lambda: graph(node("builtins.eval", CODE)),
    "an import": lambda: graph(node("builtins.__import__", "antigravity")),
    "open": lambda: graph(node("builtins.open", "canary", "w")),
    "a call through operator": lambda: graph(node("operator.methodcaller", "system", TOUCH)),
    "attributes of attributes": lambda: graph(node("builtins.getattr", X, "__class__")),
    "an attribute of text": lambda: graph(node("builtins.getattr", "x", "format")),
    "source text that our engine loads": lambda: graph(node("ptdebug.engine.runtime.runtime.load", CODE, {}, "file")),
    "C++ of torch's extensions": lambda: graph(node("torch.utils.cpp_extension.load_inline", "x", CODE)),
    "a repository": lambda: graph(node("torch.hub.load", ".", "x", source="local")),
    "a process": lambda: graph(node("torch.multiprocessing.spawn", X)),
    "the name of a node": lambda: graph(node("torch.sin", X, name=f"y = {CODE} #")),
    "the name of a method": lambda: graph(node(f"sin(); {CODE}; x.cos", X, op="call_method")),
    "a method that pickles": lambda: graph(node("__reduce_ex__", X, 2, op="call_method")),
    "a method that unpickles": lambda: graph(node("__setstate__", X, [], op="call_method")),
    "a method that calls": lambda: graph(node("apply_", X, {"torch": "torch.load"}, op="call_method")),
    "a method of text": lambda: graph(node("type", "x", op="call_method")),
    "the name of a keyword": lambda: graph(node("torch.sin", X, **{f"a={CODE}, out": None})),
    "a function as an argument": lambda: graph(node("torch.Tensor.map_", X, X, {"torch": "torch.serialization.os"})),
    "a key of an argument": lambda: graph(node("torch.sin", X, {f"' + {CODE} + '": 1})),
    "the name of the graph": lambda: graph(name=f"x: pass\n{CODE}\nclass y"),
    "a default in an inner graph": lambda: graph(
        node("cond", op="get_attr", name="c"), inner={"c": graph(placeholder=f"x = {CODE}")}),
    "the name of an autograd function": lambda: graph(node(f"f; {CODE}", X, name="f"), inner={"f": SQUARE}),
    "a constant that takes a method's place": lambda: graph(
        node("forward", op="get_attr", name="forward"), inner={"forward": INNER}),
    "a module that is called": lambda: graph(node(f"x.{CODE}", X, op="call_module")),
    "an operator that prints": lambda: graph(node("torch.ops.higher_order.print", "\x1b[2J")),
    "an operator of TorchBind": lambda: graph(node("torch.ops.higher_order.call_torchbind", X, "f")),
    "a second input": lambda: r.Graph("forward", (*graph().nodes[:1], DEFAULT, *graph().nodes[1:])),
    "a power without end": lambda: graph(node("operator.pow", 9**9, 9**9)),
    "powers of powers": lambda: graph(
        node("operator.pow", 9, 9**4, name="a"), node("operator.pow", r.NodeRef("a"), 9**9, name="b")),
    "a shift without end": lambda: graph(node("operator.lshift", 9, 10**12)),
    "a size without end": lambda: graph(node("torch.full", [{"symbol": "9**9**9**9"}], 1.0)),
    "a size that is code": lambda: graph(node("torch.full", [{"symbol": CODE}], 1.0)),
    "a size nested without end": lambda: graph(node("torch.full", [{"symbol": "(" * 9000 + "1" + ")" * 9000}], 1.0)),
    "text without end": lambda: graph(node("operator.mod", "%9999999999d", 1)),
    "a constant larger than its bytes": lambda: graph(
        node("c", {"tensor": "AAAA", "dtype": "float32", "shape": [1 << 20], "stride": [1], "device": "cpu"},
             op="get_attr", name="c")),
    "a constant that goes far": lambda: graph(
        node("c", {"tensor": "AAAAAAAAAAA=", "dtype": "float32", "shape": [2], "stride": [1 << 40], "device": "cpu"},
             op="get_attr", name="c")),
    "a dtype that is a function": lambda: graph(
        node("c", {"tensor": "", "dtype": "load", "shape": [0], "stride": [1], "device": "cpu"}, op="get_attr",
             name="c")),
}


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (TOUCH,)


@pytest.mark.parametrize("machine", ["this", "another"])
@pytest.mark.parametrize("attack", GRAPHS)
def test_a_crafted_graph_runs_nothing(attack: str, machine: str, tmp_path: Path, canary: Path,
                                      capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(_Evil()))
    folder = craft(tmp_path / "r", GRAPHS[attack](), facts={"machine": here() if machine == "this" else "another"})
    code = main(["replay", str(folder)])
    out, err = capfd.readouterr()
    assert not canary.exists(), (out, err)
    assert "\x1b" not in out + err
    if attack in ("the name of the graph", "a key of an argument"):  # which become harmless, or are refused by torch
        assert code in (0, 1, 2)
    else:
        assert (code, out) == (2, "") and err.startswith("ptdebug: "), (out, err)


@pytest.mark.parametrize("attack", [name for name in GRAPHS if name.startswith(("the ", "a default", "a second"))])
def test_what_is_code_is_not_run_with_trust_either(attack: str, tmp_path: Path, canary: Path,
                                                   capfd: pytest.CaptureFixture[str]) -> None:
    main(["replay", "--trust", str(craft(tmp_path / "r", GRAPHS[attack]()))])
    assert not canary.exists(), capfd.readouterr()


@pytest.mark.parametrize("name", [
    "torch.serialization.os.system", "torch.load", "torch.save", "torch.from_file", "torch.compile", "torch.jit.load",
    "torch.ops.load_library", "torch.classes.load_library", "torch.hub.load", "torch.Tensor.apply_",
    "torch.Tensor.__setstate__", "torch.Tensor.numpy", "torch.Tensor.untyped_storage", "torch.frombuffer",
    "torch.package.PackageImporter", "torch._C._jit_get_operation", "torch.autograd.Function.apply", "operator.call",
    "operator.attrgetter", "operator.itemgetter", "operator.methodcaller", "math.__loader__.load_module",
    "math.factorial", "builtins.exec", "builtins.compile", "builtins.open", "builtins.setattr", "builtins.type",
    "aten.from_file.default", "aten.from_file.out", "aten.save", "aten._print.default", "aten.__class__.__base__",
    "aten.add.Tensor.__class__", "aten.add", "profiler._record_function_enter.default", "c10d.send.default",
    "inductor._alloc_from_pool.default", "_test.leaky_relu.default", "symm_mem.get_remote_tensors.default",
    "torch.ops.higher_order.print", "torch.ops.higher_order.run_const_graph", "ptdebug.cli.main.main",
    "ptdebug.engine.runtime.runtime.load", "os.system", "subprocess.run", "importlib.import_module",
    "mkldnn.data_ptr.default",
    "", ".", "..", "torch.", "torch..load", "aten..default", "torch.nn.functional.torch.load",
])  # fmt: skip
def test_functions_that_graphs_do_not_call(name: str) -> None:
    with pytest.raises(ReplayError):
        resolve(name)


# ---- the program ----------------------------------------------------------------------------------------------------
@pytest.fixture
def program(tmp_path: Path, canary: Path) -> Path:
    """A program that a recording may claim to be of."""
    path = tmp_path / "crafted.py"
    path.write_text("def forward(x):\n    return x\nopen('canary', 'w').close()\n")
    return path


def replay(folder: Path, *options: str) -> int:
    return main(["replay", f"{folder}:0/0", *options])


def test_a_program_runs_where_its_signature_is_ours(tmp_path: Path, canary: Path, program: Path) -> None:
    signature = sign(["crafted.py"], str(tmp_path))
    replay(craft(tmp_path / "r", graph(), facts={"signature": signature}))
    assert canary.exists()


@pytest.mark.parametrize("forged", ["", "0" * 64, "é", "\n"])
def test_a_claim_is_no_signature(forged: str, tmp_path: Path, canary: Path, program: Path,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(craft(tmp_path / "r", graph(), facts={"machine": here(), "signature": forged})) == 0
    assert not canary.exists()
    assert "--trust runs it anyway" in capsys.readouterr().out


def test_trust_is_the_answer(tmp_path: Path, canary: Path, program: Path) -> None:
    replay(craft(tmp_path / "r", graph()), "--trust")
    assert canary.exists()


@pytest.mark.parametrize("changed", ["command", "folder", "script", "arguments", "module"])
def test_a_signature_holds_for_what_was_signed(changed: str, tmp_path: Path, canary: Path, program: Path) -> None:
    signature = sign(["crafted.py"], str(tmp_path))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "crafted.py").write_text(program.read_text())
    (tmp_path / "evil.py").write_text("open('canary', 'w').close()")
    facts: dict[str, Any] = {"signature": signature} | {
        "command": {"command": ["evil.py"]}, "folder": {"folder": str(tmp_path / "other")}, "script": {},
        "arguments": {"command": ["crafted.py", "--delete"]}, "module": {"command": ["-m", "evil"]},
    }[changed]
    if changed == "script":
        program.write_text("def forward(x):\n    return x\nopen('canary', 'w').close()  # changed\n")
    replay(craft(tmp_path / "r", graph(), facts=facts))
    assert not canary.exists() and not (tmp_path / "other" / "canary").exists()


def test_a_key_that_others_can_read_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptdebug.artifacts.signature import is_signed

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    signature = sign(["a.py"], "/")
    assert is_signed(["a.py"], "/", signature) and not is_signed(["b.py"], "/", signature)
    assert key_file().stat().st_mode & 0o777 == 0o600
    assert [path.name for path in key_file().parent.iterdir()] == ["recordings.key"]
    key_file().chmod(0o644)
    assert not is_signed(["a.py"], "/", signature)
    key_file().rename(tmp_path / "moved")
    (tmp_path / "moved").chmod(0o600)
    key_file().symlink_to(tmp_path / "moved")
    assert not is_signed(["a.py"], "/", signature)
    key_file().unlink()
    os.mkfifo(key_file(), 0o600)
    assert not is_signed(["a.py"], "/", signature)


def test_without_a_place_for_a_key_nothing_is_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert sign(["a.py"], "/") == ""


# ---- saved inputs ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("where", ["absolute", "above", "within and above", "link", "linked folder", "pipe", "folder",
                                   "nothing", "nul"])
def test_inputs_lie_inside_of_the_recording(where: str, tmp_path: Path, canary: Path,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    save_file({"input_0": torch.full((3,), 7.0)}, outside / "secret.safetensors")
    file = {"absolute": str(outside / "secret.safetensors"), "above": "../outside/secret.safetensors",
            "within and above": "tensors/../../outside/secret.safetensors", "linked folder": "more/secret.safetensors",
            "folder": "tensors", "nothing": "tensors/none", "nul": "tensors/\0"}.get(where, "tensors/other")
    folder = craft(tmp_path / "r", graph(), file=file)
    (folder / "more").symlink_to(outside)
    if where == "link":
        (folder / "tensors" / "other").symlink_to(outside / "secret.safetensors")
    elif where == "pipe":
        os.mkfifo(folder / "tensors" / "other")
    assert replay(folder) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("meta", [
    r.TensorMeta("float32", (4,), (1,), "cpu"), r.TensorMeta("float32", (3,), (1,), "cpu", offset=1),
    r.TensorMeta("float32", (2,), (1 << 40,), "cpu"), r.TensorMeta("float32", (2,), (-1,), "cpu"),
    r.TensorMeta("float32", (3,), (1,), "cpu", offset=-1), r.TensorMeta("float32", (-3,), (1,), "cpu"),
    r.TensorMeta("float32", (3,), (), "cpu"), r.TensorMeta("float64", (3,), (1,), "cpu"),
    r.TensorMeta("load", (3,), (1,), "cpu"), r.TensorMeta("float32", ("s0",), (1,), "cpu"),
    r.TensorMeta("float32", (1 << 62, 1 << 62), (0, 0), "cpu"), r.TensorMeta("float32", (10**30,), (1,), "cpu"),
])  # fmt: skip
def test_views_fit_the_memory_that_is_there(meta: r.TensorMeta, tmp_path: Path, canary: Path,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    folder = craft(tmp_path / "r", graph(node("torch.sin", X)), meta=meta)
    assert replay(folder) == 2
    err = capsys.readouterr().err
    assert err.startswith("ptdebug: ") and err.count("\n") == 1, err


def test_what_is_whole_is_replayed(tmp_path: Path, canary: Path) -> None:
    assert replay(craft(tmp_path / "r", graph(node("torch.sin", X), result=r.NodeRef("bad")))) == 0
    assert (tmp_path / "r" / TENSORS).is_file()


# ---- sizes ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text, value", [
    ("2*s0 + 1", 9), ("-s0**2", -16), ("(s0 + 1)//2", 2), ("s0 % 3", 1), ("Max(s0, s1, 7)", 10), ("s0/2", 2.0),
    ("s0 - s1 - 1", -7), ("2**s0", 16), ("-(-s0)", 4), ("PowByNatural(s0, 2)", 16), ("FloorToInt(1.5*ToFloat(s0))", 6),
    ("2**-1", 0.5), ("1e3*s0", 4000.0), ("  s0  ", 4), ("s0*-1", -4),
])
def test_sizes(text: str, value: float) -> None:
    assert size_value(text, {"s0": 4, "s1": 10}) == value


@pytest.mark.parametrize("text", [
    "9**9**9**9", "2**999999999", "(((((2**99)**99)**99)**99)**99)", "PowByNatural(9**9, 9**9)", "s0.real", "s0[0]",
    "__import__('os')", "lambda: 0", "s0 if s0 else 1", "1 << 99", "", "(", ")", "1 +", "* 2", "1 2", "f(1)", "Max()",
    "-" * 5000 + "1", "(" * 5000 + "1" + ")" * 5000, "1//0", "1%0", "10.0**400", "9" * 5000, "Max(" * 200 + "1", "s0=1",
    "s9", "'a'*9", "1e999", "1,2", "x" * 10**6,
])  # fmt: skip
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ReplayError):
        size_value(text, {"s0": 4, "s1": 10})


def test_a_graph_has_no_default_values() -> None:
    module = graph_module(graph(), {})
    assert "=" not in module.code.partition("def forward(self, x)")[2].partition(":")[0]
