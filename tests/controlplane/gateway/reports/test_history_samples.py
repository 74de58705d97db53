"""HistorySamples: what counters grew by in each ten seconds."""

from typing import Any

from controlplane.gateway.counting.task_counters import TaskCounters
from controlplane.gateway.reports.history_samples import HistorySamples
from controlplane.gateway.reports.recent_outcomes import Counted

ACCURACIES = {("a", "fast"): 0.9, ("a", "slow"): 1.0}


def counted(task: TaskCounters) -> Counted:
    return {
        "met": sum(one.met for one in task.variants.values()),
        "missed": sum(one.missed for one in task.variants.values()),
        "infeasible_answered": 0,
        "errors": dict(task.errors),
    }


def answer(task: TaskCounters, variant: str, ms: float, *, rows: int = 1, met: bool = True) -> None:
    task.answered(
        variant, ms, rows, 0, 0, 0.0, met, batch_size=rows, read_ms=0.0, encode_ms=0.0, now_ms=0.0
    )  # fmt: skip


def take(
    samples: HistorySamples, wall_s: float, task: TaskCounters, *, last: bool = False
) -> dict[str, Any] | None:
    return samples.take(wall_s, {"a": counted(task)}, {"a": task}, ACCURACIES, last=last)


def test_a_sample_has_what_came_since_the_one_before() -> None:
    samples, task = HistorySamples(1000.0), TaskCounters()
    answer(task, "fast", 1.5, rows=3)
    answer(task, "slow", 99_999.0, met=False)
    task.failed("OVERLOADED")
    assert not samples.is_due(1009.9)
    assert take(samples, 1009.9, task) is None

    assert samples.is_due(1010.1)
    assert take(samples, 1010.1, task) == {
        "slot": 100,
        "tasks": {
            "a": {
                "met": 1,
                "missed": 1,
                "infeasible_answered": 0,
                "errors": {"OVERLOADED": 1},
                "latencies": [[1, 2, 1], [10000, None, 1]],
                "accuracy": [3 * 0.9 + 1.0, 4],
            }
        },
    }

    answer(task, "slow", 1.5)
    found = take(samples, 1023.0, task)
    assert found is not None
    assert found["slot"] == 101
    assert found["tasks"]["a"]["latencies"] == [[1, 2, 1]]
    assert found["tasks"]["a"]["accuracy"] == [1.0, 1]
    assert found["tasks"]["a"]["errors"] == {}


def test_a_sample_has_what_was_asked_for_since_the_one_before() -> None:
    samples = HistorySamples(1000.0)

    def asked(wall_s: float, **counters: int) -> Any:
        taken = samples.take(wall_s, {}, {}, {}, asked=counters)
        assert taken is not None
        return taken.get("asked")

    assert asked(1010.0, a=5, b=2) == {"a": 5, "b": 2}
    assert asked(1020.0, a=5, b=3) == {"b": 1}
    assert asked(1030.0, a=5, b=3) is None
    assert asked(1040.0, b=2) == {"b": 2}  # it was forgotten, and comes anew


def test_quiet_time_is_a_sample_without_tasks() -> None:
    samples, task = HistorySamples(1000.0), TaskCounters()
    answer(task, "fast", 1.0)
    take(samples, 1010.0, task)

    assert take(samples, 1020.0, task) == {"slot": 101, "tasks": {}}


def test_what_came_before_the_end_is_not_lost() -> None:
    samples, task = HistorySamples(1000.0), TaskCounters()
    answer(task, "fast", 1.0)

    found = take(samples, 1003.0, task, last=True)

    assert found is not None
    assert (found["slot"], found["tasks"]["a"]["met"]) == (100, 1)


def test_a_clock_that_is_set_back_costs_nothing() -> None:
    samples, task = HistorySamples(1000.0), TaskCounters()
    answer(task, "fast", 1.0)

    found = take(samples, 500.0, task)

    assert found is not None
    assert (found["slot"], found["tasks"]["a"]["met"]) == (50, 1)
    assert take(samples, 509.0, task) is None


def test_a_task_that_comes_back_after_it_was_forgotten_begins_at_nothing() -> None:
    samples, task = HistorySamples(1000.0), TaskCounters()
    for _ in range(5):
        answer(task, "fast", 1.5)
    take(samples, 1010.1, task)
    assert samples.take(1020.1, {}, {}, ACCURACIES) == {"slot": 101, "tasks": {}}

    again = TaskCounters()
    answer(again, "fast", 1.5)
    found = take(samples, 1030.1, again)
    assert found is not None
    assert (found["tasks"]["a"]["met"], found["tasks"]["a"]["latencies"]) == (1, [[1, 2, 1]])
