"""How fast the workbench is on a large recording, in a real terminal (a pty).

    python benchmarks/workbench.py make FOLDER [--graphs 10000] [--megabytes 1000]
    python benchmarks/workbench.py measure FOLDER [--size 160x48] [--repeats 3]

`make` writes a recording of that many compilations and about that size, one of them with a stage of 200,000 lines.
`measure` opens it as a person does and reports seconds to the first paint, the resident memory, and for keys on each
screen the milliseconds until the screen changes, until it rests (what is shown beside a row may come later), and of CPU
time: median, 95th percentile, worst; and the seconds until a search over everything shows its first results. Each
number is the least of `repeats`: others may be at work on the machine.
"""
from __future__ import annotations

import argparse
import fcntl
import os
import pty
import random
import re
import select
import signal
import statistics
import struct
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

from ptdebug.artifacts import records as r
from ptdebug.artifacts.store import RecordingWriter

LONG = 200_000  # lines of the longest stage
DOWN, ENTER, TAB, ESCAPE, PAGE_DOWN, FIRST = b"\x1b[B", b"\r", b"\t", b"\x1b", b"\x1b[6~", b"g"
SCREENS: tuple[tuple[str, bytes, bytes], ...] = (
    ("tree", b"", b""), ("listing", TAB, b""), ("recompilations", b"1", ESCAPE), ("guards", b"2", ESCAPE),
    ("fusion", b"3", ESCAPE), ("decisions", b"4", ESCAPE), ("passes", b"5", ESCAPE), ("memory", b"6", ESCAPE),
    ("time", b"7", ESCAPE), ("run", b"8", ESCAPE), ("model", b"9", ESCAPE), ("breaks", b"b", ESCAPE),
    ("help", b"?", ESCAPE),
)


