"""Each fault through the product: its program differs from eager, replay names the place, bisect the decision, minify
makes a short repro. Every step is a command of the product, in a forked process with the fault."""
from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from . import children, programs
from .fault import VARIABLE, Fault, matches, planted

HERE = Path(__file__).parent
LIMIT = 120.0
HANG = 30.0  # seconds after which a program that never ends is taken for one
MOST_OPERATORS = 5


@dataclass
class Result:
    """What was found for one fault: "right", "wrong" or "none" (nothing was expected or asked), and the details."""

    name: str
    shown: str = "wrong"
    replay: str = "none"
    bisect: str = "none"
    minify: str = "none"
    difference: str = ""
    said: str = ""
    blamed: str = ""
    repro: str = ""
    seconds: float = 0.0


def prepare() -> None:
    """Load what every child needs, once; run no kernel, which would start threads."""
    import ptdebug.cli.main
    import ptdebug.cli.recorded_run
    import ptdebug.engine.stages
    import ptdebug.replay.ladder.training
    import torch

    ptdebug.compile(lambda: torch.zeros(()))  # the tracer


def environment(fault: Fault | None) -> None:
    """What children of a child need to have the fault too."""
    os.environ.pop("PTDEBUG_HOME", None)  # recordings are in the folder of the fault
    os.environ.update(PTDEBUG_GRAPH_CACHE="0", **(fault.environment if fault else {}))
    os.environ.pop("PTDEBUG_HOME", None)  # recordings are beside the program
    if fault is not None:
        os.environ[VARIABLE] = fault.name
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        os.environ["OMP_NUM_THREADS"] = str(fault.threads)


def command(fault: Fault | None, folder: Path, *words: str, limit: float = LIMIT) -> children.Ended:
    """A `ptdebug` command with the fault."""
    return children.forked(partial(_command, fault, words), folder, limit)


def anew(fault: Fault | None, folder: Path, *words: str, limit: float = LIMIT) -> children.Ended:
    """The same in a new interpreter, as a person runs it: replay forks only where torch has not been loaded before."""
    def call() -> None:
        environment(fault)
        os.execv(sys.executable, [sys.executable, "-m", "ptdebug", *words])

    return children.forked(call, folder, limit)


def _command(fault: Fault | None, words: Sequence[str]) -> int:
    from ptdebug.cli.main import main

    environment(fault)
    if fault is None:
        return main(words)
    _threads(fault)
    with planted(fault):
        return main(words)


def _threads(fault: Fault) -> None:
    import torch

    if torch.get_num_threads() != fault.threads:
        torch.set_num_threads(fault.threads)


def record(fault: Fault | None, program: str, folder: Path, *options: str, limit: float = LIMIT) -> children.Ended:
    """Record the program's script as `r`; what it computed goes to the file "found"."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.py").write_text(programs.script(program))

    def call() -> int:
        import torch

        try:
            _command(fault, ["run", "--name", "r", *options, "program.py"])
        finally:
            if "seen" in (left := vars(sys.modules["__main__"])):
                torch.save(programs.kept(left["seen"]), "found")
        return 0

    return children.forked(call, folder, limit)


def eager(program: str, folder: Path) -> list[Any]:
    """What the program computes in eager."""
    import torch

    def call() -> int:
        torch.save(programs.outcome(program, lambda f: f), "eager")
        return 0

    children.forked(call, folder, LIMIT)
    return torch.load(folder / "eager", weights_only=False)


def shown(fault: Fault, folder: Path, ran: children.Ended) -> tuple[bool, str]:
    """Whether the program differs from eager as the fault says, and how."""
    import torch

    if isinstance(ran.code, str):
        return fault.shows in (("hang",) if ran.code == children.HANG else ("signal", "memory")), ran.code
    if not (folder / "found").exists():
        return fault.shows == "exception", ran.errors.strip()[-400:]
    found = torch.load(folder / "found", weights_only=False)
    said = programs.difference(found, eager(fault.program, folder)) or "the same"
    if fault.shows == "fallback":
        return said == "the same" and "internal error" in ran.errors, "runs in eager"
    return said != "the same" and fault.shows in ("values", "memory"), said


def document(ended: children.Ended) -> dict[str, Any]:
    """The JSON that a command printed; {} for none."""
    try:
        found = json.loads(ended.out)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def check(fault: Fault, folder: Path, steps: Sequence[str]) -> Result:
    """The program with the fault, and all steps that are asked for."""
    result = Result(fault.name)
    ran = record(fault, fault.program, folder, *fault.options, limit=HANG if fault.shows == "hang" else LIMIT)
    right, result.difference = shown(fault, folder, ran)
    result.shown, result.seconds = "right" if right else "wrong", ran.seconds
    for step in steps:
        answer = _STEPS[step](fault, folder, result)
        setattr(result, step, "none" if answer is None else "right" if answer else "wrong")
    return result


def forget_program(folder: Path) -> None:
    """Let the program not run again: it takes longer than all else, and shows faults of capture only."""
    with (folder / "program.py").open("a") as file:
        file.write("\n# has changed\n")


def _replay(fault: Fault, folder: Path, result: Result) -> bool:
    if not of_capture(fault):
        forget_program(folder)
    ended = anew(fault, folder, "replay", "r", "--json", "--limit", str(HANG))
    found = document(ended)
    first = found.get("first_difference") or {}
    place = " ".join(str(first.get(k)) for k in ("stage", "node", "line"))
    result.said = f"{found.get('verdict')}: {place}" if found else f"{ended.code}: {ended.errors.strip()[-300:]}"
    result.seconds += ended.seconds
    return named(fault, found)


def named(fault: Fault, found: dict[str, Any]) -> bool:
    """Whether a replay's document names the stage of the fault, and the line of the program."""
    if fault.shows == "fallback":
        return any(r["stage"] in fault.stages and fault.said in str(r["why"]) for r in found.get("rungs", ()))
    first, lines = found.get("first_difference") or {}, marked(fault)
    died = fault.shows in ("signal", "hang", "memory")  # a whole kernel is the place
    return first.get("stage") in fault.stages and (died or not lines or first.get("line") in lines)


