"""Dividing a fleet among tasks in proportion to their work."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.policies.allocation import Need, Slot, divide, headroom
from planner.solver.problem import AvailableKind
from variants.types import DeviceKindName, TaskName

GPU = DeviceKindName("gpu")


def kind(count: int, memory_mib: float = inf) -> AvailableKind:
    return AvailableKind(name=GPU, count=count, memory_mib=memory_mib, usd_per_hour=1.0)


def need(task: str, qps: float, unit_ms: float = 1.0, memory_mib: float = 100.0) -> Need:
    return Need(task=TaskName(task), qps=qps, unit_ms={GPU: unit_ms}, memory_mib={GPU: memory_mib})


def shares(slots: tuple[Slot, ...]) -> list[dict[str, float]]:
    return [{task: round(share, 3) for task, share in slot.shares.items()} for slot in slots]


def test_whole_devices_in_proportion_to_work() -> None:
    """300 and 100 per second at the same time per query: three devices and one."""
    slots = divide([need("a", 300.0), need("b", 100.0)], [kind(4)])
    assert shares(slots) == [{"a": 1.0}, {"a": 1.0}, {"a": 1.0}, {"b": 1.0}]


def test_work_is_rate_times_time() -> None:
    slots = divide([need("a", 100.0, unit_ms=3.0), need("b", 100.0)], [kind(4)])
    assert shares(slots) == [{"a": 1.0}, {"a": 1.0}, {"a": 1.0}, {"b": 1.0}]


def test_a_device_is_shared_where_whole_ones_do_not_come_out_even() -> None:
    needs = [need("a", 100.0), need("b", 100.0)]
    slots = divide(needs, [kind(3)])
    assert sorted(len(slot.shares) for slot in slots) == [1, 1, 2]
    assert headroom(needs, slots) == pytest.approx(15.0)


def test_more_tasks_than_devices_share() -> None:
    needs = [need("a", 200.0), need("b", 100.0), need("c", 100.0)]
    slots = divide(needs, [kind(1)])
    assert shares(slots) == [{"a": 0.5, "b": 0.25, "c": 0.25}]


def test_who_has_no_memory_left_is_left_out() -> None:
    """The device holds one of the two: the one with more to do."""
    slots = divide([need("a", 100.0), need("b", 200.0)], [kind(1, memory_mib=150.0)])
    assert shares(slots) == [{"b": 1.0}]


def test_memory_before_an_even_division() -> None:
    """b and c fit together beside a device for a alone, however little they have to do."""
    needs = [need("a", 100.0, memory_mib=200.0), need("b", 1.0), need("c", 1.0)]
    slots = divide(needs, [kind(2, memory_mib=200.0)])
    assert shares(slots) == [{"a": 1.0}, {"b": pytest.approx(0.01), "c": pytest.approx(0.01)}]


def test_nobody_needs_anything() -> None:
    assert divide([], [kind(3)]) == ()


@settings(max_examples=100, deadline=None)
@given(
    asked=st.lists(
        st.tuples(st.integers(1, 500), st.integers(1, 20), st.integers(50, 400)),
        min_size=1,
        max_size=6,
    ),
    count=st.integers(1, 5),
)
def test_no_device_over_its_memory_or_time_and_nobody_without_a_replica(
    asked: list[tuple[int, int, int]], count: int
) -> None:
    """400 MiB hold any variant alone, so a task that is left out found all devices taken."""
    needs = [need(f"t{i}", qps, ms, mib) for i, (qps, ms, mib) in enumerate(asked)]
    sizes = {one.task: one.memory_mib[GPU] for one in needs}
    slots = divide(needs, [kind(count, memory_mib=400.0)])
    assert len(slots) <= count
    for slot in slots:
        assert sum(sizes[task] for task in slot.shares) <= 400.0
        assert sum(slot.shares.values()) <= 1.0 + 1e-6
    placed = {task for slot in slots for task in slot.shares}
    if len(needs) <= count or sum(sizes.values()) <= 400.0:
        assert placed == set(sizes)
