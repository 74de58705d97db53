"""The benchmark of eviction rules counts right, on a workload that can be followed by hand."""

import pytest

from planner.eviction.popularity import Popularity
from tests.bench.planning.cache_workloads import COSTS, KINDS, Workload, workload
from tests.bench.planning.eviction import NextUse, reloading_s, summary, way

TURNS = Workload(
    arrival_s=[float(second) for second in range(9)],
    variant=[0, 1, 2] * 3,
    load_s=[1.0, 1.0, 1.0],
    memory_mib=[10.0, 10.0, 10.0],
    rates=None,
    step_s=1.0,
)
"""Three variants in turns."""


def test_lru_loads_every_time_where_two_of_three_in_turns_fit() -> None:
    assert reloading_s(TURNS, 20.0, "lru", [Popularity()]) == 9.0


def test_offline_keeps_what_comes_next() -> None:
    """0 1 2 are loaded, then 1 0 2: every other query finds what it needs."""
    assert reloading_s(TURNS, 20.0, "modelless", [NextUse(TURNS)]) == 6.0


def test_everything_is_loaded_once_where_everything_fits() -> None:
    assert reloading_s(TURNS, 30.0, "gdsf", [Popularity()]) == 3.0


def test_two_devices_are_filled_before_anything_leaves() -> None:
    for hosts in ("roomiest", "least worth"):
        assert reloading_s(TURNS, 40.0, "gdsf", [Popularity()] * 2, hosts) == 3.0


def test_the_host_whose_victim_is_worth_least_loads() -> None:
    """The first device holds what is asked for all the time, the second what nobody comes back
    for: by the roomiest, which is the first where both are full, the two would trade places."""
    load = Workload(
        arrival_s=[float(second) for second in range(8)],
        variant=[0, 1, 0, 2, 0, 2, 0, 2],
        load_s=[1.0, 1.0, 1.0],
        memory_mib=[10.0, 10.0, 10.0],
        rates=None,
        step_s=1.0,
    )
    for books in ([Popularity[int]()] * 2, [Popularity[int](), Popularity[int]()]):
        assert reloading_s(load, 20.0, "modelless", books, "least worth") == 3.0
    assert reloading_s(load, 20.0, "modelless", [Popularity()] * 2, "roomiest") == 7.0


def test_a_device_with_a_book_of_its_own_counts_what_it_is_asked() -> None:
    """Everything fits, so each device is asked for the same variants throughout."""
    books = [Popularity[int](), Popularity[int]()]
    reloading_s(TURNS, 40.0, "modelless", books, "least worth")
    counted = [{variant for variant in range(3) if variant in book} for book in books]
    assert sorted(map(len, counted)) == [1, 2]
    assert counted[0] | counted[1] == {0, 1, 2}


def test_the_way_is_measured_from_gdsf_to_offline() -> None:
    assert way({"gdsf": 10.0, "modelless": 7.0, "offline": 6.0}) == 0.75


def test_the_summary_counts_lines_by_their_medians() -> None:
    """One line is a quarter below GDSF, one at its median a quarter above it."""
    below = [{"gdsf": 8.0, "modelless": 6.0, "offline": 4.0}] * 3
    above = [
        {"gdsf": 8.0, "modelless": 6.0, "offline": 4.0},
        *[{"gdsf": 8.0, "modelless": 10.0, "offline": 4.0}] * 2,
    ]
    row = summary({(2, "least worth"): [below, above]}).splitlines()[-1]
    assert row == "| 2 | least worth | 2 | 8 | 7 | 0.889 | 1 | 1.250 | 1.000 | 0.00 |"


@pytest.mark.parametrize("kind", KINDS)
def test_a_workload_comes_from_its_seed_alone(kind: str) -> None:
    one, again, other = (
        workload(kind, COSTS[0], seed, variants=20, queries=500, per_s=2.0) for seed in (1, 1, 2)
    )
    assert (one.arrival_s, one.variant) == (again.arrival_s, again.variant)
    assert one.arrival_s != other.arrival_s
    assert one.arrival_s == sorted(one.arrival_s)
    assert 250 < len(one.variant) < 1_000
