"""The best device at given prices, against trying every set."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.solver.columns.pricing import Items, Pieces, best_devices

Row = tuple[float, float, int, int, list[tuple[float, float]]]
"""Time, memory of its offer, class, offer, and pieces (part, worth) with falling worth per part."""


def items(rows: list[Row]) -> Items:
    offers = [row[3] for row in rows]
    users = np.array([float(offers.count(offer)) for offer in offers])
    memory = np.array([row[1] for row in rows])
    return Items(
        time=np.array([row[0] for row in rows]),
        memory=memory,
        own=np.where(users > 1, 0.0, memory),
        charges=(memory / users,),
        classes=np.array([row[2] for row in rows]),
        offers=np.array(offers),
    )


def pieces(rows: list[Row]) -> Pieces:
    found = [(at, *piece) for at, row in enumerate(rows) for piece in row[4]]
    return Pieces(
        option=np.array([at for at, _, _ in found]),
        part=np.array([part for _, part, _ in found]),
        worth=np.array([worth for _, _, worth in found]),
    )


def test_two_small_ones_beat_a_large_one() -> None:
    rows: list[Row] = [
        (0.5, 0.5, 0, 0, [(1.0, 3.0)]),
        (0.5, 0.5, 1, 1, [(1.0, 3.0)]),
        (0.9, 0.6, 2, 2, [(1.0, 5.0)]),
    ]

    found = best_devices(items(rows), pieces(rows), enough=1.0, labels=100, most=1)

    assert found.devices == ({0: 1.0, 1: 1.0},)
    assert found.bound == pytest.approx(6.0)


def test_the_last_one_is_served_in_part() -> None:
    rows: list[Row] = [(0.8, 0.5, 0, 0, [(1.0, 8.0)]), (0.8, 0.5, 1, 1, [(1.0, 4.0)])]

    found = best_devices(items(rows), pieces(rows), enough=1.0, labels=100, most=1)

    assert found.devices[0] == {0: 1.0, 1: pytest.approx(0.25)}
    assert found.bound == pytest.approx(9.0)


def test_of_both_the_first_pieces_are_worth_most() -> None:
    rows: list[Row] = [
        (1.0, 0.5, 0, 0, [(0.4, 4.0), (0.6, 1.0)]),
        (1.0, 0.5, 1, 1, [(0.5, 4.0), (0.5, 2.0)]),
    ]

    found = best_devices(items(rows), pieces(rows), enough=1.0, labels=100, most=1)

    assert found.devices[0] == {0: 0.4, 1: pytest.approx(0.6)}
    assert found.bound == pytest.approx(8.4)


def test_nothing_is_worth_enough() -> None:
    rows: list[Row] = [(0.5, 0.5, 0, 0, [(1.0, 1.0)])]

    found = best_devices(items(rows), pieces(rows), enough=1.5, labels=100, most=1)

    assert (found.bound, found.devices) == (1.5, ())


def test_what_may_come_finds_room_in_memory() -> None:
    """Of thirty alike options two have room. With memory priced, a half of a third one counts as
    well, and all pairs look as good until there are too many of them to keep."""
    rows: list[Row] = [(0.1, 0.4, at, at, [(1.0, 1.0 + at / 1_000)]) for at in range(30)]

    priced = best_devices(items(rows), pieces(rows), enough=1.0, labels=20, most=1)
    filled = best_devices(items(rows), pieces(rows), enough=1.0, labels=20, most=1, filled=True)

    assert priced.bound > 2.2
    assert filled.bound == pytest.approx(2.057)
    assert filled.devices == ({28: 1.0, 29: 1.0},)
    assert filled.looked < priced.looked


ROWS = st.lists(
    st.tuples(
        st.floats(0.05, 2.0),  # time
        st.floats(0.05, 1.0),  # memory of its offer
        st.integers(0, 4),  # class
        st.integers(0, 3),  # offer
        st.lists(  # pieces
            st.tuples(st.floats(0.1, 0.5), st.floats(0.1, 9.0)), min_size=1, max_size=3
        ),
    ),
    min_size=1,
    max_size=6,
)


def falling(rows: list[Row]) -> list[Row]:
    """With one memory for each offer, and pieces in the order of their worth per part."""
    memory = {row[3]: row[1] for row in rows}
    kept = {(row[2], row[3]): row for row in rows}
    return [
        (time, memory[offer], c, offer, sorted(parts, key=lambda p: -p[1] / p[0]))
        for (c, offer), (time, _, _, _, parts) in kept.items()
    ]


def tried(rows: list[Row]) -> float:
    """The most that a device is worth, by every set of options."""
    best = 0.0
    for count in range(1, len(rows) + 1):
        for chosen in combinations(rows, count):
            if len({row[2] for row in chosen}) < count:
                continue
            if sum({row[3]: row[1] for row in chosen}.values()) > 1 + 1e-9:
                continue
            left, total = 1.0, 0.0
            found = [
                (worth / (part * row[0]), part * row[0]) for row in chosen for part, worth in row[4]
            ]
            for rate, time in sorted(found, reverse=True):
                taken = min(time, left)
                left -= taken
                total += taken * rate
            best = max(best, total)
    return best


@settings(max_examples=100, deadline=None)
@given(ROWS, st.sampled_from([1, 3, 1_000]), st.floats(0.01, 5.0), st.booleans())
def test_no_device_is_worth_more_than_the_bound(
    rows: list[Row], labels: int, enough: float, filled: bool
) -> None:
    """With enough labels the best device is found."""
    rows = falling(rows)

    found = best_devices(
        items(rows), pieces(rows), enough=enough, labels=labels, most=1, filled=filled
    )

    best = tried(rows)
    assert found.bound >= best * (1 - 1e-9)
    if labels == 1_000 and best > enough * 1.001:
        assert found.bound == pytest.approx(best, rel=1e-6)
        assert len(found.devices) == 1
