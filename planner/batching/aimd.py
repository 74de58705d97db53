"""A queue for variants whose profile cannot be trusted: it learns how large a batch may be.

One ``AdditiveQueue`` belongs to one slice, as a ``planner.batching.deadline_queue.DeadlineQueue``
does, and answers to the same protocol (``planner.batching.protocol``). It is Clipper's adaptive
batching (Crankshaw et al., NSDI'17, section 4.3.1): each variant has a batch limit, which

* grows by one row after a full batch that met its latency objective, and
* is multiplied by 0.9 after a batch that did not.

A batch is full when the limit, or a query that would have exceeded it, ended it: a smaller one says
nothing about larger ones. The paper has one latency objective for an application. Here every query
has a deadline, so the objective of a batch is the least budget in it, a budget being the deadline
less the moment of admission; it is compared with the time that the batch took to run, as in the
paper, waiting not counted.

Where the paper is silent: queues are first in, first out, and the queue with the oldest query runs
next; a query whose rows exceed the limit runs alone; a query whose deadline has passed before it
ran is given up. No query is refused because of a deadline, only when the queue is full. Whatever
waits, up to the limit, runs as soon as the slice is free. Shares play no part.

All times are milliseconds on one clock of the caller's choosing.
"""

from collections import OrderedDict
from collections.abc import Sequence
from math import inf

from planner.batching.protocol import MAX_QUEUE, Batch, Forming, Verdict
from planner.batching.queue_room import LeavableQueue
from planner.batching.variant_queues import Item, TaskShare, VariantQueue
from planner.batching.waiting_deadlines import Deadlines
from planner.latency_table import LatencyTable

INCREASE = 1.0
"""Rows that a variant's limit grows by after a full batch that met its objective."""
BACK_OFF = 0.9
"""Factor on a variant's limit after a batch that missed its objective."""
MEMORY = 0.95
"""Weight that one more batch leaves to what was observed before it."""


class AdditiveQueue(LeavableQueue):
    """The queue of one slice under AIMD. Deterministic; knows no clock."""

    def __init__(self, max_queue: int = MAX_QUEUE) -> None:
        super().__init__()
        self.max_queue = max_queue
        self.busy_until_ms = 0.0
        """When the running batch is predicted to be done, from what was observed so far."""
        self.count = 0
        self._states: dict[VariantQueue, _State] = {}
        self._deadlines = Deadlines(self._waits)
        self._order = 0
        self._running: _Running | None = None

    # -- queues -----------------------------------------------------------------------------------

    def add_variant(self, task: str, table: LatencyTable, share: float = 0.0) -> VariantQueue:
        """A queue for a variant that was loaded, its limit one row; ``share`` plays no part.

        The table says how large a batch may be at most, and predicts until something was observed.
        """
        queue = VariantQueue(task, TaskShare(), table)
        self._states[queue] = _State()
        return queue

    def take(self, queue: VariantQueue) -> list[Item]:
        """Take out all that waits in a variant's queue, earliest deadline first.

        Nothing waits in a queue that is not of this slice, as that of a variant that failed."""
        state = self._states.get(queue)
        if state is None:
            return []
        items = sorted((i for i, _ in state.waiting.values()), key=lambda item: item.deadline_ms)
        state.waiting.clear()
        queue.rows = 0
        self.count -= len(items)
        return items

    def _take_out(self, left: Sequence[Item], now_ms: float) -> None:
        gone = set(left)
        for queue, state in self._states.items():
            for order in [order for order, (each, _) in state.waiting.items() if each in gone]:
                each, _ = state.waiting.pop(order)
                queue.rows -= each.rows
                self.count -= 1

    def _items(self) -> list[Item]:
        return [item for state in self._states.values() for item, _ in state.waiting.values()]

    def remove_variant(self, queue: VariantQueue) -> None:
        """Forget an empty queue and what was learned about it."""
        del self._states[queue]

    def set_longest_batch(self, longest_ms: float | None) -> None:
        """Do nothing: how long batches may be is what this queue learns by itself."""

    def replan(self, queue: VariantQueue, table: LatencyTable, share: float) -> None:
        """Take over how large a batch may be at most, if what waits still fits."""
        waiting = self._states[queue].waiting.values()
        if table.max_batch >= max((item.rows for item, _ in waiting), default=1):
            queue.set_table(table)

    def correct(self, queue: VariantQueue, correction: float, spread: float = 0.0) -> None:
        """Do nothing: predictions come from what was observed, so there is nothing to correct."""

    def recount(self) -> None:
        """Make the totals anew of what waits, after a mistake that left them untrue."""
        for queue, state in self._states.items():
            queue.rows = sum([item.rows for item, _ in state.waiting.values()])
        self.count = sum([len(state.waiting) for state in self._states.values()])
        self._running = None

    def limit(self, queue: VariantQueue) -> int:
        """The largest batch, in rows, that the queue forms by now."""
        return max(1, min(int(self._states[queue].limit), queue.max_batch))

    def backlog_ms(self, now_ms: float) -> float:
        """Time until all that was admitted is done, in batches at the limit, as observed so far."""
        waiting_ms = 0.0
        for queue, state in self._states.items():
            if queue.rows:
                full, rest = divmod(queue.rows, self.limit(queue))
                waiting_ms += full * state.predicted_ms(queue, self.limit(queue))
                waiting_ms += state.predicted_ms(queue, rest) if rest else 0.0
        return max(0.0, self.busy_until_ms - now_ms) + waiting_ms

    def forming(self, now_ms: float) -> list[Forming]:
        """None: how large the next batch may be is not known before."""
        return []

    # -- admission --------------------------------------------------------------------------------

    def admit(self, item: Item, now_ms: float) -> Verdict:
        """Queue a query, unless it can never run or the queue is full."""
        queue = item.queue
        if item.rows > queue.max_batch:
            return Verdict.TOO_MANY_ROWS
        if self.count >= self.max_queue:
            return Verdict.QUEUE_FULL
        self._states[queue].waiting[self._order] = (item, item.deadline_ms - now_ms)
        queue.rows += item.rows
        self.count += 1
        self._deadlines.add(item.deadline_ms, self._order, queue, self.count)
        self._order += 1
        return Verdict.ADMITTED

    def pop_expired(self, now_ms: float) -> list[Item]:
        """Take out the queries whose deadline has passed, earliest deadline first."""
        late: list[Item] = []
        for queue, order in self._deadlines.passed(now_ms):
            item, _ = self._states[queue].waiting.pop(order)
            queue.rows -= item.rows
            self.count -= 1
            late.append(item)
        return late

    def _waits(self, queue: VariantQueue, order: int) -> bool:
        state = self._states.get(queue)
        return state is not None and order in state.waiting

    # -- batches ----------------------------------------------------------------------------------

    def next_batch(self, now_ms: float) -> Batch | None:
        """Take out what runs now, or ``None`` when nothing waits. The slice must be free."""
        if not self.count:
            return None
        queue, state = min(
            ((queue, state) for queue, state in self._states.items() if state.waiting),
            key=lambda pair: pair[1].oldest(),
        )
        limit, waiting = self.limit(queue), state.waiting
        orders: list[int] = []
        items: list[Item] = []
        rows, objective_ms = 0, inf
        for order, (item, budget_ms) in waiting.items():
            if items and rows + item.rows > limit:
                break
            orders.append(order)
            items.append(item)
            rows += item.rows
            objective_ms = min(objective_ms, budget_ms)
        predicted_ms = state.predicted_ms(queue, rows)
        for order in orders:  # only now: a mistake above must not lose who waits
            del waiting[order]
        queue.rows -= rows
        self.count -= len(items)
        self._running = _Running(state, rows, objective_ms, is_full=rows >= limit or bool(waiting))
        self.busy_until_ms = now_ms + predicted_ms
        return Batch(queue, items, rows, predicted_ms)

    def wake_ms(self, now_ms: float) -> float:
        """Never: whatever waits runs as soon as the slice is free."""
        return inf

    def finished(self, queue: VariantQueue, now_ms: float, busy_ms: float) -> None:
        """Learn from a batch that is done; the slice is free again."""
        self.busy_until_ms = now_ms
        ran, self._running = self._running, None
        if ran is None:
            return
        state = ran.state
        state.observe(ran.rows, busy_ms)
        if busy_ms > ran.objective_ms:
            state.limit = max(1.0, state.limit * BACK_OFF)
        elif ran.is_full:
            state.limit = min(state.limit + INCREASE, float(queue.max_batch))


