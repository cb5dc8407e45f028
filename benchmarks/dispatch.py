"""What our tracer costs beside stock torch.compile's, in one process: a warm call, and the first one.

    python benchmarks/dispatch.py [--models mlp,bert,gpt2,llama,t5] [--calls 2000] [--rounds 7]

Both compile with a backend that keeps the first call's results and hands them out again, so that a warm call is nothing
but the guards and the code around the graph ("guards + dispatch"), and the first call nothing but capture (a forward in
eager is taken off). Seconds are CPU seconds of this process; a warm call is the least of `--rounds` alternating rounds.
The library by which guards of large modules look at the versions of their dicts is in the cache from the beginning, as
it is on every machine a second or two after the first large model was compiled.
"""
from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import ptdebug
import torch
from ptdebug.cli.guard_library import GuardLibrary


def replaying(graph: Any, _inputs: Any) -> Callable[..., Any]:
    """A backend: run the graph at the first call only."""
    kept: list[Any] = []

    def call(*args: Any) -> Any:
        if not kept:
            kept.append(graph(*args))
        return kept[0]

    return call


def mlp() -> tuple[torch.nn.Module, dict[str, Any]]:
    """Two layers on four rows."""
    from torch import nn

    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), {"input": torch.randn(4, 8)}


def _model(name: str, **sizes: Any) -> tuple[torch.nn.Module, dict[str, Any]]:
    import transformers

    config = getattr(transformers, f"{name}Config")(**sizes)
    cls = {"Bert": "BertModel", "GPT2": "GPT2Model", "Llama": "LlamaModel", "T5": "T5Model"}[name]
    inputs: dict[str, Any] = {"input_ids": torch.arange(8).reshape(1, 8)}
    if name == "T5":
        inputs["decoder_input_ids"] = torch.arange(4).reshape(1, 4)
    if name in ("GPT2", "Llama"):
        inputs["use_cache"] = False
    return getattr(transformers, cls)(config), inputs


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, dict[str, Any]]]] = {
    "mlp": mlp,
    "bert": lambda: _model("Bert", hidden_size=32, intermediate_size=64, num_hidden_layers=12, num_attention_heads=2,
                           vocab_size=64),
    "gpt2": lambda: _model("GPT2", n_embd=32, n_layer=6, n_head=2, vocab_size=64),
    "llama": lambda: _model("Llama", hidden_size=32, intermediate_size=64, num_hidden_layers=6, num_attention_heads=2,
                            num_key_value_heads=2, vocab_size=64),
    "t5": lambda: _model("T5", d_model=32, d_ff=64, num_layers=3, num_heads=2, d_kv=16, vocab_size=64),
}


def cpu_seconds(call: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def warm(call: Callable[[], Any], calls: int) -> float:
    """CPU seconds of one of `calls` calls."""
    start = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - start) / calls


def measure(name: str, calls: int, rounds: int) -> dict[str, tuple[float, float]]:
    """(stock, ours) for the first call and for a warm one."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.eval()
    with torch.no_grad():
        eager = min(cpu_seconds(lambda: model(**inputs)) for _ in range(3))
        compiled = {
            "stock": torch.compile(model, backend=replaying),
            "ours": ptdebug.compile(model, backend=replaying),
        }
        first = {}
        for who, run in compiled.items():
            gc.collect()  # or what the one has made is gone through in the other's time
            first[who] = cpu_seconds(lambda run=run: run(**inputs)) - eager
        least = dict.fromkeys(compiled, float("inf"))
        for _ in range(rounds):
            for who, run in compiled.items():
                least[who] = min(least[who], warm(lambda run=run: run(**inputs), calls))
    return {"capture": (first["stock"], first["ours"]), "warm call": (least["stock"], least["ours"])}


def main() -> None:
    """Print one line for each model and question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="mlp,bert,gpt2,llama,t5")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    GuardLibrary().wait()  # into the cache, where the first large model finds it
    for compile_ in (lambda f: torch.compile(f, backend=replaying), lambda f: ptdebug.compile(f, backend=replaying)):
        compile_(lambda x: x + 1)(torch.zeros(2))  # imports, and what each does once
    print(f"{'model':8}{'':14}{'stock':>12}{'ours':>12}{'ratio':>8}")
    for name in arguments.models.split(","):
        for what, (stock, ours) in measure(name, arguments.calls, arguments.rounds).items():
            unit, scale = ("s", 1.0) if what == "capture" else ("us", 1e6)
            print(f"{name:8}{what:14}{stock * scale:10.2f} {unit}{ours * scale:10.2f} {unit}{ours / stock:8.2f}")


if __name__ == "__main__":
    main()
