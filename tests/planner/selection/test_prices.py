"""Prices: a query goes where accuracy less the price of the time it takes is largest."""

from dataclasses import replace
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.selection.menus import (
    KnownGains,
    Menu,
    PriceRange,
    hull,
    menu_groups,
    price_range,
)
from planner.selection.plan_following import (
    FULL_MS,
    FULL_WINDOW,
    MOST_FULL,
    OVERTAKES,
    TRIED,
    TRIED_AGAIN_MS,
    CongestionWindow,
    choose,
)
from planner.selection.prices import UsualFills
from planner.selection.route_targets import ROOM
from planner.selection.routes import RouteTable, resolve
from planner.selection.select import select
from planner.selection.snapshot import build_snapshot
from planner.types import Choice, Query, Snapshot
from tests.planner.builders import (
    DIGITS,
    NOW_MS,
    catalog,
    key,
    kind,
    profile,
    query,
    snapshot,
    variant,
    worker,
)
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    LatencyPoint,
    Prefer,
    ProfileSource,
    Route,
    Stage,
    VariantName,
    WorkerId,
)

ALL = ("best", "good", "fair", "poor")
SPEEDS = {"best": (0.99, 40.0), "good": (0.9, 39.0), "fair": (0.9, 20.0), "poor": (0.8, 10.0)}


def family(**stages: Stage) -> CatalogSnapshot:
    """``good`` is hardly quicker than ``best``: no price makes it the best choice."""
    return catalog(
        [variant(name, accuracy) for name, (accuracy, _) in SPEEDS.items()],
        [
            profile(name, ms, kind=on, source=ProfileSource.EXACT)
            for name, (_, ms) in SPEEDS.items()
            for on in ("cpu-1", "gpu")
        ],
        kinds=[kind("cpu-1"), kind("gpu", 3.6)],
        stages=stages,
    )


def fleet(busy_ms: dict[str, float] | None = None) -> Snapshot:
    """``w1`` and ``w2`` of one kind, ``w3`` of another; all hold everything."""
    busy = busy_ms or {}
    kinds = {"w1": "cpu-1", "w2": "cpu-1", "w3": "gpu"}
    return snapshot(
        family(),
        *(
            (worker(name, kind=on, busy_ms=busy.get(name, 0.0)), [key(each) for each in ALL])
            for name, on in kinds.items()
        ),
    )


def route(name: str = "poor", on: str = "w1", latency_ms: float = 100.0) -> Route:
    return Route(
        task=DIGITS,
        latency_ms=latency_ms,
        accuracy=None,
        variant=VariantName(name),
        worker=WorkerId(on),
        batch_size=1,
        qps=20.0,
    )


def table(view: Snapshot, *routes: Route) -> RouteTable:
    return resolve(routes or (route(),), view, Prefer.ACCURACY)


def asked(latency_ms: float = 100.0, **more: float) -> Query:
    return query(latency_ms, prefer=Prefer.ACCURACY, **more)  # type: ignore[arg-type]


def chosen(busy_ms: dict[str, float], one: Query | None = None) -> tuple[str, str]:
    view = fleet(busy_ms)
    found = choose(view, table(view), CongestionWindow(), one or asked(), NOW_MS)
    assert isinstance(found, Choice)
    return found.candidate.variant, found.worker.id


def test_while_workers_are_idle_the_most_accurate_answers_whatever_is_planned() -> None:
    assert chosen({})[0] == "best"


def test_an_idle_worker_of_any_kind_comes_before_less_accuracy() -> None:
    assert chosen({"w1": 55.0, "w2": 55.0}) == ("best", "w3")


@pytest.mark.parametrize(("wait_ms", "variant"), [(0.0, "best"), (70.0, "fair"), (88.0, "poor")])
def test_the_fuller_the_workers_the_less_accurate(wait_ms: float, variant: str) -> None:
    assert chosen(dict.fromkeys(("w1", "w2", "w3"), wait_ms))[0] == variant