class _Running:
    """The batch on the slice, with what it has to be compared with when it is done."""

    __slots__ = ("is_full", "objective_ms", "rows", "state")

    def __init__(self, state: "_State", rows: int, objective_ms: float, *, is_full: bool) -> None:
        self.state = state
        self.rows = rows
        self.objective_ms = objective_ms
        self.is_full = is_full


class _State:
    """A queue's queries, its limit, and how long its batches took.

    Latency is a straight line over rows, fitted by least squares with older batches fading: the
    sums that it takes are kept, not the batches.
    """

    __slots__ = ("_ms", "_rows", "_rows_ms", "_squares", "_weight", "limit", "waiting")

    def __init__(self) -> None:
        self.limit = 1.0
        """In rows; what follows the decimal point is kept, so that back-offs add up."""
        self.waiting: OrderedDict[int, tuple[Item, float]] = OrderedDict()
        """Order of arrival to a query and its budget in ms, oldest first."""
        self._weight = self._rows = self._ms = self._squares = self._rows_ms = 0.0

    def oldest(self) -> int:
        return next(iter(self.waiting))

    def observe(self, rows: int, ms: float) -> None:
        """Take in how long a batch took."""
        self._weight = self._weight * MEMORY + 1.0
        self._rows = self._rows * MEMORY + rows
        self._ms = self._ms * MEMORY + ms
        self._squares = self._squares * MEMORY + rows * rows
        self._rows_ms = self._rows_ms * MEMORY + rows * ms

    def predicted_ms(self, queue: VariantQueue, rows: int) -> float:
        """How long a batch takes by what was observed; by the variant's table before that.

        The line neither falls nor starts below zero. While all batches had one size it goes through
        zero.
        """
        if not self._weight:
            return queue.ms[rows]
        mean_rows, mean_ms = self._rows / self._weight, self._ms / self._weight
        steepest = mean_ms / mean_rows
        spread = self._squares / self._weight - mean_rows**2
        slope = steepest
        if spread > 1e-9 * mean_rows**2:
            together = self._rows_ms / self._weight - mean_rows * mean_ms
            slope = min(max(together / spread, 0.0), steepest)
        return mean_ms + slope * (rows - mean_rows)
