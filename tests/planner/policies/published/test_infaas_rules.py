"""Golden cases of INFaaS' rules: one JSON file for each threshold, under ``tests/cases/infaas``."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.latency_table import LatencyTable
from planner.policies.published import infaas_rules as rules

CASES = sorted((Path(__file__).parents[3] / "cases" / "infaas").glob("*.json"))


def argument(name: str, value: Any) -> Any:
    if name == "load":
        return rules.Load(**value)
    return [tuple(point) for point in value] if name == "points" else value


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    case = json.loads(path.read_text())
    rule = getattr(rules, case["rule"])
    found = rule(**{name: argument(name, value) for name, value in case["given"].items()})
    expected = case["expect"]
    if isinstance(expected, list):
        assert list(found) == pytest.approx(expected), case["why"]
    else:
        assert found == expected, case["why"]


def test_every_threshold_has_a_case() -> None:
    assert {json.loads(path.read_text())["rule"] for path in CASES} == {
        "fit", "lacking_qps", "more_replicas", "more_workers", "overloaded", "recovered",
        "scaling_cost_ms", "scan_budget", "steps_down", "upgrades", "votes", "workers_for",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "gpu"),
    [("cpu-4", False), ("i7-12700h-fp32", False), ("i9-10940x", False), ("rtx-4090", True)],
)
def test_which_kinds_are_gpus(kind: str, gpu: bool) -> None:
    assert rules.is_gpu(kind) is gpu


def test_a_gpu_variant_is_judged_by_a_batch_of_32_and_a_cpu_variant_by_one_row() -> None:
    table = LatencyTable([(1, 12.0), (64, 138.0)])
    assert rules.fitted_ms(table, gpu=True) == pytest.approx(74.0)
    assert rules.fitted_ms(table, gpu=False) == pytest.approx(12.0)
