"""A feasible schedule: batches that would run one after the other with every query in time.

It is the proof behind admission when slack is short and the queue is long. It need not be followed;
it only has to exist. Three things hold for it, where the head of a batch is its first query:

* Batches are in the order of their heads' deadlines, and each is done by its head's deadline, hence
  by the deadline of every query in it.
* The batches of a variant are consecutive pieces of its queue, earliest deadline first. So the
  first batch holds the most urgent query of all and is a prefix of its queue.
* A batch costs what the variant's table says of its rows: nothing is assumed of later merging.

*Why a proof stays one.* Running the first batch leaves the others, which begin when it is done: the
rest of a schedule in time is a schedule in time. A query enters only if the schedule with it is in
time again. A batch that takes more than the first entry runs only if what it leaves is in time from
its end. So real batching departs from the schedule only to something verified, and while latencies
are as predicted no admitted query is late.

The order is kept in blocks of a few dozen batches. Each block knows how long it takes and its least
slack, counted from its own begin. So the question whether all batches from one on are in time costs
the square root of their number, in C loops, and a change costs one block.
"""

from bisect import bisect, bisect_left
from collections.abc import Container, Iterable, Sequence
from itertools import accumulate, islice
from math import inf
from operator import sub

from planner.batching.planned_batches import BatchRow, PlannedBatch, apart, joined
from planner.batching.variant_queues import ROUNDING_MS, Entry, Item, VariantQueue

BLOCK = 48
"""Batches in a block when it is cut in two; of the order of the root of the longest queue."""
HEADROOM = 1.02
"""A queue whose correction rises is costed with so much more, so that small rises cost nothing."""
STALE = 1.05
"""A queue whose correction fell by so much is costed anew."""

Change = tuple[list[PlannedBatch], list[PlannedBatch]]
"""Batches that left and batches that took their place."""


class _Block:
    """Neighbouring batches; four lists side by side, so that sums run in C."""

    __slots__ = ("batches", "costs", "heads", "limits")

    def __init__(self, batches: list[PlannedBatch]) -> None:
        self.batches = batches
        self.heads = [batch.entries[0] for batch in batches]
        self.limits = [head[0] for head in self.heads]
        self.costs = [batch.cost_ms for batch in batches]


