"""Settings of Dynamo that the tracer honours, where the program has loaded its configuration."""
from __future__ import annotations

import os
import sys
from typing import Any

CONFIG = "torch._dynamo.config"


def setting(name: str, default: Any) -> Any:
    """A setting of `torch._dynamo.config`; `default`, which is Dynamo's, where that is not loaded."""
    return getattr(sys.modules.get(CONFIG), name, default)


def compiles_nothing() -> bool:
    """Whether the program or its environment turns torch.compile off."""
    by_environment = os.environ.get("TORCHDYNAMO_DISABLE") == "1"
    return by_environment or bool(setting("disable", os.environ.get("TORCH_COMPILE_DISABLE", "0") == "1"))


def dynamic_by_settings(dynamic: bool | None) -> bool | None:
    """What `dynamic` means: where a program does not say (None), its settings do."""
    if dynamic is not None:
        return dynamic
    if not setting("dynamic_shapes", True):
        return False
    if not setting("assume_static_by_default", True):
        return True
    return None if setting("automatic_dynamic_shapes", True) else False
