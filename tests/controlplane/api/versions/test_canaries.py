"""Giving a version a share of the queries, and taking it back, over REST."""

import httpx
import pytest

from planner.feedback.by_class import Said
from tests.controlplane.builders import DictLive
from tests.variants.catalog_builders import registration, task, variant, version
from variants.catalog.memory import MemoryCatalog
from variants.types import ModelName, Stage, TaskName

DIGITS, MLP = TaskName("digits"), ModelName("mlp")
CANARY = "/v1/models/digits/mlp/versions/1/canary"


@pytest.fixture(autouse=True)
def a_canary(catalog: MemoryCatalog) -> None:
    catalog.set_stage([DIGITS], MLP, 1, Stage.CANARY)


async def test_a_share_is_given_listed_and_ended(
    api: httpx.AsyncClient, catalog: MemoryCatalog, live: DictLive
) -> None:
    given = await api.put(CANARY, json={"share": 0.05, "promote": True})
    assert given.status_code == 200
    assert given.json()["set_at"]
    told = ("model_version", "share", "after", "promote", "verdict", "canary")
    assert [given.json()[name] for name in told] == ["mlp-v1", 0.05, 1_000, True, None, None]
    [stored] = catalog.snapshot().canaries

    arm = {
        "queries": 9, "in_time": 8, "late": 1, "failed": 0, "mean_ms": 2.5, "right": 0, "wrong": 0,
    }  # fmt: skip
    live.judged_canaries = {
        stored.share_id: {
            "verdict": "not_yet", "why": "9 of 1,000", "canary": arm, "live": arm,
            "not_diverted": {"overloaded": 2},
        }
    }  # fmt: skip
    [listed] = (await api.get("/v1/canaries")).json()["canaries"]
    assert (listed["verdict"], listed["why"], listed["canary"]) == ("not_yet", "9 of 1,000", arm)
    assert listed["not_diverted"] == {"overloaded": 2}

    ended = await api.put(CANARY, json={"share": 0})
    assert (ended.status_code, ended.json()["share"]) == (200, 0.0)
    assert catalog.snapshot().canaries == ()
    again = await api.put(CANARY, json={"share": 0})
    assert (again.status_code, again.json()["code"]) == (404, "NOT_FOUND")
    kinds = [event.kind for event in reversed(catalog.events(9))]
    assert kinds == ["canary_set", "canary_ended"]


async def test_canaries_are_listed_while_the_live_state_is_away(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    await api.put(CANARY, json={"share": 1})
    live.gone = True
    [listed] = (await api.get("/v1/canaries")).json()["canaries"]
    assert (listed["share"], listed["verdict"]) == (1.0, None)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (CANARY, {"share": 1.5}, 400, "INVALID_INPUT"),
        (CANARY, {"share": 0.5, "after": 0}, 400, "INVALID_INPUT"),
        (CANARY, {}, 400, "INVALID_INPUT"),
        ("/v1/models/digits/linear/versions/1/canary", {"share": 0.5}, 409, "CONFLICT"),
        ("/v1/models/digits/mlp/versions/7/canary", {"share": 0.5}, 404, "NOT_FOUND"),
        ("/v1/models/letters/mlp/versions/1/canary", {"share": 0.5}, 404, "TASK_NOT_FOUND"),
    ],
)
async def test_what_cannot_have_a_share_is_refused(
    api: httpx.AsyncClient, path: str, body: dict[str, object], status: int, code: str
) -> None:
    refused = await api.put(path, json=body)
    assert (refused.status_code, refused.json()["code"]) == (status, code)


async def test_rolling_back_says_what_was_taken_back(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    await api.put(CANARY, json={"share": 0.5})
    first = await api.post("/v1/models/digits/mlp/rollback")
    assert first.json() == {
        "task": "digits", "model": "mlp", "ended": "mlp-v1", "retired": None, "live": None,
    }  # fmt: skip
    second = await api.post("/v1/models/digits/mlp/rollback")
    assert (second.status_code, second.json()["code"]) == (409, "CONFLICT")


async def test_a_rollback_that_could_mean_several_versions_names_them(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    catalog.set_stage([DIGITS], MLP, 1, Stage.LIVE)
    digits = next(one for one in catalog.snapshot().tasks if one.name == DIGITS)
    for number, stage in ((2, Stage.LIVE), (3, Stage.CANARY)):
        catalog.register(
            registration(
                number=number,
                task=digits,
                version=version(number=number, stage=stage),
                variants=(variant(number=number),),
            )
        )
    refused = await api.post("/v1/models/digits/mlp/rollback")
    assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT")
    assert refused.json()["choices"] == {
        "2": "mlp-v2 is retired, and mlp-v1 stays live",
        "3": "nothing: mlp-v3 is a canary without a share of the queries",
    }
    assert refused.json()["retryable"] is False
    done = await api.post("/v1/models/digits/mlp/rollback", json={"version": 2})
    assert (done.status_code, done.json()["retired"], done.json()["live"]) == (
        200, "mlp-v2", "mlp-v1",
    )  # fmt: skip
    for body in ({"version": 0}, {"to": 1}, {"version": "newest"}):
        wrong = await api.post("/v1/models/digits/mlp/rollback", json=body)
        assert (wrong.status_code, wrong.json()["code"]) == (400, "INVALID_INPUT"), body
    gone = await api.post("/v1/models/digits/mlp/rollback", json={"version": 9})
    assert (gone.status_code, gone.json()["code"]) == (404, "NOT_FOUND")


async def test_live_accuracy_is_told_only_where_there_is_some(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    live.judged_rows = {"digits": {"mlp-v1-onnx-fp32": (3, 1)}}
    rows = (await api.get("/v1/tasks/digits/variants")).json()["variants"]
    told = {row["name"]: (row["live_accuracy"], row["live_accuracy_rows"]) for row in rows}
    assert told.pop("mlp-v1-onnx-fp32") == (0.75, 4)
    assert set(told.values()) == {(None, 0)}


async def test_live_accuracy_is_by_the_metric_of_the_task(
    api: httpx.AsyncClient, live: DictLive, catalog: MemoryCatalog
) -> None:
    name = "rare-v1-onnx-fp32"
    catalog.register(registration("rare", of="fraud", task=task("fraud", metric="balanced")))
    live.judged_rows = {"fraud": {name: (95, 5)}}
    live.judged_classes = {"fraud": {name: {0: Said(90, 0, 5), 1: Said(5, 5, 0)}}}
    [row] = (await api.get("/v1/tasks/fraud/variants")).json()["variants"]
    assert (row["name"], row["live_accuracy"], row["live_accuracy_rows"]) == (name, 0.75, 100)
