"""How Prometheus reads what a gateway counts (``counting``) and what it knows of the rest.

"Metrics" in ``docs/reference/watching.md`` says what each metric means. The families are made when
they are read; those of workers, cores, processes and the control loop in modules beside this one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from controlplane.gateway.counting.client_counters import OldKeyUse
from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.counting.task_counters import (
    BOUNDS_MS,
    GONE,
    TaskCounters,
    VariantCounters,
)
from controlplane.gateway.reports.control_loop import ControlLoopSeen, control_loop_metrics
from controlplane.gateway.reports.core_metrics import core_metrics
from controlplane.gateway.reports.fleet_metrics import FleetSeen, fleet_metrics
from controlplane.http_errors import CLIENT_ERRORS, STATUS
from controlplane.views.storage_status import all_rooms
from variants.core_time import CoreTime
from variants.disk import DiskRoom
from variants.types import ReplicaState
from workers.process.release import release

FROM_THE_START = tuple(code for code in STATUS if code not in CLIENT_ERRORS)
"""Codes whose series is there for each task before the first such error: ``rate`` sees no step from
nothing. They are those that say something of what runs; ten for each task of the catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySeen:
    """What a gateway knows beside its counters when its metrics are read."""

    revision: int = 1
    """Of the catalog in use."""
    tasks: Collection[str] = ()
    """All tasks of the catalog, also those that nobody has asked for."""
    answering: Mapping[str, bool] = field(default_factory=dict)
    """Whether catalog and live state did when they were last asked."""
    fleet: FleetSeen = field(default_factory=FleetSeen)
    loop: ControlLoopSeen = field(default_factory=ControlLoopSeen)
    rooms: Sequence[DiskRoom] = ()
    """The disks of this machine that are written."""
    core_times: Sequence[CoreTime] = ()
    """How the time of cores was used, as gateways and workers say."""
    processes: Sequence[Metric] = ()
    """What the processes of gateways take."""
    certificate_ends_s: float | None = None
    """When the gateway's certificate ends, as Unix time; None without TLS."""
    old_keys: Mapping[str, OldKeyUse] = field(default_factory=dict)
    """Of those that have two keys, or two tokens, by name: how the older one is used."""


