"""The GPUs that a package was compiled for, and whether this machine has them."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from ...dependencies import msgspec
from ..runtime.cuda_driver import DriverError, driver, version_text
from .entry import Entry
from .signature import TensorInput


class Gpu(msgspec.Struct, frozen=True):
    """A GPU: its number among torch's, its name ("" for one that was not there), and its compute capability, 90 for
    9.0. A package needs one of those with the same number."""

    index: int
    name: str
    capability: int


def devices_of(entries: Sequence[Entry], weights: Iterable[torch.Tensor]) -> list[torch.device]:
    """The GPUs that entry points use: those of weights, of arguments, and of kernels."""
    found = {tensor.device for tensor in weights}
    for entry in entries:
        found |= {torch.device(each.device) for each in entry.signature.inputs if isinstance(each, TensorInput)}
        for _, half in entry.named_halves():
            found |= {code.device for code in half.code}
            found |= {torch.device(each.name) for each in half.names.values() if each.kind == "device"}
    return sorted([device for device in found if device.type == "cuda"], key=str)


def here(entries: Sequence[Entry], weights: Iterable[torch.Tensor]) -> tuple[Gpu, ...]:
    """The GPUs of this machine that entry points were compiled for."""
    return tuple([_gpu(device.index) for device in devices_of(entries, weights)])


def elsewhere(capabilities: Iterable[int]) -> tuple[Gpu, ...]:
    """A GPU that need not be here: the first of its machine, of any of these compute capabilities."""
    return tuple([Gpu(0, "", capability) for capability in capabilities])


def _gpu(index: int) -> Gpu:
    major, minor = torch.cuda.get_device_capability(index)
    return Gpu(index, torch.cuda.get_device_name(index), 10 * major + minor)


def places(gpus: Sequence[Gpu], weights: Mapping[str, torch.Tensor]) -> dict[str, torch.device]:
    """Where each weight is to be: those of a model that was exported for a GPU that was not there are on the CPU still.
    """
    there = [torch.device("cuda", gpu.index) for gpu in gpus if not gpu.name]
    return {name: there[0] if there else tensor.device for name, tensor in weights.items()}


def why_not(gpus: Sequence[Gpu], cuda: str) -> str:
    """Why this machine cannot run what was compiled for these GPUs, in words that follow "was compiled for"; "" where
    it can."""
    if not gpus:
        return ""
    first = f"a GPU ({_named(gpus, gpus[0].index)})"
    if torch.version.cuda is None:
        return f"{first}, and this torch ({torch.__version__}) is built without CUDA"
    loaded = driver()
    if loaded is None:
        return f"{first}, and there is no driver of NVIDIA here"
    version = loaded.version()
    if cuda and version // 1000 < int(cuda.partition(".")[0]):
        return (f"{first} with CUDA {cuda}, and the driver here is for CUDA {version_text(version)}: it is too old, "
                "install a newer one")
    if not torch.cuda.is_available():
        return f"{first}, and torch finds no GPU here"
    count = torch.cuda.device_count()
    for gpu in gpus:
        if gpu.index >= count:
            return f"cuda:{gpu.index}, and this machine has {count} GPU{'s' * (count > 1)}: export it for cuda:0"
        found = _gpu(gpu.index)
        if found.capability not in [each.capability for each in gpus if each.index == gpu.index]:
            return (f"a GPU ({_named(gpus, gpu.index)}), and cuda:{gpu.index} ({found.name}) has "
                    f"{_shown(found.capability)}: export it there, or with --target cuda:{found.capability}")
    return ""


def _named(gpus: Sequence[Gpu], index: int) -> str:
    """The GPUs of a number: "NVIDIA H100, compute capability 9.0"."""
    own = [gpu for gpu in gpus if gpu.index == index]
    names = [name for name in dict.fromkeys([gpu.name for gpu in own]) if name]
    return ", ".join([*names, "compute capability " + " or ".join([_shown(gpu.capability) for gpu in own])])


def refused(error: DriverError) -> str:
    """What to say of a driver that does not load the machine code of a package."""
    found = driver()
    of_cuda = "" if found is None else f" (CUDA {version_text(found.version())})"
    return f"the driver of NVIDIA{of_cuda} does not load the machine code of the package: {error}"


def _shown(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"
