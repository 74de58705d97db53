"""A task for rows of several lengths over the control API: shown as one, and changed as one."""

from typing import Any

import httpx
import pytest

from tests.variants.buckets import bucket
from tests.variants.catalog_builders import registration, variant, version
from variants.catalog.memory import MemoryCatalog
from variants.errors import StateUnavailable
from variants.types import ModelName, Stage, TaskName

BUCKETS = ["texts.4", "texts.8"]


@pytest.fixture
def texts(catalog: MemoryCatalog) -> MemoryCatalog:
    """Two buckets with two versions each; the longer one is more accurate."""
    for number in (1, 2):
        catalog.register(
            *(
                registration(
                    number=number,
                    of=one.name,
                    task=one,
                    variants=(variant(number=number, of=one.name, accuracy=accuracy),),
                )
                for one, accuracy in ((bucket(8), 0.9), (bucket(4), 0.8))
            ),
            joins=number > 1,
        )
    return catalog


def stages(catalog: MemoryCatalog, number: int) -> list[Stage]:
    found = {(v.task, v.version): v.stage for v in catalog.snapshot().versions}
    return [found[TaskName(name), number] for name in BUCKETS]


async def get(api: httpx.AsyncClient, path: str) -> Any:
    reply = await api.get(path)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.usefixtures("texts")
async def test_it_is_shown_beside_its_buckets(api: httpx.AsyncClient) -> None:
    shown = {one["name"]: one for one in (await get(api, "/v1/tasks"))["tasks"]}
    assert shown.keys() == {"digits", "texts", *BUCKETS}
    assert shown["texts"] == await get(api, "/v1/tasks/texts")
    assert [one["shape"] for one in shown["texts"]["inputs"]] == [[-1], [-1], [2]]
    assert shown["texts"]["lengths"] == {
        "buckets": {"4": "texts.4", "8": "texts.8"},
        "axes": [
            {"input": "ids", "axis": 0, "pad": 1.0},
            {"input": "mask", "axis": 0, "pad": 0.0},
        ],
        "outputs": [],
    }
    assert (shown["texts"]["models"], shown["texts"]["best_accuracy"]) == (1, 0.9)
    assert shown["texts.4"]["bucket"]["of"] == "texts"
    assert (shown["texts.4"]["lengths"], shown["digits"]["bucket"]) == (None, None)


@pytest.mark.usefixtures("texts")
async def test_its_models_variants_and_profiles_are_those_of_its_buckets(
    api: httpx.AsyncClient,
) -> None:
    models = (await get(api, "/v1/tasks/texts/models"))["models"]
    assert [(one["task"], one["model"]) for one in models] == [(name, "mlp") for name in BUCKETS]
    model = await get(api, "/v1/models/texts/mlp")
    assert (model["task"], model["live"]) == ("texts", 2)
    assert [(one["task"], one["version"]) for one in model["versions"]] == [
        (name, number) for number in (1, 2) for name in BUCKETS
    ]
    variants = (await get(api, "/v1/tasks/texts/variants"))["variants"]
    assert [one["task"] for one in variants] == ["texts.4", "texts.4", "texts.8", "texts.8"]
    profiles = (await get(api, "/v1/profiles?task=texts"))["profiles"]
    assert {one["task"] for one in profiles} == set(BUCKETS)


async def test_a_version_moves_in_all_buckets(api: httpx.AsyncClient, texts: MemoryCatalog) -> None:
    path = "/v1/models/texts/mlp/versions/1"
    reply = await api.post(f"{path}/stage", json={"stage": "retired"})
    assert (reply.status_code, reply.json()["task"], reply.json()["stage"]) == (
        200,
        "texts",
        "retired",
    )
    assert stages(texts, 1) == [Stage.RETIRED, Stage.RETIRED]
    assert [event.subject for event in texts.events(9)] == ["texts.8/mlp-v1", "texts.4/mlp-v1"]
    reply = await api.delete(path)
    assert (reply.json()["task"], reply.json()["versions"]) == ("texts", ["mlp-v1", "mlp-v1"])
    assert {v.version for v in texts.snapshot().versions if v.task in BUCKETS} == {2}


