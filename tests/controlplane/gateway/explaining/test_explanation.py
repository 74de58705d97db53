"""``POST /v1/explain``: what a query would get, by the same decision, with a reason for each."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from controlplane.gateway.query.in_flight import OTHERS_FIRST
from planner.types import Choice, Query, Reason, Refusal, RefusalCode
from tests.controlplane.gateway.test_plan_following import LATENCY_MS, plan
from tests.controlplane.serving import (
    DOUBLE,
    FAST,
    KIND,
    LATE,
    SLOW,
    Served,
    query,
    serving,
    until,
)
from tests.variants.test_core_time import Machine
from variants.types import (
    Canary,
    DeviceKindName,
    ModelName,
    Stage,
    TaskName,
    VariantName,
)

LETTERS = TaskName("letters")


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    """A worker that has two of the three variants loaded."""
    async with serving(short_folder, live_url) as running:
        await running.worker("w1", FAST, SLOW)
        yield running


async def explain(served: Served, **fields: Any) -> Any:
    answer = await served.ask({"task": "letters", **fields}, path="/v1/explain")
    assert answer.status == 200, answer.body
    return answer.json


def verdicts(told: Any) -> dict[str, str]:
    return {one["variant"]: one["verdict"] for one in told["variants"]}


def why(told: Any, variant: str) -> str:
    (row,) = [one for one in told["variants"] if one["variant"] == variant]
    return str(row["why"])


async def test_it_says_what_a_query_gets(served: Served) -> None:
    slo = {"latency_ms": 30_000, "accuracy": 0.95}
    told = await explain(served, slo=slo)
    answer = await served.ask(query(1, variant=None, slo=slo))
    assert told["outcome"] == "answered"
    assert told["refusal"] is None
    assert (told["answer"]["variant"], told["answer"]["worker"]) == (answer.json["variant"], "w1")
    assert told["answer"]["reason"] == answer.headers["x-choice-reason"]
    assert (told["latency_ms"], told["accuracy"], told["rows"]) == (30_000, 0.95, 1)
    assert told["answer"]["slo_met"]


async def test_each_variant_has_its_reason(served: Served) -> None:
    told = await explain(served, slo={"accuracy": 0.95})
    assert told["variants"][0]["verdict"] == "chosen"
    assert verdicts(told)[FAST] == "stopped"
    assert why(told, FAST) == "accuracy 90.00 % < 95.00 %"
    assert verdicts(await explain(served, slo={"latency_ms": 5}))[SLOW] == "stopped"
    all_ = await explain(served)
    assert verdicts(all_)[FAST] == "chosen"
    assert verdicts(all_)[SLOW] == "fits"
    assert why(all_, SLOW).startswith("fits; a row alone costs ")
    assert verdicts(all_)[LATE] == "stopped"
    assert why(all_, LATE).startswith("not loaded: loading takes ")


async def test_accuracies_that_differ_by_no_more_than_chance_are_told_of(served: Served) -> None:
    """On 100 rows each: 90 % may be 82.6 to 94.5 %, 97 % from 91.5 and 99 % from 94.6 %."""
    told = await explain(served, slo={"accuracy": 0.97, "latency_ms": 30_000}, variant=SLOW)
    rows = {one["variant"]: one for one in told["variants"]}
    low, high = rows[FAST]["accuracy_low"], rows[FAST]["accuracy_high"]
    assert (round(low, 3), round(high, 3)) == (0.826, 0.945)
    told = await explain(served, slo={"latency_ms": 30_000, "prefer": "accuracy"})
    assert told["answer"]["variant"] == SLOW
    assert told["doubt"] == (
        f"By the rows that judged them, the accuracy of {SLOW}, 94.55 % to 99.82 %, differs by no"
        f" more than chance from that of {LATE}, {DOUBLE}."
    )
    assert (await explain(served, slo={"latency_ms": 30_000}))["doubt"] == ""


async def test_a_floor_that_is_missed_by_no_more_than_chance_is_told_of(served: Served) -> None:
    told = await explain(served, slo={"accuracy": 0.995})
    assert told["outcome"] == "refused"
    assert told["doubt"] == (
        f"By the rows that judged them, the accuracy of {SLOW} differs from 99.50 % by no more than"
        " chance."
    )
    assert (await explain(served, slo={"accuracy": 0.999}))["doubt"] == ""


async def test_what_is_refused_is_refused_with_the_same_words(served: Served) -> None:
    told = await explain(served, slo={"accuracy": 0.999})
    answer = await served.ask(query(1, variant=None, slo={"accuracy": 0.999}))
    assert (told["outcome"], told["answer"]) == ("refused", None)
    assert (told["refusal"]["code"], told["refusal"]["error"]) == answer.error[1:]
    nearest = [one["variant"] for one in answer.json["alternatives"]]
    assert [one["variant"] for one in told["refusal"]["alternatives"]] == nearest
    assert set(verdicts(told).values()) == {"stopped"}


async def test_best_effort_pins_and_rows_count(served: Served) -> None:
    nearest = await explain(served, slo={"accuracy": 0.999}, best_effort=True)
    assert (nearest["outcome"], nearest["answer"]["slo_met"]) == ("answered", False)
    pinned = await explain(served, variant=SLOW)
    assert (pinned["answer"]["variant"], pinned["answer"]["reason"]) == (SLOW, Reason.PINNED)
    assert pinned["plan"] == "The query names its variant, so the plan has no say."
    assert verdicts(pinned)[FAST] == "stopped"
    many = await explain(served, rows=100_000)
    assert (many["outcome"], many["rows"]) == ("refused", 100_000)
    assert "in one query, not 100,000" in why(many, FAST)
    assert (await explain(served, inputs=[[0.0] * 4] * 3))["rows"] == 3


async def test_what_follows_the_plan_says_where_it_sends_such_queries(served: Served) -> None:
    await plan(served, SLOW)
    told = await explain(served, slo={"latency_ms": LATENCY_MS})
    assert (told["answer"]["variant"], told["answer"]["reason"]) == (SLOW, Reason.PLANNED)
    assert told["plan"].startswith(f"The plan sends such queries to {SLOW}")
    assert why(told, FAST).startswith("fits; a row alone costs ")
    other = await explain(served, slo={"latency_ms": LATENCY_MS, "prefer": "latency"})
    assert other["plan"].startswith("Plans are made for cost, and the query prefers latency")


@pytest.mark.parametrize(
    ("qps", "reason"),
    [
        (0.01, ", too little for another plan"),
        (100_000.0, "; plans count whole batches"),
    ],
)
async def test_beside_what_the_plan_chose_what_costs_less_says_why_it_was_not(
    served: Served, qps: float, reason: str
) -> None:
    await plan(served, SLOW, qps)
    told = await explain(served, slo={"latency_ms": LATENCY_MS})
    assert told["plan"] == (
        f"The plan sends such queries to {SLOW}, and where there is no room to {FAST}."
    )
    said = why(told, FAST)
    assert said.startswith("fits; a row alone costs ")
    assert said.endswith(f" USD per million{reason}")


async def test_what_the_plan_forgot_goes_where_it_is_done_first_while_others_are_refused(
    served: Served,
) -> None:
    await plan(served, SLOW)
    elsewhere = {"latency_ms": LATENCY_MS / 2, "accuracy": 0.1}
    calm = await explain(served, slo=elsewhere)
    assert calm["answer"]["reason"] == Reason.CHEAPEST_THAT_FITS
    assert calm["plan"].endswith("they take what they prefer of what fits.")
    for _ in range(20):
        served.gateway.path.congestion.refused(monotonic() * 1_000, None)
    told = await explain(served, slo=elsewhere)
    assert told["answer"]["reason"] == Reason.EARLIEST_COMPLETION
    assert told["plan"] == (
        "The plan says nothing of such queries: while others are refused, they go where they are "
        "done first."
    )
    assert why(told, SLOW).startswith("fits; done in ")


async def test_who_prefers_latency_is_told_when_the_others_would_be_done(served: Served) -> None:
    told = await explain(served, slo={"prefer": "latency"})
    assert told["answer"]["variant"] == FAST
    assert why(told, SLOW).startswith("fits; done in ")


async def test_a_retired_variant_says_so(served: Served) -> None:
    served.gateway.catalog.set_stage([LETTERS], ModelName("late"), 1, Stage.RETIRED)
    for _ in range(200):
        told = await explain(served)
        if "retired" in why(told, LATE):
            break
    assert verdicts(told)[LATE] == "stopped"


async def test_nothing_runs_and_nothing_is_counted(served: Served) -> None:
    served.gateway.path.demand.take()
    for slo in ({}, {"accuracy": 0.999}, {"latency_ms": 1}):
        await explain(served, slo=slo)
    assert served.gateway.path.demand.take() == {}
    counted = served.gateway.path.counters.tasks.get(LETTERS)
    assert counted is None or (not counted.errors and not counted.variants)


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"task": "none"}, "TASK_NOT_FOUND", "there is no task 'none'"),
        ({}, "INVALID_INPUT", "'task' is missing"),
        ({"task": "letters", "rows": 0}, "INVALID_INPUT", "'rows' must be a whole number"),
        ({"task": "letters", "rows": True}, "INVALID_INPUT", "'rows' must be a whole number"),
        ({"task": "letters", "slo": {"accuracy": 97}}, "INVALID_INPUT", "slo.accuracy"),
        ({"task": "letters", "latency_ms": 5}, "INVALID_INPUT", "'latency_ms' stands in 'slo'"),
        ({"task": "letters", "rows": 1, "inputs": [[0.0] * 4]}, "INVALID_INPUT", "rows"),
        ([], "INVALID_INPUT", "must be a JSON object"),
    ],
)
async def test_what_is_wrong_is_said(served: Served, body: Any, code: str, words: str) -> None:
    _, said, text = (await served.ask(body, path="/v1/explain")).error
    assert said == code
    assert words in text


async def test_it_says_where_cores_are_short(served: Served, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.stat({}, {})
    machine.waited(0.0)
    meter = machine.meter()
    served.gateway._report.cores = meter
    meter.look()
    before = await explain(served)

    machine.now_s = 10.0
    machine.stat({"user": 10.0}, {"user": 10.0})
    machine.waited(6.3)
    after = await explain(served)

    assert "h1" not in before["cores"]  # this machine's own may be short
    assert "The cores of h1 are short: 63 % of the time something waited" in after["cores"]


async def test_rows_are_counted_or_given(served: Served) -> None:
    for beside in ("rows", "length"):
        answer = await served.ask(query(**{beside: 2}), path="/v1/explain")
        assert answer.error == (
            400,
            "INVALID_INPUT",
            f"{beside!r} stands in the place of 'inputs', not beside them",
        )


async def test_under_overload_it_says_that_such_a_query_is_refused(served: Served) -> None:
    """As real ones are, though some worker is predicted to answer in time."""
    path = served.gateway.path
    now_ms = path.clock_ms()
    asked = Query(LETTERS, 1, now_ms, 400.0, variant=VariantName(FAST))
    found = path.foreseen(asked, now_ms)
    assert isinstance(found, Choice)
    assert found == path.choose(asked, now_ms)

    path.refusals.add(found.worker.id, found.candidate, asked, "it is full", now_ms, 1e6)
    found.worker.busy_until_ms = now_ms + 200.0
    refused = path.foreseen(asked, now_ms)
    assert isinstance(refused, Refusal)
    assert refused.code is RefusalCode.OVERLOADED
    assert path.congestion.at(now_ms) == 1.0  # nothing counts by it
    assert not path.under_pressure()


async def test_it_is_held_back_for_others_as_its_client_is(served: Served) -> None:
    path = served.gateway.path
    deadline_ms, busy_ms = 40_000.0, 30_000.0  # long enough for any machine to ask meanwhile
    asked = Query(LETTERS, 1, path.clock_ms(), deadline_ms, variant=VariantName(FAST))
    found = path.choose(asked, path.clock_ms())
    assert isinstance(found, Choice)
    path.lately.add(LETTERS, (False, False, 1), path.clock_ms() + busy_ms)
    found.worker.busy_until_ms = path.clock_ms() + busy_ms

    told = await explain(served, slo={"latency_ms": deadline_ms}, variant=FAST)
    assert told["refusal"]["error"] == OTHERS_FIRST
    first = await explain(served, slo={"latency_ms": deadline_ms}, variant=FAST, priority=1)
    assert first["outcome"] == "answered"


async def test_a_canary_gets_some_of_such_queries(served: Served) -> None:
    catalog = served.gateway.catalog
    catalog.set_stage([LETTERS], ModelName("double"), 1, Stage.CANARY)
    canary = Canary(
        task=LETTERS, model=ModelName("double"), version=1, share=0.05, after=10, promote=False,
        set_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    catalog.set_canary(canary)
    await until(lambda: served.gateway.path.canaries is not None)
    told = await explain(served)
    assert told["plan"].endswith(
        " Of such queries 5.0 % go to double-v1 instead, a canary, where it is loaded and predicted"
        " to meet the SLO."
    )
    assert "canary" not in (await explain(served, variant=FAST))["plan"]


async def test_kinds_of_which_no_worker_is_there_any_more_are_left_out(served: Served) -> None:
    """What was measured on them is in the catalog still."""
    catalog = served.gateway.catalog
    before = await explain(served)
    gone = replace(KIND, name=DeviceKindName("cpu-9"))
    profiles = tuple(replace(one, device_kind=gone.name) for one in catalog.snapshot().profiles)
    catalog.put_profiles(profiles, (gone,))
    await until(lambda: gone in served.gateway.known.catalog.device_kinds)
    after = await explain(served)
    assert [one["variant"] for one in after["variants"]] == [
        one["variant"] for one in before["variants"]
    ]
    assert {one["device_kind"] for one in after["variants"]} == {KIND.name}
