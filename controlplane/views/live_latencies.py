"""What workers say that batches take now, beside what profiles say."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from controlplane.views.schemas import OnDevice, PointSchema, ProfileSchema, WorkerSchema

Key = tuple[str, str, str]
"""Task, variant, device kind."""
Live = Mapping[Key, Mapping[int, tuple[float, float]]]
"""By batch size: mean and 95th percentile in ms."""


def live_latencies(workers: Iterable[WorkerSchema]) -> Live:
    """What all workers of a kind say of a variant; those with more batches count more."""
    said: dict[Key, dict[int, list[tuple[float, float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for worker in workers:
        for replica in worker.replicas:
            key = (replica.task, replica.variant, worker.device_kind)
            for rows, mean_ms, p95_ms in replica.latency:
                said[key][rows].append((max(replica.batches, 1), mean_ms, p95_ms))
    return {
        key: {rows: _mean(voices) for rows, voices in sizes.items()} for key, sizes in said.items()
    }


def _mean(voices: list[tuple[float, float, float]]) -> tuple[float, float]:
    total = sum(weight for weight, _, _ in voices)
    return (
        sum(weight * mean_ms for weight, mean_ms, _ in voices) / total,
        sum(weight * p95_ms for weight, _, p95_ms in voices) / total,
    )


def tell_device(device: OnDevice, task: str, variant: str, live: Live) -> None:
    """Write what one row takes now beside what the profile says of it."""
    found = live.get((task, variant, device.device_kind), {}).get(1)
    if found is not None:
        device.live_ms, device.live_p95_ms = found


def tell_profile(profile: ProfileSchema, live: Live) -> None:
    """The same for each batch size that has run."""
    found = live.get((profile.task, profile.variant, profile.device_kind), {})
    for point in profile.points:
        _tell_point(point, found)


def _tell_point(point: PointSchema, found: Mapping[int, tuple[float, float]]) -> None:
    if point.batch_size in found:
        point.live_ms, point.live_p95_ms = found[point.batch_size]
