"""Load pace: how long loads take, in parts of what profiles say.

A profile that was measured beside other work may say ten times too much. What loads took on the
workers of a kind corrects it: gateways and plans take it into the catalog that they decide by
(``controlplane.live_latency``), and workers into what they decide of their own memory.
"""

from math import log2

FEW_LOADS_S = 5.0
"""So much loading counts as it was profiled, so that neither the first loads decide for all
variants of a kind, nor one whose own profile is far off."""
FURTHEST = 4
"""The exponent that a pace has at most, up or down."""


def load_pace(took_s: float, profiled_s: float) -> float:
    """What loads took over what profiles say: a power of two, which seldom changes."""
    ratio = (took_s + FEW_LOADS_S) / (profiled_s + FEW_LOADS_S)
    return 2.0 ** max(-FURTHEST, min(round(log2(ratio)), FURTHEST))
