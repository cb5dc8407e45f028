"""Which frames are skipped: those of torch, the standard library and ptdebug, and those with nothing to compile.

The frame hook sees every Python frame that starts while a compiled function runs. Frames of torch, the standard
library, ptdebug and packages that have nothing to do with tensors run in eager; what they call is considered again (a
`forward` below torch's `_call_impl`, a callback below `functools.partial`).
"""
from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import os
import sysconfig
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

_ROOMS = ("artifacts", "cli", "engine", "operators", "replay", "tracer", "tui")
_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep
_OURS = (
    *(os.path.join(_PACKAGE, name) for name in ("__init__.py", "__main__.py", "dependencies.py")),
    *(os.path.join(_PACKAGE, room, "") for room in _ROOMS),
)
"""Not the whole folder: in a clone, the user's programs and a `.venv` with all that is installed may be in it."""
_LAUNCH = os.path.join(_PACKAGE, "cli", "launch.py")
_TORCH = str(Path(torch.__file__).resolve().parent) + os.sep
_NN_MODULES = os.path.join(_TORCH, "nn", "modules") + os.sep
_CHECKPOINTS = os.path.join(_TORCH, "distributed", "algorithms", "_checkpoint", "checkpoint_wrapper.py")
_CONTAINERS = str(torch.nn.modules.container.__file__)
_WRAPPERS = (
    *(os.path.join(_TORCH, *parts) + os.sep for parts in (("nn", "parallel"), ("distributed",), ("_dynamo",))),
    str(torch._compile.__file__), os.path.join(_PACKAGE, "operators", "dynamo_stubs.py"),
)
"""What does around a module of the program what no graph can, where that is worth compiling: wrapper modules of torch,
and what disables a function, which has one code for all of them."""
_STDLIB = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")}
)
_SITE = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

INFRASTRUCTURE = frozenset({
    "_pytest", "pluggy", "pytest", "hypothesis", "xdist", "coverage", "tqdm", "rich", "textual", "IPython", "ipykernel",
    "numpy", "scipy", "pandas", "matplotlib", "sympy", "triton", "bytecode", "msgspec", "safetensors", "yaml", "attr",
    "attrs", "pydantic", "requests", "urllib3", "huggingface_hub", "tokenizers", "wandb", "tensorboard", "filelock",
    "packaging", "typing_extensions", "pkg_resources", "setuptools", "torchgen", "functorch", "jinja2", "debugpy",
})
"""Packages whose own frames are never worth compiling. One line removes another."""

_UNTRACEABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_SPECIAL_METHODS = frozenset({
    "__init__", "__new__", "__del__", "__repr__", "__str__", "__hash__", "__getattr__", "__getattribute__",
    "__setattr__", "__delattr__", "__init_subclass__", "__set_name__", "__class_getitem__", "__reduce__",
    "__reduce_ex__", "__getstate__", "__setstate__", "__deepcopy__", "__copy__", "__torch_function__",
    "__torch_dispatch__", "__prepare__", "__instancecheck__", "__subclasscheck__",
})


def skip_reason(code: types.CodeType) -> str:
    """Why frames of `code` are always skipped; "" when they are not."""
    if code.co_flags & _UNTRACEABLE:
        return "a generator or coroutine"
    if code.co_name in _SPECIAL_METHODS:
        return f"the special method {code.co_name}"
    if code.co_name in ("<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"):
        return f"{code.co_name} code on its own"
    if code.co_filename == _CONTAINERS and code.co_name != "forward":
        return "a method of a container module, which only manages its children"
    return file_skip_reason(code.co_filename)


def is_own(filename: str) -> bool:
    """Whether the file belongs to ptdebug."""
    return os.path.realpath(filename).startswith(_OURS)


@functools.lru_cache(maxsize=4096)
def _is_launch(filename: str) -> bool:
    """Whether the file is the one that starts the program under `ptdebug run`, however its path is written."""
    return os.path.realpath(filename) == _LAUNCH


