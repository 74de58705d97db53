"""Routing: two random choices, and the exhaustive ones that stand behind it."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from planner.eviction.query_rates import QueryRates
from planner.selection.load_balancing import host_for, least_busy, route
from tests.planner.builders import DIGITS, NOW_MS, catalog, profile, snapshot, variant, worker
from variants.types import TaskName, VariantKey, VariantName, WorkerId

IDLE = tuple(worker(f"w{index}") for index in range(4))


def test_the_less_busy_of_the_two_drawn_is_taken() -> None:
    workers = (worker("w1", busy_ms=20), worker("w2", busy_ms=10))
    assert [route(workers, draw, NOW_MS, None) for draw in range(4)] == [workers[1]] * 4


def test_idle_workers_are_drawn_evenly() -> None:
    drawn = Counter(w.id for draw in range(1_200) if (w := route(IDLE, draw, NOW_MS, None)))
    assert drawn == {"w0": 300, "w1": 300, "w2": 300, "w3": 300}


def test_two_different_workers_are_drawn() -> None:
    one_idle = (worker("w0", busy_ms=9), worker("w1", busy_ms=9), worker("w2"))
    picked = Counter(w.id for draw in range(600) if (w := route(one_idle, draw, NOW_MS, None)))
    assert picked[WorkerId("w2")] == 400


def test_the_worker_to_avoid_is_not_taken() -> None:
    avoided = WorkerId("w0")
    assert {w.id for d in range(60) if (w := route(IDLE, d, NOW_MS, avoided))} == {"w1", "w2", "w3"}
    assert route(IDLE[:1], 0, NOW_MS, avoided) is None
    assert least_busy(IDLE[:1], 0, NOW_MS, avoided) is None


def test_without_a_worker_there_is_no_pick() -> None:
    assert route((), 0, NOW_MS, None) is None
    assert least_busy((), 0, NOW_MS, None) is None


def test_long_idle_counts_as_idle_not_as_better() -> None:
    workers = (worker("w1", busy_ms=0), worker("w2", busy_ms=-500))
    assert least_busy(workers, 0, NOW_MS, None) == workers[0]


def test_a_host_to_load_on_is_not_the_one_to_avoid_nor_one_that_is_busy_for_long() -> None:
    known = catalog([variant("new")], [profile("new", 5)])
    hosts = (worker("w1", free_mib=500), worker("w2", free_mib=900, busy_ms=30))
    (new,) = snapshot(known, *((host, ()) for host in hosts)).tasks[DIGITS].by_cost
    assert host_for(new, NOW_MS, None) == hosts[0]
    assert host_for(new, NOW_MS, WorkerId("w1")) == hosts[1]
    assert host_for(new, NOW_MS, WorkerId("w1"), 20.0) is None


def test_a_worker_that_holds_a_variant_and_is_spared_is_no_host_of_it() -> None:
    spared, other = worker("w1", free_mib=500), worker("w2", free_mib=900)
    known = catalog([variant("new")], [profile("new", 5)])
    (new,) = snapshot(known, (spared, ()), (other, ())).tasks[DIGITS].by_cost
    spared.withheld = frozenset({(DIGITS, VariantName("new"))})
    assert host_for(new, NOW_MS, None) == other
    assert host_for(new, NOW_MS, WorkerId("w2")) is None


@given(st.permutations(range(6)), st.integers(1, 6))
def test_the_first_loads_of_an_empty_fleet_go_to_a_host_each(rooms: list[int], loads: int) -> None:
    """However much room each of them has."""
    known = catalog([variant("new")], [profile("new", 5)])
    hosts = tuple(worker(f"w{i}", free_mib=500 + 100 * room) for i, room in enumerate(rooms))
    (new,) = snapshot(known, *((host, ()) for host in hosts)).tasks[DIGITS].by_cost
    for number in range(loads):
        host = host_for(new, NOW_MS, None)
        assert host is not None
        host.loading += ((TaskName("other"), VariantName(f"v{number}")),)
        host.free_mib -= 50
    assert sorted(len(host.loading) for host in hosts) == [0] * (6 - loads) + [1] * loads


def test_a_host_knows_what_it_loads_however_it_was_told() -> None:
    one, other = (DIGITS, VariantName("one")), (DIGITS, VariantName("two"))
    host = worker("w1")
    assert not host.loads(one)
    host.will_load(one, asked=False)
    assert host.loads(one)
    assert not host.loads(other)
    host.loads_no_more(one)
    assert not host.loads(one)
    host.loading = (other,)
    assert host.loads(other)
    assert not host.loads(one)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=12))
def test_what_a_host_loads_is_known_whatever_begins_and_ends(
    events: list[tuple[str, bool, bool]],
) -> None:
    host = worker("w1")
    for name, asked, begins in events:
        key = (DIGITS, VariantName(name))
        there = key in host.loading
        if begins:
            assert host.will_load(key, asked=asked) is not there
        elif there:
            host.loads_no_more(key)
        assert {name for name in "abc" if host.loads((DIGITS, VariantName(name)))} == {
            variant for _, variant in host.loading
        }


def test_what_is_asked_for_stays_away_from_where_much_comes_and_goes() -> None:
    """``w1`` has room just now, but turns over every ten seconds; on ``w2`` a filler has to leave
    that is worth next to nothing. What nobody asks for takes the room."""
    known = catalog([variant("new")], [profile("new", 5)])
    restless = worker("w1", free_mib=500, churn_per_s=0.1)
    quiet = worker("w2", free_mib=0, evictable=((500.0, 1e-6),))
    (new,) = snapshot(known, (restless, ()), (quiet, ())).tasks[DIGITS].by_cost
    asked: QueryRates[VariantKey] = QueryRates()
    for second in range(10):
        asked.query((new.task, new.variant))
        asked.tell(NOW_MS / 1_000 - 10.0 + second)
    assert host_for(new, NOW_MS, None, asked=asked) == quiet
    assert host_for(new, NOW_MS, None) == restless


def test_a_quiet_host_does_not_lose_what_is_worth_more_than_the_reload() -> None:
    known = catalog([variant("new")], [profile("new", 5)])
    restless = worker("w1", free_mib=500, churn_per_s=0.1)
    quiet = worker("w2", free_mib=0, evictable=((500.0, 1e6),))
    (new,) = snapshot(known, (restless, ()), (quiet, ())).tasks[DIGITS].by_cost
    asked: QueryRates[VariantKey] = QueryRates()
    asked.query((new.task, new.variant))
    assert host_for(new, NOW_MS, None, asked=asked) == restless


def test_what_cannot_wait_stays_away_from_where_much_comes_and_goes() -> None:
    """A load of nothing costs little, and the queries that are refused without it count as well:
    0.01 queries per second on a host that turns over every ten seconds."""
    known = catalog([variant("new")], [profile("new", 5, load_s=0.0)])
    restless = worker("w1", free_mib=500, churn_per_s=0.1)
    quiet = worker("w2", free_mib=0, evictable=((500.0, 0.02),))
    (new,) = snapshot(known, (restless, ()), (quiet, ())).tasks[DIGITS].by_cost
    key = (new.task, new.variant)
    for waits, host in ((True, restless), (False, quiet)):
        asked: QueryRates[VariantKey] = QueryRates()
        for second in range(10):
            asked.query(key)
            asked.tell(NOW_MS / 1_000 - 10.0 + second)
            asked.urgency.missed(key, waits=waits)
        assert host_for(new, NOW_MS, None, asked=asked) == host
