"""What workers say that batches take now, beside what profiles say."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from controlplane.views.catalog_schemas import OnDevice, PointSchema, ProfileSchema
from controlplane.views.worker_schemas import WorkerSchema
from variants.types import ReplicaState

Key = tuple[str, str, str]
"""Task, variant, device kind."""
Live = Mapping[Key, Mapping[int, tuple[float, float]]]
"""By batch size: mean and 95th percentile in ms. Of what is ready and has run no batch: nothing."""


def live_latencies(workers: Iterable[WorkerSchema]) -> Live:
    """What all workers of a kind say of a variant; those with more batches count more."""
    said: dict[Key, dict[int, list[tuple[float, float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for worker in workers:
        for replica in worker.replicas:
            key = (replica.task, replica.variant, worker.device_kind)
            if replica.state is ReplicaState.READY:
                said[key]
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
    known = live.get((task, variant, device.device_kind))
    device.unconfirmed = known is not None and not known
    if known and 1 in known:
        device.live_ms, device.live_p95_ms = known[1]


def tell_profile(profile: ProfileSchema, live: Live) -> None:
    """The same for each batch size that has run."""
    found = live.get((profile.task, profile.variant, profile.device_kind))
    profile.unconfirmed = found is not None and not found
    for point in profile.points:
        _tell_point(point, found or {})


def _tell_point(point: PointSchema, found: Mapping[int, tuple[float, float]]) -> None:
    if point.batch_size in found:
        point.live_ms, point.live_p95_ms = found[point.batch_size]
