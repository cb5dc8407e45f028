"""A kernel as a script: its source, a launcher, the buffers that it was called with, and what they should become."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...artifacts.context import CompileContext, CompileId
from ...artifacts.recorder import NullRecorder
from ...artifacts.records import Kernel
from ...engine.codegen.triton.generate import generate
from ...engine.codegen.triton.source import Launch, TritonSource
from ...engine.ir.interpreter import integer
from ...engine.ir.ir import Foreach
from ...engine.unsupported import EngineUnsupported
from ..recorded.graphs import ReplayError
from ..recorded.inputs import clones
from .regenerate import KernelCall, Memory, with_random
from .script import Body, Header, Repro, check_of, compose
from .tensors import Tensors, described

ULPS = 16  # of the largest number of a buffer, that it may be away in any case
SENSITIVITY = 8.0  # times what moving every input by a unit in the last place does
_CHECK = "check_kernel.py"
_END_OF_KERNELS = "// What Python calls"
_LAUNCHER = '''
extern "C" __attribute__((visibility("default"))) long launch(const long* a) {{
  return {name}({arguments});
}}
'''


def kernel_repro(
    call: KernelCall, record: Kernel, random: bool, header: Header, symbols: Mapping[str, float]
) -> Repro:
    """The script of one call of a kernel, whose recorded source is `record`; `symbols` has its dynamic sizes.
    Raises ReplayError."""
    if isinstance(call.group, Foreach) and record.language != "cpp":
        raise ReplayError("a kernel over several sets of buffers (horizontal fusion) has no script yet")
    call = with_random(call) if random else call
    text = "\n".join(line.text for line in record.lines)
    if record.language == "cpp":
        buffers, definitions = _cpp(call, record, text, symbols)
        imports = ["import ctypes", "import subprocess", "import tempfile"]
    else:
        header, buffers, definitions = _triton(call, header, text)
        imports = ["import triton", "import triton.language as tl", "from triton.language.extra import libdevice"]
    tensors = Tensors()
    memory = {buffer: call.memory[buffer] for buffer in buffers}
    tensors.shared(list(memory.values()))
    values = {buffer: tensors.expression(buffer, value) for buffer, value in memory.items()}
    expected = call.expected(call.memory)
    right = {b: tensors.expression(f"expected.{b}", value) for b, value in expected.items() if b in memory}
    make = ["buffers = {", *(f"    {b!r}: {values[b]},  # {described(memory[b])}" for b in buffers), "}",
            "expected = {", *(f"    {b!r}: {right[b]}," for b in right), "}", "return buffers, expected"]
    allowed = {b: float(f"{allowed_difference(call.expected, call.memory, expected, b):.3g}") for b in right}
    settings = ["", "", f"ALLOWED = {allowed}  # how far each buffer may be away"]
    body = Body(header, [*definitions, *settings], make, tensors, imports)
    return compose(body, check_of(_CHECK))


def allowed_difference(
    compute: Callable[[Memory], Memory], memory: Memory, expected: Memory, buffer: str
) -> float:
    """How far rounding may move a buffer: eight times what a unit in the last place of every input does to it."""
    value = expected[buffer]
    if not (value.is_floating_point() or value.is_complex()) or not value.numel():
        return 0.0
    top = value.abs().nan_to_num(0.0, 0.0, 0.0).max().item()
    moved = compute({name: _moved(tensor) for name, tensor in memory.items()})[buffer]
    apart = (moved - value).abs().nan_to_num(0.0, 0.0, 0.0).max().item()
    return max(ULPS * torch.finfo(value.dtype).eps * top, SENSITIVITY * apart)


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.layout is not torch.strided:
        return tensor
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, tensor.shape, generator=generator, device="cpu") * 2 - 1
    factors = (1 + torch.finfo(tensor.dtype).eps * signs).to(tensor)
    return clones((tensor,))[0].copy_(torch.where(tensor == tensor.round(), tensor, tensor * factors))


# ---- C++ -------------------------------------------------------------------------------------------------------------
def _cpp(
    call: KernelCall, record: Kernel, text: str, symbols: Mapping[str, float]
) -> tuple[list[str], list[str]]:
    """The buffers in the order of the parameters, and the lines of SOURCE and `launch`."""
    name = function_of(text, call.group.kernel)
    source, parameters = one_kernel(text, record.kernels, name)
    pointers = iter(call.part.work.signatures[call.group.kernel].buffers)
    buffers, arguments, values = [], [], []
    if [kind for kind, _ in parameters] == ["void* const*"]:  # a table of pointers, of several sets of buffers
        buffers, parameters, arguments = list(pointers), [], ["(void* const*)a"]
        values = [f"buffers[{buffer!r}].data_ptr()" for buffer in buffers]
    for position, (kind, parameter) in enumerate(parameters):
        arguments.append(f"({kind})a[{position}]")
        if "*" in kind:
            buffers.append(next(pointers, ""))
            values.append(f"buffers[{buffers[-1]!r}].data_ptr()")
        elif parameter in symbols:
            values.append(repr(int(symbols[parameter])))
        else:
            raise ReplayError(f"the kernel {name} has a parameter that is not known: {parameter}")
    if "" in buffers or next(pointers, None) is not None:
        raise ReplayError(f"the graph, compiled again, calls {name} with other buffers")
    source += _LAUNCHER.format(name=name, arguments=", ".join(arguments))
    if "'''" in source or source.endswith("\\"):
        raise ReplayError(f"the recorded source of {name} is damaged")
    return buffers, [
        f"SOURCE = r'''{source}'''", "COMMAND = [", *(f"    {word!r}," for word in command(record)), "]", "", "",
        "def launch(buffers):", '    """Compile the kernel and call it; its status."""',
        "    folder = Path(tempfile.mkdtemp())", "    (folder / 'kernel.cpp').write_text(SOURCE)",
        "    subprocess.run([*COMMAND, 'kernel.cpp', '-o', 'kernel.so', '-lmvec', '-lm'], cwd=folder, check=True)",
        "    kernel = ctypes.CDLL(str(folder / 'kernel.so')).launch", "    kernel.restype = ctypes.c_long",
        f"    arguments = [{', '.join(values)}]", "    return kernel((ctypes.c_long * len(arguments))(*arguments))",
    ]


def one_kernel(text: str, names: Sequence[str], name: str) -> tuple[str, list[tuple[str, str]]]:
    """The source of one kernel of a unit, with what stands before all kernels; its parameters as (type, name)."""
    functions = [found for n in names for found in re.finditer(rf"^static int64 {re.escape(n)}(_nest)?\(", text, re.M)]
    starts = {found[0].removeprefix("static int64 ")[:-1]: found.start() for found in functions}
    if name not in starts:
        raise ReplayError(f"the recorded source has no kernel {name}; it has: {', '.join(starts)}")
    first = text.rfind("\n\n", 0, min(starts.values()))
    begin = text.rfind("\n\n", 0, starts.get(f"{name}_nest", starts[name]))
    end = text.index("\n}\n", starts[name]) + 3
    head = text[starts[name]: text.index(") {", starts[name])].partition("(")[2]
    parameters = []
    for part in head.split(","):
        kind, _, parameter = part.strip().rpartition(" ")
        parameters.append((kind.replace("__restrict", "").strip(), parameter))
    return text[:first] + "\n" + text[begin:end], parameters


def function_of(text: str, kernel: str) -> str:
    """The function that a kernel is: of those that differ in names alone, the unit has one."""
    found = re.search(rf'\{{"{re.escape(kernel)}", call_(\w+),', text)
    return found[1] if found else kernel


def command(record: Kernel) -> list[str]:
    """The compiler call without files and libraries."""
    compiler = record.command[0].rpartition("/")[2] if record.command else "g++"
    return [compiler, *(word for word in record.command[1:] if word.startswith("-") and not word.startswith(
        ("-o", "-l", "-nodefaultlibs", "-Wl")))]


# ---- Triton ----------------------------------------------------------------------------------------------------------
def _triton(call: KernelCall, header: Header, text: str) -> tuple[Header, list[str], list[str]]:
    """The header, the buffers, and the lines of the kernel and of `launch`."""
    try:
        context = CompileContext(CompileId(0, 0), NullRecorder())
        program = call.part.work.plan.program
        source = generate(call.group, dict(program.buffers), context, program.sizes)
    except EngineUnsupported as error:
        raise ReplayError(f"there is no Triton form of {call.group.kernel}: {error}") from error
    if text.strip() != source.text.strip():  # sizes were dynamic, and are those of the inputs now
        header = replace(header, facts=(*header.facts, "Its source is generated again, for the sizes of these inputs."))
        text = source.text
    body = re.sub(r"^(import|from) .*\n", "", text, flags=re.M).strip("\n").split("\n")
    launches = [line for launch in source.launches for line in _launch(launch, source, call)]
    workspaces = [f"    {w.name} = torch.empty({_evaluated(w.numel, call)}, dtype={w.dtype}, device=device)"
                  for w in source.workspaces]
    return header, list(source.signature.buffers), [
        *body, "", "", "def launch(buffers):", '    """Run the kernel on a GPU, or in the interpreter; its status."""',
        "    device = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "    if device == 'cpu':", "        interpret()",
        "    buffers |= {name: value.to(device) for name, value in buffers.items()}", *workspaces, *launches,
        "    return 0", "", "", *_INTERPRET.split("\n"),
    ]


_INTERPRET = '''def interpret():
    """Put Triton's interpreter in place of its compiler."""
    from triton.runtime.interpreter import InterpretedFunction

    from ptdebug.engine.codegen.triton import interpreter_library as library

    for name, found in list(globals().items()):
        if isinstance(found, triton.JITFunction):
            globals()[name] = InterpretedFunction(found.fn)
    globals().update(language=tl, language_core=tl.core, libdevice=library.libdevice())
    globals().update(tl=library.InterpretedLanguage())'''


def _launch(launch: Launch, source: TritonSource, call: KernelCall) -> list[str]:
    own = {w.name for w in source.workspaces}
    pointers = [p if p in own else f"buffers[{p!r}]" for p in launch.pointers]
    symbols = [repr(int(call.symbols[s])) for s in launch.symbols]
    constants = [f"{key}={value}" for key, value in launch.constants.items()]
    grid = tuple(_evaluated(size, call) for size in launch.grid)
    options = f"num_warps={launch.warps}, num_stages={launch.stages}"
    return [f"    {launch.name}[{grid}]({', '.join([*pointers, *symbols, *constants])}, {options})"]


def _evaluated(expression: Any, call: KernelCall) -> int:
    return integer(expression, call.symbols)
