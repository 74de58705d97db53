"""What operators say of what is loaded, in a running system whose memory is full.

In the end there is no rule, and the profiles are as they were.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from controlplane.settings import load_settings
from tests.integration.deployment import CLI, PATIENT, Answer, Deployment, environment
from variants.catalog.sql import open_catalog
from variants.types import Profile

pytestmark = pytest.mark.integration

ROW = [[0.0] * 64]
BIG = ("linear-v1-onnx-fp32", "linear-v1-onnx-int8", "mlp-small-v1-onnx-fp32",
       "mlp-small-v1-onnx-int8")  # fmt: skip
PART = 0.4
"""Of the worker's memory that each of them takes for the time of this test: two have room."""
SETTLED_S = 3.0
"""A few turns of the control loop."""


@pytest.fixture
def full(digits: Deployment) -> Iterator[float]:
    """A worker whose memory is too small for what is registered; its memory in MiB."""
    [worker] = digits.workers()
    memory_mib = float(worker["memory_mib"])
    with closing(open_catalog(load_settings(state_dir=digits.state_dir).catalog_url)) as opened:
        measured = {str(one.variant): one for one in opened.snapshot().profiles}
        opened.put_profiles(tuple(_grown(measured[name], memory_mib) for name in BIG))
        try:
            _reload(digits, memory_mib)
            yield memory_mib
        finally:
            for rule in digits.get("/v1/rules")["rules"]:
                digits.request("DELETE", f"/v1/rules/{rule['id']}")
            opened.put_profiles(tuple(measured.values()))
    digits.until(lambda: len(ready(digits)) == len(measured), "all is loaded again")


def _grown(profile: Profile, memory_mib: float) -> Profile:
    return replace(profile, memory_mib=PART * memory_mib)


def _reload(digits: Deployment, memory_mib: float) -> None:
    """Unload those whose size has changed: what is loaded has the size that it was loaded with."""
    for name in BIG:
        evict(digits, name)

    def settled() -> bool:
        sizes = [one["memory_mib"] for one in replicas(digits) if one["variant"] in BIG]
        return len(sizes) == 2 and min(sizes) > 0.3 * memory_mib

    digits.until(settled, "two of them are loaded in their new size")


def replicas(digits: Deployment) -> list[dict[str, Any]]:
    [worker] = digits.workers()
    assert worker["reserved_mib"] <= worker["memory_mib"]
    found: list[dict[str, Any]] = worker["replicas"]
    return found


def ready(digits: Deployment) -> set[str]:
    return {one["variant"] for one in replicas(digits) if one["state"] == "ready"}


def evict(digits: Deployment, name: str) -> Answer:
    return digits.request("POST", "/v1/evictions", {"task": "digits", "variant": name})


def rule(digits: Deployment, word: str, name: str = "", **more: Any) -> Answer:
    task = "digits" if name else ""
    body = {"rule": word, "task": task, "variant": name, **more}
    return digits.request("POST", "/v1/rules", body)


def told(digits: Deployment, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """What a command prints."""
    settings = environment(digits.state_dir, digits.port)
    return subprocess.run(
        [*CLI, *arguments], env=settings, capture_output=True, text=True, timeout=120, check=False
    )


def test_operators_say_what_stays_what_may_not_run_and_when_nothing_changes(
    digits: Deployment, full: float
) -> None:
    kept = min(set(BIG) - ready(digits))
    others = [name for name in BIG if name != kept]

    # A pin: it drives out what is there, and nothing that queries ask for drives it out.
    pinned = told(digits, "pin", "digits", kept, "--why", "test")
    assert pinned.returncode == 0, pinned.stderr
    digits.until(lambda: kept in ready(digits), "the pinned variant is loaded")
    for _ in range(3):
        for name in others:
            assert digits.query(ROW, variant=name).status == 200
            assert kept in ready(digits)
    assert evict(digits, kept).body["code"] == "CONFLICT"
    assert rule(digits, "pin", others[0]).status == 201
    refused = rule(digits, "pin", others[1])
    assert (refused.status, "beside what else is pinned" in refused.body["error"]) == (409, True)
    digits.until(lambda: {kept, others[0]} <= ready(digits), "both are loaded")
    assert all(row["kept"] for row in digits.get("/v1/rules")["rules"])

    # A forbid: unloaded, refused with its reason, and never loaded again.
    assert rule(digits, "forbid", kept).status == 409
    removed = told(digits, "rules", "remove", str(digits.get("/v1/rules")["rules"][0]["id"]))
    assert removed.returncode == 0, removed.stderr
    forbidden = told(digits, "forbid", "digits", kept, "--why", "wrong labels")
    assert forbidden.returncode == 0, forbidden.stderr
    digits.until(lambda: kept not in {one["variant"] for one in replicas(digits)}, "it left")
    # Gateways look for new rules twice a second.
    asked = digits.until(
        lambda: (found := digits.query(ROW, variant=kept)).status != 200 and found, "the rule"
    )
    assert (asked.status, "an operator has forbidden it" in asked.body["error"]) == (404, True)
    impossible = digits.query(ROW, slo={"accuracy": 1.0} | PATIENT)
    assert "wrong labels" in impossible.body["reasons"][kept]
    explained = told(digits, "explain", "digits")
    assert "an operator has forbidden it" in explained.stdout

    # A freeze: memory comes free, and no plan uses it before it is thawed.
    frozen = told(digits, "freeze", "--for", "1h", "--why", "sale")
    assert frozen.returncode == 0, frozen.stderr
    time.sleep(SETTLED_S)
    version = digits.get("/v1/plan")["version"]
    for row in digits.get("/v1/rules")["rules"]:
        if row["rule"] != "freeze":
            digits.request("DELETE", f"/v1/rules/{row['id']}")
    time.sleep(SETTLED_S)
    plan = digits.get("/v1/plan")
    assert plan["version"] == version
    assert any("The plan is frozen since" in text and "sale" in text for text in plan["rules"])
    assert "The plan is frozen since" in told(digits, "status").stdout
    before = ready(digits)
    missing = min(set(BIG) - before)
    patient = digits.query(ROW, variant=missing, slo={"latency_ms": 2_000.0})
    assert (patient.status, missing in ready(digits)) in ((200, True), (503, False))
    assert before <= ready(digits)  # nothing left for it
    thawed = told(digits, "thaw")
    assert thawed.returncode == 0, thawed.stderr
    kinds = {one["kind"] for one in digits.get("/v1/events?limit=1000")["events"]}
    assert {"pinned", "forbidden", "frozen", "thawed", "rule_removed"} <= kinds
