"""The workers as metrics: what they say of themselves, and what a gateway knows of them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from variants.types import DeviceKindName, ReplicaState, WorkerId
from workers.types import WorkerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSeen:
    """What a gateway knows of the workers when its metrics are read."""

    workers: Sequence[WorkerStatus] = ()
    """As they last said, of those that it is connected to."""
    wanted: Mapping[DeviceKindName, int] = field(default_factory=dict)
    """How many there should be."""
    slow: Mapping[WorkerId, float] = field(default_factory=dict)
    """How many times as long as others of their kind those take that are slow."""
    silent_s: Mapping[WorkerId, float] = field(default_factory=dict)
    """For how long those have said nothing that do not answer."""
    round_trips_ms: Mapping[WorkerId, float] = field(default_factory=dict)


def fleet_metrics(seen: FleetSeen) -> Iterator[Metric]:
    """All families, also where no worker is there."""
    yield from _numbers(seen)
    yield from _replicas(seen.workers)
    yield from _as_the_gateway_finds_them(seen)
    yield from _as_they_say(seen.workers)


def _numbers(seen: FleetSeen) -> Iterator[Metric]:
    workers = GaugeMetricFamily(
        "modelless_workers", "Workers connected", labels=["kind", "draining"]
    )
    kinds = Counter((one.device_kind, str(one.draining).lower()) for one in seen.workers)
    for labels, count in kinds.items():
        workers.add_metric(labels, count)
    yield workers
    wanted = GaugeMetricFamily(
        "modelless_workers_wanted", "Workers that there should be", labels=["kind"]
    )
    for kind, most in seen.wanted.items():
        wanted.add_metric([kind], most)
    yield wanted


def _replicas(workers: Sequence[WorkerStatus]) -> Iterator[Metric]:
    replicas = GaugeMetricFamily(
        "modelless_replicas", "Loaded variants", labels=["task", "variant", "state"]
    )
    held = Counter((one.task, one.variant, one.state) for own in workers for one in own.replicas)
    for labels, count in held.items():
        replicas.add_metric(labels, count)
    yield replicas
    kept_out = {
        (task, variant) for task, variant, state in held if state is ReplicaState.QUARANTINED
    }
    yield GaugeMetricFamily(
        "modelless_quarantined_variants", "Variants that some worker keeps out", len(kept_out)
    )


def _as_the_gateway_finds_them(seen: FleetSeen) -> Iterator[Metric]:
    slow = GaugeMetricFamily(
        "modelless_worker_slowness",
        "How many times as long as others of its kind a worker takes that is slow",
        labels=["worker"],
    )
    for worker, times in seen.slow.items():
        slow.add_metric([worker], times)
    silent = GaugeMetricFamily(
        "modelless_worker_silent_seconds",
        "For how long a worker has said nothing that does not answer",
        labels=["worker"],
    )
    for worker, silent_s in seen.silent_s.items():
        silent.add_metric([worker], silent_s)
    away = GaugeMetricFamily(
        "modelless_worker_round_trip_seconds",
        "From this gateway to a worker and back",
        labels=["worker", "zone"],
    )
    for status in seen.workers:
        away_ms = seen.round_trips_ms.get(WorkerId(status.worker))
        if away_ms is not None:
            away.add_metric([status.worker, status.zone], away_ms / 1e3)
    yield from (slow, silent, away)


def _as_they_say(workers: Sequence[WorkerStatus]) -> Iterator[Metric]:
    busy = GaugeMetricFamily(
        "modelless_worker_busy_ratio", "Share of time spent in runtimes", labels=["worker"]
    )
    reserved = GaugeMetricFamily(
        "modelless_worker_reserved_bytes", "Memory reserved by variants", labels=["worker"]
    )
    memory = GaugeMetricFamily(
        "modelless_worker_memory_bytes", "Memory that variants may reserve", labels=["worker"]
    )
    loads = CounterMetricFamily("modelless_worker_loads", "Loads that are over", labels=["worker"])
    loading = CounterMetricFamily(
        "modelless_worker_load_seconds",
        "What loads took, by the clock and by the profiles",
        labels=["worker", "by"],
    )
    for status in workers:
        busy.add_metric([status.worker], status.busy_ratio)
        reserved.add_metric([status.worker], status.reserved_mib * 2**20)
        memory.add_metric([status.worker], status.memory_mib * 2**20)
        loads.add_metric([status.worker], status.loads)
        loading.add_metric([status.worker, "clock"], status.loading_s)
        loading.add_metric([status.worker, "profile"], status.profiled_loading_s)
    yield from (busy, reserved, memory, loads, loading)
