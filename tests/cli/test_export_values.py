"""Exported packages against eager: arguments, weights and results that share memory, vary or change."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.cli.exporting import ExportError
from ptdebug.engine.package import InputError
from torch._subclasses import fake_impls


@pytest.fixture
def package(tmp_path: Path) -> Any:
    def made(model: Any, args: Any, **options: Any) -> Any:
        return ptdebug.load(ptdebug.export(model, args, **options).save(tmp_path / "model.ptd"))

    return made


def write_one(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.add_(1)
    return a, b * 2


def test_arguments_that_are_one_tensor_in_the_example_are_two_in_a_call(package: Any) -> None:
    x, y, both = torch.randn(4), torch.randn(4), torch.randn(4)
    assert torch.equal(package(lambda a, b: a * 2 + b, (both, both))(x, y), x * 2 + y)
    program, before = package(write_one, (both, both)), x.clone()
    first, second = program(x, y)
    assert first is x and torch.equal(x, before + 1) and torch.equal(second, y * 2)
    for shares in (x, x[:1].expand(4)):  # the graph would get a copy of the latter
        with pytest.raises(InputError, match="shares memory"):
            program(x, shares)
    program(x, torch.ones(1).expand(4))


def test_example_arguments_may_have_gaps_and_repeat(package: Any) -> None:
    x, y = torch.randn(4, 8)[:, ::2], torch.randn(4, 4)
    program = package(write_one, (torch.randn(4, 8)[:, ::2], torch.randn(4).expand(4, 4)))
    wanted = x + 1
    first, second = program(x, y)
    assert torch.equal(first, wanted) and torch.equal(second, y * 2)
    program, other = package(lambda a: (a, a + 1), (torch.randn(4, 4),)), y.t()
    assert program(other)[0] is other  # not the copy that the graph gets


class Named(torch.nn.Module):
    """A buffer with the name that a constant would get."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("constant1", torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.constant1 + CONSTANT


CONSTANT = torch.tensor([1.0, 2.0, 3.0])


def test_constants_have_names_of_their_own(package: Any) -> None:
    model, x = Named(), torch.randn(3)
    assert torch.allclose(package(model, (torch.randn(3),))(x), model(x))


def test_numbers_that_depend_on_arguments_are_computed_in_each_call(package: Any) -> None:
    def sizes(x: torch.Tensor) -> Any:
        return x * 2, x.shape, {"rows": x.shape[0] * 3, "sum": x.sum().item(), "any": x.any().item(), "kept": 3}

    program, x = package(sizes, (torch.zeros(4, 3),), dynamic_shapes=({0: "n"},)), torch.ones(7, 3)
    got, wanted = program(x), sizes(x)
    assert got[1:] == (tuple(wanted[1]), wanted[2]) and got[2]["any"] is True
    with pytest.raises(ExportError, match="used outside of the graph, in a text"):
        ptdebug.export(lambda x: (x + 1, f"{x.shape[0]} rows"), (x,), dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize("torch_2_11", [False, True])
def test_slices_up_to_a_size(package: Any, monkeypatch: pytest.MonkeyPatch, torch_2_11: bool) -> None:
    """An earlier torch did not know the size of such a slice where it must not look at the example's."""
    if torch_2_11:
        known = fake_impls._compute_slice_index
        monkeypatch.setattr(fake_impls, "_compute_slice_index", lambda size, index: (
            None if str(found := known(size, index)).startswith(("Min(", "Max(")) else found))
    kept = torch.randn(8, 3)

    def slices(x: torch.Tensor) -> Any:
        written = torch.zeros(8, 3)
        written[: x.shape[0]] = x
        return kept[: x.shape[0]] + x, x[:2], kept.narrow(0, 0, x.shape[0]) * 2, x[x[:, 0] > 0], written

    program = package(slices, (torch.randn(4, 3),), dynamic_shapes=({0: torch.export.Dim("n", max=8)},))
    for rows in (3, 8):
        x = torch.randn(rows, 3)
        for got, wanted in zip(program(x), slices(x), strict=True):
            assert torch.allclose(got, wanted)


def test_numbers_of_the_arguments_may_vary(package: Any) -> None:
    def scaled(x: torch.Tensor, n: int, options: dict[str, float]) -> Any:
        return (x * n + options["shift"])[:n] if n > 1 else x, n * 2

    x, shapes = torch.rand(6), {"n": torch.export.Dim("n", max=5), "options": {"shift": "shift"}}
    program = package(scaled, (x, 3, {"shift": 0.5}), dynamic_shapes=shapes)
    for n, shift in ((2, -1.25), (5, 0.0)):
        (got, twice), (wanted, double) = program(x, n, {"shift": shift}), scaled(x, n, {"shift": shift})
        assert torch.equal(got, wanted) and twice == double
    for wrong, why in ((1, "to be 2 to 5"), (6, "to be 2 to 5"), (3.0, "of type int"), (1 << 70, "64 bits")):
        with pytest.raises(InputError, match=why):
            program(x, wrong, {"shift": 0.5})


@pytest.mark.parametrize("model, why", [
    (lambda x, s: x * s if s > 0.3 else x, "compiled for .* > 0.3"), (lambda x, s: (x * s, f"{s}"), "cannot vary"),
    (lambda x, s: (x * s, s * 2), "is 1.0, which may come from the argument s"),
    (lambda x, s: x + 1, "s cannot vary"),
])
def test_numbers_that_decide_what_is_compiled_are_refused(model: Any, why: str) -> None:
    with pytest.raises(ExportError, match=why):
        ptdebug.export(model, (torch.rand(3), 0.5), dynamic_shapes={"s": "s"})


class Changing(torch.nn.Module):
    """A list that each call makes longer, and a table that the first call makes."""

    def __init__(self, grows: bool) -> None:
        super().__init__()
        self.grows, self.seen, self._table = grows, [], None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.grows:
            self.seen.append(x)
            return sum(self.seen)
        if self._table is None:
            self._table = torch.arange(2.0)
        return x * self._table


def test_a_model_that_changes_what_it_depends_on_is_refused(package: Any) -> None:
    x = torch.ones(2)
    for model in (Changing(True), Changing(False)):
        with pytest.raises(ExportError, match="changes what it depends on"):
            ptdebug.export(model, (x,))
    model(x)
    assert torch.equal(package(model, (x,))(x + 1), model(x + 1))


def test_hooks_and_compiled_modules_are_exported_with_what_they_do(package: Any) -> None:
    model, x = torch.nn.Linear(3, 3), torch.randn(2, 3)
    model.register_forward_hook(lambda module, args, result: result * 2)
    with torch.no_grad():
        assert torch.allclose(package(torch.compile(model), (x,))(x + 1), model(x + 1))


def test_why_a_graph_cannot_be_compiled_is_told() -> None:
    lazily = torch.randn(3, dtype=torch.complex64).conj()
    with pytest.raises(ExportError, match="an input is lazily conjugated"):
        ptdebug.export(lambda x: x * lazily, (torch.randn(3),))
    with pytest.raises(ExportError, match="works for one value of it only"):
        ptdebug.export(lambda x: x * 2 if x.shape[0] == 4 else x, (torch.ones(4),), dynamic_shapes=({0: "n"},))


def test_constants_are_compared_as_they_are(package: Any) -> None:
    program = package(lambda x, a, b: x * a + b, (torch.ones(2), 0.0, float("nan")))
    assert program(torch.ones(2), 0.0, float("nan")).isnan().all()
    with pytest.raises(InputError, match=r"a has to be 0\.0, with which it was exported, not -0\.0"):
        program(torch.ones(2), -0.0, float("nan"))
    with pytest.raises(ExportError, match="an integer of more than 64 bits"):
        ptdebug.export(lambda x, a: x + (a >> 70), (torch.ones(2), 1 << 70))


def test_autocast_of_the_caller_and_classes_of_tensors(package: Any) -> None:
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inside: torch.Tensor) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype)

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise NotImplementedError

    model, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    program = package(model, (torch.randn(4, 8),))
    with torch.autocast("cpu", torch.bfloat16):
        got = program(torch.nn.Parameter(x))
    assert got.dtype is torch.float32 and torch.allclose(got, model(x), atol=1e-5)
    with pytest.raises(InputError, match=r"input has to be a plain tensor, not a .*Wrapper"):
        program(Wrapper(x))
    with pytest.raises(TypeError):
        program.weights["weight"] = x


