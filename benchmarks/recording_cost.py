"""What recording everything costs, as a share of compile time: it should be at most 5 %.

    python benchmarks/recording_cost.py [--layers 1,6,48] [--repeats 3] [--train] [--profile]

CPU time of the first call (and its backward) of a model of transformer layers, with and without `ptdebug.record`, in
processes of their own that take turns, each with empty caches. The share is that of the process's own time to compile
time with the C++ compiler's; `inside` is what the recording says of itself. --profile prints where a recorded
compilation spends that time.
"""
from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="1,6,48")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--train", action="store_true", help="forward and backward")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("RECORD", "LAYERS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one[0] == "1", int(arguments.one[1]), arguments.train, arguments.profile)))
        return
    print(f"{'layers':>6}  {'plain, s':>9}  {'recorded':>9}  {'C++, s':>7}  {'share':>7}  {'inside':>7}  {'MB':>6}")
    for layers in map(int, arguments.layers.split(",")):
        found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for _ in range(arguments.repeats):
            for record in (False, True):
                found[record].append(in_a_process(record, layers, arguments))
        plain, recorded, child = (statistics.median(one[key] for one in found[which]) for which, key in (
            (False, "own"), (True, "own"), (False, "child")))
        inside = statistics.median(one["inside"] for one in found[True])
        whole = plain + child
        share, inside = 100 * (recorded - plain) / whole, 100 * inside / whole
        print(f"{layers:>6}  {plain:>9.2f}  {recorded:>9.2f}  {child:>7.2f}  {share:>6.1f}%  {inside:>6.1f}%  "
              f"{found[True][0]['mb']:>6.2f}", flush=True)


def in_a_process(record: bool, layers: int, arguments: argparse.Namespace) -> dict[str, float]:
    """One measurement with empty caches."""
    with tempfile.TemporaryDirectory() as caches:
        command = [sys.executable, __file__, "--one", str(int(record)), str(layers)]
        command += ["--train"] if arguments.train else []
        command += ["--profile"] if arguments.profile and record else []
        environment = os.environ | {"PTDEBUG_CACHE_DIR": caches}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(record: bool, layers: int, train: bool, profile: bool) -> dict[str, Any]:
    """CPU seconds of compiling a model: of this process and of the C++ compiler."""
    import contextlib
    import cProfile
    import pstats

    import ptdebug
    import torch
    from ptdebug.artifacts.recording import Recording
    from ptdebug.artifacts.summary import summary

    torch.manual_seed(0)
    torch.set_num_threads(1)
    ptdebug.compile(lambda x: x.sin())(torch.ones(3))  # loads everything
    model = torch.nn.Sequential(
        *[torch.nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True) for _ in range(layers)])
    x = torch.randn(2, 8, 32)
    compiled = ptdebug.compile(model)
    with tempfile.TemporaryDirectory() as folder:
        recording = ptdebug.record("r", out=folder) if record else contextlib.nullcontext()
        with recording, torch.set_grad_enabled(train), cProfile.Profile() if profile else contextlib.nullcontext() as p:
            child, start = _children(), time.process_time()
            result = compiled(x)
            if train:
                result.square().mean().backward()
            own, child = time.process_time() - start, _children() - child
        if profile:
            pstats.Stats(p, stream=sys.stderr).sort_stats("cumtime").print_stats("artifacts|describe", 40)
        inside = megabytes = 0.0
        if record:
            with Recording.open(f"{folder}/r") as found:
                inside = summary(found)["overhead_seconds"]["recording"]
            megabytes = os.path.getsize(f"{folder}/r/recording.db") / 1e6
    return {"own": own, "child": child, "inside": inside, "mb": megabytes}


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