# ---- a large recording ---------------------------------------------------------------------------------------------
def make(folder: Path, graphs: int, megabytes: int) -> None:
    """Write it. Names are random, so that it compresses as little as real ones do."""
    random.seed(0)
    program = folder.parent / "model.py"
    folder.mkdir(parents=True)
    program.write_text("".join(f"x{i} = layer(x{i})\n" for i in range(5000)))
    writer = RecordingWriter(folder, command=["model.py"])
    writer.source_file(str(program))
    nodes = max(20, megabytes * 1_000_000 // graphs // 45)
    for index in range(graphs):
        _compilation(writer, f"{index // 4}/{index % 4}", str(program), nodes if index else LONG)
    writer.close(0)


def _compilation(writer: RecordingWriter, compile_id: str, program: str, nodes: int) -> None:
    function = f"Model.layer_{compile_id.partition('/')[0]}"
    writer.begin(compile_id, function, program, 1)
    writer.record(compile_id, "frame", "", r.Frame(function, program, 1))
    writer.record(compile_id, "capture", "", _graph("capture", program, nodes))
    writer.record(compile_id, "guards", "", r.Guards(tuple(
        r.Guard(f"g{i}", f"L['self'].m{i}", "TYPE_MATCH", f"type(L['self'].m{i}) is Linear", parent=f"g{i // 2}")
        for i in range(20))))
    if not compile_id.endswith("/0"):
        writer.record(compile_id, "guards", "recompile", r.Recompile(
            "L['x'].size()[0] == 4", "4", "6", compile_id.partition("/")[0] + "/0", r.Location(program, 7)))
    writer.record(compile_id, "schedule", "", r.Schedule(tuple(
        r.ScheduledGroup(f"fused_{i}", "loops", (f"buf{i}",), f"fused_{i}", writes=(f"buf{i}",)) for i in range(10)),
        tuple(r.BufferPlan(f"buf{i}", 1024 * i, f"fused_{i}", f"fused_{min(i + 2, 9)}") for i in range(10)), 9000))
    for i in range(10):
        subject = f"buf{i}+buf{i + 1}"
        writer.decision(compile_id, r.Decision(f"fuse:{subject}", "fuse", subject,
                                               (r.Option("fuse"), r.Option("separate")), "fuse", "fuse", "traffic"))
    writer.end(compile_id, "compiled", "", {"total": 0.1, "capture": 0.05})


def _graph(name: str, program: str, nodes: int) -> r.Graph:
    made = []
    for i in range(nodes):
        text = f"{random.getrandbits(128):032x}"
        made.append(r.Node(f"n{i}_{text}", "call_function", "aten.add.Tensor", (r.NodeRef(f"n{i - 1}"), i), {},
                           r.TensorMeta("torch.float32", (i, 8), (8, 1), "cpu"),
                           (r.Location(program, i % 5000 + 1, "forward"),)))
    return r.Graph(name, (*made, r.Node("output", "output", "output", ([r.NodeRef("n0")],))))


# ---- measuring -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Key:
    """What a key did: milliseconds until the screen changed, until it rested, and of CPU time (None: no change)."""

    first: float | None
    settled: float
    cpu: float


class Terminal:
    """The workbench in a pty."""

    def __init__(self, selector: str, size: tuple[int, int]) -> None:
        self.started = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
            os.execv(sys.executable, [sys.executable, "-m", "ptdebug", "tui", selector])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def read(self, quiet: float, limit: float = 60.0, until: str = "") -> tuple[float | None, float, str]:
        """Read until nothing has come for `quiet` seconds (or until a text came): the seconds until the first output,
        until the last, and what came."""
        start = last = time.perf_counter()
        first: float | None = None
        got = b""
        while time.perf_counter() - start < limit:
            ready, _, _ = select.select([self.fd], [], [], quiet)
            if not ready:
                if not until:
                    break
                continue
            got += os.read(self.fd, 1 << 16)
            last = time.perf_counter()
            first = last - start if first is None else first
            if until and re.search(until, got.decode(errors="replace")):
                break
        return first, last - start, got.decode(errors="replace")

    def key(self, key: bytes, quiet: float = 0.3) -> Key:
        """Press a key, and wait until the screen rests."""
        used = self.cpu
        os.write(self.fd, key)
        first, settled, _ = self.read(quiet)
        return Key(None if first is None else 1000 * first, 1000 * settled, 1000 * (self.cpu - used))

    def rest(self) -> None:
        """Wait until nothing is computed any more."""
        while True:
            used = self.cpu
            self.read(0.5)
            if self.cpu - used < 0.05:
                return

    @property
    def cpu(self) -> float:
        """Seconds of CPU time so far."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    @property
    def resident(self) -> float:
        """Megabytes."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1000  # type: ignore[index]

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def measure(folder: Path, size: tuple[int, int], repeats: int) -> None:
    """Print the figures."""
    megabytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    print(f"recording            {megabytes:8.0f} MB")
    painted = []
    for number in range(repeats):
        terminal = Terminal(str(folder), size)
        terminal.read(0.05, until=re.escape(folder.name))
        painted.append((time.perf_counter() - terminal.started, terminal.cpu))
        if number < repeats - 1:
            terminal.close()
    print(f"first paint          {min(painted)[0]:8.2f} s, {min(cpu for _, cpu in painted):.2f} s of CPU time")
    terminal.rest()  # the summary is read in the background
    print(f"resident             {terminal.resident:8.0f} MB")
    times: list[Key] = []
    for name, opening, closing in SCREENS:
        if opening:
            opened = terminal.key(opening)
            terminal.rest()
            print(f"  {name:16} opens in {opened.first or 0:6.1f} ms")
        times += _keys(terminal, name, repeats)
        if closing:
            terminal.key(closing)
    terminal.close()
    terminal = Terminal(f"{folder}:0/0:capture", size)
    terminal.read(0.05, until="200001|output")
    took = time.perf_counter() - terminal.started
    print(f"a stage of {LONG:,} lines: {took:.2f} s, {terminal.cpu:.2f} s of CPU time")
    terminal.rest()
    times += _keys(terminal, "long stage", repeats)
    print(f"keys                 {_spread(times)}")
    terminal.key(b"s")
    os.write(terminal.fd, b"n7_" + ENTER)
    start = time.perf_counter()
    terminal.read(0.05, until=r"enter opens one")
    print(f"search, results      {time.perf_counter() - start:8.2f} s")
    print(f"resident at the end  {terminal.resident:8.0f} MB")
    terminal.close()


def _keys(terminal: Terminal, name: str, repeats: int) -> list[Key]:
    pressed = [DOWN] * 12 + [PAGE_DOWN] * 4 + [DOWN] * 4
    walks = []
    for _ in range(repeats):
        terminal.key(FIRST)
        terminal.rest()
        walks.append([terminal.key(key) for key in pressed])
    found = [Key(min(key.first for key in same if key.first is not None), min(key.settled for key in same),
                 min(key.cpu for key in same))
             for same in zip(*walks) if any(key.first is not None for key in same)]
    print(f"  {name:16} {len(found)} of {len(pressed)} keys changed the screen{_spread(found)}", flush=True)
    return found


def _spread(keys: list[Key]) -> str:
    texts = []
    for title, values in (("changed", [key.first or 0.0 for key in keys]), ("rested", [key.settled for key in keys]),
                          ("CPU", [key.cpu for key in keys])):
        if values:
            ordered = sorted(values)
            most = ordered[int(0.95 * (len(ordered) - 1))]
            middle = statistics.median(ordered)
            texts.append(f"{title} median {middle:.0f}, 95 % {most:.0f}, worst {ordered[-1]:.0f} ms")
    return ": " + "; ".join(texts) if texts else ""


def main() -> None:
    """The two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("make", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--graphs", type=int, default=10_000)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--size", default="160x48")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.folder, arguments.graphs, arguments.megabytes)
    else:
        width, height = map(int, arguments.size.split("x"))
        measure(arguments.folder, (width, height), arguments.repeats)


if __name__ == "__main__":
    main()
