"""The reasons for which tracing stops, each one record: add a member to add a reason.

A record is the code (which recordings and scripts hold), the category, a template of the message, and one of the hint:
what to change in the program ("" when nothing). In templates, `{subject}` is what the break is about, as the program
writes it, and `{expression}` the program's text at the place. What is better told of one function or class stands in
`hints.py`, what is better told from the program's text in `situations.py`.
"""
from __future__ import annotations

from enum import Enum

NUMBER = "keep it a tensor (0-dimensional tensors work in arithmetic), or read it after the compiled function returned"
SIZE = (
    "keep a size that is known before the call and mask what is not wanted: torch.where(mask, x, 0) instead of x[mask]"
)
OUTSIDE = "call it before or after the compiled function"
STRINGS = (
    "make strings of what the compiled function returns, or leave it out while compiling: "
    "`if not torch.compiler.is_compiling(): ...`"
)
_UNKNOWN = (
    f"{OUTSIDE}; if it computes tensors from tensors, wrap it with torch.library.custom_op, which makes it one "
    "operator of the graph"
)
_BRANCH = "this branch depends on a tensor's values (`{expression}`), which are not known while tracing"


class Category(Enum):
    """What a reason is about. Breaks at calls are explained by what is called."""

    DATA = "values of tensors"
    ERROR = "errors of the program"
    CALL = "calls"
    LANGUAGE = "Python's language"
    VALUE = "objects"
    STATE = "side effects and state"
    LIMIT = "limits and requests"


