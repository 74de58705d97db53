"""Clients that wait for less time than their SLO allows, where more is asked than can be served.

In virtual time: queries of 10 ms each, an SLO of 1 s, arrivals at random, and each 20 ms those are
taken out whose client has gone. ``python -m tests.planner.batching.test_impatient_clients`` prints
the table of docs/decisions/0003-admission.md.
"""

from collections import Counter
from math import inf
from random import Random

import pytest

from planner.batching.protocol import Verdict
from planner.batching.registry import BATCHING, make_queue
from planner.batching.variant_queues import Item
from planner.latency_table import LatencyTable

RUN_MS, SLO_MS, LOOK_MS = 10.0, 1_000.0, 20.0
Patience = tuple[tuple[float, float], ...]
"""How long clients wait, from and to so many ms: each as likely as another."""

ALL_IMPATIENT: Patience = ((200.0, 200.0),)
HALF_PATIENT: Patience = ((200.0, 200.0), (inf, inf))
VARIOUS: Patience = ((100.0, 900.0),)


class Asked(Item):
    """A query, and until when its client waits."""

    __slots__ = ("kind", "until_ms")

    kind: int
    until_ms: float


def answered(
    patience: Patience,
    load: float,
    *,
    withdrawn: bool,
    batching: str = "profile",
    seconds: int = 60,
) -> tuple[list[float], float]:
    """The part of what is asked that gets an answer while its client waits, for each kind of
    clients; and of all that could be served, the part that gets it.

    Args:
        withdrawn: whether those are taken out whose client has gone.
    """
    random = Random(0)
    slice_queue = make_queue(batching)
    queue = slice_queue.add_variant("task", LatencyTable([(1, RUN_MS)]))
    came, got = Counter[int](), Counter[int]()
    arrives_ms = look_ms = now_ms = 0.0
    while now_ms < 1_000.0 * seconds:
        while arrives_ms <= now_ms:
            item = Asked(queue, arrives_ms + SLO_MS, 1)
            item.kind = random.randrange(len(patience))
            shortest, longest = patience[item.kind]
            waits_ms = shortest if shortest == longest else random.uniform(shortest, longest)
            item.until_ms = arrives_ms + waits_ms
            came[item.kind] += 1
            slice_queue.admit(item, arrives_ms)
            arrives_ms += random.expovariate(load / RUN_MS)
        if withdrawn and look_ms <= now_ms:
            slice_queue.withdraw(lambda item, at=now_ms: _until_ms(item) < at, now_ms)  # type: ignore[misc]
            look_ms = now_ms + LOOK_MS
        slice_queue.pop_expired(now_ms)
        batch = slice_queue.next_batch(now_ms)
        if batch is None:
            now_ms = arrives_ms
            continue
        now_ms += RUN_MS
        slice_queue.finished(batch.queue, now_ms, RUN_MS)
        for done in batch.items:
            assert isinstance(done, Asked)
            got[done.kind] += done.until_ms >= now_ms
    parts = [got[kind] / came[kind] for kind in range(len(patience))]
    return parts, got.total() * RUN_MS / (1_000.0 * seconds)


def _until_ms(item: Item) -> float:
    assert isinstance(item, Asked)
    return item.until_ms


@pytest.mark.parametrize("batching", BATCHING)
def test_who_waits_is_not_kept_waiting_by_what_nobody_waits_for(batching: str) -> None:
    (_, patient), _ = answered(HALF_PATIENT, 1.5, withdrawn=True, batching=batching)
    (_, behind), _ = answered(HALF_PATIENT, 1.5, withdrawn=False, batching=batching)
    assert patient > 0.95
    assert behind < 0.75


def test_little_is_run_for_nobody() -> None:
    """Where clients differ in how long they wait."""
    _, used = answered(VARIOUS, 1.5, withdrawn=True)
    _, wasted = answered(VARIOUS, 1.5, withdrawn=False)
    assert used > 0.9
    assert wasted < 0.1


def left_by(seed: int, *, variants: int, load: float, queries: int) -> tuple[int, int, int]:
    """How many of the queries to variants with batches of up to 64 on one slice are admitted, late
    though they were admitted, and answered while their clients wait.

    Deadlines are from 10 ms to 1 s, and clients wait for 0.2 to 1.5 times as long.
    """
    random, slice_queue = Random(seed), make_queue("profile")
    table = LatencyTable([(1, 4.25), (64, 20.0)])
    queues = [slice_queue.add_variant(f"t{n}", table) for n in range(variants)]
    free_ms = now_ms = look_ms = 0.0
    admitted = late = useful = 0
    for _ in range(queries):
        now_ms += random.expovariate(load * 64 / 20.0)
        while slice_queue.count and free_ms <= now_ms:
            batch = slice_queue.next_batch(free_ms)
            assert batch is not None
            free_ms += batch.predicted_ms
            slice_queue.finished(batch.queue, free_ms, batch.predicted_ms)
            late += sum(free_ms > item.deadline_ms + 1e-6 for item in batch.items)
            useful += sum(free_ms <= _until_ms(item) for item in batch.items)
        free_ms = max(free_ms, now_ms)
        if look_ms <= now_ms:
            slice_queue.withdraw(lambda item, at=now_ms: _until_ms(item) < at, now_ms)  # type: ignore[misc]
            look_ms = now_ms + LOOK_MS
        budget_ms = 10.0 * 100.0 ** random.random()
        item = Asked(random.choice(queues), now_ms + budget_ms, 1)
        item.until_ms = now_ms + random.uniform(0.2, 1.5) * budget_ms
        admitted += slice_queue.admit(item, now_ms) is Verdict.ADMITTED
    return admitted, late, useful


@pytest.mark.slow
def test_nobody_who_was_admitted_is_late_because_others_leave() -> None:
    for seed in (1, 2):
        admitted, late, _ = left_by(seed, variants=4, load=1.5, queries=5_000)
        assert admitted > 3_000
        assert late == 0


if __name__ == "__main__":
    for name in ("ALL_IMPATIENT", "HALF_PATIENT", "VARIOUS"):
        for times in (1.1, 1.5, 3.0):
            for out in (False, True):
                shares, of_capacity = answered(globals()[name], times, withdrawn=out)
                print(
                    f"{name:14} {times} {out!s:5}",
                    [round(p, 2) for p in shares],
                    f"{of_capacity:.2f}",
                )
    for variants, times, seed in ((4, 1.5, 1), (4, 1.5, 2), (4, 3.0, 1), (4, 3.0, 2), (1, 1.5, 1)):
        _, late, useful = left_by(seed, variants=variants, load=times, queries=8_000)
        print(f"{variants} variants, {times} times, seed {seed}: {useful / 8_000:.3f}, {late} late")
