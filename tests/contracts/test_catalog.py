"""One contract, three catalogs: in memory, on SQLite, on PostgreSQL."""

import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contracts.places import Place, migrated_place
from tests.variants.catalog_builders import (
    event,
    kind,
    plan,
    points,
    profile,
    registration,
    route,
    set_image,
    set_labels,
    set_sharing,
    set_slo,
    task,
    tick,
    variant,
    version,
)
from variants.catalog import memory, sql
from variants.catalog.protocol import TICKS_KEPT, Catalog, Marks
from variants.errors import Conflict, InvalidInput, NotFound, StaleEpoch
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Event,
    EventFilter,
    ImageScale,
    LatencyPoint,
    ModelName,
    Precision,
    Prefer,
    ProfileSource,
    ProfilingRequest,
    QuarantineLift,
    Registration,
    Sharing,
    Slo,
    Stage,
    Task,
    TaskName,
    TensorSpec,
    Variant,
    VariantName,
)

DIGITS, MLP = TaskName("digits"), ModelName("mlp")


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def somewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with migrated_place(request.param, request, tmp_path) as made:
        yield made


@pytest.fixture
def catalog(somewhere: Place) -> Catalog:
    return somewhere.open()


def in_threads(count: int, call: Callable[[int], object]) -> list[object]:
    """What ``call(0) .. call(count - 1)`` gave, each in a thread; an error counts as a result."""

    def caught(number: int) -> object:
        try:
            return call(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(caught, range(count)))


# -- reading back -------------------------------------------------------------------------------


def test_a_new_catalog_is_empty(catalog: Catalog) -> None:
    assert catalog.snapshot() == CatalogSnapshot(revision=0)
    assert catalog.revision() == 0
    assert catalog.latest_plan() is None
    assert catalog.marks().plan_version == 0
    assert catalog.ticks(10) == ()
    assert catalog.events(10) == ()


def test_a_registration_is_read_back_whole(catalog: Catalog) -> None:
    everything = Registration(
        task=task(
            inputs=(
                TensorSpec(name="pixels", dtype="uint8", shape=(28, 28)),
                TensorSpec(name="weight", dtype="float64", shape=()),
            ),
            labels=("ä", "", "b"),
            metric="top5",
            slo=Slo(latency_ms=12.5, accuracy=0.1, cost=1e-9, prefer=Prefer.ACCURACY),
        ),
        version=replace(version(stage=Stage.CANARY), format="torch"),
        variants=(
            variant(
                runtime="echo",
                precision=Precision.BF16,
                size_bytes=3 * 2**40,
                accuracy=1 / 3,
                options={"z": "1", "a": "ü"},
            ),
        ),
        profiles=(
            profile(
                points=points((1, 0.1), (3, 1 / 3), (1024, 1e6)),
                source=ProfileSource.PREDICTED,
                host="host/1.2",
                measured_at="2026-01-02T00:00:00Z",
            ),
            profile(kind="nvidia-h200-mig-1g.18gb"),
        ),
        device_kinds=(kind(), kind("nvidia-h200-mig-1g.18gb", cores=0, gpu="NVIDIA H200")),
    )
    catalog.register(everything)
    assert catalog.snapshot() == CatalogSnapshot(
        revision=1,
        tasks=(everything.task,),
        versions=(everything.version,),
        variants=everything.variants,
        profiles=everything.profiles,
        device_kinds=everything.device_kinds,
    )


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    accuracy=st.floats(0, 1),
    size_bytes=st.integers(0, 2**63 - 1),
    memory_mib=st.floats(0, allow_infinity=False),
    latencies=st.lists(
        st.floats(0, exclude_min=True, allow_infinity=False), min_size=3, max_size=3
    ).map(sorted),
    option=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
)
def test_every_number_and_text_comes_back_as_it_was(
    catalog: Catalog,
    accuracy: float,
    size_bytes: int,
    memory_mib: float,
    latencies: list[float],
    option: str,
) -> None:
    number = catalog.next_version(DIGITS, MLP)
    name = f"mlp-v{number}-onnx-fp32"
    p50_ms, p95_ms, p99_ms = latencies
    point = replace(points((1, 1.0))[0], p50_ms=p50_ms, p95_ms=p95_ms, p99_ms=p99_ms)
    new = registration(
        number=number,
        variants=(
            variant(
                number=number, accuracy=accuracy, size_bytes=size_bytes, options={option: option}
            ),
        ),
        profiles=(profile(name, points=(point,), memory_mib=memory_mib),),
    )
    catalog.register(new)
    snapshot = catalog.snapshot()
    assert [v for v in snapshot.variants if v.name == name] == list(new.variants)
    assert [p for p in snapshot.profiles if p.variant == name] == list(new.profiles)


def test_a_snapshot_is_ordered_by_name_character_by_character(catalog: Catalog) -> None:
    for name in ("b.1", "a_1", "a-2", "a1"):
        for model, number in (("z", 1), ("m", 10), ("m", 2)):
            catalog.register(registration(model, number, of=name))
    snapshot = catalog.snapshot()
    assert [t.name for t in snapshot.tasks] == ["a-2", "a1", "a_1", "b.1"]
    assert [(v.model, v.version) for v in snapshot.versions[:3]] == [("m", 2), ("m", 10), ("z", 1)]
    assert [v.name for v in snapshot.variants[:3]] == [
        "m-v10-onnx-fp32",
        "m-v2-onnx-fp32",
        "z-v1-onnx-fp32",
    ]
    assert [(p.task, p.variant) for p in snapshot.profiles] == [v.key for v in snapshot.variants]


