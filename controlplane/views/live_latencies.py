"""What workers say that batches take now, beside what profiles say."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controlplane.views.catalog.variant_schemas import OnDevice, PointSchema, ProfileSchema
from controlplane.views.worker_schemas import WorkerSchema
from variants.types import ReplicaState


class LiveTimes(NamedTuple):
    """Of batches of one size, in ms."""

    mean_ms: float
    p95_ms: float
    busy_ms: float | None = None
    """The mean where one batch follows on another; None from workers that do not tell it apart."""
    busy_error: float | None = None
    """Standard deviation of its logarithm."""


Key = tuple[str, str, str]
"""Task, variant, device kind."""
Live = Mapping[Key, Mapping[int, LiveTimes]]
"""By batch size. Of what is ready and has run no batch: nothing."""


class _Voice(NamedTuple):
    weight: int
    mean_ms: float
    p95_ms: float
    busy: tuple[float, float] | None


def live_latencies(workers: Iterable[WorkerSchema]) -> Live:
    """What all workers of a kind say of a variant; those with more batches count more."""
    said: dict[Key, dict[int, list[_Voice]]] = defaultdict(lambda: defaultdict(list))
    for worker in workers:
        for replica in worker.replicas:
            key = (replica.task, replica.variant, worker.device_kind)
            if replica.state is ReplicaState.READY:
                said[key]
            busy = {rows: (mean_ms, error) for rows, mean_ms, error in replica.busy}
            for rows, mean_ms, p95_ms in replica.latency:
                weight = max(replica.batches, 1)
                said[key][rows].append(_Voice(weight, mean_ms, p95_ms, busy.get(rows)))
    return {
        key: {rows: _mean(voices) for rows, voices in sizes.items()} for key, sizes in said.items()
    }


def _mean(voices: list[_Voice]) -> LiveTimes:
    mean_ms = _weighed([(one.weight, one.mean_ms) for one in voices])
    p95_ms = _weighed([(one.weight, one.p95_ms) for one in voices])
    busy = [(one.weight, *one.busy) for one in voices if one.busy is not None]
    if not busy:
        return LiveTimes(mean_ms, p95_ms)
    return LiveTimes(
        mean_ms,
        p95_ms,
        _weighed([(weight, ms) for weight, ms, _ in busy]),
        _weighed([(weight, error) for weight, _, error in busy]),
    )


def _weighed(numbers: list[tuple[int, float]]) -> float:
    return sum(weight * one for weight, one in numbers) / sum(weight for weight, _ in numbers)


def tell_device(device: OnDevice, task: str, variant: str, live: Live) -> None:
    """Write what one row takes now beside what the profile says of it."""
    known = live.get((task, variant, device.device_kind))
    device.unconfirmed = known is not None and not known
    if known and 1 in known:
        device.live_ms, device.live_p95_ms = known[1].mean_ms, known[1].p95_ms
        if device.price_usd_per_1k is not None and device.p50_ms > 0.0:
            price = device.price_usd_per_1k * known[1].mean_ms / device.p50_ms
            device.live_price_usd_per_1k = price


def tell_profile(profile: ProfileSchema, live: Live) -> None:
    """The same for each batch size that has run."""
    found = live.get((profile.task, profile.variant, profile.device_kind))
    profile.unconfirmed = found is not None and not found
    for point in profile.points:
        _tell_point(point, found or {})


def _tell_point(point: PointSchema, found: Mapping[int, LiveTimes]) -> None:
    if known := found.get(point.batch_size):
        point.live_ms, point.live_p95_ms = known.mean_ms, known.p95_ms
        point.busy_ms, point.busy_error = known.busy_ms, known.busy_error
