"""The query path through a real gateway and real workers: exactly one answer, and a true one."""

import asyncio
import json
import os
import signal
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.gateway.open_inference.protocol_views import number_of
from controlplane.gateway.query.query_errors import worker_error
from controlplane.gateway.query.query_path import QueryPath, monotonic_ms
from controlplane.load_specs import Specs
from planner.types import Candidate, Query
from tests.controlplane.serving import (
    DOUBLE,
    FAST,
    KIND,
    KNOWN,
    LATE,
    SLOW,
    TASK,
    Served,
    post,
    query,
    serving,
    until,
)  # fmt: skip
from tests.undisturbed import undisturbed
from tests.workers import gated
from variants.errors import ReplicaLost, VariantNotLoadable
from variants.types import (
    DeviceKindName,
    ModelName,
    Rule,
    RuleKind,
    Stage,
    TaskName,
    VariantName,
    WorkerId,
)
from workers.channel.reply import SILENT
from workers.runtimes.registry import RUNTIMES
from workers.types import ReplyCode

TOO_SOON = {"latency_ms": 30_000.0}
"""A deadline before the end of a load of ``slow_to_load``, and far enough for all else."""


@pytest.fixture
async def slow_to_load(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    """Profiles say that each load takes a minute; it takes a moment."""
    known = [replace(each, load_s=60.0) for each in KNOWN]
    async with serving(short_folder, live_url, known=known) as running:
        yield running


INFER = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0.0] * 4}],
}
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


async def test_a_worker_that_hangs_is_not_waited_for(served: Served) -> None:
    child = await served.process("w1", FAST)
    os.kill(child.pid, signal.SIGSTOP)
    for best_effort in (False, True):
        answer = await served.ask(query(slo={"latency_ms": 50}, best_effort=best_effort))
        assert answer.error == (504, "DEADLINE_EXCEEDED", "not answered within 50 ms")
    assert served.in_flight == 0
    os.kill(child.pid, signal.SIGCONT)
    assert (await served.ask(query(6))).json["outputs"] == [[6, 0, 0, 0]]


async def test_once_a_worker_hangs_the_next_queries_go_elsewhere(served: Served) -> None:
    child = await served.process("w1", FAST)
    await served.worker("w2", FAST)
    os.kill(child.pid, signal.SIGSTOP)
    asked = (query(n, slo={"latency_ms": 3_000}) for n in range(20))
    crowd = await asyncio.gather(*map(served.ask, asked))
    assert {answer.status for answer in crowd} == {200, 504}
    # It is expected to take another three seconds.
    answers = await asyncio.gather(*(served.ask(query(n)) for n in range(10)))
    assert [answer.json["worker"] for answer in answers] == ["w2"] * 10
    os.kill(child.pid, signal.SIGCONT)


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


async def test_a_cold_variant_is_loaded_when_that_is_in_time(served: Served) -> None:
    await served.worker("w1")
    answer = await served.ask(query(4, variant=DOUBLE, slo={"latency_ms": 30_000}))
    assert answer.json["outputs"] == [[8, 0, 0, 0]]


async def test_a_cold_variant_goes_where_what_leaves_is_worth_least(served: Served) -> None:
    """``w1`` has more free memory and would lose what queries ask for, ``w2`` only a filler."""
    asked_for = await served.worker("w1", FAST, memory_mib=15)
    await served.worker("w2", LATE, memory_mib=10)
    for _ in range(3):
        assert (await served.ask(query(variant=FAST))).json["worker"] == "w1"
    known = served.gateway.known.workers
    await until(lambda: any(loss_s > 0.0 for _, loss_s in known[WorkerId("w1")].view.evictable))
    await until(lambda: known[WorkerId("w2")].view.evictable)
    for _ in range(2):
        answer = await served.ask(query(4, variant=DOUBLE))
        assert (answer.json["outputs"], answer.json["worker"]) == ([[8, 0, 0, 0]], "w2")
    assert [one.variant for one in asked_for.status().replicas] == [FAST]
    assert (await served.ask(query(variant=FAST))).json["worker"] == "w1"