@pytest.mark.parametrize("latency_ms", [20.0, 30.0])
def test_a_route_that_is_not_in_time_for_anything_says_nothing_of_room(latency_ms: float) -> None:
    """Its variant is gone as well, so that no batch says how long a backlog may be."""
    seen = replace(fleet(), transport_ms=30.0)
    table = resolve((route("gone", latency_ms=latency_ms),), seen, Prefer.ACCURACY)
    found = choose(seen, table, CongestionWindow(), query(200.0, prefer=Prefer.ACCURACY), NOW_MS)
    assert isinstance(found, Choice)
    assert found.candidate.variant == "best"


def test_refusals_raise_the_prices() -> None:
    """The room shrinks, so that the same backlog is a fuller worker."""
    view = fleet(dict.fromkeys(("w1", "w2", "w3"), 45.0))
    window = CongestionWindow()
    calm = choose(view, table(view), window, asked(), NOW_MS)
    for _ in range(50):
        window.refused(NOW_MS)
    crowded = choose(view, table(view), window, asked(), NOW_MS)

    assert isinstance(calm, Choice)
    assert isinstance(crowded, Choice)
    assert calm.candidate.accuracy > crowded.candidate.accuracy


def test_while_congestion_lasts_kinds_that_the_plan_does_not_use_are_dearer() -> None:
    """All are nearly as busy; the plan has the class on ``w1``'s kind."""
    view = fleet({"w1": 46.0, "w2": 46.0, "w3": 45.0})
    window = CongestionWindow()

    def kind_of_choice() -> str:
        found = choose(view, table(view), window, asked(), NOW_MS)
        assert isinstance(found, Choice)
        return found.worker.device_kind

    assert kind_of_choice() == "gpu"
    for _ in range(50):
        window.refused(NOW_MS)
    assert kind_of_choice() == "gpu", "congestion that has only begun"
    for second in range(1, 21):
        window.lasts(window.at(NOW_MS), NOW_MS + 1_000.0 * second)
    assert kind_of_choice() == "cpu-1"
    for second in range(21, 41):
        window.lasts(1.0, NOW_MS + 1_000.0 * second)
    assert kind_of_choice() == "gpu", "it is over"


def test_a_class_that_the_plan_has_nowhere_costs_the_same_everywhere() -> None:
    view = fleet({"w1": 46.0, "w2": 46.0, "w3": 45.0})
    offers = table(view).offers(asked(50.0))  # tighter than any class
    assert offers is not None
    assert offers.planned is None
    both = table(view, route(), route(on="w3")).offers(asked())
    assert both is not None
    assert both.planned == {"cpu-1", "gpu"}
    hardly = replace(route(on="w3"), qps=0.5)
    most = table(view, route(), hardly).offers(asked())
    assert most is not None
    assert most.planned == {"cpu-1"}


def test_a_query_joins_a_batch_that_waits_rather_than_open_another() -> None:
    """Both workers are as busy; in a batch a row takes a tenth of what it takes alone."""
    single = profile("only", 40.0, source=ProfileSource.EXACT)
    many = LatencyPoint(batch_size=8, p50_ms=68.0, p95_ms=68.0, p99_ms=68.0)
    batching = replace(single, points=(single.points[0], many))
    known = catalog([variant("only")], [batching])
    view = snapshot(known, *((worker(n, busy_ms=50.0), [key("only")]) for n in ("w1", "w2", "w3")))
    seen = CongestionWindow()
    one = asked(400.0)
    routes = table(view, route("only"))
    first = choose(view, routes, seen, one, NOW_MS)
    assert isinstance(first, Choice)
    seen.batches.sent(first.candidate, first.worker, 1, NOW_MS, 200.0)
    first.worker.busy_until_ms += 4.0
    again = choose(view, routes, seen, one, NOW_MS)

    assert isinstance(again, Choice)
    assert again.worker is first.worker
    assert again.predicted_ms == pytest.approx(54.0 + 4.0)


def test_when_nothing_is_in_time_the_query_is_refused() -> None:
    view = fleet(dict.fromkeys(("w1", "w2", "w3"), 95.0))

    window = CongestionWindow(overtaking=False)
    assert not isinstance(choose(view, table(view), window, asked(), NOW_MS), Choice)


