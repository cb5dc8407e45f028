"""Why tracing stopped, in the program's words.

`BREAKS` is the table of everything that the tracer gives up on: a stable code, a message template (`{detail}` is filled
in by whoever raised `Unsupported`, `{expression}` is the program's text at the place) and a hint that says what to
change in the program. `CALLS` says it better for calls that many programs make: an entry is found by a part of the
detail. `EXPRESSIONS` does for what is best told from the program's text. Add an entry to add a reason.
"""
from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from .math_breaks import CALL as MATH_CALL
from .math_breaks import in_torch


@dataclass(frozen=True)
class BreakKind:
    """One reason: the message shown for it, and what the person can do about it ("" when nothing)."""

    message: str
    hint: str = ""


_NUMBER = "keep it a tensor (0-dimensional tensors work in arithmetic), or read it after the compiled function returned"
_SIZE = (
    "keep a size that is known before the call and blank out what is not wanted: torch.where(mask, x, 0) in the place "
    "of x[mask]"
)

BREAKS: dict[str, BreakKind] = {
    # ---- control flow
    "data-dependent-branch": BreakKind(
        "which way the program goes here depends on values in a tensor, which are known only when it runs: {detail}",
        "compute both and choose with torch.where(condition, a, b), or use torch.cond; or test before the call of the "
        "compiled function and pass the answer as a bool",
    ),
    "data-dependent-value": BreakKind(
        "a value is taken out of a tensor into Python, which has to wait for the tensor: {detail}", _NUMBER
    ),
    "data-dependent-shape": BreakKind(
        "how large the result is depends on values in a tensor: `{expression}`",
        _SIZE,
    ),
    "random-value": BreakKind(
        "what happens here depends on a number that Python's random gives when the program runs: `{expression}`",
        "draw it before the compiled function's call and pass it as an argument, or use torch.rand and torch.where",
    ),
    "raises": BreakKind(
        "an exception is raised here and leaves the compiled function: {detail}",
        "nothing, if it is an error; eager raises it with its traceback",
    ),
    "raises-object": BreakKind(
        "an exception that was made before is raised here, which changes its traceback: {detail}",
        "nothing, if it is an error; else make the exception where it is raised",
    ),
    "operator-error": BreakKind(
        "the operator fails on these arguments: {detail}", "eager raises the same error: fix the call"
    ),
    "shared-memory": BreakKind(
        "{detail}: eager refuses most such writes, and for the others the order counts",
        "write to a tensor of its own, or read from a copy: x.clone()",
    ),
    "may-raise": BreakKind(
        "{detail} raises an error on some data, and the `try` around it catches that",
        "check the data before the `try`, or move the operator out of it",
    ),
    # ---- calls
    "call": BreakKind(
        "nothing is known about what {detail} does, so Python runs it",
        "call it before or after the compiled function; if it computes tensors from tensors, wrap it with "
        "torch.library.custom_op, which makes it one operator of the graph",
    ),
    "skipped-function": BreakKind(
        "{detail} works on Python's or torch's own machinery and is not taken into graphs",
        "call it before or after the compiled function",
    ),
    "graph-break-requested": BreakKind("the program asks for a graph break: {detail}", "take the call away"),
    "forced-break": BreakKind("an override forbids to inline {detail}", "take the override away"),
    "disabled-function": BreakKind(
        "{detail} is marked as not to be compiled", "take the mark (torch.compiler.disable) away, or call it outside"
    ),
    "too-long": BreakKind(
        "the function takes more Python than is followed ({detail}), so all of it runs in eager",
        "let tensor operations do the loop's work, or compile the functions that it calls",
    ),
    "inline-depth": BreakKind(
        "calls nest too deeply: {detail}", "turn the recursion into a loop, or compile the function at the bottom"
    ),
    # ---- language
    "opcode": BreakKind("Python's instruction {detail} is not supported", "write the line in another way"),
    "async": BreakKind(
        "coroutines and asynchronous iteration are not traced: {detail}",
        "compile the functions that the coroutine calls instead",
    ),
    "import": BreakKind("this import cannot be traced: {detail}", "import at the top of the file"),
    "del": BreakKind("this deletion cannot be traced: {detail}", "leave the object, or delete after the call"),
    # ---- values
    "unknown-type": BreakKind(
        "{detail} is of a kind that the compiler does not know", "take what is needed out of it before the call"
    ),
    "not-a-constant": BreakKind(
        "{detail} has to be known while compiling, and is not", "pass it as a Python number or string"
    ),
    "iterate": BreakKind("cannot iterate over {detail}", "make a list of it before the call"),
    "attribute": BreakKind("cannot read {detail}", "read it before the call and pass the value"),
    "set-attribute": BreakKind("cannot set {detail}", "set it after the compiled function returned"),
    "subscript": BreakKind("cannot index {detail}", "index it before the call and pass the item"),
    "set-item": BreakKind("cannot assign an item of {detail}", "assign it after the compiled function returned"),
    "operator": BreakKind("cannot apply {detail}", "do it before the call and pass the result"),
    "reconstruct": BreakKind(
        "{detail} is needed after the graph, and cannot be made anew there",
        "do not keep it beyond the compiled function",
    ),
    "local-class": BreakKind(
        "the class {detail} is made inside the function, and is needed after the graph",
        "define the class at the top of the file",
    ),
    "metadata-mutation": BreakKind(
        "{detail} changes the shape or the memory of a tensor in place",
        "make a new tensor (x.view, x.reshape, torch.cat) in its place",
    ),
    "effect-in-region": BreakKind(
        "{detail}, and that code need not run exactly once", "move the change out, and return what is to be kept"
    ),
    "global-hooks": BreakKind(
        "hooks are registered for all modules, and {detail} calls its functions as modules, for which they run, too",
        "register the hooks on the modules that they are for",
    ),
    "missing-fake-kernel": BreakKind(
        "the operator {detail} does not say which shape and dtype its result has",
        "register a fake implementation for it: torch.library.register_fake(name of the operator)",
    ),
    "missing-forward-gradient": BreakKind(
        "torch has no rule for forward-mode gradients in `{expression}` of which a graph could be made",
        "take reverse-mode gradients (torch.func.jacrev(torch.func.jacrev(f)) in the place of torch.func.hessian(f)), "
        "or forward-mode ones outside of the compiled function",
    ),
    "missing-gradient": BreakKind(
        "the operator {detail} has no rule for its gradient, so autograd looks at what it calls inside",
        "register a rule: torch.library.register_autograd(name of the operator), or call it under torch.no_grad()",
    ),
    "autograd-function": BreakKind(
        "{detail}, which is left to eager",
        "call it before or after the compiled function, or let torch differentiate what its forward computes",
    ),
    "generator": BreakKind(
        "a generator that has started is used after the graph: {detail}", "use it up inside, or make a list of it"
    ),
    "abandoned-generator": BreakKind(
        "{detail} is left in the middle of a try or with block, which Python ends when it deletes it",
        "call its close() method, or use it up",
    ),
    "visible-death": BreakKind(
        "{detail} may die here, and the program sees that: it has a finalizer, or something refers to it weakly",
        "let go of it before or after the compiled function is called",
    ),
    "context-manager": BreakKind(
        "what the context manager {detail} does when it is entered or left is not known",
        "enter it around the call of the compiled function",
    ),
    "global-state": BreakKind(
        "{detail} changes a setting of the whole process", "set it before the compiled function is called"
    ),
}

