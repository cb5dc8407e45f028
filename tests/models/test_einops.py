"""Functions and layers of einops, where it is installed: captured whole, with the values and errors of eager."""
# mypy: ignore-errors
from __future__ import annotations

import warnings

import ptdebug
import pytest
import torch
from ptdebug.tracer.runtime.statistics import STATISTICS

from tests.programs.checking import Programs, call, check, check_whole, trained

einops = pytest.importorskip("einops")
layers = pytest.importorskip("einops.layers.torch")

program = Programs()
X = torch.arange(48.0).view(2, 4, 6)


@program
def functions(compile):
    def fn(x, p, h):
        b, n = x.shape[:2]
        shape = einops.parse_shape(x, "b _ d")
        found = [
            einops.rearrange(x, "b n (h d) -> b h n d", h=h), einops.rearrange([x, p], "i b n d -> b n i d"),
            einops.rearrange(x, "b ... -> ... b"), einops.rearrange(x, "b (n 1) d -> b () n d"),
            einops.reduce(x, "b (n two) d -> b n d", "max", two=2), einops.reduce(x, "b n d -> d", torch.sum),
            *[einops.reduce(x, "b n d -> b () d", how) for how in ("min", "sum", "mean", "prod")],
            einops.reduce(x > 3, "b n d -> b", "any"), einops.repeat(p, "b n d -> b r n (d 2)", r=n),
            einops.einsum(x, p, "b i d, b j d -> b i j"),
        ]  # fmt: skip
        packed, shapes = einops.pack([x, p[:, 0], p[0, 0, 0].expand(b)], "b *")
        parts = einops.unpack(packed, shapes, "b *"), einops.unpack(x, [[1], [-1]], "b n *")
        return found, shape, packed, shapes, parts

    f = compile(fn)
    sizes = [(2, 4, 6), (2, 4, 6), (3, 4, 6), (5, 8, 6), (1, 4, 2)]
    data = [torch.arange(float(a * b * c)).view(a, b, c) for a, b, c in sizes]
    return [f(x, torch.nn.Parameter(x + 1), h=2) for x in data]


@program
def layers_in_a_model(compile):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        layers.Rearrange("b n (h d) -> b h n d", h=2), torch.nn.Linear(3, 4),
        layers.EinMix("b h n d -> b n (h c)", weight_shape="h d c", bias_shape="h c", h=2, d=4, c=5),
        layers.Reduce("b (n two) d -> b n d", "mean", two=2),
    )  # fmt: skip
    f, results = compile(model), []
    for x in (X, X, X[:1], torch.cat([X, X])):
        y = f(x)
        results.append((y, trained(model, y)))
    return results


@program
def errors(compile):
    def fn(x, pattern, sizes):
        found = []
        for function in (einops.rearrange, einops.repeat, lambda x, p, **sizes: einops.reduce(x, p, "sum", **sizes)):
            try:
                found.append(function(x, pattern, **sizes))
            except einops.EinopsError as error:
                found += [type(error), str(error), type(error.__cause__), error.__suppress_context__]
        return x + 1, found

    f = compile(fn)
    named = [
        ("b n (h d) -> b h n d", {"h": 4}), ("b n d -> b n", {}), ("b n -> n b", {}), ("b (n -> b", {}),
        ("b n d -> b n d x", {}), ("b n (h d) -> b n h d", {}), ("b b d -> d", {}),
    ]  # fmt: skip
    return [f(X, pattern, sizes) for pattern, sizes in named]


def forget():
    """As in a process in which nothing has called einops yet."""
    einops._backends._type2backend.clear()
    einops._backends._loaded_backends.clear()
    einops.einops._prepare_transformation_recipe.cache_clear()


@pytest.mark.parametrize("name", program)
def test_einops_is_captured_whole(name):
    def use(compile):
        forget()
        return program[name](compile)

    check_whole(use)


def test_the_second_call_finds_what_the_first_one_kept():
    forget()
    f = ptdebug.compile(lambda x, p: einops.rearrange(x, "b n d -> n (b d)") + einops.repeat(p, "n -> n c", c=12))
    STATISTICS.clear()
    for _ in range(3):
        f(X, torch.nn.Parameter(torch.ones(4)))
    assert STATISTICS.graphs == 1 and not STATISTICS.reasons


@pytest.mark.parametrize("action", ["always", "error"])
def test_warnings_about_names_are_shown_as_in_eager(action):
    def use(compile):
        forget()
        f = compile(lambda x, pattern: (x + 1, einops.rearrange(x, pattern)))
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter(action)
            found = [call(f, X, pattern) for pattern in ("b n if -> if n b", "b n if -> if n b", "b n d -> d n b")]
        return found, [(str(warning.message), warning.category, warning.lineno) for warning in shown]

    check(use)


def test_a_layer_is_compiled_once_for_all_sizes():
    def use(compile):
        f = compile(lambda x: einops.rearrange(x, "b n (h d) -> (b h) n d", h=2), dynamic=True)
        return [f(torch.arange(float(n * 24)).view(n, 4, 6)) for n in (2, 3, 5, 7)]

    STATISTICS.clear()
    check(use)
    assert STATISTICS.graphs == 1 and not STATISTICS.reasons
