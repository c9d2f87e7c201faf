"""Picking the next token: greedy, or temperature, min-p, top-k and top-p with noise of (seed, output index) only.

Contract. A row's token is a function of its logits, its SamplingParams, its seed and how many tokens it has already
produced. Not of the slot, the step, the batch mates or the past of any generator: so a draw survives preemption
and batching, and two requests with one seed agree.

The draw. With E ~ Exp(1) per token, argmax(p / E) picks token i with probability p_i (the exponential trick);
taken as argmax(log p - log E), for which unnormalised logits do as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.request import Request, SamplingParams

CANDIDATES = 1024  # top-p looks at so many of the best tokens first; the whole vocabulary only if they fall short
NOISE_KEY = 0x5EED  # the other half of the generator's key, so that nobody's Philox(seed) is ours by accident
MIN_NOISE = 1e-30  # E = 0 would make any token win


@dataclass(frozen=True, slots=True)
class Draw:
    """What picking one row's token depends on, besides its logits."""

    params: SamplingParams
    seed: int
    output_index: int  # tokens the request has produced so far
    forbidden: frozenset[int] = frozenset()  # tokens that may not come here

    @classmethod
    def of(cls, request: Request, output_index: int) -> Draw:
        """For this place in the request's answer: what would end it may not come too early."""
        params = request.sampling_params
        too_early = output_index < params.min_tokens
        return cls(params, request.seed, output_index, request.stop_token_ids if too_early else frozenset())

    @property
    def greedy(self) -> bool:
        """top_k 1 is greedy by definition, and so takes the same path."""
        return self.params.greedy or self.params.top_k == 1


def host_noise(draws: Sequence[Draw], vocab_size: int) -> Tensor:
    """`exponential_noise` of each draw, [num_draws, vocab_size]."""
    return torch.from_numpy(np.stack([exponential_noise(draw.seed, draw.output_index, vocab_size) for draw in draws]))


def sample(
    logits: Tensor, draws: Sequence[Draw], noise_of: Callable[[Sequence[Draw], int], Tensor] = host_noise
) -> Tensor:
    """Token ids [num_rows] int64 for logits [num_rows, vocab_size] fp32, one Draw per row."""
    logits = without_forbidden(logits, draws)
    picked = logits.argmax(-1)
    drawn = [row for row, draw in enumerate(draws) if not draw.greedy]
    if not drawn:
        return picked
    rows = torch.tensor(drawn, device=logits.device)
    chosen = [draws[row] for row in drawn]
    scaled = _scaled(logits[rows], [draw.params.temperature for draw in chosen])
    _restrict(scaled, [draw.params for draw in chosen])
    noise = noise_of(chosen, logits.shape[1]).to(logits.device)
    picked[rows] = (scaled - noise.log_()).argmax(-1)
    return picked


def exponential_noise(seed: int, output_index: int, vocab_size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Exp(1) noise [vocab_size] for one token of one request.

    Philox is counter-based: the key is the seed, and the output index sits above the 64 bits that count the values
    drawn, so no two indices share a value.
    """
    generator = np.random.Generator(np.random.Philox(key=(seed % 2**64) << 64 | NOISE_KEY, counter=output_index << 64))
    return np.maximum(generator.standard_exponential(vocab_size, dtype=np.float32), np.float32(MIN_NOISE))


def choose_sample(device: torch.device) -> Callable[[Tensor, Sequence[Draw]], Tensor]:
    """`sample`, or on a GPU the kernel that makes its noise there."""
    if device.type != "cuda":
        return sample
    from engine.kernels import sampling  # triton: only where there is something to run on

    return sampling.sample


def to_host(token_ids: Tensor) -> list[int]:
    """Picked tokens as numbers: the one thing that a step waits for, with everything launched before it."""
    tokens: list[int] = token_ids.tolist()
    return tokens


def without_forbidden(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """`logits`, or a copy with -inf where a row's draw forbids it; nothing waits for the device."""
    places = [(row, token_id) for row, draw in enumerate(draws) for token_id in draw.forbidden]
    if not places:
        return logits
    rows, token_ids = torch.tensor(places).to(logits.device, non_blocking=True).unbind(1)
    return logits.index_put((rows, token_ids), logits.new_full((), -torch.inf))


def _scaled(logits: Tensor, temperatures: list[float]) -> Tensor:
    """(logits - max) / temperature: the maximum stays 0 however small the temperature."""
    temperature = torch.tensor(temperatures, dtype=logits.dtype, device=logits.device).unsqueeze(1)
    return (logits - logits.amax(-1, keepdim=True)) / temperature.clamp(min=torch.finfo(logits.dtype).tiny)


def _restrict(scaled: Tensor, params: Sequence[SamplingParams]) -> None:
    """Set to -inf, in place, what min_p, then top_k and then top_p rule out of each row."""
    vocab_size = scaled.shape[1]
    for row, p in enumerate(params):
        if p.min_p > 0.0:  # the likeliest token is at 0
            scaled[row].masked_fill_(scaled[row] < math.log(p.min_p), -torch.inf)
    limited = [row for row, p in enumerate(params) if 0 < p.top_k < vocab_size or p.top_p < 1.0]
    if not limited:
        return
    top_k = torch.tensor([min(params[row].top_k or vocab_size, vocab_size) for row in limited]).unsqueeze(1)
    top_p = torch.tensor([params[row].top_p for row in limited]).unsqueeze(1)
    rows = torch.tensor(limited, device=scaled.device)
    scaled[rows] = _kept(scaled[rows], top_k.to(scaled.device), top_p.to(scaled.device))


def _kept(scaled: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """`scaled` [rows, vocab_size] with -inf outside the top_k [rows, 1] best and the top_p [rows, 1] nucleus.

    The nucleus is the fewest best tokens whose probabilities, renormalised after top_k, reach top_p; the token that
    crosses the line belongs to it. Sorting 49,000 words costs more than the head that scored them, so the
    best CANDIDATES are tried first.
    """
    vocab_size = scaled.shape[1]
    width = min(CANDIDATES, vocab_size)
    while True:
        values, ids = scaled.topk(width)  # sorted, best first
        values = values.masked_fill(torch.arange(width, device=scaled.device) >= top_k, -torch.inf)
        total = torch.where(top_k <= width, values.logsumexp(-1, keepdim=True), scaled.logsumexp(-1, keepdim=True))
        probabilities = (values - total).exp()
        reached = probabilities.cumsum(-1)
        whole = (top_k <= width) | ((top_p < 1.0) & (reached[:, -1:] >= top_p))
        if width == vocab_size or bool(whole.all()):
            break
        width = vocab_size
    outside = (reached - probabilities >= top_p) & (top_p < 1.0)
    outside[:, 0] = False  # rounding must never leave a row without a token
    return torch.full_like(scaled, -torch.inf).scatter(1, ids, values.masked_fill(outside, -torch.inf))