def test_what_a_caller_changes_later_does_not_reach_the_catalog(catalog: Catalog) -> None:
    options = {"threads": "1"}
    body: dict[str, Any] = {"demand": [1]}
    catalog.register(registration(variants=(variant(options=options),)))
    catalog.add_tick(tick(1, **body))
    options["threads"] = "2"
    body["demand"].append(2)
    assert catalog.snapshot().variants[0].options == {"threads": "1"}
    assert catalog.ticks(1) == (tick(1, demand=[1]),)


def test_another_handle_finds_everything_again(somewhere: Place) -> None:
    first = somewhere.open()
    first.register(registration())
    epoch = first.acquire_leadership("controller-1")
    first.put_plan(plan(epoch))
    first.add_tick(tick(1, qps=10))
    first.add_event(event("ready"))
    if somewhere.in_database:
        first.close()
    again = somewhere.open()
    assert again.snapshot() == CatalogSnapshot(
        revision=1,
        tasks=(task(),),
        versions=(version(),),
        variants=(variant(),),
        profiles=(profile(),),
        device_kinds=(kind(),),
    )
    assert again.latest_plan() == plan(epoch, number=1)
    assert again.ticks(10) == (tick(1, qps=10),)
    assert again.events(10) == (event("ready", seq=1),)
    assert again.leader() == "controller-1"
    assert again.acquire_leadership("controller-2") == epoch + 1
    assert again.leader() == "controller-2"


def test_before_anybody_has_led_there_is_no_leader(catalog: Catalog) -> None:
    assert catalog.leader() == ""


def test_closing_twice_is_allowed(catalog: Catalog) -> None:
    catalog.register(registration())
    catalog.close()
    catalog.close()


# -- registering --------------------------------------------------------------------------------


def test_versions_and_tasks_add_up(catalog: Catalog) -> None:
    assert catalog.next_version(DIGITS, MLP) == 1
    catalog.register(registration(number=1))
    catalog.register(registration(number=2))
    catalog.register(registration("cnn", 7))
    catalog.register(registration(of="letters"))
    assert catalog.revision() == 4
    assert catalog.next_version(DIGITS, MLP) == 3
    assert catalog.next_version(DIGITS, ModelName("cnn")) == 8
    assert catalog.next_version(TaskName("letters"), MLP) == 2
    assert [t.name for t in catalog.snapshot().tasks] == ["digits", "letters"]


def test_a_device_kind_is_replaced(catalog: Catalog) -> None:
    catalog.register(registration())
    dearer = kind(usd_per_hour=9.0)
    catalog.register(registration(number=2, device_kinds=(dearer,)))
    assert catalog.snapshot().device_kinds == (dearer,)


def test_a_device_kind_may_be_replaced_without_a_profile(catalog: Catalog) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    dearer = kind(usd_per_hour=9.0)

    catalog.put_profiles((), (dearer,))
    catalog.put_profiles((), ())

    after = catalog.snapshot()
    assert after.device_kinds == (dearer,)
    assert (after.revision, after.profiles) == (before.revision + 1, before.profiles)


def test_a_profile_may_be_of_a_device_kind_that_is_known_already(catalog: Catalog) -> None:
    catalog.register(registration())
    catalog.register(registration(number=2, device_kinds=()))
    assert len(catalog.snapshot().profiles) == 2


def test_a_task_that_exists_keeps_its_default_slo(catalog: Catalog) -> None:
    catalog.register(registration())
    catalog.register(registration(number=2, task=task(slo=Slo(latency_ms=5))))
    assert catalog.snapshot().tasks == (task(),)


CONFLICTS = {
    "the version exists": registration(variants=(variant(name="new"),), profiles=()),
    "a variant's name is taken": registration(
        number=2,
        variants=(variant(number=2, name="new"), variant(number=2, name="mlp-v1-onnx-fp32")),
        profiles=(),
    ),
    "another input": registration(
        number=2, task=task(inputs=(TensorSpec(name="pixels", dtype="float32", shape=(63,)),))
    ),
    "another output": registration(
        number=2,
        task=task(outputs=(TensorSpec(name="scores", dtype="float64", shape=(3,)),)),
    ),
    "other labels": registration(number=2, task=task(labels=("c", "b", "a"))),
    "another metric": registration(number=2, task=task(metric="top5")),
}


@pytest.mark.parametrize("wrong", CONFLICTS.values(), ids=CONFLICTS.keys())
def test_a_conflict_leaves_nothing_behind(catalog: Catalog, wrong: Registration) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    with pytest.raises(Conflict):
        catalog.register(replace(wrong, device_kinds=(kind("cpu-2"), kind(usd_per_hour=9))))
    assert catalog.snapshot() == before


