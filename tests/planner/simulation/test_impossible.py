"""What no policy could answer is counted by its first reason."""

from dataclasses import replace
from math import inf

import pytest

from planner.simulate import offers_of
from planner.simulation.impossible import Impossible, impossible
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from tests.planner.simulation.builders import Asked, Model, setting, trace

QUICK = Model("a", name="quick", accuracy=0.7, latency_ms=10.0)
GOOD = Model("a", name="good", accuracy=0.9, latency_ms=40.0)
"""At 3.60 USD per hour 1,000 rows cost 0.01 and 0.04 USD."""
LARGE = Model("b", memory_mib=2_000.0)


def found(asked: Trace, known: Setting) -> Impossible:
    return impossible(known, offers_of(known.catalog), asked)


KNOWN = setting(QUICK, GOOD, LARGE)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Asked(0.0, 10.0), Impossible()),
        (Asked(0.0, 40.0, floor=0.9, ceiling=0.04), Impossible()),
        (Asked(0.0, 9.9), Impossible(latency=1)),
        (Asked(0.0, 39.0, floor=0.8), Impossible(latency=1)),
        (Asked(0.0, 100.0, floor=0.91), Impossible(accuracy=1)),
        (Asked(0.0, 100.0, floor=0.8, ceiling=0.03), Impossible(cost=1)),
        (Asked(0.0, 20.0, floor=0.8, ceiling=0.03), Impossible(cost=1)),
        (Asked(0.0, 100.0, task="b"), Impossible(nowhere=1)),
    ],
)
def test_each_is_counted_by_the_first_reason(asked: Asked, expected: Impossible) -> None:
    assert found(trace(asked, Asked(1.0, 1e4)), KNOWN) == expected


def test_all_of_a_trace_are_counted() -> None:
    asked = trace(Asked(0.0, 5.0), Asked(1.0, 5.0, floor=0.95), Asked(2.0), Asked(3.0, task="b"))
    assert found(asked, KNOWN) == Impossible(nowhere=1, accuracy=1, latency=1)
    assert found(asked, KNOWN).total == 3


def test_a_kind_of_which_there_is_none_holds_nothing() -> None:
    kinds = tuple(replace(kind, count=0, memory_mib=inf) for kind in KNOWN.kinds)
    assert found(trace(Asked(0.0)), replace(KNOWN, kinds=kinds)) == Impossible(nowhere=1)


def test_instantly_no_time_is_too_short() -> None:
    assert found(trace(Asked(0.0, 1.0)), replace(KNOWN, instant=True)) == Impossible()
