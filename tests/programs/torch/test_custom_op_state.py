"""Kernels of the program's own operators that read what the compiled function changes: they see it as in eager."""
from __future__ import annotations

import pytest
import torch

from ..checking import Programs, check, check_engine, check_whole

program = Programs()
GAIN = {"value": 1}
FACTOR = 2
MEMORY = torch.zeros(2)


class Settings:
    scale = 2


def operator(name, kernel):
    made = torch.library.custom_op(f"ptdebug_state::{name}", kernel, mutates_args=())
    made.register_fake(torch.empty_like)
    return made


def scale():
    return Settings.scale * FACTOR


def kernel_of_gain(x: torch.Tensor) -> torch.Tensor:
    return x * GAIN["value"]


def kernel_of_memory(x: torch.Tensor) -> torch.Tensor:
    return x + MEMORY


def kernel_of_a_helper(x: torch.Tensor) -> torch.Tensor:
    return x * scale()


def pure_kernel(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * 2)


by_gain, by_memory = operator("gain", kernel_of_gain), operator("memory", kernel_of_memory)
by_helper, pure = operator("helper", kernel_of_a_helper), operator("pure", pure_kernel)


@program
def an_item_of_a_dict(compile):
    @compile
    def changes(x):
        GAIN["value"] += 4
        y = by_gain(x)
        GAIN["value"] += 2
        return y + 1, by_gain(x) * 2

    GAIN["value"] = 1
    return [changes(torch.ones(2)) for _ in range(2)], GAIN["value"]


@program
def an_attribute_of_a_class_and_a_global_that_a_helper_reads(compile):
    @compile
    def changes(x):
        global FACTOR
        FACTOR = 7
        y = by_helper(x)
        Settings.scale = 3
        z = by_helper(y)
        FACTOR, Settings.scale = 2, 2
        return y, z, by_helper(x)

    return [changes(torch.ones(2)) for _ in range(2)]


@program
def memory_of_a_tensor(compile):
    @compile
    def changes(x):
        MEMORY.add_(1)
        y = by_memory(x)
        MEMORY.mul_(2)
        return y * 3, by_memory(x)

    MEMORY.zero_()
    return [changes(torch.ones(2)) for _ in range(2)], MEMORY.clone()


@pytest.mark.parametrize("name", program)
def test_a_kernel_sees_what_eagers_sees(name):
    check(program[name])
    check_engine(program[name])


def test_a_kernel_that_reads_nothing_stays_in_the_graph():
    def counts(compile):
        counter = {"calls": 0}

        @compile
        def counted(x):
            counter["calls"] += 1
            return pure(x) + 1

        return [counted(torch.ones(2)) for _ in range(2)], counter

    check_whole(counts)