def test_who_has_no_time_for_all_that_waits_anywhere_asks_whether_he_may_come_before_it() -> None:
    """The worker that is done first, on its quickest variant, and on a second try another one, but
    none that had no time for such a query a moment ago."""
    view = fleet({"w1": 300.0, "w2": 200.0, "w3": 400.0})
    window = CongestionWindow()

    def goes_to(one: Query) -> tuple[str, str] | None:
        found = choose(view, table(view), window, one, NOW_MS)
        return (found.candidate.variant, found.worker.id) if isinstance(found, Choice) else None

    assert goes_to(asked()) == ("poor", "w2")
    assert goes_to(asked()._replace(avoid=WorkerId("w2"))) == ("poor", "w1")
    assert goes_to(asked(accuracy=0.95)) == ("best", "w2")
    assert goes_to(asked(5.0)) is None
    window.had_no_time(WorkerId("w2"), asked(), NOW_MS)
    assert goes_to(asked()) == ("poor", "w3")
    window.had_no_time(WorkerId("w3"), asked(), NOW_MS)
    assert goes_to(asked()) is None
    assert goes_to(asked(150.0)) == ("poor", "w2")


def test_where_nobody_comes_before_others_few_try_it() -> None:
    """One each half second does, and when they succeed all do."""
    view = fleet(dict.fromkeys(("w1", "w2", "w3"), 60_000.0))
    window = CongestionWindow()
    now_ms, draw = NOW_MS, 0

    def tries(after_ms: float) -> WorkerId | None:
        nonlocal now_ms, draw
        now_ms, draw = now_ms + after_ms, draw + 1
        one = asked(draw=draw)._replace(received_ms=now_ms)
        twice = [choose(view, table(view), window, one, now_ms) for _ in range(2)]
        assert isinstance(twice[0], Choice) == isinstance(twice[1], Choice)  # counted once
        return twice[0].worker.id if isinstance(twice[0], Choice) else None

    def is_refused(after_ms: float) -> bool:
        worker = tries(after_ms)
        if worker is not None:
            window.had_no_time(worker, asked(draw=draw)._replace(received_ms=now_ms), now_ms)
        return worker is not None

    refused = 0
    while is_refused(FULL_MS):
        refused += 1
    assert OVERTAKES * (1.0 - TRIED) < (1.0 - TRIED) ** refused < OVERTAKES
    assert [is_refused(TRIED_AGAIN_MS / 5) for _ in range(20)].count(True) == 4
    succeeded = 0
    while tries(1.0) is None:
        assert tries(TRIED_AGAIN_MS) is not None
        succeeded += 1
    assert 1 < succeeded < 5


def test_where_a_worker_has_refused_it_a_query_goes_to_what_fits_more_than_just() -> None:
    """Another idle worker with the same variant would refuse it as well."""
    one = asked(42.0)
    assert chosen({}, one)[0] == "best"
    second = one._replace(avoid=WorkerId("w1"))
    assert chosen({}, second)[0] == "fair"
    assert chosen({}, second._replace(latency_ms=60.0))[0] == "best"


def test_who_had_no_time_a_moment_ago_is_not_asked_first() -> None:
    """It said so of a query of the same task that could wait for as long."""
    view = fleet({"w1": 5.0, "w2": 8.0, "w3": 60.0})
    congestion = CongestionWindow()

    def goes_to(one: Query, now_ms: float = NOW_MS) -> str:
        found = choose(view, table(view), congestion, one, now_ms)
        assert isinstance(found, Choice)
        return found.worker.id

    assert goes_to(asked()) == "w1"
    congestion.had_no_time(WorkerId("w1"), asked(), NOW_MS)
    assert goes_to(asked()) == goes_to(asked(90.0)) == "w2"
    assert goes_to(asked(150.0)) == "w1"
    assert goes_to(asked()._replace(avoid=WorkerId("w2"))) == "w1"
    later_ms = NOW_MS + FULL_MS
    assert goes_to(asked()._replace(received_ms=later_ms), later_ms) == "w1"