def test_what_joins_a_task_does_not_make_it(catalog: Catalog) -> None:
    with pytest.raises(Conflict, match="task 'digits' was removed while 'mlp-v1' was prepared"):
        catalog.register(registration(), joins=True)
    assert catalog.snapshot() == CatalogSnapshot(revision=0)
    catalog.register(registration())
    catalog.register(registration(number=2), joins=True)
    assert [one.label for one in catalog.snapshot().versions] == ["mlp-v1", "mlp-v2"]


def test_an_invalid_registration_leaves_nothing_behind(catalog: Catalog) -> None:
    with pytest.raises(InvalidInput, match="unknown device kind 'cpu-9'"):
        catalog.register(registration(profiles=(profile(kind="cpu-9"),)))
    assert catalog.snapshot() == CatalogSnapshot(revision=0)


# -- changing -----------------------------------------------------------------------------------


def test_a_stage_is_changed(catalog: Catalog) -> None:
    catalog.register(registration(number=1))
    catalog.register(registration(number=2))
    catalog.set_stage([DIGITS], MLP, 1, Stage.RETIRED)
    assert catalog.snapshot().versions == (version(stage=Stage.RETIRED), version(number=2))
    assert catalog.revision() == 3


@pytest.mark.parametrize(
    ("of", "model", "number"), [("letters", "mlp", 1), ("digits", "cnn", 1), ("digits", "mlp", 2)]
)
def test_an_unknown_version_has_no_stage(
    catalog: Catalog, of: str, model: str, number: int
) -> None:
    catalog.register(registration())
    with pytest.raises(NotFound):
        catalog.set_stage([TaskName(of)], ModelName(model), number, Stage.LIVE)
    assert catalog.revision() == 1


def change_slo(catalog: Catalog, of: str, change: Callable[[Slo], Slo]) -> tuple[Slo, Slo]:
    before, after = catalog.change_task(TaskName(of), lambda one: replace(one, slo=change(one.slo)))
    return before.slo, after.slo


def test_a_default_slo_is_changed(catalog: Catalog) -> None:
    catalog.register(registration())
    set_sharing(catalog, DIGITS, Sharing(ttl_s=1.5, memory_mib=64.0))
    wanted = Slo(latency_ms=50.0, accuracy=0.9, cost=0.5, prefer=Prefer.ACCURACY)
    set_slo(catalog, DIGITS, wanted)
    before = catalog.snapshot()
    assert before.tasks[0].slo == wanted
    catalog.register(registration(number=2))
    assert catalog.snapshot().tasks == before.tasks
    set_slo(catalog, DIGITS, Slo(latency_ms=20.0))
    assert catalog.snapshot().tasks == (replace(before.tasks[0], slo=Slo(latency_ms=20.0)),)
    assert catalog.revision() == 5


@pytest.mark.parametrize(
    ("slo", "of"),
    [
        (Slo(latency_ms=0.0), "latency"),
        (Slo(latency_ms=math.inf), "latency"),
        (Slo(accuracy=1.1), "accuracy floor"),
        (Slo(cost=-1.0), "cost ceiling"),
        (Slo(cost=math.nan), "cost ceiling"),
    ],
)
def test_a_default_slo_that_no_query_can_have_is_refused(
    catalog: Catalog, slo: Slo, of: str
) -> None:
    catalog.register(registration())
    with pytest.raises(InvalidInput, match=f"the default {of} of task 'digits'"):
        set_slo(catalog, DIGITS, slo)
    assert (catalog.snapshot().tasks, catalog.revision()) == ((task(),), 1)


def test_a_default_slo_is_changed_by_what_it_is(catalog: Catalog) -> None:
    catalog.register(registration())
    before = catalog.snapshot().tasks[0].slo

    def halved(slo: Slo) -> Slo:
        return replace(slo, latency_ms=slo.latency_ms / 2)

    after = halved(before)
    assert change_slo(catalog, DIGITS, halved) == (before, after)
    assert change_slo(catalog, DIGITS, lambda slo: slo) == (after, after)
    assert (catalog.snapshot().tasks[0].slo, catalog.revision()) == (after, 2)
    with pytest.raises(InvalidInput, match="the default latency of task 'digits'"):
        change_slo(catalog, DIGITS, lambda slo: replace(slo, latency_ms=-1.0))
    assert (catalog.snapshot().tasks[0].slo, catalog.revision()) == (after, 2)


def test_an_unknown_task_has_no_default_slo(catalog: Catalog) -> None:
    catalog.register(registration())
    with pytest.raises(NotFound, match="there is no task 'letters'"):
        set_slo(catalog, TaskName("letters"), Slo())
    with pytest.raises(NotFound, match="there is no task 'letters'"):
        change_slo(catalog, TaskName("letters"), lambda slo: slo)
    assert catalog.revision() == 1


def test_the_classes_of_a_task_are_named_later_and_again(catalog: Catalog) -> None:
    unnamed = registration(task=task(labels=()))
    catalog.register(unnamed)
    names = ("cat", "dog", "owl")
    for labels in (names, names[::-1], ()):
        set_labels(catalog, DIGITS, labels)
        assert catalog.snapshot().tasks == (replace(unnamed.task, labels=labels),)
    assert catalog.revision() == 4
    set_labels(catalog, DIGITS, names)
    catalog.register(registration(number=2, task=task(labels=names)))


