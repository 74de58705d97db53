"""New plans as events: the first at once, a series of them as one, and what they change."""

from collections.abc import Iterable

import pytest

from controlplane.controller.events.plan_changes import is_news, plan_changes
from controlplane.controller.events.plan_events import PlanEvents
from planner.reconcile.explanation import headline
from variants.types import (
    DeviceKindName,
    Placement,
    Plan,
    Route,
    TaskName,
    VariantName,
    WorkerId,
)

DIGITS = TaskName("digits")


def plan(
    version: int = 1,
    *placed: str,
    qps: Iterable[tuple[str, float]] = (),
    workers: int = 2,
    why: str = "why",
    pinned: bool = False,
) -> Plan:
    """A plan of digits; ``placed`` as ``variant@worker``, ``qps`` of each variant."""
    pairs = [one.split("@") for one in placed]
    return Plan(
        version=version,
        epoch=1,
        placements=tuple(
            Placement(worker=WorkerId(w), task=DIGITS, variant=VariantName(v), share=0.1)
            for v, w in pairs
        ),
        workers={DeviceKindName("cpu-1"): workers},
        explanation=(why,),
        routes=tuple(
            Route(
                task=DIGITS, latency_ms=100.0, accuracy=None, variant=VariantName(variant),
                worker=WorkerId("w1"), batch_size=1, qps=rate, pinned=pinned,
            )
            for variant, rate in qps
        ),
    )  # fmt: skip


BEFORE = plan(1, "a@w1", "b@w1", "a@w2", qps=(("a", 50.0), ("b", 50.0)))


@pytest.mark.parametrize(
    ("after", "changes"),
    [
        (plan(2, "a@w1", "b@w1", "a@w2", qps=(("a", 53.0), ("b", 47.0))), []),
        (plan(2, "a@w1", "b@w1", "a@w2", qps=(("a", 99.0), ("b", 101.0)), why="as well"), []),
        (
            plan(2, "a@w1", "b@w1", "a@w2", qps=(("a", 20.0), ("c", 80.0))),
            ["of digits c 80 % instead of 0 %, a 20 % instead of 50 %, b 0 % instead of 50 %"],
        ),
        (plan(2, "a@w1", "b@w1", "a@w2"), ["digits is planned for no more"]),
        (
            plan(2, "a@w1", "a@w2", "b@w2", qps=(("a", 1.0), ("b", 1.0))),
            ["digits/b moves from w1 to w2"],
        ),
        (
            plan(2, "a@w1", "b@w1", "c@w2", qps=(("a", 1.0), ("b", 1.0))),
            ["digits/c comes to w2", "digits/a leaves w2"],
        ),
        (
            plan(2, "a@w1", "b@w1", "a@w3", qps=(("a", 1.0), ("b", 1.0)), workers=3),
            ["3 workers cpu-1 instead of 2", "w3 gets 1 variant", "w2 has nothing any more"],
        ),
        (
            plan(2, "a@w1", "b@w1", "a@w2", *(f"v{n}@w2" for n in range(6)),
                 qps=(("a", 1.0), ("b", 1.0))),
            [*(f"digits/v{n} comes to w2" for n in range(4)), "2 more come"],
        ),
    ],
)  # fmt: skip
def test_what_differs_between_two_plans(after: Plan, changes: list[str]) -> None:
    assert plan_changes(BEFORE, after) == changes
    assert is_news(BEFORE, after) is bool(changes)


def test_a_first_plan_is_news_and_changes_nothing() -> None:
    assert is_news(None, BEFORE)
    assert plan_changes(None, BEFORE) == []


def test_queries_that_are_pinned_are_nobody_s_part() -> None:
    pinned = plan(2, "a@w1", "b@w1", "a@w2", qps=(("a", 50.0),), pinned=True)
    assert plan_changes(BEFORE, pinned) == ["digits is planned for no more"]


# -- as events ----------------------------------------------------------------------------------


