"""The best device at given prices, against trying every set."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.solver.columns.pricing import Items, best_devices, bits


def items(time: list[float], memory: list[float], classes: list[int], offers: list[int]) -> Items:
    users = np.array([float(offers.count(offer)) for offer in offers])
    return Items(
        time=np.array(time),
        memory=np.array(memory),
        charge=np.array(memory) / users,
        classes=bits(classes),
        offers=bits(offers),
    )


def test_two_small_ones_beat_a_large_one() -> None:
    offered = items([0.5, 0.5, 0.9], [0.5, 0.5, 0.6], [0, 1, 2], [0, 1, 2])

    found = best_devices(
        offered, np.ones(3), np.array([3.0, 3.0, 5.0]), enough=1.0, labels=100, most=1
    )

    assert found.devices == ({0: 1.0, 1: 1.0},)
    assert found.bound == pytest.approx(6.0)


def test_the_last_one_is_served_in_part() -> None:
    offered = items([0.8, 0.8], [0.5, 0.5], [0, 1], [0, 1])

    found = best_devices(offered, np.ones(2), np.array([8.0, 4.0]), enough=1.0, labels=100, most=1)

    assert found.devices[0] == {0: 1.0, 1: pytest.approx(0.25)}
    assert found.bound == pytest.approx(9.0)


def test_nothing_is_worth_enough() -> None:
    offered = items([0.5], [0.5], [0], [0])

    found = best_devices(offered, np.ones(1), np.array([1.0]), enough=1.5, labels=100, most=1)

    assert (found.bound, found.devices) == (1.5, ())


ITEMS = st.lists(
    st.tuples(
        st.floats(0.05, 2.0),  # time
        st.floats(0.05, 1.0),  # memory of its offer
        st.integers(0, 4),  # class
        st.integers(0, 3),  # offer
        st.floats(0.1, 9.0),  # worth
        st.floats(0.1, 1.0),  # part
    ),
    min_size=1,
    max_size=7,
)


def tried(rows: list[tuple[float, float, int, int, float, float]]) -> float:
    """The most that a device is worth, by every set of items."""
    best = 0.0
    for count in range(1, len(rows) + 1):
        for chosen in combinations(rows, count):
            if len({row[2] for row in chosen}) < count:
                continue
            if sum({row[3]: row[1] for row in chosen}.values()) > 1 + 1e-9:
                continue
            left, total = 1.0, 0.0
            for time, _, _, _, worth, part in sorted(chosen, key=lambda row: -row[4] / row[0]):
                share = min(part, left / time)
                left -= share * time
                total += share * worth
            best = max(best, total)
    return best


@settings(max_examples=150, deadline=None)
@given(ITEMS, st.sampled_from([1, 3, 1_000]), st.floats(0.01, 5.0))
def test_no_device_is_worth_more_than_the_bound(
    rows: list[tuple[float, float, int, int, float, float]], labels: int, enough: float
) -> None:
    """An offer has one memory; with enough labels the best device is found."""
    memory = {row[3]: row[1] for row in rows}
    rows = [(time, memory[offer], c, offer, worth, part) for time, _, c, offer, worth, part in rows]
    time, _, classes, offers, worth, part = (list(column) for column in zip(*rows, strict=True))
    offered = items(time, [memory[offer] for offer in offers], classes, offers)

    found = best_devices(
        offered,
        np.array(part),
        np.array(worth) * np.array(part),
        enough=enough,
        labels=labels,
        most=1,
    )

    best = tried(rows)
    assert found.bound >= best * (1 - 1e-9)
    if labels == 1_000 and best > enough * 1.001:
        assert found.bound == pytest.approx(best, rel=1e-6)
        [device] = found.devices
        reached = sum(share * worth[item] for item, share in device.items())
        assert reached == pytest.approx(best, rel=1e-6)
