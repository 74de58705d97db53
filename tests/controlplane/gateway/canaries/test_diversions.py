"""A share of the queries goes to a canary, and what it cannot answer is answered as always."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.canary.draw import is_drawn, limit_of, salt_of
from tests.controlplane.serving import (
    DOUBLE,
    FAST,
    KNOWN,
    LATE,
    TASK,
    Answer,
    Served,
    post,
    query,
    serving,
    until,
)
from variants.types import Canary, ModelName, Stage, TaskName

ANY = {"variant": None}


async def share(served: Served, model: str, part: float, task: TaskName = TASK.name) -> Canary:
    """Have a model that was live be the canary, with that share; the gateway knows it."""
    catalog = served.gateway.catalog
    catalog.set_stage([task], ModelName(model), 1, Stage.RETIRED)
    (stored,) = catalog.set_canary(Canary(task=task, model=ModelName(model), version=1, share=part))
    await until(lambda: served.gateway.known.catalog.revision >= stored.number)
    return stored


async def asked(served: Served, id_: str = "", **changes: Any) -> Answer:
    headers = [("X-Request-Id", id_)] if id_ else []
    return await served.ask(query(1, **{"variant": None, **changes}), headers=headers)


def counted(served: Served, of: Canary) -> Mapping[str, Any]:
    canaries = served.gateway.path.canaries
    assert canaries is not None
    return canaries.counted()[of.share_id]


async def test_the_share_is_drawn_by_request_ids(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    canary = await share(served, "double", 0.5)
    ids = [f"r-{number}" for number in range(40)]
    answers = {id_: await asked(served, id_) for id_ in ids}
    salt, limit = salt_of(TASK.name, "double-v1"), limit_of(0.5)
    drawn = {id_ for id_ in ids if is_drawn(id_.encode(), salt, limit)}
    assert {id_ for id_ in ids if answers[id_].json["variant"] == DOUBLE} == drawn
    for id_, answer in answers.items():
        reason = answer.headers["x-choice-reason"]
        assert (reason == "canary") == (id_ in drawn)
        assert answer.headers["x-request-id"] == id_
    told = counted(served, canary)
    assert told["canary"]["in_time"] == len(drawn)
    assert told["live"]["in_time"] == 40 - len(drawn)
    assert told["canary"]["answers"] == len(drawn)
    assert told["canary"]["latency_ms"] > 0.0


async def test_a_query_without_an_id_gets_one(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    await share(served, "double", 1.0)
    ids = {(await asked(served)).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3


async def test_queries_that_name_a_variant_are_not_drawn(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    canary = await share(served, "double", 1.0)
    assert (await asked(served, variant=FAST)).json["variant"] == FAST
    pinned = await asked(served, variant=DOUBLE)
    assert (pinned.json["variant"], pinned.headers["x-choice-reason"]) == (DOUBLE, "pinned")
    assert counted(served, canary)["canary"]["in_time"] == 0


async def test_what_it_cannot_meet_is_answered_as_always(served: Served) -> None:
    await served.worker("w1", FAST)
    canary = await share(served, "double", 1.0)
    assert (await asked(served)).json["variant"] == FAST
    slow = await asked(served, slo={"accuracy": 0.999}, best_effort=True)
    assert slow.json["variant"] == FAST
    told = counted(served, canary)
    assert told["not_diverted"] == {"not_ready": 1, "infeasible": 1}
    assert told["live"]["in_time"] + told["live"]["late"] == 2


async def test_a_share_that_is_ended_diverts_nothing(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    await share(served, "double", 1.0)
    assert (await asked(served)).json["variant"] == DOUBLE
    served.gateway.catalog.end_canary([TASK.name], ModelName("double"))
    await until(lambda: served.gateway.path.canaries is None)
    assert (await asked(served)).json["variant"] == FAST


async def test_a_share_that_is_set_anew_is_counted_anew(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    before = await share(served, "double", 1.0)
    await asked(served)
    (after,) = served.gateway.catalog.set_canary(replace(before, share=0.9))
    await until(lambda: served.gateway.known.catalog.revision >= after.number)
    assert counted(served, after)["canary"]["in_time"] == 0


async def test_what_is_late_at_the_canary_counts_against_it(served: Served) -> None:
    """It promises 1 ms and takes 150; nothing is answered past its deadline."""
    await served.worker("w1", FAST)
    await served.worker("w2", LATE)
    canary = await share(served, "late", 1.0)
    answer = await asked(served, slo={"latency_ms": 100})
    assert answer.error[:2] == (504, "DEADLINE_EXCEEDED")
    assert counted(served, canary)["canary"]["late"] == 1


async def test_what_clients_do_not_wait_for_counts_as_late(served: Served) -> None:
    """Else a canary that is too slow for its clients would be found as good as the others."""
    await served.worker("w1", FAST, LATE)
    canary = await share(served, "late", 1.0)
    client = await served.client()
    client.send(post(query(1, **ANY)))
    await until(lambda: served.in_flight == 1)
    client.close()
    await until(lambda: served.in_flight == 0)
    told = counted(served, canary)
    assert [(told[arm]["late"], told[arm]["in_time"]) for arm in ("canary", "live")] == [
        (1, 0), (0, 0),
    ]  # fmt: skip


async def test_what_fails_at_the_canary_is_answered_by_a_live_version(
    short_folder: Path, live_url: str
) -> None:
    failing = replace(KNOWN[2], options={"fail_value": "1"})
    async with serving(short_folder, live_url, known=(KNOWN[0], failing)) as served:
        await served.worker("w1", FAST, LATE)
        canary = await share(served, "late", 1.0)
        answer = await asked(served)
        assert (answer.status, answer.json["variant"]) == (200, FAST)
        told = counted(served, canary)
        assert (told["canary"]["failed"], told["canary"]["in_time"]) == (1, 0)
        assert told["live"]["in_time"] == 0  # it was not drawn for that
