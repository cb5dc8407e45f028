"""Faults of capture: the graph, the guards or the new bytecode are not what the program says."""
from __future__ import annotations

from ..fault import Edit, Fault

ROOM = "ptdebug.tracer."
FRAME = "(frame|inline|dynamic):.*"


def _fault(name: str, stages: tuple[str, ...], program: str, module: str, old: str, new: str, decision: str = FRAME,
           shows: str = "values") -> Fault:
    return Fault(name, stages, decision, program, (Edit(ROOM + module, old, new),), shows=shows)


BYTECODE = ("output_bytecode", "capture")

FAULTS = (
    _fault("resumed_with_a_stale_local", BYTECODE, """
def f(x):
    x = x * 2
    torch._dynamo.graph_break()
    return x + 1

def calls():
    return [(torch.randn(8),)]
""", "frames.output_code", "if n in root.locals and root.locals[n].source != LocalSource(n)]",
           'if n in root.locals and root.locals[n].source != LocalSource(n) and n != "x"]'),
    _fault("resumed_without_a_local", BYTECODE, """
def f(x):
    kept = x * 2
    torch._dynamo.graph_break()
    return kept + 1

def calls():
    return [(torch.randn(8),)]
""", "frames.output_code", "if (name in live or name == first", 'if (name in live and name != "kept" or name == first',
           shows="exception"),
    _fault("guard_on_a_string_dropped", ("guards",), """
def f(x, kind):
    if kind == "sin":
        return x.sin()
    return x.cos()

def calls():
    x = torch.randn(8)
    return [(x, "sin"), (x, "cos")]
""", "guards.kinds", "        manager.add_equals_match_guard(value, parts, None)",
           "        manager.add_equals_match_guard"),
    _fault("guard_on_a_function_dropped", ("guards",), """
def f(x, function):
    return function(x) + 1

def calls():
    x = torch.randn(8)
    return [(x, torch.sin), (x, torch.cos)]
""", "guards.kinds",
           "add_id_match_guard(id(value), tree.parts(spec), None)\n    return Identity(subject(value)",
           "add_id_match_guard\n    return Identity(subject(value)"),
    _fault("appended_item_lost", BYTECODE, """
def f(x, seen):
    y = x * 2
    seen.append(y)
    return y + 1

def calls():
    return [(torch.randn(8), [])]
""", "effects.side_effects", "        list.extend(target, fresh)", "        list.extend(target, ())"),
    _fault("global_not_stored", BYTECODE, """
TOTAL = torch.zeros(8)

def f(x):
    global TOTAL
    TOTAL = TOTAL + x
    return TOTAL * 2

def calls():
    global TOTAL
    TOTAL = torch.zeros(8)
    return [(torch.ones(8),), (torch.ones(8),), (torch.ones(8),)]
""", "effects.side_effects",
           "codegen.store_global(change.target, change.name, self.globals[change.target, change.name] is DELETED)",
           'codegen.emit("POP_TOP")'),
    _fault("operands_exchanged", ("capture",), """
def f(x):
    y = x * 3
    z = 2 - y  # here
    return z + 1

def calls():
    return [(torch.randn(8),)]
""", "variables.torch.tensor",
           "function, [_without_numpy(tx, left), _without_numpy(tx, right)], {}, tx)",
           "function, [_without_numpy(tx, v) for v in (self, right if left is self else left)], {}, tx)"),
    _fault("loop_starts_counting_at_one", ("capture",), """
def f(xs):
    total = xs[0]
    for i, x in enumerate(xs):
        total = total + x * i  # here
    return total

def calls():
    return [([torch.randn(8), torch.randn(8)],)]
""", "variables.containers.iterators", "return make_tuple(tx, [constant(self.count - 1), item])",
           "return make_tuple(tx, [constant(self.count), item])"),
    _fault("no_grad_without_effect", ("capture",), """
def f(x):
    with torch.no_grad():
        scale = x.exp()
    y = x * scale  # here
    return y

def calls():
    return [(torch.randn(8, requires_grad=True),)]
""", "variables.torch.context_manager", "            set_grad_mode(tx, self.enabled)\n        return constant(None)",
           "            set_grad_mode(tx, self.previous)\n        return constant(None)"),
    _fault("default_of_another_parameter", ("capture",), """
def scaled(x, by=2.0, plus=5.0):
    return x * by + plus

def f(x):
    y = scaled(x)  # here
    return y

def calls():
    return [(torch.randn(8),)]
""", "variables.core.binding", "bound[name] = signature.defaults[i - first]",
           "bound[name] = signature.defaults[first - i - 1]"),
    _fault("wrong_side_of_a_branch", ("capture",), """
def f(x, n):
    y = x * 2
    if n is None:
        return y + 1  # here
    return y - 1  # here

def calls():
    return [(torch.randn(8), None)]
""", "interpreter.opcodes.control", "if not is_none(tx.stack.pop()):", "if is_none(tx.stack.pop()):"),
)
