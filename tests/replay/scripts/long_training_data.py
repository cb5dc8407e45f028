"""The data of long_training.py."""
import random

import torch

WORDS = "the cat dog bird sees likes follows a small big red tree house and then stops".split()


def make_sentences(count: int, length: int, seed: int):
    generator = random.Random(seed)
    return [[generator.choice(WORDS) for _ in range(length)] for _ in range(count)]


class Vocabulary:
    def __init__(self, sentences) -> None:
        self.words = sorted({word for sentence in sentences for word in sentence})
        self.index = {word: i for i, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, sentence):
        return [self.index[word] for word in sentence]

    def encode_all(self, sentences) -> torch.Tensor:
        return torch.tensor([self.encode(sentence) for sentence in sentences])


class Batches:
    def __init__(self, data: torch.Tensor, size: int, seed: int) -> None:
        self.data = data
        self.size = size
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self):
        order = torch.randperm(len(self.data), generator=self.generator)
        for start in range(0, len(order) - self.size + 1, self.size):
            yield self.data[order[start : start + self.size]]

    def forever(self):
        while True:
            yield from self
