"""`ptdebug run --compiler torch`: the program runs as with stock, and what stock's trace holds becomes records."""
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from ptdebug.artifacts.records import Guard, Guards, NodeRef, Symbol
from ptdebug.artifacts.render_lists import recompile_lines
from ptdebug.cli import torch_trace_guards, torch_trace_text

GRAPH = '''class <lambda>(torch.nn.Module):
    def forward(
        self,
        arg0_1: "f32[4, s7][s7, 1]cpu",  # PlainAOTInput(idx=0)
    ):
        # File: /tmp/model.py:12 in forward, code: x = self.l(x)
        sin: "f32[4, s7][s7, 1]cuda:0" = torch.ops.aten.sin.default(arg0_1);  arg0_1 = None
        alias = sin
        # File: /tmp/model.py:13 in forward, code: return x + 1
        add: "bf16[][]cpu" = torch.ops.aten.add.Tensor(alias, 1, alpha = 2.0);  sin = None
        view = add.view(-1, [2, add])
        getitem = view[0]
        return (add, getitem)
'''


def test_graph_text() -> None:
    argument, sin, add, view, getitem, output = torch_trace_text.graph(GRAPH, "forward").nodes
    assert (argument.op, argument.value.shape, argument.value.stride) == ("placeholder", (4, "s7"), ("s7", 1))
    assert (sin.target, sin.value.device, sin.stack[0].line) == ("torch.ops.aten.sin.default", "cuda:0", 12)
    assert (add.args, add.kwargs, add.value.dtype) == ((NodeRef("sin"), 1), {"alpha": 2.0}, "bfloat16")
    assert (add.value.shape, add.stack[0].line) == ((), 13)
    assert (view.op, view.args) == ("call_method", (NodeRef("add"), -1, [2, NodeRef("add")]))
    assert (getitem.target, getitem.args) == ("operator.getitem", (NodeRef("view"), 0))
    assert output.args == ([NodeRef("add"), NodeRef("getitem")],)


JOINT = '''class joint_helper(torch.nn.Module):
    def forward(self, primals, tangents):
        primals_1: "f32[4][1]cpu"; tangents_1: "f32[4][1]cpu"

        primals_1, tangents_1, = fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)
        # File: /tmp/model.py:12 in forward, code: return x.sin()
        sin: "f32[4][1]cpu" = torch.ops.aten.sin.default(primals_1)
        mul: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(tangents_1, primals_1);  tangents_1 = primals_1 = None
        return pytree.tree_unflatten([sin, mul], self._out_spec)
'''


def test_inputs_of_a_joint_graph() -> None:
    first, tangent, sin, mul, _ = torch_trace_text.graph(JOINT, "joint").nodes
    assert [(n.op, n.id, n.value.shape) for n in (first, tangent)] == [
        ("placeholder", "primals_1", (4,)), ("placeholder", "tangents_1", (4,))]
    assert (sin.args, sin.stack[0].line) == ((NodeRef("primals_1"),), 12)
    assert mul.args == (NodeRef("tangents_1"), NodeRef("primals_1"))


INNER = '''class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[5][1]cpu"):
        # File: /tmp/model.py:4 in f, code: return torch.cond(x.sum() > 0, g, h, (x,))
        gt: "b8[][]cpu" = L_x_ >= 0
        cond_true_0 = self.cond_true_0
        cond = torch.ops.higher_order.cond(gt, cond_true_0, cond_true_0, (L_x_,));  gt = cond_true_0 = L_x_ = None
        return (cond[0],)

    class cond_true_0(torch.nn.Module):
        def forward(self, l_x_: "f32[5][1]cpu"):
            child: "f32[5][1]cpu" = l_x_.clone()
            # File: /tmp/model.py:9 in g, code: return a.sin()
            sin: "f32[5][1]cpu" = l_x_.sin();  l_x_ = None
            return (sin,)
'''


def test_numbers_that_are_not_finite() -> None:
    text = """class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[3]"):
        a = x.masked_fill(x, -inf);  x = None
        b = a.clamp(float('-inf'), inf);  a = None
        return (b,)
"""
    _, fill, clamp, _ = torch_trace_text.graph(text, "capture").nodes
    assert fill.args[2] == {"float": "-inf"} and clamp.args[1:] == ({"float": "-inf"}, {"float": "inf"})


def test_graphs_inside_of_a_text() -> None:
    graph = torch_trace_text.graph(INNER, "capture")
    held = graph.nodes[2]
    assert (graph.nodes[1].target, graph.nodes[1].args) == ("operator.ge", (NodeRef("L_x_"), 0))
    assert (held.op, held.id, held.target) == ("get_attr", "cond_true_0", "cond_true_0")
    argument, clone, sin, output = graph.inner["cond_true_0"].nodes
    assert (argument.op, clone.stack, sin.target, sin.stack[0].line) == ("placeholder", (), "sin", 9)
    assert output.args == ([NodeRef("sin")],)