def of_capture(fault: Fault) -> bool:
    """Whether the tracer has the fault, which no captured graph shows."""
    return bool({"capture", "guards", "output_bytecode"} & set(fault.stages))


def marked(fault: Fault) -> list[int]:
    """The lines of the script that have the comment "# here"."""
    lines = programs.script(fault.program).splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith("# here")]


def _bisect(fault: Fault, folder: Path, result: Result) -> bool | None:
    subject = "r"
    if of_capture(fault):  # graphs are right: the whole program has to show it
        subject = "check.py"
        (folder / subject).write_text(programs.checking_script(fault.program))
    ended = command(fault, folder, "bisect", "--json", subject, limit=3 * LIMIT)
    found = document(ended)
    blamed = decisions(found)
    result.blamed = " ".join(blamed) or f"{ended.code}: {str(found.get('outcome') or ended.errors.strip())[-300:]}"
    result.seconds += ended.seconds
    if not fault.decision:
        return None
    return len(blamed) > 0 and all(matches(fault.decision, one) for one in blamed)


def decisions(found: dict[str, Any]) -> list[str]:
    """The decisions that a bisection blames, without the graph's id in front."""
    return [re.sub(r"^\d+/\d+:", "", name) for name in found.get("overrides", ())]


def _minify(fault: Fault, folder: Path, result: Result) -> bool:
    subject = "program.py" if of_capture(fault) else "r"
    ended = command(fault, folder, "minify", subject, "-o", "repro.py", "--json", limit=3 * LIMIT)
    found, file = document(ended), folder / "repro.py"
    result.seconds += ended.seconds
    if not file.exists():
        result.repro = f"{ended.code}: {ended.errors.strip()[-300:]}"
        return False
    count = found["operators"] if "operators" in found else _operators(file.read_text())
    result.repro = f"{count} operators, {'' if found.get('verified') else 'not '}verified"
    return bool(found.get("verified")) and count <= MOST_OPERATORS


def _operators(source: str) -> int:
    """How many lines of a repro that is a script compute something in a function."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return sum(isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare))
               for function in functions for node in ast.walk(function))


_STEPS: dict[str, Callable[[Fault, Path, Result], bool | None]] = {
    "replay": _replay, "bisect": _bisect, "minify": _minify,
}


def table(results: Sequence[Result]) -> str:
    """The results as text, and the totals."""
    rows = [("fault", "shown", "replay", "bisect", "minify", "said")]
    rows += [(r.name, r.shown, r.replay, r.bisect, r.minify, _said(r)) for r in results]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join([*(word.ljust(width) for word, width in zip(row, widths)), row[5]]).rstrip() for row in rows]
    totals = []
    for step in ("shown", "replay", "bisect", "minify"):
        asked = [getattr(r, step) for r in results if getattr(r, step) != "none"]
        if asked:
            totals.append(f"{step} {asked.count('right')} of {len(asked)}")
    return "\n".join([*lines, "", ", ".join(totals)])


def _said(result: Result) -> str:
    words = [result.difference, result.said, result.blamed, result.repro]
    return " | ".join(" ".join(word.split())[:110] for word in words if word)


def as_json(results: Sequence[Result]) -> str:
    """The results as a JSON document."""
    return json.dumps([asdict(r) for r in results], indent=1)
