"""Metrics: what is counted, how it reads, and that nothing is missing."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.counting.task_counters import BOUNDS_MS, GONE
from controlplane.gateway.http.asgi import add_metrics_route
from controlplane.gateway.reports.control_loop import (
    ControlLoopSeen,
    HeardOfLoop,
    loop_seen,
)
from controlplane.gateway.reports.fleet_metrics import FleetSeen
from controlplane.gateway.reports.metrics import GatewayCollector, GatewaySeen
from controlplane.gateway.reports.process_metrics import process_metrics
from controlplane.views.storage_status import plain
from tests.controlplane.builders import worker
from variants.core_time import CoreTime
from variants.disk import DiskRoom
from variants.types import CatalogSnapshot, DeviceKindName, ReplicaState
from workers.process.release import release
from workers.types import WorkerStatus

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(counters: Counters, workers: Sequence[WorkerStatus] = ()) -> tuple[set[str], Samples]:
    """Names of the families and all samples, as Prometheus would parse them."""
    registry = CollectorRegistry()
    registry.register(GatewayCollector(counters, GatewaySeen(fleet=FleetSeen(workers=workers))))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    names = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in families
    }
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
    return names, samples


def asked() -> Counters:
    """Two answers, one of them late, an error and a second attempt."""
    counters = Counters()
    task = counters.task("digits")
    times = {"read_ms": 0.01, "encode_ms": 0.02, "now_ms": 100_000.0}
    task.answered("mlp", 0.25, 1, 100, 200, 0.5, True, batch_size=4, **times)
    task.answered("mlp", 99_999.0, 3, 300, 400, 0.25, False, batch_size=4, **times)
    task.chosen("planned")
    task.chosen("planned")
    task.failed("OVERLOADED")
    counters.retried("lost")
    counters.in_flight = 7
    return counters


def test_a_gateway_that_was_asked_nothing_has_all_that_another_has() -> None:
    """``tests/documents/test_documented.py`` holds these to the reference."""
    assert scraped(Counters())[0] == scraped(asked(), [worker("w1", "mlp")])[0]


def test_what_may_happen_next_has_its_series_before_it_happens() -> None:
    """A rate sees no step from nothing: the first hundred errors would be missed."""
    registry = CollectorRegistry()
    registry.register(
        GatewayCollector(
            asked(),
            GatewaySeen(
                tasks=("digits", "letters"),
                fleet=FleetSeen(workers=[worker("w1", "mlp"), worker("w2", "cnn")]),
            ),
        )
    )
    value = registry.get_sample_value
    assert value("modelless_errors_total", {"task": "digits", "code": "OVERLOADED"}) == 1
    for task in ("digits", "letters"):
        assert value("modelless_errors_total", {"task": task, "code": "NO_WORKERS"}) == 0
        assert value("modelless_errors_total", {"task": task, "code": "INVALID_INPUT"}) is None
        assert value("modelless_queries_blocked_total", {"task": task}) == 0
        assert value("modelless_queries_infeasible_total", {"task": task}) == 0
    held = {"task": "digits", "variant": "cnn"}
    assert value("modelless_queries_total", {**held, "slo_met": "false"}) == 0
    assert value("modelless_query_seconds_count", {"task": "letters"}) is None


def test_queries_of_no_task_have_the_errors_that_they_ended_in_and_nothing_else() -> None:
    counters = Counters()
    counters.task("").failed("TASK_NOT_FOUND")
    told = {key: n for key, n in scraped(counters)[1].items() if ("task", "") in key[1]}
    labels = (("code", "TASK_NOT_FOUND"), ("task", ""))
    assert told == {("modelless_errors_total", labels): 1}


def test_cores_are_of_machines_and_what_a_kernel_does_not_tell_has_no_series() -> None:
    own = CoreTime(host="h1", cores=2, used=0.25, busy=1.5, waited=0.5)
    registry = CollectorRegistry()
    registry.register(
        GatewayCollector(
            Counters(), GatewaySeen(core_times=(own, replace(own, used=0.5, waited=0.75)))
        )
    )
    value = registry.get_sample_value
    assert value("modelless_node_cores", {"host": "h1"}) == 2
    assert value("modelless_node_cores_used", {"host": "h1"}) == 0.75
    assert value("modelless_node_cores_busy", {"host": "h1"}) == 1.5
    assert value("modelless_node_cores_waited_ratio", {"host": "h1"}) == 0.75
    assert value("modelless_node_cores_stolen", {"host": "h1"}) is None


def test_a_batch_is_counted_once_however_many_queries_share_it() -> None:
    counted = asked().task("digits").variants["mlp"]

    assert counted.batches == {4: [4, 1 * 200 / 4 + 3 * 400 / 4]}
    assert counted.read_ms == pytest.approx(0.02)
    assert counted.encode_ms == pytest.approx(0.04)
    assert counted.elapsed_ms == 99_999.25


def test_workers_that_should_be_there_are_told_also_where_none_is() -> None:
    registry = CollectorRegistry()
    registry.register(
        GatewayCollector(
            Counters(),
            GatewaySeen(
                fleet=FleetSeen(wanted={DeviceKindName("cpu-4"): 2}),
                answering={"catalog": False, "live_state": True},
            ),
        )
    )
    assert registry.get_sample_value("modelless_workers_wanted", {"kind": "cpu-4"}) == 2
    assert registry.get_sample_value("modelless_workers", {"kind": "cpu-4"}) is None
    assert registry.get_sample_value("modelless_state_up", {"of": "catalog"}) == 0
    assert registry.get_sample_value("modelless_state_up", {"of": "live_state"}) == 1


def test_a_catalog_that_cannot_be_written_and_the_room_on_disks_are_told() -> None:
    own = DiskRoom(of="state", folder="/srv", host="h1", free_bytes=5, size_bytes=9)
    told = {"rooms": plain([replace(own, host="h2", free_bytes=7)]), "unwritable": "disk full"}
    registry = CollectorRegistry()
    registry.register(
        GatewayCollector(Counters(), GatewaySeen(rooms=(own,), loop=ControlLoopSeen(told=told)))
    )
    value = registry.get_sample_value
    assert value("modelless_catalog_writable") == 0
    assert value("modelless_disk_free_bytes", {"of": "state", "host": "h1"}) == 5
    assert value("modelless_disk_free_bytes", {"of": "state", "host": "h2"}) == 7
    assert value("modelless_disk_size_bytes", {"of": "state", "host": "h1"}) == 9


def test_when_the_certificate_ends_is_told_where_there_is_one() -> None:
    registry, name = CollectorRegistry(), "modelless_certificate_expiry_timestamp_seconds"
    registry.register(GatewayCollector(Counters(), GatewaySeen(certificate_ends_s=1_800_000_000.0)))
    assert registry.get_sample_value(name) == 1_800_000_000
    assert (name, ()) not in scraped(Counters())[1]


async def test_answers_that_have_changed_are_told_of_each_variant() -> None:
    row: dict[str, Any] = {
        "task": "digits", "variant": "a", "rows": 900, "first_rows": 2_100, "complete": True,
        "moved": 0.2, "changed": True, "since_s": 5.0, "shifts": [], "from_held_out": None,
        "differs": False, "differences": [],
    }  # fmt: skip
    other = row | {"variant": "b", "moved": None, "changed": False, "since_s": None}
    heard = HeardOfLoop()
    heard.hear({"answers": [row, other]})
    seen = await loop_seen(heard, CatalogSnapshot(revision=0), (), frozen=False)
    registry = CollectorRegistry()
    registry.register(GatewayCollector(Counters(), GatewaySeen(loop=seen)))
    values = [
        registry.get_sample_value(f"modelless_answers_{name}", {"task": "digits", "variant": one})
        for name in ("changed", "moved_ratio")
        for one in ("a", "b")
    ]
    assert values == [1.0, 0.0, 0.2, None]


def test_the_control_loop_is_told_by_what_it_told_last() -> None:
    told = {
        "turned_s": 990.0, "plan_at": "1970-01-01T00:15:00+00:00", "events": {"worker_lost": 2},
    }  # fmt: skip
    seen = ControlLoopSeen(told=told, now_s=1_000.0, silent_s=10.0, frozen=True, rules_not_kept=3)
    quarantined = worker("w1", "mlp")
    kept_out = replace(quarantined.replicas[0], state=ReplicaState.QUARANTINED)
    workers = [replace(quarantined, worker=id_, replicas=(kept_out,)) for id_ in ("w1", "w2")]
    registry = CollectorRegistry()
    fleet = FleetSeen(workers=workers)
    registry.register(GatewayCollector(Counters(), GatewaySeen(fleet=fleet, loop=seen)))

    value = registry.get_sample_value
    assert value("modelless_tick_age_seconds") == 10
    assert value("modelless_plan_age_seconds") == 100
    assert value("modelless_plan_frozen") == 1
    assert value("modelless_rules_not_kept") == 3
    assert value("modelless_quarantined_variants") == 1
    assert value("modelless_events_total", {"kind": "worker_lost"}) == 2
    assert value("modelless_events_total", {"kind": "worker_joined"}) == 0
    assert value("modelless_build_info", {"release": release()}) == 1


def test_a_control_loop_that_never_told_of_itself_has_no_age() -> None:
    samples = scraped(Counters())[1]
    names = {name for name, _ in samples}
    assert not names & {"modelless_tick_age_seconds", "modelless_events_total"}
    assert samples["modelless_plan_frozen", ()] == 0


def test_what_a_process_takes_names_its_gateway() -> None:
    registry = CollectorRegistry()
    registry.register(GatewayCollector(Counters(), GatewaySeen(processes=process_metrics("g1"))))
    assert (registry.get_sample_value("process_open_fds", {"gateway": "g1"}) or 0) > 0
    assert "process_cpu_seconds_total" in generate_latest(registry).decode()


def test_answers_are_counted_by_variant() -> None:
    _, samples = scraped(asked())
    of_mlp = (("task", "digits"), ("variant", "mlp"))

    def value(name: str, *labels: tuple[str, str]) -> float:
        return samples[f"modelless_{name}", tuple(sorted(labels))]

    assert value("queries_total", *of_mlp, ("slo_met", "true")) == 1
    assert value("queries_total", *of_mlp, ("slo_met", "false")) == 1
    assert value("rows_total", *of_mlp) == 4
    assert value("queue_seconds_total", *of_mlp) == 0.0004
    assert value("run_seconds_total", *of_mlp) == 0.0006
    assert value("cost_usd_total", *of_mlp) == 0.75
    assert value("choices_total", ("task", "digits"), ("reason", "planned")) == 2
    assert value("errors_total", ("task", "digits"), ("code", "OVERLOADED")) == 1
    assert value("retries_total", ("reason", "lost")) == 1
    assert value("in_flight") == 7
    assert value("catalog_revision") == 1


def test_latency_is_a_cumulative_histogram_in_seconds() -> None:
    _, samples = scraped(asked())
    buckets = {
        labels[0][1]: count
        for (name, labels), count in samples.items()
        if name == "modelless_query_seconds_bucket"
    }
    assert list(buckets.values()) == [1] * len(BOUNDS_MS) + [2]
    assert [float(bound) for bound in buckets][:-1] == [bound / 1000 for bound in BOUNDS_MS]
    assert samples["modelless_query_seconds_count", (("task", "digits"),)] == 2
    assert samples["modelless_query_seconds_sum", (("task", "digits"),)] == 99.99925


def test_workers_are_reported_as_they_report_themselves() -> None:
    first = worker("w1", "mlp", loading=["cnn"], busy_ratio=0.5)
    first = replace(first, loads=3, loading_s=1.5, profiled_loading_s=1.0)
    _, samples = scraped(Counters(), [first, worker("w2", "mlp")])
    workers_ = {
        (name.removeprefix("modelless_"), *(value for _, value in labels)): count
        for (name, labels), count in samples.items()
        if "worker" in name or "replicas" in name
    }
    assert workers_ == {
        ("workers", "false", "cpu-4"): 2,
        ("replicas", "ready", "digits", "mlp"): 2,
        ("replicas", "loading", "digits", "cnn"): 1,
        ("worker_busy_ratio", "w1"): 0.5,
        ("worker_busy_ratio", "w2"): 0.25,
        ("worker_reserved_bytes", "w1"): 20 * 2**20,
        ("worker_reserved_bytes", "w2"): 10 * 2**20,
        ("worker_memory_bytes", "w1"): 4_000 * 2**20,
        ("worker_memory_bytes", "w2"): 4_000 * 2**20,
        ("worker_loads_total", "w1"): 3,
        ("worker_loads_total", "w2"): 0,
        ("worker_load_seconds_total", "clock", "w1"): 1.5,
        ("worker_load_seconds_total", "profile", "w1"): 1.0,
        ("worker_load_seconds_total", "clock", "w2"): 0,
        ("worker_load_seconds_total", "profile", "w2"): 0,
    }


class Observed(GatewayCollector):
    """Metrics that know in which thread they were read."""

    thread: threading.Thread | None = None

    def collect(self) -> Iterator[Metric]:
        self.thread = threading.current_thread()
        return super().collect()


async def test_queries_do_not_wait_while_prometheus_reads() -> None:
    read = Observed(asked())

    async def collector() -> GatewayCollector:
        return read

    api = FastAPI()
    add_metrics_route(api, collector)
    transport = httpx.ASGITransport(app=api)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        text = (await client.get("/metrics")).text
    assert 'modelless_errors_total{code="OVERLOADED",task="digits"} 1.0' in text
    assert read.thread is not threading.main_thread()


def test_what_removed_variants_had_counted_is_shown_nowhere() -> None:
    """Added to a counter that is there it would be told as queries of now."""
    counters = asked()
    before = scraped(counters)
    task = counters.task("digits")
    task.of("gone").add(asdict(task.variants["mlp"]))
    task.forget_variants({"mlp"})
    assert task.variants[GONE].rows == task.variants["mlp"].rows
    assert scraped(counters) == before