def test_kernels_with_their_nodes() -> None:
    """From Inductor's mapping: calls in their order, and where the nodes of a graph after its passes come from."""
    mapping = json.dumps({
        "cppCodeToPost": {"extern_kernels.mm:2": ["mm"], "cpp_fused_sin_0:10": ["add", "sin"],
                          "cpp_fused_sin_0:1": ["sin"], "cpp_fused_cos_0:3": ["cos"],
                          "extern_kernels.bmm:4": ["sin"], "extern_kernels.mm:5": ["elsewhere"]},
        "postToPre": {"sin": ["y"]}})
    code = "    cpp_fused_sin_0(a)\n    extern_kernels.mm(a, b, out=c)"  # the mapping has another code's calls, too
    groups = torch_trace_text.schedule(mapping, "00_post_grad", {"cpp_fused_sin_0"}, code, {"mm", "sin", "add"}).groups
    assert [(g.id, g.kind, g.kernel) for g in groups] == [
        ("call1", "loops", "cpp_fused_sin_0"), ("call2", "extern", "extern_kernels.mm"),
        ("call10", "loops", "cpp_fused_sin_0")]
    assert groups[2].origins == ("passes:00_post_grad#add", "passes:00_post_grad#sin")
    linked = torch_trace_text.with_captured(torch_trace_text.graph(GRAPH, "passes"), mapping)
    assert {node.id: node.origins for node in linked.nodes}["sin"] == ("capture#y",)


def test_kernels_without_their_nodes() -> None:
    """Inductor maps none of a backward's: the calls of the code are counted."""
    code = """
cpp_fused_sin_0 = async_compile.cpp_pybinding(['float*'], r''' ''')
    def call(self, args):
        buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
        cpp_fused_sin_0(primals_1, buf0)
        extern_kernels.mm(buf0, buf1, out=buf2)
        buf3 = torch.ops.aten.sort.default(buf2)
        triton_poi_1.run(buf3, 4, stream=stream0)
"""
    groups = torch_trace_text.called(code, {"cpp_fused_sin_0", "triton_poi_1"}).groups
    assert [(g.kind, g.kernel) for g in groups] == [
        ("loops", "cpp_fused_sin_0"), ("extern", "extern_kernels.mm"), ("extern", "torch.ops.aten.sort.default"),
        ("loops", "triton_poi_1")]


def test_a_guard_of_a_builtin_is_named_as_in_other_recordings() -> None:
    text = "| | +- ID_MATCH: ___check_obj_id(G['__builtins_dict___0']['float'], 94)  # s.masked_fill  # f.py:7 in f"
    assert [guard.source for guard in torch_trace_guards.guards(text)] == ["G['float']"]


def test_recompile_texts() -> None:
    text = "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3  # somewhere"
    for form in (text, json.dumps([text])):
        found = torch_trace_guards.recompile(form)
        assert (found.expected, found.actual, found.compared_with) == ("2", "3", "0/0")


def test_recompile_texts_in_words() -> None:
    now = Guards((Guard("g1", "", "EQUALS_MATCH", "L['self'].scale == 3.0"),), (Symbol("s0", "n", "L['n']", "7"),))
    comment = "   # y = x * n  # program.py:4 in f\nUser stack trace:\n  File \"/tmp/program.py\", line 4, in f\n    y"
    for reason, told in {
        "tensor 'x' dtype mismatch. expected Float, actual Double": ("x.dtype", "Float", "Double"),
        "tensor 'self.w' rank mismatch. expected 1, actual 2": ("self.w.dim()", "1", "2"),
        "tensor 'x' stride mismatch at index 1. expected 1, actual 4": ("x.stride(1)", "1", "4"),
        "self.scale == 2.0" + comment: ("self.scale", "2.0", "3.0"),
        "n == 1" + comment: ("n", "1", "7"),
        "d['k'] == 1" + comment: ("d['k']", "1", ""),
        "___check_type_id(m, 1234), type=<class 'int'>" + comment: ("type(m)", "int", ""),
        "GLOBAL_STATE changed: grad_mode ": ("torch's setting grad_mode", "", ""),
        "2 <= L['x'].size()[0]": ("2 <= L['x'].size()[0]", "true", ""),
    }.items():
        found = torch_trace_guards.recompile(json.dumps(["0/3: " + reason, "0/2: other"]), now)
        assert (found.subject, found.expected, found.actual, found.compared_with) == (*told, "0/3")
        assert (found.location.line if found.location else None) == (4 if comment in reason else None)
        text = " ".join(line.text for line in recompile_lines(found, lambda path: None))
        assert "was ," not in text and "is now  " not in text and not text.rstrip().endswith("is now"), text


