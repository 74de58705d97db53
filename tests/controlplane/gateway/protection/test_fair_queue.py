"""Clients take turns in a queue."""

from controlplane.gateway.protection.fair_queue import FairQueue


def test_one_of_each_client_in_turn() -> None:
    queue = FairQueue[str]()
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.append(item[0], item)
    assert (len(queue), queue.of("a"), queue.of("z")) == (6, 3, 0)
    assert [queue.popleft() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert len(queue) == 0


def test_the_next_stays_the_next() -> None:
    queue = FairQueue[str]()
    queue.append("b", "b1")
    assert queue.first() == "b1"
    queue.append("a", "a1")
    queue.append("b", "b2")
    assert (queue.first(), queue.popleft(), queue.first()) == ("b1", "b1", "a1")
    queue.clear()
    assert len(queue) == 0
