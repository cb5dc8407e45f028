"""The fake tensor of a wrapper tensor subclass, whose inner tensors are fakes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..sources.source import AttrSource, Source
from .frame_shapes import FrameShapes
from .wrapper_subclasses import Layout, inner_tensors, is_wrapper_class


def _has_sizes(context: Any, sizes: tuple[Any, ...]) -> bool:
    """Whether a wrapper's metadata contains its sizes (a DTensor's does): then they cannot be symbols."""
    if isinstance(context, dict):
        context = tuple(context.values())
    if not isinstance(context, (tuple, list)):
        return False
    return tuple(context) == sizes != () or any(_has_sizes(part, sizes) for part in context)


Seen = Callable[[torch.Tensor, Source, "Layout | None"], None]


def fake_of(shapes: FrameShapes, tensor: torch.Tensor, source: Source, seen: Seen) -> torch.Tensor:
    """A wrapper of fake tensors like a real one. `seen` is called with each tensor that it consists of, itself last."""
    layout = Layout.of(tensor)
    parts: dict[str, Any] = dict(layout.held)
    static = _has_sizes(layout.context, tuple(tensor.shape))
    for inner, place in inner_tensors(tensor, layout, source):
        assert isinstance(place, AttrSource)
        if is_wrapper_class(type(inner)):
            parts[place.name] = fake_of(shapes, inner, place, seen)
        else:
            parts[place.name] = shapes.fakify(inner, place, static)
            seen(inner, place, None)
    sizes, strides = shapes.wrapper_sizes(tensor, source, static)
    made: torch.Tensor = layout.cls.__tensor_unflatten__(parts, layout.context, sizes, strides)
    seen(tensor, source, layout)
    return made
