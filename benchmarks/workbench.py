"""How fast the workbench is on a large recording, in a real terminal (a pty).

    python benchmarks/workbench.py make FOLDER [--graphs 10000] [--megabytes 1000]
    python benchmarks/workbench.py measure FOLDER [--size 160x48] [--repeats 3] [--screens tree,guards,...]

`make` writes a recording of that many compilations and about that size, one of them with a stage of 200,000 lines.
`measure` opens it as a person does, each screen in a process of its own, so that a part can be measured again, and
prints for each: milliseconds until the key that opens it changes the screen, and until its rows are there; for keys
pressed there until the screen changes, of the clock and of CPU time up to then, and until it rests (what is shown
beside a row may come later): median and 95th percentile; and megabytes resident at the end. First it prints the
seconds to the first paint, last those until a search over everything shows its first results, or that nothing that was
recorded matches. Each number is the least of `repeats`: others may be at work on the machine. A start before the first
has compiled the modules, as pip does.
"""
from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import sys
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from large_recording import LONG, make

DOWN, ENTER, TAB, ESCAPE, PAGE_DOWN, FIRST = b"\x1b[B", b"\r", b"\t", b"\x1b", b"\x1b[6~", b"g"
PALETTE, BACKSPACE = b"\x10", b"\x7f"
WALK = (*[DOWN] * 10, *[PAGE_DOWN] * 3, *[DOWN] * 3)
QUIET = 0.15  # seconds without output after which the screen rests
REST = 0.03  # CPU seconds in QUIET below which nothing is computed any more


@dataclass(frozen=True)
class Screen:
    """A screen: where the workbench opens, the keys that lead to it, those that are timed there, and the one that goes
    back to where these began."""

    name: str
    place: str = ""
    opening: tuple[bytes, ...] = ()
    keys: Sequence[bytes] = WALK
    first: bytes = FIRST


WHOLE = (("recompilations", b"1"), ("guards", b"2"), ("fusion", b"3"), ("decisions", b"4"), ("passes", b"5"),
         ("memory", b"6"), ("time", b"7"), ("run", b"8"), ("model", b"9"), ("failure", b"0"))
OF_ONE = tuple((f"{name} of one", key) for name, key in WHOLE if name not in ("run", "failure"))
SCREENS = (
    Screen("tree"), Screen("open and close", "", (DOWN,), (ENTER,) * 8, b""),
    Screen("summary", "", (TAB,)), Screen("compilation", ":7/1", (TAB,)),
    Screen("capture", ":7/1:capture"), Screen("loop IR", ":7/1:loop_ir"), Screen("wrapper", ":7/1:wrapper"),
    Screen("kernels and stages", ":7/1:kernels", (), (b"t", b"t", DOWN, b"T", b"]", b"]", b"[", b"}", b"}", b"{") * 2),
    Screen("machine code", ":7/1:kernels:unit_0.asm"), Screen("follow", ":7/1:kernels", (), (ENTER, b"f") * 6, b""),
    Screen("find", ":7/1:capture", (b"/", *(bytes([c]) for c in b"add"), ENTER), (b"n", b"n", b"N", b"n") * 3),
    *(Screen(name, "", (key,)) for name, key in WHOLE),
    *(Screen(name, ":7/1", (key,)) for name, key in OF_ONE),
    Screen("fold", ":7/1", (b"2",), (b"z", b"z", DOWN) * 5),
    Screen("breaks", "", (b"b",)), Screen("difference", ":7/1", (b"d", b"{", b"d"), [DOWN, b"n", b"N", b"]"] * 4),
    Screen("act", ":7/1", (b"x",), [DOWN] * 8), Screen("help", "", (b"?",)),
    Screen("search", "", (b"s", *(bytes([c]) for c in b"n7_"), ENTER)),
    Screen("command palette", "", (PALETTE,), [bytes([c]) for c in b"go to 7/1"] + [DOWN] * 3 + [BACKSPACE] * 9, b""),
    Screen("long stage", ":0/0:capture"), Screen("long stage's graph", ":0/0", (b"9",)),
    Screen("long stage's guards", ":0/0", (b"2",)), Screen("long stage's fusion", ":0/0", (b"3",)),
)


@dataclass(frozen=True)
class Key:
    """What a key did: milliseconds until the screen changed (None: it did not), of CPU time until then, and until it
    rested."""

    first: float | None
    cpu: float
    settled: float


