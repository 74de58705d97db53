"""The query path through a real gateway and real workers: exactly one answer, and a true one."""

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.gateway.protection.body_reader import LONG_BYTES
from controlplane.gateway.query import one_answer
from controlplane.gateway.query.query_path import QueryPath, monotonic_ms
from planner.types import Candidate
from tests.controlplane.serving import (
    DOUBLE,
    FAST,
    FIELDS,
    KIND,
    KNOWN,
    LATE,
    SLOW,
    TASK,
    Served,
    infer,
    post,
    query,
    serving,
    until,
)
from tests.undisturbed import undisturbed
from variants.types import Rule, RuleKind, TaskName, VariantName, WorkerId


async def test_a_reply_has_exactly_the_promised_fields(served: Served) -> None:
    await served.worker("w1", FAST)
    answer = await served.ask(query(1, 5, 2, variant=None))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    body = answer.json
    assert list(body) == [*FIELDS, "outputs", "labels", "scores"]
    assert {name: body[name] for name in ("variant", "model_version", "worker", "accuracy")} == {
        "variant": FAST, "model_version": "fast-v1", "worker": "w1", "accuracy": 0.9,
    }  # fmt: skip
    assert (body["outputs"], body["labels"], body["scores"]) == ([[1, 5, 2, 0]], ["b"], [5])
    assert (body["batch_size"], body["slo_met"]) == (1, True)
    assert body["cost_usd_per_1k"] == pytest.approx(KIND.usd_per_hour * body["run_ms"] / 3_600)


async def test_the_slo_chooses_the_variant(served: Served) -> None:
    await served.worker("w1", FAST, SLOW, DOUBLE)
    chosen = {}
    for accuracy in (0.9, 0.95, 0.99):
        asked = query(1, variant=None, slo={"accuracy": accuracy})
        chosen[accuracy] = (await served.ask(asked)).json
    assert [one["variant"] for one in chosen.values()] == [FAST, DOUBLE, SLOW]
    assert [one["outputs"][0][0] for one in chosen.values()] == [1, 2, 1]


