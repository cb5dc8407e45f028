"""The kernels and library calls (extern kernels), in execution order."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ...artifacts.listing import Line, printable
from ...artifacts.measured import Measured, kept, of_groups
from ...artifacts.recording import ArtifactInfo, Recording, RecordingError
from ...artifacts.records import Kernel, Schedule
from ...dependencies import msgspec
from ..printing import add_selector, print_json, print_lines, print_nothing, print_title, selected

EXAMPLE = "ptdebug kernels @:0/0"
WIDEST = 48  # characters of a column
RESOURCES = ("registers", "spills", "shared_bytes", "num_warps", "occupancy", "occupancy_limit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR and --json."""
    add_selector(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the groups of one compilation or of all, then the translation units; 0 also where there are none."""
    with selected(arguments.selector) as (recording, selector):
        groups = _groups(recording, selector.compile or None)
        units = _units(recording, selector.compile or None)
        measured = kept(recording.path)
        _add_times(recording, groups, measured)
        if arguments.json:
            print_json(kernels=groups, units=units)
            return 0
        if not groups and not units:
            print_nothing(recording, selector.compile or None, "kernels", "no kernels")
        for owner in dict.fromkeys(g["compile"] for g in (*groups, *units)):
            known = measured.get(owner)
            print_title(f"== {owner}" + (f"  measured on {known.device} (ptdebug replay --time)" if known else ""))
            mine = [g for g in groups if g["compile"] == owner]
            width = min(max((len(g["name"]) for g in mine), default=0), WIDEST)
            print_lines([Line(printable(_group_text(g, width))) for g in mine]
                        + [Line(printable(text)) for u in units if u["compile"] == owner
                           for text in (_unit_text(u), *_resource_lines(u))])
    return 0


def _groups(recording: Recording, compile_id: str | None) -> list[dict[str, Any]]:
    found = []
    for info in recording.artifacts(compile_id, "schedule"):
        schedule = recording.find(Schedule, info.compile, "schedule", info.name)
        for group in schedule.groups if schedule is not None else ():
            found.append({
                "compile": info.compile, "part": info.name, "id": group.id, "kind": group.kind, "name": group.kernel,
                "members": group.members, "reads": group.reads, "writes": group.writes, "bytes": group.bytes,
                "flops": group.flops,
            })
    return found


def _add_times(recording: Recording, groups: list[dict[str, Any]], measured: Mapping[str, Measured]) -> None:
    """Add what was measured of each group, None where nothing was."""
    times = {(owner, part, id): kernel for owner, known in measured.items()
             for part, id, kernel in of_groups(recording, owner, known)}
    for group in groups:
        found = times.get((group["compile"], group["part"], group["id"]))
        group["measured"] = None if found is None else {**msgspec.structs.asdict(found), "text": found.text}


def _units(recording: Recording, compile_id: str | None) -> list[dict[str, Any]]:
    units = []
    for info in recording.artifacts(compile_id, kind="Kernel"):
        with suppress(RecordingError):  # damaged: the recording's `problems` say so
            kernel = recording.artifact(info.compile, info.stage, info.name)
            if isinstance(kernel, Kernel):
                units.append(_unit(info, kernel))
    return units


def _unit(info: ArtifactInfo, kernel: Kernel) -> dict[str, Any]:
    return {"compile": info.compile, "name": info.name or kernel.name, "language": kernel.language,
            "target": kernel.target, "kernels": kernel.kernels, "lines": len(kernel.lines), "seconds": kernel.seconds,
            "cached": kernel.cached, "command": kernel.command, "path": kernel.path,
            "outputs": list(kernel.outputs), "metrics": kernel.metrics}


def _group_text(group: dict[str, Any], width: int) -> str:
    costs = [f"{group['bytes']:,} bytes"] if group["bytes"] else []
    costs += [f"{group['flops']:,} flops"] if group["flops"] else []
    known = group["measured"]
    took = f"  {known['text']}" if known else ""
    ran = f"  ran {', '.join(known['launched'])}" if known and group["kind"] == "extern" and known["launched"] else ""
    return f"{group['kind']:<7} {group['name']:<{width}}  {', '.join(group['members'])}" + (
        f"  ({'; '.join(costs)})" if costs else "") + took + ran


def _unit_text(unit: dict[str, Any]) -> str:
    took = f", compiled in {unit['seconds']:.2f} s" if unit["seconds"] else ""  # stock's trace does not say
    state = ", from the cache" if unit["cached"] else took
    return f"unit    {unit['name']}: {unit['lines']} lines for {unit['target']}{state}" + (
        f"; also {', '.join(unit['outputs'])}" if unit["outputs"] else "")


def _resource_lines(unit: dict[str, Any]) -> list[str]:
    """What each launch of a kernel for a GPU takes there."""
    found = []
    for launch in unit["kernels"] if unit["language"] == "triton" else ():
        prefix = f"{launch}." if len(unit["kernels"]) > 1 else ""
        has = {name: unit["metrics"].get(f"{prefix}{name}") for name in RESOURCES}
        if has["registers"] is None:
            continue
        text = (f"{has['registers']} registers, {has['spills']} bytes spilled, {has['shared_bytes']:,} bytes shared, "
                f"{has['num_warps']} warps")
        if has["occupancy"] is not None:
            text += f"; occupancy {has['occupancy']:.0%}, limited by {has['occupancy_limit']}"
        found.append(f"          {prefix and f'{launch}: '}{text}")
    return found