@pytest.mark.parametrize(
    ("labels", "wrong"),
    [
        (("a", "b"), "has 2 labels, but output 'scores' has 3 classes"),
        (("a", "b", "a"), "has the same label for two classes"),
        (("", "b", "c"), "a label of task 'digits'"),
    ],
)
def test_names_that_are_not_those_of_a_tasks_classes_are_refused(
    catalog: Catalog, labels: tuple[str, ...], wrong: str
) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    with pytest.raises(InvalidInput, match=wrong):
        set_labels(catalog, DIGITS, labels)
    with pytest.raises(NotFound, match="there is no task 'letters'"):
        set_labels(catalog, TaskName("letters"), ())
    assert catalog.snapshot() == before


def test_how_answers_of_a_task_are_shared_is_kept(catalog: Catalog) -> None:
    catalog.register(registration())
    assert catalog.snapshot().tasks[0].sharing is None
    shared = Sharing(ttl_s=1.5, memory_mib=64.0)
    set_sharing(catalog, DIGITS, shared)
    assert catalog.snapshot().tasks[0].sharing == shared
    catalog.register(registration(number=2))
    assert catalog.snapshot().tasks[0].sharing == shared
    set_sharing(catalog, DIGITS, None)
    assert catalog.snapshot().tasks[0].sharing is None
    assert catalog.revision() == 4


@pytest.mark.parametrize(
    ("ttl_s", "memory_mib"),
    [(-1.0, 64.0), (math.nan, 64.0), (700_000.0, 64.0), (60.0, 0.0), (60.0, 65_537.0)],
)
def test_limits_that_nobody_can_mean_are_refused(
    catalog: Catalog, ttl_s: float, memory_mib: float
) -> None:
    catalog.register(registration())
    with pytest.raises(InvalidInput, match="answers of task 'digits' cannot"):
        set_sharing(catalog, DIGITS, Sharing(ttl_s=ttl_s, memory_mib=memory_mib))
    assert catalog.revision() == 1


def test_an_unknown_task_shares_nothing(catalog: Catalog) -> None:
    catalog.register(registration())
    with pytest.raises(NotFound, match="there is no task 'letters'"):
        set_sharing(catalog, TaskName("letters"), Sharing(ttl_s=1.0, memory_mib=1.0))
    assert catalog.revision() == 1


def pictured(**changes: Any) -> Task:
    return task(inputs=(TensorSpec(name="pixels", dtype="float32", shape=(3, 8, 8)),), **changes)


def test_how_pictures_of_a_task_become_numbers_is_kept(catalog: Catalog) -> None:
    said = ImageScale(mean=(0.485, 0.456, 0.406), std=(0.25,))
    catalog.register(registration(task=pictured(image=said)))
    assert catalog.snapshot().tasks[0].image == said
    catalog.register(registration(number=2, task=pictured()))
    assert catalog.snapshot().tasks[0].image == said
    anew = ImageScale(std=(0.0625,))
    set_image(catalog, DIGITS, anew)
    assert catalog.snapshot().tasks[0].image == anew
    set_sharing(catalog, DIGITS, Sharing(ttl_s=1.0, memory_mib=1.0))
    assert catalog.snapshot().tasks[0].image == anew
    set_image(catalog, DIGITS, None)
    assert catalog.snapshot().tasks[0].image is None
    assert catalog.revision() == 5


@pytest.mark.parametrize(
    "image", [ImageScale(std=(0.0,)), ImageScale(mean=(0.1, 0.2)), ImageScale(mean=(math.nan,))]
)
def test_numbers_that_no_picture_can_have_are_refused(catalog: Catalog, image: ImageScale) -> None:
    catalog.register(registration(task=pictured()))
    with pytest.raises(InvalidInput, match="of task 'digits'"):
        set_image(catalog, DIGITS, image)
    assert (catalog.snapshot().tasks[0].image, catalog.revision()) == (None, 1)


def test_profiles_are_added_and_replaced(catalog: Catalog) -> None:
    catalog.register(registration(device_kinds=(kind(), kind("cpu-2"))))
    replaced = profile(points=points((1, 2.0)), source=ProfileSource.PREDICTED)
    added = profile(kind="cpu-2", working_mib=6.5)
    catalog.put_profiles((profile(memory_mib=99.0), added, replaced))
    assert catalog.snapshot().profiles == (replaced, added)
    assert catalog.revision() == 2


def test_profiles_bring_a_new_device_kind_along(catalog: Catalog) -> None:
    catalog.register(registration())
    known = catalog.snapshot()
    (variant_known, *_) = known.variants
    new = kind(name="cpu-7")
    added = replace(known.profiles[0], device_kind=new.name, variant=variant_known.name)
    catalog.put_profiles((added,), (new,))
    assert new in catalog.snapshot().device_kinds
    assert added in catalog.snapshot().profiles


def request(name: str = "mlp-v1-onnx-fp32", cpu: str = "cpu-1", reason: str = "slow") -> Any:
    return ProfilingRequest(
        task=DIGITS, variant=VariantName(name), device_kind=DeviceKindName(cpu), reason=reason
    )


def test_a_profiling_request_stands_until_the_profile_comes(catalog: Catalog) -> None:
    catalog.register(registration())
    before = catalog.revision()
    catalog.request_profiling((request(reason="slow"), request(cpu="cpu-9")))
    catalog.request_profiling((request(reason="slower"),))
    assert catalog.profiling_requests() == (request(), request(cpu="cpu-9"))
    assert catalog.revision() == before
    catalog.put_profiles((profile(),))
    assert catalog.profiling_requests() == (request(cpu="cpu-9"),)


