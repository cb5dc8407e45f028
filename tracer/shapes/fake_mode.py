"""The fake tensor mode of a trace."""
from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.meta_utils import MetaTensorDesc, MetaTensorDescriber

from ...operators.fake_mode import FaithfulFakeMode
from .wrapper_subclasses import is_wrapper_class


class CaptureFakeMode(FaithfulFakeMode):
    """The mode of a trace, which leaves operators on tensors made of others to their class."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind is not FakeTensor and is_wrapper_class(kind) for kind in types):
            return NotImplemented
        return super().__torch_dispatch__(func, types, args, kwargs)


class WithoutGradients(MetaTensorDescriber):
    """Describes a tensor for its fake tensor without `.grad`: that is read from the real tensor, as a separate input,
    and may have another dtype (after `p.data = ...`), which torch refuses to fake."""

    def describe_tensor(self, t: torch.Tensor, *, recurse: bool = True, trace: bool = False) -> MetaTensorDesc[Any]:
        described: MetaTensorDesc[Any] = super().describe_tensor(t, recurse=recurse, trace=trace)
        object.__setattr__(described, "grad", None)
        return described


def memory_of(fake: torch.Tensor) -> int | None:
    """The memory of a tensor, below the wrappers of functorch transforms; None without one."""
    while torch._C._functorch.is_functorch_wrapped_tensor(fake):
        fake = torch._C._functorch.get_unwrapped(fake)
    return fake.untyped_storage()._cdata if torch._C._has_storage(fake) else None
