"""The CUDA graphs: which compiled graphs were captured, why the others were not, and how their calls went.

Of each graph: captures and replays; the calls that ran kernel by kernel, by reason; the inputs that were copied because
they move; results that were copied because earlier ones were in use; captures made again, and the input that had moved.
"""
from __future__ import annotations

import argparse

from ...artifacts.cuda_graphs import cuda_graphs, document, lines
from ..printing import add_selector, print_json, print_lines, print_title, selected

EXAMPLE = "ptdebug cudagraphs @:0/0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR and --json."""
    add_selector(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what became of each graph; 0 also where none was asked for."""
    with selected(arguments.selector) as (recording, selector):
        found = cuda_graphs(recording, selector.compile or None)
        if arguments.json:
            print_json(cudagraphs=[document(of) for of in found])
            return 0
        if not found:
            print("no CUDA graphs: no graph was compiled for a GPU, or with a mode or option that asks for them")
            return 0
        functions = {info.id: info.function for info in recording.compiles()}
        for owner in dict.fromkeys(of.compile_id for of in found):
            print_title(f"{owner}  {functions.get(owner, '')}")
            print_lines([line for of in found if of.compile_id == owner for line in lines(of)])
    return 0
