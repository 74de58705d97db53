"""AccuracyWatch: holds what clients say of answers against the accuracy that was measured.

Where it contradicts, that is told. Of the tasks that the operator has named
(``MODELLESS_TRUST_FEEDBACK``) it counts as well: gateways answer queries by it, and plans are made
by it. Gateways report how many rows were right and wrong since they started, and this takes the
differences. What was said lately is kept in the catalog for the control loop that takes over.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from controlplane.controller.events.journal import Journal
from controlplane.controller.kept_notes import KeptNotes
from planner.feedback.accuracies import Accuracies, Counted
from planner.feedback.by_class import MOST_CLASSES, ByClass, Said
from planner.feedback.evidence import Evidence, Finding, words
from variants.catalog.protocol import Catalog
from variants.metrics.metric import Metric, parse_metric
from variants.types import CatalogSnapshot, Task, TaskName, Variant, VariantKey, VariantName

NAME = "feedback"
"""What was said is kept under it."""
KEEP_EVERY_S = 10.0
GONE_S = 600.0
"""So long what a gateway has counted is remembered when it reports no more: one that comes back
goes on from there."""
ALL = "all"

_Counts = Mapping[str, Mapping[str, list[int]]]
"""Right and wrong rows, by task and variant."""
_ByClass = Mapping[str, Mapping[str, list[list[int]]]]
"""Numbers of classes, and rows of each found, missed, and taken from others, in the same way."""


class AccuracyWatch:
    """Of the installation that leads."""

    def __init__(
        self, catalog: Catalog, journal: Journal, wall_s: Callable[[], float], trusted: str
    ) -> None:
        """
        Args:
            trusted: the setting: names of tasks, or ``all``.
        """
        self._notes = KeptNotes(catalog, NAME, wall_s, KEEP_EVERY_S)
        self._journal = journal
        self._wall_s = wall_s
        self._trusted = names_of(trusted)
        self._evidence: dict[VariantKey, Evidence] = {}
        self._seen: dict[str, tuple[float, _Counts]] = {}
        """By gateway: when it reported last, and what it had counted."""
        self._seen_by_class: dict[str, _ByClass] = {}
        """And of classes."""
        self._accuracies = Accuracies()

    async def recall(self) -> None:
        """Go on from what the control loop before had heard.

        Raises:
            StateUnavailable: the catalog does not answer.
        """
        if (kept := await self._notes.recall()) is None:
            return
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            evidence = {
                (TaskName(task), VariantName(variant)): Evidence.of(each)
                for task, variant, each in kept["evidence"]
            }
            seen: dict[str, tuple[float, _Counts]] = {
                str(gateway): (float(at_s), dict(counts))
                for gateway, (at_s, counts) in kept["seen"].items()
            }
            self._evidence, self._seen = evidence, seen
            # An earlier release kept nothing of classes.
            self._seen_by_class = dict(kept.get("seen_by_class", {}))

    def count(self, reports: Mapping[str, Mapping[str, Any]]) -> None:
        """Take in what gateways have counted since they started."""
        now_s = self._wall_s()
        for gateway, report in reports.items():
            counted: _Counts = report.get("feedback", {})
            by_class: _ByClass = report.get("feedback_by_class", {})
            _, before = self._seen.get(gateway, (0.0, {}))
            classes_before = self._seen_by_class.get(gateway, {})
            for task, of_task in counted.items():
                for variant, (right, wrong) in of_task.items():
                    known_right, known_wrong = before.get(task, {}).get(variant, (0, 0))
                    more = right - known_right, wrong - known_wrong
                    known = _read(classes_before, task, variant)
                    if min(more) < 0:  # it counts anew
                        more, known = (right, wrong), {}
                    if any(more):
                        key = TaskName(task), VariantName(variant)
                        classes = _grown(_read(by_class, task, variant), known)
                        self._evidence.setdefault(key, Evidence()).add(*more, now_s, classes)
                        self._notes.changed()
            self._seen[gateway], self._seen_by_class[gateway] = (now_s, counted), by_class
        gone = [name for name, (at_s, _) in self._seen.items() if now_s - at_s > GONE_S]
        for gateway in gone:
            del self._seen[gateway]
            self._seen_by_class.pop(gateway, None)

    def judge(self, catalog: CatalogSnapshot) -> bool:
        """Compare with what was measured, and tell what contradicts; whether queries and plans go
        by another accuracy now."""
        if not self._evidence:  # nobody says anything
            return False
        now_s = self._wall_s()
        variants = {variant.key: variant for variant in catalog.variants}
        tasks = {task.name: task for task in catalog.tasks}
        judged = {name: by for name, task in tasks.items() if (by := _judged_by(task)) is not None}
        self._evidence = {
            key: one
            for key, one in self._evidence.items()
            if key in variants and (one.rows or one.finding) and variants[key].task in judged
        }
        counted: dict[VariantKey, Finding] = {}
        for key, evidence in self._evidence.items():
            variant, before = variants[key], evidence.finding
            by = judged[variant.task]
            if evidence.judge(variant.accuracy, now_s, by, _classes_of(tasks[key[0]])):
                self._notes.changed()
            finding, trusted = evidence.finding, self._trusts(tasks[variant.task])
            if finding is not None and trusted:
                counted[key] = finding
            if (before is None) is not (finding is None):
                self._tell(variant, evidence, by, trusted=trusted)
        return self._accuracies.know(counted)

    def at(self, catalog: CatalogSnapshot) -> CatalogSnapshot:
        """The catalog that queries and plans go by."""
        return self._accuracies.at(catalog)

    @property
    def counted(self) -> Counted:
        """What counts in place of what was measured."""
        return self._accuracies.counted

    @property
    def contradicted(self) -> Counted:
        """What clients say of each variant of which it contradicts what was measured."""
        return {key: one.finding for key, one in self._evidence.items() if one.finding}

    async def keep(self, epoch: int) -> None:
        """Write down what was said, if that is due.

        Raises:
            StaleEpoch: another control loop leads.
            StateUnavailable: the catalog does not answer; it is tried again.
        """
        await self._notes.keep(self._plain, epoch)

    def _plain(self) -> dict[str, Any]:
        return {
            "evidence": [[*key, one.plain()] for key, one in self._evidence.items()],
            "seen": self._seen,
            "seen_by_class": self._seen_by_class,
        }

    def _trusts(self, task: Task) -> bool:
        names = {str(task.name), str(task.bucket.of) if task.bucket else ""}
        return ALL in self._trusted or bool(names & self._trusted)

    def _tell(self, variant: Variant, evidence: Evidence, by: Metric, *, trusted: bool) -> None:
        subject, finding = "/".join(variant.key), evidence.finding
        if finding is None:
            why = "feedback says so again" if evidence.rows else "nothing was said of it for long"
            self._journal.tell("accuracy_as_measured", subject, f"{why}: what was measured counts")
            return
        so = (
            "queries and plans go by it"
            if trusted
            else "what was measured counts on; MODELLESS_TRUST_FEEDBACK says otherwise"
        )
        said = words(finding, variant.accuracy, variant.accuracy_rows, by)
        self._journal.tell("accuracy_differs", subject, f"{said}; {so}")


def _judged_by(task: Task) -> Metric | None:
    """The metric that feedback can contradict; None where it cannot."""
    metric = parse_metric(task.metric)
    counts = _classes_of(task) <= MOST_CLASSES if metric.by_class else metric.counts_rows
    return metric if counts else None


def _classes_of(task: Task) -> int:
    return task.outputs[0].shape[-1] if task.outputs[0].shape else 0


def _read(told: _ByClass, task: str, variant: str) -> dict[int, Said]:
    rows = told.get(task, {}).get(variant, ())
    return {number: Said(*counts) for number, *counts in rows}


def _grown(now: ByClass, before: ByClass) -> dict[int, Said]:
    """What was said since."""
    none = Said(0, 0, 0)
    more = {
        number: Said(*(a - b for a, b in zip(said, before.get(number, none), strict=True)))
        for number, said in now.items()
    }
    return {number: said for number, said in more.items() if any(said)}


def names_of(trusted: str) -> frozenset[str]:
    """The tasks that the setting names."""
    return frozenset(name.strip() for name in trusted.split(",") if name.strip())
