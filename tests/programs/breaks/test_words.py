"""What is said of a break and of a recompilation: in the words of the program's text, about the program's own lines."""
from __future__ import annotations

import copy
import ctypes
import datetime
import functools
import glob
import json
import math
import os
import queue
import statistics
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import ptdebug
import pytest
import torch
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.summary import breaks

X = torch.linspace(0.1, 1.2, 12).reshape(3, 4)
LAYER, LOCK = torch.nn.Linear(4, 2), threading.Lock()
JOBS: queue.Queue[int] = queue.Queue()
SETTINGS = {"depth": 2}
NUMBERS, ITEMS = (number for number in range(100)), iter([1, 2, 3])
LIBRARY = ctypes.CDLL(None)


def text_of_a_tensor(x):
    name = f"{x.mean():.2f}"
    return x + 1, name


def turns_by_data(x):
    for _ in range(int(x.sum())):
        x = x + 1
    return x


def branch_on_a_size(x):
    kept = x[x > 0.5]
    if kept.shape[0] > 3:
        kept = kept * 2
    return kept


def branch_on_a_number(x):
    scale = float(x.max())
    if scale > 1:
        x = x / scale
    return x


def builtin_fold(x):
    return x * max(x[0])


def sleeps(x):
    y = x + 1
    time.sleep(0)
    return y * 2


def asks_the_clock(x):
    return x + (datetime.datetime.now() is not None)


def makes_a_date(x):
    return x + datetime.date(2020, 1, 2).day


def numpy_function(x):
    middle = numpy.median(x.numpy(), axis=0)
    return x + torch.from_numpy(middle)


def numpy_random(x):
    return x * numpy.random.rand()


def makes_a_class(x):
    class Local:
        scale = 3

    return x * Local.scale, Local


def sets_the_environment(x):
    os.environ["PTDEBUG_TEST_OF_WORDS"] = "1"
    return x + 1


class Key:
    """It is equal to itself alone."""


@functools.lru_cache
def cached_text(key):
    return [key]


KEY = Key()


def asks_a_cache(x):
    return x + len(cached_text(KEY))


def calls_c(x):
    return x * zlib.crc32(b"ab")


def asserts(x):
    assert (x < 100).all(), "too large"
    return x + 1


def loops_over_a_break(x):
    for number in range(2):
        x = x + number
        print(end="")
        x = x * 2
    return x


def writes(x):
    sys.stderr.write("")
    return x + 1


def makes_a_layer(x):
    layer = torch.nn.Linear(4, 2)
    return layer(x), layer


def asks_the_system(x):
    return x * os.path.exists("no such file")


def fills_a_queue(x):
    JOBS.put(1)
    return x + 1


def middle_of_a_list(x):
    return x - statistics.median(x[0].tolist())


def begins_to_need_gradients(x):
    leaf = x.clone().requires_grad_()
    return leaf, leaf * 2


def number_beside_a_length(x):
    largest = x.max().item()
    if largest > len(SETTINGS):
        x = x / largest
    return x


def count_of_found(x):
    count = x.nonzero().shape[0]
    if count > 3:
        x = x + 1
    return x


def keeps_a_sparse_one(x):
    compressed = x.to_sparse_csr()
    return compressed @ x.t()


def resized_by_data(x):
    side = int(x.sum())
    return torch.nn.functional.interpolate(x[None, None], size=(side, side))


def picked_by_masks_in_a_list(x):
    return x[[x[0, 0] > 0, x[1, 0] > 0, x[2, 0] > 0], 0]


def writes_a_file(x):
    Path(os.devnull).write_bytes(b"")
    return x + 1


def takes_a_lock(x):
    with LOCK:
        x = x + 1
    return x * 2


def asks_a_lock(x):
    return x + LOCK.acquire(False)


def number_as_json(x):
    return x + len(json.dumps({"mean": x.mean().item()}))


def numbers_for_a_sum(x):
    return x + math.fsum([x.mean().item(), 2.0])


def loops_over_values(x):
    for value in (x > 0.5).nonzero().flatten().tolist():
        x = x + value
    return x


def quiet(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="nothing")
        return x.sin()


def looks_for_files(x):
    return x * len(glob.glob("/no such file*"))


def picked_from_a_dict(x):
    return {0: x * 2, 1: x * 3}.get(x[0].argmax().item(), x)