def test_a_profiling_request_made_anew_replaces_one_that_stands(catalog: Catalog) -> None:
    catalog.register(registration())
    catalog.request_profiling((request(reason="slow"), request(cpu="cpu-9")))
    catalog.request_profiling((request(reason="slower"),), anew=True)
    assert catalog.profiling_requests() == (request(reason="slower"), request(cpu="cpu-9"))


def test_profiling_of_an_unknown_variant_cannot_be_requested(catalog: Catalog) -> None:
    catalog.register(registration())
    with pytest.raises(NotFound, match="no variant 'nobody'"):
        catalog.request_profiling((request(), request("nobody")))
    assert catalog.profiling_requests() == ()


def test_many_may_request_the_same_profiling_at_once(catalog: Catalog) -> None:
    catalog.register(registration())
    in_threads(8, lambda _: catalog.request_profiling((request(),)))
    assert catalog.profiling_requests() == (request(),)


def test_variants_join_a_version_later(catalog: Catalog) -> None:
    catalog.register(registration())
    late = variant(name="mlp-v1-onnx-int8", agreement=0.99, note="one node in fp32")
    measured = profile("mlp-v1-onnx-int8", kind="cpu-4")
    before = catalog.snapshot()
    catalog.add_variants((late,), (measured,), (kind("cpu-4"),))
    after = catalog.snapshot()
    assert after.revision == before.revision + 1
    assert [v for v in after.variants if v not in before.variants] == [late]
    assert set(after.profiles) - set(before.profiles) == {measured}


@pytest.mark.parametrize(
    ("late", "error"),
    [
        (variant(name="mlp-v1-onnx-fp32"), Conflict),
        (variant(number=7, name="late"), NotFound),
        (variant(name="late", accuracy=2.0), InvalidInput),
        (variant(name="late", agreement=-0.1), InvalidInput),
    ],
    ids=["taken", "no version", "accuracy", "agreement"],
)
def test_a_variant_that_cannot_join_changes_nothing(
    catalog: Catalog, late: Variant, error: type[Exception]
) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    with pytest.raises(error):
        catalog.add_variants((late, replace(late, name=VariantName("fine"))), ())
    assert catalog.snapshot() == before


def test_what_answers_are_worth_by_other_rows_is_written_and_nothing_else(
    catalog: Catalog,
) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    (known,) = before.variants
    other = replace(
        known, accuracy=0.5, accuracy_rows=7, agreement=0.25, note="R2 is -1", size_bytes=1,
        options={"threads": "3"},
    )  # fmt: skip
    catalog.put_judged((other,))
    after = catalog.snapshot()
    assert after == replace(
        before,
        revision=before.revision + 1,
        variants=(replace(known, accuracy=0.5, accuracy_rows=7, agreement=0.25, note="R2 is -1"),),
    )
    catalog.put_judged(())
    assert catalog.revision() == after.revision


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"name": "other"}, NotFound),
        ({"artifact": "f" * 64}, NotFound),
        ({"accuracy": 1.5}, InvalidInput),
        ({"accuracy": math.nan}, InvalidInput),
        ({"agreement": -0.1}, InvalidInput),
        ({"accuracy_rows": -1}, InvalidInput),
    ],
    ids=["unknown", "built anew", "accuracy", "no number", "agreement", "rows"],
)
def test_of_what_cannot_be_judged_so_nothing_is_written(
    catalog: Catalog, change: dict[str, Any], error: type[Exception]
) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    (known,) = before.variants
    with pytest.raises(error):
        catalog.put_judged((replace(known, accuracy=0.1), replace(known, **change)))
    assert catalog.snapshot() == before


def test_what_a_cost_model_predicted_is_kept_as_that(catalog: Catalog) -> None:
    guessed = LatencyPoint(batch_size=1, p50_ms=1.0, p95_ms=2.0, p99_ms=3.0, error=0.1)
    predicted = replace(
        profile(), points=(guessed,), source=ProfileSource.PREDICTED, cold_load_s=2.0, energy_j=0.1
    )
    catalog.register(registration())
    catalog.put_profiles((predicted,))
    assert catalog.snapshot().profiles == (predicted,)
    with pytest.raises(InvalidInput, match="predicted points"):
        catalog.put_profiles((replace(predicted, source=ProfileSource.MEASURED),))


def test_what_was_measured_of_energy_is_kept_and_blanks_stay_blank(catalog: Catalog) -> None:
    points = (
        LatencyPoint(batch_size=1, p50_ms=1.0, p95_ms=2.0, p99_ms=3.0, energy_j=0.5),
        LatencyPoint(batch_size=2, p50_ms=1.0, p95_ms=2.0, p99_ms=3.0),
    )
    day = tuple(float(hour) for hour in range(24))
    green = kind(idle_w=12.5, carbon_g_per_kwh=day)
    catalog.register(registration())
    catalog.put_profiles((profile(points=points),), (green,))
    found = catalog.snapshot()
    assert found.profiles == (profile(points=points),)
    assert found.device_kinds[0] == green
    dearer = replace(green, usd_per_hour=9.0)
    catalog.put_profiles((profile(),), (replace(dearer, idle_w=None),))
    assert catalog.snapshot().device_kinds[0] == dearer  # what was known of its draw stays
    with pytest.raises(InvalidInput, match="2 numbers, not 1 or 24"):
        catalog.put_profiles((profile(),), (replace(green, carbon_g_per_kwh=(1.0, 2.0)),))
    with pytest.raises(InvalidInput, match="idle draw"):
        catalog.put_profiles((profile(),), (replace(green, idle_w=-1.0),))


