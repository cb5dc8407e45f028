"""How many warps of a kernel a multiprocessor holds at once, from what the kernel takes and what the GPU has.

The limits are those of NVIDIA's table "Technical specifications per compute capability"; nothing is measured.
"""
from __future__ import annotations

from dataclasses import dataclass

REGISTERS = 65536  # of a multiprocessor: of all capabilities since 7.0
REGISTER_UNIT = 256  # registers are allocated to warps by so many
PARTITIONS = 4  # of a multiprocessor, each with a quarter of the registers and warps
SHARED_UNIT = 128  # bytes
RESERVED = 1024  # bytes of shared memory that each block takes for the system, since 8.0


@dataclass(frozen=True)
class Limits:
    """What a multiprocessor holds; `shared` in KiB."""

    warps: int
    blocks: int
    shared: int


LIMITS = {
    70: Limits(64, 32, 96), 75: Limits(32, 16, 64), 80: Limits(64, 32, 164), 86: Limits(48, 16, 100),
    87: Limits(48, 16, 164), 89: Limits(48, 24, 100), 90: Limits(64, 32, 228), 100: Limits(64, 32, 228),
    103: Limits(64, 32, 228), 120: Limits(48, 24, 100), 121: Limits(48, 24, 100),
}


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps of a kernel that are on a multiprocessor together, at most; `limit` is what allows no more."""

    blocks: int
    warps: int
    most: int
    limit: str

    @property
    def share(self) -> float:
        """Of the warps that there could be."""
        return self.warps / self.most

    def __str__(self) -> str:
        return f"{self.share:.0%} ({self.warps} of {self.most} warps; limited by {self.limit})"


def occupancy(capability: int, warps: int, registers: int, shared: int) -> Occupancy | None:
    """For blocks of `warps` warps with `registers` each thread and `shared` bytes; None for an unknown GPU."""
    limits = LIMITS.get(capability)
    if limits is None or not warps:
        return None
    each = -(-max(registers, 1) * 32 // REGISTER_UNIT) * REGISTER_UNIT
    by_registers = REGISTERS // PARTITIONS // each * PARTITIONS // warps
    taken = -(-(shared + (RESERVED if capability >= 80 else 0)) // SHARED_UNIT) * SHARED_UNIT
    by_shared = limits.shared * 1024 // taken if taken else limits.blocks
    bounds = {"warps": limits.warps // warps, "blocks": limits.blocks, "registers": by_registers,
              "shared memory": by_shared}
    limit = min(bounds, key=lambda name: bounds[name])
    return Occupancy(bounds[limit], bounds[limit] * warps, limits.warps, limit)
