"""Golden cases of selection: one JSON file for each rule, under ``tests/cases/select``."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.selection.select import select
from planner.types import Choice, Refusal, Snapshot
from tests.planner import builders
from tests.planner.builders import NOW_MS
from variants.types import Prefer, ProfileSource, Stage

CASES = sorted((Path(__file__).parents[2] / "cases" / "select").glob("*.json"))


def snapshot_of(case: dict[str, Any]) -> Snapshot:
    variants = [builders.variant(v["name"], v["accuracy"]) for v in case["variants"]]
    stages = {v["name"]: Stage(v["stage"]) for v in case["variants"] if "stage" in v}
    profiles = [
        builders.profile(**{**p, "source": ProfileSource(p.get("source", "measured"))})
        for p in case["profiles"]
    ]
    kinds = [builders.kind(**k) for k in case.get("kinds", [])]
    workers = []
    for entry in case["workers"]:
        fields = {name: value for name, value in entry.items() if name not in ("id", "ready")}
        ready = [builders.key(name) for name in entry["ready"]]
        workers.append((builders.worker(entry["id"], **fields), ready))
    catalog = builders.catalog(variants, profiles, kinds=kinds, stages=stages)
    return builders.snapshot(catalog, *workers)


def as_json(answer: Choice | Refusal, expected: dict[str, Any]) -> dict[str, Any]:
    """The fields of an answer that a case states."""
    if isinstance(answer, Choice):
        fields: dict[str, Any] = {
            "variant": answer.candidate.variant,
            "worker": answer.worker.id,
            "predicted_ms": round(answer.predicted_ms, 9),
            "cold": answer.cold,
            "reason": str(answer.reason),
            "meets_slo": answer.meets_slo,
        }
        return fields
    fields = {
        "code": answer.code.value,
        "reasons": dict(answer.reasons),
        "alternatives": [alternative.variant for alternative in answer.alternatives],
        "load": answer.load and [answer.load[0].variant, answer.load[1].id],
        "retry_after_s": answer.retry_after_s,
    }
    return {name: value for name, value in fields.items() if value or name in expected}


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_case(path: Path) -> None:
    case = json.loads(path.read_text())
    asked = dict(case["query"])
    if "prefer" in asked:
        asked["prefer"] = Prefer(asked["prefer"])
    answer = select(snapshot_of(case), builders.query(**asked), NOW_MS)
    assert as_json(answer, case["expect"]) == case["expect"], case["why"]


def test_there_are_cases() -> None:
    assert len(CASES) >= 12
