"""What the fuzz found that kernels cannot say exactly, and that stays with eager."""
from __future__ import annotations

import pytest
import torch
from ptdebug.engine.unsupported import EngineUnsupported

from .fuzz_capture import faked
from .fuzz_graphs import check, results_of
from .fuzz_programs import V0, V1, A, B, C, Ref, given, program


def test_a_loss_kept_whole_has_the_dtype_of_its_first_argument_or_stays_with_eager():
    mixed = program([given("a", (4,)), given("b", (4,), torch.float64)], ("F.soft_margin_loss", (A, B), {}))
    with pytest.raises(EngineUnsupported, match="its fake kernel"):
        next(results_of([mixed], {"decompose:*": "keep"}))


def test_memory_between_elements_in_another_dtype_stays_with_eager():
    gaps = program([given("a", (7,), torch.float64, (2,))], ("torch.Tensor.view", (A, torch.int64), {}),
                   ("torch.as_strided", (V0, (4, 4), (2, 1), 0), {}), ("torch.add", (V1, 1), {}))
    with pytest.raises(EngineUnsupported, match="memory around"):
        next(results_of([gaps], {}))


def test_a_copy_whose_elements_share_memory_is_written_by_eager_at_sizes_that_vary():
    windows = [given("a", (17,)), given("b", (2,)), given("c", (16, 2), torch.bool)]
    made = program(windows, ("torch.Tensor.unfold", (A, -1, 2, 1), {}), ("torch.select_scatter", (V0, B, -2, -9), {}),
                   ("torch.Tensor.masked_fill_", (V1, C, 3), {}), ("torch.chunk", (Ref("v2"), 2, -2), {}),
                   ("operator.getitem", (Ref("v3"), 1), {}))
    for dynamic in (False, True):
        assert not check([made], {}, dynamic)
        with pytest.raises(EngineUnsupported, match="share memory"):
            next(results_of([made], {}, dynamic))


@pytest.mark.parametrize("calls", (
    (("torch.Tensor.expand", (A, (2, 4)), {}), ("torch.Tensor.masked_fill_", (V0, B, 7.0), {})),
    (("torch.Tensor.sub_", (A, 1.5), {}), ("torch.as_strided", (A, (4, 1), (2, 1), 0), {})),
    (("torch.as_strided", (A, (4, 1), (2, 1), 0), {}), ("torch.Tensor.sub_", (V0, 1.5), {})),
    (("torch.Tensor.unfold", (A, 0, 3, 3), {}), ("torch.Tensor.sub_", (V0, 1.5), {})),
    (("torch.clone", (A,), {}), ("torch.as_strided", (V0, (3, 2), (1, 1), 0), {}),
     ("torch.Tensor.sub_", (V1, 1.5), {})),
    (("torch.Tensor.view", (A, torch.int32), {}), ("torch.as_strided", (V0, (4, 2), (2, 1), 0), {})),
    (("torch.as_strided", (A, (4, 2), (2, 2), 0), {}), ("torch.slice_scatter", (V0, Ref("c"), 0, 0, 2), {})),
    (("torch.slice_scatter", (A, Ref("d"), 0, 1, 3), {}), ("torch.as_strided", (V0, (2, 3), (2, 1), 0), {})),
), ids=("a write to an expanded view", "memory between written elements", "a write between elements",
        "a write to windows that leave an element out", "a write to windows that share elements",
        "memory between elements in another dtype", "a copy whose elements share memory",
        "memory between elements of a copy"))
def test_what_no_functional_graph_says_exactly_stays_with_eager(calls):
    source = given("a", (4,), stride=(3,))
    with pytest.raises(EngineUnsupported):
        others = given("b", (2, 4), torch.bool), given("c", (2, 2)), given("d", (2,))
        next(results_of([program([source, *others], *calls)], {}))


@pytest.mark.parametrize("call", (
    ("torch.select_scatter", (A, B, 0, 3), {}), ("torch.select_scatter", (A, B, 0, -4), {}),
    ("torch.select_scatter", (A, Ref("c"), 0, 0), {}), ("torch.slice_scatter", (A, B, 0, 0, 2), {}),
), ids=("behind the last", "before the first", "a part of another shape", "fewer dimensions"))
def test_a_part_that_is_not_there_stays_with_eager_which_raises(call):
    """At sizes that vary, fake tensors refuse it before the engine sees it, as they do while a function is traced."""
    wrong = program([given("a", (3, 4)), given("b", (4,)), given("c", (1,))], call)
    with pytest.raises(EngineUnsupported, match="raises in eager"):
        next(results_of([wrong], {}))
    assert faked([wrong], dynamic=True) == [] and len(faked([wrong], dynamic=False)) == 1


@pytest.mark.parametrize("shape", ((0, 8, 2, 16), (3, 8, 4, 0)))
def test_pixels_of_nothing_stay_with_eager_which_does_not_move_them(shape):
    with pytest.raises(EngineUnsupported, match="no elements"):
        next(results_of([program([given("a", shape)], ("F.pixel_unshuffle", (A, 2), {}))], {}))


@pytest.mark.parametrize("function", ("torch.median", "torch.nanmedian"))
def test_medians_of_rows_that_are_one_element_stay_with_eager_which_reads_beside_them(function):
    with pytest.raises(EngineUnsupported, match="memory around"):
        next(results_of([program([given("a", (4, 3), stride=(1, 0))], (function, (A, -1), {}))], {}))
    assert not check([program([given("a", (4, 3), stride=(0, 1))], (function, (A, -1), {}))], {})


STATISTICS = [given("b", (3, 2, 4)), given("a", (2,), stride=(0,)), given("c", (2,), fill="index", bound=5)]


@pytest.mark.parametrize("inputs, call", (
    ([given("a", (3, 2), stride=(0, 0))], ("torch.Tensor.sub_", (A, 1.5), {})),
    ([given("a", (3, 2), stride=(1, 1))], ("torch.Tensor.sub_", (A, 1.5), {})),
    (STATISTICS, ("F.batch_norm", (B, A, C, None, None, True), {})),
), ids=("one element for all", "windows", "statistics"))
def test_inputs_whose_elements_share_memory_are_not_written_by_kernels(inputs, call):
    with pytest.raises(EngineUnsupported, match="share memory"):
        next(results_of([program(inputs, call)], {}))
