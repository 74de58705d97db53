"""The order of refusal: client, task, priority; and what becomes of each at overload."""

from collections import Counter
from random import Random

import pytest

from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.fairness import ACTIVE_MS
from planner.batching.protocol import Verdict
from planner.batching.refusal_order import (
    FORGOTTEN_MS,
    FRESH_MS,
    STAYS_MS,
    ClientShares,
    LatelyRefused,
)
from planner.batching.variant_queues import Item
from planner.latency_table import LatencyTable
from planner.types import ANYBODY, DEFAULT_PRIORITY, Client

HEAVY, MODEST, BIG = Client("heavy"), Client("modest"), Client("big", 4.0)
FIRST, OVER_TASK, OVER_CLIENT = (False, False, 100), (False, True, 100), (True, False, 100)
LOW = (False, False, 200)


def shares(**used_ms: float) -> ClientShares:
    """Two clients, or more, that have asked just now."""
    found = ClientShares()
    for client in (HEAVY, MODEST, BIG):
        if client.name in used_ms:
            found.saw(client, 0.0)
            found.use(client, used_ms[client.name], 0.0)
    return found


def test_a_client_alone_is_never_over_its_share() -> None:
    alone = shares(heavy=1_000.0)
    assert alone.only is HEAVY
    assert not alone.is_over(HEAVY, 0.0)


@pytest.mark.parametrize(
    ("used_ms", "over"),
    [
        ({"heavy": 900.0, "modest": 100.0}, {"heavy"}),
        ({"heavy": 600.0, "modest": 400.0}, set()),
        ({"heavy": 300.0, "big": 700.0}, {"heavy"}),
        ({"heavy": 240.0, "big": 760.0}, set()),
        ({"heavy": 0.0, "modest": 0.0}, set()),
    ],
)
def test_who_uses_more_than_a_quarter_over_its_share_is_over_it(
    used_ms: dict[str, float], over: set[str]
) -> None:
    found = shares(**used_ms)
    assert {client.name for client in (HEAVY, MODEST, BIG) if found.is_over(client, 0.0)} == over


def test_with_many_clients_it_is_looked_more_rarely() -> None:
    found = ClientShares()
    for number in range(1_000):
        found.saw(Client(f"client-{number}"), 0.0)
    found.saw(HEAVY, 0.0)
    assert not found.is_over(HEAVY, 0.0)
    found.use(HEAVY, 1_000.0, 0.0)
    assert not found.is_over(HEAVY, 10 * FRESH_MS)
    assert found.is_over(HEAVY, 11 * FRESH_MS)


def test_who_asks_no_more_has_no_share_and_is_forgotten() -> None:
    found = shares(heavy=900.0, modest=100.0)
    later_ms = ACTIVE_MS + FRESH_MS
    found.saw(HEAVY, later_ms)
    assert not found.is_over(HEAVY, later_ms)
    found.saw(HEAVY, FORGOTTEN_MS + later_ms)
    assert found.only is HEAVY


def test_who_stands_behind_one_that_was_refused_lately_is_held_back() -> None:
    lately = LatelyRefused()
    assert not lately.is_before(OVER_CLIENT, 0.0)
    lately.add(OVER_TASK, 0.0)
    assert [lately.is_before(each, 1.0) for each in (FIRST, OVER_TASK, LOW, OVER_CLIENT)] == [
        False, False, False, True,
    ]  # fmt: skip
    lately.add(FIRST, 1.0)
    lately.add(OVER_CLIENT, 2.0)
    assert [lately.is_before(each, 3.0) for each in (FIRST, OVER_TASK, LOW, OVER_CLIENT)] == [
        False, True, True, True,
    ]  # fmt: skip


def test_it_is_forgotten_and_of_clients_above_their_share_later() -> None:
    lately = LatelyRefused()
    lately.add(FIRST, 0.0)
    now_ms = ACTIVE_MS + 1.0
    lately.add(OVER_CLIENT, now_ms)
    assert not lately.is_before(LOW, now_ms)
    assert lately.is_before(OVER_CLIENT, now_ms)
    assert not lately.is_before(OVER_CLIENT, STAYS_MS + 1.0)
    lately.add(LOW, STAYS_MS + 1.0)
    assert lately.is_before(OVER_CLIENT, STAYS_MS + 1.0)


