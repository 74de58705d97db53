"""New plans as events: the first at once, a series of them as one."""

from controlplane.controller.events.plan_events import PlanEvents
from planner.reconcile.explanation import headline


def test_the_first_is_told_at_once_and_those_that_follow_together() -> None:
    plans = PlanEvents()
    assert list(plans.due(0.0)) == []
    told = {}
    for second in range(10, 2_000, 10):
        plans.planned(second // 10, f"why {second}", float(second))
        for kind, subject, message in plans.due(float(second)):
            assert kind == "planned"
            told[second] = (subject, message)
    assert told == {
        10: ("version 1", "why 10"),
        70: ("versions 2 to 7", "6 plans within 50 s, such as: why 70"),
        190: ("versions 8 to 19", "12 plans within 110 s, such as: why 190"),
        430: ("versions 20 to 43", "24 plans within 230 s, such as: why 430"),
        910: ("versions 44 to 91", "48 plans within 470 s, such as: why 910"),
        1510: ("versions 92 to 151", "60 plans within 590 s, such as: why 1510"),
    }


def test_after_a_quiet_time_it_is_told_at_once_again() -> None:
    plans = PlanEvents()
    for at_s in (0.0, 30.0, 500.0, 530.0):
        plans.planned(1, "why", at_s)
        told = list(plans.due(at_s)), list(plans.due(at_s + 60.0))
        assert [len(found) for found in told] == ([1, 0] if at_s in {0.0, 500.0} else [0, 1])


def test_a_plan_that_divides_demand_stands_for_many() -> None:
    plans = PlanEvents()
    plans.planned(1, "why 1", 0.0)
    list(plans.due(0.0))
    for version, why in enumerate(("w1 holds a.", "The demand of 2 rows.", "w1 holds b."), 2):
        plans.planned(version, why, 10.0 * version)
    [(_, subject, message)] = plans.due(60.0)
    assert subject == "versions 2 to 4"
    assert message == "3 plans within 40 s, such as: The demand of 2 rows."


def test_what_is_left_is_told_when_the_control_loop_ends() -> None:
    plans = PlanEvents()
    plans.planned(1, "why 1", 0.0)
    list(plans.due(0.0))
    plans.planned(2, "why 2", 1.0)
    assert list(plans.due(2.0, ending=True)) == [("planned", "version 2", "why 2")]
    assert list(plans.due(2.0, ending=True)) == []


def test_how_demand_is_divided_says_more_of_a_plan_than_what_stands_before() -> None:
    divided = "The demand of 2 rows per second was divided anew: all of it can be served."
    assert headline(("Batches take longer.", divided, "w1 holds a.")) == divided
    assert headline(("w1 holds a.", "w2 holds b.")) == "w1 holds a."
