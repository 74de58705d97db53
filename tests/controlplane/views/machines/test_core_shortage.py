"""Whether cores are short: what is judged so, and what people are told of it."""

from dataclasses import asdict, replace

import pytest

from controlplane.views.machines.core_shortage import (
    CoreLevel,
    CoreStatus,
    core_shortages,
    core_status,
    machines,
    reading,
)
from variants.core_time import CoreTime

CALM = CoreTime(host="h1", cores=2, used=0.2, busy=0.5, waited=0.1, throttled=0.0, stolen=0.0)
CROWDED = replace(CALM, busy=2.0, waited=0.63)


def said(*readings: CoreTime) -> str:
    return core_status(readings).sentence


@pytest.mark.parametrize(
    "fine",
    [
        CALM,
        replace(CROWDED, waited=0.49),  # all found a core soon
        replace(CROWDED, busy=1.7),  # some core was free
        replace(CROWDED, busy=1.7, delayed=0.49),
        replace(CALM, delayed=0.9),  # it had little to do, at a bad moment
        replace(CROWDED, waited=None),  # an old kernel says nothing
        replace(CROWDED, busy=None),
        replace(CALM, stolen=0.19),
        replace(CALM, throttled=0.09, quota=0.5),
        CoreTime(host="h1", cores=2, used=2.0),
    ],
)
def test_what_is_no_shortage(fine: CoreTime) -> None:
    assert core_status([fine]) == CoreStatus(level=CoreLevel.THERE, sentence="")


def test_other_programs_are_told_apart_from_ones_own() -> None:
    assert core_status([CROWDED, replace(CROWDED, used=0.2)]) == CoreStatus(
        level=CoreLevel.SHORT,
        sentence="The cores of h1 are short: 63 % of the time something waited for one, gateways "
        "and workers use 0.4 of its 2 cores, other programs 1.6; stop some of these, or run "
        "modelless on another machine.",
    )
    assert "more is asked than they can do" in said(replace(CROWDED, used=1.8))


def test_who_gives_way_only_in_part_is_noticed_by_those_who_wait() -> None:
    """Programs of a positive niceness do not count as busy, and may take a core all the same."""
    assert said(replace(CROWDED, busy=1.7, waited=0.99, delayed=0.96), CALM) == (
        "The cores of h1 are short: 99 % of the time something waited for one, gateways and "
        "workers use 0.4 of its 2 cores, other programs 1.3, and one of ours had none for 96 % of "
        "its time with work; stop some of these, or run modelless on another machine."
    )


def test_cores_that_a_hypervisor_took_were_not_free_either() -> None:
    assert "63 % of the time" in said(replace(CROWDED, busy=1.7, stolen=0.15))


def test_a_quota_and_a_hypervisor_are_named() -> None:
    assert said(replace(CALM, throttled=0.4, quota=0.25)) == (
        "The cores of h1 are short: a quota of 0.25 cores held processes back in 40 % of the time, "
        "gateways and workers use 0.20; raise the quota, or ask less of it."
    )
    assert said(replace(CALM, stolen=0.5)) == (
        "The cores of h1 are short: other machines had 0.5 of them instead, gateways and workers "
        "use 0.2 of its 2 cores; move it to a host with cores of its own."
    )


def test_each_machine_is_judged_by_all_that_runs_on_it() -> None:
    other = replace(CROWDED, host="h2", cores=4, busy=4.0)

    assert machines([other, CROWDED, replace(CROWDED, waited=0.7, used=1.0)]) == (
        replace(CROWDED, used=1.2, waited=0.7),
        other,
    )
    assert [one.host for one in core_shortages([other, CALM, replace(CALM, host="h0")])] == ["h2"]


def test_one_that_is_told_lasts_until_it_is_well_below() -> None:
    hovering = replace(CROWDED, waited=0.45)
    assert not core_shortages([hovering])
    assert core_shortages([hovering], [hovering.host])
    assert core_status([hovering], [hovering.host]).level is CoreLevel.SHORT
    assert not core_shortages([replace(CROWDED, waited=0.3)], [hovering.host])


def test_a_reading_comes_back_as_it_was_told() -> None:
    assert reading(asdict(CROWDED)) == CROWDED
    assert reading({**asdict(CROWDED), "more": 1}) == CROWDED  # a later release
    assert reading(None) is None
    assert reading({"host": "h1"}) is None
