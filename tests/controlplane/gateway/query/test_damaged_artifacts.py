"""Queries for variants whose artifacts cannot be loaded: typed refusals, or the next one."""

import os
from dataclasses import replace

import pytest

from controlplane.load_specs import Specs
from tests.controlplane.serving import DOUBLE, FAST, KIND, LATE, SLOW, TASK, Served, query, until
from variants.errors import VariantNotLoadable
from variants.types import VariantName, WorkerId


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