def copies_a_layer(x):
    return copy.deepcopy(LAYER)(x)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def root_of_a_tensor(x):
    return x / math.sqrt(x.sum())


def logarithm_of_a_tensor(x):
    return x * math.log(max(x.shape) * x.sum(), 2)


def nearness_of_a_tensor(x):
    return x, math.isclose(x.sum(), 1.0)


def complex_of_a_tensor(x):
    return x, complex(x.sum())


def next_of_a_generator(x):
    return x + next(NUMBERS)


def loop_over_an_iterator(x):
    for item in ITEMS:
        x = x + item
    return x


def library_in_c(x):
    return x * LIBRARY.abs(-3)


def function_in_a_transform(x):
    return torch.func.grad(lambda y: Doubled.apply(y).sum())(x)


@dataclass(frozen=True)
class Said:
    """The last break of `function` in the line with `expression` (which part of the line is marked differs between
    versions of Python): its code, parts of what is said, and of what to change."""

    function: Callable[..., Any]
    code: str
    expression: str
    why: str
    change: str


SAID = (
    Said(writes, "unsupported-method", 'sys.stderr.write("")', "a file or the terminal is", "is_compiling"),
    Said(makes_a_layer, "unknown-type", "torch.nn.Linear(4, 2)", "a module is made", "in __init__"),
    Said(
        asks_the_system, "unsupported-builtin", 'os.path.exists("no such file")', "the operating system",
        "pass on what it gives",
    ),
    Said(fills_a_queue, "skipped-function", "JOBS.put(1)", "threads or processes", "before or after"),
    Said(middle_of_a_list, "data-dependent-branch", "statistics.median(x[0].tolist())", "depends on", "x.median()"),
    Said(
        begins_to_need_gradients, "requires-grad-change", "x.clone().requires_grad_()",
        "requires_grad of a tensor changes", "torch.func.grad",
    ),
    Said(
        text_of_a_tensor, "not-a-constant", 'f"{x.mean():.2f}"', "a string is made of a tensor's values", "is_compiling"
    ),
    Said(turns_by_data, "data-dependent-value", "range(int(x.sum()))", "how often the loop runs", "torch.while_loop"),
    Said(branch_on_a_size, "data-dependent-branch", "kept.shape[0] > 3", "`kept.shape[0] > 3`", "torch.where"),
    Said(branch_on_a_number, "data-dependent-branch", "scale > 1", "`scale > 1`", "torch.where"),
    Said(number_beside_a_length, "data-dependent-branch", "> len(SETTINGS)", "a tensor's values (`", "torch.cond"),
    Said(
        count_of_found, "data-dependent-branch", "count > 3", "how many values a tensor operation keeps (`count",
        "mask what",
    ),
    Said(keeps_a_sparse_one, "unknown-type", "compressed @ x.t()", "does not store all its elements", "x.to_dense()"),
    Said(resized_by_data, "data-dependent-shape", "interpolate(x[None, None]", "the size of the result", "mask what"),
    Said(picked_by_masks_in_a_list, "data-dependent-value", "x[2, 0] > 0], 0]", "a number in a tensor", "stack"),
    Said(function_in_a_transform, "autograd-function", "Doubled.apply(y)", "inside of a transform", "before or after"),
    Said(
        writes_a_file, "unsupported-class", "write_bytes", "a file or the terminal is",
        "write what the function returns",
    ),
    Said(
        takes_a_lock, "unsupported-method", "with LOCK:", "entered before an earlier break",
        "remove the break inside",
    ),
    Said(asks_a_lock, "unsupported-method", "LOCK.acquire(False)", "(`LOCK.acquire` (a lock))", "before or after"),
    Said(
        number_as_json, "not-a-constant", 'json.dumps({"mean": x', "a string is made of a tensor's values",
        "is_compiling",
    ),
    Said(numbers_for_a_sum, "not-a-constant", "math.fsum(", "a number that is read out", "keep it a tensor"),
    Said(
        next_of_a_generator, "unsupported-method", "next(NUMBERS)", "begun before: outside",
        "before the call and pass it",
    ),
    Said(library_in_c, "unknown-callable", "LIBRARY.abs(-3)", "a C library", "before or after"),
    Said(root_of_a_tensor, "not-a-constant", "math.sqrt(x.sum())", "the tensor `x.sum()` in Python", "torch.sqrt"),
    Said(logarithm_of_a_tensor, "not-a-constant", "math.log(max", "has to wait", "torch.log(x) / math.log(base)"),
    Said(nearness_of_a_tensor, "not-a-constant", "math.isclose(x.sum(), 1.0)", "has to wait", ".item()"),
    Said(complex_of_a_tensor, "not-a-constant", "complex(x.sum())", "has to wait", "keep it a tensor"),
    Said(loops_over_values, "data-dependent-value", "for value in (x > 0.5)", "how often the loop", "mask with"),
    Said(
        quiet, "unsupported-argument", 'warnings.filterwarnings("ignore", module="nothing")',
        "the filters for warnings", "around the call",
    ),
    Said(looks_for_files, "unsupported-builtin", "glob.glob(", "calls the operating system", "pass on what it gives"),
    Said(picked_from_a_dict, "data-dependent-value", "x * 3}.get(", "which item is taken", "take the item after"),
    Said(copies_a_layer, "object-copy", "copy.deepcopy(LAYER)", "the module LAYER (Linear)", "copy it once"),
    Said(builtin_fold, "data-dependent-branch", "max(x[0])", "one by one in Python", "x.max()"),
    Said(sleeps, "unsupported-builtin", "time.sleep(0)", "wait", "before or after"),
    Said(asks_the_clock, "unsupported-method", "datetime.datetime.now()", "reads the clock", "take the time around"),
    Said(makes_a_date, "unsupported-class", "datetime.date(2020, 1, 2)", "how the class datetime.date is made", ""),
    Said(numpy_function, "numpy-unsupported", "numpy.median(x.numpy(), axis=0)", "numpy.median", "torch's functions"),
    Said(numpy_random, "python-random", "numpy.random.rand()", "a generator that is not torch's", "torch.rand"),
    Said(makes_a_class, "class-escapes", "class Local:", "Local is made inside the function", "at the top of the file"),
    Said(
        sets_the_environment, "unsupported-builtin", 'os.environ["PTDEBUG_TEST_OF_WORDS"]',
        "calls the operating system (posix.putenv)", "pass on what it gives",
    ),
    Said(asks_a_cache, "unsupported-argument", "cached_text(KEY)", "cannot ask for this object", "before or after"),
    Said(calls_c, "unsupported-builtin", 'zlib.crc32(b"ab")', "zlib.crc32", "before or after"),
    Said(
        asserts, "data-dependent-branch", 'assert (x < 100).all(), "too large"',
        "this assertion depends on a tensor's values", "check it",
    ),
    Said(loops_over_a_break, "unsupported-method", "for number in range(2):", "resumes an iterator", "the loop's body"),
)


