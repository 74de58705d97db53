"""Who is refused that would have been in time: one slice in virtual time, run as a worker does.

``python -m tests.bench.profiling.wrong_refusals [--queries N] [--runs N] [--loads 0.5 0.9]``. A
variant of 3.6 ms a row is asked for lone rows as a Poisson process with 19.4 ms each, at a share of
the 249 per second that one of the digits family was seen to answer in a closed loop. Each run
begins with a new worker. The same arrivals come twice, as in ``calibration``: with deadlines, and
without, to other draws of the same batches. Seeds are fixed, so all is the same on every machine.

How long batches take is drawn: log-normal around a level that drifts, some of them longer by an
exponential time (*rare*), or for some batches in a row by the half (*spells*, as where a neighbour
has the core). Printed is, for each load and way of drawing: wrongly refused of all queries, late of
the admitted, batches within the predicted 95th percentile, and late without admission.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, sqrt

from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.live_costs import RELAX_EVERY_MS, LiveCosts
from planner.batching.protocol import Batch, Verdict
from planner.batching.variant_queues import Item
from planner.latency_table import LatencyTable
from planner.live_model import LiveModel

POINTS = [(1, 3.6), (2, 6.9), (4, 13.2), (8, 25.6), (16, 50.5)]
TYPICAL = LatencyTable(POINTS)
HIGH = LatencyTable([(rows, 1.08 * ms) for rows, ms in POINTS])
SLO_MS, FULL_QPS = 19.4, 249.0
BETWEEN_MS = 0.1
AMPLE_MS = 60_000.0
KEEPS = 0.98
"""Of a level, from batch to batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How batches are drawn. Deviations are of logarithms, shares of batches."""

    name: str
    sigma: float
    drift: float
    rare: float = 0.0
    rare_ms: float = 8.0
    spells: float = 0.0
    """Share of batches with which a spell begins, of eight batches in the mean."""


TIMES = (
    Times(name="calm", sigma=0.05, drift=0.03),
    Times(name="seldom slow", sigma=0.06, drift=0.03, rare=0.003, rare_ms=15.0),
    Times(name="rarely slow", sigma=0.06, drift=0.05, rare=0.01),
    Times(name="spells", sigma=0.06, drift=0.05, rare=0.005, spells=0.003),
    Times(name="wide", sigma=0.15, drift=0.05, rare=0.01, rare_ms=6.0),
)


class Drawn:
    """Times of one run's batches."""

    def __init__(self, times: Times, seed: int) -> None:
        self._times, self._draw = times, random.Random(seed)
        self._level = 0.0
        self._spell = 0

    def ms(self, rows: int) -> float:
        times, draw = self._times, self._draw
        self._level = KEEPS * self._level + draw.gauss(0.0, times.drift * sqrt(1.0 - KEEPS**2))
        ms = TYPICAL.ms[rows] * exp(draw.gauss(0.0, times.sigma) + self._level)
        if draw.random() < times.rare:
            ms += draw.expovariate(1.0 / times.rare_ms)
        if self._spell:
            self._spell -= 1
            ms *= 1.6
        elif times.spells and draw.random() < times.spells:
            self._spell = int(draw.expovariate(1.0 / 8.0)) + 1
        return ms


