"""Picking the next token on the device: greedy, or temperature, min-p, top-k and top-p with counter-based noise.

Contract. As `engine.sampler`: never what is forbidden; of the rest min-p, then top-k, then the nucleus of what these
left, the token that crosses the line included. A row's token depends on its logits, parameters, seed and output index
and on nothing else. Greedy rows agree with it exactly. Drawn ones follow the same distribution with other noise: Philox
keyed by the seed, counted by (token, output index), computed where it is needed instead of copied; under this noise
torch's sampler picks the same. Of equal tokens the first ones are kept.

Nothing is sorted. The least logit that is kept is found by bisection over the bits of floats, which are ordered like
integers once the negative ones are flipped: at most 32 passes over the row for each limit, counting tokens (top-k) or
summing probabilities (top-p); for min-p, which compares with the best token only, none. Rows without limits need none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.sampler import NOISE_KEY, Draw, without_forbidden

MAX_BLOCK = 8192  # logits of a row that are looked at together; what is drawn does not depend on it
LEAST_TEMPERATURE = torch.finfo(torch.float32).tiny

_NOISE_KEY = tl.constexpr(NOISE_KEY)
_LOWEST_KEY = tl.constexpr(-(2**31))  # below that of any logit
_RULED_OUT = tl.constexpr(float("-inf"))


def sample(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Token ids [num_rows] int64 for logits [num_rows, vocab_size] fp32, one Draw per row."""
    logits = without_forbidden(logits, draws)
    if all(draw.greedy for draw in draws):
        return logits.argmax(-1)
    vocab_size = logits.shape[1]
    block = min(MAX_BLOCK, max(triton.next_power_of_2(vocab_size), 16))
    picked = torch.empty(len(draws), dtype=torch.int64, device=logits.device)
    numbers = [
        (
            0.0 if draw.greedy else max(draw.params.temperature, LEAST_TEMPERATURE),
            draw.params.top_p,
            math.log(draw.params.min_p) if draw.params.min_p else -math.inf,
        )
        for draw in draws
    ]
    integers = [
        (signed(draw.seed), draw.output_index, min(draw.params.top_k or vocab_size, vocab_size)) for draw in draws
    ]
    sample_kernel[(len(draws),)](
        logits,
        torch.tensor(numbers, dtype=torch.float32).to(logits.device, non_blocking=True),
        torch.tensor(integers, dtype=torch.int64).to(logits.device, non_blocking=True),
        picked,
        vocab_size,
        logits.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 16),
    )
    return picked


def signed(seed: int) -> int:
    """The same 64 bits as an int64."""
    return (seed + 2**63) % 2**64 - 2**63


@triton.jit
def sample_kernel(
    logits,  # [num_rows, vocab_size] fp32
    numbers,  # [num_rows, 3] fp32: temperature (0 is greedy), top_p, log min_p (-inf is no limit)
    integers,  # [num_rows, 3] int64: seed, output index, top_k (vocab_size is no limit)
    picked,  # [num_rows] int64
    vocab_size,
    row_stride,
    BLOCK: tl.constexpr,
):
    """One program per row."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    temperature, top_p = tl.load(numbers + row * 3), tl.load(numbers + row * 3 + 1)
    log_min_p = tl.load(numbers + row * 3 + 2)
    best, highest = _argmax(logits, vocab_size, BLOCK)
    if temperature > 0.0:
        inverse = tl.div_rn(1.0, temperature)
        top_k = tl.load(integers + row * 3 + 2).to(tl.int32)
        least, ties = tl.full([], _LOWEST_KEY, tl.int64), tl.full([], 0, tl.int32)
        if top_k < vocab_size:
            least, ties = _top_k(logits, vocab_size, top_k, highest, BLOCK)
        if log_min_p > _RULED_OUT:
            unlikely = _min_p(log_min_p, highest, temperature)
            ties = tl.where(unlikely >= least, 0, ties)
            least = tl.maximum(unlikely, least)
        if top_p < 1.0:
            least, ties = _top_p(logits, vocab_size, top_p, least, ties, highest, inverse, BLOCK)
        seed, output_index = tl.load(integers + row * 3), tl.load(integers + row * 3 + 1).to(tl.int32)
        best = _draw(logits, vocab_size, least, ties, best, highest, inverse, seed, output_index, BLOCK)
    tl.store(picked + row, best.to(tl.int64))


@triton.jit
def _argmax(logits, vocab_size, BLOCK: tl.constexpr):
    """(the first of the best tokens, its logit)."""
    best, highest = tl.full([], 0, tl.int32), tl.full([], float("-inf"), tl.float32)
    for start in range(0, vocab_size, BLOCK):
        token = start + tl.arange(0, BLOCK)
        top, at = tl.max(tl.load(logits + token, mask=token < vocab_size, other=float("-inf")), 0, return_indices=True)
        best = tl.where(top > highest, start + at, best)
        highest = tl.maximum(top, highest)
    return best, highest


@triton.jit
def _key(x):
    """An int32 for each float32, in the same order."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _logit(key):
    """The float32 of a `_key`."""
    key = key.to(tl.int32)
    return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def _count(logits, vocab_size, least, BLOCK: tl.constexpr):
    """How many tokens have a key of at least `least`."""
    total = tl.full([], 0, tl.int32)
    for start in range(0, vocab_size, BLOCK):
        token = start + tl.arange(0, BLOCK)
        inside = token < vocab_size
        key = _key(tl.load(logits + token, mask=inside, other=0.0))
        total += tl.sum((inside & (key >= least)).to(tl.int32), 0)
    return total