_MESSAGES = "leave it out while compiling: `if not torch.compiler.is_compiling(): ...`, or do it after the call"
_FILES = (
    "read it before the compiled function is called, and pass on what it holds; write what the function returns; what "
    f"is only shown: {_MESSAGES}"
)

_FILE = BreakKind("a file or the terminal is read or written, which a graph cannot: `{expression}`", _FILES)

_THREADS = BreakKind(
    "`{expression}` starts, or waits for, threads or processes ({detail})",
    "do it before or after the compiled function is called",
)

CALLS: dict[str, BreakKind] = {
    r"\bFunctionCtx\b": BreakKind(
        "an autograd function that eager runs keeps something for its backward: `{expression}`",
        "nothing here: it goes with the break for which the autograd function was left to eager",
    ),
    r"\bprint\b": BreakKind("print() shows something while the function runs, which a graph cannot", _MESSAGES),
    r"\b(TextIOWrapper|Buffered(Writer|Reader|Random)|FileIO)\b|`sys\.std(in|out|err)`": _FILE,
    r"^open$": BreakKind("open() opens a file, which a graph cannot", _FILES),
    r"^(input|breakpoint)\b": BreakKind("{detail}() talks to the world outside of the graph", _MESSAGES),
    r"^logging\.": BreakKind("a message that is shown is logged ({detail}), which a graph cannot", _MESSAGES),
    r"^warnings\.warn": BreakKind("a warning is shown, which a graph cannot", _MESSAGES),
    r"^_?warnings\.(_filters|simplefilter|filterwarnings|resetwarnings)": BreakKind(
        "which warnings are shown changes, for the whole process: `{expression}`",
        "filter warnings before the compiled function is called, or around the call",
    ),
    r"^time\.sleep": BreakKind(
        "time.sleep lets the program wait, which a graph cannot", "wait before or after the compiled function is called"
    ),
    r"^(subprocess|_thread|(the class )?(threading|multiprocessing|queue|concurrent))\.": _THREADS,
    r"^an? R?lock `(?!.*__enter__$)": _THREADS,
    r"^(posix|nt)\.(?!(un)?(put|set)env)|^sys\.audit$": BreakKind(
        "`{expression}` calls the operating system ({detail})",
        "do it before the compiled function is called, and pass on what it gives",
    ),
    r"^Tensor\.(resize|resize_as|set)_$": BREAKS["metadata-mutation"],
    r"^Tensor\.(equal|allclose)$": BreakKind(
        "{detail} gives one bool for all values: Python has to wait for them",
        "keep it a tensor: (a == b).all(), torch.isclose(a, b).all()",
    ),
    r"^torch\.(set_(?!rng)|use_|backends\.)": BREAKS["global-state"],
    r"Tensor\.requires_grad_$": BreakKind(
        "a tensor begins to need gradients, or to need none: `{expression}`",
        "call requires_grad_() on the input before the call, or use torch.func.grad",
    ),
    r"^(time|datetime)\.|^(datetime|date)\.(now|today|utcnow)": BreakKind(
        "{detail} reads the clock, which a graph cannot",
        "take the time around the call of the compiled function (torch.profiler for what happens inside)",
    ),
    r"Tensor\.(item|__float__|__int__|__index__)\b|^(float|int)\(\) of": BreakKind(
        "a number is read out of a tensor ({detail}): Python has to wait for the value", _NUMBER
    ),
    r"Tensor\.tolist": BreakKind(
        "a tensor becomes a Python list ({detail}): Python has to wait for the values", _NUMBER
    ),
    r"^an? [\w ]*(iterator|generator|zip|map|enumerate|filter)\b.*__next__": BreakKind(
        "the loop goes on over an iterator that was begun before an earlier break of this function, so Python takes "
        "each next step of it",
        "take away the break in the loop's body or first line (or in the generator): this one goes with it",
    ),
    r"^an? [\w ]*(iterator|generator|zip|map|enumerate|filter)\b.*__iter__": BreakKind(
        "the loop goes over an iterator that was begun before the function: `{expression}`",
        "make a list of its items before the call (list(...)), and pass that",
    ),
    r"_FuncPtr\b": BreakKind(
        "`{expression}` uses a function of a library in C, and nothing is known about what it does", BREAKS["call"].hint
    ),
    r"__build_class__": BreakKind("a class is made inside the function", "define the class at the top of the file"),
    r"^an? (float|int|uint|complex)\d+\b": BreakKind(
        "a number is read out of a NumPy array ({detail})",
        "use the torch function of the same name and keep the number a tensor",
    ),
    r"Tensor\.(numpy|__array__)": BreakKind(
        "a tensor becomes a NumPy array ({detail})",
        "use the torch function of the same name, or leave NumPy to what happens after the compiled function",
    ),
    r"Tensor\.data_ptr": BreakKind(
        "the address of a tensor in memory is read ({detail}), which exists only when the program runs",
        "compare tensors with `is`, and ask for addresses outside of the compiled function",
    ),
    r"Tensor\.backward": BreakKind(
        "gradients are computed by {detail}() inside of the compiled function",
        "compile the forward and the loss, and call .backward() on what it returns; or use torch.func.grad",
    ),
    r"Tensor\.register_hook|register_post_accumulate": BreakKind(
        "{detail} puts a hook on a tensor that the graph computes",
        "register the hook on an input; one that only computes a new gradient is part of the graph"
    ),
    r"\bmanual_seed\b|\.seed\b": BreakKind(
        "{detail} starts the random numbers anew, for the whole process", "seed before the compiled function is called"
    ),
    r"^torch\.(save|load)\b": BreakKind("{detail} reads or writes a file", "save what the compiled function returns"),
    r"^(exec|eval|compile)$": BreakKind(
        "{detail}() runs text as a program, whose variables are not known before", "write the code where it runs"
    ),
    r"\.__(enter|exit)__$": BreakKind(
        "what a `with` block of this object does is not known: {detail}",
        "enter it around the call of the compiled function"
    ),
    r"_getframe|inspect\.(stack|currentframe)|^(locals|globals|vars)\b|traceback\.": BreakKind(
        "the program looks at its own stack or variables ({detail}), which are others once it is compiled",
        "pass what is needed as an argument",
    ),
    r"copy\.(deep)?copy of the module|deepcopy of": BreakKind(
        "a module or object is copied ({detail}), which makes parameters that the graph does not know",
        "copy it once, before the compiled function is called",
    ),
    r"^the class io\.|(String|Bytes)IO": BreakKind(
        "`{expression}` works on data outside of the graph ({detail})",
        "make it before the call, and write after the call",
    ),
    r"^(random|numpy\.random)\.|SystemRandom": BreakKind(
        "{detail} takes a random number from a generator that is not torch's",
        "use torch.rand and its kin (torch.randn, torch.randint, torch.randperm)",
    ),
    r"ndarray|numpy": BreakKind(
        "this NumPy call has no counterpart in the graph: {detail}", "use torch's functions, or do it after the call"
    ),
    r"^torch\.autograd\.(grad|backward)": BreakKind(
        "gradients are computed by {detail} inside of the compiled function",
        "compile the forward and the loss, and take gradients of what it returns; or use torch.func.grad",
    ),
    r"\btorch\.utils\.data\.": BreakKind(
        "data is loaded ({detail}), which a graph cannot",
        "loop over the data outside, and compile what is done with one batch",
    ),
    r"\bweakref\b|\bReferenceType\b|\bKeyedRef\b": BreakKind(
        "a weak reference is made, which a graph cannot: `{expression}`",
        "make it before or after the compiled function is called",
    ),
    r"^torch\.\w+\.\w+|^torch\.\w+$": BreakKind(
        "{detail} is a function of torch that runs outside of graphs",
        "call it before or after the compiled function",
    ),
    r"^the text of ": BreakKind(
        "{detail} is made, so Python has to wait for its values",
        "make texts of what the compiled function returns, or leave it out while compiling: "
        "`if not torch.compiler.is_compiling(): ...`",
    ),
}
"""By regular expression on the detail, for codes that say that a call cannot be followed."""

