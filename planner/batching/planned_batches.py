"""The batches of a feasible schedule, and the two ways in which a query finds its place among them.

A query joins the batch of its neighbours (``joined``), or gets a place by its own deadline
(``apart``). Both only say which batches would be replaced by which; the schedule checks whether all
queries are in time then.
"""

from bisect import bisect, insort

from planner.batching.variant_queues import Entry, VariantQueue

HOPS = 8
"""Full batches that a new query may shift by one before a new batch is opened behind them."""


class PlannedBatch:
    """A batch of the schedule: neighbours in the queue of one variant."""

    __slots__ = ("cost_ms", "entries", "queue", "rows")

    def __init__(self, queue: VariantQueue, entries: list[Entry], factor: float) -> None:
        self.queue = queue
        self.entries = entries
        self.rows = (
            entries[0][2].rows if len(entries) == 1 else sum([entry[2].rows for entry in entries])
        )
        self.cost_ms = queue.ms[self.rows] * factor


class BatchRow:
    """The batches of one variant, in order, with their first queries."""

    __slots__ = ("batches", "factor", "heads")

    def __init__(self, factor: float) -> None:
        self.factor = factor
        """The correction that the costs count with; never below the variant's own."""
        self.batches: list[PlannedBatch] = []
        self.heads: list[Entry] = []


Cut = tuple[int, list[list[Entry]]]
"""How many batches of the variant are replaced, and the queries of those that replace them."""


def joined(row: BatchRow, at: int, entry: Entry) -> Cut | None:
    """Put a query into the batch of its neighbours; a full one passes its last query on, and so on.

    Args:
        row: the batches of the query's variant.
        at: number of the batch before the query; -1 when it comes first.
        entry: the query.

    Returns:
        The change, from batch ``max(at, 0)`` on; None where no batch can hold what is passed on.
    """
    largest = entry[2].queue.limit
    begin = max(at, 0)
    carried = [entry]
    cut: list[list[Entry]] = []
    for batch in row.batches[begin : begin + HOPS]:
        entries = batch.entries.copy()
        for each in carried:
            insort(entries, each)
        rows = batch.rows + sum([each[2].rows for each in carried])
        keep = len(entries)
        while rows > largest:
            keep -= 1
            rows -= entries[keep][2].rows
        carried = entries[keep:]
        cut.append(entries[:keep])
        if not carried:
            return len(cut), cut
    if sum([each[2].rows for each in carried]) > largest:
        return None
    return len(cut), [*cut, carried]


def apart(row: BatchRow, at: int, entry: Entry) -> Cut:
    """Open a batch at the place of the query's own deadline; a batch that spans it is cut there.

    Takes and returns the same as ``joined``.
    """
    if at < 0 or entry > row.batches[at].entries[-1]:
        return 0, [[entry]]
    batch = row.batches[at]
    middle = bisect(batch.entries, entry)
    before, behind = batch.entries[:middle], batch.entries[middle:]
    queue = entry[2].queue
    if queue.gains and entry[2].rows + sum(e[2].rows for e in behind) <= queue.limit:
        return 1, [before, [entry, *behind]]
    return 1, [before, [entry], behind]
