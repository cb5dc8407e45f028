"""Trains a small sequence model on synthetic data. A program as people write them: most of it has nothing to do with
what goes wrong when it is compiled."""
import argparse
import collections
import dataclasses
import json
import math
import os
import random
import sys
import time

import torch
import torch.nn.functional as F
from long_training_data import Batches, Vocabulary, make_sentences
from torch import nn

LEVELS = ("debug", "info", "warning")
DEFAULTS = {"width": 32, "heads": 4, "layers": 2, "dropout": 0.0, "steps": 4, "batch": 8, "length": 12}


# ---------------------------------------------------------------------------------------------------------------------
# configuration
# ---------------------------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Config:
    """All settings of a run."""

    width: int = 32
    heads: int = 4
    layers: int = 2
    dropout: float = 0.0
    steps: int = 4
    batch: int = 8
    length: int = 12
    rate: float = 1e-3
    decay: float = 0.01
    warmup: int = 2
    clip: float = 1.0
    seed: int = 0
    level: str = "info"
    smoothing: float = 0.0
    compiled: bool = True

    def validate(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.heads} heads")
        if self.level not in LEVELS:
            raise ValueError(f"unknown level {self.level}")
        if not 0 <= self.dropout < 1:
            raise ValueError("dropout out of range")

    @classmethod
    def from_file(cls, path: str) -> "Config":
        with open(path) as file:
            values = json.load(file)
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = set(values) - known
        if unknown:
            raise KeyError(f"unknown settings {sorted(unknown)}")
        return cls(**values)

    def describe(self) -> str:
        return ", ".join(f"{f.name}={getattr(self, f.name)}" for f in dataclasses.fields(self))


def parse_arguments(words=None) -> Config:
    parser = argparse.ArgumentParser(description=__doc__)
    for field in dataclasses.fields(Config):
        if field.type in ("bool", bool):
            parser.add_argument(f"--no-{field.name}", dest=field.name, action="store_false", default=field.default)
        else:
            parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    parser.add_argument("--config", default=None)
    arguments = vars(parser.parse_args(words))
    path = arguments.pop("config")
    config = Config.from_file(path) if path else Config(**arguments)
    config.validate()
    return config


# ---------------------------------------------------------------------------------------------------------------------
# logging and metrics
# ---------------------------------------------------------------------------------------------------------------------
class Logger:
    """Prints messages of a level and above, and keeps them."""

    def __init__(self, level: str = "info", stream=None) -> None:
        self.level = LEVELS.index(level)
        self.stream = stream or sys.stdout
        self.lines = []
        self.started = time.time()

    def log(self, level: str, message: str) -> None:
        if LEVELS.index(level) < self.level:
            return
        self.lines.append(message)
        print(f"[{level}] {message}", file=self.stream)

    def info(self, message: str) -> None:
        self.log("info", message)

    def debug(self, message: str) -> None:
        self.log("debug", message)

    def save(self, path: str) -> None:
        with open(path, "w") as file:
            file.write("\n".join(self.lines))


class Meter:
    """A running mean."""

    def __init__(self, name: str, window: int = 20) -> None:
        self.name = name
        self.values = collections.deque(maxlen=window)
        self.total = 0.0
        self.count = 0

    def update(self, value: float, times: int = 1) -> None:
        self.values.append(value)
        self.total += value * times
        self.count += times

    @property
    def mean(self) -> float:
        return self.total / max(1, self.count)

    @property
    def recent(self) -> float:
        return sum(self.values) / max(1, len(self.values))

    def __str__(self) -> str:
        return f"{self.name} {self.recent:.4f} ({self.mean:.4f})"


class Metrics:
    def __init__(self) -> None:
        self.meters = {}

    def update(self, **values: float) -> None:
        for name, value in values.items():
            self.meters.setdefault(name, Meter(name)).update(value)

    def __str__(self) -> str:
        return "  ".join(str(meter) for meter in self.meters.values())

    def as_dict(self):
        return {name: meter.mean for name, meter in self.meters.items()}


# ---------------------------------------------------------------------------------------------------------------------
# the model
# ---------------------------------------------------------------------------------------------------------------------
class Normalize(nn.Module):
    """Root mean square normalization with a gain."""

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return x * scale * self.gain