async def test_a_canary_has_its_share_in_all_buckets(
    api: httpx.AsyncClient, texts: MemoryCatalog
) -> None:
    for name in BUCKETS:
        texts.set_stage([TaskName(name)], ModelName("mlp"), 2, Stage.CANARY)
    path = "/v1/models/texts/mlp/versions/2/canary"
    reply = await api.put(path, json={"share": 0.1})
    assert (reply.status_code, reply.json()["task"]) == (200, "texts")
    assert [one.task for one in texts.snapshot().canaries] == BUCKETS
    reply = await api.post("/v1/models/texts/mlp/rollback", json={})
    assert (reply.status_code, reply.json()["ended"]) == (200, "mlp-v2")
    assert texts.snapshot().canaries == ()


async def test_defaults_and_names_of_classes_change_in_all_buckets(
    api: httpx.AsyncClient, texts: MemoryCatalog
) -> None:
    reply = await api.patch("/v1/tasks/texts/slo", json={"latency_ms": 7})
    assert (reply.json()["name"], reply.json()["slo"]["latency_ms"]) == ("texts", 7.0)
    reply = await api.put("/v1/tasks/texts/labels", json={"labels": ["x", "y", "z"]})
    assert reply.json()["labels"] == ["x", "y", "z"]
    found = [one for one in texts.snapshot().tasks if one.name in BUCKETS]
    assert [(one.slo.latency_ms, one.labels) for one in found] == [(7.0, ("x", "y", "z"))] * 2


async def test_it_is_removed_with_all_buckets(api: httpx.AsyncClient, texts: MemoryCatalog) -> None:
    reply = await api.delete("/v1/tasks/texts")
    assert (reply.json()["task"], len(reply.json()["versions"])) == ("texts", 4)
    assert [one.name for one in texts.snapshot().tasks] == ["digits"]
    assert (await api.get("/v1/tasks/texts")).json()["code"] == "TASK_NOT_FOUND"


@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/peaks", {"start": "2090-01-01T00:00:00Z", "end": "2090-01-02T00:00:00Z",
                               "task": "texts", "factor": 2.0}),
        ("POST", "/v1/rules", {"rule": "pin", "task": "texts", "variant": "mlp-v1-onnx-fp32"}),
        ("GET", "/v1/variants/texts/mlp-v1-onnx-fp32", None),
    ],
)  # fmt: skip
async def test_what_is_of_one_bucket_alone_says_which_there_are(
    api: httpx.AsyncClient, method: str, path: str, body: Any
) -> None:
    reply = await api.request(method, path, json=body)
    assert reply.status_code == 404, reply.text
    assert "texts.4, texts.8" in reply.json()["error"]


async def test_a_model_of_some_lengths_changes_where_it_is(
    api: httpx.AsyncClient, texts: MemoryCatalog
) -> None:
    of = TaskName("texts.4")
    for number in (1, 2):
        one = registration(
            number=number,
            model="small",
            of=of,
            task=bucket(4),
            variants=(variant(number=number, model="small", of=of),),
        )
        texts.register(one, joins=True)
    texts.set_stage([of], ModelName("small"), 2, Stage.CANARY)
    path = "/v1/models/texts/small/versions/2"
    reply = await api.put(f"{path}/canary", json={"share": 0.1})
    assert reply.status_code == 200, reply.text
    assert [one.task for one in texts.snapshot().canaries] == [of]
    reply = await api.post("/v1/models/texts/small/rollback", json={})
    assert reply.status_code == 200, reply.text
    await api.post(f"{path}/stage", json={"stage": "retired"})
    reply = await api.delete(path)
    assert (reply.status_code, reply.json()["versions"]) == (200, ["small-v2"])


def third_version(texts: MemoryCatalog, name: str) -> None:
    """One that is a canary in one bucket alone: the length of the other was added later."""
    of = TaskName(name)
    texts.register(
        registration(
            number=3,
            of=of,
            task=bucket(int(name.rpartition(".")[2])),
            version=version(number=3, of=of, stage=Stage.CANARY),
            variants=(variant(number=3, of=of),),
        ),
        joins=True,
    )


async def test_all_versions_are_shown_the_shortest_length_first(
    api: httpx.AsyncClient, texts: MemoryCatalog
) -> None:
    long = TaskName("texts.16")
    texts.register(registration(of=long, task=bucket(16), variants=(variant(of=long),)))
    third_version(texts, "texts.4")  # the newest, which the other buckets lack
    every = (await get(api, "/v1/models"))["models"]
    assert [one["task"] for one in every if one["task"] != "digits"] == [*BUCKETS, "texts.16"]
    versions = (await get(api, "/v1/models/texts/mlp"))["versions"]
    assert [(one["task"], one["version"]) for one in versions] == [
        ("texts.4", 1), ("texts.8", 1), ("texts.16", 1), ("texts.4", 2), ("texts.8", 2),
        ("texts.4", 3),
    ]  # fmt: skip


