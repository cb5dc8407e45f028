"""What makes a compiled graph slower than eager, in words: groups of kernels, kernels, and what is around them."""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...artifacts.records import Location
from .steps import KernelTime
from .timing import Launched, Timing
from .twins import Twin

SLOWER = 1.05  # times eager's time, from which on something is called slower


def slower_because(
    eager: Timing, compiled: Timing, overhead: float, kernels: Sequence[KernelTime], pairs: Sequence[Twin] = ()
) -> list[str]:
    """What makes the compiled graph slower than eager; nothing where it is not, beyond noise."""
    noise = max(eager.noise, compiled.noise)
    if compiled.seconds <= eager.seconds * SLOWER:
        return []
    lost = compiled.seconds - eager.seconds
    found = slower_twins(pairs, lost / 20)
    said = {id(k) for _, _, members in found for twin in members for k in twin.kernels}
    reasons = [(seconds, text) for seconds, text, _ in found]
    if overhead > lost / 4:
        reasons.append((overhead, f"{_us(overhead)} outside of kernels: allocating, calling {len(kernels)} of them, "
                        "and what is around the graph"))
    for k in kernels:
        if id(k) not in said and k.eager is not None and k.lost > max(lost / 20, 0.05 * k.eager):
            reasons.append((k.lost, f"{k.name}{_at(k.location)} takes {_us(k.seconds)}, eager's {k.operators} "
                            f"operators {_us(k.eager)}"))
    texts = [text for _, text in sorted(reasons, reverse=True)]
    if noise > lost / eager.seconds:
        texts.append(f"the noise ({noise:.0%}) is as large as the difference")
    return texts


def slower_twins(pairs: Sequence[Twin], least: float = 0.0) -> list[tuple[float, str, list[Twin]]]:
    """The groups that take longer than their operators in eager, alike ones together, the worst first: seconds lost (at
    least `least`), what is said of them, and the groups."""
    found = [(seconds - eager, twin_text(members, seconds, eager), members)
             for members, seconds, eager in by_operator(pairs) if seconds - eager > max(least, 0.05 * eager)]
    return sorted(found, key=lambda each: -each[0])


def by_operator(pairs: Sequence[Twin]) -> list[tuple[list[Twin], float, float]]:
    """Groups that are alike, with the seconds of their kernels and of eager, the most time first."""
    alike: dict[Any, list[Twin]] = {}
    for twin in pairs:
        alike.setdefault(twin.key, []).append(twin)
    found = [(members, sum(t.seconds for t in members), sum(t.eager for t in members)) for members in alike.values()]
    return sorted(found, key=lambda each: -each[1])


def twin_text(members: Sequence[Twin], seconds: float, eager: float) -> str:
    """What is said of groups that are alike."""
    first = members[0]
    times = f"{len(members)} times " if len(members) > 1 else ""
    ours = _some([k.name + _ran(k.launched) for k in first.kernels], 8)
    return (f"{times}{_some(first.operators, 4)}{_at(first.location)}: {_us(seconds)} in {ours}; eager {_us(eager)}"
            f"{_ran(first.launched)}")


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _ran(launched: Sequence[Launched]) -> str:
    """The kernels of a GPU that took the most, unless that is what it is called anyway."""
    names = [short_kernel(k.name) for k in launched if not k.name.startswith("fused_")]
    return f" ({', '.join(names[:2])}{', ...' if len(names) > 2 else ''})" if names else ""


def short_kernel(name: str) -> str:
    """The name of a CUDA kernel, demangled as profilers have it, without its templates and arguments."""
    plain = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    words = [word for word in re.split(r"[<(,]", plain) if word.strip()]
    head = words[0].strip() if words else name
    if head.startswith("cutlass") and len(words) > 1:  # what it is stands in the template's argument
        head = words[1].strip(" >")
    return head.replace("at::native::", "")[:60]


def _at(location: Location | None) -> str:
    return f" ({location.file.rpartition('/')[2]}:{location.line})" if location else ""


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
