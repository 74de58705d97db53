"""A task's default SLO, and the names of its classes, over the control API."""

import asyncio
import threading
from typing import Any

import httpx
import pytest

from variants.catalog.memory import MemoryCatalog
from variants.types import CatalogSnapshot, ImageScale, Prefer, Slo

PATH = "/v1/tasks/digits/slo"


async def test_what_is_given_changes_and_the_rest_stays(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    before = catalog.snapshot().tasks[0].slo
    for _ in range(2):
        reply = await api.patch(PATH, json={"latency_ms": 50, "accuracy": 0.9, "cost": 0.5})
        assert (reply.status_code, reply.json()["slo"]) == (
            200, {"latency_ms": 50.0, "accuracy": 0.9, "cost": 0.5, "prefer": str(before.prefer)},
        )  # fmt: skip
    assert (await api.get("/v1/tasks/digits")).json() == reply.json()
    await api.patch(PATH, json={"accuracy": None, "prefer": "latency"})
    assert catalog.snapshot().tasks[0].slo == Slo(latency_ms=50.0, cost=0.5, prefer=Prefer.LATENCY)
    assert [(event.kind, event.subject, event.message) for event in catalog.events(9)] == [
        ("slo_changed", "digits", "accuracy 90.00 % -> any, prefer cost -> latency"),
        (
            "slo_changed",
            "digits",
            f"latency_ms {before.latency_ms:g} -> 50, accuracy any -> 90.00 %, cost any -> 0.5",
        ),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"latency_ms": 0},
        {"latency_ms": None},
        {"latency_ms": 3_600_001},
        {"latency_ms": "soon"},
        {"accuracy": 97},
        {"cost": -1},
        {"prefer": "beauty"},
        {"prefer": None},
        {"latency": 50},
        {"latency_ms": 50, "best_effort": True},
    ],
)
async def test_defaults_that_no_query_can_have_are_refused(
    api: httpx.AsyncClient, catalog: MemoryCatalog, body: dict[str, Any]
) -> None:
    before = catalog.snapshot()
    reply = await api.patch(PATH, json=body)
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")
    assert (catalog.snapshot(), catalog.events(9)) == (before, ())


async def test_a_percentage_in_place_of_a_share_is_told_so(api: httpx.AsyncClient) -> None:
    """As a query is, and an option of the command line."""
    reply = await api.patch(PATH, json={"accuracy": 97})
    assert (reply.status_code, reply.json()["error"]) == (
        400, "body 'accuracy' is wrong: it must be at most 1, such as 0.97 for 97 %",
    )  # fmt: skip
    latency = await api.patch(PATH, json={"latency_ms": -1})
    assert latency.json()["error"] == "body 'latency_ms' is wrong: it must be more than 0"


async def test_an_unknown_task_has_no_defaults(api: httpx.AsyncClient) -> None:
    reply = await api.patch("/v1/tasks/letters/slo", json={"latency_ms": 5})
    assert (reply.status_code, reply.json()["code"]) == (404, "TASK_NOT_FOUND")


IMAGE = "/v1/tasks/digits/image"


