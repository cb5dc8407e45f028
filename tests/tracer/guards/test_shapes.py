"""Which sizes become symbols, and the conditions on them."""
from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from ptdebug.operators.dynamo_stubs import without_dynamo
from ptdebug.tracer.shapes.dynamic_policy import DynamicPolicy
from ptdebug.tracer.shapes.frame_shapes import FrameShapes
from ptdebug.tracer.sources.roots import LocalSource

A, B = LocalSource("a"), LocalSource("b")


def sizes(policy: DynamicPolicy, tensor: torch.Tensor) -> tuple[int | None, ...]:
    return policy.tensor(A, tensor)[0]


def test_a_size_that_changed_is_dynamic_from_then_on():
    history: dict = {}
    assert sizes(DynamicPolicy(history), torch.zeros(3, 4)) == (3, 4)
    assert sizes(DynamicPolicy(history), torch.zeros(5, 4)) == (None, 4)
    assert sizes(DynamicPolicy(history), torch.zeros(5, 4)) == (None, 4)
    assert sizes(DynamicPolicy(history), torch.zeros(5, 6)) == (None, None)
    assert sizes(DynamicPolicy(history), torch.zeros(5)) == (5,)  # another rank begins anew


def test_dynamic_option_and_marks():
    tensor = torch.zeros(3, 4)
    assert sizes(DynamicPolicy({}, True), tensor) == (None, None)
    assert sizes(DynamicPolicy({"L['a']": ((7, 7), (7, 1))}, False), tensor) == (3, 4)
    tensor._dynamo_dynamic_indices = {0}
    assert sizes(DynamicPolicy({}), tensor) == (None, 4)
    tensor._dynamo_static_indices = {1}
    assert sizes(DynamicPolicy({}, True), tensor) == (None, 4)
    assert sizes(DynamicPolicy({}, True), torch.nn.Parameter(torch.zeros(3, 4))) == (3, 4)


def test_ints():
    history: dict = {}
    with without_dynamo():
        assert FrameShapes(DynamicPolicy(history)).symbolic_int(3, A) == 3
        assert FrameShapes(DynamicPolicy(history)).symbolic_int(3, A) == 3
        shapes = FrameShapes(DynamicPolicy(history))
        symbol = shapes.symbolic_int(5, A)
        assert isinstance(symbol, torch.SymInt)
        assert isinstance(FrameShapes(DynamicPolicy(history, False)).symbolic_int(5, A), int)


def make(shape: tuple[int, ...], order: tuple[int, ...]) -> torch.Tensor:
    """A dense tensor whose dimensions lie in memory in `order`."""
    inverse = sorted(range(len(shape)), key=order.__getitem__)
    return torch.zeros([shape[i] for i in order]).permute(inverse)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple), st.randoms())
def test_fakes_have_the_metadata_of_the_real(shape, random):
    order = tuple(random.sample(range(len(shape)), len(shape)))
    tensor = make(shape, order)
    with without_dynamo():
        shapes = FrameShapes(DynamicPolicy({}, True))
        fake = shapes.fakify(tensor, A)
        assert fake is shapes.fakify(tensor, B)  # the same tensor
        hints = [d.node.hint if isinstance(d, torch.SymInt) else d for d in (*fake.size(), *fake.stride())]
        assert hints == [*tensor.size(), *tensor.stride()]
        static, strides = shapes.static_dims(tensor)
        assert all(s == d for s, d in zip((*static, *strides), hints) if s is not None)
        for size, number in zip(tensor.size(), static):
            assert (number is None) == (size >= 2)


def test_leaf_and_requires_grad():
    leaf = torch.zeros(3, 4, requires_grad=True)
    with without_dynamo():
        for dynamic in (False, True):
            shapes = FrameShapes(DynamicPolicy({}, dynamic))
            fake, result = shapes.fakify(leaf, A), shapes.fakify(leaf * 2, B)
            assert fake.requires_grad and fake.is_leaf and result.requires_grad and not result.is_leaf
            assert fake.dtype is leaf.dtype and fake.device == leaf.device


def accepted(make_guards, traced, program, *arguments, history=None, option=True):
    """Trace `program` on the fakes of `traced`; which of `arguments` do the conditions accept?"""
    guarded = make_guards(*traced)
    guarded.shapes.policy.dynamic = option
    fakes = []
    for source, value in zip((A, B), traced):
        if isinstance(value, torch.Tensor):
            fakes.append(guarded.shapes.fakify(value, source))
            guarded.add(source, "TENSOR_MATCH", value)
        else:
            guarded.shapes.policy.history[source.expression] = None
            fakes.append(guarded.shapes.symbolic_int(value, source))
            guarded.add(source, "TYPE_MATCH", int)
    with guarded.shapes.fake_mode:
        program(*fakes)
    assert guarded.accepts(*traced)
    return [guarded.accepts(*a) for a in arguments], guarded


