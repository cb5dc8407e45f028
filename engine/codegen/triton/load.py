"""Generated source as functions: Triton's own JIT functions for a GPU, interpreted ones for CPU tensors.

The interpreter is entered through its class, so neither TRITON_INTERPRET nor the user's `triton.jit` changes.
"""
from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from .interpreter_library import InterpretedLanguage, libdevice
from .server import functions_of
from .source import TritonSource


def load(source: TritonSource) -> dict[str, Any]:
    """The module's namespace, with a `triton.JITFunction` for each kernel and helper."""
    text = source.text
    filename = f"<ptdebug triton {source.signature.name} {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
    return functions_of(text, filename, f"ptdebug_triton_{source.signature.name}")


def load_interpreted(source: TritonSource) -> dict[str, Callable[..., Any]]:
    """The kernels for CPU tensors: `kernels[name][grid](*arguments)`."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    namespace = load(source)
    for name, value in list(namespace.items()):
        if isinstance(value, JITFunction):
            namespace[name] = InterpretedFunction(value.fn)
    # The interpreter patches the language modules that it finds among a kernel's globals, and restores them after the
    # launch: with both there, what its inner calls patch is restored as well.
    namespace |= {"tl": InterpretedLanguage(), "language": tl, "language_core": tl.core, "libdevice": libdevice()}
    return {launch.name: namespace[launch.name] for launch in source.launches}
