"""Workloads that look for a weakness are as their kinds say, and repeat."""

import numpy as np
import pytest

from tests.bench.simulation.adverse.drawn import LONGEST_MS, SECONDS, adverse_workload, names
from tests.bench.simulation.adverse.traits import KINDS, traits
from tests.bench.simulation.capacity import capacity_qps
from tests.bench.simulation.cases import Case, cases, made
from tests.bench.simulation.workloads import draw


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_peak_is_the_rate_that_was_drawn_or_slos_are_as_long_as_they_may_be(kind: str) -> None:
    given = traits(kind, 0)
    ground, workload = adverse_workload(f"adverse-{kind}-00", 0)
    capacity = capacity_qps(ground, workload.mix(0))

    longest_ms = max(ground.latency_ms.values())
    if longest_ms < LONGEST_MS:
        assert given.highest * capacity == pytest.approx(given.qps, rel=0.2)
    else:
        assert given.highest * capacity > 0.8 * given.qps
        assert longest_ms == pytest.approx(LONGEST_MS, abs=5.0)
    assert len(workload.load) == SECONDS
    assert max(workload.load) <= given.highest + 1e-9


def test_a_number_has_the_same_traits_for_all_seeds_and_each_seed_its_own_catalog() -> None:
    (one, first), (other, second) = (adverse_workload("adverse-few-03", seed) for seed in (0, 1))

    assert first.about == second.about
    assert [kind.count for kind in one.kinds] == [kind.count for kind in other.kinds]
    assert one.catalog != other.catalog


def test_longer_ones_go_on_from_shorter_ones_and_begin_as_all_others_do() -> None:
    short, long = (adverse_workload("adverse-jumping-01", 0, seconds)[1] for seconds in (None, 600))

    assert len(long.load) == 600
    assert list(long.load[: len(short.load)]) == list(short.load)
    assert (short.opening.calm_s, long.opening.calm_s) == (20, 30)


def test_kinds_are_odd_in_the_way_that_they_are_called() -> None:
    grounds = {kind: adverse_workload(f"adverse-{kind}-01", 0)[0] for kind in KINDS}
    variants = {
        kind: {len(ground.accuracies(task)) for task in ground.tasks}
        for kind, ground in grounds.items()
    }

    assert variants["few"] <= {2, 3}
    assert variants["many"] == {12}
    assert [len(grounds[kind].tasks) for kind in ("task", "tasks")] == [1, 40]
    assert [len(grounds[kind].kinds) for kind in ("kind", "kinds")] == [1, 3]
    assert [kind.count for kind in grounds["device"].kinds] == [1]
    taken = sum(p.memory_mib for p in grounds["memory"].catalog.profiles if p.device_kind == "k0")
    assert grounds["memory"].kinds[0].memory_mib <= taken / 2


def test_only_who_is_to_ask_for_an_accuracy_does() -> None:
    floors = {
        kind: {each.floor for each in adverse_workload(f"adverse-{kind}-00", 0)[1].mix(0)}
        for kind in ("few", "floor", "floors")
    }

    assert floors["few"] == {None}
    assert len(floors["floor"]) == 2
    assert len(floors["floors"]) > 2


def test_equal_queries_come_at_once_as_many_as_are_drawn_in_the_mean() -> None:
    ground, workload = adverse_workload("adverse-together-02", 0)
    trace = draw(workload, ground, 0).trace
    at_once = np.unique(trace.arrival_s, return_counts=True)[1]

    assert workload.together > 2
    assert at_once.mean() == pytest.approx(workload.together, rel=0.3)
    assert list(trace.arrival_s) == sorted(trace.arrival_s)


def test_cases_are_named_and_repeat() -> None:
    found = cases("adverse", [1], "adverse-task-01", quick=False, count=2)

    assert found == [Case(catalog="adverse", workload="adverse-task-01", seed=1)]
    assert len(names(2)) == 2 * len(KINDS)
    first = made(found[0])[2]
    made.cache_clear()
    assert made(found[0])[2] == first