def test_no_profiles_change_nothing(catalog: Catalog) -> None:
    catalog.put_profiles(())
    assert catalog.revision() == 0


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (profile("nobody"), NotFound),
        (profile(of="letters"), NotFound),
        (profile(kind="cpu-9"), NotFound),
        (profile(points=()), InvalidInput),
    ],
    ids=["variant", "task", "device kind", "no points"],
)
def test_a_wrong_profile_keeps_the_right_ones_out(
    catalog: Catalog, wrong: Any, error: type[Exception]
) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    with pytest.raises(error):
        catalog.put_profiles((profile(memory_mib=99.0), wrong))
    assert catalog.snapshot() == before


# -- plans --------------------------------------------------------------------------------------


def test_the_inventory_is_what_was_asked_for_last(catalog: Catalog) -> None:
    before = catalog.revision()
    assert catalog.inventory() == {}
    catalog.set_inventory(DeviceKindName("cpu-2"), 2)
    catalog.set_inventory(DeviceKindName("cpu-1"), 0)
    catalog.set_inventory(DeviceKindName("cpu-2"), 1)
    assert catalog.inventory() == {"cpu-1": 0, "cpu-2": 1}
    assert catalog.revision() == before


def test_the_marks_are_revision_plan_and_inventory(catalog: Catalog) -> None:
    assert catalog.marks() == Marks(revision=0, plan_version=0, inventory={})
    catalog.register(registration())
    catalog.put_plan(plan(catalog.acquire_leadership("controller-1")))
    catalog.set_inventory(DeviceKindName("cpu-2"), 2)
    assert catalog.marks() == Marks(
        revision=1, plan_version=1, inventory={DeviceKindName("cpu-2"): 2}
    )
    assert catalog.marks().inventory == catalog.inventory()


def test_the_latest_lift_of_a_quarantine_counts(catalog: Catalog) -> None:
    made = registration()
    catalog.register(made)
    before, (variant, *_) = catalog.revision(), made.variants

    def lift(at_s: float) -> QuarantineLift:
        return QuarantineLift(task=variant.task, variant=variant.name, at_s=at_s)

    assert catalog.quarantine_lifts() == ()
    for at_s in (5.0, 7.5, 6.0):
        catalog.lift_quarantine(lift(at_s))
    assert catalog.quarantine_lifts() == (lift(7.5),)
    for at_s in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInput):
            catalog.lift_quarantine(lift(at_s))
    with pytest.raises(NotFound):
        catalog.lift_quarantine(replace(lift(8.0), variant=VariantName("none")))
    assert (catalog.quarantine_lifts(), catalog.revision()) == ((lift(7.5),), before)


@pytest.mark.parametrize(("name", "count"), [("cpu-1", -1), ("cpu-1", 10_001), ("CPU 1", 1)])
def test_an_inventory_that_cannot_be_is_refused(catalog: Catalog, name: str, count: int) -> None:
    with pytest.raises(InvalidInput):
        catalog.set_inventory(DeviceKindName(name), count)
    assert catalog.inventory() == {}


def test_plans_get_versions_that_grow(catalog: Catalog) -> None:
    epoch = catalog.acquire_leadership("controller-1")
    assert epoch == 1
    assert catalog.put_plan(plan(epoch, share=0.1)) == plan(epoch, share=0.1, number=1)
    assert catalog.put_plan(plan(epoch, share=0.2)) == plan(epoch, share=0.2, number=2)
    assert catalog.latest_plan() == plan(epoch, share=0.2, number=2)
    assert catalog.marks().plan_version == 2


def test_plans_keep_their_routes(catalog: Catalog) -> None:
    epoch = catalog.acquire_leadership("controller-1")
    routes = (route(100.0, slo_ms=180.0), route(200.0))
    catalog.put_plan(replace(plan(epoch), routes=routes))
    assert catalog.latest_plan() == replace(plan(epoch, number=1), routes=routes)


def test_an_older_leader_cannot_plan(catalog: Catalog) -> None:
    old = catalog.acquire_leadership("controller-1")
    catalog.put_plan(plan(old))
    new = catalog.acquire_leadership("controller-2")
    with pytest.raises(StaleEpoch):
        catalog.put_plan(plan(old, share=0.9))
    assert catalog.latest_plan() == plan(old, number=1)
    assert catalog.put_plan(plan(new)).version == 2


@pytest.mark.parametrize("epoch", [0, 2])
def test_nobody_plans_under_an_epoch_that_was_not_given_out(catalog: Catalog, epoch: int) -> None:
    if epoch:
        catalog.acquire_leadership("controller-1")
    with pytest.raises(StaleEpoch):
        catalog.put_plan(plan(epoch))
    assert catalog.latest_plan() is None


