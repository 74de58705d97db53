"""What a gateway counts, and how Prometheus reads it.

Counting happens once per query on the hot path, so it is a few additions on plain attributes; the
metric families are made when Prometheus reads them.

======================================  =========  ==========================================
Metric                                  Labels     Meaning
======================================  =========  ==========================================
``modelless_queries_total``             task,      Answered queries
                                        variant,
                                        slo_met
``modelless_errors_total``              task,      Queries that ended in an error
                                        code
``modelless_query_seconds``             task       First byte received to reply, histogram
``modelless_queue_seconds_total``       task,      Time spent waiting at workers
                                        variant
``modelless_run_seconds_total``         task,      Time of the batches that answered; shared
                                        variant    batches count once for each query
``modelless_rows_total``                task,      Rows answered
                                        variant
``modelless_cost_usd_total``            task,      What the answers cost
                                        variant
``modelless_choices_total``             task,      Answered queries by why their variant was
                                        reason     chosen: ``planned`` where the plan was followed
``modelless_queries_blocked_total``     task       Refused because a worker ended while it
                                                   ran the same
``modelless_retries_total``             reason     Second attempts at another worker
``modelless_connections``                protocol   Connections that are open now
``modelless_connections_refused_total``  protocol,  Connections that were one too many; the code is
                                        code       ``RATE_LIMITED`` where of one address
``modelless_connections_ended_total``    reason     Connections ended because the client kept the
                                                   gateway waiting: ``late_head``, ``slow_body``,
                                                   ``close`` (idle), ``abort`` (does not read)
``modelless_cache_hits_total``          task,      Answers that were kept, given again
                                        variant
``modelless_cache_collapsed_total``     task,      Answers of a run that an equal query had begun
                                        variant
``modelless_cache_misses_total``        task,      Runs of tasks whose answers are shared
                                        variant
``modelless_cache_bytes``               task       What the kept answers take
``modelless_cache_answers``             task       Kept answers
``modelless_cache_evicted_total``       task       Answers forgotten for want of room
``modelless_in_flight``                            Queries being answered now
``modelless_event_loop_busy_ratio``                Share of the last second that the loop computed
``modelless_workers``                   kind,      Workers this gateway is connected to
                                        draining
``modelless_replicas``                  task,      Loaded variants over all workers
                                        variant,
                                        state
``modelless_worker_busy_ratio``         worker     Share of time spent in runtimes
``modelless_worker_slowness``           worker     How many times as long as others of its kind a
                                                   worker takes that is spared for that
``modelless_worker_reserved_bytes``     worker     Memory reserved by variants
``modelless_worker_memory_bytes``       worker     Memory that variants may reserve
``modelless_worker_loads_total``        worker     Loads that are over
``modelless_worker_load_seconds_total``  worker,    What they took (``by="clock"``), and what they
                                        by         should take by the profiles (``by="profile"``)
``modelless_catalog_revision``                     Revision of the catalog in use
======================================  =========  ==========================================
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from variants.types import WorkerId
from workers.types import WorkerStatus

BOUNDS_MS = (0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 20, 30, 50, 75, 100, 200, 500, 1000, 2000, 5000, 10000)


@dataclass(slots=True)
class VariantCounters:
    """What one variant of a task has answered through this gateway."""

    met: int = 0
    missed: int = 0
    rows: int = 0
    queue_us: int = 0
    run_us: int = 0
    cost_usd: float = 0.0
    read_ms: float = 0.0
    """From the first byte of each query to its tensors."""
    encode_ms: float = 0.0
    """From each worker's reply to the bytes of the answer."""
    elapsed_ms: float = 0.0
    """From the first byte to the answer."""
    batches: dict[int, list[float]] = field(default_factory=dict)
    """Batch size to rows answered in such batches and the time that these rows stand for, in µs: of
    a batch's own time each row has an equal part."""
    last_ms: float = 0.0
    """When it answered last, by the query path's clock."""
    hits: int = 0
    """Queries that got a kept answer of it."""
    collapsed: int = 0
    """Queries that got the answer of a run that an equal query had begun."""
    reused_rows: int = 0
    """Of both kinds."""
    hit_ms: float = 0.0
    """What finding and encoding took, of both kinds; without the wait for a run."""
    cache_misses: int = 0
    """Runs of tasks whose answers are shared."""
    cache_miss_ms: float = 0.0
    """What looking for an answer and keeping the new one took."""


@dataclass(slots=True)
class CacheCounters:
    """The kept answers of one task."""

    answers: int = 0
    size_bytes: int = 0
    evicted: int = 0
    """Forgotten for want of room, not of age."""


