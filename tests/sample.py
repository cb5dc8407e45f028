"""A small recording written by hand, with a record for every stage, which many tests read."""
from __future__ import annotations

from pathlib import Path

from ptdebug.artifacts import records as r
from ptdebug.artifacts.store import RecordingWriter

PROGRAM = '''\
import torch


def gelu(x):
    return x * torch.sigmoid(1.702 * x)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 16)

    def forward(self, x):
        h = gelu(self.up(x))
        print("hidden", tuple(h.shape))
        return h.sum(-1)


model = torch.compile(Model())
model(torch.ones(4, 8))
model(torch.ones(6, 8))
'''
F32 = "torch.float32"


def meta(*shape: int | str) -> r.TensorMeta:
    stride: list[int | str] = []
    step = 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= size if isinstance(size, int) else 4
    return r.TensorMeta(F32, shape, tuple(stride), "cpu")


def lines(stage: str, text: str, origins: dict[int, tuple[str, ...]]) -> tuple[r.CodeLine, ...]:
    return tuple(r.CodeLine(line, origins.get(i, ())) for i, line in enumerate(text.splitlines(), 1))


CPP = """\
#include <cmath>
#include <cstdint>
// sigmoid, mul
extern "C" int64_t kernel_0(const float* __restrict up, float* __restrict buf1) {
    #pragma omp parallel for
    for (int64_t i0 = 0; i0 < 64; ++i0) {
        const float t0 = up[i0];
        const float t1 = t0 * 1.702f;
        const float t2 = 1.0f / (1.0f + std::exp(-t1));
        buf1[i0] = t0 * t2;
    }
    return 0;
}
"""
WRAPPER = """\
def call(args):
    x, weight, bias = args
    buf0 = extern.addmm(bias, x, weight.t())
    buf1 = empty_strided((4, 16), (16, 1))
    kernel_0(buf0.data_ptr(), buf1.data_ptr())
    return (buf1,)
"""


