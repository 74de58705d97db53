"""Open batches: what a gateway believes to wait at a worker."""

from planner.selection.open_batches import MOST_OPEN, OpenBatches
from planner.types import Candidate, WorkerView
from tests.planner.builders import DIGITS, NOW_MS, catalog, key, profile, snapshot, variant, worker
from variants.types import ProfileSource

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