@dataclass(slots=True)
class TaskCounters:
    """What was asked of one task through this gateway, and how it ended."""

    variants: dict[str, VariantCounters] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    choices: dict[str, int] = field(default_factory=dict)
    """Answers by why their variant was chosen: the values of ``planner.types.Reason``."""
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    """Answers by latency: one count for each of ``BOUNDS_MS``, and one for those above all."""
    latency_ms: float = 0.0
    """The sum over all answers."""
    blocked: int = 0
    """Queries whose content may have ended a worker, refused."""
    cache: CacheCounters | None = None
    """None while its answers are not shared."""

    def answered(
        self,
        variant: str,
        elapsed_ms: float,
        rows: int,
        queue_us: int,
        run_us: int,
        cost_usd: float,
        met: bool,
        *,
        batch_size: int,
        read_ms: float,
        encode_ms: float,
        now_ms: float,
    ) -> None:
        """Count one answer. ``cost_usd`` is of all its rows."""
        counters = self._in_all(variant, elapsed_ms, rows, met, now_ms)
        counters.queue_us += queue_us
        counters.run_us += run_us
        counters.cost_usd += cost_usd
        counters.read_ms += read_ms
        counters.encode_ms += encode_ms
        batches = counters.batches.get(batch_size)
        if batches is None:
            counters.batches[batch_size] = [rows, rows * run_us / batch_size]
        else:
            batches[0] += rows
            batches[1] += rows * run_us / batch_size

    def reused(
        self,
        variant: str,
        elapsed_ms: float,
        rows: int,
        met: bool,
        *,
        now_ms: float,
        lookup_ms: float,
        kept: bool,
    ) -> None:
        """Count an answer without a run of its own: a kept one, or one of an equal query's run."""
        counters = self._in_all(variant, elapsed_ms, rows, met, now_ms)
        if kept:
            counters.hits += 1
        else:
            counters.collapsed += 1
        counters.reused_rows += rows
        counters.hit_ms += lookup_ms

    def cache_missed(self, variant: str, took_ms: float) -> None:
        """Count a run whose answer was not kept yet."""
        counters = self._of(variant)
        counters.cache_misses += 1
        counters.cache_miss_ms += took_ms

    def _in_all(
        self, variant: str, elapsed_ms: float, rows: int, met: bool, now_ms: float
    ) -> VariantCounters:
        """Count what answers of every kind have; the variant's counters, for the rest."""
        counters = self._of(variant)
        if met:
            counters.met += 1
        else:
            counters.missed += 1
        counters.rows += rows
        counters.elapsed_ms += elapsed_ms
        counters.last_ms = now_ms
        self.buckets[bisect_left(BOUNDS_MS, elapsed_ms)] += 1
        self.latency_ms += elapsed_ms
        return counters

    def _of(self, variant: str) -> VariantCounters:
        counters = self.variants.get(variant)
        if counters is None:
            counters = self.variants[variant] = VariantCounters()
        return counters

    def chosen(self, reason: str) -> None:
        """Count why the variant of an answer was chosen."""
        self.choices[reason] = self.choices.get(reason, 0) + 1

    def failed(self, code: str) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


