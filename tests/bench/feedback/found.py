"""Rows of feedback until another accuracy is found, and how often one is found that is not there.

    python -m tests.bench.feedback.found

Rows are right with the true accuracy, and are looked at as the control loop does, here after each
five. False findings are counted
over days of one row a second.
"""

import random
from statistics import median

from planner.feedback.evidence import SPAN_S, Evidence

MEASURED = 0.976
TRUE = (0.99, 0.96, 0.95, 0.93, 0.90, 0.80, 0.50)
RUNS, MOST_ROWS, EVERY = 50, 4_000, 5
DAYS = 10


def rows_until_found(true: float, seed: int) -> int | None:
    """After how many rows it is found; None where it is not, within the rows that are kept."""
    rng, evidence = random.Random(seed), Evidence()
    for row in range(1, MOST_ROWS + 1):
        right = rng.random() < true
        evidence.add(right, not right, 0.0)
        if row % EVERY == 0 and evidence.judge(MEASURED, 0.0):
            return row
    return None


def false_findings(true: float, seed: int) -> tuple[int, float]:
    """How often another accuracy is found in so many days, and the share of the time it counts."""
    rng, evidence = random.Random(seed), Evidence()
    found = counted_s = 0
    for second in range(DAYS * 86_400):
        right = rng.random() < true
        evidence.add(right, not right, float(second))
        if second % 10 == 0:
            before = evidence.finding
            evidence.judge(MEASURED, float(second))
            found += before is None and evidence.finding is not None
            counted_s += 10 * (evidence.finding is not None)
    return found, counted_s / (DAYS * 86_400)


def main() -> None:
    print(f"measured {MEASURED}; {RUNS} runs each")
    for true in TRUE:
        rows = [rows_until_found(true, seed) for seed in range(RUNS)]
        found = sorted(row for row in rows if row is not None)
        share = len(found) / RUNS
        when = (
            f"median {median(found):.0f}, 9 of 10 {found[int(0.9 * len(found))]}" if found else ""
        )
        print(f"truly {true}: found in {100 * share:.0f} % of the runs; rows: {when}")
    for true in (MEASURED, MEASURED - 0.01):
        found_times, share = false_findings(true, 0)
        print(
            f"truly {true:.3f}, {DAYS} days of a row a second (spans of {SPAN_S:.0f} s):"
            f" found {found_times} times, counted in {100 * share:.2f} % of the time"
        )


if __name__ == "__main__":
    main()
