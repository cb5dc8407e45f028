"""Faults of code generation for the CPU: the C++ computes something else than the loop IR says."""
from __future__ import annotations

from ..fault import Edit, Fault, Patch, Replace, text

ROOM, CPU = "ptdebug.engine.codegen.cpp.", "ptdebug.engine.scheduler.cpu."
KERNELS = ("kernels",)


def _edit(module: str, *changes: str) -> Edit:
    return Edit(ROOM + module, *changes)


def _fault(name: str, decision: str, program: str, *patches: Patch, threads: int = 1) -> Fault:
    return Fault(name, KERNELS, decision, program, patches, threads=threads)


def _entry(table: str, key: str, old: str, new: str) -> Replace:
    return Replace(ROOM + "prelude", table, text(old, new), key)


FAULTS = (
    _fault("last_row_left_out", "(lowering|compile):.*", """
def f(x, y):
    z = x * y  # here
    return z

def calls():
    return [(torch.randn(9, 64).t(), torch.randn(64, 9))]
""", _edit("emission", "{a} < {last or c_expression(axis.extent)};",
           "{a} < {last or c_expression(axis.extent)} - 1;")),
    _fault("erf_for_tanh", "lowering:tanh.*", """
def f(x, y):
    a = x * 3
    b = a.tanh()  # here
    c = b + y
    return c.relu()

def calls():
    return [(torch.randn(8, 16), torch.randn(8, 16))]
""", Replace(ROOM + "operators", "OPERATORS", lambda rule: lambda a, kind: f"erf_float({a[0]})", "tanh")),
    _fault("maximum_starts_at_zero", "lowering:amax.*", """
def f(x):
    y = -x.abs() - 1
    z = y.amax(1, keepdim=True)  # here
    return y - z

def calls():
    return [(torch.randn(8, 100),)]
""", _edit("reductions", 'literal(float("-inf") if lowest', 'literal(0.0 if lowest')),
    _fault("argmax_takes_the_last", "lowering:argmax.*", """
def f(x):
    y = x.round().clamp(-1, 1)
    z = y.argmax(1)  # here
    return z * 2

def calls():
    return [(torch.randn(8, 100),)]
""", _edit("reductions", 'sign = ">" if self.kind in ("max", "argmax") else "<"\n        floating'.replace("\\\n",
           "\n"),
           'sign = ">=" if self.kind in ("max", "argmax") else "<"\n        floating'.replace("\\\n", "\n"))),
    _fault("nan_lost_by_a_maximum", "lowering:amax.*", """
def f(x):
    y = x.sqrt()
    z = y.amax(1)  # here
    return z + 1

def calls():
    return [(torch.randn(8, 100),)]
""", _edit("reductions", "{at('_nan')} |= {value} != {value};", "{at('_nan')} |= 0;")),
    _fault("scatter_race", "(scatter|lowering|parallel-loops).*", """
def f(x, i):
    start = torch.zeros(50)
    y = start.scatter_add(0, i, x)  # here
    return y * 2

def calls():
    return [(torch.randn(400_000), torch.randint(0, 3, (400_000,)))]
""", Edit(CPU + "scatter", "        axes &= _digits(body, s)", "        axes |= _digits(body, s)"), threads=2),
    _fault("floor_division_truncates", "lowering:floor_divide.*", """
def f(x):
    y = x * 2
    z = y // 3  # here
    return z + 1

def calls():
    return [(torch.arange(-20, 20),)]
""", _entry("FUNCTIONS", "floor_divide", "T(q - ((r != 0) & ((r < 0) != (d < 0))))", "T(q)")),
    _fault("negative_index_reads_before", "lowering:index.*", """
def f(x, i):
    y = x[i]  # here
    return y * 2

def calls():
    return [(torch.randn(60, 40)[20:], torch.tensor([3, -1, 0, -7, 5]))]
""", _edit("statements", 'f"{value} < 0 ? (int64){value} + {bound} : (int64){value}" if s.mode',
           'f"(int64){value}" if s.mode', "(uint64){wrapped} >= (uint64)({bound});", "{wrapped} >= (int64)({bound});")),
    Fault("negative_index_writes_before", KERNELS, "lowering:index_put.*", """
def f(x, i, v):
    y = x * 2
    z = y.index_put((i,), v)  # here
    return z + 1

def calls():
    return [(torch.randn(40, 40), torch.tensor([3, -1, 0, 7, 5]), torch.randn(5, 40))]
""", (_edit("statements", 'f"{value} < 0 ? (int64){value} + {bound} : (int64){value}" if s.mode',
           'f"(int64){value}" if s.mode', "(uint64){wrapped} >= (uint64)({bound});", "{wrapped} >= (int64)({bound});"),
           ),
          shows="memory"),
    _fault("sums_start_uninitialized", "(lowering:sum|vector-axis|tile|column-sum).*", """
def f(x):
    y = x * 2
    z = y.sum(0)  # here
    return z + 1

def calls():
    return [(torch.randn(64, 200),)]
""", _edit("accumulators", "        if not once:", "        if once is None:")),
    _fault("transposed_edge_forgotten", "(tile|lowering).*", """
def f(x, y):
    z = x.t() + y  # here
    return z * 2

def calls():
    return [(torch.randn(256, 301), torch.randn(301, 256))]
""", _entry("FUNCTIONS", "transposed", "i = j < last_column ? last_row : 0; i < rows", "i = last_row; i < rows")),
    _fault("piece_ends_late", "(split-loop|lowering|concat).*", """
def f(x, y):
    a = torch.cat([x, y])  # here
    return a * 3

def calls():
    return [(torch.randn(300), torch.randn(500))]
""", Edit(CPU + "index_set_splitting", "ends = [0, *cuts, extent]",
           "ends = [0, *[at + 1 for at in cuts], extent]")),
    _fault("reduction_tail_left_out", "(lowering:amax|accumulators).*", """
def f(x):
    y = x * 2
    z = y.amax(1)  # here
    return z + 1

def calls():
    return [(torch.linspace(0, 1, 8 * 203).view(8, 203),)]
""", _edit("accumulators", 'node, start, f"{end} - {start}")', 'node, start, f"{end} - {start} - 1")')),
    _fault("accumulators_not_joined", "(lowering:amax|accumulators).*", """
def f(x):
    y = x * 2
    z = y.amax(1)  # here
    return z + 1

def calls():
    return [(torch.randn(8, 256),)]
""", _edit("accumulators", 'for line in state.combine_interleaved(one, _side_by_side(p, r, "other")):',
           "for line in ():")),
    _fault("clamp_compares_wrong", "lowering:clamp.*", """
def f(x):
    y = x * 2
    z = y.clamp(-1, 1)  # here
    return z + 1

def calls():
    return [(torch.randn(8, 16),)]
""", Replace(ROOM + "operators", "OPERATORS", lambda rule: lambda a, kind: f"{a[0]} >= {a[1]} + 1", "gt")),
    _fault("half_sum_of_chunks_lost", "(lowering:sum|split-reduction|parallel-loops).*", """
def f(x):
    y = x * 2
    z = y.sum()  # here
    return z + 1

def calls():
    return [(torch.rand(400_000),)]
""", _edit("accumulators", """chunk < {count}; chunk++)"):
        for r in node.reductions:""", """chunk < {count}; chunk += 2)"):
        for r in node.reductions:"""), threads=2),
    _fault("whole_numbers_from_floats_rounded", "lowering:.*", """
def f(x):
    y = x * 2
    z = y.to(torch.int32)  # here
    return z + 1

def calls():
    return [(torch.randn(8, 16),)]
""", _edit("statements", 'else f"({new.value}){value}"\n'.replace("\\\n", "\n"),
           'else f"({new.value})__builtin_rintf({value})"\n'.replace("\\\n", "\n"))),
    _fault("shared_accumulator_race", "(lowering:sum|split-reduction|parallel-loops|fuse).*", """
def f(x, y):
    z = (x * y).sum()  # here
    return z * 2

def calls():
    return [(torch.rand(600_000), torch.rand(600_000))]
""", _edit("accumulators", """        for r in node.reductions:
            declare(p, p.names[r], r.part, r.statement, fields_of(r), False)""", """        for r in ():
            declare(p, p.names[r], r.part, r.statement, fields_of(r), False)"""), threads=2),
)
