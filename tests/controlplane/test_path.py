"""The query path through a real gateway and real workers: exactly one answer, and a true one."""

import asyncio
import json
import os
import signal
import struct
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.path import QueryPath, monotonic_ms
from planner.types import Candidate
from tests.controlplane.serving import (
    DOUBLE,
    FAST,
    KIND,
    LATE,
    SLOW,
    Served,
    post,
    query,
    serving,
    until,
)  # fmt: skip
from variants.types import WorkerId


@pytest.fixture
async def served(live_url: str) -> AsyncIterator[Served]:
    # A socket's path may hold 107 bytes, too few for a test's own folder.
    with tempfile.TemporaryDirectory(prefix="ml-", dir="/tmp") as folder:
        async with serving(Path(folder), live_url) as running:
            yield running


FIELDS = [
    "variant", "model_version", "worker", "batch_size", "queue_ms", "run_ms", "accuracy",
    "cost_usd_per_1k", "slo_met",
]  # fmt: skip


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
    assert answer.error == (404, "NOT_FOUND", "Task 'letters' has no variant 'nope'.")


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
    assert answer.error == (504, "DEADLINE_EXCEEDED", "Not answered within 60 ms.")
    assert took_s >= 0.06
    assert served.in_flight == 0
    # Its late reply changes nothing.
    assert (await served.ask(query(7, variant=LATE, slo={"latency_ms": 2_000}))).status == 200


async def test_a_worker_that_hangs_is_not_waited_for(served: Served) -> None:
    child = await served.process("w1", FAST)
    os.kill(child.pid, signal.SIGSTOP)
    for best_effort in (False, True):
        answer = await served.ask(query(slo={"latency_ms": 50}, best_effort=best_effort))
        assert answer.error == (504, "DEADLINE_EXCEEDED", "Not answered within 50 ms.")
    assert served.in_flight == 0
    os.kill(child.pid, signal.SIGCONT)
    assert (await served.ask(query(6))).json["outputs"] == [[6, 0, 0, 0]]


async def test_once_a_worker_hangs_the_next_queries_go_elsewhere(served: Served) -> None:
    child = await served.process("w1", FAST)
    await served.worker("w2", FAST)
    os.kill(child.pid, signal.SIGSTOP)
    crowd = await asyncio.gather(*(served.ask(query(n)) for n in range(20)))
    assert {answer.status for answer in crowd} == {200, 504}
    answers = [await served.ask(query(n)) for n in range(10)]
    assert [answer.json["worker"] for answer in answers] == ["w2"] * 10
    os.kill(child.pid, signal.SIGCONT)


async def test_best_effort_answers_late_and_says_so(served: Served) -> None:
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
    asked = query(variant=None, slo={"accuracy": 0.999, "latency_ms": 500}, best_effort=True)
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
    """Each takes 40 ms and all want an answer within 100: most cannot have one."""
    await served.worker("w1", SLOW)
    asked = query(*[0.0] * 4, variant=SLOW, slo={"latency_ms": 100})
    asked["inputs"] = asked["inputs"] * 8
    answers = await asyncio.gather(*(served.ask(asked) for _ in range(20)))
    statuses = sorted(answer.status for answer in answers)
    refused = [answer for answer in answers if answer.status == 503]
    assert statuses.count(200) >= 1
    assert len(refused) >= 15
    assert {answer.error[1] for answer in refused} == {"OVERLOADED"}
    assert served.in_flight == 0


async def test_a_cold_variant_is_loaded_when_that_is_in_time(served: Served) -> None:
    await served.worker("w1")
    answer = await served.ask(query(4, variant=DOUBLE, slo={"latency_ms": 5_000}))
    assert answer.json["outputs"] == [[8, 0, 0, 0]]


async def test_a_cold_variant_says_when_to_come_back(served: Served) -> None:
    await served.worker("w1")
    answer = await served.ask(query(4, variant=FAST, slo={"latency_ms": 50}))
    assert answer.error[:2] == (503, "COLD")
    assert answer.headers["retry-after"] == "1"
    assert answer.json["retryable"] is True
    # The load has begun for those who come back.
    link = served.gateway.links[WorkerId("w1")]
    await until(lambda: link.ready)
    assert (await served.ask(query(4, variant=FAST, slo={"latency_ms": 50}))).status == 200


