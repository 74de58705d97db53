"""What the controller wants measured again."""

from dataclasses import replace

from controlplane.controller.events.journal import Journal
from controlplane.controller.profiles.reprofiling import CHOSEN, Reprofiling
from planner.profile_drift import BATCHES, PATIENCE_S
from tests.variants.catalog_builders import kind, profile, registration
from variants.catalog.memory import MemoryCatalog
from variants.types import (
    CatalogSnapshot,
    LatencyPoint,
    Profile,
    ProfileSource,
    ProfilingRequest,
    ReplicaState,
    TaskName,
    VariantName,
)
from workers.types import ReplicaStatus, WorkerStatus

NAME = VariantName("mlp-v1-onnx-fp32")
GUESS = LatencyPoint(batch_size=1, p50_ms=1.0, p95_ms=2.0, p99_ms=3.0, error=0.3)


def catalog(one: Profile | None = None) -> CatalogSnapshot:
    made = MemoryCatalog()
    made.register(registration(profiles=(one or profile(),), device_kinds=(kind(),)))
    return made.snapshot()


def worker(ratio: float, batches: int = BATCHES, name: str = "w-1") -> WorkerStatus:
    replica = ReplicaStatus(
        task=TaskName("digits"),
        variant=NAME,
        state=ReplicaState.READY,
        memory_mib=1.0,
        live_ratio=ratio,
        batches=batches,
    )
    return WorkerStatus(
        worker=name, device_kind="cpu-1", memory_mib=9.0, reserved_mib=1.0, draining=False,
        backlog_us=0, busy_ratio=0.0, replicas=(replica,),
    )  # fmt: skip


def asked(reason: str) -> ProfilingRequest:
    return ProfilingRequest(
        task=TaskName("digits"),
        variant=NAME,
        device_kind=kind().name,
        reason=reason,
        at="now",
    )


def reprofiling() -> Reprofiling:
    catalog = MemoryCatalog()
    return Reprofiling(lambda: "now", catalog, Journal(catalog))


def test_what_live_latency_contradicts_is_asked_for_once() -> None:
    watch, known = reprofiling(), catalog()
    assert watch.look(0.0, known, [worker(2.0)]) == ()
    told = watch.look(PATIENCE_S, known, [worker(2.0)])
    assert told == (asked("runs 2.0 times as long as its profile says, for 60 s"),)
    assert watch.look(PATIENCE_S + 1, known, [worker(2.0)]) == ()


def test_what_runs_as_profiled_is_left_alone() -> None:
    watch, known = reprofiling(), catalog()
    for second in range(0, 300, 10):
        assert watch.look(float(second), known, [worker(1.2)]) == ()


def test_what_differs_by_less_than_waking_up_takes_is_left_alone() -> None:
    """Another measurement would say the same, and every start would wait for it."""
    quick = replace(GUESS, p50_ms=0.01, p95_ms=0.02, p99_ms=0.03, error=0.0)
    watch, known = reprofiling(), catalog(replace(profile(), points=(quick,)))
    for second in range(0, 300, 10):
        assert watch.look(float(second), known, [worker(20.0)]) == ()


def test_an_exact_profile_cannot_drift() -> None:
    watch, known = reprofiling(), catalog(replace(profile(), source=ProfileSource.EXACT))
    watch.look(0.0, known, [worker(9.0)])
    assert watch.look(PATIENCE_S, known, [worker(9.0)]) == ()


def test_a_prediction_that_is_chosen_gets_measured() -> None:
    predicted = replace(profile(), points=(GUESS,), source=ProfileSource.PREDICTED)
    watch, known = reprofiling(), catalog(predicted)
    assert watch.look(0.0, known, [worker(1.0, batches=CHOSEN - 1)]) == ()
    reason = "answers queries, and its latency was predicted only, within 30 %"
    assert watch.look(1.0, known, [worker(1.0)]) == (asked(reason),)
    assert watch.look(2.0, known, [worker(1.0)]) == ()


def test_a_variant_that_nobody_knows_any_more_is_ignored() -> None:
    watch = reprofiling()
    empty = CatalogSnapshot(revision=7)
    watch.look(0.0, empty, [worker(9.0)])
    assert watch.look(PATIENCE_S, empty, [worker(9.0)]) == ()