def test_once_many_are_refused_who_had_no_time_is_asked_all_the_same() -> None:
    """Each refusal narrows the window, by which answers become quicker."""
    view = fleet({"w1": 5.0, "w2": 8.0, "w3": 60.0})
    congestion = CongestionWindow()
    while congestion.at(NOW_MS) > FULL_WINDOW:
        congestion.refused(NOW_MS)
    before = choose(view, table(view), congestion, asked(), NOW_MS)
    assert isinstance(before, Choice)
    congestion.had_no_time(before.worker.id, asked(), NOW_MS)

    assert choose(view, table(view), congestion, asked(), NOW_MS) == before


def test_where_nobody_had_time_the_best_is_asked_all_the_same() -> None:
    view = fleet({"w1": 5.0, "w2": 8.0, "w3": 60.0})
    congestion = CongestionWindow()
    for name in ("w1", "w2", "w3"):
        congestion.had_no_time(WorkerId(name), asked(), NOW_MS)

    found = choose(view, table(view), congestion, asked(), NOW_MS)
    assert isinstance(found, Choice)
    assert found.worker.id == "w1"


def test_of_who_had_no_time_what_is_over_is_forgotten_once_it_is_much() -> None:
    congestion = CongestionWindow()
    for number in range(MOST_FULL):
        congestion.had_no_time(WorkerId(f"w{number}"), asked(), NOW_MS)
    later_ms = NOW_MS + FULL_MS
    congestion.had_no_time(WorkerId("new"), asked(), later_ms)

    assert congestion.is_full(WorkerId("new"), asked(), later_ms)
    assert len(congestion._full) == 1


def test_floors_and_ceilings_are_kept() -> None:
    everywhere = dict.fromkeys(("w1", "w2", "w3"), 70.0)

    assert chosen(everywhere)[0] == "fair"
    assert chosen(dict.fromkeys(everywhere, 55.0), asked(accuracy=0.95))[0] == "best"
    assert chosen({}, asked(cost=0.0025))[0] == "fair"


def test_what_did_not_change_is_taken_over() -> None:
    view = fleet()
    first = table(view)
    offers = first.offers(asked())
    again = resolve((route("fair"),), view, Prefer.ACCURACY, first).offers(asked())

    assert offers is not None
    assert again is not None
    assert all(a is b for a, b in zip(offers.groups, again.groups, strict=True))
    emptier = build_snapshot(family(), [(view.workers[WorkerId("w3")], [key("poor")])], before=view)
    later = resolve((route("fair"),), emptier, Prefer.ACCURACY, first).offers(asked())
    assert later is not None
    assert [[c.variant for c in group.menu.candidates] for group in later.groups] == [["poor"]]


def test_offers_stay_while_nothing_of_their_task_is_ready_elsewhere() -> None:
    known, routes = family(), (route(),)
    everything = frozenset(key(name) for name in ALL)
    w1, w2 = worker("w1"), worker("w2")
    view = build_snapshot(known, [(w1, everything), (w2, everything)])
    first = resolve(routes, view, Prefer.ACCURACY)
    offers = first.offers(asked())

    same = build_snapshot(known, [(w1, everything), (w2, everything)], before=view)
    second = resolve(routes, same, Prefer.ACCURACY, first)
    assert offers is not None
    assert second.offers(asked()) is offers

    moved = build_snapshot(known, [(w1, everything), (w2, frozenset())], before=same)
    third = resolve(routes, moved, Prefer.ACCURACY, second)
    left = third.offers(asked())
    assert left is not None
    assert [[w.id for w in group.workers] for group in left.groups] == [["w1"]]
    assert resolve((route("fair"),), moved, Prefer.ACCURACY, third).offers(asked()) is not left


def test_a_longer_slo_than_its_class_gives_more_room() -> None:
    """Plans round SLOs down: 190 ms count as 100."""
    view = fleet()
    offers = table(view).offers(asked(190.0))

    assert offers is not None
    assert offers.looseness == pytest.approx(1.9)


