"""A model that is compiled before its first request, and the same in a second process that starts warm."""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ptdebug
import torch


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).softmax(-1)


def serve(bundle: Path) -> None:
    if bundle.exists():
        print(ptdebug.load_cache(bundle, trust=True))  # made by this script, so it is known where it is from
    model = ptdebug.compile(Classifier().eval())
    with torch.no_grad():
        print(ptdebug.warm_up(model, [torch.rand(1, 128), torch.rand(32, 128)]))
        start = time.perf_counter()
        model(torch.rand(8, 128))
        print(f"first request: {(time.perf_counter() - start) * 1000:.1f} ms")
    if not bundle.exists():
        print("saved", ptdebug.save_cache(bundle))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            for machine in ("first", "second"):  # two caches stand for two machines
                print(f"--- the {machine} machine", flush=True)
                environment = {"PTDEBUG_CACHE_DIR": f"{folder}/{machine}"}
                command = [sys.executable, __file__, f"{folder}/model.cache"]
                subprocess.run(command, check=True, env={**os.environ, **environment})