_CALL_CODES = ("call", "data-dependent-value", "global-state", "skipped-function")

_NEEDED = BreakKind(
    "`{expression}` needs a number that is read out of a tensor: Python has to wait for the value", _NUMBER
)
_TURNS = BreakKind(
    "how often the loop runs depends on values in a tensor: `{expression}`",
    "loop a fixed number of times and blank out with torch.where what is not wanted, or use torch.while_loop",
)
_ASSERTION = BreakKind(
    BREAKS["data-dependent-branch"].message,
    "check it before the call of the compiled function, or on what it returns",
)
_FOLD = BreakKind(
    "`{expression}` compares or tests the items one by one in Python, which depends on values in a tensor",
    "use the tensor's own function, which makes one tensor: x.max(), x.min(), x.sort(), x.any(), x.all(); rows in the "
    "order of a key: torch.stack(rows)[keys.argsort()]",
)
_DECIDES = BreakKind(
    "what `{expression}` does depends on values in a tensor: {detail}",
    "use the tensor's own function in its place (x.median(), x.sort(), ...), or call it on what the compiled function "
    "returns",
)
_DECIDES_INSIDE = BreakKind(_DECIDES.message, "call it before or after the compiled function")
_COMPUTED = BreakKind("`{expression}` needs the value of {detail} in Python, which has to wait for it", _NUMBER)
"""`math.sqrt(x)`: what to write for it depends on the function."""
_TEXT = BreakKind("the text of a tensor's values is made: `{expression}`", CALLS["^the text of "].hint)
_CHOSEN = BreakKind(
    "what is taken here is chosen by numbers in a tensor: `{expression}`",
    "index with a tensor that has a dimension (`x[i.view(1)].squeeze(0)` in the place of `x[i]`), or use torch.gather",
)
_ITEM = BreakKind(
    "which item is taken depends on a number in a tensor: `{expression}`",
    "stack the items (of functions or modules, what each gives) and index with a tensor that has a dimension: "
    "`torch.stack(items)[i.view(1)].squeeze(0)`; or return the number, and take the item after the call",
)
_CLASSES = BreakKind(
    "how many classes there are depends on values in a tensor: `{expression}`",
    "say how many: one_hot(labels, num_classes=...)",
)
_REPEATED = BreakKind(
    "how large the result is depends on values in a tensor: `{expression}`", "say how large: output_size=..."
)
_LENGTHS = BreakKind(
    "how much memory `{expression}` takes for its gradient depends on the targets and their lengths",
    "compute the loss on what the compiled function returns",
)
_LOOKS = BreakKind(
    "`{expression}` looks at values in a tensor before it computes ({detail})",
    "call it before or after the compiled function",
)
_PARAMETER = BreakKind(
    "a parameter is made inside of the function, a new one at each call: `{expression}`",
    "make it once, in __init__ or before the compiled function is called; what takes no gradient can be a plain tensor",
)
_MODULE = BreakKind(
    "a module is made inside the function, a new one at each call: `{expression}`",
    "make it once, in __init__ or before the compiled function is called",
)
_OPTIMIZER = BreakKind(
    "an optimizer is made inside of the function, a new one at each call: `{expression}`",
    "make it once, before the compiled function is called",
)
_HOW_MANY = BreakKind(
    "which way the program goes here depends on how many values a tensor leaves: `{expression}`",
    f"{_SIZE}; what is done for none of them and for all is then the same",
)
_TRACEBACK = BreakKind(
    "the program looks at where an exception was raised: `{expression}`",
    "use the exception itself (its type, str(error)), or handle it around the call of the compiled function",
)
_NO_META = BreakKind(
    "torch does not say of {detail} which shape and dtype its result has before it runs",
    "call it before or after the compiled function",
)

