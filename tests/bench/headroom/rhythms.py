"""What is believed of a full worker at any load: ``python -m tests.bench.headroom.rhythms``.

Single rows come as a Poisson process to a worker whose batches take ``slow`` times their profile,
and after a pause so many times as long again. Of 25 draws: how many times what is true is believed
of a batch that follows on another, as 5th, 50th and 95th percentile, after ``--batches`` of them.
*Of late* is the mean of most batches, as queries are sent by. *Noticed* is how many batches it
takes from when the worker is twice as slow until seven tenths of that are believed. It depends on
nothing but the code.
"""

import argparse
from collections.abc import Iterable
from statistics import quantiles

from tests.planner.rhythms.drawn_worker import PROFILED_MS, Worker

LOADS = (0.02, 0.05, 0.1, 0.3, 0.6, 0.95)
SLOW = (0.5, 1.0, 2.0, 4.0)
PAUSES = (1.0, 1.5, 2.5)
DRAWS = 25


def spread(numbers: Iterable[float], digits: int = 2) -> str:
    """Three percentiles."""
    cuts = quantiles(numbers, n=20, method="inclusive")
    return ", ".join(f"{cuts[at]:.{digits}f}" for at in (0, 9, 18))


def noticed(worker: Worker) -> int:
    """Batches until it is known that a worker is twice as slow."""
    aim = 0.7 * 2.0 * worker.slow
    worker.slow *= 2.0
    for number in range(1, 100):
        worker.batch()
        if worker.busy >= aim:
            return number
    return 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=300)
    batches = parser.parse_args().batches
    print("| load | slow | pause | of late | followed on another | noticed |")
    print("|--:|--:|--:|--:|--:|--:|")
    for load in LOADS:
        for pause in PAUSES:
            for slow in SLOW:
                made = [Worker(n, load, slow, pause).runs(batches) for n in range(DRAWS)]
                late = [w.model.points()[0].mean_ms / PROFILED_MS / slow for w in made]
                busy = [w.busy / slow for w in made]
                after = spread([noticed(w) for w in made], 0)
                print(f"| {load} | {slow} | {pause} | {spread(late)} | {spread(busy)} | {after} |")


if __name__ == "__main__":
    main()
