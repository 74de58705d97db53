"""Batching from the profile with early drop, as Proteus does it.

One ``EarliestQueue`` belongs to one slice. It is Proteus' batching (Ahmad et al., ASPLOS'24,
section 5), with the batch size b* of its plan as the limit of each lane:

* *Not work-conserving.* A batch below the limit is held back as long as the first query could
  still be in time in a batch of one more row: until its deadline less the latency of that batch.
* *Early drop.* A query that would be late even alone is given up. Once a full batch waits, so is
  one that would be late in it: running a smaller batch for its sake would leave the others
  further behind.

With one SLO per family, as in the paper, first in, first out is earliest deadline first; with
several the latter is kept. Where the paper is silent: of several lanes, which a device has only
while its variant is being changed, the earliest deadline goes first.

With ``waits=False`` nothing is held back and the rest stays.

All times are milliseconds on one clock of the caller's choosing.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

from planner.agenda import ROUNDING_MS
from planner.batching import MAX_QUEUE, Batch, Verdict
from planner.lanes import Item, Lane, Tenant
from planner.types import LatencyTable


class EarliestQueue:
    """The queue of one slice, earliest deadline first. Deterministic; knows no clock."""

    def __init__(
        self,
        batch: Callable[[str, LatencyTable], int],
        *,
        waits: bool = True,
        max_queue: int = MAX_QUEUE,
    ) -> None:
        """``batch`` gives the largest batch of a new lane, from its task and table."""
        self.max_queue = max_queue
        self.busy_until_ms = 0.0
        self.count = 0
        self._batch = batch
        self._waits = waits
        self._limit: dict[Lane, int] = {}
        self._active: list[Lane] = []
        """Lanes in which somebody waits."""
        self._order = 0
        self._work_ms = 0.0

    # -- lanes ------------------------------------------------------------------------------------

    def add_lane(self, task: str, table: LatencyTable, share: float = 0.0) -> Lane:
        """A lane for a variant that was loaded; ``share`` plays no part."""
        lane = Lane(task, Tenant(), table)
        self.set_limit(lane, self._batch(task, table))
        return lane

    def set_limit(self, lane: Lane, rows: int) -> None:
        """Set the largest batch of a lane, in rows."""
        self._limit[lane] = min(max(1, rows), lane.max_batch)
        self._resize(lane, 0, 0)

    def remove_lane(self, lane: Lane) -> None:
        """Forget an empty lane."""
        del self._limit[lane]

    def take(self, lane: Lane) -> list[Item]:
        """Take out all that waits in a lane, earliest deadline first."""
        items = [entry[2] for entry in sorted(lane.queue)]
        lane.queue.clear()
        self._resize(lane, -len(items), -lane.rows)
        return items

    def backlog_ms(self, now_ms: float) -> float:
        """Predicted time until all that was admitted is done, in full batches and a rest each."""
        return max(0.0, self.busy_until_ms - now_ms) + self._work_ms

    # -- admission --------------------------------------------------------------------------------

    def admit(self, item: Item, now_ms: float) -> Verdict:
        """Queue a query, unless it can never run or the queue is full."""
        lane = item.lane
        if item.rows > lane.max_batch:
            return Verdict.TOO_MANY_ROWS
        if self.count >= self.max_queue:
            return Verdict.QUEUE_FULL
        if not lane.queue:
            self._active.append(lane)
        self._order += 1
        heappush(lane.queue, (item.deadline_ms, self._order, item))
        self._resize(lane, 1, item.rows)
        return Verdict.ADMITTED

    def pop_expired(self, now_ms: float) -> list[Item]:
        """Take out what is dropped: who can be in time no more, by the two rules."""
        dropped: list[Item] = []
        for lane in tuple(self._active):
            queue, ms, limit = lane.queue, lane.ms, self._limit[lane]
            while queue:
                deadline_ms, _, item = queue[0]
                rows = max(item.rows, limit) if lane.rows >= limit else item.rows
                if now_ms + ms[rows] <= deadline_ms + ROUNDING_MS:
                    break
                heappop(queue)
                dropped.append(item)
                self._resize(lane, -1, -item.rows)
        return dropped

    # -- batches ----------------------------------------------------------------------------------

    def next_batch(self, now_ms: float) -> Batch | None:
        """Take out what runs now; None when nothing waits or is due. The slice must be free."""
        due = [lane for lane in self._active if self._due_ms(lane) <= now_ms]
        if not due:
            return None
        lane = due[0] if len(due) == 1 else min(due, key=lambda lane: lane.queue[0][:2])
        queue, ms, limit = lane.queue, lane.ms, self._limit[lane]
        deadline_ms, _, head = heappop(queue)
        items, rows = [head], head.rows
        if now_ms + ms[rows] > deadline_ms + ROUNDING_MS:
            deadline_ms = inf  # nobody can save it: the largest batch catches up fastest
        while queue:
            more = rows + queue[0][2].rows
            if more > limit or now_ms + ms[more] > deadline_ms + ROUNDING_MS:
                break
            items.append(heappop(queue)[2])
            rows = more
        self._resize(lane, -len(items), -rows)
        predicted_ms = ms[rows]
        self.busy_until_ms = now_ms + predicted_ms
        return Batch(lane, items, rows, predicted_ms)

    def wake_ms(self, now_ms: float) -> float:
        """When the first batch that is held back becomes due; infinite when nothing waits."""
        return max(now_ms, min((self._due_ms(lane) for lane in self._active), default=inf))

    def _due_ms(self, lane: Lane) -> float:
        """Until when a lane's batch may be held back; in the past when it runs at once."""
        if not self._waits or lane.rows >= self._limit[lane]:
            return -inf
        return lane.queue[0][0] - lane.ms[lane.rows + 1]

    def finished(self, lane: Lane, now_ms: float, busy_ms: float) -> None:
        """The slice is free again."""
        self.busy_until_ms = now_ms

    def _resize(self, lane: Lane, count: int, rows: int) -> None:
        """Bring the totals in line after queries came to a lane or left it."""
        self.count += count
        lane.rows += rows
        limit = self._limit[lane]
        full, rest = divmod(lane.rows, limit)
        work_ms = full * lane.ms[limit] + (lane.ms[rest] if rest else 0.0)
        self._work_ms += work_ms - lane.work_ms
        lane.work_ms = work_ms
        if not lane.rows and lane in self._active:
            self._active.remove(lane)
        if not self.count:
            self._work_ms = 0.0