class Reason(Enum):
    """Why tracing stopped. Several reasons may share a code: they are the same to scripts and differ in what is
    said."""

    def __init__(self, code: str, category: Category, message: str, hint: str = "") -> None:
        self.code = code
        self.category = category
        self.message = message
        self.hint = hint

    # ---- values of tensors
    DATA_DEPENDENT_BRANCH = (
        "data-dependent-branch", Category.DATA, _BRANCH,
        "compute both and choose with torch.where(condition, a, b), or use torch.cond; or test before the call of the "
        "compiled function and pass the answer as a bool",
    )
    BRANCH_ON_SIZE = (
        "data-dependent-branch", Category.DATA,
        "this branch depends on how many values a tensor operation keeps (`{expression}`), which is not known while "
        "tracing",
        f"{SIZE}; what is done for none of them and for all is then the same",
    )
    DATA_DEPENDENT_VALUE = (
        "data-dependent-value", Category.DATA,
        "Python needs a value of a tensor ({subject}), which is not known while tracing", NUMBER,
    )
    VALUE_READ_BY_OPERATOR = (
        "data-dependent-value", Category.DATA, "`{expression}` reads values of a tensor before it computes ({subject})",
        OUTSIDE,
    )
    TENSOR_STRING = (
        "data-dependent-value", Category.DATA, "a string is made of a tensor's values: `{expression}`", STRINGS
    )
    DATA_DEPENDENT_SHAPE = (
        "data-dependent-shape", Category.DATA,
        "the size of the result depends on a tensor's values: `{expression}`", SIZE
    )
    RANDOM_VALUE = (
        "random-value", Category.DATA,
        "what happens here depends on a number that Python's random samples at run time: `{expression}`",
        "sample it before the compiled function's call and pass it as an argument, or use torch.rand and torch.where",
    )
    # ---- errors of the program
    RAISES = (
        "raises", Category.ERROR, "an exception is raised here and leaves the compiled function: {subject}",
        "nothing, if it is an error; eager raises it with its traceback",
    )
    RERAISED_EXCEPTION = (
        "reraised-exception", Category.ERROR,
        "an existing exception is raised here, which changes its traceback: {subject}",
        "nothing, if it is an error; else make the exception where it is raised",
    )
    OPERATOR_ERROR = (
        "operator-error", Category.ERROR, "the operator fails on these arguments: {subject}",
        "eager raises the same error: fix the call",
    )
    MEMORY_OVERLAP = (
        "memory-overlap", Category.ERROR,
        "{subject}: eager refuses most such writes, and for the others the order counts",
        "write to a tensor of its own, or read from a copy: x.clone()",
    )
    CAUGHT_ERROR = (
        "caught-data-dependent-error", Category.ERROR,
        "{subject} raises an error on some data, and the `try` around it catches that",
        "check the data before the `try`, or move the operator out of it",
    )
    # ---- calls
    UNKNOWN_CALLABLE = (
        "unknown-callable", Category.CALL, "what {subject} does is not known, so Python runs it", _UNKNOWN
    )
    UNSUPPORTED_METHOD = ("unsupported-method", Category.CALL, "the method {subject} is not traced", OUTSIDE)
    UNSUPPORTED_BUILTIN = ("unsupported-builtin", Category.CALL, "Python's {subject} is not traced", OUTSIDE)
    UNSUPPORTED_ARGUMENT = (
        "unsupported-argument", Category.CALL, "not traced with these arguments: {subject}",
        f"{OUTSIDE}, or pass other arguments",
    )
    TORCHSCRIPT = (
        "torchscript", Category.CALL, "{subject} runs in TorchScript's interpreter, which has parameters of its own",
        "compile the module that was scripted or traced, in its place",
    )
    UNSUPPORTED_CLASS = (
        "unsupported-class", Category.CALL, "how {subject} is made is not traced",
        "make the object before the call of the compiled function, and pass it",
    )
    UNSUPPORTED_TORCH_FUNCTION = (
        "unsupported-torch-function", Category.CALL, "{subject} is a function of torch that runs outside of graphs",
        OUTSIDE,
    )
    UNSUPPORTED_HIGHER_ORDER = (
        "unsupported-higher-order-op", Category.CALL, "this higher-order operator is not traced: {subject}", OUTSIDE
    )
    NUMPY_UNSUPPORTED = (
        "numpy-unsupported", Category.CALL, "this NumPy call has no counterpart in the graph: {subject}",
        "use torch's functions, or do it after the call",
    )
    PYTHON_RANDOM = (
        "python-random", Category.CALL, "{subject} samples from a generator that is not torch's",
        "use torch.rand, torch.randn, torch.randint or torch.randperm",
    )
    COPIED_OBJECT = (
        "object-copy", Category.CALL,
        "a module or object is copied ({subject}), which makes parameters that the graph does not know",
        "copy it once, before the compiled function is called",
    )
    CLASS_DEFINITION = (
        "class-definition", Category.CALL, "a class is made inside the function: `{expression}`",
        "define the class at the top of the file",
    )
    FRAME_INTROSPECTION = (
        "frame-introspection", Category.CALL,
        "the program reads its own stack or variables ({subject}), which differ once it is compiled",
        "pass what is needed as an argument",
    )
    REQUIRES_GRAD_CHANGE = (
        "requires-grad-change", Category.CALL, "requires_grad of a tensor changes here: `{expression}`",
        "call requires_grad_() on the input before the call, or use torch.func.grad",
    )
    TENSOR_HOOK = (
        "tensor-hook", Category.CALL, "{subject} registers a hook on a tensor that the graph computes",
        "register the hook on an input; one that only computes a new gradient is part of the graph",
    )
    GRADIENT_INSIDE = (
        "gradient-inside", Category.CALL, "{subject} computes gradients inside the compiled function",
        "compile the forward and the loss, and take gradients of what it returns; or use torch.func.grad",
    )
    WEAK_REFERENCE = (
        "weak-reference", Category.CALL, "a graph cannot make a weak reference: `{expression}`",
        "make it before or after the compiled function is called",
    )
    SKIPPED_FUNCTION = (
        "skipped-function", Category.CALL,
        "{subject} reads or changes internals of Python or torch; a graph cannot do that", OUTSIDE,
    )
    DISABLED_FUNCTION = (
        "disabled-function", Category.CALL, "{subject} is marked as not to be compiled",
        "remove the mark (torch.compiler.disable), or call it outside",
    )
    AUTOGRAD_FUNCTION = (
        "autograd-function", Category.CALL, "{subject}, so eager runs it",
        "call it before or after the compiled function, or let torch differentiate what its forward computes",
    )
    MISSING_FAKE_KERNEL = (
        "missing-fake-kernel", Category.CALL,
        "the operator {subject} does not say which shape and dtype its result has",
        "register a fake implementation for it: torch.library.register_fake(name of the operator)",
    )
    MISSING_FORWARD_GRADIENT = (
        "missing-forward-gradient", Category.CALL,
        "torch has no forward-mode gradient for `{expression}` that can be traced",
        "take reverse-mode gradients (torch.func.jacrev(torch.func.jacrev(f)) instead of torch.func.hessian(f)), or "
        "forward-mode ones outside of the compiled function",
    )
    MISSING_GRADIENT = (
        "missing-gradient", Category.CALL,
        "no gradient is registered for the operator {subject}, so autograd runs what it calls inside",
        "register one: torch.library.register_autograd(name of the operator), or call it under torch.no_grad()",
    )
    CONTEXT_MANAGER = (
        "context-manager", Category.CALL, "entering or leaving the context manager {subject} is not traced",
        "enter it around the call of the compiled function",
    )
    # ---- Python's language
    OPCODE = (
        "opcode", Category.LANGUAGE, "Python's instruction {subject} is not supported", "write the line in another way"
    )
    ASYNC = (
        "async", Category.LANGUAGE, "coroutines and asynchronous iteration are not traced: {subject}",
        "compile the functions that the coroutine calls instead",
    )
    IMPORT = ("import", Category.LANGUAGE, "this import cannot be traced: {subject}", "import at the top of the file")
    DELETE = (
        "del", Category.LANGUAGE, "this deletion cannot be traced: {subject}",
        "keep the object, or delete after the call"
    )
    GENERATOR = (
        "generator", Category.LANGUAGE, "a generator that has started is used after the graph: {subject}",
        "use it up inside, or make a list of it",
    )
    UNFINISHED_GENERATOR = (
        "unfinished-generator", Category.LANGUAGE,
        "{subject} is left in the middle of a try or with block, which Python ends when it deletes it",
        "call its close() method, or use it up",
    )
    # ---- objects
    UNKNOWN_TYPE = (
        "unknown-type", Category.VALUE, "objects like this are not traced: {subject}",
        "take what is needed out of it before the call",
    )
    SPARSE_TENSOR = (
        "unknown-type", Category.VALUE, "{subject} does not store all its elements, and there are no kernels for that",
        "pass x.to_dense(), or compute with the sparse tensor before or after the compiled function",
    )
    UNSUPPORTED_TENSOR = (
        "unknown-type", Category.VALUE, "tensors like this are not traced: {subject}",
        "compute with it before or after the compiled function",
    )
    NOT_A_CONSTANT = (
        "not-a-constant", Category.VALUE, "{subject} has to be known while tracing, and is not",
        "pass it as a Python number or string",
    )
    ITERATE = ("iterate", Category.VALUE, "cannot iterate over {subject}", "make a list of it before the call")
    ATTRIBUTE = ("attribute", Category.VALUE, "cannot read {subject}", "read it before the call and pass the value")
    SET_ATTRIBUTE = (
        "set-attribute", Category.VALUE, "cannot set {subject}", "set it after the compiled function returned"
    )
    SUBSCRIPT = ("subscript", Category.VALUE, "cannot index {subject}", "index it before the call and pass the item")
    SET_ITEM = (
        "set-item", Category.VALUE, "cannot assign an item of {subject}",
        "assign it after the compiled function returned"
    )
    OPERATOR = ("operator", Category.VALUE, "cannot apply {subject}", "do it before the call and pass the result")
    FORMAT_STRING = (
        "operator", Category.VALUE, "a string is made of a tensor's values: `{expression}`", STRINGS
    )
    RECONSTRUCT = (
        "reconstruct", Category.VALUE, "{subject} is needed after the graph, and cannot be made again there",
        "do not keep it beyond the compiled function",
    )
    CLASS_ESCAPES = (
        "class-escapes", Category.VALUE,
        "{subject} is made inside the function, and is needed after the graph",
        "define the class at the top of the file",
    )
    # ---- side effects and state
    METADATA_MUTATION = (
        "metadata-mutation", Category.STATE, "{subject} changes the shape or the memory of a tensor in place",
        "make a new tensor (x.view, x.reshape, torch.cat) instead",
    )
    SIDE_EFFECT_IN_SUBGRAPH = (
        "side-effect-in-subgraph", Category.STATE, "{subject}, and that code need not run exactly once",
        "move the change out, and return what is to be kept",
    )
    GLOBAL_HOOKS = (
        "global-hooks", Category.STATE,
        "hooks are registered for all modules, and {subject} calls its functions as modules, for which they run, too",
        "register the hooks on the modules that they are for",
    )
    OBSERVABLE_FINALIZER = (
        "observable-finalizer", Category.STATE,
        "{subject} may be deleted here, and the program can see that: it has a finalizer, or a weak "
        "reference to it exists",
        "drop it before or after the compiled function is called",
    )
    GLOBAL_STATE = (
        "global-state", Category.STATE, "{subject} changes a setting of the whole process",
        "set it before the compiled function is called",
    )
    # ---- limits and requests
    TRACE_LIMIT = (
        "trace-limit", Category.LIMIT,
        "the function runs more Python than is traced ({subject}), so all of it runs in eager",
        "let tensor operations do the loop's work, or compile the functions that it calls",
    )
    INLINE_DEPTH = (
        "inline-depth", Category.LIMIT, "calls nest too deeply: {subject}",
        "turn the recursion into a loop, or compile the function at the bottom",
    )
    GRAPH_BREAK_REQUESTED = (
        "graph-break-requested", Category.LIMIT, "the program requests a graph break: {subject}", "take the call away"
    )
    FORCED_BREAK = (
        "forced-break", Category.LIMIT, "an override forbids inlining {subject}", "remove the override"
    )
    AFTER_A_BREAK = ("after-a-break", Category.LIMIT, "computed from what an earlier break left unknown: {subject}")


ERRORS_OF_THE_PROGRAM = frozenset(
    (Reason.RAISES, Reason.RERAISED_EXCEPTION, Reason.OPERATOR_ERROR, Reason.MEMORY_OVERLAP)
)