def test_the_tightest_slo_of_a_class_says_what_room_there_is() -> None:
    """Where nobody in the class of 100 ms asks for less than 190, workers have a part of 95 ms."""
    view = fleet()
    routes = (replace(route(), slo_ms=190.0),)
    offers = resolve(routes, view, Prefer.ACCURACY).offers(asked(190.0))

    assert offers is not None
    assert offers.looseness == pytest.approx(1.0)
    assert offers.rooms_ms == {WorkerId("w1"): pytest.approx(ROOM[Prefer.ACCURACY] * 95.0)}


def test_workers_with_the_same_variants_share_a_menu() -> None:
    groups = menu_groups(fleet().tasks[DIGITS])

    assert [[w.id for w in group.workers] for group in groups] == [["w1", "w2"], ["w3"]]
    assert [c.variant for c in groups[0].menu.candidates] == ["poor", "fair", "best"]


def test_menus_of_the_same_candidates_are_taken_over() -> None:
    """Another worker has ``poor`` now: menus with it are of another candidate."""
    known = fleet().tasks[DIGITS]
    poor = known.by_cost[0]
    moved = poor.moved((*poor.ready, worker("w9")), poor.hosts, "")
    now = replace(
        known, by_accuracy=tuple([moved if one is poor else one for one in known.by_accuracy])
    )
    before = menu_groups(known)
    found, anew = menu_groups(now, before), menu_groups(now)

    assert [group.workers for group in found] == [group.workers for group in anew]
    assert [group.menu.candidates for group in found] == [g.menu.candidates for g in anew]
    kept = [group.menu in [g.menu for g in before] for group in found]
    assert kept == [all(c is not moved for c in group.menu.held) for group in found]
    assert sorted(set(kept)) == [False, True]


def test_prices_span_what_makes_a_difference() -> None:
    """From 0.1 per 10 ms (poor to fair) down to 0.09 per 20 ms (fair to best)."""
    found = price_range(fleet(), [DIGITS])

    assert found.at(0.0) == pytest.approx(0.09 / 20)
    assert found.at(1.0) == pytest.approx(0.1 / 10)
    assert price_range(fleet(), []).at(1.0) == 0.0


def test_prices_are_the_same_where_gains_are_known() -> None:
    view = fleet()
    known: KnownGains = {}
    found = price_range(view, [DIGITS], known)

    assert found == price_range(view, [DIGITS], known) == price_range(view, [DIGITS])
    assert known[DIGITS] == pytest.approx((0.09 / 20, 0.1 / 10))


def priced_between(*speeds: tuple[str, str, float, float]) -> Snapshot:
    """``w1`` (cpu-1) and ``w3`` (gpu) with variants of a name, a kind, an accuracy and ms."""
    known = catalog(
        [variant(name, accuracy) for name, _, accuracy, _ in {s[0]: s for s in speeds}.values()],
        [profile(name, ms, kind=on, source=ProfileSource.EXACT) for name, on, _, ms in speeds],
        kinds=[kind("cpu-1"), kind("gpu", 3.6)],
    )
    return snapshot(
        known,
        *(
            (worker(name, kind=on), [key(s[0]) for s in speeds if s[1] == on])
            for name, on in (("w1", "cpu-1"), ("w3", "gpu"))
        ),
    )


def test_variants_of_different_kinds_are_weighed_where_no_kind_has_two() -> None:
    view = priced_between(("big", "gpu", 0.99, 20.0), ("small", "cpu-1", 0.6, 10.0))
    routes = table(view, route("small"))
    idle = choose(view, routes, CongestionWindow(), asked(), NOW_MS)
    assert isinstance(idle, Choice)
    assert idle.candidate.variant == "big"

    view.workers[WorkerId("w3")].busy_until_ms = NOW_MS + 75.0
    full = choose(view, routes, CongestionWindow(), asked(), NOW_MS)
    assert isinstance(full, Choice)
    assert full.candidate.variant == "small"


def test_where_all_are_as_accurate_the_first_to_complete_answers() -> None:
    view = priced_between(("one", "gpu", 0.9, 5.0), ("one", "cpu-1", 0.9, 40.0))
    routes = table(view, route("one"))
    for busy_ms, worker_id in ((30.0, "w3"), (50.0, "w1")):
        view.workers[WorkerId("w3")].busy_until_ms = NOW_MS + busy_ms
        found = choose(view, routes, CongestionWindow(), asked(), NOW_MS)
        assert isinstance(found, Choice)
        assert found.worker.id == worker_id