class FeasibleSchedule:
    """Batches in the order of their heads' deadlines, with their slack."""

    def __init__(self, batches: Iterable[tuple[VariantQueue, list[Entry]]]) -> None:
        """Take batches over; those of a variant are consecutive pieces of its queue."""
        self.added = 0
        """Queries that entered one by one since the schedule was made."""
        self._rows: dict[VariantQueue, BatchRow] = {}
        ordered = sorted(
            (PlannedBatch(queue, entries, queue.correction) for queue, entries in batches),
            key=_head,
        )
        for batch in ordered:
            row = self._row(batch.queue)
            row.batches.append(batch)
            row.heads.append(batch.entries[0])
        self._blocks = [
            _Block(ordered[at : at + BLOCK // 2]) for at in range(0, len(ordered), BLOCK // 2)
        ]
        self._firsts: list[Entry] = [block.heads[0] for block in self._blocks]
        self._totals = [0.0] * len(self._blocks)
        self._slacks = [inf] * len(self._blocks)
        for at in range(len(self._blocks)):
            self._refresh(at)

    # -- questions --------------------------------------------------------------------------------

    def in_time(self, start_ms: float, since: Entry | None = None) -> bool:
        """Whether all batches are done by their deadlines, or those from an entry on."""
        if since is None:
            return self._slack_ms(start_ms, 0) >= -ROUNDING_MS
        at = self._block_of(since)
        if self._slack_ms(start_ms, at + 1) < -ROUNDING_MS:
            return False
        begin_ms = start_ms + sum(self._totals[:at])
        if self._slacks[at] - begin_ms >= -ROUNDING_MS:
            return True
        block = self._blocks[at]  # a batch in it is late: does it come before the entry?
        done_ms = accumulate(block.costs, initial=begin_ms)
        late = (
            e
            for e, d in zip(block.heads, islice(done_ms, 1, None), strict=True)
            if d > e[0] + ROUNDING_MS
        )
        return all(head < since for head in late)

    def batches(self, queue: VariantQueue) -> list[list[Entry]]:
        """The batches of a variant, in order."""
        row = self._rows.get(queue)
        return [batch.entries for batch in row.batches] if row is not None else []

    def first_count(self, queue: VariantQueue) -> int:
        """How many queries the first batch of a variant has."""
        return len(self._rows[queue].batches[0].entries)

    # -- changes ----------------------------------------------------------------------------------

    def insert(
        self, entry: Entry, start_ms: float, limit_ms: float = inf, room_ms: float = 0.0
    ) -> bool:
        """Take a query in if all are in time with it, and it is done by ``limit_ms`` as well.

        Where batches save time it joins its neighbours, and costs only what it adds to their batch.
        If that makes a query late, or batches save nothing, it gets a place by its own deadline and
        delays only what comes behind.

        Args:
            entry: the query, which is in no batch yet.
            start_ms: when the first batch begins.
            limit_ms: when the query has to be done at the latest, beside its own deadline.
            room_ms: slack that a batch which is opened for it has to keep, so that it can grow.

        Returns:
            Whether it was taken in; if not, nothing has changed.
        """
        queue = entry[2].queue
        row = self._row(queue)
        at = bisect(row.heads, entry) - 1
        ways = (joined, apart) if queue.gains else (apart,)
        for way in ways:
            pieces = way(row, at, entry)
            if pieces is None:
                continue
            count, cut = pieces
            begin = max(at, 0)
            olds = row.batches[begin : begin + count]
            news = [PlannedBatch(queue, entries, row.factor) for entries in cut]
            bounds: list[tuple[PlannedBatch, float]] = []
            if limit_ms < entry[0]:
                bounds.append((next(b for b in news if entry in b.entries), limit_ms))
            if room_ms > 0.0 and len(news) > len(olds):
                opened = news[min(len(olds), len(news) - 1)]
                bounds.append((opened, opened.entries[0][0] - room_ms))
            if self._fits(olds, news, start_ms, bounds):
                self.added += 1
                return True
        return False

    def take(self, queue: VariantQueue, count: int) -> Change:
        """Take out the earliest queries of a variant; ``undo`` takes it back."""
        row = self._rows[queue]
        olds: list[PlannedBatch] = []
        news: list[PlannedBatch] = []
        for batch in row.batches:
            if not count:
                break
            olds.append(batch)
            if len(batch.entries) > count:
                news.append(PlannedBatch(queue, batch.entries[count:], row.factor))
                break
            count -= len(batch.entries)
        self._swap(olds, news)
        return olds, news

    def undo(self, change: Change) -> None:
        olds, news = change
        self._swap(news, olds)

    def without(self, gone: Container[Item]) -> "FeasibleSchedule":
        """The same without some queries. If all were in time, all that are left are.

        A batch whose first queries leave may come behind others. It is done when the last of those
        was before, which was in time, and is due no sooner.
        """
        left = (
            (batch.queue, kept)
            for block in self._blocks
            for batch in block.batches
            if (kept := [entry for entry in batch.entries if entry[2] not in gone])
        )
        found = FeasibleSchedule(left)
        found.added = self.added
        return found

    def recost(self, queue: VariantQueue, *, anew: bool = False) -> None:
        """Follow a variant's correction, or with ``anew`` its table."""
        row = self._row(queue)
        risen = queue.correction > row.factor
        if not (anew or risen or queue.correction * STALE < row.factor):
            return
        row.factor = queue.correction * (HEADROOM if risen else 1.0)
        for batch in row.batches:
            batch.cost_ms = queue.ms[batch.rows] * row.factor
        for at, block in enumerate(self._blocks):
            block.costs = [batch.cost_ms for batch in block.batches]
            self._refresh(at)

    # -- inside -----------------------------------------------------------------------------------

    def _row(self, queue: VariantQueue) -> BatchRow:
        row = self._rows.get(queue)
        if row is None:
            row = self._rows[queue] = BatchRow(queue.correction)
        return row

    def _fits(
        self, olds: list[PlannedBatch], news: list[PlannedBatch], start_ms: float,
        bounds: list[tuple[PlannedBatch, float]],
    ) -> bool:  # fmt: skip
        """Exchange batches if every query is in time then; leave all as it was otherwise.

        ``bounds`` are new batches, each with a time by which it has to be done beyond that.
        """
        first = min(olds[0].entries[0], news[0].entries[0]) if olds else news[0].entries[0]
        last = max(olds[-1].entries[0], news[-1].entries[0]) if olds else news[-1].entries[0]
        more_ms = sum([b.cost_ms for b in news]) - sum([b.cost_ms for b in olds])
        # What comes behind all of the change is delayed by exactly what it adds.
        beyond = self._block_of(last) + 1
        if self._slack_ms(start_ms, beyond) < more_ms - ROUNDING_MS:
            return False
        self._swap(olds, news)
        if self.in_time(start_ms, first) and (
            not bounds
            or all(self._done_ms(batch, start_ms) <= limit_ms for batch, limit_ms in bounds)
        ):
            return True
        self._swap(news, olds)
        return False

    def _done_ms(self, batch: PlannedBatch, start_ms: float) -> float:
        """When a batch is done."""
        at = self._block_of(batch.entries[0])
        block = self._blocks[at]
        upto = bisect(block.heads, batch.entries[0])
        return start_ms + sum(self._totals[:at]) + sum(block.costs[:upto])

    def _slack_ms(self, start_ms: float, since: int) -> float:
        """The least slack in the blocks from one on."""
        totals = self._totals
        if since >= len(totals):
            return inf
        begin_ms = start_ms + sum(totals[:since])
        begins = accumulate(totals[since:], initial=begin_ms)
        return float(min(map(sub, self._slacks[since:], begins)))

    def _block_of(self, entry: Entry) -> int:
        at = bisect(self._firsts, entry)
        return at - 1 if at else 0

    def _swap(self, olds: Sequence[PlannedBatch], news: Sequence[PlannedBatch]) -> None:
        """Exchange batches of one variant; one that keeps its place in the order costs little.

        Where queries move on to later batches, the last goes first: no two batches may have the
        same head meanwhile, as they are found by it.
        """
        for batch in olds[len(news) :]:
            self._remove(batch)
        pairs = list(zip(olds, news, strict=False))
        if pairs and pairs[-1][1].entries[0] > pairs[-1][0].entries[0]:
            pairs.reverse()
        dirty: set[int] = set()
        kept = 0
        for old, new in pairs:
            at = self._replaced(old, new)
            if at < 0:
                break
            dirty.add(at)
            kept += 1
        for at in dirty:
            self._refresh(at)
        for old, _ in pairs[kept:]:
            self._remove(old)
        for _, new in pairs[kept:]:
            self._add(new)
        for batch in news[len(olds) :]:
            self._add(batch)

    def _replaced(self, old: PlannedBatch, new: PlannedBatch) -> int:
        """Put a batch in the place of another; its block, or -1 if the order does not allow it."""
        was, head = old.entries[0], new.entries[0]
        at = self._block_of(was)
        block = self._blocks[at]
        heads = block.heads
        index = bisect_left(heads, was)
        if head is not was:
            if head < was:
                before = heads[index - 1] if index else None
                if before is None and at:
                    before = self._blocks[at - 1].heads[-1]
                if before is not None and before > head:
                    return -1
            else:
                behind = heads[index + 1] if index + 1 < len(heads) else None
                if behind is None and at + 1 < len(self._firsts):
                    behind = self._firsts[at + 1]
                if behind is not None and behind < head:
                    return -1
            heads[index] = head
            block.limits[index] = head[0]
            if not index:
                self._firsts[at] = head
        row = self._rows[new.queue]
        place = bisect_left(row.heads, was)
        row.heads[place] = head
        row.batches[place] = new
        block.batches[index] = new
        block.costs[index] = new.cost_ms
        return at

    def _add(self, batch: PlannedBatch) -> None:
        head = batch.entries[0]
        row = self._rows[batch.queue]
        at = bisect(row.heads, head)
        row.heads.insert(at, head)
        row.batches.insert(at, batch)
        if not self._blocks:
            self._blocks.append(_Block([batch]))
            self._firsts.append(head)
            self._totals.append(0.0)
            self._slacks.append(0.0)
            self._refresh(0)
            return
        at = self._block_of(head)
        block = self._blocks[at]
        index = bisect(block.heads, head)
        block.heads.insert(index, head)
        block.limits.insert(index, head[0])
        block.costs.insert(index, batch.cost_ms)
        block.batches.insert(index, batch)
        if len(block.heads) > BLOCK:
            half = _Block(block.batches[BLOCK // 2 :])
            for column in (block.heads, block.limits, block.costs, block.batches):
                del column[BLOCK // 2 :]
            self._blocks.insert(at + 1, half)
            self._firsts.insert(at + 1, half.heads[0])
            self._totals.insert(at + 1, 0.0)
            self._slacks.insert(at + 1, 0.0)
            self._refresh(at + 1)
        self._refresh(at)

    def _remove(self, batch: PlannedBatch) -> None:
        head = batch.entries[0]
        row = self._rows[batch.queue]
        at = bisect_left(row.heads, head)
        del row.heads[at], row.batches[at]
        at = self._block_of(head)
        block = self._blocks[at]
        index = bisect_left(block.heads, head)
        del block.heads[index], block.limits[index], block.costs[index], block.batches[index]
        if block.heads:
            self._refresh(at)
        else:
            del self._blocks[at], self._firsts[at], self._totals[at], self._slacks[at]

    def _refresh(self, at: int) -> None:
        block = self._blocks[at]
        self._firsts[at] = block.heads[0]
        self._totals[at] = sum(block.costs)
        self._slacks[at] = min(map(sub, block.limits, accumulate(block.costs)))


def _head(batch: PlannedBatch) -> Entry:
    return batch.entries[0]
