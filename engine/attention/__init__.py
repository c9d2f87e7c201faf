"""Paged attention: one call signature (`base.Attention`), a plain torch oracle and a numba backend for CPUs."""

from __future__ import annotations

import torch

from engine.attention.base import Attention
from engine.attention.reference import reference_attention
from engine.threads import share_one_pool


def choose_attention(device: torch.device) -> Attention:
    """The quickest backend for `device`."""
    if device.type == "cpu":
        from engine.attention.paged import paged_attention  # numba: half a second to import

        share_one_pool()
        return paged_attention
    return reference_attention