@triton.jit
def _mass(logits, vocab_size, least, highest, inverse, BLOCK: tl.constexpr):
    """Σ exp((logit - highest) / temperature) over the tokens with a key of at least `least`."""
    total = tl.full([], 0.0, tl.float32)
    for start in range(0, vocab_size, BLOCK):
        token = start + tl.arange(0, BLOCK)
        x = tl.load(logits + token, mask=token < vocab_size, other=float("-inf"))
        total += tl.sum(tl.where(_key(x) >= least, tl.exp((x - highest) * inverse), 0.0), 0)
    return total


@triton.jit
def _top_k(logits, vocab_size, top_k, highest, BLOCK: tl.constexpr):
    """(the key above which tokens are among the k best, how many tokens of that very key are too)."""
    low, high = tl.full([], _LOWEST_KEY, tl.int64), _key(highest).to(tl.int64)
    while low < high:  # low is always low enough
        middle = (low + high + 1) >> 1
        count = _count(logits, vocab_size, middle, BLOCK)
        if count == top_k:  # between the k-th and the next: no tie to look for
            low, high = middle - 1, middle - 1
        elif count > top_k:
            low = middle
        else:
            high = middle - 1
    return low, top_k - _count(logits, vocab_size, low + 1, BLOCK)


@triton.jit
def _min_p(log_min_p, highest, temperature):
    """The highest key that min_p rules out: all above are as likely as that share of the best token, at least."""
    low, high = _key(tl.full([], _RULED_OUT, tl.float32)).to(tl.int64), _key(highest).to(tl.int64)
    while low + 1 < high:
        middle = (low + high) >> 1
        if tl.div_rn(_logit(middle) - highest, temperature) >= log_min_p:  # as torch divides: same edge, to the bit
            high = middle
        else:
            low = middle
    return low


@triton.jit
def _top_p(logits, vocab_size, top_p, least, ties, highest, inverse, BLOCK: tl.constexpr):
    """`least` and `ties` of the nucleus within what those of `_top_k` leave."""
    each = tl.exp((_logit(least) - highest) * inverse)  # if `ties` are any
    total = _mass(logits, vocab_size, least + 1, highest, inverse, BLOCK) + tl.where(ties > 0, each * ties, 0.0)
    wanted = top_p * total
    low, high = least, _key(highest).to(tl.int64)
    while low < high:
        middle = (low + high + 1) >> 1
        if _mass(logits, vocab_size, middle, highest, inverse, BLOCK) >= wanted:
            low = middle
        else:
            high = middle - 1
    most = tl.where(low == least, ties, vocab_size)
    missing = wanted - _mass(logits, vocab_size, low + 1, highest, inverse, BLOCK)
    needed = tl.ceil(missing / tl.exp((_logit(low) - highest) * inverse))
    needed = tl.minimum(tl.maximum(needed, 1.0), vocab_size).to(tl.int32)
    return low, tl.minimum(needed, most)


@triton.jit
def _draw(logits, vocab_size, least, ties, best, highest, inverse, seed, output_index, BLOCK: tl.constexpr):
    """argmax(log p - log E) over the tokens above `least` and the first `ties` of those at it; else `best`."""
    found = tl.full([], float("-inf"), tl.float32)
    met = tl.full([], 0, tl.int32)  # tokens at `least` so far
    for start in range(0, vocab_size, BLOCK):
        token = start + tl.arange(0, BLOCK)
        inside = token < vocab_size
        x = tl.load(logits + token, mask=inside, other=float("-inf"))
        key = _key(x)
        tied = (inside & (key == least)).to(tl.int32)
        kept = inside & ((key > least) | ((tied > 0) & (met + tl.cumsum(tied, 0) <= ties)))
        met += tl.sum(tied, 0)
        score = (x - highest) * inverse - tl.log(exponential_noise(seed, output_index, start, BLOCK))
        top, at = tl.max(tl.where(kept, score, float("-inf")), 0, return_indices=True)
        best = tl.where(top > found, start + at, best)
        found = tl.maximum(top, found)
    return best


@triton.jit
def exponential_noise(seed, output_index, start, BLOCK: tl.constexpr):
    """Exp(1) noise [BLOCK] of the tokens from `start` on, a multiple of 4; finite and above 0.

    A call of Philox gives four numbers, for four tokens in a row. With a uniform u, E = -log(1 - u): small E, which
    decide, keep all the digits of u.
    """
    quad = start // 4 + tl.arange(0, BLOCK // 4)
    zero = quad * 0
    a, b, c, d = tl.philox(seed, quad, zero + output_index, zero + _NOISE_KEY, zero)
    random = tl.interleave(tl.interleave(a, c), tl.interleave(b, d))
    u = tl.minimum(random.to(tl.float32) * 2.0**-32 + 2.0**-33, 1.0 - 2.0**-24)
    return tl.where(u < 1 / 64, u * (1.0 + u * (0.5 + u / 3.0)), -tl.log(1.0 - u))