async def test_a_mistake_while_choosing_is_one_answer(served: Served) -> None:
    """The guard must not come with a second one."""

    def broken(candidate: Candidate, worker: WorkerId) -> "asyncio.Future[None]":
        raise RuntimeError(f"cannot load {candidate.variant} on {worker}")

    await served.worker("w1")
    path = served.gateway.path
    alone = QueryPath(loader=broken)
    alone.snapshot, alone.tasks = path.snapshot, path.tasks
    statuses: list[int] = []
    body = json.dumps(query(slo={"latency_ms": 400})).encode()
    alone.handle_v1(body, monotonic_ms(), lambda status, *_: statuses.append(status))
    assert (statuses, alone.counters.in_flight, alone._wheel) == ([500], 0, {})
    assert alone.counters.task("letters").errors == {"INTERNAL": 1}


async def test_without_workers_it_is_cold(served: Served) -> None:
    answer = await served.ask(query(variant=None))
    assert answer.error == (503, "COLD", "No worker has started yet.")


async def test_the_query_of_a_killed_worker_is_answered_by_another(served: Served) -> None:
    child = await served.process("w1", LATE)
    os.kill(child.pid, signal.SIGSTOP)  # it will not answer
    asked = query(5, variant=LATE, slo={"latency_ms": 5_000})
    asking = asyncio.create_task(served.ask(asked))
    await until(lambda: served.in_flight == 1)
    await served.worker("w2", LATE)
    os.kill(child.pid, signal.SIGKILL)
    answer = await asking
    assert (answer.json["worker"], answer.json["outputs"]) == ("w2", [[5, 0, 0, 0]])
    assert served.gateway.path.counters.retries == {"lost": 1}
    assert served.in_flight == 0


async def test_the_query_of_a_killed_worker_is_lost_when_there_is_no_other(served: Served) -> None:
    child = await served.process("w1", LATE)
    os.kill(child.pid, signal.SIGSTOP)  # it will not answer
    asking = asyncio.create_task(served.ask(query(variant=LATE, slo={"latency_ms": 5_000})))
    await until(lambda: served.in_flight == 1)
    os.kill(child.pid, signal.SIGKILL)
    status, code, _ = (await asking).error
    assert (status, code) == (503, "REPLICA_LOST")
    assert served.in_flight == 0
    await until(lambda: not served.gateway.links)


async def test_a_worker_that_leaves_sends_its_queries_elsewhere(served: Served) -> None:
    first = await served.worker("w1", FAST)
    await served.worker("w2", FAST)
    stopping = asyncio.create_task(first.drain_and_stop(1.0))
    answers = await asyncio.gather(*(served.ask(query(n)) for n in range(30)))
    await stopping
    assert [answer.json["outputs"][0][0] for answer in answers] == list(range(30))


async def test_every_query_of_a_crowd_gets_its_own_answer(served: Served) -> None:
    await served.worker("w1", FAST)
    await served.worker("w2", FAST)

    async def one_after_the_other(base: int) -> list[float]:
        client = await served.client()
        return [(await client.ask(query(base + n))).json["outputs"][0][0] for n in range(20)]

    crowd = await asyncio.gather(*(one_after_the_other(100 * n) for n in range(16)))
    assert crowd == [[100 * n + m for m in range(20)] for n in range(16)]
    assert served.in_flight == 0
    assert not served.gateway.path._wheel


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


async def test_a_runtime_that_fails_is_an_internal_error_and_tells_no_more(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """An output that is not finite is no answer: twice the largest number overflows."""
    await served.worker("w1", DOUBLE)
    answer = await served.ask(query(3e38, variant=DOUBLE))
    assert answer.error == (500, "INTERNAL", "internal error")
    assert answer.json["request_id"] in caplog.text


# -- Open Inference Protocol --------------------------------------------------------------------


def infer(**changes: Any) -> dict[str, Any]:
    row = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    return {"inputs": [row], **changes}


async def test_v2_infer_with_json(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    path = "/v2/models/letters/infer"
    answer = await served.ask(infer(id="q1", parameters={"min_accuracy": 0.95}), path=path)
    body = answer.json
    assert list(body["parameters"]) == FIELDS
    assert body.pop("parameters")["variant"] == DOUBLE
    assert body == {
        "id": "q1",
        "model_name": "letters",
        "model_version": "double-v1",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 4], "data": [2, 4, 6, 8]}],
    }