async def test_a_load_for_queries_to_come_goes_there_as_well(slow_to_load: Served) -> None:
    served = slow_to_load
    await served.worker("w1", FAST, memory_mib=15)
    filled = await served.worker("w2", LATE, memory_mib=10)
    await served.ask(query(variant=FAST))
    known = served.gateway.known.workers
    await until(lambda: any(loss_s > 0.0 for _, loss_s in known[WorkerId("w1")].view.evictable))
    await until(lambda: known[WorkerId("w2")].view.evictable)
    answer = await served.ask(query(4, variant=DOUBLE, slo=TOO_SOON))
    assert answer.error[:2] == (503, "COLD")
    await until(lambda: DOUBLE in [one.variant for one in filled.status().replicas])


async def test_a_cold_variant_says_when_to_come_back(slow_to_load: Served) -> None:
    served = slow_to_load
    await served.worker("w1")
    answer = await served.ask(query(4, variant=FAST, slo=TOO_SOON))
    assert answer.error[:2] == (503, "COLD")
    assert answer.headers["retry-after"] == "60"
    assert answer.json["retryable"] is True
    assert answer.error[2].endswith("; the load has begun")
    # The load has begun for those who come back.
    connected = served.gateway.known.workers[WorkerId("w1")]
    await until(lambda: connected.ready)
    assert (await served.ask(query(4, variant=FAST, slo=TOO_SOON))).status == 200


async def test_a_load_that_did_not_begin_is_not_said_to_have(slow_to_load: Served) -> None:
    """There is room for one variant, and what is there is asked for."""
    served = slow_to_load
    await served.worker("w1", SLOW, memory_mib=10.0)
    client = await served.client()
    for _ in range(5):
        assert (await client.ask(query(variant=SLOW))).status == 200
    answer = await served.ask(query(4, variant=FAST, slo=TOO_SOON))
    assert answer.error[:2] == (503, "COLD")
    assert answer.error[2].endswith(
        "it was not loaded: letters/fast-v1-echo-fp32 needs 10.0 MiB, 0.0 MiB are free here, and "
        "what is loaded is in use or asked for more"
    )
    assert int(answer.headers["retry-after"]) == 5
    assert served.gateway.known.workers[WorkerId("w1")].ready == {("letters", SLOW)}