@pytest.mark.parametrize("ms", [10.001, 10.1])
def test_a_variant_as_quick_as_a_less_accurate_one_does_not_make_prices_explode(ms: float) -> None:
    speeds = [("best", 0.99, 40.0), ("fair", 0.9, 20.0), ("poor", 0.8, 10.0)]
    alike = [*speeds, ("twin", 0.81, ms)]
    ranges = [
        price_range(priced_between(*((n, "gpu", a, t) for n, a, t in some)), [DIGITS])
        for some in (speeds, alike)
    ]

    assert ranges[1].growth < ranges[0].growth + 0.2


def test_open_batches_of_what_is_gone_or_a_canary_are_not_joined() -> None:
    view = fleet(dict.fromkeys(("w1", "w2", "w3"), 50.0))
    routes = table(view)

    def joined(now: Snapshot) -> bool:
        """Whether the next query would join a batch of ``best`` on ``w1``."""
        seen = CongestionWindow()
        [best] = [
            c
            for c in view.tasks[DIGITS].by_variant[VariantName("best")]
            if c.device_kind == "cpu-1"
        ]
        seen.batches.sent(best, view.workers[WorkerId("w1")], 1, NOW_MS, 400.0)
        found = resolve((route(),), now, Prefer.ACCURACY)
        choose(now, found, seen, asked(400.0), NOW_MS)
        return bool(seen.batches.of(DIGITS, NOW_MS))

    workers = view.workers
    everything = [key(each) for each in ALL]
    assert routes.used
    assert joined(view)
    gone = [(w, everything) for w in workers.values() if w.id != "w1"]
    assert not joined(build_snapshot(family(), gone, before=view))
    unloaded = [
        (w, [k for k in everything if k != key("best") or w.id != "w1"]) for w in workers.values()
    ]
    assert not joined(build_snapshot(family(), unloaded, before=view))
    canary = family(best=Stage.CANARY)
    assert not joined(build_snapshot(canary, [(w, everything) for w in workers.values()]))


def test_a_task_of_which_nothing_is_ready_loads_what_is_preferred() -> None:
    known = family()
    view = snapshot(known, (worker("w1"), []))
    found = choose(view, table(view), CongestionWindow(), asked(10_000.0), NOW_MS)
    wanted = select(view, asked(10_000.0), NOW_MS)

    assert found == wanted


points = st.lists(
    st.tuples(st.sampled_from((1.0, 2.0, 5.0, 10.0, 30.0)), st.sampled_from((0.5, 0.7, 0.8, 0.9))),
    min_size=1,
    max_size=6,
)


@given(points, st.floats(1e-5, 1.0))
def test_the_best_of_a_menu_is_the_best_of_all(
    drawn: list[tuple[float, float]], price: float
) -> None:
    """By trying all variants."""
    names = [f"v{n}" for n in range(len(drawn))]
    known = catalog(
        [variant(name, accuracy) for name, (_, accuracy) in zip(names, drawn, strict=True)],
        [
            profile(name, ms, source=ProfileSource.EXACT)
            for name, (ms, _) in zip(names, drawn, strict=True)
        ],
    )
    view = snapshot(known, (worker(), [key(name) for name in names]))
    held = view.tasks[DIGITS].by_cost
    menu = Menu([c for *_, c in hull((c.table.ms[1], c.accuracy, c) for c in held)])
    found = menu.best(price, 1_000.0, 1, None, None)

    assert found is not None
    assert found.accuracy - price * found.table.ms[1] == pytest.approx(
        max(c.accuracy - price * c.table.ms[1] for c in held)
    )


@given(st.floats(0.0, 10.0), st.floats(0.0, 10.0))
def test_prices_rise_with_the_backlog(one: float, other: float) -> None:
    prices = PriceRange(0.001, log(100))

    assert (prices.at(one) <= prices.at(other)) or one > other


CPU = DeviceKindName("cpu-1")


