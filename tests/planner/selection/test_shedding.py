"""Shedding: where more is asked than can be served, what costs most is refused first."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from planner.selection.plan_following import SHED_WINDOW, CongestionWindow, choose
from planner.selection.routes import RouteTable, resolve
from planner.selection.shedding import COSTLY, QUIET_MS, SETTLING_MS, Shedding
from planner.types import Choice, Query, Refusal, RefusalCode, Snapshot
from tests.planner.builders import NOW_MS, catalog, kind, profile, query, snapshot, variant, worker
from variants.types import Prefer, ProfileSource, Route, TaskName, VariantName, WorkerId

TASKS = {"light": 10.0, "heavy": 30.0}


def fleet(usd_per_hour: float = 3.6, busy_ms: float = 240.0) -> Snapshot:
    """A worker with a variant of each task; those of ``heavy`` take three times as long."""
    known = catalog(
        [variant("v", task=task) for task in TASKS],
        [profile("v", ms, task=t, source=ProfileSource.EXACT) for t, ms in TASKS.items()],
        kinds=[kind("cpu-1", usd_per_hour)],
    )
    held = [(TaskName(t), VariantName("v")) for t in TASKS]
    return snapshot(known, (worker("w1", busy_ms=busy_ms), held))


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
    return [isinstance(each, Choice) for each in found]


def crowded(refused_twice: int = 100) -> CongestionWindow:
    """A window that refusals have shrunk for long enough, and of which costs are known."""
    window = CongestionWindow()
    for _ in range(100):
        window.refused(NOW_MS)
    for usd in (36.0, 108.0) * 50:
        window.shedding.sheds(usd, 1.0, NOW_MS)
    for at in range(refused_twice):
        window.refused(NOW_MS - (SETTLING_MS if at == 0 else 0.0), twice=True)
    return window


def both(times: int) -> list[Query]:
    return [asked(task) for _ in range(times) for task in ("light", "heavy")]


def test_nothing_is_shed_while_second_tries_find_room() -> None:
    assert all(outcomes(fleet(), crowded(refused_twice=0), *both(20)))


def test_nothing_is_shed_while_answers_can_become_quicker_instead() -> None:
    window = crowded()
    later_ms = NOW_MS + 1_000.0
    assert window.at(NOW_MS) <= SHED_WINDOW < window.at(later_ms)

    soon, late = fleet(), fleet(busy_ms=1_240.0)
    heavy = asked("heavy")
    assert isinstance(choose(soon, table(soon), window, heavy, NOW_MS), Refusal)
    later = heavy._replace(received_ms=later_ms)
    assert isinstance(choose(late, table(late), window, later, later_ms), Choice)


def test_after_second_refusals_what_costs_more_is_refused_at_once() -> None:
    found = outcomes(fleet(), crowded(), *both(20))

    assert found[::2] == [True] * 20  # the light ones
    assert found[1::2] == [False] * 20


def test_nothing_is_shed_that_finds_a_worker_with_room() -> None:
    assert all(outcomes(fleet(busy_ms=0.0), crowded(), *both(20)))


def test_second_tries_and_best_effort_are_not_shed() -> None:
    window = crowded()
    heavy = asked("heavy")
    elsewhere = heavy._replace(avoid=WorkerId("w2"))
    view = fleet()

    assert outcomes(view, window, elsewhere, heavy._replace(best_effort=True)) == [True, True]
    assert outcomes(view, window, heavy) == [False]


def test_where_devices_cost_nothing_nothing_costs_more() -> None:
    assert all(outcomes(fleet(usd_per_hour=0.0), crowded(), *both(10)))


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


EVENTS = st.lists(
    st.tuples(st.floats(0.0, 500.0), st.booleans(), st.floats(0.1, 10.0), st.floats(0.0, 4.0)),
    max_size=80,
)


@given(EVENTS)
def test_only_what_costs_more_than_others_is_shed_and_nothing_without_refusals(
    events: list[tuple[float, bool, float, float]],
) -> None:
    shedding, untouched = Shedding(), Shedding()
    now_ms = NOW_MS
    refused_ms: float | None = None
    costs: list[float] = []
    for gap_ms, refuses, usd, fill in events:
        now_ms += gap_ms
        if refuses:
            shedding.refused(fill, now_ms)
            refused_ms = now_ms
            continue
        costs.append(usd)
        assert not untouched.sheds(usd, fill, now_ms)
        if shedding.sheds(usd, fill, now_ms):
            assert refused_ms is not None
            assert now_ms - refused_ms <= QUIET_MS
            assert usd > COSTLY * min(costs)


def known(refusals: int) -> Shedding:
    """Of queries that cost 1 and 2, at a fill of 1."""
    shedding = Shedding()
    for usd in (1.0, 2.0) * 100:
        shedding.sheds(usd, 1.0, NOW_MS)
    shedding.refused(1.0, NOW_MS - SETTLING_MS)
    for _ in range(refusals):
        shedding.refused(1.0, NOW_MS)
    return shedding


def test_at_first_refusals_only_say_that_there_are_some() -> None:
    assert not known(0).sheds(2.0, 4.0, NOW_MS)


def test_the_fuller_workers_are_the_less_may_a_query_cost() -> None:
    assert not known(1).sheds(2.0, 1.0, NOW_MS)
    assert known(1).sheds(2.0, 1.3, NOW_MS)
    assert not known(1).sheds(1.0, 4.0, NOW_MS)


def test_refusals_lower_what_a_query_may_cost_and_time_raises_it() -> None:
    shedding = known(50)
    assert shedding.sheds(2.0, 1.0, NOW_MS)
    assert not shedding.sheds(2.0, 1.0, NOW_MS + QUIET_MS - 1.0)
    assert not known(50).sheds(2.0, 4.0, NOW_MS + QUIET_MS + 1.0)


def test_however_many_were_refused_it_is_forgotten_in_time() -> None:
    shedding = known(100_000)
    at_ms, end_ms = NOW_MS, NOW_MS + 60_000.0
    while at_ms < end_ms:
        assert not shedding.sheds(1.0, 1.0, at_ms)
        shedding.refused(0.0, at_ms)  # keeps it known, and the fleet is empty
        at_ms += 5_000.0
    assert not shedding.sheds(2.0, 1.0, at_ms)
