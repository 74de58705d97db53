"""A choice by prices looks at a bounded number of workers, and loses little by it."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.selection.load_balancing import COMPARED, FRESH_MS, SPREAD, FirstFree, least_busy
from planner.selection.menus import NEIGHBOURS, ORDERED_PER_LOOK, Menu, MenuGroup
from planner.selection.plan_following import CongestionWindow, choose
from planner.selection.routes import RouteTable, resolve
from planner.selection.snapshot import build_snapshot
from planner.types import Choice, Refusal, RefusalCode, Snapshot, WorkerView
from tests.planner.builders import DIGITS, NOW_MS, catalog, key, profile, query, snapshot, variant
from tests.planner.builders import worker as worker_of
from variants.types import (
    DeviceKindName,
    Prefer,
    ProfileSource,
    Route,
    TaskName,
    VariantName,
    WorkerId,
)

KNOWN = catalog([variant("v")], [profile("v", 10.0, source=ProfileSource.EXACT)])


def group_of(workers: Sequence[WorkerView]) -> MenuGroup:
    view = snapshot(KNOWN, *((each, [key("v")]) for each in workers))
    return MenuGroup(Menu(view.tasks[DIGITS].by_cost), tuple(workers))


backlogs = st.lists(st.floats(-50.0, 200.0), min_size=1, max_size=NEIGHBOURS)


@given(backlogs, st.integers(0, 2**40), st.none() | st.integers(0, NEIGHBOURS))
def test_of_few_workers_none_is_free_sooner(
    busy_ms: list[float], draw: int, avoided: int | None
) -> None:
    workers = [worker_of(f"w{n}", busy_ms=ms) for n, ms in enumerate(busy_ms)]
    avoid = None if avoided is None else WorkerId(f"w{avoided}")
    left = [max(each.busy_until_ms, NOW_MS) for each in workers if each.id != avoid]
    group = group_of(workers)
    for _ in range(2):  # the second time with a runner-up
        found = group.idlest(draw, NOW_MS, avoid)
        if not left:
            assert found is None
        else:
            assert found is not None
            assert found.id != avoid
            assert max(found.busy_until_ms, NOW_MS) == min(left)


@given(st.integers(0, 2**40), st.integers(COMPARED + 1, 200), st.integers(0, 200))
def test_of_many_workers_so_many_neighbours_are_compared(draw: int, count: int, at: int) -> None:
    """All are busy but one, which is found where it is among them."""
    idle = at % count
    workers = [worker_of(f"w{n:03}", busy_ms=0.0 if n == idle else 50.0) for n in range(count)]
    found = least_busy(tuple(workers), draw, NOW_MS, None)

    assert found is not None
    assert (found is workers[idle]) == ((idle - draw % count) % count < COMPARED)


def waits_ms(pick: str, load: float, count: int = 300, queries: int = 12_000) -> float:
    """Mean wait where each of many queries goes to the worker that is picked."""
    rng = random.Random(0)
    workers = [worker_of(f"w{n:03}") for n in range(count)]
    group = group_of(workers)
    now_ms = NOW_MS
    waited_ms = 0.0
    for number in range(queries):
        now_ms += rng.expovariate(load * count / 20.0)
        draw = rng.getrandbits(40)
        found: WorkerView | None
        if pick == "group":
            found = group.idlest(draw, now_ms, None)
        else:
            some = [workers[(draw + each) % count] for each in range(int(pick))]
            found = min(some, key=lambda each: each.busy_until_ms)
        assert found is not None
        if number > queries // 3:
            waited_ms += max(0.0, found.busy_until_ms - now_ms)
        found.busy_until_ms = max(found.busy_until_ms, now_ms) + rng.choice((5, 10, 20, 45))
    return waited_ms / (queries - queries // 3)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.8, 0.95])
def test_with_a_runner_up_eight_neighbours_do_better_than_sixteen(load: float) -> None:
    assert waits_ms("group", load) < waits_ms("16", load)
    assert waits_ms("group", load) < waits_ms("300", load) + 2.0  # all are compared


CHOICES = 20 * 4_000 // ORDERED_PER_LOOK
"""So many that putting four thousand workers in order for the first time is hardly seen."""


class Counted(WorkerView):
    """Counts how often somebody looks how busy it is."""

    reads = 0

    def __getattribute__(self, name: str) -> object:
        if name == "busy_until_ms":
            Counted.reads += 1
        return super().__getattribute__(name)


def looked_at(count: int, busy_ms: float, *, overtaking: bool) -> tuple[int, bool]:
    """How often workers are looked at for a choice, of many at a moment, and whether there is
    one."""
    workers = [
        Counted(
            id=WorkerId(f"w{n:04}"),
            device_kind=DeviceKindName("cpu-1"),
            busy_until_ms=NOW_MS + busy_ms,
        )
        for n in range(count)
    ]
    view: Snapshot = snapshot(KNOWN, *((each, [key("v")]) for each in workers))
    table = resolve((route(workers[0]),), view, Prefer.ACCURACY)
    draws = random.Random(0)
    Counted.reads = 0
    for _ in range(CHOICES):
        asked = query(100.0, prefer=Prefer.ACCURACY, draw=draws.getrandbits(62))
        assert table.offers(asked) is not None
        found = choose(view, table, CongestionWindow(overtaking=overtaking), asked, NOW_MS)
    return Counted.reads // CHOICES, isinstance(found, Choice)


def route(worker: WorkerView, name: str = "v") -> Route:
    return Route(
        task=DIGITS, latency_ms=100.0, accuracy=None, variant=VariantName(name),
        worker=worker.id, batch_size=1, qps=20.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("busy_ms", "overtaking"), [(0.0, True), (50.0, True), (500.0, True), (500.0, False)]
)
def test_a_choice_takes_as_long_with_four_thousand_workers_as_with_four_hundred(
    busy_ms: float, overtaking: bool
) -> None:
    """Among idle ones, among busy ones, where one is asked without time, and where none has time
    and the query is refused."""
    few, many = (looked_at(count, busy_ms, overtaking=overtaking) for count in (400, 4_000))
    assert many[0] <= 1.1 * few[0]
    assert few[1] == many[1] == (busy_ms < 100.0 or overtaking)


@given(st.lists(st.tuples(st.integers(0, 99), st.floats(0.0, 50.0)), max_size=60))
def test_who_is_free_first_is_known_while_workers_get_work(sent: list[tuple[int, float]]) -> None:
    rng = random.Random(0)
    workers = tuple(worker_of(f"w{n:03}", busy_ms=rng.uniform(0.0, 100.0)) for n in range(100))
    free = FirstFree(workers, ())
    for at, more_ms in sent:
        first, early = free.look(NOW_MS, at)
        assert first.busy_until_ms == min(each.busy_until_ms for each in workers)
        assert early in workers
        workers[at].busy_until_ms += more_ms
        first.busy_until_ms += more_ms


def test_who_is_free_sooner_than_was_thought_is_seen_after_a_while() -> None:
    workers = tuple(worker_of(f"w{n:03}", busy_ms=50.0) for n in range(100))
    free = FirstFree(workers, ())
    free.look(NOW_MS, 0)
    workers[70].busy_until_ms = NOW_MS

    assert not free.renewed(NOW_MS)
    assert free.look(NOW_MS, 0)[0] is not workers[70]
    assert free.renewed(NOW_MS + FRESH_MS * len(workers))
    assert free.look(NOW_MS, 0)[0] is workers[70]


@pytest.mark.parametrize("free", [2, 10, 40])
def test_a_second_try_finds_a_worker_that_is_free_among_many_that_are_not(free: int) -> None:
    """Of 400 workers with the same menu: whoever is free first has refused the query."""
    rng = random.Random(0)
    workers = [worker_of(f"w{n:03}", busy_ms=500.0) for n in range(400)]
    idle = rng.sample(workers, free)
    for each in idle:
        each.busy_until_ms = NOW_MS
    view = snapshot(KNOWN, *((each, [key("v")]) for each in workers))
    table = resolve((route(workers[0]),), view, Prefer.ACCURACY)
    seen = CongestionWindow()
    for _ in range(100):
        asked = query(100.0, prefer=Prefer.ACCURACY, draw=rng.getrandbits(62))
        first = choose(view, table, seen, asked, NOW_MS)
        assert isinstance(first, Choice)
        second = choose(view, table, seen, asked._replace(avoid=first.worker.id), NOW_MS)
        assert isinstance(second, Choice)
        assert second.worker in idle
        assert second.worker is not first.worker


def test_gateways_that_know_the_same_take_different_workers() -> None:
    workers = tuple(worker_of(f"w{n:03}", busy_ms=50.0 + n) for n in range(100))
    taken = {FirstFree(workers, ()).look(NOW_MS, draw)[1].id for draw in range(100)}

    assert len(taken) == SPREAD
    assert max(taken) < "w070"


def test_tasks_that_the_same_workers_can_do_share_who_is_free_first() -> None:
    other = TaskName("other")
    known = catalog(
        [variant("v"), variant("v", task=other)],
        [profile("v", 10.0), profile("v", 10.0, task=other)],
    )
    workers = [worker_of(f"w{n:03}") for n in range(COMPARED + 2)]
    held = [key("v"), (other, VariantName("v"))]
    view = snapshot(known, *((each, held) for each in workers))
    table = resolve((route(workers[0]),), view, Prefer.ACCURACY)

    def first_free(of: RouteTable, task: TaskName) -> FirstFree:
        offers = of.offers(query(100.0, prefer=Prefer.ACCURACY)._replace(task=task))
        assert offers is not None
        [found] = offers.menus.first_free
        return found

    assert first_free(table, DIGITS) is first_free(table, other)
    fewer = build_snapshot(
        known,
        [(each, held if each is not workers[0] else held[:1]) for each in workers],
        before=view,
    )
    later = resolve((route(workers[0]),), fewer, Prefer.ACCURACY, table)
    assert first_free(later, DIGITS) is first_free(table, DIGITS)
    assert first_free(later, other).workers == tuple(workers[1:])


@given(st.integers(0, 399), st.integers(0, 2**62 - 1))
@settings(max_examples=10)
def test_the_only_worker_with_time_is_found_among_many_that_hold_different_variants(
    idle: int, draw: int
) -> None:
    names = [f"v{n:03}" for n in range(400)]
    known = catalog(
        [variant(name) for name in names],
        [profile(name, 10.0, source=ProfileSource.EXACT) for name in names],
    )
    workers = [worker_of(name, busy_ms=500.0) for name in names]
    view = snapshot(known, *((w, [key(name)]) for w, name in zip(workers, names, strict=True)))
    table = resolve((route(workers[0], names[0]),), view, Prefer.ACCURACY)
    asked = query(100.0, prefer=Prefer.ACCURACY, draw=draw)
    seen = CongestionWindow(overtaking=False)
    refused = choose(view, table, seen, asked, NOW_MS)
    assert isinstance(refused, Refusal)
    assert refused.code is RefusalCode.OVERLOADED

    workers[idle].busy_until_ms = NOW_MS
    later_ms = NOW_MS + FRESH_MS * len(workers)
    found = choose(view, table, seen, asked._replace(received_ms=later_ms), later_ms)
    assert isinstance(found, Choice)
    assert found.worker is workers[idle]
