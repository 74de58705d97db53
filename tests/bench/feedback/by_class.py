"""As ``found``, where each class counts alike: rows until another accuracy is found, and how often
one is found that is not there.

    python -m tests.bench.feedback.by_class [--days 10] [--only '10 classes']

Answers are drawn by a table of which class is taken for which. A fall is of all classes alike, or
of the rarest alone. Beside what is used (all classes together) it counts what a sequence for each
class would need, each at its part of the error.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from planner.canary.sequences import bounds
from planner.feedback.by_class import Said
from planner.feedback.evidence import ERROR, MARGIN, Evidence
from variants.metrics.metric import Metric, MetricKind

BALANCED, F1 = Metric(kind=MetricKind.BALANCED), Metric(kind=MetricKind.F1)
RUNS, MOST_ROWS, EVERY = 20, 4_000, 20
FEW = 10
"""With more classes a sequence for each is not waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How frequent classes are, and how many rows of each are found; the others are taken for the
    next class."""

    frequency: Sequence[float]
    recall: Sequence[float]

    @property
    def classes(self) -> int:
        return len(self.frequency)

    def accuracy(self, metric: Metric) -> float:
        """By the metric, of infinitely many rows."""
        if metric == BALANCED:
            return sum(self.recall) / self.classes
        found = []
        for own in range(self.classes):
            before = (own - 1) % self.classes
            taken = self.frequency[before] * (1 - self.recall[before])
            right, missed = self.frequency[own] * self.recall[own], 1 - self.recall[own]
            found.append(2 * right / (2 * right + taken + self.frequency[own] * missed))
        return sum(found) / self.classes

    def row(self, rng: random.Random) -> tuple[int, int]:
        """The class of a row, and the one that is answered."""
        own = rng.choices(range(self.classes), self.frequency)[0]
        return own, own if rng.random() < self.recall[own] else (own + 1) % self.classes


def alike(classes: int, recall: float) -> World:
    return World(frequency=[1 / classes] * classes, recall=[recall] * classes)


def fraud(recall: float) -> World:
    """One class in fifty, and the other found in 0.99."""
    return World(frequency=[0.98, 0.02], recall=[0.99, recall])


CASES: tuple[tuple[str, World, tuple[World, ...]], ...] = (
    (
        "2 classes alike",
        alike(2, 0.976),
        (alike(2, 0.95), alike(2, 0.93), alike(2, 0.9), alike(2, 0.8)),
    ),
    (
        "10 classes alike",
        alike(10, 0.976),
        (alike(10, 0.95), alike(10, 0.93), alike(10, 0.9), alike(10, 0.8)),
    ),
    ("100 classes alike", alike(100, 0.976), (alike(100, 0.9), alike(100, 0.8), alike(100, 0.5))),
    ("one in fifty", fraud(0.8), (fraud(0.6), fraud(0.4), fraud(0.0))),
)


class Counts:
    def __init__(self) -> None:
        self.each: dict[int, list[int]] = {}

    def add(self, own: int, answered: int) -> dict[int, Said]:
        """Take in a row; what it counts for."""
        more = {own: Said(1, 0, 0)} if own == answered else {
            own: Said(0, 1, 0), answered: Said(0, 0, 1),
        }  # fmt: skip
        for number, said in more.items():
            known = self.each.setdefault(number, [0, 0, 0])
            for at, count in enumerate(said):
                known[at] += count
        return more

    def excludes(self, metric: Metric, classes: int, measured: float) -> bool:
        """Whether a sequence for each class excludes what was measured."""
        low = high = 0.0
        for number in range(classes):
            found, missed, taken = self.each.get(number, (0, 0, 0))
            rows = found + missed + (0 if metric == BALANCED else taken)
            ends = bounds(found, rows, ERROR / classes)
            if metric == F1:
                ends = 2 * ends[0] / (1 + ends[0]), 2 * ends[1] / (1 + ends[1])
            low, high = low + ends[0] / classes, high + ends[1] / classes
        return low > measured + MARGIN or high < measured - MARGIN


def rows_until_found(
    world: World, metric: Metric, measured: float, seed: int
) -> tuple[int | None, int | None]:
    """After how many rows it is found, together and with a sequence for each class; None where it
    is not, within the rows that are kept."""
    rng, evidence, counts = random.Random(seed), Evidence(), Counts()
    together = apart = None
    for row in range(1, MOST_ROWS + 1):
        own, answered = world.row(rng)
        more = counts.add(own, answered)
        evidence.add(own == answered, own != answered, 0.0, more)
        if row % EVERY:
            continue
        if together is None and evidence.judge(measured, 0.0, metric, world.classes):
            together = row
        if apart is None and counts.excludes(metric, world.classes, measured):
            apart = row
        if together is not None and (apart is not None or world.classes > FEW):
            break
    return together, apart


def false_findings(world: World, metric: Metric, measured: float, days: int) -> int:
    """How often another accuracy is found in so many days of a row a second."""
    rng, evidence, counts, found = random.Random(0), Evidence(), Counts(), 0
    for second in range(days * 86_400):
        own, answered = world.row(rng)
        evidence.add(own == answered, own != answered, float(second), counts.add(own, answered))
        if second % 20 == 0:
            before = evidence.finding
            evidence.judge(measured, float(second), metric, world.classes)
            found += before is None and evidence.finding is not None
    return found


def told(rows: Sequence[int | None]) -> str:
    found = sorted(row for row in rows if row is not None)
    if not found:
        return "in none of the runs"
    share = f"{100 * len(found) / len(rows):.0f} %"
    return f"{share}, median {median(found):.0f}, 9 of 10 {found[int(0.9 * len(found))]}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    asked = parser.parse_args()
    days = asked.days
    for name, before, after in CASES:
        if not name.startswith(asked.only):
            continue
        for metric in (BALANCED, F1):
            measured = before.accuracy(metric)
            for world in after:
                runs = [rows_until_found(world, metric, measured, seed) for seed in range(RUNS)]
                together, apart = zip(*runs, strict=True)
                print(
                    f"{name}, {metric} measured {measured:.3f}, truly {world.accuracy(metric):.3f}:"
                    f" found {told(together)}; each class by itself {told(apart)}",
                    flush=True,
                )
            for less in (0.0, 0.01):
                times = false_findings(before, metric, measured + less, days)
                print(
                    f"{name}, {metric} measured {measured + less:.3f}, truly {measured:.3f},"
                    f" {days} days of a row a second: found {times} times",
                    flush=True,
                )


if __name__ == "__main__":
    main()
