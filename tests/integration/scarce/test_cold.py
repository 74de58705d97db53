"""Variants that are not loaded: loaded on demand, or the client is told when to come back."""

import time
from typing import Any

import pytest

from tests.integration.deployment import PATIENT, Answer, Deployment
from tests.integration.digits import live

pytestmark = [pytest.mark.integration, pytest.mark.campaign]


def test_a_floor_that_only_a_cold_variant_meets_is_cold_and_then_warm(scarce: Deployment) -> None:
    variants = {v["name"]: v for v in live(scarce)}
    (worker,) = scarce.workers()
    floor = max(v["accuracy"] for v in variants.values())
    able = {
        name: v
        for name, v in variants.items()
        if v["accuracy"] >= floor and v["memory_mib"] <= worker["memory_mib"]
    }
    assert able
    assert not able.keys() & scarce.ready(worker)

    # Long enough for the answer, not for the load before it.
    fastest_ms = min(v["p95_ms"] for v in able.values())
    loaded_ms = min(v["p95_ms"] + 1_000 * v["load_s"] for v in able.values())
    latency_ms = max(1.3 * fastest_ms + 2, 0.9 * loaded_ms)
    first = scarce.query([[0.0] * 64], slo={"accuracy": floor, "latency_ms": latency_ms})
    assert (first.status, first.body["code"]) == (503, "COLD")
    assert first.body["retryable"] is True
    assert int(first.headers["retry-after"]) >= 1

    second = scarce.until(lambda: answered(scarce, slo={**PATIENT, "accuracy": floor}), "warm")
    assert second.status == 200
    assert second.body["variant"] in able
    assert second.body["slo_met"] is True


def test_a_cold_variant_is_loaded_and_answers_when_the_deadline_allows(scarce: Deployment) -> None:
    (worker,) = scarce.workers()
    fits = {v["name"] for v in live(scarce) if v["memory_mib"] <= worker["memory_mib"]}
    missing = sorted(fits - scarce.ready(worker))
    assert missing
    for name in missing[:3]:
        # What was loaded a moment ago may stay for some seconds: until then the answer is COLD.
        answer = scarce.until(lambda name=name: answered(scarce, variant=name, slo=PATIENT), name)
        assert answer.body["variant"] == name
        assert answer.body["slo_met"] is True
        (worker,) = scarce.workers()
        assert worker["reserved_mib"] <= worker["memory_mib"]


def test_what_was_loaded_and_evicted_for_queries_is_told(scarce: Deployment) -> None:
    def told(kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = scarce.get("/v1/events?limit=1000")["events"]
        return [event for event in found if event["kind"] == kind]

    (worker,) = scarce.workers()
    loaded = scarce.until(lambda: told("loaded_on_demand"), "a load")
    evicted = scarce.until(lambda: told("evicted"), "an eviction")
    assert {event["subject"].partition(" on ")[2] for event in (*loaded, *evicted)} == {
        worker["worker"]
    }
    assert all("for a query (" in event["message"] for event in loaded)
    assert all("made room for digits/" in event["message"] for event in evicted)


def answered(deployment: Deployment, **fields: Any) -> Answer | None:
    """The answer, or nothing when the client is asked to come back; it waits as it is told."""
    answer = deployment.query([[0.0] * 64], **fields)
    if answer.status == 200:
        return answer
    if answer.body["code"] != "COLD":
        raise ValueError(answer)
    time.sleep(int(answer.headers["retry-after"]))
    return None