_SPARSE = BreakKind(
    "{detail} does not hold all its elements, and there are no kernels for that",
    "pass x.to_dense(), or compute with the sparse tensor before or after the compiled function",
)
_STAYS = BreakKind(
    "{detail} is of a kind that the compiler does not know",
    "compute with it before or after the compiled function",
)

_STEP = BreakKind(
    "`{expression}` takes an item of an iterator that was begun before: outside of the function, or before an earlier "
    "break in it",
    "take the item before the call and pass it; after an earlier break: take that away, and this one goes with it",
)
_LEFT = BreakKind(
    "a `with` block is left that was entered before an earlier break in it, so Python leaves it",
    "take away the break inside of the block: this one goes with it",
)

_PARALLEL = BreakKind(
    "{detail} does its communication outside of graphs",
    "compile the whole of it (torch.compile(ddp_model)), which compiles the module inside, and call what that gives "
    "from eager code; or compile the module before it is wrapped",
)
_SCRIPTED = BreakKind(
    "{detail} (from torch.jit.script or torch.jit.trace) is run by TorchScript's interpreter, where there is no Python "
    "to follow",
    "call the module that it was made from, which is compiled with the rest",
)
_CACHED = BreakKind(
    "{detail} has a result for each object that it was called with; the compiler looks up those of numbers and strings "
    "only, and leaves that of a tensor or of another object to Python",
    "call it before or after the compiled function, or cache by numbers and strings (a size, a name)",
)
EXPRESSIONS: tuple[tuple[str, str, str, BreakKind], ...] = (
    ("unknown-type", r"^(DistributedDataParallel|DataParallel)\b", "", _PARALLEL),
    ("call", r"^the module \S+ of TorchScript$", "", _SCRIPTED),
    ("call", r" with functools\.lru_cache$", "", _CACHED),
    ("data-dependent-value", "", r"^range\(", _TURNS),
    ("data-dependent-value", "^Tensor.tolist$", r"\bfor\b.*\bin\b.*\.tolist\(\)", _TURNS),
    ("data-dependent-branch", "", r"^range\(|^while\b", _TURNS),
    ("data-dependent-shape", "^unbind$", "", _TURNS),
    ("data-dependent-shape", "", r"\bctc_loss\(|_ctc_loss$", _LENGTHS),
    ("data-dependent-shape", "^getitem$", r"\]$", _CHOSEN),
    ("data-dependent-shape", "", r"\bone_hot\(", _CLASSES),
    ("data-dependent-shape", "", r"\brepeat_interleave\(", _REPEATED),
    ("data-dependent-branch", "", r"^assert\b", _ASSERTION),
    ("data-dependent-branch", "", r"^(max|min|sorted|any|all)\(|\.sort\(.*key=", _FOLD),
    ("data-dependent-branch", "^the size `", "", _HOW_MANY),
    ("data-dependent-branch", r"^[\w.<>]+ asks for `", "", _DECIDES_INSIDE),
    ("data-dependent-value", "^the number", r"\A(?!.* for ).*([\w\])}]\[[^\[]*\]|\}\.get\(.*\))$", _ITEM),
    ("data-dependent-value", r"^aten\.(?!_local_scalar_dense|item)|^the number for ", "", _LOOKS),
    ("data-dependent-value", r"^(str|repr)\(\) of", "", _TEXT),
    ("subscript", " by the tensor `", "", _ITEM),
    ("unknown-type", "^the tensor subclass (Buffer|Parameter)$", r"\b(Buffer|Parameter)\(", _PARAMETER),
    ("unknown-type", "^the tensor subclass (Buffer|Parameter)$", r"^([\w.]+\.)?_*[A-Z]\w*\(", _MODULE),
    ("unknown-type", "^the tensor subclass (Buffer|Parameter)$", r"\w\(", _PARAMETER),
    ("set-attribute", r"^the class \w+\.step$", r"\w\(", _OPTIMIZER),
    ("skipped-function", r"^torch\.optim\.optimizer\.Optimizer\.add_param_group$", r"\w\(", _OPTIMIZER),
    ("operator", "^mod to ['\"]", "", _TEXT),
    ("data-dependent-value", "^the number", r"""\A["'].*["']( % |\.format\()""", _TEXT),
    ("attribute", "^a traceback", "", _TRACEBACK),
    ("reconstruct", "", r"\btraceback\.\w+\(", _TRACEBACK),
    ("global-state", "", r"\btraceback\.\w+\(", _TRACEBACK),
    ("missing-fake-kernel", r"^(aten|torch|Tensor)\.", "", _NO_META),
    ("data-dependent-branch", "^the number `", r"\A(?!.*(\.(item|tolist)\(\)$| [<>=!]=? ))[a-z_]+(\.[a-z_]+)+\(.*\)$",
     _DECIDES),
    ("not-a-constant", "", r"""^(f["']|\{|str\(|repr\(|format\(|json\.dumps\()""", _TEXT),
    ("not-a-constant", "^the tensor `", rf"{MATH_CALL}|\Acomplex\(", _COMPUTED),
    ("not-a-constant", r"^the number `.*\.(item|tolist)\(", "", _NEEDED),
    ("call", "", r"\A.*\.(read|write)_(bytes|text)\([^()]*\(?[^()]*\)?\)$", _FILE),
    ("unknown-type", r"^a tensor with layout torch\.sparse", "", _SPARSE),
    ("unknown-type", "^a (nested |quantized )?tensor ?", "", _STAYS),
    ("call", "__next__$", r"\Anext\(", _STEP),
    ("call", r"__next__$|\.__exit__$|^a method from before the graph break$", r"^with\b", _LEFT),
)
"""(code, regular expressions on the detail and on the program's text, what is said). Which part of a line an
instruction is about differs between versions of Python, so the text is the expression and, below it, its line."""


