"""Shedding: where more is asked than can be served, what costs most is refused first."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.selection.plan_following import SHED_WINDOW, CongestionWindow, choose
from planner.selection.routes import RouteTable, resolve
from planner.selection.shedding import AVERAGED, EACH, MOST_DUE, Shedding
from planner.types import DEFAULT_PRIORITY, Choice, Query, Refusal, RefusalCode, Snapshot
from tests.planner.builders import NOW_MS, catalog, kind, profile, query, snapshot, variant, worker
from variants.types import Prefer, ProfileSource, Route, TaskName, VariantName, WorkerId

TASKS = {"light": 10.0, "heavy": 30.0}


LOW, HIGH = DEFAULT_PRIORITY + 1, DEFAULT_PRIORITY - 1


def fleet(usd_per_hour: float = 3.6, *busy_ms: float) -> Snapshot:
    """Workers, one of 240 ms unless told, with a variant of each task; those of ``heavy`` take
    three times as long."""
    known = catalog(
        [variant("v", task=task) for task in TASKS],
        [profile("v", ms, task=t, source=ProfileSource.EXACT) for t, ms in TASKS.items()],
        kinds=[kind("cpu-1", usd_per_hour)],
    )
    held = [(TaskName(t), VariantName("v")) for t in TASKS]
    backlogs = enumerate(busy_ms or (240.0,), start=1)
    return snapshot(known, *((worker(f"w{at}", busy_ms=ms), held) for at, ms in backlogs))


def table(view: Snapshot) -> RouteTable:
    route = Route(
        task=TaskName("light"), latency_ms=500.0, accuracy=None, variant=VariantName("v"),
        worker=WorkerId("w1"), batch_size=1, qps=20.0,
    )  # fmt: skip
    return resolve((route,), view, Prefer.ACCURACY)


def asked(task: str) -> Query:
    return replace_task(query(500.0, prefer=Prefer.ACCURACY), task)


def replace_task(one: Query, task: str) -> Query:
    return one._replace(task=TaskName(task))


def outcomes(view: Snapshot, window: CongestionWindow, *queries: Query) -> list[bool]:
    """Which queries found a worker, one after the other."""
    routes = table(view)
    found = [choose(view, routes, window, each, NOW_MS) for each in queries]
    for each in found:
        if isinstance(each, Refusal):
            assert each.code is RefusalCode.OVERLOADED
            assert "more are answered" in each.message
            assert each.shed
    return [isinstance(each, Choice) for each in found]


def crowded() -> CongestionWindow:
    """A window that refusals have shrunk."""
    window = CongestionWindow()
    for _ in range(100):
        window.refused(NOW_MS)
    return window


def both(times: int) -> list[Query]:
    return [asked(task) for _ in range(times) for task in ("light", "heavy")]


def test_nothing_is_shed_while_second_tries_find_room() -> None:
    assert all(outcomes(fleet(), crowded(), *both(20)))


def test_nothing_is_shed_while_answers_can_become_quicker_instead() -> None:
    window = CongestionWindow()
    for _ in range(10):
        window.refused(NOW_MS, twice=asked("light"))
    assert window.at(NOW_MS) > SHED_WINDOW
    assert all(outcomes(fleet(), window, *both(20)))

    for _ in range(20):
        window.refused(NOW_MS, twice=asked("light"))
    assert window.at(NOW_MS) <= SHED_WINDOW
    assert not all(outcomes(fleet(), window, *both(20)))


def test_after_a_second_refusal_some_of_what_costs_more_are_refused_at_once() -> None:
    window = crowded()
    window.refused(NOW_MS, twice=asked("light"))
    found = outcomes(fleet(), window, *both(20))

    assert found[::2] == [True] * 20  # the light ones
    assert found[1::2] == [False] * round(EACH) + [True] * (20 - round(EACH))


@pytest.mark.parametrize("busy_ms", [(0.0,), (100.0,), (240.0, 0.0), (0.0, 240.0)])
def test_nobody_is_shed_whom_a_worker_has_room_for(busy_ms: tuple[float, ...]) -> None:
    window = crowded()
    window.refused(NOW_MS, twice=asked("light"))
    view = fleet(3.6, *busy_ms)
    assert all(outcomes(view, window, *both(20)))

    found = choose(view, table(view), window, asked("heavy"), NOW_MS)
    assert isinstance(found, Choice)
    assert found.worker.busy_until_ms == NOW_MS + min(busy_ms)
    assert not all(outcomes(fleet(), window, *both(20)))  # what is due is due still


def test_who_is_not_shed_runs_nowhere_for_longer_than_others_may_wait_there() -> None:
    """The CPU would begin in a second, and then take 850 ms, where queries in haste may wait for
    0.16 s. The GPU begins in three seconds and takes a tenth of that."""
    rows_ms = {("light", "small"): (10.0, 10.0), ("heavy", "big"): (850.0, 85.0)}
    rows_ms |= {("heavy", "small"): (100.0, 10.0)}
    known = catalog(
        [variant(name, 0.9 if name == "big" else 0.7, task) for task, name in rows_ms],
        [
            profile(name, ms, task=task, kind=on, source=ProfileSource.EXACT)
            for (task, name), both_ms in rows_ms.items()
            for on, ms in zip(("cpu-1", "gpu"), both_ms, strict=True)
        ],
        kinds=[kind(), kind("gpu", 3.6)],
    )
    held = [(TaskName(task), VariantName(name)) for task, name in rows_ms]
    view = snapshot(
        known,
        (worker("w1", busy_ms=1_000.0), held),
        (worker("g1", kind="gpu", busy_ms=3_000.0), held),
    )
    routes = resolve(
        (
            replace(_route(), latency_ms=500.0),
            replace(
                _route(), task=TaskName("heavy"), variant=VariantName("big"), accuracy=0.9,
                latency_ms=5_000.0, worker=WorkerId("g1"),
            ),
        ),
        view,
        Prefer.ACCURACY,
    )  # fmt: skip
    heavy = asked("heavy")._replace(latency_ms=5_000.0, accuracy=0.9)
    window = crowded()
    window.refused(NOW_MS, twice=asked("light"))
    for _ in range(20):
        choose(view, routes, window, asked("light"), NOW_MS)

    found = choose(view, routes, window, heavy, NOW_MS)

    assert isinstance(found, Choice)
    assert found.worker.id == "g1"
    in_haste = heavy._replace(latency_ms=3_000.0)
    assert isinstance(choose(view, routes, window, in_haste, NOW_MS), Refusal), "it is due"


def test_room_goes_by_what_a_query_has_left() -> None:
    window = crowded()
    window.refused(NOW_MS, twice=asked("light"))
    outcomes(fleet(), window, asked("light"))
    loose = asked("heavy")._replace(latency_ms=1_000.0)
    assert outcomes(fleet(), window, loose, asked("heavy")) == [True, False]


@pytest.mark.parametrize(
    ("refused", "shed"),
    [
        ((DEFAULT_PRIORITY,), {DEFAULT_PRIORITY, LOW}),
        ((LOW,), {LOW}),
        ((LOW, DEFAULT_PRIORITY), {LOW}),
        ((HIGH,), {HIGH, DEFAULT_PRIORITY, LOW}),
    ],
)
def test_nobody_is_shed_who_stands_before_one_that_was_refused(
    refused: tuple[int, ...], shed: set[int]
) -> None:
    found = set()
    for priority in (HIGH, DEFAULT_PRIORITY, LOW):
        window = crowded()
        for one in refused:
            window.refused(NOW_MS, twice=asked("light")._replace(priority=one))
        heavy = asked("heavy")._replace(priority=priority)
        if outcomes(fleet(), window, asked("light"), heavy) == [True, False]:
            found.add(priority)
    assert found == shed


def test_a_low_priority_counts_as_long_as_what_it_brought_is_due() -> None:
    shedding = Shedding()
    shedding.refused(LOW, NOW_MS)
    shedding.sheds(1.0, DEFAULT_PRIORITY, NOW_MS)
    later_ms = NOW_MS + 10_000.0
    shedding.refused(DEFAULT_PRIORITY, later_ms)
    assert shedding.sheds(5.0, DEFAULT_PRIORITY, later_ms)


def test_second_tries_and_best_effort_are_not_shed() -> None:
    window = crowded()
    window.refused(NOW_MS, twice=asked("light"))
    heavy = asked("heavy")
    elsewhere = heavy._replace(avoid=WorkerId("w2"))
    view = fleet()
    outcomes(view, window, asked("light"))

    assert outcomes(view, window, elsewhere, heavy._replace(best_effort=True)) == [True, True]
    assert outcomes(view, window, heavy) == [False]


def test_where_devices_cost_nothing_nothing_costs_more() -> None:
    window = crowded()
    window.refused(NOW_MS, twice=asked("light"))

    assert all(outcomes(fleet(usd_per_hour=0.0), window, *both(10)))


def test_a_floor_makes_a_query_cost_what_its_variants_cost() -> None:
    known = catalog(
        [variant("big", 0.9), variant("small", 0.7)],
        [profile("big", 30.0, source=ProfileSource.EXACT), profile("small", 10.0)],
    )
    view = snapshot(known, (worker("w1"), [(v.task, v.name) for v in known.variants]))
    routes = resolve((replace(_route(), task=known.tasks[0].name),), view, Prefer.ACCURACY)
    some, high = (routes.offers(query(500.0, accuracy=floor)) for floor in (None, 0.8))

    assert some is not None
    assert high is not None
    assert high.least_usd > some.least_usd


def _route() -> Route:
    return Route(
        task=TaskName("light"), latency_ms=500.0, accuracy=None, variant=VariantName("small"),
        worker=WorkerId("w1"), batch_size=1, qps=20.0,
    )  # fmt: skip


@given(st.lists(st.tuples(st.floats(0.0, 500.0), st.booleans(), st.floats(0.1, 10.0)), max_size=80))
def test_no_more_is_shed_than_a_multiple_of_what_was_refused(
    events: list[tuple[float, bool, float]],
) -> None:
    shedding = Shedding()
    now_ms, refused, shed = NOW_MS, 0, 0
    for gap_ms, refuses, usd in events:
        now_ms += gap_ms
        if refuses:
            shedding.refused(DEFAULT_PRIORITY, now_ms)
            refused += 1
        elif shedding.sheds(usd, DEFAULT_PRIORITY, now_ms):
            shedding.shed()
            shed += 1
        assert shed <= EACH * refused


def test_what_is_due_is_bounded_and_forgotten() -> None:
    shedding = Shedding()
    for _ in range(1_000):
        shedding.refused(DEFAULT_PRIORITY, NOW_MS)
    for _ in range(AVERAGED):
        shedding.sheds(1.0, DEFAULT_PRIORITY, NOW_MS)
    shed = 0
    while shedding.sheds(5.0, DEFAULT_PRIORITY, NOW_MS) and shed <= MOST_DUE:
        shedding.shed()
        shed += 1
    assert shed == MOST_DUE

    shedding.refused(DEFAULT_PRIORITY, NOW_MS)
    assert not shedding.sheds(5.0, DEFAULT_PRIORITY, NOW_MS + 10_000.0)
