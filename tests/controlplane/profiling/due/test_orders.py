"""What is measured first."""

from collections.abc import Sequence
from dataclasses import replace

from controlplane.profiling.due.orders import MeasuringOrder, candidates, orders
from controlplane.profiling.due.profiles import Cause, requests_for
from controlplane.profiling.due.unanswered import unanswered
from planner.types import Demand
from tests.variants.catalog_builders import kind, points, profile, registration, version
from variants.catalog.memory import MemoryCatalog
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    ProfileSource,
    ProfilingRequest,
    Route,
    Stage,
    TaskName,
    VariantName,
    WorkerId,
)

HEAD = "Old; 2 cores; Linux 6.1; onnxruntime 1.31"
NODE = "New; 2 cores; Linux 6.1; onnxruntime 1.31"
NEW_KIND = kind("cpu-1-new")


def catalog() -> CatalogSnapshot:
    """Two tasks; of digits a quick model that beats a slow one, and a canary."""
    made = MemoryCatalog()
    for of, model, stage, ms in (
        ("digits", "slow", Stage.LIVE, 9.0),
        ("digits", "quick", Stage.LIVE, 1.0),
        ("digits", "fresh", Stage.CANARY, 1.0),
        ("words", "only", Stage.LIVE, 9.0),
    ):
        known = profile(f"{model}-v1-onnx-fp32", of, points=points((1, ms)), host=HEAD)
        staged = version(model, of=of, stage=stage)
        made.register(registration(model, of=of, version=staged, profiles=(known,)))
    return made.snapshot()


def found(
    snapshot: CatalogSnapshot,
    *kinds: DeviceKind,
    hosts: Sequence[str] = (),
    requests: Sequence[ProfilingRequest] = (),
) -> list[MeasuringOrder]:
    rates = {TaskName("words"): 9.0, TaskName("digits"): 1.0}
    return orders(snapshot, kinds, requests, lambda *_: hosts, rates)


def models(ordered: Sequence[MeasuringOrder]) -> list[str]:
    return [order.due.variant.model for order in ordered]


def test_a_new_kind_is_measured_with_what_may_be_worth_it_first() -> None:
    ordered = found(catalog(), kind(), NEW_KIND)

    assert models(ordered) == ["only", "quick", "slow", "fresh"]
    assert {(order.due.kind.name, order.due.cause) for order in ordered} == {
        (NEW_KIND.name, Cause.MISSING)
    }


def test_of_what_is_worth_as_much_the_quickest_elsewhere_comes_first() -> None:
    made = MemoryCatalog()
    for model, ms in (("a", 1.0), ("b", 9.0), ("c", 3.0)):
        of_it = profile(f"{model}-v1-onnx-fp32", points=points((1, ms)), host=HEAD)
        made.register(registration(model, version=version(model), profiles=(of_it,)))
    known = made.snapshot()
    accuracies = {"a": 0.9, "b": 0.99, "c": 0.95}
    variants = tuple(replace(v, accuracy=accuracies[v.model]) for v in known.variants)
    there = replace(known.profiles[0], device_kind=NEW_KIND.name)
    known = replace(known, variants=variants, profiles=(*known.profiles, there))

    assert models(found(known, NEW_KIND)) == ["c", "b"]


def test_tasks_that_cannot_be_answered_get_one_variant_each_first() -> None:
    """However little is asked of them; of a task the most accurate, even one that is beaten."""
    known = catalog()
    accuracies = {"slow": 0.99, "quick": 0.9, "fresh": 0.999, "only": 0.8}
    variants = tuple(replace(v, accuracy=accuracies[v.model]) for v in known.variants)
    known = replace(known, variants=variants)

    assert models(found(known, NEW_KIND)) == ["only", "slow", "quick", "fresh"]
    measured = replace(known.profiles[-1], device_kind=NEW_KIND.name)
    assert measured.task == "words"
    known = replace(known, profiles=(*known.profiles, measured))
    assert models(found(known, NEW_KIND)) == ["slow", "quick", "fresh"]


def test_candidates_are_of_tasks_without_a_measured_variant_that_answers() -> None:
    known = catalog()
    due = [order.due for order in found(known, NEW_KIND)]

    def rows(snapshot: CatalogSnapshot) -> dict[str, list[str]]:
        of = candidates(due, snapshot, {NEW_KIND.name})
        return {row[0].variant.task: [one.variant.model for one in row] for row in of}

    assert rows(known) == {"words": ["only"], "digits": ["quick", "slow", "fresh"]}
    fresh = next(one for one in known.profiles if one.variant.startswith("fresh"))
    of_canary = replace(fresh, device_kind=NEW_KIND.name)
    known = replace(known, profiles=(*known.profiles, of_canary))
    assert rows(known) == {"words": ["only"]}
    staged = tuple(
        replace(v, stage=Stage.RETIRED) if v.stage is Stage.CANARY else v for v in known.versions
    )
    assert rows(replace(known, versions=staged)).keys() == {"words", "digits"}


