"""Models that PT2E quantized to int8 (torchao): eager, stock `torch.compile` and ptdebug, and float32 by ptdebug.

    python benchmarks/int8.py [MODEL ...] [--threads N] [--rounds N]

Random weights, calibrated on random data. Prints milliseconds (the minimum of rounds that take turns; with one thread
those of the CPU, which other processes disturb less), the speed-up over eager's dequantized graph, how many times as
fast as stock ptdebug is (the median of rounds), and how far results are from eager's, in units of its largest. Needs
torchao.
"""
from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A residual block of ResNet: two convolutions, or three around a narrow one."""

    def __init__(self, inside: int, outside: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        shapes = [(inside, outside, 3, stride), (outside, outside, 3, 1)]
        if bottleneck:
            narrow = outside // 4
            shapes = [(inside, narrow, 1, 1), (narrow, narrow, 3, stride), (narrow, outside, 1, 1)]
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o)) for i, o, k, s in shapes)
        self.skip = nn.Identity()
        if stride != 1 or inside != outside:
            self.skip = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for layer in self.layers[:-1]:
            y = F.relu(layer(y))
        return F.relu(self.layers[-1](y) + self.skip(x))


class ResNet(nn.Module):
    """ResNet-18 or -50."""

    def __init__(self, depths: tuple[int, ...], bottleneck: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        blocks, width = [], 64
        for stage, depth in enumerate(depths):
            out = 64 * 2**stage * (4 if bottleneck else 1)
            for number in range(depth):
                blocks.append(Block(width, out, 2 if stage and not number else 1, bottleneck))
                width = out
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Inverted(nn.Module):
    """MobileNetV2's inverted residual."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        wide = 6 * inside
        self.body = nn.Sequential(
            nn.Conv2d(inside, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, outside, 1, bias=False), nn.BatchNorm2d(outside))
        self.adds = stride == 1 and inside == outside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.adds else self.body(x)


def mobilenet() -> nn.Module:
    """MobileNetV2's shapes."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU6()]
    width = 32
    for out, depth, stride in ((24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)):
        for number in range(depth):
            layers.append(Inverted(width, out, stride if not number else 1))
            width = out
    return nn.Sequential(*layers, nn.Conv2d(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(1280, 1000))


class Encoder(nn.Module):
    """Layers of a transformer's encoder, normalized before (ViT) or after (BERT)."""

    def __init__(self, layers: int, size: int, heads: int, first: bool) -> None:
        super().__init__()
        self.heads, self.first = heads, first
        self.layers = nn.ModuleList(nn.ModuleDict({
            "qkv": nn.Linear(size, 3 * size), "out": nn.Linear(size, size), "up": nn.Linear(size, 4 * size),
            "down": nn.Linear(4 * size, size), "one": nn.LayerNorm(size), "two": nn.LayerNorm(size)})
            for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if self.first:
                x = x + self.attend(layer, layer["one"](x))
                x = x + layer["down"](F.gelu(layer["up"](layer["two"](x))))
            else:
                x = layer["one"](x + self.attend(layer, x))
                x = layer["two"](x + layer["down"](F.gelu(layer["up"](x))))
        return x

    def attend(self, layer: nn.ModuleDict, x: torch.Tensor) -> torch.Tensor:
        batch, rows, size = x.shape
        q, k, v = (t.view(batch, rows, self.heads, -1).transpose(1, 2) for t in layer["qkv"](x).chunk(3, -1))
        return layer["out"](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, rows, size))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet18": (lambda: ResNet((2, 2, 2, 2), False), (4, 3, 224, 224)),
    "resnet50": (lambda: ResNet((3, 4, 6, 3), True), (2, 3, 224, 224)),
    "mobilenetv2": (mobilenet, (4, 3, 224, 224)),
    "bert": (lambda: Encoder(12, 768, 12, False), (1, 128, 768)),
    "vit": (lambda: Encoder(12, 768, 12, True), (1, 197, 768)),
}


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A model and its input. Its BatchNorms have the statistics of that input: else random layers shrink all values,
    and results do not depend on the input."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make(), torch.randn(shape)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 1.0
    with torch.no_grad():
        model.train()(x.clone())
    return model.eval(), x


def quantized(model: nn.Module, x: torch.Tensor) -> nn.Module:
    """PT2E's flow for x86, statically, calibrated on `x`."""
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    # strict: in what export traces otherwise, torch 2.11 does not tell the quantizer which nodes are layers
    prepared = prepare_pt2e(torch.export.export(model, (x,), strict=True).module(), quantizer)
    prepared(x)
    return move_exported_model_to_eval(convert_pt2e(prepared))


def main() -> None:
    """Measure the models that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], metavar="MODEL")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    import ptdebug
    import torch._inductor.config as inductor

    for name in options.models or MODELS:
        model, x = made(name)
        with torch.no_grad():
            integers = quantized(model, x)
            wanted = integers(x)
            with inductor.patch(freezing=True):
                stock = torch.compile(copy.deepcopy(integers), backend="inductor")  # its freezing changes the module
                theirs = stock(x.clone())  # it adds to its argument in place
            compiled = {"float32": ptdebug.compile(model), "ptdebug": ptdebug.compile(integers)}
            compiled["float32"](x)
            ours = compiled["ptdebug"](x)
            ways: dict[str, Callable[..., object]] = {"eager": integers, "stock": stock, **compiled}
            clock = time.process_time if options.threads == 1 else time.perf_counter
            taken: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(options.rounds):
                for way, call in ways.items():
                    given = x.clone()
                    start = clock()
                    call(given)
                    taken[way].append(clock() - start)
        away = [((got - wanted).abs().max() / wanted.abs().max()).item() for got in (theirs, ours)]
        eager = min(taken["eager"])
        times = ", ".join(f"{way} {min(s) * 1e3:.1f} ms ({eager / min(s):.2f})" for way, s in taken.items())
        faster = statistics.median(a / b for a, b in zip(taken["stock"], taken["ptdebug"]))
        print(f"{name}: {times}; {faster:.2f} times stock; off by {away[0]:.4f} (stock), {away[1]:.4f}; "
              f"{ptdebug.stats()['reasons']}", flush=True)


if __name__ == "__main__":
    main()
