"""Planted bugs, in this process: each differs from eager, and replay names the stage and the line.

A few of each kind; all of them, with bisect and minify, by `python tests/planted/run.py` (the test marked slow).
"""
from __future__ import annotations

import collections
import contextlib
import gc
import importlib
import json
import subprocess
import sys
import types
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.cli.main import main
from ptdebug.replay.recorded.new_memory import HUGE, filled

from . import driver, fault, programs
from .fault import Edit, NotPlanted, planted
from .faults import FAULTS

QUICK = (
    "operands_exchanged", "huber_without_its_half", "second_mutation_missed", "softmax_gradient_of_another_row",
    "times_two_is_no_op", "leaky_relu_slope", "where_swapped_makes_nan",
    "erf_for_tanh", "last_row_left_out", "fusion_ignores_a_flip", "written_over_what_is_read",
    "layer_norm_without_eps_is_nan", "matrices_exchanged", "saved_values_exchanged",
)
OF_CAPTURE = ("operands_exchanged", "guard_on_a_string_dropped", "appended_item_lost", "no_grad_without_effect")
"""Replay shows them only where it runs the program again."""


@pytest.fixture(scope="module", autouse=True)
def all_functions_are_found():
    """What is planted is looked for among all objects, those that `conftest.py` has frozen among them."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_there_are_at_least_sixty_over_all_stages():
    assert len(FAULTS) >= 60
    assert {fault.stages[0] for fault in FAULTS.values()} >= {
        "capture", "guards", "output_bytecode", "forward", "joint", "partition", "passes", "loop_ir", "schedule",
        "kernels", "wrapper"}


@pytest.fixture(scope="module")
def functions_of_files():
    """The product's functions by file: looking through all objects takes a second, for each fault."""
    for patch in [patch for each in FAULTS.values() for patch in each.patches]:
        importlib.import_module(patch.module)
    found = collections.defaultdict(list)
    for each in gc.get_objects():
        if type(each) is types.FunctionType:
            found[each.__code__.co_filename].append(each)
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_every_patch_fits_the_product(name, functions_of_files, monkeypatch):
    monkeypatch.setattr(fault, "_functions", functions_of_files.__getitem__)
    with contextlib.ExitStack() as stack:
        for patch in FAULTS[name].patches:
            stack.enter_context(patch.applied())
    assert not [p.module for p in FAULTS[name].patches if p.module.endswith("__init__")], "no child imports that name"


@pytest.mark.parametrize("name", ["fusion_ignores_a_flip", "matrices_exchanged", "leaky_relu_slope"])
def test_nothing_is_left_of_a_fault_where_something_raises(name):
    before = [patched(patch) for patch in FAULTS[name].patches]
    with contextlib.suppress(ZeroDivisionError), planted(FAULTS[name]):
        assert [patched(patch) for patch in FAULTS[name].patches] != before
        raise ZeroDivisionError
    assert [patched(patch) for patch in FAULTS[name].patches] == before


def patched(patch):
    """What a patch changes, as it is now."""
    if isinstance(patch, Edit):
        return sorted(((f.__qualname__, f.__code__.co_consts, f.__code__.co_code) for f in gc.get_objects()
                       if type(f) is types.FunctionType and f.__module__ == patch.module), key=repr)
    whole = getattr(sys.modules[patch.module], patch.name)
    return whole if patch.key is None else whole[patch.key]


@contextlib.contextmanager
def threads(count):
    """So many threads of torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", [name for name in QUICK if name not in OF_CAPTURE])
def test_replay_names_the_place(name, tmp_path, monkeypatch, capsys):
    fault = FAULTS[name]
    monkeypatch.setattr(sys, "orig_argv", ["planted"])  # there is no program to run again
    expected = programs.outcome(fault.program, lambda f: f)
    with planted(fault), threads(fault.threads):
        with ptdebug.record("r", out=str(tmp_path)), filled(HUGE):  # what nobody writes is wrong, not as it was freed
            found = programs.outcome(fault.program, ptdebug.compile)
        assert programs.difference(found, expected)
        assert main(["replay", str(tmp_path / "r"), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert driver.named(fault, document), document["first_difference"]
    assert not programs.difference(programs.outcome(fault.program, ptdebug.compile), expected), "nothing is left of it"


def test_faults_of_capture_in_children(tmp_path):
    """Through the environment, as the workers of bisect and minify get it."""
    script, file = Path(__file__).with_name("run.py"), tmp_path / "found.json"
    words = [sys.executable, script, *OF_CAPTURE, "--replay", "--json", file]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=600)
    results = json.loads(file.read_text())
    assert {(r["name"], r["shown"], r["replay"]) for r in results} == {(n, "right", "right") for n in OF_CAPTURE}
    assert ran.returncode == 0


def test_a_patch_that_does_not_fit_says_so():
    fault = FAULTS["flip_wraps_early"]
    wrong = type(fault)("none", ("loop_ir",), "", "", (Edit(fault.patches[0].module, "no such text", ""),))
    with pytest.raises(NotPlanted, match="occurs 0 times"), planted(wrong):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_every_step_for_every_fault(name, tmp_path):
    words = [name, "--replay", "--bisect", "--minify", "--json", str(tmp_path / "found.json")]
    ran = subprocess.run([sys.executable, Path(__file__).with_name("run.py"), *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--benign", "--right"])
def test_no_right_program_is_accused(words):
    ran = subprocess.run([sys.executable, Path(__file__).with_name("run.py"), words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
