"""A program on two processes of one gloo group, and what each of them found."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.warm_process import in_copy

START = """
import faulthandler, json, os, sys, torch
import torch.distributed as dist
import torch.multiprocessing as mp
"""
END = """
def in_a_group(rank, folder):
    faulthandler.enable()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found = work(rank, folder)
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(found, file)
    dist.destroy_process_group()
    # Threads of gloo outlive that, in eager too. Where one lets go of a tensor that Python knows while the interpreter
    # ends, it is ended inside a destructor, and the process aborts ("terminate called without an active exception").
    sys.stdout.flush()
    os._exit(0)

if __name__ == "__main__":
    mp.start_processes(in_a_group, args=(sys.argv[1],), nprocs=2, start_method="fork")
"""


def found_by_two_ranks(program: str, folder: Path) -> list[Any]:
    """What `work(rank, folder)` of the text `program` returns on rank 0 and on rank 1, by way of JSON."""
    (folder / "program.py").write_text(START + program + END)
    done = in_copy("program.py", str(folder), cwd=folder, timeout=280)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
