"""A queue that knows no deadlines: first in, first out, up to a batch size fixed beforehand.

It serves the policies whose papers batch without looking at deadlines. The variant whose oldest
query came first runs next, with all that waits for it up to its batch size; nothing waits to fill a
batch, nobody is refused because of a deadline. A query whose deadline passed before it ran is given
up, as nobody waits for its answer any more: the papers are silent here, and without it none of them
would come back from a moment of overload.

All times are milliseconds on one clock of the caller's choosing.
"""

from collections import OrderedDict
from collections.abc import Callable
from math import inf

from planner.batching import MAX_QUEUE, Batch, Verdict
from planner.deadlines import Deadlines
from planner.lanes import Item, Lane, Tenant
from planner.types import LatencyTable


class FifoQueue:
    """The queue of one slice, in order of arrival. Deterministic; knows no clock."""

    def __init__(
        self, batch: Callable[[str, LatencyTable], int], max_queue: int = MAX_QUEUE
    ) -> None:
        """``batch`` gives the largest batch of a lane, from its task and table."""
        self.max_queue = max_queue
        self.busy_until_ms = 0.0
        self.count = 0
        self._batch = batch
        self._limit: dict[Lane, int] = {}
        self._waiting: dict[Lane, OrderedDict[int, Item]] = {}
        """By lane, those that have any: order of arrival to query, oldest first."""
        self._deadlines = Deadlines(self._waits)
        self._order = 0
        self._work_ms = 0.0

    # -- lanes ------------------------------------------------------------------------------------

    def add_lane(self, task: str, table: LatencyTable, share: float = 0.0) -> Lane:
        """A lane for a variant that was loaded; ``share`` plays no part."""
        lane = Lane(task, Tenant(), table)
        self._limit[lane] = min(max(1, self._batch(task, table)), table.max_batch)
        return lane

    def remove_lane(self, lane: Lane) -> None:
        """Forget an empty lane."""
        del self._limit[lane]

    def take(self, lane: Lane) -> list[Item]:
        """Take out all that waits in a lane, earliest deadline first."""
        items = sorted(self._waiting.pop(lane, {}).values(), key=lambda item: item.deadline_ms)
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
        waiting = self._waiting.get(lane)
        if waiting is None:
            waiting = self._waiting[lane] = OrderedDict()
        self._order += 1
        waiting[self._order] = item
        self._resize(lane, 1, item.rows)
        self._deadlines.add(item.deadline_ms, self._order, lane, self.count)
        return Verdict.ADMITTED

    def pop_expired(self, now_ms: float) -> list[Item]:
        """Take out the queries whose deadline has passed, earliest deadline first."""
        late: list[Item] = []
        for lane, order in self._deadlines.passed(now_ms):
            item = self._waiting[lane].pop(order)
            self._resize(lane, -1, -item.rows)
            late.append(item)
        return late

    def _waits(self, lane: Lane, order: int) -> bool:
        return order in self._waiting.get(lane, ())

    # -- batches ----------------------------------------------------------------------------------

    def next_batch(self, now_ms: float) -> Batch | None:
        """Take out what runs now, or None when nothing waits. The slice must be free."""
        if not self.count:
            return None
        lane = min(self._waiting, key=lambda lane: next(iter(self._waiting[lane])))
        waiting, limit = self._waiting[lane], self._limit[lane]
        items = [waiting.popitem(last=False)[1]]
        rows = items[0].rows
        while waiting:
            item = waiting[next(iter(waiting))]
            if rows + item.rows > limit:
                break
            waiting.popitem(last=False)
            items.append(item)
            rows += item.rows
        self._resize(lane, -len(items), -rows)
        predicted_ms = lane.ms[rows]
        self.busy_until_ms = now_ms + predicted_ms
        return Batch(lane, items, rows, predicted_ms)

    def wake_ms(self, now_ms: float) -> float:
        """Never: whatever waits runs as soon as the slice is free."""
        return inf

    def finished(self, lane: Lane, now_ms: float, busy_ms: float) -> None:
        """The slice is free again."""
        self.busy_until_ms = now_ms

    def _resize(self, lane: Lane, count: int, rows: int) -> None:
        """Bring the totals in line after queries came to a lane or left it."""
        self.count += count
        lane.rows += rows
        full, rest = divmod(lane.rows, self._limit[lane])
        work_ms = full * lane.ms[self._limit[lane]] + (lane.ms[rest] if rest else 0.0)
        self._work_ms += work_ms - lane.work_ms
        lane.work_ms = work_ms
        if not lane.rows:
            self._waiting.pop(lane, None)
        if not self.count:
            self._work_ms = 0.0
