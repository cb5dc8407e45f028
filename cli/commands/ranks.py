"""The ranks of a distributed program: what each compiled, and where they first differ from rank 0, with the line.

One recording holds the ranks that `ptdebug run` started (torchrun, `python -m torch.distributed.run`, mp.spawn).
Several recordings are ranks in the order given; of ranks that each ran under `ptdebug run`, one finds the others.
Exit code 1 if a collective, a compilation, a graph, a shape, a break or a guard differs.
"""
from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

from ...artifacts.diff.ranks import RankDifference, collectives, difference_document, rank_differences
from ...artifacts.listing import plural, printable
from ...artifacts.rank_groups import ranks_of
from ...artifacts.recording import Recording
from ...artifacts.summary import summary
from ..printing import add_json, print_json, selected

EXAMPLE = "ptdebug ranks @"
SHOWN = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RECORDING..., --all and --json."""
    parser.add_argument("selectors", metavar="RECORDING", nargs="*", default=["@"],
                        help="a recording of all ranks (default @), or one of each rank")
    parser.add_argument("--all", action="store_true", help=f"print every difference, not the first {SHOWN}")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the ranks and their differences."""
    with ExitStack() as stack:
        recordings = [stack.enter_context(selected(text))[0] for text in arguments.selectors]
        ranks = ranks_of(recordings, stack)
        differences = rank_differences(ranks) if ranks else []
        documents = [_document(number, recording) for number, recording in ranks]
        if arguments.json:
            print_json(ranks=documents, differences=[difference_document(found) for found in differences])
        elif not ranks:
            print("no ranks: no process of this recording compiled something and knew its rank")
        else:
            _print(documents, differences, len(differences) if arguments.all else SHOWN)
        return int(bool(differences))


def _document(number: int, recording: Recording) -> dict[str, Any]:
    counts = summary(recording)["counts"]
    return {"rank": number, "recording": str(recording.path), "pid": recording.process(),
            **{name: counts[name] for name in ("compiles", "graphs", "ops", "graph_breaks", "recompiles")},
            "collectives": len(collectives(recording))}


def _print(documents: list[dict[str, Any]], differences: list[RankDifference], shown: int) -> None:
    for document in documents:
        print(f"rank {document['rank']}: {plural(document['graphs'], 'graph')} "
              f"({plural(document['ops'], 'operation')}, {plural(document['collectives'], 'collective')}), "
              f"{plural(document['graph_breaks'], 'graph break')}, {plural(document['recompiles'], 'recompilation')}")
    if not differences:
        print("no differences" if len(documents) > 1 else "one rank: nothing to compare")
        return
    for number, found in enumerate(differences[:shown]):
        place = f"{found.location.file}:{found.location.line}: " if found.location else ""
        print(printable(f"{'first difference' if number == 0 else 'then'}: {place}{found.text}  [{found.compile}]"))
    if len(differences) > shown:
        print(f"and {len(differences) - shown} more (--all)")
