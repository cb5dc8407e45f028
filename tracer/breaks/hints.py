"""What is said of particular functions and classes at which tracing stops, found by object, class or module.

`hint_for(function, ...)` registers a message and a hint. A class holds for its instances' methods and attributes too, a
module for all that is in it and below. Handlers may register their own beside themselves.
"""
from __future__ import annotations

import ctypes
import datetime
import inspect
import io
import logging
import sys
import time
import types
import warnings
import weakref
from dataclasses import dataclass
from types import BuiltinMethodType, MethodDescriptorType, MethodWrapperType, ModuleType, WrapperDescriptorType
from typing import Any

import numpy as np
import torch

from .reasons import NUMBER, OUTSIDE, STRINGS, Reason
from .subjects import PYBIND, bare, keys_of, modules_of


@dataclass(frozen=True)
class Explanation:
    """A template of the message, and what the person can change ("" when nothing). `kind` is the reason, where it is
    known better here than by who raised."""

    message: str
    hint: str = ""
    kind: Reason | None = None


_OF_CALLS = frozenset((
    Reason.UNKNOWN_CALLABLE, Reason.UNSUPPORTED_METHOD, Reason.UNSUPPORTED_BUILTIN, Reason.UNSUPPORTED_ARGUMENT,
    Reason.UNSUPPORTED_CLASS, Reason.UNSUPPORTED_TORCH_FUNCTION, Reason.NUMPY_UNSUPPORTED, Reason.PYTHON_RANDOM,
    Reason.SKIPPED_FUNCTION, Reason.GLOBAL_STATE, Reason.DATA_DEPENDENT_VALUE,
))  # fmt: skip
"""What these say of a call is better said by what is registered for its function."""
_BY_OBJECT: dict[tuple[int, Reason | None], Explanation] = {}
_BY_MODULE: dict[str, Explanation] = {}
_KEPT: list[object] = []  # so that no other object gets the id of one that is registered


def hint_for(
    *subjects: Any, message: str = "", hint: str = "", kind: Reason | None = None, at: Reason | None = None
) -> Explanation:
    """Say this of breaks at the subjects: for the reason `at`, or for every reason of calls. `kind` is the reason that
    it then is, which gives what is not said here."""
    if kind is not None:
        message, hint = message or kind.message, hint or kind.hint
    explanation = Explanation(message, hint, kind)
    for subject in subjects:
        if isinstance(subject, ModuleType):
            _BY_MODULE[subject.__name__] = explanation
        elif isinstance(subject, str):  # a module that need not be loaded
            _BY_MODULE[subject] = explanation
        else:
            key = bare(subject)
            _KEPT.append(key)
            _BY_OBJECT[id(key), at] = explanation
    return explanation


def reason_of_call(function: Any) -> Reason:
    """Why a callable that no table knows is not traced: by where it is from."""
    module = getattr(function, "__module__", None)
    if not isinstance(module, str):
        owner = getattr(function, "__self__", None)
        module = owner.__name__ if isinstance(owner, ModuleType) else getattr(owner, "__module__", None) or ""
    if module.startswith("numpy.random"):
        return Reason.PYTHON_RANDOM
    root = module.partition(".")[0]
    bound = isinstance(function, BuiltinMethodType) and not isinstance(function.__self__, ModuleType | None)
    bound = bound and not type(function.__self__).__name__.startswith(PYBIND)
    if root not in _BY_ROOT and (bound or isinstance(function, _METHODS)):
        return Reason.UNSUPPORTED_METHOD
    of_python = root in sys.stdlib_module_names or root.lstrip("_") in sys.stdlib_module_names
    return _BY_ROOT.get(root, Reason.UNSUPPORTED_BUILTIN if of_python else Reason.UNKNOWN_CALLABLE)


_METHODS = (MethodDescriptorType, WrapperDescriptorType, MethodWrapperType)
_BY_ROOT = {
    "torch": Reason.UNSUPPORTED_TORCH_FUNCTION, "numpy": Reason.NUMPY_UNSUPPORTED, "random": Reason.PYTHON_RANDOM,
    "_random": Reason.PYTHON_RANDOM, "builtins": Reason.UNSUPPORTED_BUILTIN,
}


