"""A pointwise kernel, a reduction, and the softmax of an attention, to be followed down to the GPU's instructions.

    ptdebug run --target cuda:90 examples/gpu_kernels.py    # on any machine
    ptdebug tui @:0/0:kernels                               # `t` chooses the form beside it; Enter follows a line
"""
import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@torch.compile
def gated(x, gate):
    return F.gelu(x) * torch.sigmoid(gate)


@torch.compile
def rms_norm(x, weight):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    return x * scale * weight


@torch.compile
def attention(query, key, value):
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return F.softmax(scores, -1) @ value


x, gate = torch.randn(512, 1024, device=DEVICE), torch.randn(512, 1024, device=DEVICE)
q, k, v = (torch.randn(2, 4, 128, 64, device=DEVICE) for _ in range(3))
with torch.no_grad():
    print("gated    ", tuple(gated(x, gate).shape))
    print("rms_norm ", tuple(rms_norm(x, gate[0]).shape))
    print("attention", tuple(attention(q, k, v).shape))