async def test_v2_infer_with_a_pinned_version(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    answer = await served.ask(infer(), path=f"/v2/models/letters/versions/{DOUBLE}/infer")
    assert (answer.json["model_version"], answer.json["outputs"][0]["data"]) == (
        DOUBLE, [2, 4, 6, 8],
    )  # fmt: skip


async def test_v2_infer_with_raw_bytes_as_tritonclient_sends_them(served: Served) -> None:
    await served.worker("w1", DOUBLE)
    raw = struct.pack("<8f", *range(8))
    row = {
        "name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": {"binary_data_size": 32},
    }  # fmt: skip
    head = json.dumps({"inputs": [row], "parameters": {"binary_data_output": True}}).encode()
    headers = [
        ("Content-Type", "application/octet-stream"),
        ("Inference-Header-Content-Length", str(len(head))),
    ]
    path = "/v2/models/letters/infer"
    answer = await served.ask(head + raw, path=path, headers=headers)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/octet-stream")
    length = int(answer.headers["inference-header-content-length"])
    (output,) = json.loads(answer.body[:length])["outputs"]
    assert output == {
        "name": "y", "datatype": "FP32", "shape": [2, 4], "parameters": {"binary_data_size": 32},
    }  # fmt: skip
    assert struct.unpack("<8f", answer.body[length:]) == tuple(2.0 * n for n in range(8))


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (
            "/v2/models/no%20task/infer",
            (404, "TASK_NOT_FOUND", "there is no task 'no task'; there are: letters"),
        ),
        ("/v2/models/letters/versions/infer", (400, "INVALID_INPUT", "not an inference route")),
        ("/v2/models/a/b/c/d/e/infer", (400, "INVALID_INPUT", "not an inference route")),
        (
            "/v2/models/letters/versions/nope/infer",
            (404, "NOT_FOUND", "Task 'letters' has no variant 'nope'."),
        ),
    ],
)
async def test_v2_paths_that_lead_nowhere(
    served: Served, path: str, error: tuple[int, str, str]
) -> None:
    assert (await served.ask(infer(), path=path)).error == error


async def test_a_percent_encoded_task_is_the_task(served: Served) -> None:
    await served.worker("w1", FAST)
    assert (await served.ask(infer(), path="/v2/models/%6Cetters/infer")).status == 200


async def test_v2_health_and_metadata(served: Served) -> None:
    async def get(path: str) -> tuple[int, Any]:
        answer = await served.get(path)
        return answer.status, answer.json

    assert await get("/v2/health/live") == (200, {"live": True})
    assert await get("/v2/health/ready") == (503, {"ready": False})
    await served.worker("w1", FAST)
    assert await get("/v2/health/ready") == (200, {"ready": True})
    letters = "/v2/models/letters"
    assert await get(f"{letters}/ready") == (200, {"name": "letters", "ready": True})
    status, body = await get(f"{letters}/versions/{DOUBLE}/ready")
    assert (status, body["ready"]) == (503, False)
    assert await get(letters) == (
        200,
        {
            "name": "letters",
            "versions": sorted([FAST, SLOW, LATE, DOUBLE]),
            "platform": "modelless",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
        },
    )
    assert (await served.get("/v2")).json["extensions"] == [
        "binary_tensor_data",
        "model_repository",
        "statistics",
    ]
    assert (await served.get("/v2/models/nope")).error[:2] == (404, "TASK_NOT_FOUND")
    index = (await served.ask(b"{}", path="/v2/repository/index")).json
    assert {row["version"]: row["state"] for row in index} == {
        FAST: "READY", SLOW: "UNAVAILABLE", LATE: "UNAVAILABLE", DOUBLE: "UNAVAILABLE",
    }  # fmt: skip


async def test_v2_statistics_count_what_was_answered(served: Served) -> None:
    await served.worker("w1", FAST)
    for rows in (1, 2):
        body = {"task": "letters", "inputs": [[1, 2, 3, 4]] * rows}
        assert (await served.ask(body)).status == 200
    stats = (await served.get("/v2/models/letters/stats")).json["model_stats"]
    found = {row["version"]: row for row in stats}
    assert found[FAST]["inference_count"] == 3
    assert found[FAST]["inference_stats"]["success"]["count"] == 2
    assert found[FAST]["inference_stats"]["compute_infer"]["ns"] > 0
    assert found[SLOW]["inference_count"] == 0
    one = (await served.get(f"/v2/models/letters/versions/{FAST}/stats")).json["model_stats"]
    assert one == [found[FAST]]
    assert (await served.get("/v2/models/nope/stats")).error[:2] == (404, "TASK_NOT_FOUND")
