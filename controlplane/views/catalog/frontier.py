"""Which variants another one beats on a device kind, whatever is asked."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from planner.latency_table import latency_table
from planner.selection.snapshot import latency_points
from variants.types import DeviceKindName, Profile, Variant, VariantName
from variants.working_memory import held_mib

NOISE = 1.03
"""Two measurements of the same latency may differ by this factor."""


def dominated(
    variants: Iterable[Variant], profiles: Iterable[Profile]
) -> set[tuple[DeviceKindName, VariantName]]:
    """Variants that another one beats on a device kind, whatever is asked.

    One dominates another where it is at least as accurate, as quick at every batch size, as cheap
    and as small, and better in one of these. Latencies, prices and memory are measured, so they
    count as equal within ``NOISE``; what is equal in all does not dominate. For each dominated
    variant there is one left that dominates it.
    """
    accuracy = {variant.name: variant.accuracy for variant in variants}
    by_kind: dict[DeviceKindName, list[_Measured]] = defaultdict(list)
    for profile in profiles:
        if profile.variant in accuracy:
            by_kind[profile.device_kind].append(_measured(profile, accuracy[profile.variant]))
    beaten = set()
    for kind, found in by_kind.items():
        left: list[_Measured] = []
        for one in sorted(found):
            if any(_dominates(other, one) for other in left):
                beaten.add((kind, one.variant))
                continue
            for other in left:
                if _dominates(one, other):
                    beaten.add((kind, other.variant))
            left = [other for other in left if (kind, other.variant) not in beaten] + [one]
    return beaten


class _Measured(NamedTuple):
    """What variants are compared by on a device kind; less is better in each number."""

    median_ms: float
    inaccuracy: float
    variant: VariantName
    latency_ms: tuple[float, ...]
    """Of batches of 1, 2, 4, ... rows, as planning counts them."""
    memory_mib: float
    held_mib: float
    """Without what batches take and variants share: what counts lies between the two."""


def _measured(profile: Profile, accuracy: float) -> _Measured:
    return _Measured(
        median_ms=profile.points[0].p50_ms,
        inaccuracy=-accuracy,
        variant=profile.variant,
        latency_ms=latency_table(latency_points(profile)).doubling,
        memory_mib=profile.memory_mib,
        held_mib=held_mib(profile),
    )


def _dominates(one: _Measured, other: _Measured) -> bool:
    if one.inaccuracy > other.inaccuracy or len(one.latency_ms) < len(other.latency_ms):
        return False
    ours = (one.median_ms, one.memory_mib, one.held_mib, *one.latency_ms)
    theirs = (other.median_ms, other.memory_mib, other.held_mib, *other.latency_ms)
    pairs = list(zip(ours, theirs, strict=False))
    if any(mine > yours * NOISE for mine, yours in pairs):
        return False
    larger = len(one.latency_ms) > len(other.latency_ms)
    better = any(mine * NOISE < yours for mine, yours in pairs)
    return better or larger or one.inaccuracy < other.inaccuracy
