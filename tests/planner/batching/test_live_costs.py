"""What a queue counts with: means, the spread of a sum, and a share of late queries."""

import random
from math import sqrt

import pytest

from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.live_costs import IDLE_MS, RELAX_EVERY_MS, LiveCosts
from planner.batching.protocol import Verdict
from planner.batching.variant_queues import Item, VariantQueue
from planner.latency_table import LatencyTable
from planner.live_model import Context, LiveModel
from planner.planning_settings import DEFAULTS

TABLE = LatencyTable([(1, 10.0)])
SIGMA = 0.2


class Slice:
    """One variant of 10 ms a row in virtual time, whose times vary."""

    def __init__(self, seed: int = 1) -> None:
        self.queue = DeadlineQueue()
        self.costs = LiveCosts(self.queue)
        self.variant = self.queue.add_variant("task", TABLE)
        self.model = LiveModel(TABLE, TABLE)
        self.draw = random.Random(seed)
        self.now_ms = self.relaxed_ms = 0.0
        self.median_ms = 10.0
        self.late = self.admitted = self.refused = 0

    def ask(self, budget_ms: float) -> bool:
        item = Item(self.variant, self.now_ms + budget_ms, 1)
        admitted = self.queue.admit(item, self.now_ms) is Verdict.ADMITTED
        self.admitted += admitted
        self.refused += not admitted
        idle_ms = self.now_ms - self.relaxed_ms
        if not admitted and not self.queue.count and idle_ms >= RELAX_EVERY_MS:  # as the executor
            self.costs.relax(self.variant, self.model, idle_ms)
            self.relaxed_ms = self.now_ms
        return admitted

    def run(self) -> None:
        """Run the next batch."""
        began_ms = self.now_ms
        batch = self.queue.next_batch(began_ms)
        if batch is None:
            self.now_ms += 1.0
            return
        took_ms = self.median_ms * self.draw.lognormvariate(0.0, SIGMA)
        self.now_ms += took_ms
        self.relaxed_ms = self.now_ms
        self.queue.finished(batch.queue, self.now_ms, took_ms)
        late = sum(item.deadline_ms < self.now_ms for item in batch.items)
        self.late += late
        self.costs.ran(
            self.variant, self.model, batch.rows, began_ms, took_ms,
            queries=len(batch.items), late=late,
        )  # fmt: skip


def learned() -> Slice:
    """Has run 500 lone batches with ample time."""
    made = Slice()
    for _ in range(500):
        made.ask(1_000.0)
        made.run()
    return made


def test_a_queue_counts_with_means() -> None:
    """The mean of the distribution is 10 exp(0.02) = 10.2 ms, its 95th percentile 13.9 ms."""
    assert learned().variant.ms[1] == pytest.approx(10.2, rel=0.05)


def test_many_batches_need_less_than_the_sum_of_their_percentiles() -> None:
    """Sixteen take 163 ms in the mean and 8 ms more or less: some are sure at 200, not at 222."""
    made = learned()
    for _ in range(40):
        made.ask(200.0)
    assert 14 <= made.queue.count <= 19


def test_a_bound_on_sums_is_never_below_the_root_of_the_sum_of_variances() -> None:
    """The queue's cost for n batches, against z deviations of the sum of n."""
    made = learned()
    spread, extra = made.variant.spread, made.variant.correction - 1.0
    z = spread * sqrt(2.0) / made.model.spread
    for n in range(1, 50):
        assert n * extra + spread >= z * made.model.spread * sqrt(n) * (1 - 1e-9)


def test_few_are_late_and_few_are_refused_that_would_not_have_been() -> None:
    """Twice the capacity, budgets of 60 ms: at most the share is late, and the slice is busy."""
    made = Slice()
    for _ in range(6_000):
        made.ask(60.0)
        if made.draw.random() < 0.5:
            made.run()
    assert made.late / made.admitted <= DEFAULTS.late_share
    assert made.admitted * 10.2 / made.now_ms > 0.97


def test_sureness_follows_what_comes_of_all() -> None:
    """Nobody is late with ample time: then the mean decides. Whoever is late makes it surer."""
    made = learned()
    for _ in range(2_000):
        made.ask(1_000.0)
        made.run()
    assert made.variant.spread == 0.0
    made.costs.gave_up(1)
    made.ask(1_000.0)
    made.run()
    assert made.variant.spread > 0.0


def test_who_is_slowed_refuses_at_once_probes_and_takes_queries_again() -> None:
    """A query every 50 ms with 40 ms; for 20 s a batch takes 80 ms instead of 10."""
    made = learned()

    def served(until_ms: float) -> tuple[int, int]:
        """Queries admitted and refused until then."""
        before = made.admitted, made.refused
        while made.now_ms < until_ms:
            next_ms = made.now_ms + 50.0
            if made.ask(40.0):
                made.run()
            made.now_ms = max(made.now_ms, next_ms)
        return made.admitted - before[0], made.refused - before[1]

    begin_ms = made.now_ms
    assert served(begin_ms + 1_000.0) == (20, 0)
    made.median_ms = 80.0
    assert served(begin_ms + 3_000.0)[0] <= 12
    probes, refused = served(begin_ms + 21_000.0)
    assert 1 <= probes <= 0.2 * refused
    made.median_ms = 10.0
    served(begin_ms + 25_000.0)
    assert served(begin_ms + 26_000.0) == (20, 0)


def test_contexts_are_what_a_batch_comes_after() -> None:
    costs = LiveCosts(DeadlineQueue())
    one, other = (VariantQueue.detached("task", TABLE) for _ in range(2))
    assert costs.context(one, 0.0) is Context.AFTER_IDLE
    costs.passed(one, 10.0)
    assert costs.context(one, 10.1) is Context.BACK_TO_BACK
    assert costs.context(other, 10.1) is Context.BESIDE
    assert costs.context(one, 10.0 + IDLE_MS) is Context.AFTER_IDLE


def test_the_time_between_batches_counts_where_somebody_waits() -> None:
    """Batches of 10 ms, and 5 ms after each until the next one begins."""
    made = Slice()
    for number in range(600):
        made.costs.ran(made.variant, made.model, 1, 15.0 * number, 10.0, kept_waiting=number > 0)
    assert made.variant.ms[1] == pytest.approx(15.0, rel=0.02)
    assert made.model.points()[0].mean_ms == pytest.approx(10.0, rel=0.02)
    # On an idle slice nothing comes before a batch.
    assert made.variant.ms[1] + made.variant.first_ms == pytest.approx(10.0, rel=0.02)

    made = Slice()
    for number in range(200):
        made.costs.ran(made.variant, made.model, 1, 10.5 * number, 10.0)
    assert made.variant.ms[1] == pytest.approx(10.0, rel=0.01)


def test_the_first_query_after_idling_counts_with_what_that_takes_longer() -> None:
    made = learned()
    made.variant.first_ms = 50.0
    assert not made.ask(40.0)
    assert made.ask(100.0)
    assert made.ask(40.0)  # something waits: the slice does not idle any more
