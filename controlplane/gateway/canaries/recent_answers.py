"""RecentAnswers: which classes answers named lately, so that clients can say which were right.

A ring of a fixed length. It keeps references to what was sent anyway, unless that would keep much
else, in lists of their own: so many tuples would each be looked at by the garbage collector. Which
class is the best is found only when somebody asks.
"""

from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from controlplane.gateway.canaries.arms import Arm
from controlplane.http_errors import request_id
from planner.feedback.by_class import MOST_CLASSES
from planner.sentences import NAMED
from variants.buckets import positions_axis
from variants.errors import Conflict, InvalidInput, NotFound
from variants.figures import counted, some_of
from variants.metrics.metric import MetricKind, parse_metric
from variants.types import Task, TaskName, VariantName
from workers.runtimes.protocol import Tensor

MOST_ANSWERS = 16_384
MOST_BYTES = 64 * 2**20
"""Of all outputs that are kept."""
LONGEST_MS = 600_000.0
BESIDE_BYTES = 4_096
"""That one answer may keep in memory beside its own scores. What comes from a worker is a view of
all that came with it: the answers to others, and outputs that nobody judges by."""
BEST = {MetricKind.TOP1: 1, MetricKind.TOP5: 5, MetricKind.BALANCED: 1, MetricKind.F1: 1}
"""A row counts as right as the accuracy of its task does, where that counts rows."""
UNKNOWN = "no answer with this request id was given through this installation in the last minutes"


class Judged:
    """What came of a client's word on an answer."""

    __slots__ = ("anew", "classes", "right", "task", "variant", "wrong")

    def __init__(
        self,
        task: TaskName,
        variant: VariantName,
        right: int,
        wrong: int,
        classes: Sequence[tuple[int, int]] = (),
        *,
        anew: bool,
    ) -> None:
        self.task = task
        self.variant = variant
        self.right = right
        """Rows."""
        self.wrong = wrong
        self.classes = classes
        """Of each row the number of the right class and of the best one, where the task's accuracy
        is by class (and it has no more of them than are counted)."""
        self.anew = anew
        """False where the same was said before, which counts once."""


def _by_itself(scores: Tensor) -> Tensor:
    """The array itself, or a copy where it would keep much more in memory than its own bytes."""
    whole: Any = scores.base
    if whole is None or memoryview(whole).nbytes <= scores.nbytes + BESIDE_BYTES:
        return scores
    return scores.copy()


@cache
def best_classes(metric: str) -> int:
    """Among how many of a row's best classes the right one has to be; 0: the metric has none."""
    return BEST.get(parse_metric(metric).kind, 0)


class RecentAnswers:
    """The newest answers, by the request id that they carried."""

    def __init__(self, most: int = MOST_ANSWERS) -> None:
        self._most = most
        self._next = 0
        self._oldest = 0
        self._size_bytes = 0
        self._at: dict[str, int] = {}
        self._ids: list[str | None] = [None] * most
        self._tasks: list[Task | None] = [None] * most
        self._variants: list[str] = [""] * most
        self._scores: list[Tensor | None] = [None] * most
        self._arms: list[Arm | None] = [None] * most
        self._given: list[tuple[str, ...] | None] = [None] * most
        self._at_ms = array("d", bytes(8 * most))

    def note(
        self,
        given_id: bytes | None,
        task: Task,
        variant: str,
        outputs: Sequence[Tensor],
        arm: Arm | None,
        now_ms: float,
    ) -> bytes:
        """Keep an answer; the header line that names its request.

        Args:
            given_id: the caller's ``X-Request-Id``.
            arm: what counts the words of clients beside the variant.
        """
        id_ = request_id(given_id)
        at = self._next
        before, scores = self._ids[at], self._scores[at]
        if before is not None:  # it is forgotten, and all that is kept of it written over
            self._oldest = (at + 1) % self._most
            if self._at.get(before) == at:
                del self._at[before]
            if scores is not None:
                self._size_bytes -= scores.nbytes
        first, scores = outputs[0], None
        if first.ndim == 2 and best_classes(task.metric):
            scores = _by_itself(first)
            self._size_bytes += scores.nbytes
        self._scores[at] = scores
        self._ids[at] = id_
        self._tasks[at] = task
        self._variants[at] = variant
        self._arms[at] = arm
        self._given[at] = None
        self._at_ms[at] = now_ms
        self._at[id_] = at
        self._next = (at + 1) % self._most
        while self._size_bytes > MOST_BYTES:
            if self._ids[self._oldest] is not None:
                self._forget(self._oldest)
            self._oldest = (self._oldest + 1) % self._most
        return b"x-request-id: %s\r\n" % id_.encode()

    def judge(self, id_: str, labels: Sequence[str], now_ms: float) -> tuple[Judged, Arm | None]:
        """Take in which classes were right, one for each row of an answer.

        Said twice, the same counts once.

        Raises:
            NotFound: no such answer is known, or it is too old.
            InvalidInput: the labels are not one class of the task for each row, or it has none.
            Conflict: something else was said of it before.
        """
        at = self._at.get(id_)
        if at is None or now_ms - self._at_ms[at] > LONGEST_MS:
            raise NotFound(UNKNOWN)
        task, scores = self._tasks[at], self._scores[at]
        assert task is not None
        if scores is None:
            why = (
                f"its accuracy is by {task.metric}"
                if positions_axis(task) is None
                else "it answers each position of a row"
            )
            raise InvalidInput(
                f"task {task.name!r} has no classes of rows that could be right or wrong: {why}"
            )
        rows = scores.reshape(len(scores), -1)
        if len(labels) != len(rows):
            raise InvalidInput(
                f"{counted(len(labels), 'label')} for an answer with {counted(len(rows), 'row')}:"
                " say the right class of each row"
            )
        classes = task.labels or tuple(map(str, range(rows.shape[1])))  # unnamed ones are numbered
        unknown = next((label for label in labels if label not in classes), None)
        if unknown is not None:
            raise InvalidInput(
                f"task {task.name!r} has no class {unknown[:128]!r}; there are:"
                f" {some_of(classes, NAMED)}"
            )
        said, before = tuple(labels), self._given[at]
        if before is not None and before != said:
            raise Conflict("other labels were given for this request before")
        most = min(best_classes(task.metric), rows.shape[1])
        best = np.argsort(-rows, axis=1, kind="stable")[:, :most].tolist()
        numbers = {label: number for number, label in enumerate(classes)}
        pairs = [(numbers[label], row) for label, row in zip(labels, best, strict=True)]
        right = sum(number in row for number, row in pairs)
        by_class = (
            [(number, row[0]) for number, row in pairs]
            if parse_metric(task.metric).by_class and len(classes) <= MOST_CLASSES
            else ()
        )
        self._given[at] = said
        variant = VariantName(self._variants[at])
        wrong = len(rows) - right
        judged = Judged(task.name, variant, right, wrong, by_class, anew=before is None)
        return judged, self._arms[at]

    def _forget(self, at: int) -> None:
        id_, scores = self._ids[at], self._scores[at]
        if scores is not None:
            self._size_bytes -= scores.nbytes
        if id_ is not None and self._at.get(id_) == at:
            del self._at[id_]
        self._ids[at] = self._tasks[at] = self._scores[at] = None
        self._arms[at] = self._given[at] = None