@pytest.mark.parametrize("said", SAID, ids=lambda said: said.function.__name__)
def test_a_break_is_told_in_the_words_of_its_line(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTDEBUG_TEST_OF_WORDS", "0")
    with torch.no_grad():
        report = ptdebug.explain(said.function, backend=lambda graph, _: graph)(X.clone())
    found = next(found for found in reversed(report.graph_breaks) if said.expression in found.source)
    assert found.expression in found.source
    assert (found.code, found.location.file) == (said.code, __file__), found.message
    assert said.why in found.message and said.change in found.hint
    for words in (found.message, found.hint):
        leaks = "zuf", "u0", ".ours_stack", "_fn", "value from before", "<the"
        assert not any(leak in words for leak in leaks), words


def test_an_iterator_from_outside_is_told_where_the_loop_begins() -> None:
    report = ptdebug.explain(loop_over_an_iterator, backend=lambda graph, _: graph)(X.clone())
    first, *steps = report.graph_breaks
    assert "begun before the function" in first.message and "make a list" in first.hint
    assert steps and all("first line" in found.hint for found in steps)


def test_library_code_that_is_compiled_itself_names_its_own_lines(tmp_path: Path) -> None:
    @torch.inference_mode()
    def broken_in_a_block(x):
        y = x * 2
        print(end="")
        return y + 1

    with ptdebug.record("library", out=tmp_path):
        ptdebug.compile(broken_in_a_block)(X)
        ptdebug.compile(torch.ao.quantization.FakeQuantize())(X)
    with Recording.open(tmp_path / "library") as recording:
        told = [at.message for _, at, _ in breaks(recording)]
    assert any(text.startswith("a `with` block is left that was entered before an earlier break") for text in told)
    assert any("`self.observer_enabled[0] == 1`" in text for text in told)
    assert any("MovingAverageMinMaxObserver.forward reads `" in text for text in told)