def explanation_of(reason: Reason, subject: object, member: str) -> Explanation | None:
    """What is registered for a subject; None where the reason says as much."""
    if subject is None:
        return None
    of_calls = reason in _OF_CALLS
    keys = list(keys_of(subject, member))
    for key in keys:
        found = _BY_OBJECT.get((id(key), reason)) or (_BY_OBJECT.get((id(key), None)) if of_calls else None)
        if found is not None:
            return found
    if not of_calls or reason is Reason.DATA_DEPENDENT_VALUE:
        return None
    if member in ("__enter__", "__exit__"):
        return BLOCK
    for name in modules_of([*keys, subject]):
        found = _BY_MODULE.get(name) or _BY_MODULE.get(name.lstrip("_"))
        if found is not None:
            return found
    return None


# ---- output, files, the system ---------------------------------------------------------------------------------------
MESSAGES = "leave it out while compiling: `if not torch.compiler.is_compiling(): ...`, or do it after the call"
_FILES = (
    "read it before the compiled function is called, and pass on what it holds; write what the function returns; what "
    f"is only shown: {MESSAGES}"
)
BLOCK = Explanation(
    "what a `with` block of this object does is not known: {subject}",
    "enter it around the call of the compiled function"
)
_THREADS = "`{expression}` starts, or waits for, threads or processes ({subject}); a graph cannot do that"
_RUN_BEFORE = "do it before or after the compiled function is called"

hint_for(print, message="print() writes output while the function runs; a graph cannot do that", hint=MESSAGES)
hint_for(open, message="open() opens a file; a graph cannot do that", hint=_FILES)
hint_for(
    input, breakpoint, message="{subject} waits for input while the function runs; a graph cannot do that",
    hint=MESSAGES
)
hint_for(logging, message="{subject} logs a message; a graph cannot do that", hint=MESSAGES)
hint_for(warnings.warn, message="a warning is shown; a graph cannot do that", hint=MESSAGES)
hint_for(
    warnings, message="the filters for warnings change, for the whole process: `{expression}`",
    hint="filter warnings before the compiled function is called, or around the call",
)
hint_for(
    time.sleep, message="time.sleep waits; a graph cannot do that",
    hint="wait before or after the compiled function is called"
)
_READ_CLOCK = [vars(cls)[name] for cls in (datetime.date, datetime.datetime) for name in ("today", "now", "utcnow")
               if name in vars(cls)]  # fmt: skip
hint_for(
    time, *_READ_CLOCK, message="{subject} reads the clock; a graph cannot do that",
    hint="take the time around the call of the compiled function (torch.profiler for what happens inside)",
)
hint_for(
    "subprocess", "thread", "threading", "multiprocessing", "queue", "concurrent", message=_THREADS, hint=_RUN_BEFORE
)
hint_for(
    "posix", "nt", sys.audit, message="`{expression}` calls the operating system ({subject})",
    hint="do it before the compiled function is called, and pass on what it gives",
)
FILE = hint_for(
    io.IOBase, io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO,
    message="a file or the terminal is read or written: `{expression}`; a graph cannot do that", hint=_FILES,
)
hint_for(
    io.StringIO, io.BytesIO, message="`{expression}` works on data outside of the graph ({subject})",
    hint="make it before the call, and write after the call",
)
hint_for(
    torch.save, torch.load, message="{subject} reads or writes a file", hint="save what the compiled function returns"
)
hint_for(
    "torch.utils.data", message="data is loaded ({subject}); a graph cannot do that",
    hint="loop over the data outside, and compile what is done with one batch",
)

# ---- values of tensors, NumPy ----------------------------------------------------------------------------------------
_TENSOR = torch.Tensor
hint_for(
    _TENSOR.item, _TENSOR.__float__, _TENSOR.__int__, _TENSOR.__index__, float, int,
    message="a number is read out of a tensor ({subject}): Python has to wait for the value", hint=NUMBER,
)
hint_for(
    _TENSOR.tolist, message="a tensor becomes a Python list ({subject}): Python has to wait for the values", hint=NUMBER
)
hint_for(
    _TENSOR.equal, _TENSOR.allclose, torch.equal, torch.allclose,
    message="{subject} gives one bool for all values: Python has to wait for them",
    hint="keep it a tensor: (a == b).all(), torch.isclose(a, b).all()",
)
hint_for(
    _TENSOR.numpy, _TENSOR.__array__, message="a tensor becomes a NumPy array ({subject})",
    hint="use the torch function of the same name, or leave NumPy to what happens after the compiled function",
)
hint_for(
    np.generic, message="a number is read out of a NumPy array ({subject})",
    hint="use the torch function of the same name and keep the number a tensor",
)
hint_for(np, np.ndarray, kind=Reason.NUMPY_UNSUPPORTED)
hint_for(
    np.ndarray, at=Reason.NOT_A_CONSTANT, message=Reason.NUMPY_UNSUPPORTED.message, hint=Reason.NUMPY_UNSUPPORTED.hint
)
hint_for("random", "numpy.random", kind=Reason.PYTHON_RANDOM)
TURNS = hint_for(
    _TENSOR.unbind, torch.unbind, at=Reason.DATA_DEPENDENT_SHAPE,
    message="how often the loop runs depends on a tensor's values: `{expression}`",
    hint="loop a fixed number of times and mask with torch.where what is not wanted, or use torch.while_loop",
)