def test_symbols_are_told_by_their_names() -> None:
    count = 12
    args = tuple(torch.randn(k + 2) for k in range(count))
    told = repr(ptdebug.export(lambda *args: sum(x.sum() for x in args), args,
                               dynamic_shapes=tuple({0: f"s{k}x"} for k in range(count))))
    assert all(f"float32 [s{k}x] on cpu" in told for k in range(count))


class Views(torch.nn.Module):
    """Two buffers on one memory, beside each other or not, one of which is written."""

    def __init__(self, apart: bool) -> None:
        super().__init__()
        both = torch.zeros(2, 4, dtype=torch.complex128)
        self.register_buffer("keys", both[:, :2] if apart else both[:, :3])
        self.register_buffer("values", both[:, 2:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keys.add_(x)
        return self.keys.sum() + self.values.sum()


def test_weights_that_share_memory(package: Any) -> None:
    x = torch.ones((), dtype=torch.complex128)
    with pytest.raises(ExportError, match="keys is written and shares memory with values"):
        ptdebug.export(Views(False), (x,))
    model = Views(True)
    exported = ptdebug.export(model, (x,))
    program, loaded = exported.program(), package(model, (x,))
    for _ in range(2):
        assert torch.equal(program(x), loaded(x))
    assert torch.equal(program.weights["keys"], torch.full((2, 2), 2.0, dtype=x.dtype))
    assert not model.keys.any() and not exported.program().weights["keys"].any()


def test_earlier_examples_make_no_size_and_no_number_dynamic() -> None:
    def scaled(x: torch.Tensor, scale: int) -> torch.Tensor:
        return x * scale

    points = {f"rows{k}": ptdebug.EntryPoint((torch.ones(k, 2), k)) for k in (2, 3, 5)}
    program = ptdebug.export(scaled, entry_points=points).program()
    for k in (2, 3, 5):
        assert torch.equal(program[f"rows{k}"](torch.ones(k, 2), k), torch.full((k, 2), float(k)))
        assert not program[f"rows{k}"].signature.symbols


def test_names_of_entry_points_and_arguments() -> None:
    x = torch.ones(2)
    with pytest.raises(ValueError, match="'é' needs a name of letters"):
        ptdebug.export(lambda x: x + 1, entry_points={"é": ptdebug.EntryPoint((x,))})
    program = ptdebug.export(lambda self, x: self + x, (x, x)).program()
    assert torch.equal(program(self=x, x=x), x * 2) and torch.equal(program["forward"](x, x=x), x * 2)


def test_example_sizes_have_to_fit_the_dimensions() -> None:
    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() + y.sum()

    for sizes, dim, words in (((1, 3), "n", "dimension 0 of x is 1 in the example"),
                              ((4, 3), "n", "n has two sizes in the example"),
                              ((9, 9), torch.export.Dim("n", max=8), "outside of the bounds of n")):
        with pytest.raises(ValueError, match=words):
            ptdebug.export(both, tuple(map(torch.ones, sizes)), dynamic_shapes=({0: dim}, {0: dim}))
