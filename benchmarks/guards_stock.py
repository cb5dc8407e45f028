"""How many guards our tracer and stock TorchDynamo keep for the same model, by kind.

    python benchmarks/guards_stock.py [--models bert,gpt2,llama,t5]
"""
from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import dispatch
import ptdebug
import torch
import torch._dynamo


def stock(model: torch.nn.Module, inputs: dict[str, Any]) -> Counter[str]:
    """Kinds of stock's guards."""
    torch._dynamo.reset()
    found: Counter[str] = Counter()

    def keep(guards: Any) -> list[bool]:
        found.update(guard.guard_type for guard in guards)
        return [True] * len(guards)

    torch.compile(model, backend="eager", options={"guard_filter_fn": keep})(**inputs)
    return found


def ours(model: torch.nn.Module, inputs: dict[str, Any]) -> Counter[str]:
    """Kinds of our guards."""
    report = ptdebug.explain(model, backend=lambda graph, _: graph)
    return Counter(guard.kind for guard in report(**inputs).guards)


def main() -> None:
    """One line for each model, then the kinds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="bert,gpt2,llama,t5")
    for name in parser.parse_args().models.split(","):
        model, inputs = dispatch.MODELS[name]()
        model.eval()
        with torch.no_grad():
            theirs, mine = stock(model, inputs), ours(model, inputs)
        print(f"{name}: stock {sum(theirs.values())}, ours {sum(mine.values())}")
        print("  stock:", dict(theirs.most_common()))
        print("  ours: ", dict(mine.most_common()))


if __name__ == "__main__":
    main()
