"""How Prometheus reads what a gateway counts (``counters``).

The metric families are made when they are read.

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
``modelless_queries_infeasible_total``  task       Answered by best effort, where no variant could
                                                   do what was asked
``modelless_queries_blocked_total``     task       Refused because a worker ended while it
                                                   ran the same
``modelless_retries_total``             reason     Second attempts at another worker
``modelless_connections``                protocol   Connections that are open now
``modelless_connections_refused_total``  protocol,  Connections that were one too many; the code is
                                        code       ``RATE_LIMITED`` where of one address
``modelless_connections_ended_total``    reason     Connections ended because the client kept the
                                                   gateway waiting: ``late_head``, ``slow_body``,
                                                   ``close`` (idle), ``abort`` (does not read)
``modelless_connections_passed_total``             Connections that a busy gateway has passed on to
                                                   another one of the machine
``modelless_client_queries_total``      client,    Queries by the name of their client's key (empty:
                                        outcome    none), where there are keys; ``outcome`` is
                                                   ``answered`` or ``refused``
``modelless_cache_hits_total``          task,      Answers that were kept, given again
                                        variant
``modelless_cache_collapsed_total``     task,      Answers of a run that an equal query had begun
                                        variant
``modelless_cache_misses_total``        task,      Runs of tasks whose answers are shared
                                        variant
``modelless_cache_bytes``               task       What the kept answers take
``modelless_cache_answers``             task       Kept answers
``modelless_cache_evicted_total``       task       Answers forgotten for want of room
``modelless_feedback_rows_total``       task,      Rows that clients have said to be right or wrong
                                        variant,   (``outcome``)
                                        outcome
``modelless_in_flight``                            Queries being answered now
``modelless_event_loop_busy_ratio``     gateway    Share of the last second that the loop computed
``modelless_workers``                   kind,      Workers this gateway is connected to
                                        draining
``modelless_workers_wanted``            kind       Workers that there should be
``modelless_replicas``                  task,      Loaded variants over all workers
                                        variant,
                                        state
``modelless_worker_busy_ratio``         worker     Share of time spent in runtimes
``modelless_worker_slowness``           worker     How many times as long as others of its kind a
                                                   worker takes that is slow; it is spared for that
                                                   while the others have time
``modelless_worker_silent_seconds``      worker     For how long a worker has said nothing that is
                                                   stopped or hanging; only while it is so
``modelless_worker_round_trip_seconds``  worker,    From this gateway to a worker and back; 0 on
                                        zone       within its zone, and below 4 ms
``modelless_worker_reserved_bytes``     worker     Memory reserved by variants
``modelless_worker_memory_bytes``       worker     Memory that variants may reserve
``modelless_worker_loads_total``        worker     Loads that are over
``modelless_worker_load_seconds_total``  worker,    What they took (``by="clock"``), and what they
                                        by         should take by the profiles (``by="profile"``)
``modelless_catalog_revision``                     Revision of the catalog in use
``modelless_state_up``                  of         1 while the ``catalog`` or the ``live_state``
                                                   answers this gateway, else 0
``modelless_catalog_writable``                     1 where the control loop could write the catalog
                                                   when it last had to, else 0
``modelless_certificate_expiry_timestamp_seconds``  When the certificate that this gateway shows
                                                   ends, as Unix time; absent without TLS
``modelless_tick_age_seconds``                     Since the last turn of the control loop that did
                                                   not fail
``modelless_plan_age_seconds``                     Since the newest plan was made
``modelless_headroom``                             How many times the present demand the workers
                                                   could serve, 10 at most; absent without demand
``modelless_task_headroom``             task       The same of one task, beside the others
``modelless_plan_frozen``                          1 while an operator has the plan stay, else 0
``modelless_rules_not_kept``                       Rules of operators that are not kept
``modelless_quarantined_variants``                 Variants that some worker keeps out
``modelless_events_total``              kind       Events that the control loop told
``modelless_build_info``                release    1; which code this gateway runs
``modelless_disk_free_bytes``           of, host   Free on the disk of the ``state`` directory, and
                                                   of ``artifacts`` and ``copies`` on other disks
``modelless_disk_size_bytes``           of, host   The size of these disks
``modelless_node_cores``                host       Cores that gateways and workers there may run on
``modelless_node_cores_used``           host       Cores that they keep busy
``modelless_node_cores_busy``           host       Cores that any program keeps busy, but those of
                                                   a positive niceness
``modelless_node_cores_stolen``         host       Cores that a hypervisor gives to other machines
``modelless_node_cores_waited_ratio``   host       Share of the time in which something waited for
                                                   a core
``modelless_node_cores_throttled_ratio``  host     Share of the time in which a quota held
                                                   processes back
======================================  =========  ==========================================
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from controlplane.gateway.counters import BOUNDS_MS, Counters, TaskCounters, VariantCounters
from controlplane.gateway.reports.control_loop import ControlLoopSeen, control_loop_metrics
from controlplane.gateway.reports.core_metrics import core_metrics
from controlplane.http_errors import CLIENT_ERRORS, STATUS
from controlplane.views.storage_status import all_rooms
from variants.core_time import CoreTime
from variants.disk import DiskRoom
from variants.types import DeviceKindName, ReplicaState, WorkerId
from workers.process.release import release
from workers.types import WorkerStatus

FROM_THE_START = tuple(code for code in STATUS if code not in CLIENT_ERRORS)
"""Codes whose series is there for each task before the first such error: ``rate`` sees no step from
nothing. They are those that say something of what runs; ten for each task of the catalog."""


class GatewayCollector(Collector):
    """Turns counters and worker statuses into metric families when Prometheus reads them.

    May be read in another thread than the one that counts; what it is given to call has to be.
    """

    def __init__(
        self,
        counters: Counters,
        workers: Callable[[], Iterable[WorkerStatus]],
        revision: Callable[[], int],
        slow: Callable[[], Mapping[WorkerId, float]] = dict,
        round_trips_ms: Callable[[], Mapping[WorkerId, float]] = dict,
        wanted: Callable[[], Mapping[DeviceKindName, int]] = dict,
        answering: Callable[[], Mapping[str, bool]] = dict,
        rooms: Callable[[], Iterable[DiskRoom]] = tuple,
        loop: ControlLoopSeen | None = None,
        processes: Callable[[], Iterable[Metric]] = tuple,
        tasks: Callable[[], Iterable[str]] = tuple,
        silent_s: Callable[[], Mapping[WorkerId, float]] = dict,
        core_times: Callable[[], Iterable[CoreTime]] = tuple,
        certificate_ends_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        """
        Args:
            tasks: names of those in the catalog, asked for or not.
            silent_s: workers that do not answer, and for how long.
            answering: whether catalog and live state did when they were last asked.
            rooms: the disks of this machine that are written.
            loop: what is known of the control loop.
            processes: what the processes of gateways take.
            core_times: how the time of cores was used, as gateways and workers say.
            certificate_ends_s: when the gateway's certificate ends, as Unix time; None without TLS.
        """
        self._certificate_ends_s = certificate_ends_s
        self._core_times = core_times
        self._tasks = tasks
        self._silent_s = silent_s
        self._rooms = rooms
        self._loop = loop or ControlLoopSeen()
        self._processes = processes
        self._wanted = wanted
        self._answering = answering
        self._round_trips_ms = round_trips_ms
        self._slow = slow
        self._counters = counters
        self._workers = workers
        self._revision = revision

    def collect(self) -> Iterator[Metric]:
        yield from self._queries()
        yield from self._cache()
        yield self._feedback()
        yield from self._latencies()
        yield from self._clients()
        yield from self._connections()
        yield from self._state()
        yield from self._storage()
        yield from core_metrics(self._core_times())
        yield from control_loop_metrics(self._loop)
        yield from self._processes()
        yield from self._fleet()

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
            infeasible.add_metric([task], counters.infeasible_answered)
            blocked.add_metric([task], counters.blocked)
            for code, count in counters.errors.items():
                errors.add_metric([task, code], count)
            for reason, count in counters.choices.items():
                choices.add_metric([task, reason], count)
        for reason, count in list(self._counters.retries.items()):
            retries.add_metric([reason], count)
        yield from (queries, errors, rows, queue, run, cost, choices, blocked, infeasible, retries)

    def _counted(self) -> dict[str, TaskCounters]:
        """What was counted of each task, and nothing yet of those that may be asked next: the tasks
        of the catalog, and the variants that are loaded."""
        tasks = dict(self._counters.tasks)
        variants = {name: dict(of.variants) for name, of in tasks.items()}
        for task in self._tasks():
            tasks.setdefault(task, TaskCounters())
        for status in self._workers():
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
            "modelless_catalog_revision", "Revision of the catalog in use", self._revision()
        )
        up = GaugeMetricFamily(
            "modelless_state_up", "Whether catalog and live state answer", labels=["of"]
        )
        for name, answers in self._answering().items():
            up.add_metric([name], float(answers))
        yield up
        yield GaugeMetricFamily(
            "modelless_certificate_expiry_timestamp_seconds",
            "When the certificate that this gateway shows ends, as Unix time",
            self._certificate_ends_s(),  # None: no sample
        )

    def _storage(self) -> Iterator[Metric]:
        """Whether what has to be kept can be written."""
        writable = GaugeMetricFamily(
            "modelless_catalog_writable", "Whether the control loop can write the catalog"
        )
        told = self._loop.told
        if "unwritable" in told:
            writable.add_metric([], float(not told["unwritable"]))
        labels = ["of", "host"]
        free = GaugeMetricFamily(
            "modelless_disk_free_bytes", "Free on disks that are written", labels=labels
        )
        size = GaugeMetricFamily(
            "modelless_disk_size_bytes", "Size of disks that are written", labels=labels
        )
        for room in all_rooms(self._rooms(), told):
            free.add_metric([room.of, room.host], room.free_bytes)
            size.add_metric([room.of, room.host], room.size_bytes)
        yield from (writable, free, size)

    def _fleet(self) -> Iterator[Metric]:
        """What workers say of themselves, and what this gateway knows of them."""
        workers = GaugeMetricFamily(
            "modelless_workers", "Workers connected", labels=["kind", "draining"]
        )
        wanted = GaugeMetricFamily(
            "modelless_workers_wanted", "Workers that there should be", labels=["kind"]
        )
        for name, most in self._wanted().items():
            wanted.add_metric([name], most)
        replicas = GaugeMetricFamily(
            "modelless_replicas", "Loaded variants", labels=["task", "variant", "state"]
        )
        busy = GaugeMetricFamily(
            "modelless_worker_busy_ratio", "Share of time spent in runtimes", labels=["worker"]
        )
        slow = GaugeMetricFamily(
            "modelless_worker_slowness",
            "How many times as long as others of its kind a worker takes that is slow",
            labels=["worker"],
        )
        for worker, times in self._slow().items():
            slow.add_metric([worker], times)
        silent = GaugeMetricFamily(
            "modelless_worker_silent_seconds",
            "For how long a worker has said nothing that does not answer",
            labels=["worker"],
        )
        for worker, silent_s in self._silent_s().items():
            silent.add_metric([worker], silent_s)
        away = GaugeMetricFamily(
            "modelless_worker_round_trip_seconds",
            "From this gateway to a worker and back",
            labels=["worker", "zone"],
        )
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
        round_trips_ms = self._round_trips_ms()
        for status in self._workers():
            if (away_ms := round_trips_ms.get(WorkerId(status.worker))) is not None:
                away.add_metric([status.worker, status.zone], away_ms / 1e3)
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
        kept_out = {(of[0], of[1]) for of in held if of[2] == ReplicaState.QUARANTINED}
        yield GaugeMetricFamily(
            "modelless_quarantined_variants", "Variants that some worker keeps out", len(kept_out)
        )
        for labels, count in kinds.items():
            workers.add_metric(labels, count)
        for names, count in held.items():
            replicas.add_metric(names, count)
        yield from (
            workers, wanted, replicas, busy, slow, silent, away, reserved, memory, loads, loading,
        )  # fmt: skip
