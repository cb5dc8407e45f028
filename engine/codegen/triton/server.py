"""Compiles Triton kernels in a separate process: run as a script, it imports neither torch nor the rest of ptdebug.

Jobs arrive on standard input, one JSON object a line; answers go to standard output, one a line. Each job is compiled
in a child that is forked once Triton is loaded: as many at once as there are processors, without sharing a GIL, and a
compiler that crashes loses one kernel and not the user's process.
"""
from __future__ import annotations

import gzip
import json
import linecache
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FORMS = ("ttir", "ttgir", "llir", "ptx")
FORMS_SUFFIX = ".forms"
LOG_LIMIT = 600  # characters of an error: an answer is written in one piece, which pipes promise up to 4096 bytes


def functions_of(text: str, filename: str, module: str) -> dict[str, Any]:
    """The namespace of a module of kernels; Triton reads their source where tracebacks do."""
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": module}
    exec(compile(text, filename, "exec"), namespace)
    return namespace


def compiled(
    function: Any, types: Sequence[str], constants: Sequence[Any], aligned: Sequence[int], warps: int, stages: int,
    target: Any,
) -> Any:
    """The `CompiledKernel` of a JIT function for `target`, a `GPUTarget` (None: the present device).

    `types` are the launch types of its first parameters, `constants` the values of the others (types by their names:
    "int64"); `aligned` are the positions of pointers to multiples of 16. Numerics as eager's: denormals are kept, a
    multiplication and an addition round twice; asserts on indices are live.
    """
    import triton
    import triton.language as tl
    from triton.compiler import ASTSource

    names = list(function.arg_names)
    values = {name: getattr(tl, c) if isinstance(c, str) else c for name, c in zip(names[len(types):], constants)}
    signature = {**dict(zip(names, types)), **dict.fromkeys(values, "constexpr")}
    source = ASTSource(function, signature, values, {(k,): [["tt.divisibility", 16]] for k in aligned})
    options = {"num_warps": warps, "num_stages": stages, "debug": True, "sanitize_overflow": False,
               "enable_reflect_ftz": False, "enable_fp_fusion": False}
    return triton.compile(source, target=target, options=options)


def compile_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """Compile one job, write its machine code to `job["path"]`, and say what a launch must know of it.

    The forms on the way go beside it, with the text that their line tables name. "scratch" counts the pointers
    that the kernel takes after its arguments, all null but the first, if "memory" says how many bytes a program needs.
    """
    from triton.backends.compiler import GPUTarget

    start = time.perf_counter()
    namespace = functions_of(job["text"], f"<ptdebug triton {job['name']}>", "ptdebug_triton")
    kernel = compiled(namespace[job["name"]], job["types"], job["constants"], job["aligned"], job["warps"],
                      job["stages"], GPUTarget(*job["target"]))
    facts = kernel.metadata
    needs = [getattr(facts, name, None) for name in ("global_scratch_size", "profile_scratch_size")]
    if needs[1]:
        raise RuntimeError("the kernel requires scratch memory for a profile")
    forms = {"text": job["text"], **{form: str(kernel.asm[form]) for form in FORMS if form in kernel.asm}}
    for path, data in ((job["path"] + FORMS_SUFFIX, gzip.compress(json.dumps(forms).encode(), 1)),
                       (job["path"], kernel.asm["cubin"])):
        written = f"{path}.{os.getpid()}"
        Path(written).write_bytes(data)
        os.replace(written, path)
    return {"name": facts.name, "shared": facts.shared, "warps": facts.num_warps,
            "scratch": sum(n is not None for n in needs), "memory": needs[0] or 0,
            "seconds": round(time.perf_counter() - start, 3)}


class _Server:
    """Reads jobs, forks, and reports children that died without an answer."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.running: dict[int, int] = {}  # process -> its job's number
        signal.signal(signal.SIGCHLD, lambda number, frame: self.reap())

    def serve(self) -> None:
        """Until standard input ends."""
        for line in sys.stdin.buffer:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            job = json.loads(line)
            while len(self.running) >= self.most:
                self.reap(0)
            process = os.fork()
            if not process:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ptxas is waited for where it is called
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
                _child(job)
            self.running[process] = job["number"]
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def reap(self, options: int = os.WNOHANG) -> None:
        """Forget children that have ended."""
        while self.running:
            process, status = os.waitpid(-1, options)
            if not process:
                return
            options = os.WNOHANG
            number = self.running.pop(process)
            if status:
                _answer({"number": number, "error": f"the compiler died (status {status})"})


def _child(job: Mapping[str, Any]) -> None:
    try:
        answer = compile_job(job)
    except BaseException as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:LOG_LIMIT]}
    _answer({**answer, "number": job["number"]})
    os._exit(0)


def _answer(answer: Mapping[str, Any]) -> None:
    os.write(_ANSWERS, (json.dumps(answer) + "\n").encode())


def main() -> None:
    """Load what all children need, then serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process; this one ends when its input does
    import triton
    import triton.compiler
    import triton.runtime.cache
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    # A part of the key of Triton's own cache: a digest of all its files, which takes two seconds. What is compiled here
    # is kept under ptdebug's keys, which contain the version of Triton.
    triton.runtime.cache.triton_key = lambda: f"ptdebug {triton.__version__}"
    make_backend(GPUTarget("cuda", 90, 32))
    _Server(int(sys.argv[1])).serve()


if __name__ == "__main__":
    _ANSWERS = os.dup(1)
    os.dup2(2, 1)  # what the compiler prints is not an answer
    main()