async def test_a_task_says_what_becomes_of_pictures(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    shown = (await api.get("/v1/tasks/digits")).json()["image"]
    assert shown == {"height": 8, "width": 8, "channels": 1, "mean": [0.0], "std": [1.0]}
    for _ in range(2):
        reply = await api.patch(IMAGE, json={"std": 0.0625})
        assert reply.status_code == 200, reply.text
        assert reply.json()["image"] == shown | {"std": [0.0625]}
    reply = await api.patch(IMAGE, json={"mean": [0.5]})
    assert reply.json()["image"] == shown | {"mean": [0.5], "std": [0.0625]}
    assert (await api.get("/v1/tasks/digits")).json() == reply.json()
    assert catalog.snapshot().tasks[0].image == ImageScale(mean=(0.5,), std=(0.0625,))
    assert [(event.kind, event.message) for event in catalog.events(9)] == [
        ("image_changed", "mean 0, std 0.0625 -> mean 0.5, std 0.0625"),
        ("image_changed", "none said -> mean 0, std 0.0625"),
    ]


async def test_both_change_at_once_or_neither_does(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    before = catalog.snapshot()
    wrong = {"slo": {"latency_ms": 50}, "image": {"std": 0}}
    refused: list[dict[str, Any]] = [wrong, {}, {"slo": {"m": 1}}, {"sharing": {}}]
    for body in refused:
        reply = await api.patch("/v1/tasks/digits", json=body)
        assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")
    assert (catalog.snapshot(), catalog.events(9)) == (before, ())
    both = {"slo": {"latency_ms": 50}, "image": {"std": 0.5}}
    reply = await api.patch("/v1/tasks/digits", json=both)
    assert (reply.json()["slo"]["latency_ms"], reply.json()["image"]["std"]) == (50.0, [0.5])
    assert {event.kind for event in catalog.events(9)} == {"slo_changed", "image_changed"}


@pytest.mark.parametrize(
    "body",
    [{}, {"std": 0}, {"std": None}, {"mean": [1, 2, 3]}, {"mean": []}, {"mean": "a"}, {"m": 1}],
)
async def test_numbers_that_no_picture_can_have_are_refused(
    api: httpx.AsyncClient, catalog: MemoryCatalog, body: dict[str, Any]
) -> None:
    before = catalog.snapshot()
    reply = await api.patch(IMAGE, json=body)
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")
    assert (catalog.snapshot(), catalog.events(9)) == (before, ())
    unknown = await api.patch("/v1/tasks/letters/image", json={"std": 1})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "TASK_NOT_FOUND")


LABELS = "/v1/tasks/digits/labels"


async def test_classes_are_named_and_told_of_once(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    before = catalog.snapshot().tasks[0].labels
    names = [f"{number}!" for number in range(10)]
    for _ in range(2):
        reply = await api.put(LABELS, json={"labels": names})
        assert (reply.status_code, reply.json()["labels"]) == (200, names)
    await api.put(LABELS, json={"labels": []})
    assert catalog.snapshot().tasks[0].labels == ()
    told = [(event.kind, event.subject, event.message) for event in catalog.events(9)]
    old = ", ".join(before) if before else "none"
    assert told == [
        ("labels_changed", "digits", f"{', '.join(names)} -> none"),
        ("labels_changed", "digits", f"{old} -> {', '.join(names)}"),
    ]


@pytest.mark.parametrize(
    "body", [{}, {"labels": ["a"]}, {"labels": ["a"] * 10}, {"labels": "abc"}, {"names": []}]
)
async def test_names_that_are_not_those_of_the_classes_are_refused(
    api: httpx.AsyncClient, catalog: MemoryCatalog, body: dict[str, Any]
) -> None:
    before = catalog.snapshot()
    reply = await api.put(LABELS, json=body)
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")
    assert (catalog.snapshot(), catalog.events(9)) == (before, ())


@pytest.mark.parametrize(
    "body", [{}, {"slo": None}, {"slo": {}}, {"slo": None, "image": None}, {"slo": {}, "image": {}}]
)
async def test_a_change_of_both_that_changes_nothing_is_refused(
    api: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    reply = await api.patch("/v1/tasks/digits", json=body)
    said = "nothing is to be changed; what can be: slo, image"
    assert (reply.status_code, reply.json()["error"]) == (400, said)


@pytest.mark.parametrize("slo", [17, "fast", []])
async def test_what_is_no_object_is_told_so(api: httpx.AsyncClient, slo: object) -> None:
    reply = await api.patch("/v1/tasks/digits", json={"slo": slo})
    said = "body 'slo' is wrong: it must be an object"
    assert (reply.status_code, reply.json()["error"]) == (400, said)


async def test_of_two_changes_at_once_none_is_lost(
    api: httpx.AsyncClient, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked at the task before either is written."""
    snapshot, looking = catalog.snapshot, [2]
    both_have_looked = threading.Event()

    def looked() -> CatalogSnapshot:
        found = snapshot()
        looking[0] -= 1
        if looking[0] <= 0:
            both_have_looked.set()
        both_have_looked.wait(10)
        return found

    monkeypatch.setattr(catalog, "snapshot", looked)
    replies = await asyncio.gather(
        api.patch(PATH, json={"latency_ms": 50}), api.patch(PATH, json={"accuracy": 0.9})
    )
    assert [reply.status_code for reply in replies] == [200, 200]
    slo = snapshot().tasks[0].slo
    assert (slo.latency_ms, slo.accuracy) == (50.0, 0.9)
    assert {event.message for event in catalog.events(9)} == {
        "latency_ms 1000 -> 50", "accuracy any -> 90.00 %",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mean", "why"),
    [
        ("a", "body 'mean' is wrong: it must be a number"),
        ([1, 2, 3, 4], "body 'mean' is wrong: it may have at most 3 values"),
        ([], "body 'mean' is wrong: it has too few values: 1 at least"),
        ([1, "a"], "body 'mean.1' is wrong: it must be a number"),
    ],
)
async def test_a_value_of_several_types_is_told_by_the_name_of_its_field(
    api: httpx.AsyncClient, mean: object, why: str
) -> None:
    reply = await api.patch(IMAGE, json={"mean": mean})
    assert (reply.status_code, reply.json()["error"]) == (400, why)
