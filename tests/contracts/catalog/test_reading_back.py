"""What is written comes back whole, from every catalog."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contracts.catalog.known import DIGITS, MLP
from tests.contracts.places import Place
from tests.variants.catalog_builders import (
    event,
    kind,
    plan,
    points,
    profile,
    registration,
    task,
    tick,
    variant,
    version,
)
from variants.catalog.protocol import Catalog
from variants.types import (
    CatalogSnapshot,
    Precision,
    Prefer,
    ProfileSource,
    Registration,
    Slo,
    Stage,
    TensorSpec,
)


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
