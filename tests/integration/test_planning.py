"""Plans at work: queries follow them."""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.deployment import Deployment, deployed
from tests.integration.digits import live

pytestmark = pytest.mark.integration

ROW = [0.0] * 64
MARGIN = 1.2
"""On a measured p95, in predictions."""


def routes(running: Deployment) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = running.get("/v1/plan")["routes"]
    return found


def test_queries_follow_a_plan_for_accuracy(state: Path) -> None:
    """An SLO that the most accurate variant meets on idle workers only: plans count on others.

    How long it takes here is known better with each of its queries, so the SLO is shortened until
    plans leave it out.
    """
    with deployed(state, objective="accuracy") as running:
        (worker,) = running.workers()
        running.until(lambda: len(running.ready(worker)) == len(live(running)), "all loaded")
        best = max(live(running), key=lambda v: (v["accuracy"], -v["p95_ms"]))
        slo = {"latency_ms": 1.5 * MARGIN * best["p95_ms"], "prefer": "accuracy"}

        def by_plan_without_the_best() -> bool:
            answer = running.query([ROW], slo=slo)
            assert answer.status == 200, answer
            planned = {route["variant"] for route in routes(running)}
            if best["name"] in planned:
                slo["latency_ms"] *= 0.995
            return answer.body["variant"] in planned - {best["name"]}

        def best_in_time() -> bool:
            return running.query([ROW], variant=best["name"], slo=slo).status == 200

        running.until(by_plan_without_the_best, "an answer by a plan without the most accurate")
        running.until(best_in_time, "the most accurate in time when it is asked for")
