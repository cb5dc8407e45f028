"""The state of the process around a call, what its tensors share, and by what it is known again."""
from __future__ import annotations

import enum
import functools
import random
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import ptdebug
import pytest
import torch
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Autocast
from ptdebug.replay.failures.case import Case
from ptdebug.replay.program.identity import describe, describe_at, identify
from ptdebug.replay.program.places import MISSING, Objects, look_in
from ptdebug.replay.recorded.inputs import clones, kept_or_made_up, load_random
from ptdebug.replay.recorded.memory import pieces, seen
from ptdebug.replay.recorded.state import FLAGS, deterministic, read_state, restored
from ptdebug.replay.repro.graphs import write_repro
from ptdebug.tracer.frames import dispatch


# ---- state ----------------------------------------------------------------------------------------------------------
def other(value: Any) -> Any:
    """Another value of a flag."""
    words = {"off": "warn", "highest": "high", "none": "ieee"}
    return not value if isinstance(value, bool) else words.get(value, value)


def test_the_state_is_that_of_the_call_and_afterwards_as_before() -> None:
    before = read_state()
    flags = {name: other(value) for name, value in before.flags.items()}
    state = msgspec.structs.replace(
        before, grad=False, dtype="float64", device="meta", autocast_cache=False, flags=flags,
        autocast={"cpu": Autocast(True, "float16"), "cuda": Autocast(True, "bfloat16")})
    with restored(state):
        inside = read_state()
        assert torch.empty(1).dtype == torch.float64 and torch.empty(1).is_meta
        assert not torch.is_grad_enabled()
    assert (inside.grad, inside.dtype, inside.device, inside.autocast, inside.autocast_cache) == (
        state.grad, state.dtype, state.device, state.autocast, state.autocast_cache)
    changed = {name for name in FLAGS if inside.flags.get(name) != before.flags.get(name)}
    assert {"deterministic_algorithms", "float32_matmul_precision", "mkldnn_enabled", "cudnn_enabled", "sdp_flash",
            "fill_uninitialized_memory"} <= changed
    assert read_state() == before


def test_inference_mode() -> None:
    with torch.inference_mode():
        state = read_state()
    assert state.inference
    with restored(state):
        assert torch.is_inference_mode_enabled()
    assert not torch.is_inference_mode_enabled()


def test_what_torch_does_not_know_stays_as_it_is() -> None:
    before = read_state()
    flags: dict[str, bool | str] = {"float32_matmul_precision": "nothing", "nothing": True, "mkldnn_enabled": "x"}
    casts = {"cpu": Autocast(True, "nothing"), "tpu": Autocast(True, "bfloat16")}
    with restored(msgspec.structs.replace(before, dtype="load", flags=flags, autocast=casts)):
        assert read_state() == before


def test_random_numbers_start_from_the_state_of_the_call(tmp_path: Path) -> None:
    dispatch.reset()
    torch.manual_seed(11)
    torch.rand(3)
    with ptdebug.record("r", str(tmp_path)):
        result = ptdebug.compile(lambda x: x + torch.rand(4))(torch.zeros(4))
    with Recording.open(tmp_path / "r") as recording:
        kept = recording.artifact(recording.compiles()[0].id, "runtime", "inputs")
        with restored(kept.state, load_random(recording.path, kept)), deterministic():
            assert torch.equal(torch.rand(4), result)
        (script, _) = write_repro(tmp_path / "repro.py", Case.from_recording(recording, recording.compiles()[0].id))
    function, arguments = runpy.run_path(str(script))["started"]()
    assert torch.equal(function(*arguments)[0], result)
    after = torch.get_rng_state()
    with deterministic():
        torch.rand(4)
    assert torch.equal(torch.get_rng_state(), after)


class Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