def test_recording_of_stock(
    ptdebug: Callable[..., CompletedProcess[str]], warm: Callable[..., CompletedProcess[str]], tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\n@torch.compile\ndef f(x):\n    x = x.sin()\n    print('broken')\n    return x + 1\n"
        "print(f(torch.ones(3)).sum().item())\n")
    done = ptdebug("run", "--compiler", "torch", "--json", "summary.json", "program.py", timeout=300)
    assert done.returncode == 0 and done.stdout.startswith("broken\n5.52"), done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["compiler"], summary["counts"]["graphs"], summary["counts"]["ops"]) == ("torch", 2, 2)
    [broken] = summary["graph_breaks"]
    assert (broken["line"], broken["source"]) == (5, "print('broken')")
    first = summary["compiles"][0]
    assert (first["function"], first["status"], first["line"]) == ("f", "compiled", 2)
    assert {"capture", "forward", "guards", "wrapper", "breaks"} <= set(first["stages"])
    absent = {entry["stage"] for entry in summary["absent"] if entry["compile"] == first["id"]}
    assert {"bytecode", "fusion", "decisions"} <= absent
    assert warm("run", "--name", "ours", "program.py").returncode == 0
    differences = warm("diff", "ours", Path(summary["recording"]).name).stdout
    assert "schedule" in first["stages"] and "alike: " in differences
    assert "-- schedule: " not in differences and "is new" not in differences and "is gone" not in differences


def test_what_stock_tells_of_training_is_shown(
    ptdebug: Callable[..., CompletedProcess[str]], warm: Callable[..., CompletedProcess[str]], tmp_path: Path,
    environment: dict[str, str],
) -> None:
    """The backward's kernels, though it is compiled after all else; recompilations of a frame that breaks, too; and
    what the trace does not hold is said to be not known. The files of the same trace say the same."""
    (tmp_path / "program.py").write_text("""
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale = torch.nn.Linear(8, 8), 2.0
    def forward(self, x):
        y = self.layer(x).relu() * self.scale
        print(end="")
        return y.sum()
def main():
    net = Net()
    fast = torch.compile(net)
    fast(torch.randn(4, 8)).backward()
    net.scale = 3.0
    fast(torch.randn(5, 8)).backward()
main()
""")
    done = ptdebug("run", "--name", "r", "--compiler", "torch", "--json", "summary.json", "program.py", timeout=300,
                   env=environment | {"TORCH_TRACE": str(tmp_path / "trace")})
    assert done.returncode == 0, done.stderr
    assert warm("import", "trace", "--name", "imported").returncode == 0
    imported = json.loads(warm("show", "imported", "--json").stdout)
    same = warm("diff", "r", "imported")
    assert same.returncode == 0 and f"no differences in {len(imported['compiles'])} compilations" in same.stdout
    assert imported["versions"]["torch"].startswith("2.") and (imported["command"], imported["exit_code"]) == ([], None)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert imported["counts"] == summary["counts"]
    assert summary["counts"]["kernels"] >= 3 and summary["counts"]["extern_calls"] >= 2
    assert "wrapper" in summary["compiles"][0]["stages"]
    [broken] = summary["graph_breaks"]
    assert broken["cost"]["graphs"] >= 2 and broken["cost"]["seconds"] > 0
    first = next(r for r in summary["recompiles"] if r["compile"] == "0/1")
    assert first["subject"] in ("self.scale", "x.size(0)") and str(first["expected"]) in ("2.0", "4")
    shown = {name: warm(name, "r").stdout for name in ("breaks", "recompiles", "kernels", "fusions", "decisions")}
    assert "unit    backward." in shown["kernels"] and "compiled in 0.00 s" not in shown["kernels"]
    assert "no extra graph" not in shown["breaks"] and "; 0.0 s more compile time" not in shown["breaks"]
    assert "was ," not in shown["recompiles"] and "is now \n" not in shown["recompiles"]
    assert "stock's trace does not say what was fused" in shown["fusions"]
    assert "stock's trace lacks decisions" in shown["decisions"]
    frame = warm("show", "r:0/0:frame").stdout
    assert "no arguments" not in frame and "runpy" not in frame and "ptdebug" not in frame
    assert "RESUME" in warm("show", "r:1/0:bytecode").stdout  # the trace has that of what goes on after a break
