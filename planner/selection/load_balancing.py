"""Load balancing: which of the workers that hold a variant answers, or which host loads it.

All functions take the same arguments, so that selection can use any of them: the workers, random
bits, the time now in ms, and a worker to avoid.
"""

from planner.types import WorkerView
from variants.types import WorkerId


def route(
    workers: tuple[WorkerView, ...], draw: int, now_ms: float, avoid: WorkerId | None
) -> WorkerView | None:
    """The less busy of two workers drawn at random (Mitzenmacher 2001).

    ``draw`` gives the random bits, at least 32 of them so that no pair is favoured. A worker whose
    work was expected to be done before ``now_ms`` is idle, however long ago that was.

    Returns None when there is no worker besides ``avoid``.
    """
    if avoid is not None:
        workers = tuple(worker for worker in workers if worker.id != avoid)
    count = len(workers)
    if count == 1:
        return workers[0]
    if count == 0:
        return None
    draw, first = divmod(draw, count)
    second = (first + 1 + draw % (count - 1)) % count
    one, other = workers[first], workers[second]
    if other.busy_until_ms < one.busy_until_ms and one.busy_until_ms > now_ms:
        return other
    return one


def least_busy(
    workers: tuple[WorkerView, ...], draw: int, now_ms: float, avoid: WorkerId | None
) -> WorkerView | None:
    """The worker of all that is free first, for a second look before a query is refused.

    ``draw`` is not used: idle workers tie, and the first of them is taken.

    Returns None when there is no worker besides ``avoid``.
    """
    best: WorkerView | None = None
    best_wait_ms = 0.0
    for worker in workers:
        wait_ms = max(0.0, worker.busy_until_ms - now_ms)
        if worker.id != avoid and (best is None or wait_ms < best_wait_ms):
            best, best_wait_ms = worker, wait_ms
    return best


def roomiest(
    workers: tuple[WorkerView, ...], draw: int, now_ms: float, avoid: WorkerId | None
) -> WorkerView | None:
    """The worker with the most free memory, to load on; ties go to the one that is free first.

    ``draw`` is not used: gateways that choose the same host cause one load instead of several.

    Returns None when there is no worker besides ``avoid``.
    """
    best: WorkerView | None = None
    best_rank = (0.0, 0.0)
    for worker in workers:
        rank = (-worker.free_mib, max(0.0, worker.busy_until_ms - now_ms))
        if worker.id != avoid and (best is None or rank < best_rank):
            best, best_rank = worker, rank
    return best
