"""The compiled operations equal their plain torch oracles, and the oracles their formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.compiled import exp_of_negative
from engine.models import cpu_ops, ops
from engine.models.cpu_ops import FEW_ROWS

ROWS = [1, 8, FEW_ROWS, FEW_ROWS + 1]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("size", [1, 63, 576])
def test_rms_norm(rows: int, size: int):
    x, weight = 3 * torch.randn(rows, size), torch.randn(size)
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    torch.testing.assert_close(ops.rms_norm(x, weight, 1e-5), expected)
    torch.testing.assert_close(cpu_ops.rms_norm(x, weight, 1e-5), expected)


@pytest.mark.parametrize("rows", ROWS)
def test_silu_and_mul(rows: int):
    gate_up = torch.cat([torch.linspace(-100, 100, rows * 65).view(rows, 65), torch.randn(rows, 65)], dim=1)
    gate, up = gate_up.double().chunk(2, dim=-1)
    expected = (gate * torch.sigmoid(gate) * up).float()
    torch.testing.assert_close(ops.silu_and_mul(gate_up), expected)
    torch.testing.assert_close(cpu_ops.silu_and_mul(gate_up), expected)


@pytest.mark.parametrize("rotate", [ops.rotate, cpu_ops.rotate], ids=["torch", "numba"])
def test_rotate_turns_pairs_by_their_angle(rotate: ops.RotateOp):
    angles = torch.outer(torch.arange(50.0), torch.tensor([1.0, 0.1, 0.01]))
    heads = torch.randn(4, 5, 6)
    positions = torch.tensor([0, 3, 17, 49])
    pairs = torch.complex(heads[:, :4, :3], heads[:, :4, 3:])
    turned = pairs * torch.polar(torch.ones(4, 1, 3), angles[positions].unsqueeze(1))
    expected = torch.cat([torch.cat([turned.real, turned.imag], dim=-1), heads[:, 4:]], dim=1)
    rotate(heads, 4, angles.cos(), angles.sin(), positions)
    torch.testing.assert_close(heads, expected)


def test_bfloat16_is_rotated_in_fp32():
    heads = torch.randn(2, 3, 8)
    angles = torch.rand(10, 4)
    rough = heads.bfloat16()
    for x in (heads, rough):
        ops.rotate(x, 2, angles.cos(), angles.sin(), torch.tensor([3, 9]))
    torch.testing.assert_close(rough.float(), heads, atol=0.05, rtol=0.02)


def test_the_polynomial_exp_is_good_to_fp32():
    x = np.concatenate([np.linspace(-87, 0, 20_001), -np.geomspace(1e-7, 80, 2_000), [0.0]]).astype(np.float32)
    found = np.array([exp_of_negative(value) for value in x])
    np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=3e-7)


def test_exp_of_something_hopeless_is_next_to_nothing():
    assert 0.0 <= exp_of_negative(np.float32(-1e30)) < 1e-37
