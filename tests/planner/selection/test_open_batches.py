"""Open batches: what a gateway believes to wait at a worker."""

from dataclasses import replace

import pytest

from planner.selection.frontier_index import task_view
from planner.selection.open_batches import MOST_OPEN, TOLD_EVERY_MS, OpenBatches, following
from planner.types import Candidate, FormingBatch, QueueNews, Snapshot, WorkerView
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
from variants.types import Prefer, ProfileSource, VariantName

NAMES = ("a", "b")


def fleet(count: int = 2, busy_ms: float = 30.0) -> tuple[dict[str, Candidate], list[WorkerView]]:
    """Each variant takes 10 ms per row, in batches of at most 8."""
    workers = [worker(f"w{n:02}", busy_ms=busy_ms) for n in range(count)]
    known = catalog(
        [variant(name) for name in NAMES],
        [profile(name, 10.0, source=ProfileSource.EXACT) for name in NAMES],
    )
    view = snapshot(known, *((each, [key(name) for name in NAMES]) for each in workers))
    return {c.variant: c for c in view.tasks[DIGITS].by_cost}, workers


def test_a_query_opens_a_batch_and_the_next_one_joins_it() -> None:
    variants, [one, _] = fleet()
    batches = OpenBatches()

    assert batches.sent(variants["a"], one, 1, NOW_MS, 100.0) == 10.0
    assert batches.sent(variants["a"], one, 2, NOW_MS, 100.0) == 20.0
    [batch] = batches.of(DIGITS, NOW_MS)
    assert (batch.rows, batch.worker, batch.starts_ms) == (3, one, NOW_MS + 30.0)


def test_other_variants_and_workers_have_batches_of_their_own() -> None:
    variants, [one, two] = fleet()
    batches = OpenBatches()
    for name, each in (("a", one), ("b", one), ("a", two)):
        batches.sent(variants[name], each, 1, NOW_MS, 100.0)

    assert [b.rows for b in batches.of(DIGITS, NOW_MS)] == [1, 1, 1]


def test_a_batch_is_open_until_the_worker_gets_to_it() -> None:
    variants, [one, _] = fleet()
    batches = OpenBatches()
    batches.sent(variants["a"], one, 1, NOW_MS, 100.0)

    assert batches.of(DIGITS, NOW_MS + 29.0)
    assert not batches.of(DIGITS, NOW_MS + 30.0)


def test_an_idle_worker_begins_at_once() -> None:
    variants, [one, _] = fleet(busy_ms=0.0)
    batches = OpenBatches()
    batches.sent(variants["a"], one, 1, NOW_MS, 100.0)

    assert not batches.of(DIGITS, NOW_MS)


def test_a_batch_grows_as_long_as_it_may_take() -> None:
    variants, [one, _] = fleet()
    batches = OpenBatches()
    for _ in range(3):
        batches.sent(variants["a"], one, 1, NOW_MS, 30.0)

    assert not batches.of(DIGITS, NOW_MS)


def test_a_batch_is_full_where_a_profile_that_was_measured_anew_has_no_larger_one() -> None:
    variants, [one, _] = fleet()
    batches = OpenBatches()
    for _ in range(3):
        batches.sent(variants["a"], one, 1, NOW_MS, 100.0)

    profiled = profile("a", 20.0, max_batch=3, source=ProfileSource.EXACT)
    anew = snapshot(catalog([variant("a")], [profiled]), (one, [key("a")]))
    [candidate] = anew.tasks[DIGITS].by_cost
    assert batches.sent(candidate, one, 1, NOW_MS, 100.0) == 20.0
    assert batches.sent(candidate, one, 2, NOW_MS, 100.0) == 40.0
    assert [batch.rows for batch in batches.of(DIGITS, NOW_MS)] == [3]


def test_only_the_latest_are_remembered() -> None:
    variants, workers = fleet(MOST_OPEN + 3)
    batches = OpenBatches()
    for each in workers:
        batches.sent(variants["a"], each, 1, NOW_MS, 100.0)

    assert [b.worker for b in batches.of(DIGITS, NOW_MS)] == workers[3:]


def told(*forming: tuple[str, int, int, float], backlog_ms: float = 50.0) -> QueueNews:
    """What a worker tells: variant, rows, most rows and when it begins."""
    batches = [
        FormingBatch(DIGITS, VariantName(name), rows, most, in_ms)
        for name, rows, most, in_ms in forming
    ]
    return QueueNews(backlog_ms, batches)


def known(batches: OpenBatches) -> list[tuple[str, str, int, int, float]]:
    return [
        (b.worker.id, b.candidate.variant, b.rows, b.largest, b.starts_ms - NOW_MS)
        for b in batches.of(DIGITS, NOW_MS)
    ]


def of(variants: dict[str, Candidate], workers: list[WorkerView]) -> Snapshot:
    """A snapshot of the same candidates."""
    tasks = {DIGITS: task_view(task(), list(variants.values()), {}, {})}
    return Snapshot(revision=0, tasks=tasks, workers={each.id: each for each in workers})


def test_a_batch_that_a_worker_tells_of_is_open() -> None:
    variants, workers = fleet()
    batches = OpenBatches()

    assert not batches.told(workers[0], told(("a", 3, 6, 20.0)), of(variants, workers), NOW_MS)
    assert known(batches) == [("w00", "a", 3, 6, 20.0)]
    assert workers[0].busy_until_ms == NOW_MS + 50.0
    assert batches.sent(variants["a"], workers[0], 2, NOW_MS, 100.0) == 20.0
    assert known(batches) == [("w00", "a", 5, 6, 20.0)]


def test_what_a_worker_tells_replaces_what_was_known_of_it_alone() -> None:
    variants, workers = fleet()
    batches, seen = OpenBatches(), of(variants, workers)
    for name in NAMES:
        for each in workers:
            batches.sent(variants[name], each, 1, NOW_MS, 100.0)
    batches.told(workers[0], told(("b", 2, 8, 15.0)), seen, NOW_MS)
    assert sorted(known(batches)) == [
        ("w00", "b", 2, 8, 15.0), ("w01", "a", 1, 8, 30.0), ("w01", "b", 1, 8, 30.0)
    ]  # fmt: skip
    assert batches.told(workers[0], told(backlog_ms=0.0), seen, NOW_MS)
    assert {id_ for id_, *_ in known(batches)} == {"w01"}


def test_batches_that_nobody_may_join_are_left_out() -> None:
    """Of a variant that is not known, is not ready there, or that only a pin chooses; full ones,
    and those that the profile has no larger batch for."""
    variants, workers = fleet()
    spared = {name: replace(each, ready=(workers[1],)) for name, each in variants.items()}
    canary = {**variants, "b": replace(variants["b"], canary=True)}
    for some, forming in (
        (variants, ("unknown", 1, 8, 20.0)),
        (spared, ("a", 1, 8, 20.0)),
        (canary, ("b", 1, 8, 20.0)),
        (variants, ("a", 8, 8, 20.0)),
        (variants, ("a", 9, 12, 20.0)),
        (variants, ("a", 1, 8, -1.0)),
    ):
        batches = OpenBatches()
        batches.told(workers[0], told(forming), of(some, workers), NOW_MS)
        assert known(batches) == []


@pytest.mark.parametrize("prefer", list(Prefer))
def test_open_batches_are_told_where_prices_decide_and_queues_where_others_send(
    prefer: Prefer,
) -> None:
    assert following(prefer, shared=False) == (prefer is Prefer.ACCURACY, 0.0)
    assert following(prefer, shared=True) == (prefer is Prefer.ACCURACY, TOLD_EVERY_MS)
