"""Fairness between the tasks of one slice: which of them use more time than their share.

Each task has a planned share of the slice's time. A task is above it when its part of the busy time
of the last seconds, queued work included, exceeds ``EXCESS`` times the share. Shares count among
the tasks that are active, i.e. of which a query arrived lately. Time that no plan names is split
equally among the active tasks without a share; where every active task has one, it is split among
them in proportion to their shares.
"""

from collections.abc import Iterable, Sequence

from planner.batching.variant_queues import TaskShare

EXCESS = 1.25
"""A task is above its share when it uses so many times as much: chance alone is no excess."""
ACTIVE_MS = 2_000.0
"""A task counts as active for this long after a query of it arrived, and as short of time for this
long after one was refused."""


def is_over_share(task_share: TaskShare, shares: Iterable[TaskShare], now_ms: float) -> bool:
    """Whether a task has used more than its share; False where no other task is active.

    Args:
        task_share: the task in question.
        shares: all tasks of the slice, this one included.
        now_ms: on the clock of ``TaskShare.stamp_ms``.
    """
    active = [share for share in shares if now_ms - share.seen_ms <= ACTIVE_MS]
    if len(active) < 2:
        return False
    used_ms = sum([share.used_ms(now_ms) for share in active])
    return task_share.used_ms(now_ms) > EXCESS * entitled(task_share, active) * used_ms


def entitled(task_share: TaskShare, active: Sequence[TaskShare]) -> float:
    """The part that a task may have, in [0, 1], among those that are active, itself included."""
    planned = sum([share.share for share in active])
    unplanned = sum([not share.share for share in active])
    if not unplanned:
        return task_share.share / planned
    return task_share.share or max(0.0, 1.0 - planned) / unplanned
