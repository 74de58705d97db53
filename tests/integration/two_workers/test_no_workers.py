"""No workers: scaled to none and back, and a gateway that has just started and knows none yet."""

import http.client
import json
import threading
import time
from collections import Counter

import psutil
import pytest

from tests.integration.deployment import ANSWER_S, BUSY, Answer, Deployment, Load, ask, title
from tests.integration.digits import GOOD
from tests.integration.two_workers.conftest import PATIENCE_S, serving

pytestmark = pytest.mark.integration

ROW = [[0.0] * 64]


def test_workers_go_to_none_and_come_back(two: Deployment) -> None:
    kind = two.workers()[0]["device_kind"]
    with Load(two, GOOD, clients=4, pause_s=0.01) as load:
        two.until(lambda: load.snapshot()["200"] > 100, "load", PATIENCE_S)
        scale(two, kind, 0)
        two.until(
            lambda: load.snapshot()["NO_WORKERS"] > 20 and not two.workers(),
            "no worker",
            PATIENCE_S,
        )
    assert load.untyped == []
    assert load.outcomes.keys() <= {"200", "NO_WORKERS", *BUSY}
    check_that_none_is_wanted(
        two.until(lambda: refused(two, "none is wanted"), "it says so", PATIENCE_S)
    )

    scale(two, kind, 2)
    starting = two.until(lambda: refused(two, "being started"), "workers being started", PATIENCE_S)
    assert starting.body["retryable"] is True
    assert int(starting.headers["retry-after"]) >= starting.body["retry_after_s"] > 0
    two.until(lambda: serving(two) == 2, "two workers again", PATIENCE_S)
    assert two.query(ROW).status == 200
    third = two.request("PUT", f"/v1/inventory/{kind}", {"count": 3})
    assert "need 3 cores, and 2 were given" in third.body["lack"]
    time.sleep(6.0)  # the cores that are kept for an upgrade are none of its
    assert serving(two) == 2

    scale(two, kind, 0)
    two.until(lambda: refused(two, "none is wanted"), "no worker again", PATIENCE_S)
    epoch = latest_epoch(two)
    (controller,) = [p for p in two.processes() if "controll" in p.name() and "ray::" in title(p)
                     and "ServeController" not in title(p)]  # fmt: skip
    controller.kill()
    two.until(lambda: latest_epoch(two) > epoch, "a successor", PATIENCE_S)
    check_that_none_is_wanted(two.query(ROW))
    scale(two, kind, 1)
    two.until(lambda: serving(two) == 1, "one worker", PATIENCE_S)
    two.until(lambda: two.query(ROW).status == 200, "an answer", PATIENCE_S)


def test_a_gateway_that_starts_anew_knows_its_workers_before_it_refuses(two: Deployment) -> None:
    kind = two.get("/v1/inventory")["inventory"][0]["device_kind"]
    scale(two, kind, 2)
    two.until(lambda: serving(two) == 2, "two workers", PATIENCE_S)
    answers: Counter[str] = Counter()
    stop = threading.Event()

    def light() -> None:
        """Ask every few hundredths of a second, on a connection of its own each time."""
        while not stop.is_set():
            connection = two.connection(ANSWER_S)
            try:
                answer = ask(connection, "POST", "/v1/query", json.dumps(GOOD).encode())
                answers[str(answer.body.get("code", answer.status))] += 1
            except (OSError, http.client.HTTPException):
                answers["no connection"] += 1
            finally:
                connection.close()
            time.sleep(0.02)

    clients = [threading.Thread(target=light, daemon=True) for _ in range(2)]
    for client in clients:
        client.start()
    two.until(lambda: answers["200"] > 20, "load", PATIENCE_S)
    (gateway,) = [p for p in two.processes() if "gateway" in p.name()]
    gateway.kill()
    two.until(lambda: not alive(gateway), "its end", PATIENCE_S)
    before = answers["200"]
    two.until(lambda: answers["200"] > before + 20, "the gateway again", PATIENCE_S)
    stop.set()
    for client in clients:
        client.join(2 * ANSWER_S)
        assert not client.is_alive(), "a query was never answered"
    assert answers.keys() <= {"200", "no connection", *BUSY}


def scale(deployment: Deployment, kind: str, count: int) -> None:
    answer = deployment.request("PUT", f"/v1/inventory/{kind}", {"count": count})
    assert answer.status == 200, answer


def refused(deployment: Deployment, why: str) -> Answer | None:
    # With less time than a worker takes to start: who has more waits for it.
    answer = deployment.query(ROW, slo={"latency_ms": 900.0})
    return answer if answer.status == 503 and why in answer.body["error"] else None


def check_that_none_is_wanted(answer: Answer) -> None:
    """503, worth another try, but it is not known when."""
    assert (answer.status, answer.body["code"]) == (503, "NO_WORKERS"), answer
    assert "none is wanted" in answer.body["error"]
    assert answer.body["retryable"] is True
    assert "retry-after" not in answer.headers
    assert "retry_after_s" not in answer.body


def latest_epoch(deployment: Deployment) -> int:
    return int(deployment.get("/v1/ticks?limit=1")["ticks"][0]["body"]["epoch"])


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
