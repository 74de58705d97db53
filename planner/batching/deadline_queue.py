"""The queue of one slice: which query is admitted, and which batch runs next.

One ``DeadlineQueue`` belongs to one slice, which runs one batch at a time. It keeps the admitted
queries of every loaded variant earliest deadline first and guarantees, as long as latencies are as
predicted, that **no admitted query becomes late**:

* *Schedule search* (``planner.batching.schedule_search``). A forecast goes through the whole queue
  and returns the batches that would run, if none of them is late.
* *Feasible schedule* (``planner.batching.feasible_schedule``). A forecast is kept and changed query
  by query, which takes the square root of the queue's length. That module says why the schedule
  proves that every query is in time, and why real batches keep it true.
* *Admission.* A query is admitted if the schedule or a forecast of the queue is in time with it.
* *Longest batch.* A batch takes at most half of nearly the tightest budget seen lately
  (``planner.batching.tight_budgets``), because a query that just missed a batch waits for it and
  then needs the time for its own (Nexus, SOSP'19, section 4.1). Longer batches would serve more
  queries per second, but queries with tight budgets would be refused while they run. Where a plan
  says how long the batches of this slice may be, that counts instead.
* *Next batch.* The query with the earliest deadline decides the variant. The batch is the largest
  after which the schedule, or a forecast of the rest, is in time. No batch waits to be filled.

The effort has three levels. Usually slack is ample and both decisions take constant time: when all
work together, begun now, ends before the earliest deadline, every order is in time. When slack is
short, the schedule decides. Where it has no place and the queue is short, forecasts look once more,
for a bounded number of steps between two batches; beyond that a query is refused, always safely.
For how much latencies vary, and how sure it has to be, see ``planner.batching.live_costs``.

*Fairness.* Who stands behind others in the order of refusal (``planner.batching.refusal_order``:
above the share of its client's key, above that of its task, of lower priority) is refused first:
for as long as one who stands before it was refused lately, a query is admitted only if it waits no
longer than the first half of its slack, which is its budget but for its own run. The other half
stays free for those. While none of them is refused, nobody is held back; who would be late on an
idle slice as well counts for nothing.

All times are milliseconds on one clock of the caller's choosing.
"""

from bisect import insort
from collections.abc import Sequence
from heapq import heappush
from math import inf

from planner.batching.fairness import is_over_share
from planner.batching.feasible_schedule import FeasibleSchedule
from planner.batching.protocol import MAX_QUEUE, Batch, Verdict
from planner.batching.refusal_order import ClientShares, LatelyRefused, Standing
from planner.batching.schedule_search import forecast, scheduled
from planner.batching.tight_budgets import TightBudgets
from planner.batching.variant_queues import Entry, Item, VariantQueue, head_of
from planner.batching.waiting_queries import WaitingQueries
from variants.slots import tuple_of

ADMITTED = Verdict.ADMITTED
"""Looking a member up in its enumeration takes ten times as long."""
GREEDY_SLACK = 0.5
"""Part of its slack that a query may wait while others who stand before it are refused."""
GROWTH_BUDGET = 0.5
"""Part of a query's budget that a batch opened for it may be planned to take, once it has grown."""
FORECAST_STEPS = 4_096
"""Queries that forecasts look at between two batches, and again when one is formed."""
EXACT_QUEUE = 128
"""Up to this many waiting queries, forecasts look again where the schedule has no place."""
REMAKE = 128
"""A schedule takes in at least so many queries before it is made anew because one has no place."""


