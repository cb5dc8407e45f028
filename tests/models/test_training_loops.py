"""Programs as people write them, with their loops: values, gradients and what is printed are eager's."""
# mypy: ignore-errors

from __future__ import annotations

import contextlib
import io
import itertools
from collections import OrderedDict
from dataclasses import dataclass, fields

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from torch import nn


def losses_of_a_critic_and_a_generator(compile):
    """A critic whose gradient at points in between has norm one (WGAN-GP)."""
    critic = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    generator = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6))
    critic_steps, generator_steps = (torch.optim.RMSprop(net.parameters(), 1e-3) for net in (critic, generator))

    def gradient_penalty(real, fake, weight=10):
        alpha = torch.rand(real.size(0), 1)
        between = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        score = critic(between)
        ones = torch.ones_like(score)
        (gradient,) = torch.autograd.grad(score, between, ones, create_graph=True, retain_graph=True)
        return weight * ((gradient.norm(2, dim=1) - 1) ** 2).mean()

    @compile
    def step_of_critic(real):
        fake = generator(torch.randn(real.size(0), 3)).detach()
        loss = critic(fake).mean() - critic(real).mean() + gradient_penalty(real, fake)
        critic_steps.zero_grad()
        loss.backward()
        critic_steps.step()
        return loss.detach()

    @compile
    def step_of_generator(count):
        loss = -critic(generator(torch.randn(count, 3))).mean()
        generator_steps.zero_grad()
        loss.backward()
        generator_steps.step()
        return loss.detach()

    for i in range(2):
        losses = [step_of_critic(torch.randn(4, 6)) for _ in range(2)]
        print(f"{i:03d} critic {losses[-1]:.5f} generator {step_of_generator(4).item():.5f}")
    return [*critic.parameters(), *generator.parameters()]