def test_a_plan_does_not_advance_the_revision(catalog: Catalog) -> None:
    catalog.put_plan(plan(catalog.acquire_leadership("controller-1")))
    assert catalog.revision() == 0


# -- ticks and events ---------------------------------------------------------------------------


def test_ticks_come_newest_first(catalog: Catalog) -> None:
    for number in (1, 2, 3):
        catalog.add_tick(tick(number, qps=number * 10))
    assert catalog.ticks(2) == (tick(3, qps=30), tick(2, qps=20))
    assert catalog.ticks(0) == ()


def test_ticks_that_changed_something(catalog: Catalog) -> None:
    """A plan other than before, or actions; bodies of any other shape began nothing."""
    load = {"action": "load"}
    for number, actions in enumerate(([], [], [], [load], [], [load], [])):
        catalog.add_tick(tick((1, 1, 2, 2, 2, 3, 3)[number], actions=actions))
    catalog.add_tick(tick(3, qps=1))
    changed = catalog.ticks(10, changes=True)
    assert changed == (
        tick(3, actions=[load]), tick(2, actions=[load]), tick(2, actions=[]), tick(1, actions=[]),
    )  # fmt: skip
    assert catalog.ticks(2, changes=True) == changed[:2]


def test_ticks_with_other_rates_alone_changed_nothing(catalog: Catalog) -> None:
    for number, changes in ((0, []), (1, []), (2, ["w1 gets a"]), (3, []), (4, [])):
        catalog.add_tick(tick(number, actions=[], changes=changes))
    found = catalog.ticks(10, changes=True)
    assert [record.plan_version for record in found] == [2, 1, 0]