@pytest.mark.parametrize("function", [
    lambda x: Dropped.apply(x) + 1, lambda x: torch.binomial(x.detach(), torch.full_like(x, 0.5)),
], ids=["inner", "name"])
def test_scripts_know_what_draws(tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    dispatch.reset()
    torch.manual_seed(11)
    torch.rand(3)
    with ptdebug.record("r", str(tmp_path)) as recording:
        result = ptdebug.compile(function, backend="eager")(torch.full((16,), 9.0, requires_grad=True))
    (script, _) = write_repro(tmp_path / "repro.py", Case.from_recording(recording, recording.compiles()[0].id))
    assert "Random numbers start as they did at the recorded call." in script.read_text()
    drawn, arguments = runpy.run_path(str(script))["started"]()
    assert torch.equal(drawn(*arguments)[0], result)


# ---- memory ---------------------------------------------------------------------------------------------------------
def tensors() -> dict[str, tuple[torch.Tensor, ...]]:
    x, c = torch.arange(24.0).view(4, 6), torch.randn(4, dtype=torch.complex64)
    array = np.arange(10.0)
    return {
        "row": (x, x[1]), "flat": (x, x.view(-1)), "transposed": (x.t(), x), "detached": (x, x.detach()),
        "slices": (x[:2], x[1:3]), "far apart": (x[0], x[3]), "dtypes": (x, x.view(torch.int32)),
        "narrow": (x.view(-1)[1:5], x.view(torch.int16)[0, 3:9], x.view(torch.uint8)[0, 5:7]),
        "expanded": (x[:, :1].expand(4, 6), x), "empty": (x[:0], torch.empty(0, 3)), "number": (torch.tensor(2.0),),
        "lazy": (c.conj(), c), "negative": (c.conj().imag, c), "overlapping arrays": (
            torch.from_numpy(array[:6]), torch.from_numpy(array[4:])),
        "ones": (torch.empty_strided((3, 1, 2), (2, 77, 1)).fill_(1.0),), "bools": (x > 3, (x > 3).view(torch.uint8)),
    }  # fmt: skip


@pytest.mark.parametrize("name", tensors())
def test_tensors_come_back_as_they_were(name: str) -> None:
    given = tensors()[name]
    found = pieces({str(i): t for i, t in enumerate(given)})
    made = []
    for number, tensor in enumerate(given):
        piece = next(piece for piece in found if str(number) in piece.offsets)
        made.append((piece, seen(piece.flat.clone(), tensor.dtype, tensor.shape, tensor.stride(),
                                 piece.offsets[str(number)], tensor.is_conj(), tensor.is_neg())))
    for tensor, (_, other) in zip(given, made):
        assert torch.equal(other, tensor) and other.stride() == tensor.stride()
        assert (other.is_conj(), other.is_neg()) == (tensor.is_conj(), tensor.is_neg())
    if len(given) > 1 and name not in ("empty", "far apart", "bools"):
        assert len(found) == 1
    for one, other in zip(given, clones(given)):
        assert (torch.equal(one, other) and one.stride() == other.stride() and one.data_ptr() != other.data_ptr()) or (
            not one.numel())


def test_copies_share_memory_as_their_originals() -> None:
    x = torch.arange(6.0)
    for given in ((x, x.view(2, 3)), (x, x.view(torch.int32))):
        one, two = clones(given)
        one.fill_(7)
        assert torch.equal(two, one.view(two.dtype).view(two.shape))
        assert x[1] == 1
    with pytest.raises(TypeError, match="several dtypes"):
        clones((x, x.view(torch.int32)), "cpu", torch.float64)


REFUSED: dict[str, tuple[Callable[[], torch.Tensor], Callable[[torch.Tensor], torch.Tensor], str]] = {
    "sparse": (lambda: torch.eye(3).to_sparse(), lambda x: torch.sparse.mm(x, torch.ones(3, 2)), "sparse_coo"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_strided_memory_is_said(name: str, tmp_path: Path) -> None:
    make, function, why = REFUSED[name]
    dispatch.reset()
    with ptdebug.record("r", str(tmp_path)):
        ptdebug.compile(function)(make())
    with Recording.open(tmp_path / "r") as recording:
        for info in recording.compiles():
            if "capture" not in recording.stages(info.id):
                continue
            kept = recording.artifact(info.id, "runtime", "inputs")
            if any(item.unsaved for item in kept.inputs):
                with pytest.raises(ptdebug.replay.recorded.graphs.ReplayError, match=why):
                    kept_or_made_up(recording, info.id, recording.artifact(info.id, "capture"))


def test_runs_on_the_cpu_do_not_start_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of fork, in which a recording is replayed, cannot, where there is a GPU."""
    def start(*_: Any) -> Any:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_rng_state", start)
    with deterministic():
        one = torch.rand(3)
    with deterministic():
        assert torch.equal(torch.rand(3), one)


# ---- identity -------------------------------------------------------------------------------------------------------
class Kind(enum.Enum):
    ONE = 1
    TWO = 2


def multiplied_by(factor: Any) -> Callable[[Any], Any]:
    def multiply(x: Any) -> Any:
        return x * factor
    return multiply


def with_default(x: Any, factor: float = 2.0) -> Any:
    return x * factor


PAIRS: dict[str, tuple[Any, Any]] = {
    "functions of torch": (torch.sin, torch.cos), "numbers": (1, 1.0), "truth": (1, True), "floats": (0.1, 0.2),
    "zeros": (0.0, -0.0), "strings": ("a", "b"), "long strings": ("a" * 999, "a" * 998 + "b"), "none": (None, False),
    "lambdas": (lambda x: x + 1, lambda x: x + 2), "closures": (multiplied_by(2), multiplied_by(3)),
    "closures over functions": (multiplied_by(torch.sin), multiplied_by(torch.cos)),
    "partials": (functools.partial(torch.add, other=1), functools.partial(torch.add, other=2)),
    "enumerations": (Kind.ONE, Kind.TWO), "classes": (int, float), "dtypes": (torch.float32, torch.float64),
    "devices": (torch.device("cpu"), torch.device("meta")), "lists": ([1, 2], (1, 2)), "dicts": ({"a": 1}, {"a": 2}),
    "keys": ({"a": 1}, {"b": 1}), "sets": ({1, 2}, {1, 3}), "modules": (torch.nn.ReLU(), torch.nn.Tanh()),
    "training": (torch.nn.ReLU(), torch.nn.ReLU().eval()), "methods": ([].append, {}.update),
    "operators": (torch.ops.aten.sin.default, torch.ops.aten.cos.default), "python modules": (random, np),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_other_objects_have_other_descriptions(name: str) -> None:
    one, other = PAIRS[name]
    assert describe(one) != describe(other)
    assert describe(one) == describe(one)


def test_what_no_description_distinguishes_is_said() -> None:
    class Thing:
        def __repr__(self) -> str:
            raise AssertionError("code of the program runs")

        __eq__ = __hash__ = __repr__  # type: ignore[assignment]

    for value in (Thing(), [Thing()], multiplied_by(Thing())):
        assert describe(value)[1] is False
    assert describe(Kind.ONE)[1] and describe(multiplied_by(2))[1] and describe(with_default)[1]
    variables = {"a": torch.sin, "b": Thing(), "x": torch.ones(2), "y": 3}
    variables["z"] = variables["x"]
    guards = [("L['a']", "ID_MATCH", ""), ("L['b']", "ID_MATCH", ""), ("L['b']", "TYPE_MATCH", ""),
              ("L['z']", "DUPLICATE_INPUT", "L['z'] is L['x']"), ("L['x']", "TENSOR_MATCH", ""),
              ("L['q'][f()]", "EQUALS_MATCH", "")]
    found = identify(with_default.__code__, variables, {}, guards, ["y", "b"], 1.0)
    assert found.unsure == ("L['b']", "L['q'][f()]")
    assert found.values["L['z'] is L['x']"] == "True" and found.values["L['y']"] == "int 3"
    for key, value in found.values.items():
        again = describe_at(Objects(variables, {}), key)
        assert again is not None and again[0] == value, key
    assert describe_at(Objects({**variables, "z": torch.ones(2)}, {}), "L['z'] is L['x']") == ("False", True)


class Held:
    def __init__(self) -> None:
        self.b = {"x.y": [1, {"": 5, "q']": 7, 'w"': 8, "a][b": 9}], True: 2}


PLACES = (
    "L['a'].b['x.y'][0]", "L['a'].b['x.y'][-1]['']", "L['a'].b['x.y'][1][\"q']\"]", "L['a'].b['x.y'][1]['w\"']",
    "L['a'].b['x.y'][1]['a][b']", "L['a']._orig_mod.b", "L['a'] .b", "L['a'].b[True]",
)
NOWHERE = ("L", "", "L['z']", "G['a']", "L['a'].c.d", "f(L['a']).b", "L['a'].b['x.y'][01]", "L['a'].b[None]")


@pytest.mark.parametrize("place", PLACES + NOWHERE)
def test_shared_steps_lead_where_single_walks_do(place: str) -> None:
    variables = {"a": Held()}
    found = Objects(variables, {}).at(place)
    assert found is look_in(variables, {}, place)
    assert (found is MISSING) == (place in NOWHERE)