class Equilibrium(nn.Module):
    """A layer at its fixed point, which a hook of the result solves for the gradient, too."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.hook, self.steps = nn.Linear(4, 4), nn.LayerNorm(4), None, 0

    def layer(self, z, x):
        return self.norm(torch.tanh(self.linear(z)) * 0.1 + x)

    def solve(self, function, z):
        for _ in range(8):
            z, before = function(z), z
            self.steps += 1
            if (z - before).norm().item() < 1e-3:
                break
        return z

    def forward(self, x):
        with torch.no_grad():
            z = self.solve(lambda z: self.layer(z, x), torch.zeros_like(x))
        z = self.layer(z, x)
        start = z.clone().detach().requires_grad_()
        again = self.layer(start, x)

        def solve_backward(grad):
            if self.hook is not None:
                self.hook.remove()
                self.hook = None
            return self.solve(lambda y: torch.autograd.grad(again, start, y, retain_graph=True)[0] + grad, grad)

        self.hook = z.register_hook(solve_backward)
        return z


def a_layer_at_its_fixed_point(compile):
    model = Equilibrium()
    step, optimizer = compile(model), torch.optim.Adam(model.parameters(), 1e-2)
    for i in range(2):
        loss = (step(torch.randn(3, 4)) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(i, f"{loss.item():.6f}", model.steps)
    return list(model.parameters())


class Tree:
    def __init__(self, word, *children):
        self.word, self.children, self.state = word, children, None

    def __iter__(self):
        yield self
        yield from itertools.chain.from_iterable(self.children)


class TreeLSTM(nn.Module):
    """Of sums of children (Tai, Socher, Manning 2015)."""

    def __init__(self, width=4):
        super().__init__()
        self.width, self.words = width, nn.Embedding(9, 3)
        self.gates, self.gates_of_children = nn.Linear(3, 3 * width), nn.Linear(width, 3 * width)
        self.forget, self.forget_of_children = nn.Linear(3, width), nn.Linear(width, width)

    def node(self, x, cells, hidden):
        gates = self.gates(x) + self.gates_of_children(hidden.sum(0, keepdim=True))
        i, o, u = torch.split(gates, self.width, dim=1)
        f = torch.sigmoid(self.forget_of_children(hidden) + self.forget(x).repeat(len(hidden), 1))
        cell = torch.sigmoid(i) * torch.tanh(u) + (f * cells).sum(0, keepdim=True)
        return cell, torch.sigmoid(o) * torch.tanh(cell)

    def forward(self, tree):
        for child in tree.children:
            self(child)
        if tree.children:
            cells, hidden = map(torch.cat, zip(*(child.state for child in tree.children)))
        else:
            cells = hidden = torch.zeros(1, self.width)
        tree.state = self.node(self.words(torch.tensor([tree.word])), cells, hidden)
        return tree.state[1]


def trees_of_several_forms(compile):
    model = TreeLSTM()
    net, optimizer = compile(model), torch.optim.Adagrad(model.parameters(), 0.05)
    for tree in (Tree(1, Tree(2), Tree(3, Tree(4))), Tree(5, Tree(6), Tree(7)), Tree(8)):
        loss = (net(tree) - 0.5).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{loss:.6f}", [node.word for node in tree if node.state is not None])
    return list(model.parameters())


class ModelOutput(OrderedDict):
    """Fields that are also items, without those that are None, as transformers has them."""

    def __post_init__(self):
        for field in fields(self):
            if (value := getattr(self, field.name)) is not None:
                self[field.name] = value

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else tuple(self.values())[key]


@dataclass
class Output(ModelOutput):
    logits: torch.Tensor | None = None
    loss: torch.Tensor | None = None
    past: list | None = None


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.project = nn.Embedding(11, 8), nn.Linear(8, 24)

    def forward(self, ids, labels=None, past=None, **options):
        x = self.words(ids)
        q, k, v = self.project(x).chunk(3, -1)
        if past is not None:
            k, v = (torch.cat(pair, 1) for pair in zip(past, (k, v)))
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
        scores = (q @ k.mT / 8**0.5).masked_fill(~mask, torch.finfo(x.dtype).min)
        logits = (x + scores.softmax(-1) @ v) @ self.words.weight.T
        loss = None if labels is None else F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return Output(logits, loss, [k, v] if options.get("use_cache") else None)


def a_decoder_with_a_cache_and_an_output_object(compile):
    model = Decoder()
    net, optimizer = compile(model), torch.optim.AdamW(model.parameters(), 1e-2)
    ids = torch.randint(11, (2, 6))
    for _ in range(2):
        out = net(ids, labels=ids)
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(list(out), type(out).__name__, f"{out['loss'].item():.6f}")
    with torch.no_grad():
        out, made = net(ids[:1], use_cache=True), []
        for _ in range(4):
            made.append(out.logits[:, -1].argmax(-1, keepdim=True))
            out = net(made[-1], past=out.past, use_cache=True)
    print(torch.cat(made, 1).tolist(), len(out))
    return list(model.parameters()), list(out.past)


def windows(x, size):
    b, h, w, c = x.shape
    x = x.view(b, h // size, size, w // size, size, c)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size, c)


def whole(x, size, h, w):
    b = int(x.shape[0] / (h * w / size / size))
    x = x.view(b, h // size, w // size, size, size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, -1)


def windows_of_images_whose_size_varies(compile):
    """As in Swin's first release, which counts images by a quotient of floats."""
    attend = compile(lambda x: whole(windows(x, 2).softmax(1), 2, *x.shape[1:3]))
    sizes = [(4, 4), (4, 6), (4, 10)]
    images = [torch.randn(2, *size, 4, requires_grad=True) for size in sizes]
    outs = [attend(image) for image in images]
    sum(out.square().sum() for out in outs).backward()
    return outs, [image.grad for image in images]


def outcome(program, compile):
    torch.manual_seed(0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        found = program(compile)
    return found, printed.getvalue()


@pytest.mark.parametrize("program", [
    losses_of_a_critic_and_a_generator, a_layer_at_its_fixed_point, trees_of_several_forms,
    a_decoder_with_a_cache_and_an_output_object, windows_of_images_whose_size_varies,
], ids=lambda program: program.__name__)  # fmt: skip
def test_a_program_is_as_in_eager(program) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        expected, found = (outcome(program, compile) for compile in (lambda function: function, ptdebug.compile))
    finally:
        torch.set_default_dtype(before)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-9, atol=1e-11)
    assert found[1] == expected[1]
