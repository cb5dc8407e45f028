"""Marks for tests that run the same on a CPU and on a GPU, where there is one."""
from __future__ import annotations

import pytest
import torch

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
DEVICES = ("cpu", pytest.param("cuda", marks=GPU))