# ---- memory, gradients, state ----------------------------------------------------------------------------------------
hint_for(
    _TENSOR.data_ptr, message="the memory address of a tensor is read ({subject}), which exists only at run time",
    hint="compare tensors with `is`, and read addresses outside of the compiled function",
)
hint_for(_TENSOR.resize_, _TENSOR.resize_as_, _TENSOR.set_, kind=Reason.METADATA_MUTATION)
hint_for(_TENSOR.requires_grad_, kind=Reason.REQUIRES_GRAD_CHANGE)
hint_for(
    _TENSOR.backward, kind=Reason.GRADIENT_INSIDE,
    message="{subject}() computes gradients inside the compiled function",
    hint="compile the forward and the loss, and call .backward() on what it returns; or use torch.func.grad",
)
hint_for(
    torch.autograd.grad, torch.autograd.backward, kind=Reason.GRADIENT_INSIDE
)
hint_for(
    _TENSOR.register_hook, _TENSOR.register_post_accumulate_grad_hook, kind=Reason.TENSOR_HOOK,
)
_CONTEXT = torch.autograd.function.FunctionCtx
hint_for(
    _CONTEXT, _CONTEXT.save_for_backward, _CONTEXT.save_for_forward, _CONTEXT.mark_dirty,
    _CONTEXT.mark_non_differentiable, _CONTEXT.set_materialize_grads,
    message="an autograd function that eager runs keeps something for its backward: `{expression}`",
    hint="nothing here: it goes with the break for which the autograd function was left to eager",
)
hint_for(
    torch.manual_seed, torch.seed, torch.random.manual_seed, torch.random.seed, torch.cuda.manual_seed,
    torch.cuda.manual_seed_all, torch.cuda.seed, torch.cuda.seed_all, torch.Generator.manual_seed, torch.Generator.seed,
    "torch.random", kind=Reason.GLOBAL_STATE, message="{subject} seeds a random generator for the whole process",
    hint="seed before the compiled function is called",
)
hint_for(
    "torch.backends", *(it for name, it in vars(torch).items() if name.startswith(("set_", "use_")) and callable(it)),
    kind=Reason.GLOBAL_STATE,
)
OPTIMIZER = hint_for(
    torch.optim.Optimizer.add_param_group, at=Reason.SKIPPED_FUNCTION,
    message="an optimizer is made inside of the function, a new one at each call: `{expression}`",
    hint="make it once, before the compiled function is called",
)
hint_for(
    torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel, at=Reason.UNKNOWN_TYPE,
    message="{subject} communicates outside of the graph",
    hint="compile the whole of it (torch.compile(ddp_model)), which compiles the module inside, and call what that "
    "gives from eager code; or compile the module before it is wrapped",
)
hint_for(
    "torch.distributed.fsdp",
    message="FSDP gathers the parameters of a wrapped module before `{expression}` and frees them after it, in eager",
    hint="nothing here: each wrapped module is compiled on its own, equal ones once (larger modules: larger graphs)",
)

# ---- Python's machinery ----------------------------------------------------------------------------------------------
hint_for(
    exec, eval, compile, message="{subject}() runs a string as a program, whose variables are not known before",
    hint="write the code where it runs",
)
hint_for(
    sys._getframe, inspect.stack, inspect.currentframe, locals, globals, vars, "traceback",
    kind=Reason.FRAME_INTROSPECTION,
)
hint_for(
    types.TracebackType, at=Reason.ATTRIBUTE,
    message="the program reads where an exception was raised: `{expression}`",
    hint="use the exception itself (its type, str(error)), or handle it around the call of the compiled function",
)
hint_for(
    weakref, weakref.ReferenceType, weakref.KeyedRef, kind=Reason.WEAK_REFERENCE
)
hint_for(
    type(ctypes.pythonapi.Py_IncRef).__base__,
    message="`{expression}` calls a function of a C library, and what it does is not known", hint=OUTSIDE,
)
hint_for(str, repr, format, message=Reason.TENSOR_STRING.message, hint=STRINGS, at=Reason.DATA_DEPENDENT_VALUE)
