"""When queries are lost: ``python -m tests.bench.simulation.regret.moments --at 72,73,80,100,126``.

At each moment: how many violations the bound still knows no way around, for whoever has done what a
policy did until then and knows the future from then on. Between two moments it rises by what that
policy lost without need in between. Before the first query it is the bound, after the last one what
the policy violates.

What is over at a moment stays: batches that have begun run to their end, and who was refused is
lost. Who waits may still be answered by anything. Under ``accuracy``, where the whole fleet stands.
Half a minute for each moment of a workload; nothing depends on the machine.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from planner.bounds.ceilings import most_earned
from planner.bounds.classes import classes_of
from planner.bounds.devices import device_time
from planner.bounds.program import ServingProgram
from planner.bounds.windows import Floats
from planner.simulate import offers_of, simulate
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Objective
from tests.bench.simulation.cases import Case, made
from tests.bench.simulation.policies import setting_of
from tests.bench.simulation.regret.parts import LATE_MS, Ran, recorded

BEFORE_MS = 1_000.0
"""A moment is put to this time of a trace of its own, so that devices have begun."""


class Past:
    """What a policy did, to be cut off at any moment."""

    def __init__(self, setting: Setting, trace: Trace, ran: Sequence[Ran]) -> None:
        self._setting, self._trace, self._ran = setting, trace, ran
        self._offers = offers_of(setting.catalog)
        self._arrival_ms: Floats = np.asarray(trace.arrival_s, dtype=float) * 1_000
        self._due_ms: Floats = self._arrival_ms + np.asarray(trace.latency_ms, dtype=float)
        self._begin_ms = np.full(len(trace), np.inf)
        """Of the batch of each query; infinite where there was none."""
        self._end_ms = np.full(len(trace), np.inf)
        waiting: dict[tuple[str, float], list[int]] = defaultdict(list)
        for number, task in enumerate(trace.task):
            waiting[trace.tasks[task], float(self._arrival_ms[number])].append(number)
        for batch in ran:
            for arrival_ms, _ in batch.queries:
                number = waiting[batch.option[1][0], arrival_ms].pop()
                self._begin_ms[number], self._end_ms[number] = batch.begin_ms, batch.end_ms

    def violated(self, at_s: float) -> float:
        """The part of all queries that cannot be in time any more, or that the bound leaves out."""
        at_ms = at_s * 1_000
        begun = self._begin_ms < at_ms
        in_time = float((begun & (self._end_ms <= self._due_ms + LATE_MS)).sum())
        there = (self._arrival_ms >= at_ms) | np.isfinite(self._begin_ms)
        left = np.flatnonzero(~begun & there & (self._due_ms > at_ms))
        if left.size:
            in_time += self._most_in_time(left, at_ms)
        return 1 - in_time / len(self._trace)

    def _most_in_time(self, left: np.ndarray, at_ms: float) -> float:
        """Of the queries that are left, on what batches that run leave of the devices."""
        trace = self._trace
        arrival_ms = np.maximum(self._arrival_ms[left], at_ms)
        order = np.argsort(arrival_ms, kind="stable")
        left, arrival_ms = left[order], arrival_ms[order]
        rest = Trace(
            tasks=trace.tasks,
            arrival_s=((arrival_ms - at_ms + BEFORE_MS) / 1_000).tolist(),
            task=[trace.task[number] for number in left],
            latency_ms=(self._due_ms[left] - arrival_ms).tolist(),
            min_accuracy=[trace.min_accuracy[number] for number in left],
            max_cost=[trace.max_cost[number] for number in left],
        )
        classes = classes_of(self._setting, rest, self._offers)
        last_ms = float(rest.arrival_s[-1]) * 1_000
        time = device_time(self._setting, self._offers, classes.windows, last_ms)
        low, high = classes.windows.edges_ms[:-1], classes.windows.edges_ms[1:]
        kinds = [kind.name for kind in self._setting.kinds]
        for batch in self._ran:
            if batch.begin_ms < at_ms < batch.end_ms:
                until_ms = batch.end_ms - at_ms + BEFORE_MS
                taken = np.minimum(high, until_ms) - np.maximum(low, BEFORE_MS)
                time.there_ms[kinds.index(batch.option[0])] -= np.maximum(taken, 0.0)
        np.maximum(time.there_ms, 0.0, out=time.there_ms)
        prices = ServingProgram(classes, time).most_served()
        return min(classes.servable, most_earned(classes, time, prices.per_ms, 0.0, 1.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalog", default="synthetic")
    parser.add_argument("--workload", default="flash")
    parser.add_argument("--policy", default="modelless")
    parser.add_argument("--seed", default="0", help="one or several, by commas")
    parser.add_argument("--at", default="72,73,80,100,120,126", help="seconds, by commas")
    given = parser.parse_args()
    moments = [float(each) for each in given.at.split(",")]
    print("| seed | " + " | ".join(f"{each:g} s" for each in moments) + " | violated |")
    print("|---|" + "--:|" * (len(moments) + 1))
    for seed in given.seed.split(","):
        case = Case(catalog=given.catalog, workload=given.workload, seed=int(seed), quick=True)
        setting, trace = setting_of(case, Objective.ACCURACY), made(case)[2].trace
        with recorded() as ran:
            report = simulate(setting, trace, given.policy, clock=lambda: 0.0)
        past = Past(setting, trace, ran)
        cells = [*(past.violated(each) for each in moments), report.violation_ratio]
        print(f"| {seed} | " + " | ".join(f"{each:.2%}" for each in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
