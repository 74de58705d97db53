"""When queries of a task begin to miss their SLO, and when that is over."""

from typing import Any

from controlplane.controller.events.slo_watch import OVER_S, PATIENCE_S, SloWatch


def report(met: int = 0, late: int = 0, **refused: int) -> dict[str, Any]:
    """What a gateway says of the last minute of the task ``digits``."""
    counted = {"met": met, "missed": late, "infeasible_answered": 0, "errors": refused}
    return {"lately": {"seconds": 60.0, "tasks": {"digits": counted}}}


def test_an_overload_is_told_once_with_its_reasons_and_its_end() -> None:
    watch = SloWatch()
    busy = [report(met=80, late=3, OVERLOADED=10), report(met=100, OVERLOADED=7)]
    assert list(watch.look(busy, 0.0)) == []
    [begun] = watch.look(busy, PATIENCE_S)
    assert begun == (
        "slo_missed",
        "digits",
        "20 of 200 queries in the last 60 s missed their SLO: 3 late, 17 refused because the queues"
        " were too long (OVERLOADED)",
    )
    assert list(watch.look(busy, 100.0)) == []
    well = [report(met=1_000, late=5)]
    assert list(watch.look(well, 110.0)) == []
    assert list(watch.look(busy, 120.0)) == [], "it comes and goes"
    assert list(watch.look(well, 130.0)) == []
    over = "queries meet their SLO again, 130 s after they began to miss it"
    assert list(watch.look(well, 130.0 + OVER_S)) == [("slo_met", "digits", over)]
    assert list(watch.look(well, 131.0 + OVER_S)) == []


def test_what_lasts_for_a_moment_or_is_little_is_no_news() -> None:
    watch = SloWatch()
    for now_s, seen in (
        (0.0, report(met=100, REPLICA_LOST=30)),
        (2.0, report(met=200, REPLICA_LOST=5)),
        (10.0, report(met=10, late=19)),
        (20.0, report(met=1_000, late=49)),
        (30.0, report(SLO_INFEASIBLE=500)),
        (40.0, {}),
    ):
        assert list(watch.look([seen], now_s)) == []
        assert list(watch.look([seen], now_s + 1.0)) == []


def test_where_nobody_asks_any_more_it_is_over_as_well() -> None:
    watch = SloWatch()
    for now_s in (0.0, PATIENCE_S):
        told = list(watch.look([report(NO_WORKERS=50)], now_s))
    assert [kind for kind, _, _ in told] == ["slo_missed"]
    assert list(watch.look([], 60.0)) == []
    over = "nothing was asked, 60 s after they began to miss it"
    assert list(watch.look([], 60.0 + OVER_S)) == [("slo_met", "digits", over)]


def test_a_few_that_a_lost_worker_took_along_do_not_come_and_go() -> None:
    """Two of two hundred or so are one in a hundred, or a little less, at each look."""
    watch, seen = SloWatch(), []
    for second, met in enumerate((197, 201, 197, 203, 196, 199, 198)):
        list(watch.look([report(met=met, REPLICA_LOST=2)], float(second)))
        seen.append(watch.missing)
    assert seen == [{"digits"}] * 7
    list(watch.look([report(met=200, REPLICA_LOST=1)], 60.0))
    assert watch.missing == set()
    list(watch.look([report(met=198, REPLICA_LOST=1)], 61.0))
    assert watch.missing == set()