class ConnectionCounters:
    """What became of clients' connections."""

    def __init__(self) -> None:
        self.refusals: dict[tuple[str, str], int] = {}
        """By protocol and code of the error."""
        self.ends: dict[str, int] = {}
        """By why the gateway ended them."""
        self.open: dict[str, Callable[[], int]] = {}
        """By protocol, what counts those that are open."""

    def refused(self, protocol: str, code: str) -> None:
        key = (protocol, code)
        self.refusals[key] = self.refusals.get(key, 0) + 1

    def ended(self, reason: str) -> None:
        self.ends[reason] = self.ends.get(reason, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """The metric families of it."""
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
        for protocol, counted in self.open.items():
            count.add_metric([protocol], counted())
        for labels, times in list(self.refusals.items()):
            refused.add_metric(labels, times)
        for reason, times in list(self.ends.items()):
            ended.add_metric([reason], times)
        yield from (count, refused, ended)


class Counters:
    """All that one gateway counts, since it started."""

    def __init__(self) -> None:
        self.connections = ConnectionCounters()
        self.tasks: dict[str, TaskCounters] = {}
        self.retries: dict[str, int] = {}
        self.in_flight = 0
        self.busy = 0.0
        """Share of the time between the last two reports that the event loop computed."""

    def task(self, name: str) -> TaskCounters:
        found = self.tasks.get(name)
        if found is None:
            found = self.tasks[name] = TaskCounters()
        return found

    def retried(self, reason: str) -> None:
        self.retries[reason] = self.retries.get(reason, 0) + 1


class GatewayCollector(Collector):
    """Turns counters and worker statuses into metric families when Prometheus reads them."""

    def __init__(
        self,
        counters: Counters,
        workers: Callable[[], Iterable[WorkerStatus]],
        revision: Callable[[], int],
        spared: Callable[[], Mapping[WorkerId, float]] = dict,
    ) -> None:
        self._spared = spared
        self._counters = counters
        self._workers = workers
        self._revision = revision

    def collect(self) -> Iterator[Metric]:
        yield from self._queries()
        yield from self._cache()
        yield from self._latencies()
        yield from self._counters.connections.collect()
        yield from self._state()

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
        retries = CounterMetricFamily(
            "modelless_retries", "Second attempts at another worker", labels=["reason"]
        )
        for task, counters in list(self._counters.tasks.items()):
            for variant, c in list(counters.variants.items()):
                queries.add_metric([task, variant, "true"], c.met)
                queries.add_metric([task, variant, "false"], c.missed)
                rows.add_metric([task, variant], c.rows)
                queue.add_metric([task, variant], c.queue_us / 1e6)
                run.add_metric([task, variant], c.run_us / 1e6)
                cost.add_metric([task, variant], c.cost_usd)
            if counters.blocked:
                blocked.add_metric([task], counters.blocked)
            for code, count in list(counters.errors.items()):
                errors.add_metric([task, code], count)
            for reason, count in list(counters.choices.items()):
                choices.add_metric([task, reason], count)
        for reason, count in list(self._counters.retries.items()):
            retries.add_metric([reason], count)
        yield from (queries, errors, rows, queue, run, cost, choices, blocked, retries)

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
            for variant, c in list(counters.variants.items()):
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
            total, buckets = 0, []
            for bound, count in zip((*BOUNDS_MS, None), counters.buckets, strict=True):
                total += count
                buckets.append(("+Inf" if bound is None else str(bound / 1000), total))
            latency.add_metric([task], buckets, counters.latency_ms / 1000)
        yield latency

    def _state(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "modelless_in_flight", "Queries being answered now", self._counters.in_flight
        )
        yield GaugeMetricFamily(
            "modelless_event_loop_busy_ratio",
            "Share of the last second that the event loop computed",
            self._counters.busy,
        )
        yield GaugeMetricFamily(
            "modelless_catalog_revision", "Revision of the catalog in use", self._revision()
        )
        workers = GaugeMetricFamily(
            "modelless_workers", "Workers connected", labels=["kind", "draining"]
        )
        replicas = GaugeMetricFamily(
            "modelless_replicas", "Loaded variants", labels=["task", "variant", "state"]
        )
        busy = GaugeMetricFamily(
            "modelless_worker_busy_ratio", "Share of time spent in runtimes", labels=["worker"]
        )
        slow = GaugeMetricFamily(
            "modelless_worker_slowness",
            "How many times as long as others of its kind a worker takes that is spared for that",
            labels=["worker"],
        )
        for worker, times in self._spared().items():
            slow.add_metric([worker], times)
        reserved = GaugeMetricFamily(
            "modelless_worker_reserved_bytes", "Memory reserved by variants", labels=["worker"]
        )
        memory = GaugeMetricFamily(
            "modelless_worker_memory_bytes", "Memory that variants may reserve", labels=["worker"]
        )
        loads = CounterMetricFamily(
            "modelless_worker_loads", "Loads that are over", labels=["worker"]
        )
        loading = CounterMetricFamily(
            "modelless_worker_load_seconds",
            "What loads took, by the clock and by the profiles",
            labels=["worker", "by"],
        )
        kinds: dict[tuple[str, str], int] = {}
        held: dict[tuple[str, str, str], int] = {}
        for status in self._workers():
            kind = (status.device_kind, str(status.draining).lower())
            kinds[kind] = kinds.get(kind, 0) + 1
            busy.add_metric([status.worker], status.busy_ratio)
            reserved.add_metric([status.worker], status.reserved_mib * 2**20)
            memory.add_metric([status.worker], status.memory_mib * 2**20)
            loads.add_metric([status.worker], status.loads)
            loading.add_metric([status.worker, "clock"], status.loading_s)
            loading.add_metric([status.worker, "profile"], status.profiled_loading_s)
            for replica in status.replicas:
                key = (replica.task, replica.variant, replica.state)
                held[key] = held.get(key, 0) + 1
        for labels, count in kinds.items():
            workers.add_metric(labels, count)
        for names, count in held.items():
            replicas.add_metric(names, count)
        yield from (workers, replicas, busy, slow, reserved, memory, loads, loading)