class GatewayCollector(Collector):
    """Turns counters and what was seen into metric families when Prometheus reads them.

    May be read in another thread than the one that counts.
    """

    def __init__(self, counters: Counters, seen: GatewaySeen | None = None) -> None:
        self._counters = counters
        self._seen = seen or GatewaySeen()

    def collect(self) -> Iterator[Metric]:
        yield from self._queries()
        yield from self._cache()
        yield self._feedback()
        yield from self._latencies()
        yield from self._clients()
        yield from self._connections()
        yield from self._state()
        yield from self._storage()
        yield from core_metrics(self._seen.core_times)
        yield from control_loop_metrics(self._seen.loop)
        yield from self._seen.processes
        yield from fleet_metrics(self._seen.fleet)

    def _queries(self) -> Iterator[Metric]:
        by_variant = ["task", "variant"]
        queries = CounterMetricFamily(
            "modelless_queries", "Answered queries", labels=[*by_variant, "slo_met"]
        )
        errors = CounterMetricFamily(
            "modelless_errors", "Queries that ended in an error", labels=["task", "code"]
        )
        rows = CounterMetricFamily("modelless_rows", "Rows answered", labels=by_variant)
        queue = CounterMetricFamily(
            "modelless_queue_seconds", "Time spent waiting at workers", labels=by_variant
        )
        run = CounterMetricFamily(
            "modelless_run_seconds", "Time of the batches that answered", labels=by_variant
        )
        cost = CounterMetricFamily("modelless_cost_usd", "What answers cost", labels=by_variant)
        choices = CounterMetricFamily(
            "modelless_choices",
            "Answered queries by why their variant was chosen",
            labels=["task", "reason"],
        )
        blocked = CounterMetricFamily(
            "modelless_queries_blocked",
            "Queries refused because a worker ended while it ran the same",
            labels=["task"],
        )
        infeasible = CounterMetricFamily(
            "modelless_queries_infeasible",
            "Queries answered by best effort that no variant could have met",
            labels=["task"],
        )
        waited = CounterMetricFamily(
            "modelless_gave_up_seconds",
            "How long clients waited that went before their answers",
            labels=["task"],
        )
        allowed = CounterMetricFamily(
            "modelless_gave_up_slo_seconds",
            "How much time the queries of these clients had",
            labels=["task"],
        )
        retries = CounterMetricFamily(
            "modelless_retries", "Second attempts at another worker", labels=["reason"]
        )
        for task, counters in self._counted().items():
            for variant, c in counters.variants.items():
                queries.add_metric([task, variant, "true"], c.met)
                queries.add_metric([task, variant, "false"], c.missed)
                rows.add_metric([task, variant], c.rows)
                queue.add_metric([task, variant], c.queue_us / 1e6)
                run.add_metric([task, variant], c.run_us / 1e6)
                cost.add_metric([task, variant], c.cost_usd)
            if task:  # what named none has ended in errors, and in nothing else
                infeasible.add_metric([task], counters.infeasible_answered)
                blocked.add_metric([task], counters.blocked)
                waited.add_metric([task], counters.gave_up_ms / 1000)
                allowed.add_metric([task], counters.gave_up_of_ms / 1000)
            for code, count in counters.errors.items():
                errors.add_metric([task, code], count)
            for reason, count in counters.choices.items():
                choices.add_metric([task, reason], count)
        for reason, count in list(self._counters.retries.items()):
            retries.add_metric([reason], count)
        yield from (queries, errors, rows, queue, run, cost, choices, blocked, infeasible)
        yield from (waited, allowed, retries)
        spans = CounterMetricFamily(
            "modelless_trace_spans",
            "Spans of traces, by what became of them: sent or dropped",
            labels=["outcome"],
        )
        for outcome, count in list(self._counters.traces.items()):
            spans.add_metric([outcome], count)
        yield spans

    def _counted(self) -> dict[str, TaskCounters]:
        """What was counted of each task, and nothing yet of those that may be asked next: the tasks
        of the catalog, and the variants that are loaded."""
        tasks = dict(self._counters.tasks)
        variants = {name: dict(_known_variants(of)) for name, of in tasks.items()}
        for task in self._seen.tasks:
            tasks.setdefault(task, TaskCounters())
        for status in self._seen.fleet.workers:
            for replica in status.replicas:
                if replica.task in tasks and replica.state is ReplicaState.READY:
                    held = variants.setdefault(replica.task, {})
                    held.setdefault(replica.variant, VariantCounters())
        none = dict.fromkeys(FROM_THE_START, 0)
        return {
            name: replace(
                of,
                variants=variants.get(name, {}),
                errors=(none if name else {}) | of.errors,
                choices=dict(of.choices),
            )
            for name, of in tasks.items()
        }

    def _feedback(self) -> Metric:
        found = CounterMetricFamily(
            "modelless_feedback_rows",
            "Rows that clients have said to be right or wrong",
            labels=["task", "variant", "outcome"],
        )
        for task, counters in list(self._counters.tasks.items()):
            for variant, c in list(counters.variants.items()):
                if c.right or c.wrong:
                    found.add_metric([task, variant, "right"], c.right)
                    found.add_metric([task, variant, "wrong"], c.wrong)
        return found

    def _cache(self) -> Iterator[Metric]:
        by_variant = ["task", "variant"]
        hits = CounterMetricFamily(
            "modelless_cache_hits", "Answers that were kept, given again", labels=by_variant
        )
        collapsed = CounterMetricFamily(
            "modelless_cache_collapsed",
            "Answers of a run that an equal query had begun",
            labels=by_variant,
        )
        misses = CounterMetricFamily(
            "modelless_cache_misses", "Runs of tasks whose answers are shared", labels=by_variant
        )
        size = GaugeMetricFamily(
            "modelless_cache_bytes", "What the kept answers take", labels=["task"]
        )
        answers = GaugeMetricFamily("modelless_cache_answers", "Kept answers", labels=["task"])
        evicted = CounterMetricFamily(
            "modelless_cache_evicted", "Answers forgotten for want of room", labels=["task"]
        )
        for task, counters in list(self._counters.tasks.items()):
            for variant, c in _known_variants(counters):
                if c.hits or c.collapsed or c.cache_misses:
                    hits.add_metric([task, variant], c.hits)
                    collapsed.add_metric([task, variant], c.collapsed)
                    misses.add_metric([task, variant], c.cache_misses)
            if counters.cache is not None:
                size.add_metric([task], counters.cache.size_bytes)
                answers.add_metric([task], counters.cache.answers)
                evicted.add_metric([task], counters.cache.evicted)
        yield from (hits, collapsed, misses, size, answers, evicted)

    def _latencies(self) -> Iterator[Metric]:
        latency = HistogramMetricFamily(
            "modelless_query_seconds", "First byte received to reply", labels=["task"]
        )
        for task, counters in list(self._counters.tasks.items()):
            if not task:
                continue
            total, buckets = 0, []
            for bound, count in zip((*BOUNDS_MS, None), counters.buckets, strict=True):
                total += count
                buckets.append(("+Inf" if bound is None else str(bound / 1000), total))
            latency.add_metric([task], buckets, counters.latency_ms / 1000)
        yield latency

    def _clients(self) -> Iterator[Metric]:
        queries = CounterMetricFamily(
            "modelless_client_queries",
            "Queries by the name of their client's key",
            labels=["client", "outcome"],
        )
        for name, counted in list(self._counters.clients.items()):
            queries.add_metric([name, "answered"], counted.answered)
            queries.add_metric([name, "refused"], counted.refused)
        yield queries
        used = GaugeMetricFamily(
            "modelless_old_key_used_timestamp_seconds",
            "When the older of two keys was used last, as Unix time; 0 where it was not",
            labels=["client"],
        )
        for name, use in self._seen.old_keys.items():
            used.add_metric([name], use.last_s)
        yield used

    def _connections(self) -> Iterator[Metric]:
        counted = self._counters.connections
        count = GaugeMetricFamily(
            "modelless_connections", "Connections that are open now", labels=["protocol"]
        )
        refused = CounterMetricFamily(
            "modelless_connections_refused",
            "Connections that were one too many",
            labels=["protocol", "code"],
        )
        ended = CounterMetricFamily(
            "modelless_connections_ended",
            "Connections ended because the client kept the gateway waiting",
            labels=["reason"],
        )
        for protocol, now in list(counted.open.items()):
            count.add_metric([protocol], now())
        for labels, times in list(counted.refusals.items()):
            refused.add_metric(labels, times)
        for reason, times in list(counted.ends.items()):
            ended.add_metric([reason], times)
        passed = CounterMetricFamily(
            "modelless_connections_passed",
            "Connections that a busy gateway has passed on to another one of the machine",
            counted.passed,
        )
        yield from (count, refused, ended, passed)

    def _state(self) -> Iterator[Metric]:
        """What this gateway is, and what it is doing now."""
        build = GaugeMetricFamily(
            "modelless_build_info", "Which code this gateway runs", labels=["release"]
        )
        build.add_metric([release()], 1)
        yield build
        yield GaugeMetricFamily(
            "modelless_in_flight", "Queries being answered now", self._counters.in_flight
        )
        busy = GaugeMetricFamily(
            "modelless_event_loop_busy_ratio",
            "Share of the last second that the event loop computed",
            labels=["gateway"],
        )
        for gateway, share in list(self._counters.busy.items()):
            busy.add_metric([gateway], share)
        yield busy
        yield GaugeMetricFamily(
            "modelless_catalog_revision", "Revision of the catalog in use", self._seen.revision
        )
        up = GaugeMetricFamily(
            "modelless_state_up", "Whether catalog and live state answer", labels=["of"]
        )
        for name, answers in self._seen.answering.items():
            up.add_metric([name], float(answers))
        yield up
        yield GaugeMetricFamily(
            "modelless_certificate_expiry_timestamp_seconds",
            "When the certificate that this gateway shows ends, as Unix time",
            self._seen.certificate_ends_s,  # None: no sample
        )

    def _storage(self) -> Iterator[Metric]:
        """Whether what has to be kept can be written."""
        writable = GaugeMetricFamily(
            "modelless_catalog_writable", "Whether the control loop can write the catalog"
        )
        told = self._seen.loop.told
        if "unwritable" in told:
            writable.add_metric([], float(not told["unwritable"]))
        labels = ["of", "host"]
        free = GaugeMetricFamily(
            "modelless_disk_free_bytes", "Free on disks that are written", labels=labels
        )
        size = GaugeMetricFamily(
            "modelless_disk_size_bytes", "Size of disks that are written", labels=labels
        )
        for room in all_rooms(self._seen.rooms, told):
            free.add_metric([room.of, room.host], room.free_bytes)
            size.add_metric([room.of, room.host], room.size_bytes)
        yield from (writable, free, size)


def _known_variants(of: TaskCounters) -> list[tuple[str, VariantCounters]]:
    """Those that are told apart: what others had counted is no news, and a counter that it was
    added to would seem to have grown."""
    return [(name, counted) for name, counted in list(of.variants.items()) if name != GONE]