class Terminal:
    """The workbench in a pty."""

    def __init__(self, selector: str, size: tuple[int, int]) -> None:
        self.started = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", PYTHONDONTWRITEBYTECODE="")
            os.execv(sys.executable, [sys.executable, "-m", "ptdebug", "tui", selector])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def read(self, quiet: float, limit: float = 60.0, until: str = "") -> Key:
        """Read until nothing has come for `quiet` seconds, or until a text came."""
        start = last = time.perf_counter()
        used = self.cpu
        first: float | None = None
        cpu = 0.0
        got = b""
        while time.perf_counter() - start < limit:
            ready, _, _ = select.select([self.fd], [], [], quiet)
            if not ready:
                if not until:
                    break
                continue
            last = time.perf_counter()
            if first is None:
                first, cpu = last - start, self.cpu - used
            got += os.read(self.fd, 1 << 16)
            if until and re.search(until, got.decode(errors="replace")):
                break
        return Key(None if first is None else 1000 * first, 1000 * cpu, 1000 * (last - start))

    def key(self, key: bytes, quiet: float = QUIET, until: str = "") -> Key:
        """Press a key, and wait until the screen rests."""
        os.write(self.fd, key)
        return self.read(quiet, until=until)

    def rest(self) -> None:
        """Wait until nothing is computed any more, half a minute at most."""
        start = time.perf_counter()
        while time.perf_counter() - start < 30:
            used = self.cpu
            self.read(2 * QUIET)
            if self.cpu - used < REST:
                return

    @property
    def cpu(self) -> float:
        """Seconds of CPU time of the threads that there are."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    @property
    def cpu_in_all(self) -> float:
        """The same with threads that have ended, to a hundredth of a second."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident(self) -> float:
        """Megabytes."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1000  # type: ignore[index]

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def measure(folder: Path, size: tuple[int, int], repeats: int, wanted: Callable[[str], bool]) -> None:
    """Print the figures."""
    megabytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    print(f"recording of {megabytes:.0f} MB, {size[0]}x{size[1]}")
    _settled(str(folder), size).close()
    if wanted("first paint"):
        _first_paint(folder, size, repeats, "", re.escape(folder.name), "first paint")
        _first_paint(folder, size, repeats, ":0/0:capture", "200001|output", f"a stage of {LONG:,} lines")
    print(f"{'':22} {'opens':>6} {'rows':>6}  {'changes: median':>15} {'95 %':>5} {'CPU 95 %':>9} "
          f"{'rests 95 %':>10} {'keys':>6} {'MB':>5}")
    whole: list[Key] = []
    for screen in SCREENS:
        if wanted(screen.name):
            whole += _screen(folder, size, repeats, screen)
    print(f"{'all':22} {'':13}  {_spread(whole)}")
    if wanted("results"):
        _search(folder, size, repeats)


def _first_paint(
    folder: Path, size: tuple[int, int], repeats: int, place: str, text: str, title: str
) -> None:
    painted = []
    for _ in range(repeats):
        terminal = Terminal(f"{folder}{place}", size)
        terminal.read(0.05, until=text)
        painted.append((time.perf_counter() - terminal.started, terminal.cpu))
        terminal.close()
    print(f"{title}: {min(painted)[0]:.2f} s, {min(cpu for _, cpu in painted):.2f} s of CPU time", flush=True)


def _settled(selector: str, size: tuple[int, int]) -> Terminal:
    """The workbench where nothing is computed any more."""
    terminal = Terminal(selector, size)
    terminal.read(0.05, until=r"\$ ptdebug")
    terminal.rest()
    return terminal


def _screen(folder: Path, size: tuple[int, int], repeats: int, screen: Screen) -> list[Key]:
    terminal = _settled(f"{folder}{screen.place}", size)
    opens = rows = ""
    for number, key in enumerate(screen.opening, 1):
        opened = terminal.key(key)
        if number == len(screen.opening):
            start = time.perf_counter()
            terminal.rest()
            opens = f"{opened.first or 0:.0f}"
            rows = f"{opened.settled + 1000 * max(0.0, time.perf_counter() - start - 4 * QUIET):.0f}"
    walks = []
    for _ in range(repeats):
        if screen.first:
            terminal.key(screen.first)
            terminal.rest()
        walks.append([terminal.key(key) for key in screen.keys])
    found = [Key(min(key.first for key in same if key.first is not None),
                 min(key.cpu for key in same if key.first is not None), min(key.settled for key in same))
             for same in zip(*walks) if any(key.first is not None for key in same)]
    print(f"{screen.name:22} {opens:>6} {rows:>6}  {_spread(found)} {len(found):>3}/{len(screen.keys):<2} "
          f"{terminal.resident:>5.0f}", flush=True)
    terminal.close()
    return found


def _spread(keys: list[Key]) -> str:
    if not keys:
        return f"{'no key changed it':>42}"
    changed, cpu, settled = ([key.first or 0.0 for key in keys], [key.cpu for key in keys],
                             [key.settled for key in keys])
    most = [sorted(values)[int(0.95 * (len(values) - 1) + 0.5)] for values in (changed, cpu, settled)]
    return f"{statistics.median(changed):>15.0f} {most[0]:>5.0f} {most[1]:>9.0f} {most[2]:>10.0f}"


def _search(folder: Path, size: tuple[int, int], repeats: int) -> None:
    for text in (b"n7_", b"fused_3", b"no such text"):
        times = []
        for _ in range(repeats):
            terminal = _settled(str(folder), size)
            terminal.key(b"s")
            used = terminal.cpu_in_all
            os.write(terminal.fd, text + ENTER)
            found = terminal.read(0.05, until=r"\d+ lines|no match|nothing that was recorded", limit=300)
            times.append((found.settled / 1000, terminal.cpu_in_all - used))
            terminal.close()
        print(f"search for {text.decode()!r}, first results: {min(times)[0]:.2f} s, "
              f"{min(cpu for _, cpu in times):.2f} s of CPU time", flush=True)


def main() -> None:
    """The two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("make", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--graphs", type=int, default=10_000)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--size", default="160x48")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--screens", default="", help="these alone, by name; also: first paint, results")
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.folder, arguments.graphs, arguments.megabytes)
    else:
        width, height = map(int, arguments.size.split("x"))
        names = arguments.screens.split(",") if arguments.screens else []
        measure(arguments.folder, (width, height), arguments.repeats, lambda name: not names or name in names)


if __name__ == "__main__":
    main()