def test_a_backlog_counts_by_a_quarter_at_once_and_in_full_once_it_is_usual() -> None:
    usual = UsualFills()

    assert usual.look(CPU, 0.0, 0.0, NOW_MS) == 0.0
    assert usual.look(CPU, 0.8, 0.8, NOW_MS + 1.0) == pytest.approx(0.2, abs=0.001)
    for ms in range(20_000):
        last = usual.look(CPU, 0.8, 0.8, NOW_MS + 2.0 + ms)
    assert last == pytest.approx(0.8)
    assert usual.counted(CPU, 0.0) == pytest.approx(0.6)
    assert usual.counted(DeviceKindName("gpu"), 0.3) == 0.3


def test_what_is_usual_is_of_the_least_busy_of_the_workers_of_a_moment() -> None:
    """Whichever is looked at first."""
    ahead, behind = UsualFills(), UsualFills()
    for fills, usual in (((0.2, 0.9), ahead), ((0.9, 0.2), behind)):
        for seconds in range(30):
            for fill in fills:
                usual.look(CPU, fill, fill, NOW_MS + 1_000.0 * seconds)

    assert ahead.counted(CPU, 0.2) == pytest.approx(0.2, abs=0.001)
    assert behind.counted(CPU, 0.2) == pytest.approx(0.2, abs=0.001)


def test_a_worker_that_is_idle_for_a_moment_is_not_as_cheap_as_one_that_mostly_is() -> None:
    usual_ms = 1.8 * ROOM[Prefer.ACCURACY] * 50.0
    busy, idle = fleet(dict.fromkeys(("w1", "w2", "w3"), usual_ms)), fleet()
    seen = CongestionWindow()

    def answered_by(view: Snapshot, now_ms: float) -> str:
        for one in view.workers.values():
            one.busy_until_ms += now_ms - NOW_MS if view is busy else 0.0
        routes = table(view, *(route(on=name) for name in ("w1", "w2", "w3")))
        found = choose(view, routes, seen, asked()._replace(received_ms=now_ms), now_ms)
        for one in view.workers.values():
            one.busy_until_ms -= now_ms - NOW_MS if view is busy else 0.0
        assert isinstance(found, Choice)
        return found.candidate.variant

    for ms in range(0, 20_000, 10):
        answered_by(busy, NOW_MS + ms)
    assert answered_by(idle, NOW_MS + 20_010.0) == "fair"
    assert [answered_by(idle, NOW_MS + 20_020.0 + ms) for ms in range(0, 20_000, 10)][-1] == "best"


@pytest.mark.parametrize("odd_ms", [5.0, 60_000.0])
def test_queries_of_other_slos_do_not_change_what_is_usual(odd_ms: float) -> None:
    """Of three workers, one without a route; every second query has an SLO far from the plan's."""

    def usual(*slos_ms: float) -> dict[DeviceKindName, float]:
        view = fleet({"w1": 40.0, "w2": 30.0, "w3": 50.0})
        routes = table(view, route(), route(on="w3"))
        seen = CongestionWindow()
        for ms in range(5_000):
            now_ms = NOW_MS + ms
            one = asked(slos_ms[ms % len(slos_ms)])._replace(received_ms=now_ms, draw=ms << 8)
            choose(view, routes, seen, one, now_ms)
            for each in view.workers.values():
                each.busy_until_ms += 1.0
        return {kind: known.fill for kind, known in seen.usual.kinds.items()}

    assert usual(100.0, odd_ms) == pytest.approx(usual(100.0))


@given(st.lists(st.tuples(st.floats(0.0, 4.0), st.floats(0.0, 5_000.0)), min_size=1, max_size=20))
def test_what_counts_is_between_the_backlog_and_those_before(
    looks: list[tuple[float, float]],
) -> None:
    usual, now_ms = UsualFills(), NOW_MS
    for number, (fill, gap_ms) in enumerate(looks):
        now_ms += gap_ms
        found = usual.look(CPU, fill, fill, now_ms)
        known = [each for each, _ in looks[: number + 1]]
        assert found == 0.0 or min(known) - 1e-9 <= found <= max(known) + 1e-9