def _kind(code: str, detail: str, text: str) -> BreakKind | None:
    for wanted, about, pattern, kind in EXPRESSIONS:
        if code == wanted and re.search(about, detail) and re.search(pattern, text, re.M):
            return kind
    if code in _CALL_CODES or (code == "not-a-constant" and "ndarray" in detail):
        for pattern, kind in CALLS.items():
            if re.search(pattern, detail):
                return kind
    return BREAKS.get(code)


def message(code: str, detail: str, expression: str = "", line: str = "") -> str:
    """The message of a break at `expression` in `line`. An unknown code gives the code itself: a missing entry never
    hides a break."""
    kind = _kind(code, detail, f"{expression}\n{line}")
    if kind is None:
        return f"{code}: {detail}"
    if line.startswith("case "):  # of which an instruction knows the pattern alone
        expression = line
    detail = _INNER.sub(r"\1.", _UNNAMED.sub("", detail).replace("a ndarray", "an ndarray"))
    detail = _SYMBOLS.sub(lambda _: f"`{expression}`", detail) if expression else detail
    inside = kind is BREAKS.get("call") and expression and not _is_named_in(detail, expression)
    detail = _OF_AN_OBJECT.sub(r"`\2\3` (\1)", detail)
    if inside:
        joint = " and which" if detail.endswith(",") else ", which"
        detail = f"{detail}{joint} `{expression}` comes to call,"
    return kind.message.format(detail=detail, expression=expression or detail)