class DeadlineQueue(WaitingQueries):
    """The queue of one slice and the two decisions about it. Deterministic; knows no clock."""

    def __init__(self, max_queue: int = MAX_QUEUE, exact_queue: int = EXACT_QUEUE) -> None:
        super().__init__()
        self.max_queue = max_queue
        self._exact_queue = exact_queue
        self._order = 0
        self._budgets = TightBudgets()
        self._longest_ms: float | None = None
        self._clients = ClientShares()
        self._refused = LatelyRefused()
        self._steps = FORECAST_STEPS

    def set_longest_batch(self, longest_ms: float | None) -> None:
        """Form batches of at most this length, as planned; None: by the budgets that are seen.

        A variant follows when its queue is next empty."""
        self._longest_ms = longest_ms

    def admit(self, item: Item, now_ms: float) -> Verdict:
        """Queue a query if the whole queue stays in time with it, or say why not."""
        queue, rows, deadline_ms = item.queue, item.rows, item.deadline_ms
        queue.task_share.seen_ms = now_ms
        if item.client is not self._clients.only:
            self._clients.saw(item.client, now_ms)
        if rows > queue.max_batch:
            return Verdict.TOO_MANY_ROWS
        if self.count >= self.max_queue:
            return Verdict.QUEUE_FULL
        budget_ms, own_ms = deadline_ms - now_ms, queue.ms[rows] * queue.correction
        longest_ms = self._longest_ms
        if not longest_ms and budget_ms >= own_ms:  # no batch is short enough for what is late
            self._budgets.saw(budget_ms, now_ms)
        if not queue.heap and queue.gains:
            queue.keep_within(longest_ms or self._budgets.tight_ms / 2)
        limit = queue.limit
        queue.limit = rows if rows > limit else limit
        busy_ms = self.busy_until_ms
        start_ms = (busy_ms if busy_ms > now_ms else now_ms) + self._spare_ms(queue, rows)
        contended = self.count > 0 or busy_ms > now_ms
        if not contended:
            start_ms += queue.first_ms
        added_ms = queue.bound_ms(len(queue.heap) + 1, queue.rows + rows) - queue.work_ms
        done_ms = start_ms + self.work_ms + added_ms
        ample = done_ms <= deadline_ms and done_ms <= self._earliest_ms
        modest_ms = now_ms + own_ms + GREEDY_SLACK * (budget_ms - own_ms)
        entry = (deadline_ms, self._order, item)
        proved = False
        if not ample or done_ms > modest_ms:
            greedy = contended and self._is_behind(item, now_ms)
            if greedy or not ample:
                limit_ms = modest_ms if greedy else deadline_ms
                room_ms, schedule = self._room_ms(item, now_ms), self._schedule
                if not self._fits(entry, start_ms, limit_ms, room_ms):
                    if rows > limit:  # who is refused makes no batches of others longer
                        queue.limit, self._schedule = limit, schedule
                    if greedy:
                        return Verdict.OVER_SHARE
                    if contended and now_ms + own_ms <= deadline_ms:
                        self._refused.add(self._standing(item, now_ms), now_ms)
                    return Verdict.NO_ROOM if room_ms else Verdict.WOULD_BE_LATE
                proved = True
        if not proved and self._schedule is not None and not self._schedule.insert(entry, start_ms):
            self._schedule = None  # ample slack is proof enough
        self._order += 1
        self._push(entry, added_ms)
        return ADMITTED

    def _is_behind(self, item: Item, now_ms: float) -> bool:
        """Whether one who stands before a query was refused lately."""
        refused = self._refused
        if self._clients.only is not None:
            # Then a query is behind nobody unless he was refused a moment ago, and within the share
            # of its task only behind a higher priority: its standing need not be known.
            if not refused.is_fresh(now_ms):
                return False
            if len(self._shares) == 1 and item.priority <= refused.priority:
                return False
        return refused.is_before(self._standing(item, now_ms), now_ms)

    def _standing(self, item: Item, now_ms: float) -> Standing:
        shares = self._shares
        return (
            self._clients.only is None and self._clients.is_over(item.client, now_ms),
            len(shares) > 1 and is_over_share(item.queue.task_share, shares.values(), now_ms),
            item.priority,
        )

    def _spare_ms(self, queue: VariantQueue, rows: int) -> float:
        """Time for what batches may take longer: of those that vary most, ``rows`` more of one."""
        spare_ms = 0.0
        if not self._varies:
            return spare_ms
        if queue.spread:
            spare_ms = queue.spread * queue.ms[min(queue.rows + rows, max(queue.limit, rows))]
        for each in self._active:
            if each.spread:
                spare_ms = max(spare_ms, each.spread * each.ms[min(each.rows, each.limit)])
        return spare_ms

    def _room_ms(self, item: Item, now_ms: float) -> float:
        """Slack, in ms, that a batch opened for a query has to keep, so that others can join it.

        Without it, a full slice admits one query whenever there is time for one more batch of one
        row, and that batch can never grow: a device that needs large batches would run single rows
        for good. The growth of the other variants' batches comes out of the same slack; where
        batches save little time, little is kept for it. A query needs no such slack when no other
        query of its variant waits.
        """
        queue = item.queue
        if not (queue.gains and queue.heap):
            return 0.0
        own_ms = queue.ms[item.rows] * queue.correction
        full_ms = queue.ms[queue.limit] * queue.correction
        others_ms = sum(
            each.ms[each.limit] * each.correction
            for each in self._active
            if each.gains and each is not queue
        )
        budget_ms = GROWTH_BUDGET * (item.deadline_ms - now_ms)
        return max(0.0, min(full_ms + queue.saving * others_ms, budget_ms) - own_ms)

    def _fits(self, entry: Entry, start_ms: float, limit_ms: float, room_ms: float) -> bool:
        """Whether all queries are in time with one more, and that one is done by ``limit_ms``.

        If so, the schedule holds it. A batch that is opened for it keeps ``room_ms`` of slack.
        """
        deadline_ms, _, item = entry
        queue, rows = item.queue, item.rows
        if start_ms + queue.ms[rows] * queue.correction > limit_ms:
            return False
        floor_ms = self._floor_ms + rows * queue.unit_ms * queue.correction
        if deadline_ms >= self._latest_ms and start_ms + floor_ms > deadline_ms:
            return False  # all of the queue has to be done before it, however it is batched
        short = self.count <= self._exact_queue and self._steps >= self.count
        schedule = self._schedule
        if schedule is None and not short:
            schedule = self._schedule = scheduled(self._ordered(), start_ms)
        if schedule is not None:
            if schedule.insert(entry, start_ms, limit_ms, room_ms):
                return True
            if not (queue.gains or self._some_gain()):
                return False  # one query a batch, earliest deadline first: no order does better
            # Changed as often as it is long, it has half-full batches: making it anew is paid for.
            if not short and schedule.added <= max(self.count, REMAKE):
                return False
            schedule.added = 0
        self._steps -= self.count + 1
        order = self._ordered()
        insort(order, entry)
        runs = forecast(order, start_ms, item, limit_ms, deadline_ms - room_ms)
        if runs is None:
            return False
        self._schedule = FeasibleSchedule(runs)
        return True

    def _take_out(self, left: Sequence[Item], now_ms: float) -> None:
        """Take queries out. Where those that are left are in time in larger batches than they were
        planned in, they are planned anew."""
        super()._take_out(left, now_ms)
        if self._schedule is None or not self._some_gain():
            return
        busy_ms = self.busy_until_ms
        start_ms = (busy_ms if busy_ms > now_ms else now_ms) + self._spare_ms(self._active[0], 0)
        if (runs := forecast(self._ordered(), start_ms)) is not None:
            self._schedule = FeasibleSchedule(runs)

    def _some_gain(self) -> bool:
        """Whether batches save time for any waiting query, so that forecasts may help."""
        return any(queue.gains for queue in self._active)

    def next_batch(self, now_ms: float) -> Batch | None:
        """Take out what runs next, or ``None`` when nothing waits. The slice must be free."""
        if not self.count:
            return None
        self._steps = FORECAST_STEPS
        active = self._active
        queue = active[0] if len(active) == 1 else min(active, key=head_of)
        spare_ms = self._spare_ms(queue, 0)
        least = self._schedule.first_count(queue) if self._schedule is not None else 1
        entries, rows = queue.pop_batch(now_ms, spare_ms, least)
        try:
            return self._cut(queue, entries, rows, now_ms, spare_ms)
        except Exception:  # a mistake in a schedule must not lose who waits
            there = {entry[1] for entry in queue.heap}
            for entry in entries:
                if entry[1] not in there:
                    heappush(queue.heap, entry)
            raise

    def _cut(
        self, queue: VariantQueue, entries: list[Entry], rows: int, now_ms: float, spare_ms: float
    ) -> Batch:
        """Of queries that were popped, those that run now; the others go back."""
        start_ms = now_ms + spare_ms
        batch_ms = queue.ms[rows] * queue.correction
        count = len(entries)
        rest_ms = queue.bound_ms(len(queue.heap), queue.rows - rows)
        ample = start_ms + batch_ms + self.work_ms - queue.work_ms + rest_ms <= self._earliest_ms
        if not ample and self.count > count and count > 1:
            count = self._largest_safe(queue, entries, start_ms)
            for entry in entries[count:]:
                heappush(queue.heap, entry)
                rows -= entry[2].rows
            del entries[count:]
            batch_ms = queue.ms[rows] * queue.correction
        elif self._schedule is not None:
            self._schedule.take(queue, count)
            if ample and not self._schedule.in_time(start_ms + batch_ms):
                self._schedule = None  # ample slack is proof enough
        self._resize(queue, -count, -rows)
        if self._clients.only is None:
            for _, _, item in entries:
                self._clients.use(item.client, batch_ms * item.rows / rows, now_ms)
        self.busy_until_ms = now_ms + batch_ms
        return tuple_of(Batch, (queue, [entry[2] for entry in entries], rows, batch_ms))

    def wake_ms(self, now_ms: float) -> float:
        """Never: whatever waits runs as soon as the slice is free."""
        return inf

    def _largest_safe(self, queue: VariantQueue, entries: list[Entry], now_ms: float) -> int:
        """How many of the candidates can run now so that the rest is in time.

        At least what the schedule runs first. When a query is late in any case, all candidates run
        if batches save time, because that catches up fastest.
        """
        if self._schedule is None:
            self._schedule = scheduled(sorted(self._ordered() + entries), now_ms)
        schedule, steps = self._schedule, FORECAST_STEPS
        first = schedule.first_count(queue)
        count = len(entries)
        while count:
            rows = sum(entry[2].rows for entry in entries[:count])
            done_ms = now_ms + queue.ms[rows] * queue.correction
            change = schedule.take(queue, count)
            if schedule.in_time(done_ms):
                return count
            schedule.undo(change)
            short = self.count <= self._exact_queue and steps >= self.count
            if short and (queue.gains or self._some_gain()):
                steps -= self.count
                runs = forecast(sorted(self._ordered() + entries[count:]), done_ms)
                if runs is not None:
                    self._schedule = FeasibleSchedule(runs)
                    return count
            smaller = count - 1 if short else count // 2
            count = smaller if count <= first else max(smaller, first)
        count = len(entries) if queue.gains else first
        schedule.take(queue, count)
        return count