def test_only_the_newest_ticks_are_kept(somewhere: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand, of which each takes a database milliseconds: here only a few."""
    assert TICKS_KEPT == 1_000
    for catalogs in (memory, sql):
        monkeypatch.setattr(catalogs, "TICKS_KEPT", 20)
    catalog = somewhere.open()
    for number in range(23):
        catalog.add_tick(tick(number))
    kept = catalog.ticks(2_000)
    assert [record.plan_version for record in kept] == list(range(22, 2, -1))


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()], ids=["NaN", "set", "object"])
def test_a_tick_that_json_cannot_say_is_refused(catalog: Catalog, value: object) -> None:
    with pytest.raises(InvalidInput, match="not plain JSON"):
        catalog.add_tick(tick(1, value=value))
    assert catalog.ticks(1) == ()


def test_a_body_is_what_json_makes_of_it(catalog: Catalog) -> None:
    body = {"a": [1, 2.5, None, True], "b": {"ü": "\0"}, "tuple": (1, 2)}
    catalog.add_tick(tick(1, **body))
    assert catalog.ticks(1)[0].body == json.loads(json.dumps(body))


def test_events_are_numbered_and_come_newest_first(catalog: Catalog) -> None:
    for message in ("one", "two", "three"):
        catalog.add_event(event(message, seq=77))
    one, two, three = (event(m, seq=i) for i, m in enumerate(("one", "two", "three"), start=1))
    assert catalog.events(10) == (three, two, one)
    assert catalog.events(1) == (three,)
    assert catalog.events(10, EventFilter(after=1)) == (three, two)
    assert catalog.events(10, EventFilter(after=3)) == ()


def test_several_events_are_kept_at_once_or_not_at_all(catalog: Catalog) -> None:
    catalog.add_event()
    with pytest.raises(InvalidInput):
        catalog.add_event(event("one"), event("\0"))
    assert catalog.events(10) == ()
    catalog.add_event(event("one"))
    catalog.add_event(event("two"), event("three"))
    assert catalog.events(10) == (event("three", seq=3), event("two", seq=2), event("one", seq=1))


WHAT_HAPPENED = (
    ("loaded", "digits/mlp-v1 on cpu-4-a", "2026-01-01T00:00:00.500+00:00"),
    ("worker_lost", "cpu-4-a", "2026-01-01T00:00:01+00:00"),
    ("worker_lost", "cpu-4-aa", "2026-01-01T00:00:02.250+00:00"),
    ("slo_changed", "digits", "2026-01-01T00:00:03+00:00"),
    ("loaded", "digits_/mlp-v1 on b", "2026-01-01T00:00:04+00:00"),
    ("loaded", "Digits/mlp-v1 on CPU-4-a", "2026-01-01T00:00:05+00:00"),
    ("started", "a", "2026-01-01T00:00:06+00:00"),
)


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        (EventFilter(), [7, 6, 5, 4, 3, 2, 1]),
        (EventFilter(kinds=frozenset({"loaded"})), [6, 5, 1]),
        (EventFilter(kinds=frozenset({"loaded", "slo_changed"}), after=1), [6, 5, 4]),
        (EventFilter(since="2026-01-01T00:00:02"), [7, 6, 5, 4, 3]),
        (EventFilter(tasks=frozenset({"digits"})), [4, 1]),
        (EventFilter(tasks=frozenset({"digit_"})), []),
        (EventFilter(worker="cpu-4-a"), [2, 1]),
        (EventFilter(worker="cpu-4-a", tasks=frozenset({"digits"})), [1]),
        (EventFilter(worker="%"), []),
        (EventFilter(worker="a" * 100), []),
    ],
)
def test_events_are_those_that_are_asked_for(
    catalog: Catalog, asked: EventFilter, numbers: list[int]
) -> None:
    for what, subject, at in WHAT_HAPPENED:
        catalog.add_event(Event(at=at, kind=what, subject=subject, message="so"))
    assert [one.seq for one in catalog.events(10, asked)] == numbers
    assert [one.seq for one in catalog.events(1, asked)] == numbers[:1]


def test_an_event_with_text_that_cannot_be_stored_is_refused(catalog: Catalog) -> None:
    for text in ("\0", "\ud800"):
        with pytest.raises(InvalidInput):
            catalog.add_event(event(text))
    assert catalog.events(10) == ()


def test_what_no_catalog_can_hold_is_not_there(catalog: Catalog) -> None:
    """A database that cannot even look for it is not away: nobody is to try it again."""
    catalog.register(registration())
    with pytest.raises((NotFound, InvalidInput)):
        catalog.set_stage([DIGITS], ModelName("a\0b"), 1, Stage.LIVE)
    with pytest.raises((NotFound, InvalidInput)):
        catalog.set_stage([DIGITS], MLP, 2**63, Stage.LIVE)
    with suppress(InvalidInput):
        assert catalog.events(10, EventFilter(after=2**63)) == ()


# -- many writers -------------------------------------------------------------------------------


def test_of_two_equal_registrations_one_wins(somewhere: Place) -> None:
    handles = [somewhere.open() for _ in range(4)]
    outcomes = in_threads(4, lambda i: handles[i].register(registration()))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        "Conflict",
        "Conflict",
        "Conflict",
        "NoneType",
    ]
    assert handles[0].revision() == 1


def test_no_registration_is_lost(somewhere: Place) -> None:
    handles = [somewhere.open() for _ in range(2)]

    def register_five(i: int) -> None:
        for number in range(1, 6):
            handles[i % 2].register(registration(f"model-{i}", number))

    assert in_threads(4, register_five) == [None] * 4
    assert handles[0].revision() == 20
    assert len(handles[1].snapshot().versions) == 20


def test_no_change_of_a_default_slo_is_lost(somewhere: Place) -> None:
    handles = [somewhere.open() for _ in range(2)]
    handles[0].register(registration())
    before = handles[0].snapshot().tasks[0].slo.latency_ms

    def one_more(slo: Slo) -> Slo:
        return replace(slo, latency_ms=slo.latency_ms + 1)

    in_threads(8, lambda i: change_slo(handles[i % 2], DIGITS, one_more))
    assert handles[1].snapshot().tasks[0].slo.latency_ms == before + 8


def test_a_snapshot_never_shows_half_a_registration(somewhere: Place) -> None:
    writer, reader = somewhere.open(), somewhere.open()

    def write_or_read(i: int) -> list[CatalogSnapshot]:
        if i == 0:
            for number in range(1, 21):
                writer.register(registration(number=number))
            return []
        return [reader.snapshot() for _ in range(20)]

    written, *read = in_threads(3, write_or_read)
    assert written == []
    for snapshots in read:
        assert isinstance(snapshots, list)
        for seen in snapshots:
            sizes = [len(seen.versions), len(seen.variants), len(seen.profiles)]
            assert sizes == [seen.revision] * 3


def test_every_leader_gets_an_epoch_of_its_own(somewhere: Place) -> None:
    handles = [somewhere.open() for _ in range(2)]
    epochs = in_threads(8, lambda i: handles[i % 2].acquire_leadership(f"controller-{i}"))
    assert sorted(map(str, epochs)) == [str(i) for i in range(1, 9)]


def test_every_plan_gets_a_version_of_its_own(somewhere: Place) -> None:
    handles = [somewhere.open() for _ in range(2)]
    epoch = handles[0].acquire_leadership("controller-1")
    stored = in_threads(8, lambda i: handles[i % 2].put_plan(plan(epoch)).version)
    assert sorted(map(str, stored)) == [str(i) for i in range(1, 9)]


def test_after_a_change_of_leader_no_plan_of_the_old_one_appears(somewhere: Place) -> None:
    old, new = somewhere.open(), somewhere.open()
    first = old.acquire_leadership("controller-1")

    def plan_or_take_over(i: int) -> list[int]:
        if i == 0:
            second = new.acquire_leadership("controller-2")
            return [new.put_plan(plan(second)).version]
        stored = []
        for _ in range(30):
            try:
                stored.append(old.put_plan(plan(first)).version)
            except StaleEpoch:
                break
        return stored

    taken_over, before = in_threads(2, plan_or_take_over)
    assert isinstance(taken_over, list)
    assert isinstance(before, list)
    assert max(before, default=0) < taken_over[0]
    latest = new.latest_plan()
    assert latest is not None
    assert (latest.version, latest.epoch) == (taken_over[0], first + 1)


def test_events_of_many_writers_are_numbered_without_gaps(somewhere: Place) -> None:
    handles = [somewhere.open() for _ in range(2)]

    def add_five(i: int) -> None:
        for _ in range(5):
            handles[i % 2].add_event(event(f"from {i}"))

    assert in_threads(4, add_five) == [None] * 4
    assert [e.seq for e in handles[0].events(100)] == list(range(20, 0, -1))