def hint(code: str, detail: str = "", expression: str = "", line: str = "") -> str:
    """What to change in the program, or ""."""
    kind = _kind(code, detail, f"{expression}\n{line}")
    if kind is BREAKS["call"] and not _is_of_a_package(detail):
        return _OUTSIDE
    if kind is _COMPUTED and re.match(MATH_CALL, expression):
        return in_torch(expression)
    return kind.hint if kind is not None else ""


def _is_of_a_package(detail: str) -> bool:
    """Whether a function or class is named that is not Python's own: it may compute tensors."""
    module = re.match(r"(?:the class )?(\w+)\.(?!__)", detail)
    return module is not None and _KNOWN.isdisjoint((module[1], module[1].lstrip("_")))


_OUTSIDE = BREAKS["skipped-function"].hint
_KNOWN = frozenset((*sys.stdlib_module_names, "torch", "Tensor"))


_SYMBOLS = re.compile(r"(the (?:number|size) )?`[^`]*\bz?(u|s|uf|f)\d+\b[^`]*`")
"""Names that torch gives to numbers which data tells (u0, zuf0): nobody has written them."""


_UNNAMED = re.compile(r" `a value from before line \d+[^`]*`")
"""What a part of the function before an earlier break has left on the stack: the message says as much without it."""

_INNER = re.compile(rf"\b_({'|'.join(sorted(name for name in sys.stdlib_module_names if name.isalpha()))})\.")
"""Modules in C behind those of Python that the program imports: `_pickle.dumps`."""


_OF_AN_OBJECT = re.compile(r"^(an? [\w. ]+) `([^`]+)`(\.\w+)")
"""A method, after the kind and the text of its object."""


def _is_named_in(detail: str, expression: str) -> bool:
    """Whether the last name of a detail (not of what is said about it: "f, whose cache ...,") stands in the program's
    text."""
    name = re.search(r"(\w+)\W*$", re.sub(r", (whose|which) [^,]*,$", "", detail))
    return name is None or name[1] in expression or name[1].startswith("__")
