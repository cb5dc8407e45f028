"""torch's stable C interface (torch/csrc/inductor/aoti_torch/c/shim.h): its declarations, and the addresses of its
functions.

Declarations are read from the headers that came with this torch, so a function is never called with the signature of
another version. Functions are looked up by name in the libraries that are loaded.
"""
from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ...kernels import attention, int8_depthwise, sgemm
from ...unsupported import NoCppWrapper

HEADERS = ("c/shim.h", "generated/c_shim_cpu.h", "generated/c_shim_cuda.h", "c/shim_cpu.h", "../../stable/c/shim.h")

WRAP = "_Z16THPVariable_WrapON2at10TensorBaseE"
"""`PyObject* THPVariable_Wrap(at::TensorBase&&)`: the one function outside the C interface, which has none for it."""

USED = {
    "aoti_torch_empty_strided": ("int64", "const int64*", "const int64*", "int32", "int32", "int32", "Tensor*"),
    "aoti_torch__reinterpret_tensor": ("Tensor", "int64", "const int64*", "const int64*", "int64", "Tensor*"),
    "aoti_torch_delete_tensor_object": ("Tensor",),
    "aoti_torch_get_data_ptr": ("Tensor", "void**"),
    "aoti_torch_get_dim": ("Tensor", "int64*"),
    "aoti_torch_get_size": ("Tensor", "int64", "int64*"),
    "aoti_torch_get_stride": ("Tensor", "int64", "int64*"),
    "aoti_torch_new_tensor_handle": ("Tensor", "Tensor*"),
    "aoti_torch_clone": ("Tensor", "Tensor*"),
    "aoti_torch_copy_": ("Tensor", "Tensor", "int32"),
}
"""The functions that every wrapper may call, in the form in which it does."""

OWN: dict[str, Any] = {own.ENTRY: own for own in (attention, int8_depthwise, sgemm)}
"""Functions of ptdebug, built once for all graphs, and the modules of their kernels."""

_DECLARATION = re.compile(r"AOTI_TORCH_EXPORT\s+AOTITorchError\s+(\w+)\(([^;]*)\);")
_COMMENT = re.compile(r"//[^\n]*")
_SPELLING = {"AtenTensorHandle": "Tensor", "int64_t": "int64", "int32_t": "int32", "uint8_t": "uint8",
             "uint64_t": "uint64", "size_t": "uint64", "StableIValue": "uint64", "StableListHandle": "List"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function: its C++ type as generated files spell it, and its name."""

    kind: str
    name: str


@cache
def _declared() -> dict[str, str]:
    """The text of the parameters of each function of the headers; each returns an int32, 0 for success."""
    folder = Path(torch.__path__[0], "include/torch/csrc/inductor/aoti_torch")
    found: dict[str, str] = {}
    for header in HEADERS:
        try:
            text = _COMMENT.sub("", (folder / header).read_text())
        except OSError:
            continue  # what it would have declared is not found, which says so
        found.update(_DECLARATION.findall(text))
    return found


def _parameter(text: str) -> Parameter:
    parts = re.fullmatch(r"([\w\s*]*?)(\w+)", " ".join(text.split()))
    if parts is None:
        raise NoCppWrapper(f"an unknown parameter in torch's C interface: {text}")
    words = re.sub(r"\w+", lambda word: _SPELLING.get(word.group(), word.group()), parts[1])
    return Parameter(words.strip().replace(" *", "*"), parts[2])


_OF_CUDA = ("_cuda_", "_current_device_index")


def parameters_of(function: str) -> tuple[Parameter, ...]:
    """The parameters of a function of the C interface. Raises NoCppWrapper where this torch has no such function, or
    one that every wrapper calls has another form. Of the functions for CUDA, which a torch without it only declares,
    the declaration decides there: they are called where it has them."""
    text = OWN[function].PARAMETERS if function in OWN else _declared().get(function)
    elsewhere = any(part in function for part in _OF_CUDA) and _library("torch_cuda") is None
    if text is None or (address(function) is None and not elsewhere):
        raise NoCppWrapper(f"this torch has no {function}")
    found = tuple(_parameter(part) for part in text.split(",") if part.strip())
    wanted = USED.get(function)
    if wanted is not None and wanted != tuple(p.kind for p in found):
        raise NoCppWrapper(f"{function} of this torch has another signature")
    return found


@cache
def address(function: str) -> int | None:
    """The address of a function of torch, or of ptdebug, in this process; None if there is none."""
    if function in OWN:
        found_at: int | None = OWN[function].KERNEL.address
        return found_at
    libraries = ("torch_python",) if function == WRAP else ("torch_cpu", "torch_cuda")
    found = next((f for f in [getattr(_library(name), function, None) for name in libraries] if f is not None), None)
    return None if found is None else ctypes.cast(found, ctypes.c_void_p).value


@cache
def _library(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(Path(torch.__path__[0], "lib", f"lib{name}.so")))
    except OSError:
        return None


@cache
def abi_version() -> int:
    """The number that the C interface has for this version of torch."""
    function = getattr(_library("torch_cpu"), "aoti_torch_abi_version", None)
    if function is None:
        raise NoCppWrapper("this torch does not tell the version of its C interface")
    function.restype = ctypes.c_uint64
    return int(function())


def last_error() -> str:
    """What torch said when a function failed the last time in this thread; "" where this version does not tell."""
    function = getattr(_library("torch_cpu"), "torch_exception_get_what_without_backtrace", None)
    if function is None:
        return ""
    function.restype = ctypes.c_char_p
    return (function() or b"").decode(errors="replace")


@cache
def tensors_are_known() -> bool:
    """Whether a Python tensor is what wrappers take it for: the count, the type, and then the C++ tensor."""
    for tensor in (torch.empty(1), torch.nn.Parameter(torch.empty(1))):
        words = (ctypes.c_void_p * 3).from_address(id(tensor))
        if object.__basicsize__ != 16 or words[1] != id(type(tensor)) or words[2] != tensor._cdata:
            return False
    return address(WRAP) is not None


@cache
def dtype_code(dtype: torch.dtype) -> int:
    """The number that the C interface has for a dtype. Raises NoCppWrapper."""
    found = getattr(_library("torch_cpu"), f"aoti_torch_dtype_{str(dtype).removeprefix('torch.')}", None)
    if found is None:
        raise NoCppWrapper(f"torch's C interface has no {dtype}")
    return int(found())
