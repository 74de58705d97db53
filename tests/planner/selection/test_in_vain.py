"""Queries that ask for less time than any variant takes count apart, and some not at all."""

from math import nextafter
from typing import Any

import pytest

from planner.forecasting.demand import SERIES_MS, slo_class
from planner.selection.eligibility import counts_for_ms, in_vain
from planner.types import Query
from tests.planner.builders import (
    DIGITS,
    catalog,
    key,
    kind,
    profile,
    query,
    snapshot,
    variant,
    worker,
)
from variants.types import ProfileSource, TaskName

EXACT = ProfileSource.EXACT
# Slow takes 12 ms for a row and 96 ms for eight, quick 3 ms on a kind without workers.
KNOWN = catalog(
    [variant("slow", 0.9), variant("quick", 0.8)],
    [profile("slow", 12.0, source=EXACT), profile("quick", 3.0, kind="gpu", source=EXACT)],
    kinds=[kind(), kind("gpu")],
)
NOW = snapshot(KNOWN, (worker("w1"), {key("slow")}))


def asks(latency_ms: float, rows: int = 1, **fields: Any) -> Query:
    return query(latency_ms, rows=rows, **fields)


@pytest.mark.parametrize(
    ("asked", "counts_ms"),
    [
        (asks(12.0), 12.0),  # what is just enough is enough
        (asks(11.9), nextafter(10.0, 0.0)),  # 12 ms are of the class of 10 to 20
        (asks(4.0), 4.0),
        (asks(96.0, rows=8), 96.0),
        (asks(48.0, rows=8), 48.0 / 8),
        (asks(90.0, rows=8), nextafter(10.0, 0.0)),
        (asks(12.0, cost=1e-12), SERIES_MS[0]),  # nothing is so cheap: no time would be enough
        (asks(11.9, cost=1e-12, best_effort=True), nextafter(10.0, 0.0)),
        (asks(11.9, accuracy=0.95), 11.9),  # nothing is so accurate: no time would be enough
    ],
)
def test_what_nothing_has_time_for_counts_below_the_class_of_what_something_has(
    asked: Query, counts_ms: float
) -> None:
    assert counts_for_ms(asked, NOW) == pytest.approx(counts_ms, rel=1e-12)


def test_no_class_that_can_be_served_has_a_query_without_enough_time() -> None:
    able_ms, _ = slo_class(12.0, None, ())
    for tenths in range(1, 120):
        counted_ms = counts_for_ms(asks(tenths / 10), NOW)
        assert counted_ms <= tenths / 10 * (1 + 1e-9)
        assert slo_class(counted_ms, None, ())[0] < able_ms


def test_a_task_that_is_not_known_counts_as_it_was_asked_for() -> None:
    unknown = asks(1.0)._replace(task=TaskName("nothing"))
    assert counts_for_ms(unknown, NOW) == 1.0
    assert in_vain(unknown, NOW)


@pytest.mark.parametrize(
    ("asked", "vain"),
    [
        (asks(1.0), False),
        (asks(1.0, cost=1e-12), False),
        (asks(1_000.0, accuracy=0.95), True),
        (asks(1_000.0, accuracy=0.95, best_effort=True), False),
        (asks(1_000.0, rows=9), True),
        (asks(1_000.0, rows=9, best_effort=True), True),
    ],
)
def test_more_accuracy_or_rows_than_there_are_is_asked_for_in_vain(
    asked: Query, vain: bool
) -> None:
    assert asked.task == DIGITS
    assert in_vain(asked, NOW) is vain
