"""What end-to-end tests know of the digits task, by looking at the catalog themselves."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.deployment import PATIENT, Deployment, Load, Service

Rows = list[list[float]]

LARGEST_BATCH = 16
"""Rows of the largest query: what the family is measured with."""
AS_CHEAP, AS_CHEAP_MS = 3.0, 1.0
"""A variant that takes nearly as long as the cheapest may answer in its place: what is expected of
those that were asked is corrected, and on a busy machine more than their profiles differ by."""
GOOD: dict[str, Any] = {"task": "digits", "inputs": [[0.0] * 64], "slo": PATIENT}


def live(deployment: Deployment) -> list[dict[str, Any]]:
    """Variants on the one device kind there is, cheapest first, with its profile flattened in."""
    rows = []
    for variant in deployment.variants():
        (device,) = variant["devices"]
        rows.append({**variant, **device})
    return sorted(rows, key=lambda row: row["price_usd_per_1k"])


def five_floors(variants: list[dict[str, Any]]) -> dict[str, float]:
    """Floors that five different variants are the cheapest to meet, by plain search."""
    chosen: dict[str, float] = {}
    for floor in sorted({variant["accuracy"] for variant in variants}):
        cheapest = next(v for v in variants if v["accuracy"] >= floor)
        chosen.setdefault(cheapest["name"], floor)
    assert len(chosen) >= 5, chosen
    names = sorted(chosen, key=lambda name: chosen[name])
    picked = [names[round(i * (len(names) - 1) / 4)] for i in range(5)]
    return {name: chosen[name] for name in picked}


def check_five_slos(deployment: Deployment, held_out: tuple[Rows, list[int]]) -> None:
    rows, labels = held_out
    variants = {v["name"]: v for v in live(deployment)}
    for name, floor in five_floors(list(variants.values())).items():
        slo = {**PATIENT, "accuracy": floor}
        answer = deployment.query(rows[:LARGEST_BATCH], slo=slo)
        assert answer.status == 200, answer
        chosen = variants[answer.body["variant"]]
        assert chosen["p95_ms"] <= AS_CHEAP * variants[name]["p95_ms"] + AS_CHEAP_MS
        assert answer.body["accuracy"] == chosen["accuracy"] >= floor
        right = 0
        for start in range(0, len(rows), LARGEST_BATCH):
            answer = deployment.query(rows[start : start + LARGEST_BATCH], variant=name, slo=slo)
            assert answer.status == 200, answer
            reply = answer.body
            assert reply["variant"] == name
            assert reply["slo_met"] is True
            assert reply["accuracy"] == variants[name]["accuracy"] >= floor
            truth = labels[start : start + LARGEST_BATCH]
            right += sum(int(a) == b for a, b in zip(reply["labels"], truth, strict=True))
        # One row may sit on the fence: batches of another size round differently.
        assert right / len(rows) == pytest.approx(variants[name]["accuracy"], abs=1.5 / len(rows))


def check_infeasible(digits: Service) -> None:
    answer = digits.query([[0.0] * 64], slo={"latency_ms": 0.01, "accuracy": 0.97})
    assert answer.status == 422
    assert answer.body["code"] == "SLO_INFEASIBLE"
    names = {variant["name"] for variant in digits.variants()}
    assert answer.body["reasons"].keys() == names
    assert 1 <= len(answer.body["alternatives"]) <= 3
    assert {found["variant"] for found in answer.body["alternatives"]} <= names

    above = digits.query([[0.0] * 64], slo={"accuracy": 1.0})
    assert above.status == 422 or above.body["accuracy"] == 1.0


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def check_stopped_worker(digits: Service, stop: Callable[[], None]) -> None:
    """One of several hangs: others answer, and the control loop has it replaced."""
    held = {one["worker"]: digits.ready(one) for one in digits.workers()}

    def silent() -> str:
        return next((w["worker"] for w in digits.workers() if w["silent_s"] is not None), "")

    def replaced() -> bool:
        there = {one["worker"]: digits.ready(one) for one in digits.workers()}
        new = there.keys() - held.keys()
        return hangs not in there and any(there[one] == held[hangs] for one in new)

    with Load(digits, GOOD, clients=4, pause_s=0.02) as load:
        digits.until(lambda: load.snapshot()["200"] > 100, "load")
        stop()
        hangs: str = digits.until(silent, "a silent worker")
        digits.until(replaced, "another worker")
        before = load.snapshot()["200"]
        digits.until(lambda: load.snapshot()["200"] > before + 100, "service")
    assert load.untyped == []
    lost = digits.get("/v1/events?kind=worker_lost&limit=1000")["events"]
    [told] = [one["message"] for one in lost if one["subject"] == hangs]
    assert "it said nothing for 10 s and was ended" in told


def check_killed_worker(digits: Service, kill: Callable[[int], None] = kill) -> None:
    (worker,) = digits.workers()
    with Load(digits, GOOD, clients=8) as load:
        digits.until(lambda: load.snapshot()["200"] > 200, "load")
        kill(worker["pid"])
        digits.until(
            lambda: [w for w in digits.workers() if w["pid"] != worker["pid"] and digits.ready(w)],
            "a new worker",
        )
        before = load.snapshot()["200"]
        digits.until(lambda: load.snapshot()["200"] > before + 200, "service")
    assert load.untyped == []
    assert load.outcomes.keys() <= {
        "200",
        "REPLICA_LOST",
        "OVERLOADED",
        "COLD",
        "NO_WORKERS",
        "DEADLINE_EXCEEDED",
    }
    everything = {variant["name"] for variant in digits.variants()}
    digits.until(lambda: digits.ready(digits.workers()[0]) == everything, "all variants")
