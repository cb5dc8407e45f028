"""What the recorder costs for a compilation of the size of a small BERT (some 500 nodes): it should be milliseconds."""
from __future__ import annotations

import tempfile
import time
from pathlib import Path

from ptdebug.artifacts import records as r
from ptdebug.artifacts.store import RecordingWriter

META = r.TensorMeta("float32", (8, 128, 256), (32768, 256, 1), "cpu")
STACK = (r.Location("/home/me/train.py", 120, "main"), r.Location("/home/me/model.py", 77, "forward"))


def graph(name: str, nodes: int) -> r.Graph:
    return r.Graph(name, tuple(
        r.Node(f"n{i}", "call_function", "aten.add.Tensor", (r.NodeRef(f"n{i - 1}"), r.NodeRef("x"), 1.0), {}, META,
               STACK, "bert.encoder.layer.0", (f"capture#n{i}",)) for i in range(nodes)))


def write(writer: RecordingWriter) -> None:
    for stage in ("capture", "forward", "passes"):
        for number in range(1 if stage != "passes" else 4):
            writer.record("0/0", stage, f"{number}" if stage == "passes" else "", GRAPHS[stage][number])
    for buffer in BODIES:
        writer.record("0/0", "loops", buffer.name, buffer)
    for decision in DECISIONS:
        writer.decision("0/0", decision)
    writer.record("0/0", "kernels", "unit_0", KERNEL)


GRAPHS = {stage: [graph(f"{stage}{i}", 500) for i in range(4)] for stage in ("capture", "forward", "passes")}
BODIES = [r.Loops(f"buf{b}", (r.LoopAxis("i0", "4096"),), (), tuple(
    r.LoopStatement(f"t{i}", "add", f"t{i} = add t{i - 1}, t0 : float32", "float32", (f"t{i - 1}", "t0"),
                    (f"forward#n{i}",)) for i in range(12)), ("a",), ("b",), META) for b in range(120)]
DECISIONS = [r.Decision(f"fuse:{i}", "fuse", f"buf{i}+buf{i + 1}", (r.Option("fuse", 1.0), r.Option("keep")), "fuse",
                        "fuse", "both loop over the same axes") for i in range(600)]
KERNEL = r.Kernel("unit_0", "cpp", tuple(r.CodeLine(f"    const float t{i} = t{i - 1} * 2.0f;", (f"loop_ir:buf1#t{i}",))
                                         for i in range(3000)))


def main() -> None:
    """Print the CPU milliseconds of the best of five."""
    times = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            writer = RecordingWriter(Path(folder, "recording"))
            start = time.process_time()
            write(writer)
            times.append(time.process_time() - start)
            writer.close()
    print(f"writing a compilation of some 500 nodes: {1000 * min(times):.1f} ms of CPU time (best of {len(times)})")


if __name__ == "__main__":
    main()