async def test_a_version_of_some_lengths_has_a_share_and_is_removed_where_it_is(
    api: httpx.AsyncClient, texts: MemoryCatalog
) -> None:
    third_version(texts, "texts.4")
    path = "/v1/models/texts/mlp/versions/3"
    reply = await api.put(f"{path}/canary", json={"share": 0.1})
    assert (reply.status_code, reply.json()["task"]) == (200, "texts")
    assert [one.task for one in texts.snapshot().canaries] == ["texts.4"]
    reply = await api.put(f"{path}/canary", json={"share": 0})
    assert (reply.status_code, texts.snapshot().canaries) == (200, ())
    await api.post(f"{path}/stage", json={"stage": "retired"})
    reply = await api.delete(path)
    assert (reply.status_code, reply.json()["versions"]) == (200, ["mlp-v3"])


async def test_a_share_is_given_in_all_buckets_or_in_none(
    api: httpx.AsyncClient, texts: MemoryCatalog
) -> None:
    texts.set_stage([TaskName("texts.4")], ModelName("mlp"), 2, Stage.CANARY)
    reply = await api.put("/v1/models/texts/mlp/versions/2/canary", json={"share": 0.1})
    assert (reply.status_code, reply.json()["code"]) == (409, "CONFLICT")
    assert texts.snapshot().canaries == ()


async def test_a_share_that_one_bucket_has_lost_leaves_live_versions_alone(
    api: httpx.AsyncClient, texts: MemoryCatalog
) -> None:
    for name in BUCKETS:
        third_version(texts, name)
    await api.put("/v1/models/texts/mlp/versions/3/canary", json={"share": 0.1})
    judged = texts.snapshot().canaries[0]
    epoch = texts.acquire_leadership("here")
    assert texts.settle_canary(judged, promote=False, why="it was late", epoch=epoch)
    reply = await api.post("/v1/models/texts/mlp/rollback", json={})
    assert (reply.status_code, reply.json()["ended"]) == (200, "mlp-v3")
    assert [one.share for one in texts.snapshot().canaries] == [0.0]
    assert stages(texts, 2) == [Stage.LIVE, Stage.LIVE]


async def test_versions_change_places_in_all_buckets_or_in_none(
    api: httpx.AsyncClient, texts: MemoryCatalog
) -> None:
    for number in (1, 2):
        texts.set_stage([TaskName("texts.8")], ModelName("mlp"), number, Stage.RETIRED)
    reply = await api.post("/v1/models/texts/mlp/rollback", json={})
    assert (reply.status_code, reply.json()["code"]) == (409, "CONFLICT")
    assert stages(texts, 2) == [Stage.LIVE, Stage.RETIRED]