class Slice:
    """A queue and what learns from its batches, as ``workers.execution`` runs them."""

    def __init__(self, drawn: Drawn) -> None:
        self._drawn = drawn
        self._queue = DeadlineQueue()
        margin = LatencyTable([(rows, 1.2 * 1.08 * ms) for rows, ms in POINTS])
        self._variant = self._queue.add_variant("task", margin)
        self._costs, self.model = LiveCosts(self._queue), LiveModel(TYPICAL, HIGH)
        self._running: Batch | None = None
        self._began_ms = self._free_ms = self._relaxed_ms = 0.0
        self._kept_waiting = False
        self.done_ms: dict[Item, float] = {}

    def ask(self, now_ms: float, budget_ms: float) -> Item | None:
        """A query comes; None where it is refused."""
        self.run_until(now_ms)
        if self._running is None:
            self._free_ms = max(self._free_ms, now_ms)
        item = Item(self._variant, now_ms + budget_ms, 1)
        verdict = self._queue.admit(item, now_ms)
        if verdict is Verdict.ADMITTED:
            self.run_until(now_ms)
            return item
        idle_ms = now_ms - self._relaxed_ms
        nothing = self._running is None and not self._queue.count
        if verdict is Verdict.WOULD_BE_LATE and nothing and idle_ms >= RELAX_EVERY_MS:
            self._costs.relax(self._variant, self.model, idle_ms)
            self._relaxed_ms = now_ms
        return None

    def run_until(self, until_ms: float) -> None:
        """Run what begins and ends until then."""
        while True:
            if self._running is not None:
                if self._free_ms > until_ms:
                    return
                self._end(self._running)
            if not self._queue.count or self._free_ms > until_ms:
                return
            expired = self._queue.pop_expired(self._free_ms)
            self._costs.gave_up(len(expired))
            self.done_ms.update(dict.fromkeys(expired, inf))
            self._running = self._queue.next_batch(self._free_ms)
            if self._running is not None:
                self._began_ms = self._free_ms
                self._free_ms += self._drawn.ms(self._running.rows)

    def _end(self, batch: Batch) -> None:
        now_ms, took_ms = self._free_ms, self._free_ms - self._began_ms
        self._queue.finished(batch.queue, now_ms, took_ms)
        self.done_ms.update(dict.fromkeys(batch.items, now_ms))
        kept_waiting, self._kept_waiting = self._kept_waiting, self._queue.count > 0
        late = sum([item.deadline_ms < now_ms for item in batch.items])
        self._costs.ran(
            batch.queue, self.model, batch.rows, self._began_ms, took_ms,
            kept_waiting=kept_waiting, queries=len(batch.items), late=late,
        )  # fmt: skip
        self._running, self._relaxed_ms = None, now_ms
        self._free_ms += BETWEEN_MS


@dataclass(slots=True, kw_only=True)
class Came:
    """What became of all queries of some runs."""

    queries: int = 0
    refused: int = 0
    wrongly: int = 0
    late: int = 0
    late_without: int = 0
    batches: int = 0
    within: int = 0

    def words(self) -> str:
        admitted = max(1, self.queries - self.refused)
        return (
            f"{self.wrongly / self.queries:.2%} | {self.late / admitted:.2%}"
            f" | {self.within / max(1, self.batches):.1%}"
            f" | {self.late_without / self.queries:.2%}"
        )


def play(times: Times, load: float, queries: int, seed: int, came: Came) -> None:
    """One run with deadlines and one without."""
    draw = random.Random(seed)
    arrivals, now_ms = [], 0.0
    for _ in range(queries):
        now_ms += draw.expovariate(load * FULL_QPS / 1_000.0)
        arrivals.append(now_ms)
    ample = Slice(Drawn(times, seed + 1_000_000))
    took_ms = _took_ms(ample, arrivals, AMPLE_MS)
    one = Slice(Drawn(times, seed))
    for own_ms, without_ms in zip(_took_ms(one, arrivals, SLO_MS), took_ms, strict=True):
        assert without_ms is not None
        in_time = without_ms <= SLO_MS
        came.queries += 1
        came.late_without += not in_time
        came.refused += own_ms is None
        came.wrongly += own_ms is None and in_time
        came.late += own_ms is not None and own_ms > SLO_MS
    came.batches += one.model.batches
    came.within += one.model.covered


def _took_ms(of: Slice, arrivals: Sequence[float], budget_ms: float) -> list[float | None]:
    """For each query how long it took until its answer; None where it was refused."""
    asked = [of.ask(now_ms, budget_ms) for now_ms in arrivals]
    of.run_until(inf)
    return [
        None if item is None else of.done_ms[item] - now_ms
        for item, now_ms in zip(asked, arrivals, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--queries", type=int, default=2_500, help="of each run")
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 0.6, 0.9])
    arguments = parser.parse_args()
    print("| load, batches | wrongly refused | late of admitted | within p95 | late without |")
    print("|---|--:|--:|--:|--:|")
    for load in arguments.loads:
        for times in TIMES:
            came = Came()
            for seed in range(arguments.runs):
                play(times, load, arguments.queries, 10 + seed, came)
            print(f"| {load:.0%}, {times.name} | {came.words()} |", flush=True)


if __name__ == "__main__":
    main()