class SampleBuilder:
    """Writes two compilations of `Model.forward`, one resume function and one skipped frame."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.program = folder.parent / "model.py"
        self.program.write_text(PROGRAM)
        self.writer = RecordingWriter(folder, command=["model.py"])

    def at(self, line: int, function: str = "forward") -> r.Location:
        return r.Location(str(self.program), line, function)

    def write(self, close: bool = True) -> Path:
        self.writer.source_file(str(self.program))
        self.compile("0/0", 4)
        self.compile("0/1", "s0")
        self.writer.record("0/1", "guards", "recompile", r.Recompile(
            "L['x'].size()[0] == 4", "4", "6", "0/0", self.at(14), "the first dimension of x is dynamic from now on"))
        self.writer.begin("1/0", "torch_dynamo_resume_in_forward_at_15", str(self.program), 15)
        self.frame("1/0", self.at(15, "torch_dynamo_resume_in_forward_at_15"))
        self.writer.absent("1/0", "kernels", "cache hit")
        self.writer.end("1/0", "compiled", "", {"total": 0.1, "capture": 0.1})
        self.writer.begin("2/0", "helper", str(self.program), 4)
        self.writer.end("2/0", "skipped", "no tensor operation", {})
        if close:
            self.writer.close(0)
        return self.folder

    def frame(self, compile_id: str, place: r.Location) -> None:
        self.writer.record(compile_id, "frame", "", r.Frame(
            place.function, place.file, place.line, "__main__",
            (r.Argument("self", "Model"), r.Argument("x", "Tensor", "", meta(4, 8))), (self.at(20, "<module>"),)))

    def compile(self, compile_id: str, batch: int | str) -> None:
        w = self.writer
        w.begin(compile_id, "forward", str(self.program), 13)
        self.frame(compile_id, self.at(13))
        w.record(compile_id, "bytecode", "", self.bytecode("original"))
        w.record(compile_id, "capture", "", self.capture(batch))
        w.record(compile_id, "breaks", "", self.breaks())
        w.record(compile_id, "output_bytecode", "", self.bytecode("rewritten"))
        w.record(compile_id, "guards", "", self.guards(batch))
        w.record(compile_id, "joint", "", self.aten(batch))
        w.record(compile_id, "passes", "01_common_subexpressions", r.Pass(
            "common_subexpressions", self.aten(batch), (r.RuleMatch("common-subexpression", ("mul_9",), ("mul",)),),
            0.001))
        w.record(compile_id, "loop_ir", "buf1", self.loops(batch))
        w.record(compile_id, "fusion", "", r.Fusion((
            r.FusionCandidate("buf0+buf1", "buf0", "buf1", "producer-consumer", False, "buf0 is a library call", 256,
                              "a lowering of aten.addmm to loops", "fuse:buf0+buf1"),
            r.FusionCandidate("buf1+buf2", "buf1", "buf2", "siblings", True, "both read up", 512),)))
        w.record(compile_id, "schedule", "", r.Schedule((
            r.ScheduledGroup("g0", "extern", ("addmm",), "aten.addmm", reads=("x",), writes=("buf0",), flops=1024,
                             origins=("joint#addmm",)),
            r.ScheduledGroup("g1", "loops", ("buf1",), "kernel_0", ("i0",), ("buf0",), ("buf1",), bytes=512,
                             origins=("loop_ir:buf1#t2",)),),
            (r.BufferPlan("buf0", 256, "g0", "g1"), r.BufferPlan("buf1", 256, "g1", "g1", role="output")), 512))
        w.record(compile_id, "kernels", "unit_0", r.Kernel(
            "unit_0", "cpp", lines("kernels", CPP, {
                3: ("loop_ir:buf1#t1", "loop_ir:buf1#t2"), 4: ("schedule#g1",), 7: ("loop_ir:buf1#t0",),
                8: ("loop_ir:buf1#t1",), 9: ("loop_ir:buf1#t2",), 10: ("loop_ir:buf1#t3",)}),
            ("kernel_0",), ("g++", "-O3", "unit_0.cpp"), "", 0.7, False, "/tmp/unit_0.so", "cpu",
            {"asm": "kernel_0:\n\tret\n"}, {"vector_width": 8}))
        w.record(compile_id, "wrapper", "", r.Wrapper("call", "python", lines("wrapper", WRAPPER, {
            3: ("schedule#g0",), 5: ("schedule#g1",)})))
        w.decision(compile_id, r.Decision(
            "fuse:buf0+buf1", "fuse", "buf0+buf1", (r.Option("fuse", 0.0), r.Option("keep", 1.0, "a library call")),
            "keep", "keep", "buf0 is a library call: there are no loops to fuse"))
        w.decision(compile_id, r.Decision(
            "fallback:addmm", "fallback", "addmm", (r.Option("aten"), r.Option("loops")), "aten", "aten",
            "a matrix product is faster in the library", location=self.at(14), origins=("joint#addmm",)))
        w.absent(compile_id, "backward", "inference: nothing requires a gradient")
        w.flush_runtime({compile_id: r.Runtime(10, 1)})
        w.end(compile_id, "compiled", "", {"total": 1.0, "capture": 0.2, "kernels": 0.7, "recording": 0.01})

    def bytecode(self, role: str) -> r.Bytecode:
        steps = [("RESUME", "0", 13, 0), ("LOAD_GLOBAL", "gelu", 14, 1), ("LOAD_FAST", "self", 14, 1),
                 ("CALL", "1", 14, -1), ("STORE_FAST", "h", 14, -1), ("LOAD_GLOBAL", "print", 15, 1),
                 ("RETURN_VALUE", "", 16, -1)]
        return r.Bytecode("forward", tuple(
            r.Instruction(str(2 * i), name, argument, self.at(line), effect, i == 5,
                          (f"bytecode#{2 * i}",) if role != "original" else ())
            for i, (name, argument, line, effect) in enumerate(steps)), (), "3.11", role)

    def capture(self, batch: int | str) -> r.Graph:
        here, inner = (self.at(14),), (self.at(14), self.at(5, "gelu"))
        return r.Graph("forward", (
            r.Node("x", "placeholder", "x", value=meta(batch, 8)),
            r.Node("up", "call_function", "torch.nn.functional.linear",
                   (r.NodeRef("x"), r.NodeRef("weight"), r.NodeRef("bias")), {}, meta(batch, 16), here, "up",
                   ("bytecode#6",)),
            r.Node("mul", "call_function", "operator.mul", (1.702, r.NodeRef("up")), {}, meta(batch, 16), inner, "",
                   ("bytecode#6",)),
            r.Node("sigmoid", "call_function", "torch.sigmoid", (r.NodeRef("mul"),), {}, meta(batch, 16), inner),
            r.Node("mul_1", "call_function", "operator.mul", (r.NodeRef("up"), r.NodeRef("sigmoid")), {},
                   meta(batch, 16), inner),
            r.Node("output", "output", "output", ((r.NodeRef("mul_1"),),))), ("h is live across the break",))

    def aten(self, batch: int | str) -> r.Graph:
        return r.Graph("forward", (
            r.Node("x", "placeholder", "x", value=meta(batch, 8), origins=("capture#x",)),
            r.Node("addmm", "call_function", "aten.addmm.default", (r.NodeRef("x"),), {}, meta(batch, 16),
                   origins=("capture#up",)),
            r.Node("mul", "call_function", "aten.mul.Tensor", (r.NodeRef("addmm"), 1.702), {}, meta(batch, 16),
                   origins=("capture#mul",)),
            r.Node("sigmoid", "call_function", "aten.sigmoid.default", (r.NodeRef("mul"),), {}, meta(batch, 16),
                   origins=("capture#sigmoid",)),
            r.Node("mul_1", "call_function", "aten.mul.Tensor", (r.NodeRef("addmm"), r.NodeRef("sigmoid")), {},
                   meta(batch, 16), origins=("capture#mul_1",)),
            r.Node("output", "output", "output", ((r.NodeRef("mul_1"),),))))

    def breaks(self) -> r.Breaks:
        return r.Breaks((r.Break(
            "b0", "builtin-with-side-effect", "print() runs outside of the graph",
            "remove the print, or print after the compiled call", self.at(15), 'print("hidden", tuple(h.shape))',
            (self.at(15),), ("print", "'hidden'", "(4, 16)"), "CALL 2", "torch_dynamo_resume_in_forward_at_15",
            ("bytecode#10",)),))

    def guards(self, batch: int | str) -> r.Guards:
        return r.Guards((
            r.Guard("g0", "L['self']", "ID_MATCH", "___check_obj_id(L['self'], 139)", "139", "the module Model",
                    self.at(13)),
            r.Guard("g1", "L['self'].training", "BOOL", "L['self'].training is True", "True", "", self.at(14), "g0"),
            r.Guard("g2", "L['x']", "TENSOR_MATCH", f"check_tensor(L['x'], float32, size=[{batch}, 8])",
                    f"float32[{batch}, 8]", "", self.at(14), "", ("capture#x",))))

    def loops(self, batch: int | str) -> r.Loops:
        return r.Loops("buf1", (r.LoopAxis("i0", "64"),), (), (
            r.LoopStatement("t0", "load", "t0 = load buf0[i0] : float32", "float32", (), ("joint#mul",)),
            r.LoopStatement("t1", "mul", "t1 = mul t0, 1.702 : float32", "float32", ("t0",), ("joint#mul",)),
            r.LoopStatement("t2", "sigmoid", "t2 = sigmoid t1 : float32", "float32", ("t1",), ("joint#sigmoid",)),
            r.LoopStatement("t3", "store", "store buf1[i0], t2", "float32", ("t2",), ("joint#mul_1",)),
        ), ("buf0",), ("buf1",), meta(batch, 16))


def write_sample(folder: Path) -> Path:
    """Write the sample recording into `folder` and return it."""
    return SampleBuilder(folder).write()
