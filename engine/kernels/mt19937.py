"""Eager's random numbers on the CPU, drawn by vector code: the Mersenne Twister of torch's default generator.

ATen draws one number at a time from that generator, 9 ns for each element of a dropout's noise. The recurrence of the
generator reaches no nearer than 227 words back (M. Matsumoto and T. Nishimura, "Mersenne Twister", 1998), so 16 words
can be made at once; its state is read and written through `torch.Generator` (ATen/CPUGeneratorImpl.cpp says how it is
laid out). The first use compares numbers and state with ATen's: where they differ (a torch built to draw with MKL,
another layout), all is left to ATen.
"""
from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import lru_cache

import torch

from ..toolchain.cpp_build import BuildFailed, CannotBuild, build

MANY = 1 << 14  # elements; below, reading and writing the state costs more than ATen's way

STATE_SIZE = 5056  # bytes: seed, words left, where the next is, 624 words of 8 bytes, and what normal numbers keep

_SOURCE = """\
typedef int int32;
typedef unsigned int uint32;
typedef long int64;
typedef unsigned long uint64;

static inline uint32 mixed(uint32 high, uint32 low) {
  uint32 y = (high & 0x80000000u) | (low & 0x7fffffffu);
  return (y >> 1) ^ (low & 1u ? 0x9908b0dfu : 0u);
}

static void renew(uint32* s) {  // the next 624 words
  #pragma omp simd
  for (int64 k = 0; k < 227; k++) s[k] = s[k + 397] ^ mixed(s[k], s[k + 1]);
  #pragma omp simd safelen(64)
  for (int64 k = 227; k < 623; k++) s[k] = s[k - 227] ^ mixed(s[k], s[k + 1]);
  s[623] = s[396] ^ mixed(s[623], s[0]);
}

static void temper(const uint32* s, uint32* drawn, int64 count) {
  #pragma omp simd
  for (int64 k = 0; k < count; k++) {
    uint32 y = s[k];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    drawn[k] = y ^ (y >> 18);
  }
}

// 1 where 53 bits of two words are below `below`, else 0
extern "C" __attribute__((visibility("default")))
void bernoulli(char* state, float* __restrict out, int64 count, int64 below) {
  int32* left = (int32*)(state + 8);
  uint64 *next = (uint64*)(state + 16), *words = (uint64*)(state + 24);
  uint32 s[624], drawn[626];
  for (int64 k = 0; k < 624; k++) s[k] = (uint32)words[k];
  int64 at = (int64)*next, ready = *left - 1, kept = 0;  // words that are not drawn yet; a word without its second
  while (count > 0) {
    if (ready == 0) renew(s), at = 0, ready = 624;
    int64 wanted = 2 * count - kept, taken = ready < wanted ? ready : wanted, pairs = (kept + taken) / 2;
    temper(s + at, drawn + kept, taken);
    at += taken, ready -= taken;
    #pragma omp simd
    for (int64 k = 0; k < pairs; k++) {
      uint64 both;
      __builtin_memcpy(&both, drawn + 2 * k, 8);
      both = (both >> 32 | both << 32) & 0x1fffffffffffffull;
      out[k] = (int64)both < below ? 1.0f : 0.0f;
    }
    out += pairs, count -= pairs;
    drawn[0] = drawn[2 * pairs];
    kept = (kept + taken) & 1;
  }
  for (int64 k = 0; k < 624; k++) words[k] = s[k];
  *left = (int32)(ready + 1);
  *next = (uint64)at;
}"""


def fill_bernoulli(memory: torch.Tensor, p: float) -> bool:
    """Fill `memory` with what `memory.bernoulli_(p)` would, and leave the default generator as that does.

    False, and nothing is done, where this way is not known to be the same, or not faster: for all but large contiguous
    float32 tensors on the CPU.
    """
    if type(memory) is not torch.Tensor or memory.dtype is not torch.float32 or memory.device.type != "cpu":
        return False
    if memory.numel() < MANY or not memory.is_contiguous() or not 0 <= p <= 1:
        return False
    draw = _checked()
    return draw is not None and _draw(draw, torch.default_generator, memory, p)


def _draw(draw: Callable[..., None], generator: torch.Generator, memory: torch.Tensor, p: float) -> bool:
    before = generator.get_state()
    after = before.clone()
    state, out = [ctypes.c_void_p(t.data_ptr()) for t in (after, memory)]
    draw(state, out, ctypes.c_long(memory.numel()), ctypes.c_long(math.ceil(p * 2**53)))
    if not torch.equal(generator.get_state(), before):  # another thread drew numbers meanwhile: these are its
        return False
    generator.set_state(after)
    return True


@lru_cache(maxsize=1)
def _checked() -> Callable[..., None] | None:
    """The compiled function; None where it cannot be built, or does not do as ATen does."""
    try:
        library = build(_SOURCE, []).path
    except (BuildFailed, CannotBuild):
        return None
    draw: Callable[..., None] = ctypes.PyDLL(str(library)).bernoulli  # which keeps the interpreter lock
    return draw if _same_as_aten(draw) else None


def _same_as_aten(draw: Callable[..., None]) -> bool:
    """Whether numbers and states are ATen's, from a fresh state, from within it, and from an odd place in it."""
    mine, theirs = torch.Generator().manual_seed(42), torch.Generator().manual_seed(42)
    if theirs.get_state().numel() != STATE_SIZE:
        return False
    for count, p in ((1, 0.5), (1000, 0.3), (624, 0.9)):
        for generator in (mine, theirs):
            torch.empty(3, dtype=torch.float32).uniform_(generator=generator)  # one word for each
        ours = torch.empty(count)
        _draw(draw, mine, ours, p)
        if not torch.equal(ours, torch.empty(count).bernoulli_(p, generator=theirs)):
            return False
        if not torch.equal(mine.get_state(), theirs.get_state()):
            return False
    return True
