"""What stock `torch.compile` makes of operators at which our tracer breaks the graph, or our engine gives up.

    python tests/operators/stock.py [--backward] NAME ...

prints for each operator how many of its samples stock Dynamo breaks at, and why, or which error it raises. The graphs
run in eager (backend "aot_eager"), so this says nothing of values.
"""
from __future__ import annotations

import argparse
import collections
import itertools
import logging
import sys
import warnings
from pathlib import Path

import torch
from torch._dynamo.utils import counters

if __name__ == "__main__":  # run as a file: its siblings are found beside it
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = Path(__file__).resolve().parent.name

from .samples import Sample, full_name, operators, samples
from .sweep import observe, program_of, runs


def breaks(sample: Sample) -> list[str]:
    """Why stock breaks at the sample, or the error that it raises; empty where it does neither."""
    torch._dynamo.reset()
    counters.clear()
    try:
        observe([sample], torch.compile(program_of([sample]), backend="aot_eager"))
    except Exception as error:
        return [f"raised {type(error).__name__}: {str(error).partition(chr(10))[0]}"]
    return [reason.partition("\n")[0] for reason in counters["graph_break"]]


def main() -> None:
    """Print a line for each operator."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="+", help="names of operators, or patterns of them")
    parser.add_argument("--samples", type=int, default=6, help="at most this many of each operator")
    parser.add_argument("--backward", action="store_true", help="with gradients")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    for op in operators(arguments.names):
        wanted = (s for s in samples(op, grad=arguments.backward) if bool(s.tracked) == arguments.backward and runs(s))
        found = [breaks(sample) for sample in itertools.islice(wanted, arguments.samples)]
        reasons = collections.Counter(reason for each in found for reason in each)
        print(f"{full_name(op):45} {sum(map(bool, found))} of {len(found)}: {'; '.join(reasons)}", flush=True)


if __name__ == "__main__":
    main()
