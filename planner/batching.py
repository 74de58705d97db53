"""What a worker decides about its queue: which query is admitted, which batch runs next.

One ``Schedule`` belongs to one slice, which runs one batch at a time. It keeps the admitted queries
of every loaded variant earliest deadline first and guarantees, as long as latencies are as
predicted, that **no admitted query becomes late**:

* *Forecast.* A queue is thought through to its end (``planner.foresight``): the batches that would
  run, with everybody in time.
* *Agenda.* A forecast is kept as an ``Agenda`` and changed query by query, which takes the square
  root of the queue's length instead of all of it. Why it proves that everybody is in time, and why
  real batches keep it true, is said there.
* *Admission.* A query enters if the agenda or a forecast of the queue with it is in time for
  everyone.
* *Length.* A batch takes at most half of the tightest budget seen lately: who just missed it waits
  for it and still has time for one of his own (Nexus, SOSP'19, section 4.1). Longer batches
  serve more per second, but nobody could be admitted while they run. Where a plan says how long
  the batches of this slice are to be, for the classes that it gives to it, that counts instead.
* *Batch.* The head decides the variant; the largest batch after which the agenda or a forecast of
  the rest is in time for everyone runs now. Nothing waits to fill a batch.

There are three tiers. Usually slack is ample and both decisions take constant time: when all work
together, from now, ends before the earliest deadline, no order can make anyone late. When slack is
short, the agenda decides. Where it says no and the queue is short, forecasts look once more, for a
bounded number of steps between two batches; beyond it a query is refused, which is always safe.

*Fairness.* Each task has a planned share of the time. A task is above it when its part of the busy
time of the last seconds, queued work included, exceeds the share; time that no plan names is split
equally among tasks without a share, or in proportion if there are none. For as long as another task
that is below its share was refused lately, a task above its share is admitted only if it finishes
within the first half of its budget: it is refused first, and the other half stays free for those
who are short. While nobody goes short, nobody is held back.

All times are milliseconds on one clock of the caller's choosing.
"""

from bisect import insort
from collections.abc import Sequence
from enum import StrEnum
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from planner.agenda import ROUNDING_MS, Agenda, Entry
from planner.foresight import forecast, merged
from planner.lanes import Item, Lane, Tenant
from planner.types import LatencyTable

MAX_QUEUE = 8_192
"""Queries that one worker holds at most."""
GREEDY_BUDGET = 0.5
"""Part of its budget that a query may use whose task is above its share."""
EXCESS = 1.25
"""A task is above its share when it uses so many times as much: nobody is held back for chance."""
GROWTH_BUDGET = 0.5
"""Part of a query's budget that a batch opened for it may be planned to take, once it has grown."""
ACTIVE_MS = 2_000.0
"""A task counts as active for this long after a query of it arrived, and as short of time for this
long after one was refused."""
FORECAST_STEPS = 4_096
"""Queries that forecasts look at between two batches, and again when one is formed."""
EXACT_QUEUE = 128
"""Up to this many waiting queries, forecasts look again at what the agenda denies."""
REMAKE = 128
"""An agenda lives for at least so many queries before a denial has it made anew."""


TIGHT_MS = 2_000.0
"""How long a tight budget is remembered, and up to twice as long."""
TIGHTEST = 0.25
"""Of the mean budget: tighter ones do not shorten batches further, for the sake of the others."""


class Verdict(StrEnum):
    """What became of a query at the door, and why."""

    ADMITTED = "admitted"
    TOO_MANY_ROWS = "it has more rows than the largest batch"
    QUEUE_FULL = "the queue is full"
    WOULD_BE_LATE = "it, or an admitted query, would be late"
    NO_ROOM = "no batch that it could share would be in time"
    OVER_SHARE = "its task is above its share and the backlog uses half of its budget"


class Batch(NamedTuple):
    """What runs next: queries of one variant, earliest deadline first."""

    lane: Lane
    items: list[Item]
    rows: int
    predicted_ms: float