async def test_a_pin_is_kept(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    assert (await served.ask(query(3, variant=DOUBLE))).json["outputs"] == [[6, 0, 0, 0]]
    answer = await served.ask(query(3, variant="nope"))
    status, code, said = answer.error
    assert (status, code) == (404, "NOT_FOUND")
    assert said.startswith("task 'letters' has no variant 'nope'; there are: ")
    near = await served.ask(query(3, variant="fast-v1"))
    assert near.error[2] == f"task 'letters' has no variant 'fast-v1'; there are: {FAST} and 3 more"


async def test_an_infeasible_slo_comes_with_alternatives(served: Served) -> None:
    await served.worker("w1", FAST)
    answer = await served.ask(query(variant=None, slo={"latency_ms": 20, "accuracy": 0.995}))
    assert answer.error[:2] == (422, "SLO_INFEASIBLE")
    body = answer.json
    assert set(body["reasons"]) == {FAST, SLOW, LATE, DOUBLE}
    assert len(body["alternatives"]) == 3


async def test_nothing_is_answered_past_its_deadline(served: Served) -> None:
    """The worker takes 150 ms and promised 1."""
    await served.worker("w1", LATE)
    began_s = time.monotonic()
    answer = await served.ask(query(variant=LATE, slo={"latency_ms": 60}))
    took_s = time.monotonic() - began_s
    assert answer.error == (504, "DEADLINE_EXCEEDED", "not answered within 60 ms")
    assert took_s >= 0.06
    assert served.in_flight == 0
    # Its late reply changes nothing.
    assert (await served.ask(query(7, variant=LATE))).status == 200


async def test_best_effort_answers_late_and_says_so(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However busy the machine is, it is answered within so long a grace."""
    monkeypatch.setattr("controlplane.gateway.query.in_flight.GRACE_MS", 30_000.0)
    await served.worker("w1", LATE)
    asked = query(7, variant=LATE, slo={"latency_ms": 140}, best_effort=True)
    answer = await served.ask(asked)
    assert (answer.status, answer.json["outputs"], answer.json["slo_met"]) == (
        200, [[7, 0, 0, 0]], False,
    )  # fmt: skip


async def test_best_effort_ends_within_its_grace(served: Served) -> None:
    """150 ms of work, a second in line: 300 ms are more than 10 and the 250 that are allowed."""
    await served.worker("w1", LATE)
    first = asyncio.create_task(served.ask(query(variant=LATE)))
    await until(lambda: served.in_flight == 1)
    asked = query(variant=LATE, slo={"latency_ms": 10}, best_effort=True)
    answer = await served.ask(asked)
    assert answer.error[0] in (503, 504)
    assert (await first).status == 200


async def test_best_effort_gives_the_nearest_when_nothing_is_accurate_enough(
    served: Served,
) -> None:
    await served.worker("w1", FAST, DOUBLE)
    asked = query(variant=None, slo={"accuracy": 0.999}, best_effort=True)
    body = (await served.ask(asked)).json
    assert (body["variant"], body["slo_met"]) == (DOUBLE, False)


async def test_time_counts_from_the_first_byte(served: Served) -> None:
    await served.worker("w1", FAST)
    data = post(query(slo={"latency_ms": 50}))
    for cut in (3, 60, len(data) - 1):
        client = await served.client()
        client.send(data[:cut])
        await asyncio.sleep(0.08)
        client.send(data[cut:])
        answer = await client.answer()
        assert answer.error[:2] == (504, "DEADLINE_EXCEEDED"), cut


async def test_overload_is_refused_at_once(served: Served) -> None:
    """Each is expected to take 80 ms and all want an answer within 200: most cannot have one."""
    await served.worker("w1", SLOW)
    asked = query(*[0.0] * 4, variant=SLOW, slo={"latency_ms": 200})
    asked["inputs"] = asked["inputs"] * 8

    async def crowd() -> None:
        answers = await asyncio.gather(*(served.ask(asked) for _ in range(20)))
        refused = [answer for answer in answers if answer.status == 503]
        assert {answer.error[1] for answer in refused} <= {"OVERLOADED"}
        assert served.in_flight == 0
        assert len(refused) >= 10
        assert [answer.status for answer in answers].count(200) >= 1

    await undisturbed(crowd, at_most_s=0.05)


async def test_a_mistake_while_choosing_is_one_answer(served: Served) -> None:
    """The guard must not come with a second one."""

    def broken(
        candidate: Candidate, worker: WorkerId, slack_ms: float | None, need: str = ""
    ) -> "asyncio.Future[None]":
        raise RuntimeError(f"cannot load {candidate.variant} on {worker}")

    await served.worker("w1")
    path = served.gateway.path
    alone = QueryPath(loader=broken)
    alone.update(
        snapshot=path.snapshot,
        routes=path.routes,
        tasks=path.tasks,
        connections=path.connections,
    )
    statuses: list[int] = []
    body = json.dumps(query(slo={"latency_ms": 400})).encode()
    alone.handle_v1(body, monotonic_ms(), lambda status, *_: statuses.append(status))
    assert (statuses, alone.counters.in_flight, len(alone.guard)) == ([500], 0, 0)
    assert alone.counters.task("letters").errors == {"INTERNAL": 1}


async def test_every_query_of_a_crowd_gets_its_own_answer(served: Served) -> None:
    await served.worker("w1", FAST)
    await served.worker("w2", FAST)

    async def one_after_the_other(base: int) -> list[float]:
        client = await served.client()
        return [(await client.ask(query(base + n))).json["outputs"][0][0] for n in range(20)]

    crowd = await asyncio.gather(*(one_after_the_other(100 * n) for n in range(16)))
    assert crowd == [[100 * n + m for m in range(20)] for n in range(16)]
    assert served.in_flight == 0
    assert len(served.gateway.path.guard) == 0


async def test_the_books_balance(served: Served) -> None:
    """Answers and errors add up to what was asked."""
    await served.worker("w1", FAST, LATE)
    bodies: list[Any] = [query(n) for n in range(5)]
    bodies += [query(variant=LATE, slo={"latency_ms": 30})]
    bodies += [query(variant="nope"), {"task": "nope", "inputs": []}, b"{"]
    answers = [await served.ask(body) for body in bodies]
    counters = served.gateway.path.counters
    letters = counters.task("letters")
    assert {name: (v.met, v.missed, v.rows) for name, v in letters.variants.items()} == {
        FAST: (5, 0, 5)
    }
    assert letters.errors == {"DEADLINE_EXCEEDED": 1, "NOT_FOUND": 1}
    assert counters.task("").errors == {"TASK_NOT_FOUND": 1, "INVALID_INPUT": 1}
    assert sum(letters.buckets) == 5
    assert [answer.status for answer in answers] == [200] * 5 + [504, 404, 404, 400]


async def test_what_is_wrong_counts_at_the_task_that_it_names(served: Served) -> None:
    wrong: list[Any] = [{"task": "letters", "inputs": [["a"]]}, query(slo={"accuracy": 2})]
    wrong += [query(further=1), {"task": "letters"}]
    unnamed: list[Any] = [{"task": "nope", "inputs": [[1.0]]}, {"inputs": [[1.0]]}, b"[", []]
    long = {"task": "letters", "inputs": [["a" * 2 * LONG_BYTES]]}
    for body in [*wrong, long, *unnamed]:
        await served.ask(body)
    for name in ("letters", "nope"):
        await served.ask({"inputs": 1}, path=f"/v2/models/{name}/infer")
    counters = served.gateway.path.counters
    assert counters.task("letters").errors == {"INVALID_INPUT": len(wrong) + 2}
    assert counters.task("").errors == {"INVALID_INPUT": 3, "TASK_NOT_FOUND": 2}


@pytest.mark.parametrize("best_effort", [False, True])
async def test_what_became_late_as_its_answer_was_written_did_not_meet_its_slo(
    served: Served, monkeypatch: pytest.MonkeyPatch, best_effort: bool
) -> None:
    """Large outputs take their time, after which it counts whether an answer is in time."""
    await served.worker("w1", FAST)
    path, clock_ms, write = served.gateway.path, served.gateway.path.clock_ms, one_answer.encode
    written: list[bool] = []

    def encode(parsed: Any, outputs: Any, metadata: Any) -> Any:
        written.append(metadata.slo_met)
        return write(parsed, outputs, metadata)

    def late_ms() -> float:  # the look at the clock that follows
        return clock_ms() + (120_000.0 if written == [True] else 0.0)

    monkeypatch.setattr(one_answer, "encode", encode)
    monkeypatch.setattr(path, "clock_ms", late_ms)
    answer = await served.ask(query(1, best_effort=best_effort))
    if best_effort:
        assert (answer.status, answer.json["slo_met"], written) == (200, False, [True, False])
        assert path.counters.task("letters").variants[FAST].missed == 1
    else:
        assert answer.error[:2] == (504, "DEADLINE_EXCEEDED")


async def test_the_nearest_to_what_no_variant_can_do_is_told_from_what_could_have_been(
    served: Served,
) -> None:
    """Nothing that runs would help such a query; it says nothing against what runs."""
    await served.worker("w1", FAST, LATE)
    bodies = [
        query(slo={"accuracy": 0.9999}, best_effort=True),
        query(slo={"latency_ms": 0.001}, best_effort=True),
        query(variant=FAST, slo={"cost": 1e-12}, best_effort=True),
        query(best_effort=True),
    ]
    answers = [await served.ask(body) for body in bodies]
    assert [(one.status, one.json["slo_met"]) for one in answers] == [
        (200, False), (200, False), (200, False), (200, True),
    ]  # fmt: skip
    letters = served.gateway.path.counters.task("letters")
    assert sum(one.missed for one in letters.variants.values()) == 3
    assert letters.infeasible_answered == 3

    late = await served.ask(query(variant=LATE, slo={"latency_ms": 30}, best_effort=True))
    assert (late.status, late.json["slo_met"]) == (200, False)
    assert letters.infeasible_answered == 3


async def test_an_output_that_is_not_finite_is_no_answer_and_says_so(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Twice the largest number overflows."""
    await served.worker("w1", DOUBLE)
    answer = await served.ask(query(3e38, variant=DOUBLE))
    assert answer.error == (
        500,
        "INTERNAL",
        "the model's answer cannot be given: letters/double-v1-onnx-fp32 gave values that are not"
        " finite (NaN or infinity) for output 'y', which JSON cannot carry",
    )
    assert answer.json["retryable"] is False
    assert answer.json["request_id"] in caplog.text


async def test_a_runtime_that_fails_is_an_internal_error_and_tells_no_more(
    short_folder: Path, live_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    known = [replace(each, options={"fail_after": "1"}) for each in KNOWN if each.name == FAST]
    async with serving(short_folder, live_url, known=known) as served:
        await served.worker("w1", FAST)
        answer = await served.ask(query(1))
    assert answer.error == (500, "INTERNAL", "internal error")
    assert answer.json["request_id"] in caplog.text


async def test_what_is_forbidden_answers_nothing_and_says_why(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    catalog = served.gateway.catalog
    rule = Rule(kind=RuleKind.FORBID, task=TaskName("letters"), variant=VariantName(FAST))
    catalog.put_rule(replace(rule, why="wrong"))
    named = f"/v2/models/letters/versions/{FAST}/infer"
    for _ in range(100):
        answer = await served.ask(infer(), path=named)
        if answer.status != 200:
            break
        await asyncio.sleep(0.05)
    assert answer.error[1] == "NOT_FOUND"
    assert "an operator has forbidden it (rule 1: wrong)" in answer.json["error"]
    other = await served.ask(infer(), path="/v2/models/letters/infer")
    assert other.json["parameters"]["variant"] != FAST
    index = (await served.ask(b"{}", path="/v2/repository/index")).json
    asked = {"task": "letters", "slo": {"accuracy": 0.999}, "inputs": [[0.0] * 4]}
    refused = await served.ask(asked)
    assert refused.json["reasons"][FAST] == "an operator has forbidden it (rule 1: wrong)"
    assert len(index) == 4


async def test_a_client_has_its_answer_before_it_is_counted(served: Served) -> None:
    await served.worker("w1", FAST)
    path = served.gateway.path
    counted: list[int] = []

    def respond(status: int, _body: bytes, _headers: bytes) -> None:
        assert status == 200
        counted.append(sum(path.counters.task(TASK.name).buckets))

    path.handle_v1(json.dumps(query(1)).encode(), monotonic_ms(), respond)
    await until(lambda: counted)
    assert (counted, sum(path.counters.task(TASK.name).buckets)) == ([0], 1)
    assert (path.counters.in_flight, path.held_bytes) == (0, 0)