async def test_a_version_that_has_left_a_bucket_since_it_was_read_moves_in_the_others(
    api: httpx.AsyncClient, texts: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, old = texts.snapshot, texts.snapshot()
    texts.set_stage([TaskName("texts.8")], ModelName("mlp"), 1, Stage.RETIRED)
    texts.remove_version([TaskName("texts.8")], ModelName("mlp"), 1)
    read = iter([old])  # removed since it was read
    monkeypatch.setattr(texts, "snapshot", lambda: next(read, None) or seen())
    reply = await api.post("/v1/models/texts/mlp/versions/1/stage", json={"stage": "retired"})
    assert reply.status_code == 200, reply.json()
    found = {(v.task, v.version): v.stage for v in seen().versions}
    assert found[TaskName("texts.4"), 1] is Stage.RETIRED
    assert (TaskName("texts.8"), 1) not in found


async def test_who_is_always_overtaken_is_told_to_ask_again(
    api: httpx.AsyncClient, texts: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = texts.snapshot()
    texts.set_stage([TaskName("texts.8")], ModelName("mlp"), 1, Stage.RETIRED)
    monkeypatch.setattr(texts, "snapshot", lambda: old)
    reply = await api.post("/v1/models/texts/mlp/versions/1/stage", json={"stage": "retired"})
    assert (reply.status_code, reply.json()["code"]) == (409, "CONFLICT")


async def test_what_is_rolled_back_is_not_asked_again_for_an_event_that_is_lost(
    api: httpx.AsyncClient, texts: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StateUnavailable("the disk is full")

    monkeypatch.setattr(texts, "add_event", full)
    reply = await api.post("/v1/models/texts/mlp/rollback", json={})
    assert (reply.status_code, reply.json()["live"]) == (200, "mlp-v1")


CHANGES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("PATCH", "", {"slo": {"latency_ms": 7}}),
    ("PATCH", "/slo", {"latency_ms": 8}),
    ("PUT", "/labels", {"labels": ["x", "y", "z"]}),
    ("PUT", "/sharing", {"ttl_s": 1}),
)


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
async def test_what_is_changed_is_changed_in_all_buckets_that_there_are_by_then(
    api: httpx.AsyncClient,
    texts: MemoryCatalog,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: dict[str, Any],
) -> None:
    read, old = texts.snapshot, texts.snapshot()
    of = TaskName("texts.16")
    texts.register(registration(of=of, task=bucket(16), variants=(variant(of=of),)))
    texts.remove_task(TaskName("texts.8"))
    before = {one.name: one for one in read().tasks}
    monkeypatch.setattr(texts, "snapshot", lambda: old)  # it was read before both
    reply = await api.request(method, f"/v1/tasks/texts{path}", json=body)
    assert reply.status_code == 200, reply.text
    changed = {one.name for one in read().tasks if one != before[one.name]}
    assert changed == {"texts.4", "texts.16"}
    assert {event.subject for event in texts.events(9)} == changed


async def test_a_task_is_removed_with_all_buckets_that_there_are_by_then(
    api: httpx.AsyncClient, texts: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was registered since the catalog was read would stay, under a name that is gone."""
    read, old = texts.snapshot, texts.snapshot()
    of = TaskName("texts.16")
    texts.register(registration(of=of, task=bucket(16), variants=(variant(of=of),)))
    texts.remove_task(TaskName("texts.8"))
    monkeypatch.setattr(texts, "snapshot", lambda: old)  # it was read before both
    reply = await api.delete("/v1/tasks/texts")
    assert reply.status_code == 200, reply.text
    assert {event.subject for event in texts.events(9)} == {"texts.4", "texts.16"}
    assert not [one for one in read().tasks if one.name.startswith("texts")]


async def test_a_version_is_removed_from_all_buckets_or_from_none(
    api: httpx.AsyncClient, texts: MemoryCatalog
) -> None:
    texts.set_stage([TaskName("texts.4")], ModelName("mlp"), 1, Stage.RETIRED)
    reply = await api.delete("/v1/models/texts/mlp/versions/1")
    assert (reply.status_code, reply.json()["code"]) == (409, "CONFLICT")
    assert len([one for one in texts.snapshot().versions if one.version == 1]) == 5
    assert texts.events(9) == ()


async def test_the_newest_version_is_promoted_in_all_buckets(
    api: httpx.AsyncClient, texts: MemoryCatalog
) -> None:
    for name in BUCKETS:
        third_version(texts, name)
    reply = await api.post("/v1/models/texts/mlp/promote")
    assert reply.status_code == 200, reply.text
    assert [reply.json()[name] for name in ("task", "version", "stage")] == ["texts", 3, "live"]
    assert stages(texts, 3) == [Stage.LIVE, Stage.LIVE]
    told = {event.subject: event.message for event in texts.events(9)}
    assert told == {f"{name}/mlp-v3": "canary -> live" for name in BUCKETS}
    again = await api.post("/v1/models/texts/mlp/promote", json={})
    assert (again.status_code, len(texts.events(9))) == (200, 2)


async def test_a_version_that_was_taken_out_of_one_bucket_has_to_be_named(
    api: httpx.AsyncClient, texts: MemoryCatalog
) -> None:
    for name in BUCKETS:
        third_version(texts, name)
    texts.set_stage([TaskName("texts.8")], ModelName("mlp"), 3, Stage.RETIRED)
    reply = await api.post("/v1/models/texts/mlp/promote")
    assert (reply.status_code, reply.json()["code"]) == (409, "CONFLICT")
    assert list(reply.json()["choices"]) == ["3", "2", "1"]
    assert stages(texts, 3) == [Stage.CANARY, Stage.RETIRED]
    reply = await api.post("/v1/models/texts/mlp/promote", json={"version": 3})
    assert (reply.status_code, stages(texts, 3)) == (200, [Stage.LIVE, Stage.LIVE])
