"""What `grammar_rare_torch.py` names: autograd functions, custom operators, hooks, modules that real programs use now
and then."""
from __future__ import annotations

RARE_MODULES = '''
import torch.utils._pytree as pytree
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention import SDPBackend, sdpa_kernel


class Shared(torch.autograd.Function):
    @staticmethod
    def forward(a, b, factor):
        return a * b, (a * factor).round(), a.argmax()

    @staticmethod
    def setup_context(ctx, inputs, outputs):
        a, b, ctx.factor = inputs
        ctx.save_for_backward(a, b)
        ctx.mark_non_differentiable(outputs[2])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad, grad_rounded, _):
        a, b = ctx.saved_tensors
        LOG.append(("shared", ctx.needs_input_grad, grad is None, grad_rounded is None))
        first = None if grad is None else grad * b
        if grad_rounded is not None:
            first = grad_rounded * ctx.factor if first is None else first + grad_rounded * ctx.factor
        return first, grad * a if grad is not None and ctx.needs_input_grad[1] else None, None


class Negated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        a.neg_()
        ctx.mark_dirty(a)
        return a

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return -grad


def _operators():
    """Operators are the process's: they are defined once, and hold nothing of a program."""
    made = types.ModuleType("random_operators")

    @torch.library.custom_op("random_programs::scaled", mutates_args=())
    def scaled(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    scaled.register_fake(lambda x, n: torch.empty_like(x))
    keep_factor = lambda ctx, inputs, output: setattr(ctx, "n", inputs[1])
    scaled.register_autograd(lambda ctx, grad: (grad * ctx.n, None), setup_context=keep_factor)

    @torch.library.custom_op("random_programs::add_into", mutates_args={"x"})
    def add_into(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(y)

    @torch.library.custom_op("random_programs::halves", mutates_args=())
    def halves(x: torch.Tensor, how: str = "down") -> tuple[torch.Tensor, torch.Tensor]:
        return x / 2, (x / 2).floor() if how == "down" else (x / 2).ceil()

    halves.register_fake(lambda x, how="down": (torch.empty_like(x), torch.empty_like(x)))

    @torch.library.custom_op("random_programs::positives", mutates_args=())
    def positives(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].clone()

    positives.register_fake(lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size()))

    torch.library.define("random_programs::shifted", "(Tensor x, float by=1.0) -> Tensor")
    torch.library.impl("random_programs::shifted", "CompositeExplicitAutograd")(lambda x, by=1.0: x + by)
    torch.library.register_fake("random_programs::shifted")(lambda x, by=1.0: torch.empty_like(x))

    @torch.library.custom_op("random_programs::unfaked", mutates_args=())
    def unfaked(x: torch.Tensor) -> torch.Tensor:
        return x.flip(0)

    vars(made).update(locals())
    return made


operators = sys.modules.get("random_operators") or sys.modules.setdefault("random_operators", _operators())


@contextlib.contextmanager
def deterministic(mode):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(mode)
    try:
        yield mode
    finally:
        torch.use_deterministic_algorithms(before)


def share_memory(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def keyword_hook(module, args, kwargs, out):
    LOG.append(("keywords", sorted(kwargs)))
    return out + len(kwargs)


def gradient_hook(module, grads):
    LOG.append(("gradients", len(grads)))


def trained(parameter, loss, optimizer, scheduler=None, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        loss(parameter).sum().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return parameter.detach()


class Plus(torch.nn.Module):
    def forward(self, weight):
        return weight + 1

    def right_inverse(self, weight):
        return weight - 1


class Methods:
    _inner = compiled(lambda x: x * 2)
    quiet = staticmethod(torch.no_grad()(_inner))
    thrice = staticmethod(functools.wraps(_inner)(lambda x, inner=_inner: inner(x) * 3))

    @compiled
    def doubled(self, x):
        return x * 2

    @torch.no_grad()
    @compiled
    def tripled(self, x):
        return x * 3


WEIGHTED = torch.nn.utils.parametrizations.weight_norm(filled(torch.nn.Linear(3, 3)))
PLUSSED = filled(torch.nn.Linear(3, 3))
parametrize.register_parametrization(PLUSSED, "weight", Plus())
parametrize.register_parametrization(PLUSSED, "weight", Doubled())
GATED = filled(torch.nn.GRU(3, 3, batch_first=True))
ATTENTION = filled(torch.nn.MultiheadAttention(3, 1, batch_first=True))
EMBEDDED = filled(torch.nn.Embedding(4, 3))
OPTIMIZER = torch.optim.SGD(NET.parameters(), lr=0.1, momentum=0.5)
SCHEDULER = torch.optim.lr_scheduler.ExponentialLR(OPTIMIZER, 0.5)
GENERATOR = torch.Generator().manual_seed(5)
'''