def test_a_profile_of_another_machine_is_not_true_where_workers_run() -> None:
    assert found(catalog(), kind(), hosts=[NODE, HEAD]) == []
    [first, *_] = ordered = found(catalog(), kind(), hosts=[NODE])

    assert len(ordered) == 4
    assert (first.due.cause, first.due.reason) == (Cause.STALE, "processor Old -> New")


def test_predictions_wait_for_a_request_and_what_was_disturbed_comes_last() -> None:
    snapshot = catalog()
    changed = [
        replace(snapshot.profiles[0], source=ProfileSource.PREDICTED),
        replace(snapshot.profiles[1], beside_load=True),
        *snapshot.profiles[2:],
    ]
    snapshot = replace(snapshot, profiles=tuple(changed))
    [disturbed] = found(snapshot, kind())
    assert disturbed.due.cause is Cause.DISTURBED
    asked = replace(disturbed.due, cause=Cause.ASKED, variant=snapshot.variants[-1])

    ordered = found(snapshot, kind(), requests=requests_for([asked], "noon"))

    assert [(order.due.cause, order.due.reason) for order in ordered] == [
        (Cause.REQUESTED, "was asked for at noon"),
        (Cause.DISTURBED, "was measured beside other work"),
    ]


def asked(ms: float, accuracy: float | None = None, variant: str | None = None) -> Demand:
    pinned = None if variant is None else VariantName(variant)
    return Demand(
        task=TaskName("digits"), latency_ms=ms, accuracy=accuracy, qps=5.0, variant=pinned
    )


def test_a_class_that_nothing_measured_answers_hurries_the_quickest_that_may() -> None:
    """Only what takes 9 ms was measured on the kind that workers are of now."""
    known = catalog()
    accuracies = {"slow": 0.99, "quick": 0.9, "fresh": 0.999, "only": 0.8}
    variants = tuple(replace(v, accuracy=accuracies[v.model]) for v in known.variants)
    there = tuple(
        replace(one, device_kind=NEW_KIND.name) for one in known.profiles
        if one.variant.split("-")[0] in ("slow", "only")
    )  # fmt: skip
    kinds = (*known.device_kinds, NEW_KIND)
    known = replace(
        known, variants=variants, profiles=(*known.profiles, *there), device_kinds=kinds
    )
    demand = (
        asked(5.0), asked(50.0), asked(5.0, 0.95), asked(0.1),
        asked(5.0, None, "fresh-v1-onnx-fp32"),
    )  # fmt: skip
    unmet = unanswered(known, {NEW_KIND.name}, demand)
    assert unmet == (demand[0], *demand[2:])

    def hurried(*classes: Demand) -> list[str]:
        ordered = orders(known, (NEW_KIND,), (), lambda *_: (), {}, unmet=classes)
        return [one.due.variant.model for one in ordered if one.hurried]

    assert hurried() == []
    assert hurried(demand[0]) == ["quick"]
    assert hurried(demand[2]) == []  # too inaccurate
    assert hurried(demand[3]) == []  # nowhere quick enough
    assert hurried(demand[4]) == ["fresh"]
    assert hurried(*unmet) == ["quick", "fresh"]


def test_a_class_of_which_too_little_is_served_hurries_what_takes_far_less() -> None:
    """The workers can do it, and not as often as it is asked for."""
    known = catalog()
    accuracies = {"slow": 0.9, "quick": 0.9, "fresh": 0.999, "only": 0.8}
    variants = tuple(replace(v, accuracy=accuracies[v.model]) for v in known.variants)
    there = tuple(
        replace(one, device_kind=NEW_KIND.name)
        for one in known.profiles
        if one.variant.startswith(("slow", "only"))
    )
    kinds = (*known.device_kinds, NEW_KIND)
    known = replace(
        known, variants=variants, profiles=(*known.profiles, *there), device_kinds=kinds
    )
    one = asked(50.0)

    def served(qps: float) -> tuple[Route, ...]:
        route = Route(
            task=one.task, latency_ms=50.0, accuracy=None, variant=VariantName("slow-v1-onnx-fp32"),
            worker=WorkerId("w1"), batch_size=1, qps=qps,
        )  # fmt: skip
        return (route,)

    new = {NEW_KIND.name}
    assert unanswered(known, new, (one,)) == ()
    assert unanswered(known, new, (one,), served(one.qps)) == ()
    assert unanswered(known, new, (one,), served(one.qps / 2)) == (one,)
    ordered = orders(known, (NEW_KIND,), (), lambda *_: (), {}, unmet=(one,))
    assert [each.due.variant.model for each in ordered if each.hurried] == ["quick"]
    alike = tuple(replace(p, points=points((1, 8.0))) for p in known.profiles)
    ordered = orders(
        replace(known, profiles=alike), (NEW_KIND,), (), lambda *_: (), {}, unmet=(one,)
    )
    assert not any(each.hurried for each in ordered if each.task.name == one.task)