class Rotary(nn.Module):
    def __init__(self, width: int, base: float = 10000.0) -> None:
        super().__init__()
        frequencies = 1.0 / base ** (torch.arange(0, width, 2).float() / width)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[-2]
        angles = torch.outer(torch.arange(length, device=x.device).float(), self.frequencies)
        cos, sin = angles.cos(), angles.sin()
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.width = config.width
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.rotary = Rotary(config.width // config.heads)
        self.dropout = config.dropout

    def split(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        return x.view(batch, length, self.heads, -1).transpose(1, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (self.split(part) for part in self.qkv(x).chunk(3, dim=-1))
        q, k = self.rotary(q), self.rotary(k)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(mask, float("-inf"))
        weights = F.dropout(scores.softmax(-1), self.dropout, self.training)
        mixed = (weights @ v).transpose(1, 2).reshape(x.shape)
        return self.out(mixed)


class Gate(nn.Module):
    """A gated feed-forward part; the gate saturates."""

    def __init__(self, width: int, factor: int = 2) -> None:
        super().__init__()
        self.up = nn.Linear(width, factor * width)
        self.gate = nn.Linear(width, factor * width)
        self.down = nn.Linear(factor * width, width)

    def saturate(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * 0.5) * 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        opened = self.saturate(self.gate(x))
        return self.down(self.up(x) * opened)


class Block(nn.Module):
    def __init__(self, config: Config, index: int) -> None:
        super().__init__()
        self.index = index
        self.attention = Attention(config)
        self.feed = Gate(config.width)
        self.first = Normalize(config.width)
        self.second = Normalize(config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.first(x), mask))
        return x + self.dropout(self.feed(self.second(x)))


class Model(nn.Module):
    def __init__(self, config: Config, words: int) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(words, config.width)
        self.blocks = nn.ModuleList(Block(config, i) for i in range(config.layers))
        self.norm = Normalize(config.width)
        self.head = nn.Linear(config.width, words, bias=False)
        self.apply(self.initialize)

    @staticmethod
    def initialize(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.2)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.5)

    def mask(self, length: int, device) -> torch.Tensor:
        return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        mask = self.mask(tokens.shape[1], tokens.device)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))

    def parameter_count(self) -> int:
        return sum(p.numel() for p in self.parameters())


# ---------------------------------------------------------------------------------------------------------------------
# losses, schedules, checkpoints
# ---------------------------------------------------------------------------------------------------------------------
def smoothed_loss(logits: torch.Tensor, targets: torch.Tensor, smoothing: float) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=smoothing)


def accuracy(logits: torch.Tensor, targets: torch.Tensor) -> float:
    with torch.no_grad():
        return (logits.argmax(-1) == targets).float().mean().item()


class Schedule:
    def __init__(self, optimizer, config: Config) -> None:
        self.optimizer = optimizer
        self.config = config
        self.step_number = 0

    def rate(self) -> float:
        if self.step_number < self.config.warmup:
            return self.config.rate * (self.step_number + 1) / self.config.warmup
        progress = (self.step_number - self.config.warmup) / max(1, self.config.steps - self.config.warmup)
        return 0.5 * self.config.rate * (1 + math.cos(math.pi * min(1.0, progress)))

    def step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        self.step_number += 1


def parameter_groups(model: nn.Module, decay: float):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


def save_checkpoint(path: str, model: nn.Module, optimizer, step: int) -> None:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)


def load_checkpoint(path: str, model: nn.Module, optimizer) -> int:
    if not os.path.exists(path):
        return 0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


# ---------------------------------------------------------------------------------------------------------------------
# training
# ---------------------------------------------------------------------------------------------------------------------
class Trainer:
    def __init__(self, config: Config, logger: Logger) -> None:
        self.config = config
        self.logger = logger
        self.metrics = Metrics()
        sentences = make_sentences(64, config.length + 1, config.seed)
        self.vocabulary = Vocabulary(sentences)
        self.batches = Batches(self.vocabulary.encode_all(sentences), config.batch, config.seed)
        self.model = Model(config, len(self.vocabulary))
        self.forward = torch.compile(self.model) if config.compiled else self.model
        self.optimizer = torch.optim.AdamW(parameter_groups(self.model, config.decay), lr=config.rate)
        self.schedule = Schedule(self.optimizer, config)
        self.history = []

    def train_step(self, batch: torch.Tensor) -> float:
        inputs, targets = batch[:, :-1], batch[:, 1:]
        logits = self.forward(inputs)
        loss = smoothed_loss(logits, targets, self.config.smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.schedule.step()
        self.optimizer.step()
        self.metrics.update(loss=loss.item(), accuracy=accuracy(logits, targets), norm=norm.item())
        return loss.item()

    def run(self):
        self.logger.info(f"{self.model.parameter_count()} parameters; {self.config.describe()}")
        for step, batch in zip(range(self.config.steps), self.batches.forever()):
            loss = self.train_step(batch)
            self.history.append(loss)
            if step % 2 == 0:
                self.logger.info(f"step {step}: {self.metrics}")
        return self.history

    def evaluate(self) -> float:
        self.model.eval()
        with torch.no_grad():
            batch = next(iter(self.batches))
            logits = self.model(batch[:, :-1])
        self.model.train()
        return accuracy(logits, batch[:, 1:])


def seed_everything(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)


def report(trainer: Trainer, logger: Logger) -> None:
    summary = trainer.metrics.as_dict()
    best = min(trainer.history)
    logger.info("summary " + json.dumps({key: round(value, 3) for key, value in summary.items()}))
    logger.info(f"best loss {best:.4f}, accuracy {trainer.evaluate():.3f}")


def main() -> int:
    config = parse_arguments()
    seed_everything(config.seed)
    logger = Logger(config.level)
    trainer = Trainer(config, logger)
    history = trainer.run()
    report(trainer, logger)
    if not all(math.isfinite(loss) for loss in history):
        logger.log("warning", "the loss is not finite")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
