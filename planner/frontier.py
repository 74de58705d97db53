"""The frontier of a task: the candidates that a choice can fall on, in blocks to skip at once.

Blocks stand on shelves, which are skipped at once too. Of n candidates in an order that a query's
limits cut at one place, a search looks at about ``n / 128 + 16 + 8`` bounds.

A candidate is pruned only when another one, ready on the very same workers, is at least as good in
accuracy, price and latency at every batch size and comes before it in every order. Whatever a query
asks, the pruned one would never have been chosen, so the answer is that of a plain scan.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from math import inf
from operator import attrgetter, le

from planner.types import Block, Candidate, Shelf, TaskView, WorkerView
from variants.types import Task, VariantName

BLOCK = 8
"""Candidates per block. Skipping a block costs about as much as skipping one candidate."""
SHELF = 16
"""Blocks per shelf."""
RUNS = 6
"""So many sets of workers have a run of their own in the latency frontier."""

Workers = tuple[WorkerView, ...]

_by_variant = attrgetter("variant")
_by_price = attrgetter("price_usd_per_1k")


def _latency(candidate: Candidate) -> float:
    return candidate.table.ms[1]


def _inaccuracy(candidate: Candidate) -> float:
    return -candidate.accuracy


def task_view(
    task: Task, candidates: Iterable[Candidate], excluded: Mapping[VariantName, str]
) -> TaskView:
    """A task's view, all of its orders made from its candidates."""
    # Stable sorts, the last key first: cheaper than one sort over tuples.
    by_latency = sorted(candidates, key=_by_variant)
    by_latency.sort(key=_by_price)
    by_latency.sort(key=_latency)
    by_cost = sorted(by_latency, key=_by_price)
    by_accuracy = sorted(by_cost, key=_inaccuracy)
    by_variant: dict[VariantName, list[Candidate]] = {}
    for candidate in by_cost:
        by_variant.setdefault(candidate.variant, []).append(candidate)
    kept = _undominated(by_accuracy)
    return TaskView(
        task=task,
        by_cost=tuple(by_cost),
        by_accuracy=tuple(by_accuracy),
        cost_frontier=shelves([[c for c in by_cost if id(c) in kept]]),
        accuracy_frontier=shelves([[c for c in by_accuracy if id(c) in kept]]),
        latency_frontier=shelves(_runs([c for c in by_latency if id(c) in kept])),
        by_variant={name: tuple(found) for name, found in by_variant.items()},
        excluded=excluded,
        accuracies=tuple(sorted({c.accuracy for c in by_cost if not c.canary})),
    )


def shelves(runs: Sequence[Sequence[Candidate]]) -> tuple[Shelf, ...]:
    """Cut sequences into blocks and these into shelves, their order kept; no shelf spans two."""
    doublings = max((len(c.table.doubling) for run in runs for c in run), default=0)
    made: list[Shelf] = []
    for run in runs:
        found = [_block(run[at : at + BLOCK], doublings) for at in range(0, len(run), BLOCK)]
        made += [_shelf(found[at : at + SHELF]) for at in range(0, len(found), SHELF)]
    return tuple(made)


def _runs(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """One run for each set of workers if these are few, otherwise one for all.

    Where all wait alike, the first that fits is the earliest. To ask for the wait of each set costs
    more than that saves when the sets are many.
    """
    runs: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        runs.setdefault(id(candidate.ready), []).append(candidate)
    return list(runs.values()) if len(runs) <= RUNS else [list(candidates)]


def _block(members: Sequence[Candidate], doublings: int) -> Block:
    rows = [c.table.doubling for c in members]
    return Block(
        max([c.accuracy for c in members]),
        # zip would stop at the shortest; who takes fewer rows is infinitely slow beyond them.
        tuple(map(min, zip_longest(*rows, fillvalue=inf)))
        + (inf,) * (doublings - max(map(len, rows))),
        min([c.price_usd_per_1k for c in members]),
        _common([c.ready for c in members]),
        tuple(members),
    )


def _shelf(members: Sequence[Block]) -> Shelf:
    return Shelf(
        max([block.accuracy for block in members]),
        tuple(map(min, zip(*[block.latency_ms for block in members], strict=True))),
        min([block.price_usd_per_1k for block in members]),
        _common([block.ready for block in members]),
        tuple(members),
    )


def _common(sets: Sequence[Workers | None]) -> Workers | None:
    """The set of workers that all have; equal sets are the same tuple."""
    first = sets[0]
    return first if all(other is first for other in sets) else None


def _undominated(by_accuracy: Sequence[Candidate]) -> set[int]:
    """Ids of the candidates to keep, from all of them by descending accuracy.

    Each is compared with one other, the cheapest so far that is ready on the same workers. On one
    device kind the cheapest is nearly always the fastest too, so this finds nearly all that a
    comparison with everybody would find, in linear time.
    """
    kept: set[int] = set()
    cheapest: dict[int, Candidate] = {}
    for candidate in by_accuracy:
        ready: Workers = candidate.ready
        if not ready or candidate.canary:
            continue
        # The snapshot gives equal sets of workers the same tuple, so its id names the set.
        best = cheapest.get(id(ready))
        if best is not None and _dominates(best, candidate):
            continue
        kept.add(id(candidate))
        if best is None or candidate.price_usd_per_1k < best.price_usd_per_1k:
            cheapest[id(ready)] = candidate
    return kept


def _dominates(one: Candidate, other: Candidate) -> bool:
    """Whether ``one``, at least as accurate, is as cheap and fast at every batch size, and wins
    the tie where it is only equal."""
    ours, theirs = one.table, other.table
    if one.price_usd_per_1k > other.price_usd_per_1k or ours.max_batch < theirs.max_batch:
        return False
    if not all(map(le, ours.ms, theirs.ms)):
        return False
    if one.price_usd_per_1k == other.price_usd_per_1k and ours.ms[1] == theirs.ms[1]:
        return one.variant < other.variant
    return True
