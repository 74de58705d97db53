"""What operators change of a task while it is asked; running gateways follow."""

import pytest

from tests.integration.deployment import PATIENT, Deployment

pytestmark = pytest.mark.integration

ROW = [[0.0] * 64]


def ask(running: Deployment) -> tuple[int, str]:
    """The status and the error code of a query that names no SLO."""
    answer = running.request("POST", "/v1/query", {"task": "digits", "inputs": ROW})
    return answer.status, answer.body.get("code", "")


def test_queries_follow_a_changed_default_slo(digits: Deployment) -> None:
    before = digits.get("/v1/tasks/digits")["slo"]
    digits.until(lambda: ask(digits)[0] == 200, "an answer")
    changed = digits.request("PATCH", "/v1/tasks/digits/slo", {"accuracy": 1.0} | PATIENT)
    assert (changed.status, changed.body["slo"]) == (200, before | {"accuracy": 1.0} | PATIENT)
    digits.until(lambda: ask(digits) == (422, "SLO_INFEASIBLE"), "the new default")
    assert digits.query(ROW, slo={"accuracy": 0.5} | PATIENT).status == 200
    digits.request("PATCH", "/v1/tasks/digits/slo", before)
    digits.until(lambda: ask(digits)[0] == 200, "the old default")
    told = digits.get("/v1/events?limit=200")["events"]
    assert [event["subject"] for event in told if event["kind"] == "slo_changed"] == ["digits"] * 2
