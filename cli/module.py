"""A compiled `nn.Module`: a module around the original, as `torch.compile(module)` returns it.

The original is `_orig_mod`, state_dict keys have that prefix, and every other attribute is the original's: to read, to
set and to delete.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sized
from operator import itemgetter
from typing import Any, ClassVar

import torch
from torch.nn.modules.module import _has_any_global_hook

from ..tracer.runtime.statistics import STATISTICS
from .wiring import Request

_hooks = itemgetter("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OWN = frozenset({"_orig_mod", "_request", "_ready", "forward", "__dict__"})


class OptimizedModule(torch.nn.Module):
    """`_orig_mod`, compiled as `request` says.

    Pickles and copies as the original together with the request. Hooks registered here run around the compiled call,
    in eager; hooks of the original and its submodules are part of it.
    """

    _orig_mod: torch.nn.Module
    _compile_kwargs: ClassVar[dict[str, Any]] = {"backend": "ptdebug"}
    """The arguments of torch.compile for this module: Lightning's Fabric unwraps modules and compiles them again."""

    def __init__(self, module: torch.nn.Module, request: Request) -> None:
        # First of all: Module.__init__ may be patched by a program to touch attributes, which are the original's.
        object.__setattr__(self, "_orig_mod", module)
        object.__setattr__(self, "_ready", False)
        super().__init__()
        del self.__dict__["_orig_mod"]
        self._modules["_orig_mod"] = module
        object.__setattr__(self, "_request", request)
        object.__setattr__(self, "_ready", True)
        object.__setattr__(self, "forward", self._compiled(module))

    def _compiled(self, module: torch.nn.Module) -> Callable[..., Any]:
        compiled = self._request.optimize(module.__call__)
        lazy = [part for part in module.modules() if hasattr(part, "_initialize_hook")]
        if not lazy:
            return compiled

        def initialize_first(*args: Any, **kwargs: Any) -> Any:
            while lazy and not hasattr(lazy[-1], "_initialize_hook"):
                lazy.pop()
            if lazy:  # the call that creates and initializes parameters
                STATISTICS.skipped(f"the first call of {type(lazy[-1]).__name__} creates its parameters, in eager")
                return module(*args, **kwargs)
            return compiled(*args, **kwargs)

        return initialize_first

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        if any(_hooks(own)) or own.get("_compiled_call_impl") or _has_any_global_hook():
            return super().__call__(*args, **kwargs)
        return own["forward"](*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return OptimizedModule, (self._orig_mod, self._request)

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __len__(self) -> int:
        module = self._orig_mod
        if isinstance(module, Sized):
            return len(module)
        raise TypeError(f"{type(module).__name__} does not support len()")

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self.__dict__["_modules"]["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in OWN or hasattr(type(self), name):
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> Iterable[str]:
        return sorted({*dir(self._orig_mod), *super().__dir__()})

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of PyTorch's own compiled modules, if loaded: Lightning, Accelerate and distributed checkpoints
        find the original by isinstance()."""
        eval_frame = sys.modules.get("torch._dynamo.eval_frame")
        return getattr(eval_frame, "OptimizedModule", OptimizedModule)

    @property
    def dynamo_ctx(self) -> Callable[..., Any]:
        """Compiles another function, such as a step of a module, with the same options."""
        return self._request.optimize

    @property
    def training(self) -> bool:
        """The original's mode."""
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:
        if self._ready:  # Module.__init__ sets the default, which is not meant for the original
            self._orig_mod.training = value
