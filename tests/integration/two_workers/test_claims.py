"""What answers claim, held against the catalog, the client's own clock and what was asked.

Random queries in both dialects, with every need in every combination, a few at a time so that some
find no room.
"""

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.conftest import EXAMPLES
from tests.integration.deployment import Answer, Deployment, Service, ask
from tests.integration.digits import Rows

pytestmark = pytest.mark.integration

CLIENTS = 4
QUERIES = max(200, int(800 * EXAMPLES))
"""In all."""
LATE_MS = 250.0
"""An answer comes at most so long after its deadline."""
BUSY_MS = 1_500.0
"""And on a machine that does other things, at its client so long after that."""
NO_CEILING, NOTHING_IS_AS_CHEAP = 1.0, 0.0
"""In USD per 1,000 queries. What a row costs follows what batches take, so none in between."""
KNOWN_REASONS = {
    "planned", "cheapest_that_fits", "most_accurate_that_fits", "least_energy_that_fits",
    "energy_not_measured", "earliest_completion", "pinned", "loaded_on_demand", "best_effort",
    "canary", "cached",
}  # fmt: skip
PARAMETERS = {
    "latency_ms": "latency_slo_ms", "accuracy": "min_accuracy", "cost": "max_cost_usd_per_1k",
    "prefer": "prefer",
}  # fmt: skip


class Asked(NamedTuple):
    """A query, in neither dialect."""

    rows: list[int]
    """Numbers of the rows put aside."""
    slo: dict[str, Any]
    variant: str | None
    version: str | None
    best_effort: bool
    priority: int | None
    v2: bool

    @property
    def latency_ms(self) -> float:
        return float(self.slo.get("latency_ms", 1_000.0))

    def sent(self, inputs: Rows) -> tuple[str, dict[str, Any]]:
        """Its path and body."""
        rows = [inputs[number] for number in self.rows]
        beside: dict[str, Any] = {"best_effort": True} if self.best_effort else {}
        if self.version is not None:
            beside |= {"model_version": self.version}
        if self.priority is not None:
            beside |= {"priority": self.priority}
        if self.v2:
            tensor = {"name": "pixels", "shape": [len(rows), 64], "datatype": "FP32"}
            given = {PARAMETERS[name]: value for name, value in self.slo.items()} | beside
            named = "" if self.variant is None else f"/versions/{self.variant}"
            path = f"/v2/models/digits{named}/infer"
            return path, {"inputs": [tensor | {"data": rows}], "parameters": given}
        pin = {} if self.variant is None else {"variant": self.variant}
        return "/v1/query", {"task": "digits", "inputs": rows, "slo": self.slo, **beside, **pin}


def drawn(rng: random.Random, rows: int, variants: Mapping[str, Mapping[str, Any]]) -> Asked:
    """Any query."""
    accuracies = [0.0, 0.5, *sorted({one["accuracy"] for one in variants.values()}), 0.9999, 1.0]
    latencies = [0.05, 0.5, 1.0, 3.0, 10.0, 30.0, 100.0, 1_000.0, 10_000.0]
    slo: dict[str, Any] = {}
    if rng.random() < 0.8:
        slo["latency_ms"] = rng.choice(latencies) * rng.uniform(0.8, 1.2)
    if rng.random() < 0.5:
        slo["accuracy"] = rng.choice(accuracies)
    if rng.random() < 0.3:
        slo["cost"] = rng.choice([NO_CEILING, NO_CEILING, NOTHING_IS_AS_CHEAP])
    if rng.random() < 0.4:
        slo["prefer"] = rng.choice(["cost", "accuracy", "latency", "energy"])
    many = rng.choice([1, 1, 1, 2, 5, 16, 64, 200])
    return Asked(
        rows=[rng.randrange(rows) for _ in range(many)],
        slo=slo,
        variant=rng.choice([*variants, "none"]) if rng.random() < 0.2 else None,
        version=rng.choice(["cnn-v1", "mlp-v1", "none"]) if rng.random() < 0.1 else None,
        best_effort=rng.random() < 0.25,
        priority=rng.choice([0, 1, 65_535]) if rng.random() < 0.2 else None,
        v2=rng.random() < 0.4,
    )


