"""Room in a full queue: how often it is looked through, whoever asks."""

from collections.abc import Iterable

from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.queue_room import AT_ONCE, STANDS_MS, QueueRoom, clients_over, one
from planner.batching.variant_queues import Item
from planner.latency_table import LatencyTable
from planner.types import Client

MANY = 512


class Full:
    """A queue of ``MANY`` queries of as many clients, or of fewer, that counts looks."""

    def __init__(self, clients: int = MANY) -> None:
        variant = DeadlineQueue().add_variant("a", LatencyTable([(1, 1.0)]))
        self.clients = [Client(f"client-{number}") for number in range(clients)]
        self.items = [
            Item(variant, 1_000.0 + number, 1, 100, self.clients[number % clients])
            for number in range(MANY)
        ]
        self.variant = variant
        self.room = QueueRoom()
        self.looks = 0

    def waiting(self) -> Iterable[Item]:
        self.looks += 1
        return self.items

    def comes(
        self, deadline_ms: float, client: Client, now_ms: float = 0.0, rows: int = 1
    ) -> list[Item]:
        newcomer = Item(self.variant, deadline_ms, rows, 100, client)
        return self.room.leaving(newcomer, self.waiting, now_ms, rows, one if rows == 1 else _rows)


def _rows(item: Item) -> int:
    return item.rows


def test_many_clients_that_come_too_late_cost_one_look_a_moment() -> None:
    full = Full()
    for number in range(100):
        assert not full.comes(5_000.0 + number, Client(f"other-{number}"))
        assert not full.comes(5_000.0 - number, full.clients[number])
    assert full.looks == 1
    assert not full.comes(5_000.0, Client("other"), STANDS_MS)
    assert full.looks == 2


def test_after_room_was_made_who_ranks_behind_all_that_stay_is_refused_unseen() -> None:
    full = Full()
    left = full.comes(900.0, Client("early"))
    assert len(left) == AT_ONCE
    full.items = [item for item in full.items if item not in left]
    assert not full.comes(max(item.deadline_ms for item in full.items), Client("late"))
    assert full.looks == 1
    assert full.comes(900.0, Client("early too"))
    assert full.looks == 2


def test_who_needs_less_room_than_the_one_that_was_refused_is_looked_at() -> None:
    full = Full(clients=1)
    (client,) = full.clients
    deadline_ms = max(item.deadline_ms for item in full.items) - 1.5  # two are due later
    assert not full.comes(deadline_ms, client, rows=3)
    assert not full.comes(deadline_ms, client, rows=3)
    assert full.looks == 1
    assert len(full.comes(deadline_ms, client, rows=2)) == 2


def test_a_key_may_hold_as_much_of_a_full_queue_as_its_weight_says() -> None:
    full = Full()
    heavy, light = Client("heavy", 3.0), Client("light", 1.0)
    for number, item in enumerate(full.items):
        item.client = light if number % 4 == 0 else heavy
    assert clients_over(full.items, one) == {}
    soonest_ms = full.items[0].deadline_ms - 1.0
    left = full.comes(soonest_ms, light)  # with it, more than a quarter
    assert {item.client.name for item in left} == {"light"}
    full.room = QueueRoom()
    full.items = [item for item in full.items if item.client is heavy]
    left = full.comes(soonest_ms, light)
    assert {item.client.name for item in left} == {"heavy"}
    assert len(left) == AT_ONCE


def test_of_a_full_queue_a_lower_priority_leaves_before_a_later_deadline() -> None:
    full = Full(clients=1)
    (client,) = full.clients
    low, high = full.items[:3], full.items[3:]
    for item in low:
        item.priority = 101
    left = full.comes(full.items[-1].deadline_ms + 1_000.0, client)
    assert sorted(map(full.items.index, left)) == list(range(len(low)))
    assert all(item.priority == 100 for item in high)