def test_the_first_is_told_at_once_and_those_that_follow_together() -> None:
    plans, before = PlanEvents(), None
    assert list(plans.due(0.0)) == []
    told = {}
    for second in range(10, 2_000, 10):
        made = plan(second // 10, workers=second, why=f"why {second}")
        plans.planned(before, made, float(second))
        before = made
        for kind, subject, message in plans.due(float(second)):
            assert kind == "planned"
            told[second] = (subject, message)

    def together(count: int, for_s: int, had: int, has: int) -> str:
        changed = f"Changed: {has:,} workers cpu-1 instead of {had}."
        return f"{count} plans within {for_s} s. {changed} why {has}"

    assert told == {
        10: ("version 1", "why 10"),
        70: ("versions 2 to 7", together(6, 50, 10, 70)),
        190: ("versions 8 to 19", together(12, 110, 70, 190)),
        430: ("versions 20 to 43", together(24, 230, 190, 430)),
        910: ("versions 44 to 91", together(48, 470, 430, 910)),
        1510: ("versions 92 to 151", together(60, 590, 910, 1510)),
    }


def test_after_a_quiet_time_it_is_told_at_once_again() -> None:
    plans = PlanEvents()
    for at_s in (0.0, 30.0, 500.0, 530.0):
        plans.planned(plan(), plan(workers=3), at_s)
        told = list(plans.due(at_s)), list(plans.due(at_s + 60.0))
        assert [len(found) for found in told] == ([1, 0] if at_s in {0.0, 500.0} else [0, 1])


def test_a_plan_that_divides_demand_stands_for_many() -> None:
    plans, before = PlanEvents(), plan(1, why="why 1")
    plans.planned(None, before, 0.0)
    list(plans.due(0.0))
    for version, why in enumerate(("w1 holds a.", "The demand of 2 rows.", "w1 holds b."), 2):
        made = plan(version, workers=version + 1, why=why)
        plans.planned(before, made, 10.0 * version)
        before = made
    [(_, subject, message)] = plans.due(60.0)
    assert subject == "versions 2 to 4"
    assert message == (
        "3 plans within 40 s. Changed: 5 workers cpu-1 instead of 2. The demand of 2 rows."
    )


def test_plans_that_differ_by_noise_are_not_told() -> None:
    plans, before = PlanEvents(), BEFORE
    plans.planned(None, before, 0.0)
    list(plans.due(0.0))
    for version in range(2, 9):
        made = plan(version, "a@w1", "b@w1", "a@w2", qps=(("a", 50.0 + version % 3), ("b", 50.0)))
        plans.planned(before, made, 10.0 * version)
        before = made
    assert list(plans.due(3_600.0)) == []


def test_plans_that_are_not_told_are_counted_beside_those_that_are() -> None:
    plans = PlanEvents()
    plans.planned(None, plan(1), 0.0)
    list(plans.due(0.0))
    plans.planned(plan(1), plan(2, workers=3), 10.0)
    plans.planned(plan(4, workers=3), plan(5, workers=4), 20.0)
    [(_, subject, message)] = plans.due(80.0)
    assert subject == "versions 2 to 5"
    assert message.startswith(
        "2 plans within 70 s, beside 2 that only divide demand a little differently. Changed: "
    )
    plans.planned(plan(5), plan(6, workers=3), 300.0)
    plans.planned(plan(7, workers=3), plan(8, workers=4), 310.0)
    [(_, _, message)] = plans.due(400.0)
    assert ", beside 1 that only divides demand a little differently. Changed: " in message


def test_plans_that_come_and_go_say_that_they_change_nothing() -> None:
    plans = PlanEvents()
    plans.planned(None, plan(1), 0.0)
    list(plans.due(0.0))
    plans.planned(plan(1), plan(2, workers=3), 10.0)
    plans.planned(plan(2, workers=3), plan(3), 20.0)
    [(_, subject, message)] = plans.due(80.0)
    assert (subject, message) == (
        "versions 2 to 3", "2 plans within 70 s. Altogether they change nothing. why",
    )  # fmt: skip


def test_what_is_left_is_told_when_the_control_loop_ends() -> None:
    plans = PlanEvents()
    plans.planned(None, plan(1, why="why 1"), 0.0)
    list(plans.due(0.0))
    plans.planned(plan(1), plan(2, workers=1, why="why 2"), 1.0)
    assert list(plans.due(2.0, ending=True)) == [
        ("planned", "version 2", "Changed: 1 worker cpu-1 instead of 2. why 2")
    ]
    assert list(plans.due(2.0, ending=True)) == []


def test_how_demand_is_divided_says_more_of_a_plan_than_what_stands_before() -> None:
    divided = "The demand of 2 rows per second was divided anew: all of it can be served."
    assert headline(("Batches take longer.", divided, "w1 holds a.")) == divided
    assert headline(("w1 holds a.", "w2 holds b.")) == "w1 holds a."
