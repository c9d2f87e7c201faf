"""The palette, seen by others: what hue alone tells apart stays apart for colour-blind eyes and in greyscale.

Dichromats' eyes are simulated as Machado, Oliveira and Fernandes do (2009, "A Physiologically-based Model for
Simulation of Color Vision Deficiency", IEEE TVCG 15(6), severity 1.0), in linear RGB. Distances are CIE76 in CIELAB
(D65); about 2.3 is just noticeable. Greyscale keeps luminance alone.
"""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest

TOKENS = (Path(__file__).resolve().parent.parent / "static/css/tokens.css").read_text(encoding="utf-8")

# Pairs that both appear as plain areas: prompt and answer in a page's cell, in the strip, in the budget; and all but
# the fault in cells too small for patterns. Everything else is told apart by shape or pattern too (see `drawn`).
PLAIN = [("prefill", "decode")]
TINY = [("prefill", "cached"), ("decode", "cached"), ("prefill", "idle"), ("decode", "idle"), ("cached", "idle")]
PHASES = ("prefill", "decode", "cached", "fault", "idle")
BACKGROUND = {"dark": "#0F1419", "light": "#FFFFFF"}

EYES = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
TO_XYZ = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
WHITE = (0.95047, 1.0, 1.08883)

Triple = tuple[float, ...]


def palette(theme: str) -> dict[str, str]:
    """The custom properties of a theme that are colours."""
    block = TOKENS.split(':root[data-theme="light"]')[1] if theme == "light" else TOKENS
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9A-Fa-f]{6});", block.split("}")[0]))


def linear(colour: str) -> Triple:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)


def times(matrix: tuple[Triple, ...], vector: Triple) -> Triple:
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)


def lab(rgb: Triple) -> Triple:
    def f(t: float) -> float:
        return math.cbrt(t) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116

    x, y, z = (f(value / white) for value, white in zip(times(TO_XYZ, rgb), WHITE, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(colour: str, eyes: str) -> Triple:
    """In CIELAB, as these eyes have it."""
    if eyes == "greyscale":
        return lab((times(TO_XYZ, linear(colour))[1],) * 3)
    return lab(tuple(min(1.0, max(0.0, c)) for c in times(EYES[eyes], linear(colour))))


def distance(one: str, other: str, eyes: str) -> float:
    return math.dist(seen(one, eyes), seen(other, eyes))


def contrast(one: str, other: str) -> float:
    dark, light = sorted(times(TO_XYZ, linear(colour))[1] for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("eyes", [*EYES, "greyscale"])
def test_prompt_and_answer_are_told_apart_where_both_are_plain_areas(theme: str, eyes: str) -> None:
    colours = palette(theme)
    for one, other in PLAIN:
        assert distance(colours[one], colours[other], eyes) >= 12, (one, other)


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("eyes", EYES)
def test_states_of_cells_too_small_for_a_pattern_are_told_apart_by_hue(theme: str, eyes: str) -> None:
    colours = palette(theme)
    for one, other in TINY:
        assert distance(colours[one], colours[other], eyes) >= 15, (one, other)


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("eyes", EYES)
def test_phases_differ_in_hue_for_everybody_even_where_shape_says_it_too(theme: str, eyes: str) -> None:
    colours = palette(theme)
    for one, other in itertools.combinations(PHASES, 2):
        assert distance(colours[one], colours[other], eyes) >= 10, (one, other)


def test_each_phase_has_a_shape_or_pattern_of_its_own() -> None:
    """In greyscale these tell apart what luminance does not; the legends draw the same marks as the pictures."""
    marks = (Path(__file__).resolve().parent.parent / "static/css/marks.css").read_text(encoding="utf-8")
    drawn = {name: re.sub(r"--\w+", "hue", body) for name, body in re.findall(r"\.swatch\.(\w+) \{([^}]*)\}", marks)}
    shapes = [drawn[name] for name in ("prefill", "decode", "cached", "fault", "notch", "idle")]
    assert len(set(shapes)) == len(shapes)


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_every_hue_stands_out_from_the_background(theme: str) -> None:
    colours = palette(theme)
    for name in (*PHASES, *(f"owner-{i}" for i in range(1, 9))):
        assert contrast(colours[name], BACKGROUND[theme]) >= 3, name


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("eyes", EYES)
def test_the_eight_hues_of_owners_are_told_apart(theme: str, eyes: str) -> None:
    owners = [colour for name, colour in palette(theme).items() if name.startswith("owner-")]
    assert len(owners) == 8
    for one, other in itertools.combinations(owners, 2):
        assert distance(one, other, eyes) >= 14, (one, other)


def test_both_ways_to_the_light_theme_have_one_palette() -> None:
    by_system = TOKENS.split("prefers-color-scheme: light")[1].split("}")[0]
    assert dict(re.findall(r"--([a-z0-9-]+): (#[0-9A-Fa-f]{6});", by_system)) == palette("light")