@functools.lru_cache(maxsize=4096)
def file_skip_reason(filename: str) -> str:
    """Why all functions of a file are skipped; "" when they are not."""
    if filename.startswith("<"):
        # torch.fx's generated forwards are worth compiling; frozen modules and generated __init__ methods are not
        return "" if filename.startswith(("<eval_with_key>", "<stdin>", "<ipython", "<string>")) else "generated code"
    path = os.path.realpath(filename)
    if is_own(filename):
        return "ptdebug itself"
    if path.startswith(_TORCH):
        inner = path.endswith(("module.py", "_functions.py"))
        return "" if (path.startswith(_NN_MODULES) and not inner) or path == _CHECKPOINTS else "torch itself"
    for site in _SITE:
        if site in path:
            package = path.rsplit(site, 1)[1].split(os.sep, 1)[0].removesuffix(".py")
            return f"the package {package}" if package in INFRASTRUCTURE else ""
    return "the standard library" if path.startswith(_STDLIB) else ""


@functools.lru_cache(maxsize=4096)
def is_program(filename: str) -> bool:
    """Whether stacks show lines of the file: the user's files and packages installed beside torch, but not torch, the
    standard library or ptdebug."""
    if filename.startswith("<frozen"):
        return False
    path = os.path.realpath(filename)
    return not path.startswith((*_OURS, _TORCH)) and (is_installed(filename) or not path.startswith(_STDLIB))


@functools.lru_cache(maxsize=4096)
def is_installed(filename: str) -> bool:
    """Whether the file belongs to an installed package, so that a line of the user's own is preferred."""
    return any(site in filename for site in _SITE)


def only_wraps(code: types.CodeType) -> bool:
    """Whether a module's `forward` is skipped although it is compiled: what it calls is compiled instead."""
    path = os.path.realpath(code.co_filename)
    return path.startswith(_WRAPPERS) and path != _CHECKPOINTS


def involves_tensors(code: types.CodeType, f_locals: Mapping[str, Any], f_globals: Mapping[str, Any]) -> bool:
    """Whether a frame may compute with tensors: its variables hold tensors or modules, or it names torch."""
    if any(_holds_tensor(value, 2) for value in f_locals.values()):
        return True
    for name in code.co_names:
        value = f_globals.get(name)
        if isinstance(value, (torch.Tensor, torch.nn.Module)):
            return True
        if isinstance(value, types.ModuleType) and (value is torch or value.__name__.startswith("torch.")):
            return True
    return False


_ATOMS = (
    int, float, str, bytes, bool, type(None), types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type,
)


def _holds_tensor(value: Any, depth: int) -> bool:
    if type(value) in _ATOMS:
        return False
    if issubclass(type(value), (torch.Tensor, torch.nn.Module)):
        return True
    if depth == 0:
        return False
    for kind, items in _ITEMS.items():
        if issubclass(type(value), kind):
            return any(_holds_tensor(item, depth - 1) for item in list(itertools.islice(items(value), 32)))
    if type(value) is types.MethodType:
        return _holds_tensor(value.__self__, depth)
    own: dict[str, Any] = {}
    if type(value).__dictoffset__:
        with contextlib.suppress(AttributeError):
            own = object.__getattribute__(value, "__dict__")
    return any(_holds_tensor(item, depth - 1) for item in list(own.values())[:32])


_ITEMS: dict[type, Callable[[Any], Iterable[Any]]] = {
    list: list.__iter__, tuple: tuple.__iter__, set: set.__iter__, frozenset: frozenset.__iter__, dict: dict.values,
}
"""Containers, and how to read their items without calling methods that a user's subclass overrides."""


def program_frames(frame: types.FrameType | None) -> list[types.FrameType]:
    """The user's frames from `frame` outwards, innermost last: without torch's, ptdebug's and the standard library's.

    What lies outside of `ptdebug run` (an installed console script) is not the user's either.
    """
    frames = []
    while frame is not None and not _is_launch(frame.f_code.co_filename):
        if not file_skip_reason(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


