"""What replicas are told of the plan, and when they are told again."""

from dataclasses import replace

from controlplane.terms import Term, Terms
from tests.planner.builders import DIGITS, catalog, placement, profile, variant
from variants.types import DeviceKindName, Plan, Route, VariantName, WorkerId
from workers.types import WorkerStatus

CATALOG = catalog([variant("a"), variant("b")], [profile("a", 10.0), profile("b", 30.0)])
A, B = ("w1", DIGITS, "a"), ("w1", DIGITS, "b")
W1 = WorkerStatus(
    worker="w1", device_kind="cpu-1", memory_mib=1_000.0, reserved_mib=0.0, draining=False,
    backlog_us=0, busy_ratio=0.0, replicas=(),
)  # fmt: skip


def route(latency_ms: float) -> Route:
    return Route(
        task=DIGITS, latency_ms=latency_ms, accuracy=None, variant=VariantName("a"),
        worker=WorkerId("w1"), batch_size=1, qps=10.0,
    )  # fmt: skip


def plan(*routes: Route, version: int = 1) -> Plan:
    return Plan(
        version=version,
        epoch=1,
        placements=(placement("a", share=0.25), placement("b", share=0.5)),
        workers={DeviceKindName("cpu-1"): 1},
        routes=routes,
    )


def made(of: Plan | None) -> Terms:
    terms = Terms()
    terms.make(of, CATALOG, [W1])
    return terms


def test_a_replica_has_its_task_s_share_and_its_worker_s_pace() -> None:
    terms = made(plan(route(100.3)))
    assert terms.of(A) == terms.of(B) == Term(share=0.75, pace_ms=50.0, revision=1)


def test_without_routes_the_queue_sees_for_itself() -> None:
    assert made(plan()).of(A).pace_ms == 0.0


def test_without_a_plan_nothing_is_placed() -> None:
    terms = made(None)
    assert (terms.placed(A), terms.untold({A})) == (False, [])


def test_only_what_is_ready_and_knows_other_terms_is_told() -> None:
    terms = made(plan(route(100.3)))
    assert terms.untold({A}) == [A]
    terms.told(A, terms.of(A))
    assert terms.untold({A, B}) == [B]


def test_a_plan_with_the_same_terms_is_told_to_nobody() -> None:
    terms = made(plan(route(100.3)))
    terms.told(A, terms.of(A))
    terms.make(plan(route(100.3), version=2), CATALOG, [W1])
    assert terms.untold({A}) == []
    terms.make(plan(route(200.3), version=3), CATALOG, [W1])
    assert terms.untold({A}) == [A]


def test_new_latencies_are_told() -> None:
    first = plan(route(100.3))
    terms = made(first)
    terms.told(A, terms.of(A))
    terms.make(first, replace(CATALOG, revision=2), [W1])
    assert terms.untold({A}) == [A]


def test_what_left_and_came_back_is_told_again() -> None:
    terms = made(plan(route(100.3)))
    terms.told(A, terms.of(A))
    assert terms.untold(set()) == []
    assert terms.untold({A}) == [A]
