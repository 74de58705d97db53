"""Who is held back by whose refusals at a gateway: those that would use the same workers."""

from typing import Any, cast

import pytest

from controlplane.gateway.overload.refused_tasks import RefusedTasks
from controlplane.gateway.query.query_path import QueryPath
from planner.batching.refusal_order import STAYS_MS
from planner.selection.routes import EMPTY
from planner.selection.select import select
from planner.selection.snapshot import build_snapshot
from planner.types import Choice, Client, Query, Snapshot
from tests.planner import builders
from tests.planner.builders import (
    DIGITS,
    NOW_MS,
    catalog,
    key,
    profile,
    snapshot,
    task,
    variant,
    worker,
)
from tests.planner.zones.test_rings import AWAY_MS, Place
from variants.types import TaskName, VariantName, WorkerId

HEAVY, MODEST = Client("heavy"), Client("modest")
ONE, TWO = WorkerId("w1"), WorkerId("w2")
WITHIN, OVER = (False, False, 100), (True, False, 100)


def fleet(fast: bool = False) -> Snapshot:
    """``dear`` takes 10 ms and is on ``w1``; with ``fast``, ``quick`` takes 1 ms on ``w2``, which
    is idle, and is not as accurate."""
    variants = [variant("dear", accuracy=0.9), variant("quick", accuracy=0.8)]
    profiles = [profile("dear", 10.0, max_batch=8), profile("quick", 1.0, max_batch=8)]
    known = catalog(variants, profiles)
    busy = worker("w1", busy_ms=60.0)
    idle = [(worker("w2"), {key("quick")})] if fast else []
    return snapshot(known, (busy, {key("dear")}), *idle)


def asking(seen: Snapshot) -> QueryPath:
    """Two clients have asked; the heavy one takes more than its share."""
    path = QueryPath(loader=cast(Any, None), clock_ms=lambda: NOW_MS)
    path.update(snapshot=seen, routes=EMPTY, tasks={DIGITS: task()}, connections=cast(Any, {}))
    for client, used_ms in ((HEAVY, 900.0), (MODEST, 100.0)):
        path.clients.saw(client, NOW_MS)
        path.clients.use(client, used_ms, NOW_MS)
    return path


def query(client: Client, **fields: Any) -> Query:
    return Query(DIGITS, 1, NOW_MS, 100.0, client=client, **fields)


def found(path: QueryPath, asked: Query) -> Choice | None:
    choice = select(path.snapshot, asked, NOW_MS)
    assert isinstance(choice, Choice)
    return path.leaving_room(asked, choice, NOW_MS)


def test_a_refusal_holds_nobody_back_elsewhere() -> None:
    seen = fleet()
    lately = RefusedTasks(seen)
    lately.add(DIGITS, WITHIN, NOW_MS)
    assert lately.is_before(OVER, ONE, NOW_MS)
    assert not lately.is_before(WITHIN, ONE, NOW_MS)
    assert not lately.is_before(OVER, TWO, NOW_MS)
    lately.follow(fleet(fast=True))
    assert lately.is_before(OVER, TWO, NOW_MS)
    other = RefusedTasks(seen)
    other.add(TaskName("faces"), WITHIN, NOW_MS)
    assert not other.is_before(OVER, ONE, NOW_MS)
    lately.follow(Snapshot(revision=2, tasks={}, workers={}))
    assert not lately.is_before(OVER, ONE, NOW_MS)


class Compared(tuple[bool, bool, int]):
    """A standing that counts how often it is compared."""

    times = 0

    def __le__(self, other: object) -> bool:
        Compared.times += 1
        return bool(tuple(self) <= cast(Any, other))


def test_only_refusals_of_tasks_that_the_worker_holds_are_looked_at_and_only_for_a_while() -> None:
    names = [f"task{number}" for number in range(50)]
    known = catalog(
        [variant("v", task=name) for name in names], [profile("v", task=name) for name in names]
    )
    lately = RefusedTasks(snapshot(known, (worker("w1"), {key("v", names[0]), key("v", names[1])})))
    for number, name in enumerate(names):
        lately.add(TaskName(name), WITHIN, NOW_MS + number)
    Compared.times = 0
    assert not lately.is_before(Compared(WITHIN), ONE, NOW_MS + 50.0)
    assert Compared.times == 2
    assert lately.is_before(OVER, ONE, NOW_MS + 50.0)
    for _ in names:
        assert not lately.is_before(Compared(OVER), ONE, NOW_MS + 2 * STAYS_MS)
    assert not lately._lately


def test_who_stands_behind_waits_for_no_more_than_half_of_its_slack() -> None:
    path = asking(fleet())
    assert found(path, query(HEAVY)) is not None
    path.lately.add(DIGITS, WITHIN, NOW_MS)
    assert found(path, query(HEAVY)) is None
    assert found(path, query(MODEST)) is not None
    assert found(path, query(HEAVY, best_effort=True)) is not None


def test_an_idle_worker_is_looked_for_before_anybody_is_refused_for_others() -> None:
    path = asking(fleet(fast=True))
    path.lately.add(DIGITS, WITHIN, NOW_MS)
    pinned = select(path.snapshot, query(HEAVY, accuracy=0.9), NOW_MS)
    assert isinstance(pinned, Choice)
    asked = query(HEAVY)
    instead = path.leaving_room(asked, pinned, NOW_MS)
    assert instead is not None
    assert instead.worker.id == TWO
    assert path.leaving_room(query(HEAVY, accuracy=0.9), pinned, NOW_MS) is None


@pytest.mark.parametrize(("waited_ms", "counts"), [(95.0, False), (50.0, True)])
def test_who_comes_too_late_for_any_worker_holds_nobody_back(
    waited_ms: float, counts: bool
) -> None:
    path = asking(fleet())
    late = query(MODEST, variant=VariantName("dear"))._replace(received_ms=NOW_MS - waited_ms)
    told: list[int] = []
    assert path.turn_away(late, lambda status, _body, _headers: told.append(status))
    assert told == [503 if counts else 504]
    assert (found(path, query(HEAVY)) is None) is counts


@pytest.mark.parametrize(("busy_ms", "stays"), [(60.0, True), (90.0, False)])
def test_the_way_to_another_zone_is_no_waiting(busy_ms: float, stays: bool) -> None:
    """Of 200 ms the way takes 40 and a batch 12: half of the slack is 74 ms."""
    place = Place({"c1": busy_ms}, edge=())
    seen = build_snapshot(place.known, place.held.values(), transport_ms=0.0)
    path = asking(seen)
    path.update(
        snapshot=seen, routes=EMPTY, tasks={DIGITS: task()}, connections={}, rings=place.rings
    )
    asked = builders.query(latency_ms=200.0)._replace(client=HEAVY)
    choice = path.choose(asked, NOW_MS)
    assert isinstance(choice, Choice)
    assert choice.predicted_ms > busy_ms + AWAY_MS
    assert path.leaving_room(asked, choice, NOW_MS) is not None
    path.lately.add(DIGITS, WITHIN, NOW_MS)
    assert (path.leaving_room(asked, choice, NOW_MS) is not None) is stays
