"""AnswerWatch: looks whether answers are divided among the classes as they were.

Workers count, for each variant, how many rows they have answered by each class since it was loaded
there, and tell it with their status. This takes the differences, and holds what came lately against
the first answers, and these against the answers to the held-out rows
(``planner.feedback.answers``). It is kept in the catalog for the control loop that takes over, and
so is the word of an operator that what is told as changed is as it should be.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from controlplane.controller.events.journal import Journal
from controlplane.controller.kept_notes import KeptNotes
from controlplane.controller.watched_answers.answer_words import cell_name, changed_words
from planner.feedback.answers import SPAN_S, Answers, Shift, Standing
from variants.catalog.protocol import Catalog
from variants.metrics.answered import cells_of, classes_of
from variants.types import (
    AcceptedAnswers,
    CatalogSnapshot,
    Task,
    TaskName,
    Variant,
    VariantKey,
    VariantName,
)
from workers.types import WorkerStatus

NAME = "answers"
"""What was counted is kept under it."""
KEEP_EVERY_S = 30.0

_Seen = tuple[int, tuple[int, ...]]
"""Which load it was, and what had been answered since."""


class AnswerWatch:
    """Of the installation that leads."""

    def __init__(
        self,
        catalog: Catalog,
        journal: Journal,
        wall_s: Callable[[], float],
        span_s: float = SPAN_S,
    ) -> None:
        self._notes = KeptNotes(catalog, NAME, wall_s, KEEP_EVERY_S)
        self._journal = journal
        self._wall_s = wall_s
        self._span_s = span_s
        self._answers: dict[VariantKey, Answers] = {}
        self._seen: dict[tuple[str, VariantKey], _Seen] = {}
        """By worker and variant."""
        self._statuses: dict[str, WorkerStatus] = {}
        """What each worker said last."""
        self._began_s = wall_s()
        self._told: dict[VariantKey, dict[str, Any]] = {}
        self._told_by: dict[VariantKey, tuple[int, ...]] = {}
        """By which answers to the held-out rows."""
        self._untold: set[VariantKey] = set()
        """Those of which something was counted since it was told."""

    async def recall(self) -> None:
        """Go on from what the control loop before had counted.

        Raises:
            StateUnavailable: the catalog does not answer.
        """
        if (kept := await self._notes.recall()) is None:
            return
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            self._answers = {
                (TaskName(task), VariantName(variant)): Answers.of(each, self._span_s)
                for task, variant, each in kept
            }
            self._untold = set(self._answers)

    def look(self, statuses: Iterable[WorkerStatus]) -> None:
        """Take in what workers have counted."""
        now_s = self._wall_s()
        there = {status.worker: status for status in statuses}
        for name, status in there.items():
            if self._statuses.get(name) is not status:
                self._take(status, now_s)
        if gone := self._statuses.keys() - there.keys():
            self._seen = {key: one for key, one in self._seen.items() if key[0] not in gone}
        self._statuses = there

    def judge(self, catalog: CatalogSnapshot) -> None:
        """Compare what came lately with what came first, and tell what has changed."""
        if not self._answers:
            return
        now_s = self._wall_s()
        tasks = {task.name: task for task in catalog.tasks}
        variants = {variant.key: variant for variant in catalog.variants}
        gone = {key for key in self._answers if key not in variants}
        for key in gone:
            del self._answers[key]
            self._told.pop(key, None)
            self._told_by.pop(key, None)
        if gone:
            self._seen = {at: one for at, one in self._seen.items() if at[1] not in gone}
        for key, answers in self._answers.items():
            task, variant = tasks[key[0]], variants[key]
            if answers.cells != cells_of(classes_of(task)):  # what was kept is of something else
                continue
            flipped = answers.judge(now_s)
            if flipped or key in self._untold or variant.answered != self._told_by.get(key):
                standing = answers.standing(variant.answered)
                self._told[key] = _plain(task, variant, standing)
                self._told_by[key] = variant.answered
                if flipped:
                    self._notes.changed(at_once=True)  # a word of an operator names when
                    self._tell(task, key, standing)
        self._untold.clear()

    @property
    def told(self) -> list[dict[str, Any]]:
        """What is known of the answers of each variant, as plain JSON values."""
        return [self._told[key] for key in sorted(self._told)]

    @property
    def changed(self) -> bool:
        """Whether answers of any variant have changed."""
        return any(one.changed for one in self._answers.values())

    def accept(self, words: Iterable[AcceptedAnswers]) -> None:
        """Take for none the changes of which operators said that answers are as they should be.
        What is normal is learned anew."""
        for word in words:
            key = word.task, word.variant
            answers = self._answers.get(key)
            if answers is not None and answers.since_s == word.since_s:
                self._answers[key] = Answers(answers.cells, self._span_s)
                self._notes.changed(at_once=True)
                self._untold.add(key)

    async def keep(self, epoch: int) -> None:
        """Write down what was counted, if that is due.

        Raises:
            StaleEpoch: another control loop leads.
            StateUnavailable: the catalog does not answer; it is tried again.
        """
        await self._notes.keep(
            lambda: [[*key, one.plain()] for key, one in self._answers.items()], epoch
        )

    def _take(self, status: WorkerStatus, now_s: float) -> None:
        for replica in status.replicas:
            if not replica.answered:
                continue
            key = replica.task, replica.variant
            at = status.worker, key
            load_no, before = self._seen.get(at, (None, ()))
            if (load_no, before) == (replica.load_no, replica.answered):
                continue
            known = load_no == replica.load_no and len(before) == len(replica.answered)
            counts = np.array(replica.answered, np.int64)
            if known:
                counts -= np.array(before, np.int64)
            elif replica.loaded_for_s > now_s - self._began_s + 1.0:
                counts[:] = 0  # the control loop before has counted most of these
            self._seen[at] = replica.load_no, replica.answered
            if counts.min() < 0 or not counts.any():
                continue
            answers = self._answers.get(key)
            if answers is None or answers.cells != len(counts):
                answers = self._answers[key] = Answers(len(counts), self._span_s)
            answers.add(counts, now_s)
            self._notes.changed()
            self._untold.add(key)

    def _tell(self, task: Task, key: VariantKey, standing: Standing) -> None:
        subject = "/".join(key)
        if standing.changed:
            self._journal.tell("answers_changed", subject, changed_words(task, standing))
            return
        words = "its answers are divided among the classes as its first ones were"
        self._journal.tell("answers_as_before", subject, words)


def _plain(task: Task, variant: Variant, standing: Standing) -> dict[str, Any]:
    """What is known of a variant's answers."""
    return {
        "task": variant.task,
        "variant": variant.name,
        "rows": standing.rows,
        "first_rows": standing.first_rows,
        "complete": standing.complete,
        "moved": _rounded(standing.moved),
        "changed": standing.changed,
        "since_s": standing.since_s,
        "shifts": _shifts(task, standing.shifts),
        "from_held_out": _rounded(standing.from_held_out),
        "differs": standing.differs,
        "differences": _shifts(task, standing.differences),
    }


def _shifts(task: Task, shifts: Iterable[Shift]) -> list[dict[str, Any]]:
    return [
        {
            "classes": cell_name(task, one.cell),
            "before": _rounded(one.before),
            "now": _rounded(one.now),
        }
        for one in shifts
    ]


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
