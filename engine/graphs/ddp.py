"""How DistributedDataParallel groups gradients, for graphs that are compiled while its forward runs."""
from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch

DDP = "torch.nn.parallel.distributed"


@dataclass(frozen=True)
class Buckets:
    """How many bytes of gradients DDP puts into a bucket: into the first that is full, and into the others."""

    first: int
    others: int


def active_buckets() -> Buckets | None:
    """Those of the DistributedDataParallel module whose forward is running; None where there is none, or where
    `torch._dynamo.config.optimize_ddp` is off."""
    module = sys.modules.get(DDP)
    running: Any = module.DistributedDataParallel._get_active_ddp_module() if module is not None else None
    if running is None or not getattr(sys.modules.get("torch._dynamo.config"), "optimize_ddp", True):
        return None
    usual = running.bucket_bytes_cap_default  # then its first bucket is smaller
    first = torch.distributed._DEFAULT_FIRST_BUCKET_BYTES if usual else running.bucket_bytes_cap
    return Buckets(first, running.bucket_bytes_cap)
