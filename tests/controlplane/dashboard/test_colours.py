"""The colours of lines can be told apart, also by readers who see fewer of them."""

import re
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from controlplane.plots.drawing import LINE_TONES

Colour = NDArray[np.float64]

SIGHT = {
    "all colours": np.eye(3),
    "no red": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue": [
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}  # fmt: skip
"""What becomes of linear RGB without a kind of cones: Machado, Oliveira and Fernandes 2009, table 1
at severity 1.0."""
APART = 20.0
"""Distance in CIELAB, of which 2.3 can just be noticed where colours lie side by side."""
CONTRAST = 2.4
"""Of the lightest line, to its background."""
READABLE = 4.5
"""Contrast of text by WCAG 2.2, level AA."""
TEXTS = {
    "ink": ("bg", "card", "faint", "line", "accent-soft", "good-soft", "warn-soft", "bad-soft"),
    "soft": ("bg", "card", "faint", "accent-soft"),
    "accent": ("bg", "card", "accent-soft", "warn-soft", "bad-soft"),
    "good": ("card", "faint"),
    "warn": ("card", "faint", "accent-soft"),
    "bad": ("card", "faint"),
    "card": ("accent",),
}
"""Colours of text, and what each stands on."""


def linear(colour: str) -> Colour:
    """``#rrggbb`` as linear RGB."""
    part = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def lab(rgb: Colour) -> Colour:
    """Linear RGB as CIELAB, for daylight (D65)."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    ratio = np.array(to_xyz) @ rgb / [0.9505, 1.0, 1.089]
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def theme(name: str) -> dict[str, str]:
    sheet = (files("controlplane.dashboard.pages") / "style.css").read_text()
    light, _, dark = sheet.partition("prefers-color-scheme: dark")
    rule = (light if name == "light" else dark).partition("}")[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", rule))


@pytest.mark.parametrize("name", ["light", "dark"])
@pytest.mark.parametrize("text", TEXTS)
def test_text_is_read_on_what_it_stands_on(name: str, text: str) -> None:
    known = theme(name)
    for behind in TEXTS[text]:
        dim, bright = sorted((luminance(known[text]), luminance(known[behind])))
        assert (bright + 0.05) / (dim + 0.05) >= READABLE, behind


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("name", ["light", "dark"])
def test_lines_of_different_colours_look_different(name: str, sight: str) -> None:
    colours = [theme(name)[f"c{index}"] for index in range(LINE_TONES)]
    seen = {one: lab(np.clip(np.array(SIGHT[sight]) @ linear(one), 0, 1)) for one in colours}

    distances = {
        (one, other): float(np.linalg.norm(seen[one] - seen[other]))
        for one, other in combinations(colours, 2)
    }
    assert len(distances) == LINE_TONES * (LINE_TONES - 1) // 2
    assert {pair: far for pair, far in distances.items() if far < APART} == {}


@pytest.mark.parametrize("name", ["light", "dark"])
def test_lines_stand_out_from_their_background(name: str) -> None:
    known = theme(name)
    behind = luminance(known["card"])
    for index in range(LINE_TONES):
        dim, bright = sorted((behind, luminance(known[f"c{index}"])))
        assert (bright + 0.05) / (dim + 0.05) >= CONTRAST, f"c{index}"