# -- a slice at overload, in virtual time ---------------------------------------------------------


class Asked(Item):
    """A query that knows of which of those it is that are told apart."""

    __slots__ = ("kind",)
    kind: str


def played(*asks: tuple[str, Client, float, int]) -> dict[str, float]:
    """The part of its queries that each kind gets answered by a slice of 500 rows a second.

    Args:
        asks: a kind, who asks, queries per second, their priority; all have 50 ms.
    """
    random = Random(1)
    queue = DeadlineQueue()
    variant = queue.add_variant("a", LatencyTable([(1, 2.0), (8, 16.0)]))
    arrivals = []
    for ask in asks:
        at_ms = 0.0
        while (at_ms := at_ms + 1_000 * random.expovariate(ask[2])) < 20_000.0:
            arrivals.append((at_ms, ask))
    asked: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    free_ms, running = 0.0, None

    def run_until(now_ms: float) -> None:
        nonlocal free_ms, running
        while running is None or free_ms <= now_ms:
            if running is not None:
                queue.finished(running.queue, free_ms, running.predicted_ms)
            began_ms = free_ms if running is not None else now_ms
            running = queue.next_batch(began_ms)
            if running is None:
                return
            free_ms = began_ms + running.predicted_ms
            for item in running.items:
                assert free_ms <= item.deadline_ms + 1e-6
                assert isinstance(item, Asked)
                answered[item.kind] += 1

    for at_ms, (kind, client, _, priority) in sorted(arrivals):
        run_until(at_ms)
        asked[kind] += 1
        item = Asked(variant, at_ms + 50.0, 1, priority, client)
        item.kind = kind
        queue.admit(item, at_ms)
        run_until(at_ms)
    return {name: answered[name] / count for name, count in asked.items()}


def test_a_modest_client_is_answered_beside_one_that_asks_ten_times_as_much() -> None:
    one_key = played(("heavy", ANYBODY, 1_000.0, 100), ("modest", ANYBODY, 100.0, 100))
    assert one_key["modest"] < 0.6
    found = played(("heavy", HEAVY, 1_000.0, 100), ("modest", MODEST, 100.0, 100))
    assert found["modest"] > 0.99
    assert found["heavy"] > 0.38  # of 0.4 that are left


def test_where_two_ask_too_much_they_share_as_their_keys_weigh() -> None:
    found = played(("heavy", HEAVY, 1_000.0, 100), ("big", BIG, 1_000.0, 100))
    assert found["big"] > 2.0 * found["heavy"]
    assert found["big"] + found["heavy"] > 0.48


def test_a_higher_priority_is_answered_first() -> None:
    found = played(("low", ANYBODY, 700.0, DEFAULT_PRIORITY), ("high", ANYBODY, 100.0, 1))
    assert found["high"] > 0.98
    assert found["low"] > 0.5


def test_the_share_of_a_key_comes_before_priority() -> None:
    found = played(("heavy", HEAVY, 1_000.0, 1), ("modest", MODEST, 100.0, 200))
    assert found["modest"] > 0.95


def test_one_client_is_served_as_if_there_were_no_keys() -> None:
    assert played(("all", HEAVY, 1_000.0, 100)) == played(("all", ANYBODY, 1_000.0, 100))


def test_a_verdict_says_that_others_come_first() -> None:
    queue = DeadlineQueue()
    variant = queue.add_variant("a", LatencyTable([(1, 10.0)]))
    for client in (HEAVY, MODEST):
        assert queue.admit(Item(variant, 20.0, 1, 100, client), 0.0) is Verdict.ADMITTED
    high = Item(variant, 20.0, 1, 1, MODEST)
    assert queue.admit(high, 0.0) is Verdict.WOULD_BE_LATE
    assert queue.admit(Item(variant, 40.0, 1, 100, MODEST), 0.0) is Verdict.OVER_SHARE
    assert queue.admit(Item(variant, 40.0, 1, 1, MODEST), 0.0) is Verdict.ADMITTED
