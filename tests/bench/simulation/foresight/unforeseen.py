"""What not knowing the arrivals costs by itself: ``python -m
tests.bench.simulation.foresight.unforeseen``.

A policy that is better off than any real one: whenever it wants a device there is one, at the price
that the bound's linear program has for the time of its kind at that moment. It knows these prices
and the rate of each task. But it does not know when queries will come, and so it has to decide for
those that wait whether they begin now, by which variant on which kind, or wait for others, which
come as a Poisson process.

How well that can be done is an average-reward Markov decision process for each task, prices and
rate taken as they stay. Its state is how many wait and how much time the first of them has left;
who joins counts for what it would have been worth in a batch of its own time. The column
*unforeseen* is how far the mean is below what the bound gives queries at the same prices: each its
best variant, in the largest batch that any queries would fill that share a moment, whenever these
come. That much regret is left where devices are never the reason, and no policy that does not know
the arrivals can have it, but for what the approximation is off: that all who wait begin together,
and that rates of two seconds around each moment are known. Who has to wait for real devices has
more. A few seconds for a draw; nothing depends on the machine.
"""

from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from planner.bounds.windows import Floats
from planner.simulate import bound, offers_of, simulate
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Objective
from tests.bench.simulation.cases import Case, made
from tests.bench.simulation.policies import setting_of
from tests.bench.simulation.regret.draws import draws_of, draws_parser
from tests.bench.simulation.regret.parts import Priced

STEPS = 40
"""Into which the time that a query has is divided."""
HALVINGS = 20
"""Of the interval in which what a query is worth is sought."""
RATE_MS = 4_000.0
"""Over so long the rate of a task is averaged."""


@dataclass(frozen=True, slots=True)
class Option:
    """A variant on a kind."""

    accuracy: float
    ms: tuple[float, ...]
    """By number of rows, from 0 on."""
    price: Floats
    """Of a millisecond of the kind, in each window."""


def worth_unforeseen(options: list[Option], rate_per_ms: Floats, latency_ms: float) -> Floats:
    """What a query of a task is worth in the mean, at the prices and the rate of each window, to
    who decides best and does not know when others come; all have the same latency SLO."""
    step_ms = latency_ms / STEPS
    most = max(len(option.ms) for option in options) - 1
    at_once = [
        [_at_once(options, rows, step * step_ms) for step in range(STEPS + 1)]
        for rows in range(1, most + 1)
    ]
    comes = 1.0 - np.exp(-rate_per_ms * step_ms)
    low = at_once[0][STEPS].copy()
    high = np.full_like(low, max(option.accuracy for option in options))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        better = _first(at_once, comes, middle) >= middle
        low, high = np.where(better, middle, low), np.where(better, high, middle)
    return low


def _at_once(options: list[Option], rows: int, left_ms: float) -> Floats:
    """What so many rows are worth that begin now; minus infinity where none would be in time."""
    found = np.full_like(options[0].price, -np.inf)
    for option in options:
        if rows < len(option.ms) and option.ms[rows] <= left_ms * (1 + 1e-9):
            found = np.maximum(found, rows * option.accuracy - option.price * option.ms[rows])
    return found


def _first(at_once: list[list[Floats]], comes: Floats, each: Floats) -> Floats:
    """What a batch is worth when its first query comes, where who joins is worth ``each`` less."""
    largest = len(at_once)
    before = [at_once[rows][0] for rows in range(largest)]
    for step in range(1, STEPS + 1):
        now = []
        for rows in range(largest):
            begins = at_once[rows][step]
            if rows + 1 < largest:
                joined = before[rows + 1] - each
                with np.errstate(invalid="ignore"):
                    waits = (1.0 - comes) * before[rows] + comes * joined
                begins = np.fmax(begins, waits)
            now.append(begins)
        before = now
    return before[0]


def unforeseen(setting: Setting, trace: Trace, in_time: int) -> float:
    """How far who does not know the arrivals is below the bound, in mean accuracy, with a device
    whenever one is wanted.

    Raises:
        ValueError: queries of a task have different latency SLOs.
    """
    priced = Priced(setting, trace, in_time)
    edges_ms = priced.edges_ms
    price = np.diff(priced.until, axis=1) / np.diff(edges_ms)
    middle_ms = (edges_ms[1:] + edges_ms[:-1]) / 2
    task = np.asarray(trace.task)
    lost = 0.0
    for number, name in enumerate(trace.tasks):
        mine = np.nonzero(task == number)[0]
        if not len(mine):
            continue
        arrival_ms, latency_ms = priced.arrival_ms[mine], float(priced.latency_ms[mine[0]])
        if not np.all(priced.latency_ms[mine] == latency_ms):
            raise ValueError(f"queries of {name} have different latency SLOs")
        low, high = (
            np.searchsorted(arrival_ms, middle_ms + shift) for shift in (-RATE_MS / 2, RATE_MS / 2)
        )
        window = np.clip(
            np.searchsorted(edges_ms, arrival_ms, side="right") - 1, 0, len(price[0]) - 1
        )
        options, best = [], np.full(len(mine), -np.inf)
        for kind, offers in offers_of(setting.catalog).items():
            of_kind = price[priced.kinds[kind]]
            for key, each in offers.items():
                if key[0] == name:
                    ms = tuple(each.table.ms[: each.table.max_batch + 1])
                    options.append(Option(each.accuracy, ms, of_kind))
                    row_ms = priced.row_ms[kind, key][mine]
                    able = np.isfinite(row_ms)
                    paid = of_kind[window[able]] * row_ms[able]
                    best[able] = np.maximum(best[able], each.accuracy - paid)
        worth = worth_unforeseen(options, (high - low) / RATE_MS, latency_ms)
        lost += float((best - worth[window]).sum())
    return lost / max(1, in_time)


def main() -> None:
    given = draws_parser(__doc__).parse_args()
    print("| draw | regret | unforeseen |\n|---|--:|--:|")
    rows: list[tuple[float, float]] = []
    for number in draws_of(given):
        case = Case(catalog="draws", workload=f"draw-{number:02}", seed=given.seed)
        setting, trace = setting_of(case, Objective.ACCURACY), made(case)[2].trace
        report = simulate(setting, trace, "modelless", clock=lambda: 0.0)
        regret = bound(setting, trace, [report]).beside(report).regret_accuracy
        rows.append((regret, unforeseen(setting, trace, report.in_time)))
        print(f"| {number:02} | {rows[-1][0]:.4f} | {rows[-1][1]:.4f} |", flush=True)
    for name, of in (("median", median), ("mean", fmean), ("worst", max)):
        cells = [f"{of(column):.4f}" for column in zip(*rows, strict=True)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
