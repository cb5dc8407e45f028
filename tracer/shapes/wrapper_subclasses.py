"""Wrapper tensor subclasses: classes that have no data but hold other tensors (`__tensor_flatten__`), and define
operators in `__torch_dispatch__`. What a frame assumes about one besides its inner tensors."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported
from ..sources.source import AttrSource, Source

_NO_DISPATCH: Any = torch._C._disabled_torch_dispatch_impl
_DEFAULT: Any = torch.Tensor.__dict__["__torch_function__"].__func__
_PLAIN: tuple[Any, ...] = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor))


def is_wrapper_class(cls: Any) -> bool:
    """Whether tensors of the class consist of other tensors."""
    if cls in _PLAIN or not issubclass(cls, torch.Tensor) or cls.__torch_dispatch__ is _NO_DISPATCH:
        return False
    return hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")


def has_torchs_overrides(cls: Any) -> bool:
    """Whether the class is torch's and defines `__torch_function__` (nested tensors): that is part of what operators
    do."""
    found = getattr(cls.__torch_function__, "__func__", None)
    own = found is not None and found is not _DEFAULT and is_wrapper_class(cls)
    return own and found.__module__.partition(".")[0] == "torch"


@dataclass(frozen=True, eq=False)
class Layout:
    """The metadata of a wrapper tensor (`context`), and the names of its parts, of which some (`held`) are not
    tensors."""

    cls: Any
    context: Any
    names: tuple[str, ...]
    held: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        """The layout of a tensor. Raises Unsupported where it has none, or contains something that no graph can
        hold."""
        try:
            names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        except Exception as error:
            raise Unsupported(
                Reason.UNKNOWN_TYPE, detail=f"a {type(tensor).__qualname__} that cannot be flattened"
            ) from error
        parts = [(name, getattr(tensor, name)) for name in names]
        for _, part in parts:
            _check_inner(part)
        held = tuple([(name, part) for name, part in parts if not isinstance(part, torch.Tensor)])
        return cls(type(tensor), context, tuple(names), held)

    def accepts(self, tensor: Any) -> bool:
        """Whether a trace with a tensor of this layout is valid for another, as far as the tensors themselves do not
        decide it."""
        if type(tensor) is not self.cls:
            return False
        asked = getattr(self.cls, "__metadata_guard__", None)
        try:
            names, context = tensor.__tensor_flatten__()
            same = _is_equal(self.context, context) if asked is None else bool(asked(self.context, context))
        except Exception:  # user-defined; it does not support comparison
            return False
        return same and tuple(names) == self.names and all(_is_equal(x, getattr(tensor, name)) for name, x in self.held)


def _is_equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    try:
        same = type(a) is type(b) and a == b
    except Exception:  # tensors of several elements have no truth value
        return False
    return same if type(same) is bool else False


def _check_inner(part: Any) -> None:
    kind: Any = type(part)
    if not isinstance(part, torch.Tensor) or is_wrapper_class(kind):
        return
    strided = part.layout is torch.strided and not part.is_quantized and not part.is_inference()
    lazy = strided and (part.is_conj() or part.is_neg() or part._is_zerotensor())
    if kind not in _PLAIN or not strided or lazy or torch._C._functorch.is_functorch_wrapped_tensor(part):
        raise Unsupported(Reason.UNKNOWN_TYPE, detail=f"a {kind.__qualname__} in a tensor of other tensors")


def inner_tensors(tensor: torch.Tensor, layout: Layout, source: Source) -> Iterator[tuple[torch.Tensor, Source]]:
    """The inner tensors of a wrapper, with their sources."""
    without = {name for name, _ in layout.held}
    for name in layout.names:
        if name not in without:
            yield getattr(tensor, name), AttrSource(source, name)
