"""`ptdebug run --compiler torch`: the program runs as with stock, and what stock's trace holds becomes records."""
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from ptdebug.artifacts.records import NodeRef
from ptdebug.cli import torch_trace_text

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


def test_graphs_inside_of_a_text() -> None:
    graph = torch_trace_text.graph(INNER, "capture")
    held = graph.nodes[2]
    assert (graph.nodes[1].target, graph.nodes[1].args) == ("operator.ge", (NodeRef("L_x_"), 0))
    assert (held.op, held.id, held.target) == ("get_attr", "cond_true_0", "cond_true_0")
    argument, clone, sin, output = graph.inner["cond_true_0"].nodes
    assert (argument.op, clone.stack, sin.target, sin.stack[0].line) == ("placeholder", (), "sin", 9)
    assert output.args == ([NodeRef("sin")],)


def test_recompile_texts() -> None:
    text = "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3  # somewhere"
    for form in (text, json.dumps([text])):
        found = torch_trace_text.recompile(form)
        assert (found.expected, found.actual, found.compared_with) == ("2", "3", "0/0")


def test_recording_of_stock(ptdebug: Callable[..., CompletedProcess[str]], tmp_path: Path) -> None:
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