def zeros(*shapes):
    return [torch.zeros(shape) for shape in shapes]


def test_conditions_of_one_size(make_guards):
    def program(a, b):
        if a.shape[0] * 2 > 10:
            return a + 1
        return a

    results, guarded = accepted(
        make_guards, zeros((7, 4), (2,)), program, zeros((6, 4), (3,)), zeros((5, 4), (2,)), zeros((9, 1), (2,)),
        zeros((9, 2), (2,)),
    )
    assert results == [True, False, False, True]
    reason = guarded.why(*zeros((5, 4), (2,)))
    assert reason.guard == "2*L['a'].size()[0] > 10" and reason.actual == "a.size(0) is 5"


def test_conditions_between_sizes(make_guards):
    results, guarded = accepted(
        make_guards, zeros((7, 4), (4, 3)), torch.matmul, zeros((2, 5), (5, 6)), zeros((2, 5), (6, 5)),
    )
    assert results == [True, False]
    reason = guarded.why(*zeros((2, 5), (6, 5)))
    assert "size()" in reason.guard and reason.actual == "b.size(0) is 6, a.size(1) is 5"


def test_equal_sizes_share_a_symbol_and_are_compared(make_guards):
    results, _ = accepted(make_guards, zeros((4, 4), (4,)), lambda a, b: a, zeros((5, 5), (5,)), zeros((5, 6), (5,)))
    assert results == [True, False]


def test_layout_is_kept(make_guards):
    tensor = torch.zeros(2, 3, 4)
    results, _ = accepted(
        make_guards, [tensor, 2], lambda a, b: a, (torch.zeros(5, 6, 7), 2), (torch.zeros(5, 7, 6).transpose(1, 2), 2),
        (torch.zeros(5, 6, 8)[..., :7], 2),
    )
    assert results == [True, False, False]


def test_ints_in_conditions(make_guards):
    def program(a, b):
        return a[:b] if b < a.shape[0] else a

    results, _ = accepted(
        make_guards, [torch.zeros(8), 3], program, (torch.zeros(9), 8), (torch.zeros(9), 9), (torch.zeros(9), True),
        (torch.zeros(2), -1),
    )
    assert results[:3] == [True, False, False]


@pytest.mark.parametrize("size", [0, 1])
def test_zero_and_one_are_special(make_guards, size):
    results, _ = accepted(
        make_guards, zeros((size, 4), (2,)), lambda a, b: a, zeros((size, 4), (2,)), zeros((3, 4), (2,)),
    )
    assert results == [True, False]


def test_strides_that_changed_are_symbols_too(make_guards):
    history: dict = {}
    DynamicPolicy(history).tensor(A, torch.zeros(3, 8)[:, :4])
    guarded = make_guards(torch.zeros(3, 9)[:, :4], history=history)
    guarded.shapes.fakify(guarded.builder.value(A), A)
    guarded.add(A, "TENSOR_MATCH")
    assert guarded.accepts(torch.zeros(3, 10)[:, :4]) and not guarded.accepts(torch.zeros(3, 10)[:, :5])


def test_group_norm_of_symbolic_sizes_has_the_reference_layouts():
    from ptdebug.tracer.shapes.fake_mode import CaptureFakeMode
    from ptdebug.tracer.shapes.shape_env import CaptureShapeEnv
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    images = [torch.randn(2, 8, 4, 5), torch.randn(2, 8, 4, 5).to(memory_format=torch.channels_last),
              torch.randn(2, 8, 7), torch.randn(2, 8), torch.randn(2, 8, 4, 5, dtype=torch.bfloat16)]
    for image in images:
        mode = CaptureFakeMode(shape_env=CaptureShapeEnv())
        kinds = [DimDynamic.STATIC if d == 1 else DimDynamic.DYNAMIC for d in range(image.dim())]
        fake = mode.from_tensor(image, symbolic_context=StatelessSymbolicContext(kinds))
        expected = torch.native_group_norm(image, None, None, 2, 8, image[0, 0].numel(), 4, 1e-5)
        with mode:
            result = torch.native_group_norm(fake, None, None, fake.shape[0], 8, 1, 4, 1e-5)
        for made, wanted in zip(result, expected):
            sizes = [tuple(map(int, v)) for v in (made.shape, made.stride())]
            assert sizes == [tuple(wanted.shape), tuple(wanted.stride())] and made.dtype == wanted.dtype
