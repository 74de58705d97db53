"""Two workers, and one of them leaves under load."""

import os
import signal

import pytest

from tests.integration.deployment import BUSY, Deployment, Load
from tests.integration.digits import GOOD, check_stopped_worker

pytestmark = pytest.mark.integration


def test_two_workers_share_the_work(two: Deployment) -> None:
    assert len(two.workers()) == 2
    two.until(lambda: all(two.ready(w) for w in two.workers()), "both loaded")
    with Load(two, GOOD, clients=8) as load:
        two.until(lambda: load.snapshot()["200"] > 300, "load")
    assert load.outcomes.keys() <= {"200", *BUSY}
    used: set[str] = set()

    def both_answer() -> bool:
        used.add(two.query([[0.0] * 64]).body["worker"])
        return len(used) == 2

    two.until(both_answer, "both answer")


def test_a_worker_that_is_drained_is_replaced_and_no_query_is_lost(two: Deployment) -> None:
    goes = two.workers()[0]
    held, others = two.ready(goes), {one["worker"] for one in two.workers()[1:]}

    def replaced() -> bool:
        there = {one["worker"]: two.ready(one) for one in two.workers()}
        new = there.keys() - others - {goes["worker"]}
        return goes["worker"] not in there and [there[one] for one in new] == [held]

    with Load(two, GOOD, clients=4, pause_s=0.02) as load:
        two.until(lambda: load.snapshot()["200"] > 100, "load")
        answer = two.request("POST", f"/v1/workers/{goes['worker']}/drain", {"why": "it grows"})
        assert answer.status == 200, answer
        assert (answer.body["done"], answer.body["others"]) == (True, 1)
        two.until(replaced, "another worker")
    assert load.untyped == []
    assert load.outcomes.keys() <= {"200", *BUSY}
    kinds = {one["kind"] for one in two.get("/v1/events?limit=1000")["events"]}
    assert {"worker_told_to_leave", "worker_draining", "worker_left", "worker_joined"} <= kinds


def test_a_worker_that_hangs_is_ended_and_replaced(two: Deployment) -> None:
    check_stopped_worker(two, lambda: os.kill(two.workers()[0]["pid"], signal.SIGSTOP))


def test_shrinking_from_two_workers_to_one_loses_no_query_and_no_worker(two: Deployment) -> None:
    kind = two.workers()[0]["device_kind"]
    these = {worker["worker"] for worker in two.workers()}
    earlier = two.get("/v1/events?limit=1000")["events"]
    with Load(two, GOOD, clients=8) as load:
        two.until(lambda: load.snapshot()["200"] > 200, "load")
        answer = two.request("PUT", f"/v1/inventory/{kind}", {"count": 1})
        assert answer.status == 200, answer
        two.until(lambda: len(two.workers()) == 1, "one worker")
        before = load.snapshot()["200"]
        two.until(lambda: load.snapshot()["200"] > before + 200, "service")
    assert load.untyped == []
    assert load.outcomes.keys() <= {"200", *BUSY}

    def told() -> list[dict[str, str]]:
        found: list[dict[str, str]] = two.get("/v1/events?limit=1000")["events"]
        kinds = ("worker_left", "worker_lost")
        new = [one for one in found if one not in earlier]
        return [one for one in new if one["kind"] in kinds and one["subject"] in these]

    two.until(told, "an event")
    (left,) = told()
    assert left["kind"] == "worker_left"
    assert "scaled down to 1 instead of 2" in left["message"]
