"""What a device can sustain: the batch to run and the rate that follows from it.

A query that just missed a batch waits for the longest batch of its device and then takes its own.
So on a device whose longest batch takes m, the batches of a class with latency SLO L take at most
``min(m, L - overhead - m)``. Alone on a device a class waits for its own batch, and the limit is
half of ``L - overhead``, as in Nexus (Shen et al., SOSP'19, section 4.1), where a session alone is
given the largest batch whose latency is under half of its SLO. Sharing follows the duty cycles of
its squishy bin packing (section 6.1): when sessions share a device, batches shrink together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from planner.curve import Batch, Curve
from planner.problem import LOAD, OVERHEAD_MS

SLACK = 1e-9
"""Relative tolerance of every comparison with a limit: rounding, and nothing else."""


def limit_ms(
    slo_ms: float, longest_ms: float | None = None, *, overhead_ms: float = OVERHEAD_MS
) -> float:
    """What a batch may take, on a device whose longest batch takes ``longest_ms``.

    Without ``longest_ms`` the class is alone: the longest batch is its own.
    """
    left_ms = slo_ms - overhead_ms
    tolerance = SLACK * slo_ms
    if longest_ms is None:
        return (left_ms + tolerance) / 2
    return min(longest_ms, left_ms - longest_ms + tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained:
    """A batch size, and the rate that one device sustains with it."""

    batch_size: int
    latency_ms: float
    """Of the whole batch, interference included."""
    qps: float


def sustained(
    curve: Curve,
    slo_ms: float,
    longest_ms: float | None = None,
    *,
    load: float = LOAD,
    overhead_ms: float = OVERHEAD_MS,
    interference: float = 0.0,
) -> Sustained | None:
    """The batch with the highest throughput whose latency and wait are within the SLO.

    The rate uses ``load`` of the device's time. ``longest_ms`` is the longest batch of a shared
    device, interference included; None when the variant is alone, and then there is none.
    None when not even one row is in time.
    """
    stretch = 1.0 if longest_ms is None else 1.0 + interference
    batch = curve.cheapest(limit_ms(slo_ms, longest_ms, overhead_ms=overhead_ms) / stretch)
    if batch is None:
        return None
    return Sustained(
        batch_size=batch.size,
        latency_ms=batch.latency_ms * stretch,
        qps=load * 1000 / (batch.unit_ms * stretch) if batch.unit_ms > 0 else float("inf"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A class of demand and the variant that is to serve it on a shared device."""

    curve: Curve
    slo_ms: float
    qps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """How tenants share one device in time."""

    longest_ms: float
    """The longest batch: the bound on anyone's wait."""
    batches: tuple[Batch, ...]
    """Per tenant, interference included."""
    share: float
    """Of the device's time, all tenants together. More than the planned load: too much."""


def duty(
    tenants: Sequence[Tenant],
    *,
    overhead_ms: float = OVERHEAD_MS,
    interference: float = 0.0,
) -> Duty | None:
    """The batches that serve all tenants in the least time; None when some SLO cannot hold.

    ``interference`` is the fraction by which sharing prolongs every batch; it applies from two
    tenants on. Exact: the longest batch is some tenant's, and once it is fixed everyone takes the
    cheapest batch within their limit.
    """
    stretch = 1.0 + interference if len(tenants) > 1 else 1.0
    tightest = min((t.slo_ms for t in tenants), default=0.0)
    longest = {
        ms * stretch
        for tenant in tenants
        for ms in latencies(tenant.curve, (tightest - overhead_ms) / stretch)
    }
    best: Duty | None = None
    for longest_ms in sorted(longest):
        found = _at(tenants, longest_ms, overhead_ms, stretch)
        if found is not None and (best is None or found.share < best.share):
            best = found
    return best


def _at(
    tenants: Sequence[Tenant], longest_ms: float, overhead_ms: float, stretch: float
) -> Duty | None:
    batches = []
    share = 0.0
    for tenant in tenants:
        limit = limit_ms(tenant.slo_ms, longest_ms, overhead_ms=overhead_ms)
        # One ulp back and forth between stretched and plain must not lose the batch itself.
        batch = tenant.curve.cheapest(limit / stretch * (1 + 1e-12))
        if batch is None:
            return None
        taken = Batch(batch.size, batch.latency_ms * stretch, batch.unit_ms * stretch)
        batches.append(taken)
        share += tenant.qps * taken.unit_ms / 1000
    return Duty(
        longest_ms=max(batch.latency_ms for batch in batches),
        batches=tuple(batches),
        share=share,
    )


def frontier(curve: Curve, within_ms: float) -> list[Batch]:
    """The batches worth running within a limit: each costs less per row than all smaller ones."""
    made: list[Batch] = []
    for size in _turning(curve, curve.largest(within_ms)):
        ms = curve.latency_ms(size)
        if not made or ms / size < made[-1].unit_ms * (1 - 1e-12):
            made.append(Batch(size, ms, ms / size))
    # Of equal latencies the larger batch costs less: the smaller one is never run.
    shorter = [one for one, larger in pairwise(made) if one.latency_ms < larger.latency_ms]
    return [*shorter, *made[-1:]]


def latencies(curve: Curve, within_ms: float) -> list[float]:
    """The latencies of the batches worth running within a limit, ascending."""
    return [batch.latency_ms for batch in frontier(curve, within_ms)]


def _turning(curve: Curve, largest: int) -> Iterable[int]:
    """Sizes at which latency per row can reach a new low, ascending.

    Along a linear piece it is monotone: where it falls, every size is a new low; where it rises,
    none is.
    """
    if largest == 0:
        return
    first = min(curve.points[0][0], largest)
    yield first
    for (low, low_ms), (high, high_ms) in pairwise(curve.points):
        if low >= largest:
            return
        if high_ms * low < low_ms * high:
            yield from range(low + 1, min(high, largest) + 1)