class Schedule:
    """The queue of one slice and the two decisions about it. Deterministic; knows no clock."""

    def __init__(self, max_queue: int = MAX_QUEUE, exact_queue: int = EXACT_QUEUE) -> None:
        self.max_queue = max_queue
        self._exact_queue = exact_queue
        self.busy_until_ms = 0.0
        """When the running batch is predicted to be done; in the past when none runs."""
        self.count = 0
        self.work_ms = 0.0
        """At most this long to run all that waits."""
        self._floor_ms = 0.0
        self._active: list[Lane] = []
        self._tenants: dict[str, Tenant] = {}
        self._order = 0
        self._earliest_ms = inf
        self._latest_ms = -inf
        self._reach = _Reach()
        self._pace_ms: float | None = None
        self._denied_ms = -inf
        """When a task that was not above its share was last refused."""
        self._steps = FORECAST_STEPS
        self._agenda: Agenda | None = None
        """Holds all that waits, while slack is short."""

    def add_lane(self, task: str, table: LatencyTable, share: float = 0.0) -> Lane:
        """A lane for a variant that was loaded."""
        tenant = self._tenants.setdefault(task, Tenant())
        tenant.share = max(tenant.share, share) if tenant.lanes else share
        lane = Lane(task, tenant, table)
        tenant.lanes.append(lane)
        return lane

    def take(self, lane: Lane) -> list[Item]:
        """Take out all that waits in a lane, earliest deadline first."""
        items = [entry[2] for entry in sorted(lane.queue)]
        lane.queue.clear()
        self._leave(lane, len(items))
        self._resize(lane, -len(items), -lane.rows)
        return items

    def remove_lane(self, lane: Lane) -> None:
        """Forget an empty lane. Its task keeps its history as long as it has another."""
        lane.tenant.lanes.remove(lane)
        if not lane.tenant.lanes:
            self._tenants.pop(lane.task, None)

    def replan(self, lane: Lane, table: LatencyTable, share: float) -> None:
        """Take over a new latency table and share; what waits stays admitted if it still fits.

        A share of 0 says that nothing was planned, and keeps the task's share as it is.
        """
        self._floor_ms -= lane.rows * lane.unit_ms * lane.correction
        if table.max_batch >= max((entry[2].rows for entry in lane.queue), default=1):
            lane.set_table(table)
            if self._agenda is not None:
                self._agenda.recost(lane, anew=True)
        self._floor_ms += lane.rows * lane.unit_ms * lane.correction
        lane.tenant.share = share or lane.tenant.share
        self._resize(lane, 0, 0)

    def pace(self, longest_ms: float | None) -> None:
        """Form batches of at most this length, as planned; None: by the budgets that are seen.

        A lane follows when it is next empty.
        """
        self._pace_ms = longest_ms

    def correct(self, lane: Lane, correction: float) -> None:
        """Set the factor observed / predicted of a lane."""
        self._floor_ms += lane.rows * lane.unit_ms * (correction - lane.correction)
        lane.correction = correction
        if self._agenda is not None:
            self._agenda.recost(lane)
        if lane.rows:
            self._resize(lane, 0, 0)

    def backlog_ms(self, now_ms: float) -> float:
        """At most this long until all admitted work is done."""
        return max(0.0, self.busy_until_ms - now_ms) + self.work_ms

    # -- admission --------------------------------------------------------------------------------

    def admit(self, item: Item, now_ms: float) -> Verdict:
        """Queue a query if the whole queue stays in time with it, or say why not."""
        lane, rows, deadline_ms = item.lane, item.rows, item.deadline_ms
        lane.tenant.seen_ms = now_ms
        if rows > lane.max_batch:
            return Verdict.TOO_MANY_ROWS
        if self.count >= self.max_queue:
            return Verdict.QUEUE_FULL
        self._reach.saw(deadline_ms - now_ms, now_ms)
        if not lane.queue and lane.gains:
            lane.keep_within(self._pace_ms or self._reach.tight_ms / 2)
        lane.limit = max(lane.limit, rows)
        start_ms = max(now_ms, self.busy_until_ms)
        added_ms = lane.bound_ms(len(lane.queue) + 1, lane.rows + rows) - lane.work_ms
        done_ms = start_ms + self.work_ms + added_ms
        ample = done_ms <= min(deadline_ms, self._earliest_ms)
        modest_ms = now_ms + GREEDY_BUDGET * (deadline_ms - now_ms)
        entry = (deadline_ms, self._order, item)
        proved = False
        if not ample or done_ms > modest_ms:
            greedy = (
                len(self._tenants) > 1
                and now_ms - self._denied_ms <= ACTIVE_MS
                and self._over_share(lane.tenant, now_ms)
            )
            if greedy or not ample:
                limit_ms = modest_ms if greedy else deadline_ms
                room_ms = self._room_ms(item, now_ms)
                if not self._fits(entry, start_ms, limit_ms, room_ms):
                    if greedy:
                        return Verdict.OVER_SHARE
                    if len(self._tenants) > 1 and not self._over_share(lane.tenant, now_ms):
                        self._denied_ms = now_ms
                    return Verdict.NO_ROOM if room_ms else Verdict.WOULD_BE_LATE
                proved = True
        if not proved and self._agenda is not None and not self._agenda.insert(entry, start_ms):
            self._agenda = None  # ample slack is proof enough
        self._push(entry, added_ms)
        return Verdict.ADMITTED

    def _room_ms(self, item: Item, now_ms: float) -> float:
        """Slack that a batch opened for a query has to keep, so that others can join it.

        Without it, a queue at its limit admits one query whenever there is time for one more batch
        of one, and that batch can never grow: a device that needs large batches is kept busy with
        single rows for good. The growth of the other lanes that wait comes out of the same slack;
        where batches save little time, little is kept for that.
        Whoever finds nobody of its lane waiting is let in all the same.
        """
        lane = item.lane
        if not (lane.gains and lane.queue):
            return 0.0
        own_ms = lane.ms[item.rows] * lane.correction
        full_ms = lane.ms[lane.limit] * lane.correction
        others_ms = sum(
            each.ms[each.limit] * each.correction
            for each in self._active
            if each.gains and each is not lane
        )
        budget_ms = GROWTH_BUDGET * (item.deadline_ms - now_ms)
        return max(0.0, min(full_ms + lane.saving * others_ms, budget_ms) - own_ms)

    def _fits(self, entry: Entry, start_ms: float, limit_ms: float, room_ms: float) -> bool:
        """Whether everybody is in time with a query in the queue and it by ``limit_ms``.

        If so, the agenda holds it.
        """
        deadline_ms, _, item = entry
        lane, rows = item.lane, item.rows
        if start_ms + lane.ms[rows] * lane.correction > limit_ms:
            return False
        floor_ms = self._floor_ms + rows * lane.unit_ms * lane.correction
        if deadline_ms >= self._latest_ms and start_ms + floor_ms > deadline_ms:
            return False  # all of the queue has to be done before it, however it is batched
        short = self.count <= self._exact_queue and self._steps >= self.count
        agenda = self._agenda
        if agenda is None and not short:
            agenda = self._agenda = self._foreseen(self._ordered(), start_ms)
        if agenda is not None:
            if agenda.insert(entry, start_ms, limit_ms, room_ms):
                return True
            if not (lane.gains or self._some_gain()):
                return False  # everybody alone, earliest deadline first: no order does better
            # Changed as often as it is long, it has half-full batches: making it anew is paid for.
            if not short and agenda.added <= max(self.count, REMAKE):
                return False
            agenda.added = 0
        self._steps -= self.count + 1
        order = self._ordered()
        insort(order, entry)
        runs = forecast(order, start_ms, item, limit_ms, deadline_ms - room_ms)
        if runs is None:
            return False
        self._agenda = Agenda(runs)
        return True

    def _some_gain(self) -> bool:
        """Whether batches pay for anybody who waits, so that a forecast may know better."""
        return any(lane.gains for lane in self._active)

    @staticmethod
    def _foreseen(order: Sequence[Entry], start_ms: float) -> Agenda:
        """A new agenda; late if no forecast is in time."""
        runs = forecast(order, start_ms)
        return Agenda(runs or merged(order, start_ms, strict=False) or ())

    def _over_share(self, tenant: Tenant, now_ms: float) -> bool:
        active = [t for t in self._tenants.values() if now_ms - t.seen_ms <= ACTIVE_MS]
        if len(active) < 2:
            return False
        planned = sum(t.share for t in active)
        unplanned = sum(1 for t in active if not t.share)
        if not unplanned:
            entitled = tenant.share / planned
        elif tenant.share:
            entitled = tenant.share
        else:
            entitled = max(0.0, 1.0 - planned) / unplanned
        used_ms = sum(t.used_ms(now_ms) for t in active)
        return tenant.used_ms(now_ms) > EXCESS * entitled * used_ms

    # -- batches ----------------------------------------------------------------------------------

    def pop_expired(self, now_ms: float) -> list[Item]:
        """Take out the queries whose deadline has passed."""
        if self._earliest_ms >= now_ms:
            return []
        late: list[Item] = []
        for lane in tuple(self._active):
            count, rows = 0, 0
            while lane.queue and lane.queue[0][0] < now_ms:
                item = heappop(lane.queue)[2]
                late.append(item)
                count, rows = count + 1, rows + item.rows
            if count:
                self._leave(lane, count)
                self._resize(lane, -count, -rows)
        return late

    def next_batch(self, now_ms: float) -> Batch | None:
        """Take out what runs next, or ``None`` when nothing waits. The slice must be free."""
        if not self.count:
            return None
        self._steps = FORECAST_STEPS
        active = self._active
        lane = active[0] if len(active) == 1 else min(active, key=_head)
        entries, rows = self._candidates(lane, now_ms)
        batch_ms = lane.ms[rows] * lane.correction
        count = len(entries)
        rest_ms = lane.bound_ms(len(lane.queue), lane.rows - rows)
        ample = now_ms + batch_ms + self.work_ms - lane.work_ms + rest_ms <= self._earliest_ms
        if not ample and self.count > count and count > 1:
            count = self._largest_safe(lane, entries, now_ms)
            for entry in entries[count:]:
                heappush(lane.queue, entry)
                rows -= entry[2].rows
            del entries[count:]
            batch_ms = lane.ms[rows] * lane.correction
        elif self._agenda is not None:
            self._agenda.take(lane, count)
            if ample and not self._agenda.in_time(now_ms + batch_ms):
                self._agenda = None  # ample slack is proof enough
        self._resize(lane, -count, -rows)
        self.busy_until_ms = now_ms + batch_ms
        return Batch(lane, [entry[2] for entry in entries], rows, batch_ms)

    def wake_ms(self, now_ms: float) -> float:
        """Never: whatever waits runs as soon as the slice is free."""
        return inf

    def finished(self, lane: Lane, now_ms: float, busy_ms: float) -> None:
        """Account for a batch that is done; the slice is free again."""
        tenant = lane.tenant
        tenant.busy_ms = tenant.decayed_ms(now_ms) + busy_ms
        tenant.stamp_ms = now_ms
        self.busy_until_ms = now_ms

    def _candidates(self, lane: Lane, now_ms: float) -> tuple[list[Entry], int]:
        """Pop as many as fit the largest batch and are done before the head's deadline.

        If even the head alone is late, the batch is as large as it can be: that catches up fastest.
        """
        queue, ms, correction, largest = lane.queue, lane.ms, lane.correction, lane.limit
        entries = [heappop(queue)]
        deadline_ms, _, head = entries[0]
        rows = head.rows
        if now_ms + ms[rows] * correction > deadline_ms + ROUNDING_MS:
            deadline_ms = inf
        while queue:
            more = rows + queue[0][2].rows
            if more > largest or now_ms + ms[more] * correction > deadline_ms:
                break
            entries.append(heappop(queue))
            rows = more
        return entries, rows

    def _largest_safe(self, lane: Lane, entries: list[Entry], now_ms: float) -> int:
        """How many of the candidates can run now so that the rest is in time.

        At least what the agenda runs first. When somebody is late in any case: all of them if that
        catches up.
        """
        if self._agenda is None:
            self._agenda = self._foreseen(sorted(self._ordered() + entries), now_ms)
        agenda, steps = self._agenda, FORECAST_STEPS
        first = agenda.first_count(lane)
        count = len(entries)
        while count:
            rows = sum(entry[2].rows for entry in entries[:count])
            done_ms = now_ms + lane.ms[rows] * lane.correction
            change = agenda.take(lane, count)
            if agenda.in_time(done_ms):
                return count
            agenda.undo(change)
            short = self.count <= self._exact_queue and steps >= self.count
            if short and (lane.gains or self._some_gain()):
                steps -= self.count
                runs = forecast(sorted(self._ordered() + entries[count:]), done_ms)
                if runs is not None:
                    self._agenda = Agenda(runs)
                    return count
            smaller = count - 1 if short else count // 2
            count = smaller if count <= first else max(smaller, first)
        count = len(entries) if lane.gains else first
        agenda.take(lane, count)
        return count

    # -- book-keeping -----------------------------------------------------------------------------

    def _leave(self, lane: Lane, count: int) -> None:
        """The earliest queries left a lane without running."""
        if self._agenda is not None and count:
            self._agenda.take(lane, count)

    def _ordered(self) -> list[Entry]:
        order: list[Entry] = []
        for lane in self._active:
            order += lane.queue
        order.sort()
        return order

    def _push(self, entry: Entry, added_ms: float) -> None:
        deadline_ms, _, item = entry
        lane = item.lane
        if not lane.queue:
            self._active.append(lane)
        heappush(lane.queue, entry)
        self._order += 1
        lane.rows += item.rows
        lane.work_ms += added_ms
        self.work_ms += added_ms
        self._floor_ms += item.rows * lane.unit_ms * lane.correction
        self.count += 1
        self._earliest_ms = min(self._earliest_ms, deadline_ms)
        self._latest_ms = max(self._latest_ms, deadline_ms)

    def _resize(self, lane: Lane, count: int, rows: int) -> None:
        """Bring the totals in line after queries left a lane or its prediction changed."""
        self.count += count
        lane.rows += rows
        if not self.count:
            self.work_ms = self._floor_ms = lane.work_ms = 0.0
            self._earliest_ms, self._latest_ms = inf, -inf
            self._active.clear()
            self._agenda = None
            return
        self._floor_ms += rows * lane.unit_ms * lane.correction
        work_ms = lane.bound_ms(len(lane.queue), lane.rows)
        self.work_ms += work_ms - lane.work_ms
        lane.work_ms = work_ms
        if not lane.queue and lane in self._active:
            self._active.remove(lane)
        self._earliest_ms = min(active.queue[0][0] for active in self._active)


class _Reach:
    """How tight the budgets of the queries that ask are: the least of the last seconds."""

    __slots__ = ("_before_ms", "_least_ms", "_mean_ms", "_since_ms")

    def __init__(self) -> None:
        self._least_ms = self._before_ms = inf
        self._since_ms = -inf
        self._mean_ms = 0.0

    def saw(self, budget_ms: float, now_ms: float) -> None:
        if now_ms - self._since_ms > TIGHT_MS:
            # Two windows, one behind the other: the least of the older counts until it is over.
            fresh = now_ms - self._since_ms <= 2 * TIGHT_MS
            self._before_ms = self._least_ms if fresh else inf
            self._least_ms = inf
            self._since_ms = now_ms
        self._least_ms = min(self._least_ms, budget_ms)
        mean_ms = self._mean_ms
        self._mean_ms = mean_ms + (budget_ms - mean_ms) * 0.02 if mean_ms else budget_ms

    @property
    def tight_ms(self) -> float:
        return max(min(self._least_ms, self._before_ms), TIGHTEST * self._mean_ms)


def _head(lane: Lane) -> tuple[float, int]:
    return lane.queue[0][:2]