async def test_a_load_that_ends_with_its_worker_does_not_tell_where_that_listened(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtimes = {**RUNTIMES, "echo": gated.ENTRY}
    monkeypatch.setattr("workers.runtimes.registry.RUNTIMES", runtimes)
    host = await served.worker("w1")
    gated.GATES.loads.clear()
    try:
        (candidate,) = served.gateway.path.snapshot.tasks[TASK.name].by_variant[VariantName(FAST)]
        loading = served.gateway.load(candidate, WorkerId("w1"), 30_000.0)
        await until(lambda: bool(host.status().replicas))
        served.gateway.known.workers[WorkerId("w1")].connection.close()
        with pytest.raises(ReplicaLost, match=r"^worker w1 is lost$"):
            await loading
    finally:
        gated.GATES.open()


def test_what_failed_at_a_worker_is_not_told_to_whom_it_refuses() -> None:
    asked = Query(TaskName("letters"), 1, 0.0, 50.0)
    why = "2 batches failed in a row; the last: letters/v failed: KeyError: 'secret'"
    error = worker_error(ReplyCode.QUARANTINED, why, asked, None)
    assert (error.code, error.retryable) == ("OVERLOADED", True)
    assert "secret" not in error.message
    assert "quarantine" in error.message


def test_a_worker_that_does_not_answer_is_not_called_lost() -> None:
    asked = Query(TASK.name, 1, 0.0, 50.0)
    silent = worker_error(ReplyCode.LOST, SILENT, asked, None)
    lost = worker_error(ReplyCode.LOST, "closed", asked, None)
    assert str(silent) == "the worker does not answer"
    assert str(lost) == "the worker was lost while it answered"


async def test_a_variant_that_leaves_while_a_query_is_on_its_way_is_loaded_again(
    served: Served,
) -> None:
    """Its deadline leaves the time for that: it is not told that its variant is cold."""
    host = await served.worker("w1", FAST)
    path = served.gateway.path
    stale = path.snapshot
    answered: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
    body = json.dumps(query(4, variant=FAST, slo={"latency_ms": 30_000})).encode()
    await host._loading.unload("letters", FAST)
    path.update(  # as if the gateway had not heard of it yet
        snapshot=stale, routes=path.routes, tasks=path.tasks, connections=path.connections
    )
    path.handle_v1(body, monotonic_ms(), lambda code, body, _: answered.set_result((code, body)))
    status, reply = await asyncio.wait_for(answered, 60)
    assert (status, json.loads(reply)["outputs"]) == (200, [[4, 0, 0, 0]])
    assert path.counters.retries == {"cold": 1}


async def test_three_variants_with_room_for_one_are_all_answered_at_once(served: Served) -> None:
    """Each waits for its turn, as long as its deadline leaves the time for it."""
    await served.worker("w1", memory_mib=10.0)
    asked = (served.ask(query(1, variant=name)) for name in (FAST, SLOW, DOUBLE))
    answers = await asyncio.gather(*asked)
    assert [answer.status for answer in answers] == [200, 200, 200], [one.body for one in answers]


async def test_a_pinned_variant_with_a_damaged_artifact_is_a_typed_refusal(served: Served) -> None:
    await served.worker("w1")
    whole = served.damage(DOUBLE)
    for _ in range(2):
        answer = await served.ask(query(4, variant=DOUBLE, slo={"latency_ms": 30_000}))
        status, code, text = answer.error
        assert (status, code, answer.json["retryable"]) == (503, "ARTIFACT_INVALID", False)
        assert f"{DOUBLE!r} of task 'letters' cannot be loaded: its artifact" in text
        assert "is damaged" in answer.json["reasons"][DOUBLE]
        assert str(served.folder) not in text

    served.artifact(DOUBLE).write_bytes(whole)
    connected = served.gateway.known.workers[WorkerId("w1")]
    await until(lambda: not connected.unloadable)
    answer = await served.ask(query(4, variant=DOUBLE, slo={"latency_ms": 30_000}))
    assert answer.json["outputs"] == [[8, 0, 0, 0]]


async def test_a_pinned_variant_with_a_truncated_artifact_is_a_typed_refusal(
    served: Served,
) -> None:
    await served.worker("w1")
    served.damage(DOUBLE)
    os.truncate(served.artifact(DOUBLE), 10)
    answer = await served.ask(query(4, variant=DOUBLE, slo={"latency_ms": 30_000}))
    assert answer.error[:2] == (503, "ARTIFACT_INVALID")
    assert "the 10 bytes in the store are not those" in answer.error[2]


async def test_a_pinned_variant_that_the_back_end_refuses_is_a_typed_refusal(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long this takes, it is not yet time to try that load again."""
    monkeypatch.setattr("workers.execution.failures.FIRST_S", 600.0)
    monkeypatch.setattr("workers.execution.failures.LONGEST_S", 600.0)
    await served.worker("w1")
    connected = served.gateway.known.workers[WorkerId("w1")]
    spec = Specs(served.gateway.known.catalog, served.gateway.store).of(
        TASK.name, DOUBLE, KIND.name
    )
    with pytest.raises(VariantNotLoadable, match="runtime 'steam' is unknown"):
        await connected.connection.load(replace(spec, runtime="steam"), 5.0)
    # Queries are chosen from a snapshot, which may be made a moment after the report.
    path = served.gateway.path
    await until(
        lambda: path.snapshot.tasks[TASK.name].by_variant[VariantName(DOUBLE)][0].unloadable
    )
    answer = await served.ask(query(4, variant=DOUBLE, slo={"latency_ms": 30_000}))
    assert answer.error[:2] == (503, "ARTIFACT_INVALID")
    assert "runtime 'steam' is unknown" in answer.error[2]


async def test_the_next_variant_answers_for_a_damaged_one(served: Served) -> None:
    """Nothing is loaded: the cheapest that fits is damaged, and so is the next."""
    await served.worker("w1")
    served.damage(DOUBLE)
    served.damage(LATE)
    slo = {"latency_ms": 30_000, "accuracy": 0.95}
    answer = await served.ask(query(4, variant=None, slo=slo))
    assert answer.json["variant"] == SLOW
    assert answer.json["slo_met"] is True

    served.damage(SLOW)  # loaded: its file does not matter any more
    answer = await served.ask(query(4, variant=None, slo=slo))
    assert answer.json["variant"] == SLOW
    answer = await served.ask(query(4, variant=None, slo={"latency_ms": 30_000, "accuracy": 0.999}))
    assert answer.error[:2] == (422, "SLO_INFEASIBLE")


async def test_too_little_time_to_load_and_a_damaged_artifact(slow_to_load: Served) -> None:
    """A load that is begun for queries to come says as well that it cannot be done."""
    served = slow_to_load
    await served.worker("w1")
    served.damage(LATE)
    answer = await served.ask(query(4, variant=LATE, slo=TOO_SOON))
    assert answer.error[:2] == (503, "ARTIFACT_INVALID")
    await served.worker("w2")
    answer = await served.ask(query(4, variant=None, slo={**TOO_SOON, "accuracy": 0.95}))
    assert answer.error[:2] == (503, "COLD")
    assert repr(DOUBLE) in answer.error[2]


async def test_only_damaged_variants_left_is_a_typed_refusal_with_all_reasons(
    served: Served,
) -> None:
    await served.worker("w1")
    await served.worker("w2")
    for variant in (DOUBLE, LATE, SLOW):
        served.damage(variant)
    slo = {"latency_ms": 30_000, "accuracy": 0.95}
    answer = await served.ask(query(4, variant=None, slo=slo))
    assert answer.error[:2] == (503, "ARTIFACT_INVALID")
    reasons = answer.json["reasons"]
    assert reasons.keys() == {FAST, DOUBLE, LATE, SLOW}
    assert all("is damaged" in reasons[variant] for variant in (DOUBLE, LATE, SLOW))
    assert reasons[FAST] == "accuracy 90.00 % < 95.00 %"


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


async def test_without_workers_it_says_so_and_when_one_is_expected(served: Served) -> None:
    answer = await served.ask(query(variant=None))
    status, code, message = answer.error
    assert (status, code, answer.json["retryable"]) == (503, "NO_WORKERS", True)
    assert message.startswith("no worker that could answer is running: 1 of cpu-")
    assert 5 <= answer.json["retry_after_s"] <= 6
    assert answer.headers["retry-after"] == "6"


async def test_scaled_to_none_nobody_knows_when_to_come_back(served: Served) -> None:
    for kind in (served.gateway.settings.kinds[0].name, KIND.name):
        served.gateway.catalog.set_inventory(DeviceKindName(kind), 0)
    await until(lambda: served.gateway.path.snapshot.wanted.kinds() == [])
    for path in ("/v1/query", "/v2/models/letters/infer"):
        answer = await served.ask(query(variant=None) if "v1" in path else INFER, path=path)
        assert answer.error == (
            503,
            "NO_WORKERS",
            "no worker is running and none is wanted: every device kind is scaled to 0 workers",
        )
        assert answer.json["retryable"] is True
        assert "retry-after" not in answer.headers
        assert "retry_after_s" not in answer.json


async def test_loads_in_line_count_into_when_to_come_back(slow_to_load: Served) -> None:
    served = slow_to_load
    await served.worker("w1")
    view = served.gateway.known.workers[WorkerId("w1")].view
    view.loading, view.loading_asked = 20 * ((TASK.name, VariantName(SLOW)),), 20
    answer = await served.ask(query(4, variant=FAST, slo=TOO_SOON))
    assert answer.error[:2] == (503, "COLD")
    assert answer.json["retry_after_s"] == pytest.approx(21 * 60.0)
    assert answer.headers["retry-after"] == "1260"


async def test_the_query_of_a_killed_worker_is_answered_by_another(served: Served) -> None:
    child = await served.process("w1", LATE)
    os.kill(child.pid, signal.SIGSTOP)  # it will not answer
    asked = query(5, variant=LATE, slo={"latency_ms": 30_000})
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
    await until(lambda: not served.gateway.known.workers)


async def test_who_has_the_time_waits_for_the_worker_that_follows(served: Served) -> None:
    """Those that came before the last one was killed, and those that come after that."""
    served.gateway.catalog.set_inventory(KIND.name, 1)
    child = await served.process("w1", FAST)
    os.kill(child.pid, signal.SIGSTOP)
    asked = [query(row, variant=FAST, slo={"latency_ms": 30_000}) for row in (5, 6)]
    first = asyncio.create_task(served.ask(asked[0]))
    await until(lambda: served.in_flight == 1)
    os.kill(child.pid, signal.SIGKILL)
    await until(lambda: not served.gateway.known.workers)
    second = asyncio.create_task(served.ask(asked[1]))
    await until(lambda: len(served.gateway.path.awaiting) == 2)
    answer = await served.ask(query(variant=FAST, slo={"latency_ms": 500}))
    assert answer.error[:2] == (503, "NO_WORKERS")
    await served.worker("w2", FAST)
    answers = await asyncio.gather(first, second)
    assert [one.json["outputs"] for one in answers] == [[[5, 0, 0, 0]], [[6, 0, 0, 0]]]
    assert (served.in_flight, len(served.gateway.path.awaiting)) == (0, 0)


async def test_a_worker_that_does_not_come_is_waited_for_until_the_deadline(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("START_MS", "OVERDUE_MS"):
        monkeypatch.setattr(f"planner.worker_starts.{name}", 50.0)
    served.gateway.catalog.set_inventory(KIND.name, 1)
    await until(lambda: KIND.name in served.gateway.path.snapshot.wanted.kinds())
    answer = await served.ask(query(variant=FAST, slo={"latency_ms": 300}))
    assert answer.error == (
        504,
        "DEADLINE_EXCEEDED",
        "not answered within 300 ms: no worker that could answer was there, and the one being "
        "started took longer",
    )
    assert (served.in_flight, len(served.gateway.path.awaiting)) == (0, 0)


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
        "model_version": DOUBLE,
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 4], "data": [2, 4, 6, 8]}],
    }


async def test_the_version_of_a_v2_reply_can_be_asked_for_again(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    first = await served.ask(infer(), path="/v2/models/letters/infer")
    version = first.json["model_version"]
    again = await served.ask(infer(), path=f"/v2/models/letters/versions/{version}/infer")
    assert (again.status, again.json["model_version"]) == (200, version)


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
            "/v2/models/letters/versions/fast/infer",
            (
                404,
                "NOT_FOUND",
                f"task 'letters' has no variant 'fast'; there are: {FAST} and 3 more",
            ),
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
    letters = "/v2/models/letters"
    # Requests are taken, and for now none can be answered.
    assert await get("/v2/health/ready") == (200, {"ready": True})
    assert await get(f"{letters}/ready") == (503, {"name": "letters", "ready": False})
    await served.worker("w1", FAST)
    assert await get("/v2/health/ready") == (200, {"ready": True})
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
            "labels": ["a", "b", "c", "d"],
        },
    )
    assert (await served.get("/v2")).json["extensions"] == [
        "binary_tensor_data",
        "classification",
        "model_configuration",
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
    found = {row["variant"]: row for row in stats}
    assert found[FAST]["version"] == str(number_of("letters", FAST))
    assert found[FAST]["inference_count"] == 3
    assert found[FAST]["execution_count"] == 2
    assert found[FAST]["last_inference"] > 0
    assert found[SLOW]["inference_count"] == found[SLOW]["last_inference"] == 0
    told = found[FAST]["inference_stats"]
    assert {name for name, duration in told.items() if duration["count"] == 2} == {
        "success", "queue", "compute_input", "compute_infer", "compute_output",
    }  # fmt: skip
    assert told["compute_infer"]["ns"] > 0
    assert told["compute_input"]["ns"] > 0
    assert told["compute_output"]["ns"] > 0
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    assert told["success"]["ns"] > sum(told[part]["ns"] for part in parts)
    assert [
        (row["batch_size"], row["compute_infer"]["count"]) for row in found[FAST]["batch_stats"]
    ] == [(1, 1), (2, 1)]
    one = (await served.get(f"/v2/models/letters/versions/{FAST}/stats")).json["model_stats"]
    assert one == [found[FAST] | {"version": FAST}]
    all_of_them = (await served.get("/v2/models/stats")).json["model_stats"]
    assert all_of_them == stats
    assert (await served.get("/v2/models/nope/stats")).error[:2] == (404, "TASK_NOT_FOUND")


async def test_v2_configuration_has_the_signature_and_numbers_of_versions(served: Served) -> None:
    config = (await served.get("/v2/models/letters/config")).json
    numbers = {number_of("letters", name): name for name in (FAST, SLOW, LATE, DOUBLE)}
    assert config["max_batch_size"] == 8
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}]
    assert config["output"] == [{"name": "y", "data_type": "TYPE_FP32", "dims": [4]}]
    assert set(config["version_policy"]["specific"]["versions"]) == set(numbers)
    assert config["parameters"] == {
        f"version {number}": {"string_value": name} for number, name in numbers.items()
    }
    one = (await served.get(f"/v2/models/letters/versions/{FAST}/config")).json
    assert one["version_policy"]["specific"]["versions"] == [number_of("letters", FAST)]
    wrong = await served.get("/v2/models/letters/versions/7/config")
    assert wrong.error[:2] == (404, "NOT_FOUND")


async def test_v2_says_as_largest_batch_what_any_live_variant_takes(served: Served) -> None:
    catalog, known = served.gateway.catalog, served.gateway.known

    async def fewer(variant: str, rows: int, stage: Stage) -> None:
        [found] = [one for one in catalog.snapshot().profiles if one.variant == variant]
        points = (found.points[0], replace(found.points[1], batch_size=rows))
        catalog.put_profiles((replace(found, points=points),))
        model = ModelName(variant.partition("-")[0])
        catalog.set_stage([found.task], model, 1, stage)
        await known.refresh_catalog(catalog.marks().revision)

    async def most(of: str) -> int:
        found: int = (await served.get(f"/v2/models/letters{of}/config")).json["max_batch_size"]
        return found

    await fewer(SLOW, 4, Stage.LIVE)
    await fewer(DOUBLE, 2, Stage.CANARY)  # answers only who names it
    assert (await most(""), await most(f"/versions/{FAST}")) == (4, 8)
    assert (await most(f"/versions/{SLOW}"), await most(f"/versions/{DOUBLE}")) == (4, 2)


async def test_v2_says_as_largest_batch_nothing_of_kinds_that_are_gone(served: Served) -> None:
    """As after a machine was divided anew: what was measured on the old kind stays."""
    catalog, known = served.gateway.catalog, served.gateway.known
    gone = replace(KIND, name=DeviceKindName("cpu-9"))
    profiles = tuple(
        replace(one, device_kind=gone.name, points=one.points[:1])
        for one in catalog.snapshot().profiles
    )
    catalog.put_profiles(profiles, (gone,))
    await known.refresh_catalog(catalog.marks().revision)
    assert (await served.get("/v2/models/letters/config")).json["max_batch_size"] == 1
    await served.worker("w1", FAST)
    assert (await served.get("/v2/models/letters/config")).json["max_batch_size"] == 8


async def test_v2_versions_may_be_named_by_their_numbers(served: Served) -> None:
    await served.worker("w1", FAST)
    number = number_of("letters", FAST)
    answer = await served.ask(INFER, path=f"/v2/models/letters/versions/{number}/infer")
    assert answer.json["parameters"]["variant"] == FAST
    assert (await served.get(f"/v2/models/letters/versions/{number}/ready")).status == 200
    assert (await served.get("/v2/models/letters/versions/7/ready")).status == 404


async def test_v2_lists_only_what_is_ready_where_that_is_wanted(served: Served) -> None:
    await served.worker("w1", FAST)
    for body, names in ((b"", 4), (b"{}", 4), (b'{"ready": false}', 4), (b'{"ready": true}', 1)):
        listed = (await served.ask(body, path="/v2/repository/index")).json
        assert len(listed) == names, body
    wrong = await served.ask(b"xx", path="/v2/repository/index")
    assert wrong.error == (400, "INVALID_INPUT", "the body is not JSON")


async def test_v2_loads_what_is_asked_for_by_name(served: Served) -> None:
    await served.worker("w1")
    assert (await served.get("/v2/models/letters/ready")).status == 503
    loaded = await served.ask(b"{}", path="/v2/repository/models/letters/load")
    assert (loaded.status, loaded.json) == (200, {})
    assert (await served.get("/v2/models/letters/ready")).status == 200
    catalog = served.gateway.catalog
    [pin] = catalog.rules()
    assert (pin.kind, pin.task, pin.variant, pin.by) == ("pin", "letters", FAST, "a load by name")
    again = await served.ask(b"{}", path="/v2/repository/models/letters/load")
    assert (again.status, catalog.rules()) == (200, (pin,))
    unloaded = await served.ask(b"{}", path="/v2/repository/models/letters/unload")
    assert (unloaded.status, unloaded.json, catalog.rules()) == (200, {}, ())
    catalog.put_rule(replace(pin, by="ann"))  # an operator's own is not a client's to take back
    refused = await served.ask(b"{}", path="/v2/repository/models/letters/unload")
    assert refused.error[:2] == (409, "CONFLICT")
    assert "decided by the plan" in refused.json["error"]
    unknown = await served.ask(b"{}", path="/v2/repository/models/nope/load")
    assert unknown.error[:2] == (404, "TASK_NOT_FOUND")


async def test_v2_a_load_that_fails_pins_nothing(served: Served) -> None:
    refused = await served.ask(b"{}", path="/v2/repository/models/letters/load")
    assert refused.error[:2] == (503, "NO_WORKERS")
    assert served.gateway.catalog.rules() == ()


async def test_what_is_forbidden_answers_nothing_and_says_why(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    catalog = served.gateway.catalog
    rule = Rule(kind=RuleKind.FORBID, task=TaskName("letters"), variant=VariantName(FAST))
    catalog.put_rule(replace(rule, why="wrong"))
    named = f"/v2/models/letters/versions/{FAST}/infer"
    for _ in range(100):
        answer = await served.ask(INFER, path=named)
        if answer.status != 200:
            break
        await asyncio.sleep(0.05)
    assert answer.error[1] == "NOT_FOUND"
    assert "an operator has forbidden it (rule 1: wrong)" in answer.json["error"]
    other = await served.ask(INFER, path="/v2/models/letters/infer")
    assert other.json["parameters"]["variant"] != FAST
    index = (await served.ask(b"{}", path="/v2/repository/index")).json
    asked = {"task": "letters", "slo": {"accuracy": 0.999}, "inputs": [[0.0] * 4]}
    refused = await served.ask(asked)
    assert refused.json["reasons"][FAST] == "an operator has forbidden it (rule 1: wrong)"
    assert len(index) == 4


async def test_while_the_plan_is_frozen_loads_take_free_memory_only(served: Served) -> None:
    host = await served.worker("w1", FAST)
    catalog = served.gateway.catalog
    catalog.put_rule(Rule(kind=RuleKind.FREEZE))
    await until(lambda: served.gateway.known.frozen)
    named = f"/v2/models/letters/versions/{SLOW}/infer"
    assert (await served.ask(INFER, path=named)).status == 200
    assert {one.variant for one in host.status().replicas} == {FAST, SLOW}


async def test_v2_answers_with_classes_where_they_are_asked_for(served: Served) -> None:
    await served.worker("w1", FAST)
    body = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 4, 2, 3]}],
        "outputs": [{"name": "y", "parameters": {"classification": 2}}],
    }
    answer = await served.ask(body, path=f"/v2/models/letters/versions/{FAST}/infer")
    assert answer.json["outputs"] == [
        {
            "name": "y",
            "datatype": "BYTES",
            "shape": [1, 2],
            "data": ["4.000000:1:b", "3.000000:3:d"],
        }
    ]


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
