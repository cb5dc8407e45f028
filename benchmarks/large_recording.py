"""A large recording with something for every screen of the workbench; `workbench.py make` writes it."""
from __future__ import annotations

import random
from pathlib import Path

from ptdebug.artifacts import records as r
from ptdebug.artifacts.store import RecordingWriter

LONG = 200_000  # lines of the longest stage, the captured graph of 0/0
LAYERS = 8  # modules of each graph
BUFFERS = 10  # loop bodies and kernels of each compilation
BREAKS_EVERY = 20  # compilations


def make(folder: Path, graphs: int, megabytes: int) -> None:
    """Write it. Names are random, so that it compresses as little as real ones do."""
    random.seed(0)
    program = folder.parent / "model.py"
    folder.mkdir(parents=True)
    program.write_text("".join(f"x{i} = layer(x{i})\n" for i in range(5000)))
    writer = RecordingWriter(folder, command=["model.py"])
    writer.source_file(str(program))
    nodes = max(20, megabytes * 1_000_000 // graphs // 32)
    for index in range(graphs):
        _compilation(writer, f"{index // 4}/{index % 4}", str(program), nodes if index else LONG, index)
    writer.close(0)


def _compilation(writer: RecordingWriter, compile_id: str, program: str, nodes: int, index: int) -> None:
    function = f"Model.layer_{compile_id.partition('/')[0]}"
    line = index % 4900 + 1
    writer.begin(compile_id, function, program, line)
    writer.record(compile_id, "frame", "", r.Frame(function, program, line))
    writer.record(compile_id, "capture", "", _graph("capture", program, nodes))
    if index % BREAKS_EVERY == 0:
        writer.record(compile_id, "breaks", "", r.Breaks((r.Break(
            "b0", "call-print", "print is called", "remove it, or call it outside", r.Location(program, line, function),
            f"x{line - 1} = layer(x{line - 1})"),)))
    _guards(writer, compile_id, program)
    _engine(writer, compile_id, program)
    writer.end(compile_id, "compiled", "", {"total": 0.1, "capture": 0.05, "kernels": 0.03})


def _guards(writer: RecordingWriter, compile_id: str, program: str) -> None:
    writer.record(compile_id, "guards", "", r.Guards(tuple(
        r.Guard(f"g{i}", f"L['self'].m{i}", "TYPE_MATCH", f"type(L['self'].m{i}) is Linear", parent=f"g{i // 2}",
                location=r.Location(program, i + 1))
        for i in range(20))))
    if not compile_id.endswith("/0"):
        writer.record(compile_id, "guards", "recompile", r.Recompile(
            "L['x'].size()[0] == 4", "4", "6", compile_id.partition("/")[0] + "/0", r.Location(program, 7)))


def _engine(writer: RecordingWriter, compile_id: str, program: str) -> None:
    """From ATen to machine code, each stage derived from the one before."""
    forward = _graph("forward", program, 3 * BUFFERS, "capture")
    writer.record(compile_id, "forward", "", forward)
    for name in ("01_common_subexpressions", "02_simplify"):
        writer.record(compile_id, "passes", name, r.Pass(
            name[3:], forward, (r.RuleMatch(name[3:], ("n900",), (forward.nodes[1].id,), "they are equal"),), 0.001))
    for i in range(BUFFERS):
        writer.record(compile_id, "loop_ir", f"buf{i}", r.Loops(
            f"buf{i}", (r.LoopAxis("i0", "8"),), (),
            tuple(r.LoopStatement(f"t{k}", "add", f"t{k} = add(t{max(k - 1, 0)}, 1.0)", "float32", (),
                                  (f"forward#{forward.nodes[3 * i + k].id}",)) for k in range(3)),
            (f"buf{i - 1}",) if i else (), (f"buf{i}",)))
    pairs = [(i, k) for i in range(BUFFERS) for k in range(i + 1, min(i + 3, BUFFERS))]
    writer.record(compile_id, "fusion", "", r.Fusion(tuple(
        r.FusionCandidate(f"buf{i}+buf{k}", f"buf{i}", f"buf{k}", "producer-consumer", False, "their loops differ",
                          1024, decision=f"fuse:buf{i}+buf{k}") for i, k in pairs)))
    writer.record(compile_id, "schedule", "", r.Schedule(
        tuple(r.ScheduledGroup(f"fused_{i}", "loops", (f"buf{i}",), f"fused_{i}", writes=(f"buf{i}",))
              for i in range(BUFFERS)),
        tuple(r.BufferPlan(f"buf{i}", 1024 * i, f"fused_{i}", f"fused_{min(i + 2, BUFFERS - 1)}")
              for i in range(BUFFERS)), 9000))
    _code(writer, compile_id)
    for i, k in pairs:
        subject = f"buf{i}+buf{k}"
        writer.decision(compile_id, r.Decision(f"fuse:{subject}", "fuse", subject,
                                               (r.Option("fuse"), r.Option("separate")), "separate", "separate",
                                               "their loops differ"))


def _code(writer: RecordingWriter, compile_id: str) -> None:
    kernels = [r.CodeLine(text, origins) for i in range(BUFFERS) for text, origins in (
        (f'extern "C" void fused_{i}(const float* in, float* out) {{', ()),
        ("    for (int64_t i0 = 0; i0 < 8; ++i0) {", ()),
        ("        const float t0 = in[i0] + 1.0f;", (f"loop_ir:buf{i}#t0", f"loop_ir:buf{i}#t1")),
        ("        out[i0] = t0;", (f"loop_ir:buf{i}#t2",)), ("    }", ()), ("}", ()))]
    asm = "".join(f"; line {number}\n  {number:x}:\tvmovss %xmm0,(%rdi)\n" for number in range(1, len(kernels) + 1))
    writer.record(compile_id, "kernels", "unit_0", r.Kernel(
        "unit_0", "cpp", tuple(kernels), tuple(f"fused_{i}" for i in range(BUFFERS)), ("g++",), outputs={"asm": asm}))
    writer.record(compile_id, "wrapper", "", r.Wrapper("call", "python", tuple(
        r.CodeLine(f"    fused_{i}(buf{i})", (f"schedule#fused_{i}",)) for i in range(BUFFERS))))


def _graph(name: str, program: str, nodes: int, before: str = "") -> r.Graph:
    made = []
    for i in range(nodes):
        text = f"{random.getrandbits(128):032x}" if not before else before
        origins = (f"source:{program}#{i % 5000 + 1}",) if before else ()
        made.append(r.Node(f"n{i}_{text}", "call_function", "aten.add.Tensor", (r.NodeRef(f"n{i - 1}"), i), {},
                           r.TensorMeta("torch.float32", (i, 8), (8, 1), "cpu"),
                           (r.Location(program, i % 5000 + 1, "forward"),), f"layers.{i * LAYERS // nodes}", origins))
    return r.Graph(name, (*made, r.Node("output", "output", "output", ([r.NodeRef("n0")],))))
