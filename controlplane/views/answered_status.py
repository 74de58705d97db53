"""AnsweredStatus: which tasks nothing can answer now, and why, before a query meets it.

A fleet may run as planned and every query of the last minute be answered, while a task that nobody
has asked yet has only variants that are forbidden, in quarantine or too large for each worker. The
page, ``modelless status`` and ``modelless top`` go by what is decided here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from planner.selection.missing_workers import WAITS
from planner.types import Refusal, RefusalCode
from variants.figures import some_of
from variants.types import CatalogSnapshot, Stage, TaskName

NAMED = 3
"""Tasks, variants and groups of tasks that the sentence names."""


class AnsweredLevel(StrEnum):
    """Whether each task could be answered."""

    ANSWERED = "tasks_answered"
    """Also one of which no version is live: that is told where the task is shown."""
    UNANSWERED = "tasks_unanswered"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredStatus:
    """Whether each task could be answered."""

    level: AnsweredLevel
    sentence: str
    """Empty where each could."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Those that could not, and why."""


def answered_status(
    catalog: CatalogSnapshot, refused: Mapping[TaskName, Refusal]
) -> AnsweredStatus:
    """Say of the tasks that no query would get an answer of, why that is so.

    Args:
        refused: what a query of each that asks for nothing would get.
    """
    stages = {(v.task, v.model, v.version): v.stage for v in catalog.versions}
    why: dict[str, str] = {}
    for task, refusal in sorted(refused.items()):
        live = [
            str(one.name)
            for one in catalog.variants
            if one.task == task and stages.get((one.task, one.model, one.version)) is Stage.LIVE
        ]
        if live:
            why[task] = _why(refusal, live)
    if not why:
        return AnsweredStatus(level=AnsweredLevel.ANSWERED, sentence="")
    alike: dict[str, list[str]] = {}
    for name, reason in why.items():
        alike.setdefault(reason, []).append(name)
    said = [
        f"{some_of(tasks, NAMED)} cannot be answered now: {reason}."
        for reason, tasks in islice(alike.items(), NAMED)
    ]
    if (more := len(alike) - NAMED) > 0:
        said.append(f"There are {more} more reasons of other tasks.")
    return AnsweredStatus(level=AnsweredLevel.UNANSWERED, sentence=" ".join(said), tasks=why)


def _why(refusal: Refusal, live: list[str]) -> str:
    """What stands in the way, by the variants that could answer otherwise."""
    if refusal.code is RefusalCode.NO_WORKERS:
        if refusal.awaited:  # which the message says of one query
            return f"{refusal.message.removesuffix(WAITS)}, and queries that have the time wait"
        return refusal.message
    reasons = {name: refusal.reasons[name] for name in live if name in refusal.reasons}
    if not reasons:
        return refusal.message
    alike: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        alike.setdefault(reason, []).append(name)
    return some_of([f"{some_of(names, NAMED)}: {reason}" for reason, names in alike.items()], NAMED)