def wrong_in(
    asked: Asked, answer: Answer, took_ms: float, variants: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Each claim of an answer that is not true.

    Args:
        took_ms: from before it was sent until it was read, at the client.
    """
    body, headers = answer.body, answer.headers
    allowed = {
        name
        for name, one in variants.items()
        if asked.variant in (None, name) and asked.version in (None, one["model_version"])
    }
    if took_ms > asked.latency_ms + LATE_MS + BUSY_MS:
        yield f"it came after {took_ms:.0f} ms"
    if answer.status != 200:
        yield from wrong_in_refusal(asked, answer, allowed, variants)
        return
    said = body["parameters"] if asked.v2 else body
    name = said["variant"]
    if name not in allowed:
        yield f"{name} was not asked for"
        return
    variant = variants[name]
    [device] = variant["devices"]
    if said["accuracy"] != variant["accuracy"] or said["model_version"] != variant["model_version"]:
        yield f"the catalog says something else of {name}"
    if not len(asked.rows) <= said["batch_size"] <= device["max_batch_size"]:
        yield f"a batch of {said['batch_size']}"
    if headers["x-choice-reason"] not in KNOWN_REASONS:
        yield f"the reason {headers['x-choice-reason']!r}"
    cost = said["run_ms"] / (3_600 * said["batch_size"]) * usd_per_hour(device)
    if said["cost_usd_per_1k"] != pytest.approx(cost, rel=1e-3):
        yield f"a cost of {said['cost_usd_per_1k']}, where that batch cost {cost}"
    met = {
        "accuracy": said["accuracy"] >= asked.slo.get("accuracy", 0.0),
        "cost": asked.slo.get("cost") != NOTHING_IS_AS_CHEAP,
        "time": said["queue_ms"] + said["run_ms"] <= asked.latency_ms,
    }
    if said["slo_met"] and not all(met.values()):
        yield f"it says that the SLO was met: {met}"
    if not said["slo_met"] and not asked.best_effort:
        yield "it misses the SLO without best effort"
    outputs = body["outputs"][0]["data"] if asked.v2 else body["outputs"]
    scores = np.asarray(outputs).reshape(len(asked.rows), 10)
    if not asked.v2:
        if body["labels"] != [str(best) for best in scores.argmax(1)]:
            yield "labels that are not those of the best scores"
        if body["scores"] != pytest.approx(scores.max(1).tolist()):
            yield "scores that are not the best ones"


def wrong_in_refusal(
    asked: Asked, answer: Answer, allowed: set[str], variants: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """The same of a refusal."""
    body, code = answer.body, answer.body["code"]
    if answer.headers["x-request-id"] != body["request_id"]:
        yield "two request ids"
    if code == "OVERLOADED" and not {"retry-after", "retry-after-ms"} <= answer.headers.keys():
        yield "it does not say when to come again"
    if code == "NOT_FOUND":
        if allowed:
            yield f"there are {allowed}"
    elif code == "SLO_INFEASIBLE":
        if asked.best_effort and fitting(len(asked.rows), allowed, variants):
            yield "best effort takes any answer"
        if unbounded(asked) and (could := fitting(len(asked.rows), allowed, variants, asked.slo)):
            yield f"{could} have all the time"
        if not body["reasons"].keys() <= variants.keys():
            yield "reasons of other variants"
    elif code not in ("OVERLOADED", "DEADLINE_EXCEEDED"):
        yield f"{answer.status} {code}: {body['error']}"


def unbounded(asked: Asked) -> bool:
    """Whether it has much more time than any variant takes, and any price will do."""
    return asked.latency_ms >= 8_000.0 and asked.slo.get("cost", NO_CEILING) == NO_CEILING


def fitting(
    rows: int,
    allowed: set[str],
    variants: Mapping[str, Mapping[str, Any]],
    slo: Mapping[str, Any] | None = None,
) -> set[str]:
    """Those that take so many rows and are as accurate as an SLO says."""
    floor = (slo or {}).get("accuracy", 0.0)
    return {
        name
        for name in allowed
        if variants[name]["accuracy"] >= floor
        and variants[name]["devices"][0]["max_batch_size"] >= rows
    }


def usd_per_hour(device: Mapping[str, Any]) -> float:
    """What its kind costs, from the price of a row by the profile."""
    return float(device["price_usd_per_1k"] * 3_600 / device["p50_ms"])


def claims_of(
    service: Service, inputs: Rows, queries: int, seed: int
) -> tuple[list[str], set[int]]:
    """Ask so many random queries; what was claimed and is not true, and the statuses that came."""
    kinds = {worker["device_kind"] for worker in service.workers()}
    variants = {
        one["name"]: one
        | {"devices": [device for device in one["devices"] if device["device_kind"] in kinds]}
        for one in service.variants()
    }
    rng, connection = random.Random(seed), service.connection(60.0)
    wrong: list[str] = []
    statuses: set[int] = set()
    for _ in range(queries):
        asked = drawn(rng, len(inputs), variants)
        path, body = asked.sent(inputs)
        began_s = time.perf_counter()
        answer = ask(connection, "POST", path, body, service.headers())
        took_ms = 1_000 * (time.perf_counter() - began_s)
        statuses.add(answer.status)
        wrong += [
            f"{one}: {asked}: {answer.body}" for one in wrong_in(asked, answer, took_ms, variants)
        ]
    connection.close()
    return wrong, statuses


def test_what_answers_claim_is_true(two: Deployment, held_out: tuple[Rows, Sequence[int]]) -> None:
    inputs, _ = held_out
    found: list[tuple[list[str], set[int]]] = []

    def run(seed: int) -> None:
        found.append(claims_of(two, inputs, QUERIES // CLIENTS, seed))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == CLIENTS, "a query had no answer that could be read"
    assert [one for wrong, _ in found for one in wrong] == []
    assert {200, 404, 422} <= {status for _, statuses in found for status in statuses}
