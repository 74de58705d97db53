"""How queries ended over the last hour, put together of samples."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.counting.task_counters import BOUNDS_MS
from controlplane.views.history import SETTLE_S, STEP_S, asked, history, quantile_ms, slot_of

NOW_S = 100 * STEP_S + SETTLE_S


def sample(slot: int, task: str = "a", **changes: Any) -> dict[str, Any]:
    told = {
        "met": 2, "missed": 0, "infeasible_answered": 0, "errors": {},
        "latencies": [[1.0, 2.0, 2]], "accuracy": [1.8, 2],
    }  # fmt: skip
    return {"slot": slot, "tasks": {task: told | changes}}


def test_samples_of_several_gateways_are_added_up() -> None:
    one = sample(98, missed=1, errors={"DEADLINE_EXCEEDED": 1, "OVERLOADED": 3})
    other = sample(98, errors={"SLO_INFEASIBLE": 4, "INVALID_INPUT": 9}, accuracy=[2.0, 2])
    quiet = {"slot": 99, "tasks": {}}

    found = history([other, quiet, one], NOW_S, 30)

    assert found["begins_s"] == 97 * STEP_S
    assert found["tasks"] == [
        {
            "task": "a",
            "met": [None, 4, 0],
            "late": [None, 2, 0],
            "refused": [None, 3, 0],
            "infeasible": [None, 4, 0],
            "p50_ms": [None, 1.5, None],
            "p95_ms": [None, pytest.approx(1.95), None],
            "accuracy": [None, pytest.approx(0.95), None],
        }
    ]


def test_what_best_effort_answered_otherwise_counts_as_infeasible() -> None:
    (row,) = history([sample(99, infeasible_answered=5)], NOW_S, 10)["tasks"]

    assert (row["met"], row["infeasible"], row["refused"]) == ([2], [5], [0])


def test_what_is_older_or_not_over_yet_is_left_out() -> None:
    assert history([sample(96), sample(100)], NOW_S, 30)["tasks"] == []
    assert history([], NOW_S, 30, "a")["tasks"][0]["met"] == [None] * 3


def test_moments_that_come_once_more_because_a_clock_was_set_back_count_once() -> None:
    before = [sample(slot, met=100) for slot in range(90, 102)]
    again = [sample(slot, met=7) for slot in (96, 97, 98)]  # set back by a minute
    (row,) = history([*before, *again], NOW_S - 10.0, 60)["tasks"]
    # Up to the tolerance between gateways nothing tells the two apart.
    assert row["met"] == [100, 100, 100, 107, 107, 107]
    again = [sample(slot, met=7) for slot in (90, 91, 92, 93, 94, 95, 96, 97, 98)]
    (row,) = history([*before, *again], NOW_S - 10.0, 60)["tasks"]
    assert row["met"] == [107, 7, 7, 7, 7, 7]


def test_one_task_is_picked() -> None:
    found = history([sample(99), sample(98, "b")], NOW_S, 20, "b")

    assert [(row["task"], row["met"]) for row in found["tasks"]] == [("b", [2, 0])]


def test_what_was_asked_is_put_together_by_slo_class() -> None:
    one = {"slot": 98, "tasks": {}, "asked": {"a|50.0|0.9": 30, "b|20.0|": 1}}
    other = {"slot": 98, "tasks": {}, "asked": {"a|50.0|0.9": 10, "a|50.0|@a-v1": 2, "what": 9}}
    later = {"slot": 99, "tasks": {}}

    found = asked([one, other, later], NOW_S, 30)

    assert (found["begins_s"], found["step_s"]) == (97 * STEP_S, STEP_S)
    told = [
        ("a", 50.0, None, "a-v1", [None, 2, 0]),
        ("a", 50.0, 0.9, None, [None, 40, 0]),
        ("b", 20.0, None, None, [None, 1, 0]),
    ]
    assert [tuple(row.values()) for row in found["classes"]] == told
    assert [row["task"] for row in asked([one, later], NOW_S, 30, "b")["classes"]] == ["b"]
    assert asked([sample(99)], NOW_S, 10)["classes"] == []  # of a gateway of before


def test_an_hour_is_the_most() -> None:
    (row,) = history([sample(99)], NOW_S, 1e9)["tasks"]

    assert len(row["met"]) == 360


@given(st.lists(st.floats(0.01, 20_000), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_is_in_the_bucket_of_the_one_that_is_so_far(
    times: list[float], share: float
) -> None:
    edges = [0.0, *BOUNDS_MS]
    buckets = np.searchsorted(BOUNDS_MS, times)
    latencies = {
        (edges[i], edges[i + 1] if i + 1 < len(edges) else None): int((buckets == i).sum())
        for i in set(buckets)
    }

    found = quantile_ms(latencies, share)

    exact = sorted(times)[max(0, int(np.ceil(share * len(times) - 1e-9)) - 1)]
    bucket = int(np.searchsorted(BOUNDS_MS, exact))
    assert found is not None
    assert edges[bucket] <= found <= (edges[bucket + 1] if bucket < len(BOUNDS_MS) else found)


def test_ten_seconds_begin_at_the_same_moments_everywhere() -> None:
    assert [slot_of(s) for s in (0.0, 9.99, 10.0, 1_700_000_005.0)] == [0, 0, 1, 170_000_000]
