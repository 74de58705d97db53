"""Where accuracy is lost against the bound: ``python -m tests.bench.simulation.regret.parts``.

The bound's linear program has a price for the time of each device kind in each window. By these
prices every query has a best option (a variant on a kind, in the best batch there could be, at the
cheapest moment before its deadline), and a policy's regret is the sum of what its queries miss of
theirs, and of device time that had a price and was idle:

* *option*: the variant and kind that answered are worth less than the best ones;
* *batch*: its batch took longer for a row than the bound counts for that variant there;
* *moment*: it ran when time was dearer than it had to be;
* *idle*: nobody used time that was worth something;
* *late*: what queries that were not in time could have been.

The last three are mostly what only a policy can avoid that knows the future. About five seconds a
draw; nothing depends on the machine.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from planner.bounds.bound import ROUNDING
from planner.bounds.classes import classes_of
from planner.bounds.devices import device_time
from planner.bounds.program import ServingProgram
from planner.bounds.row_times import least_row_ms
from planner.bounds.windows import Floats, range_least
from planner.simulate import offers_of, simulate
from planner.simulation.fleet import Ticket
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.tally import Tally
from planner.simulation.trace import Trace
from planner.types import Objective
from tests.bench.simulation.cases import Case, made
from tests.bench.simulation.policies import setting_of
from tests.bench.simulation.regret.draws import draws_of, draws_parser
from variants.types import DeviceKindName, VariantKey

PARTS = ("option", "batch", "moment", "idle", "late")
LATE_MS = 1e-6
Option = tuple[DeviceKindName, VariantKey]


class Ran(NamedTuple):
    """A batch that ran."""

    begin_ms: float
    end_ms: float
    option: Option
    accuracy: float
    queries: tuple[tuple[float, float], ...]
    """When each arrived, and its latency SLO."""


@contextmanager
def recorded() -> Iterator[list[Ran]]:
    """The batches of a simulation."""
    batches: list[Ran] = []
    ran = Tally.ran

    def record(
        self: Tally, tickets: Iterable[Ticket], now_ms: float, run_ms: float, accuracy: float
    ) -> None:
        held = list(tickets)
        replica = held[0].replica
        asked = tuple((each.query.received_ms, each.query.latency_ms) for each in held)
        option = (replica.worker.kind.name, replica.key)
        batches.append(Ran(now_ms - run_ms, now_ms, option, accuracy, asked))
        ran(self, held, now_ms, run_ms, accuracy)

    Tally.ran = record  # type: ignore[method-assign]
    try:
        yield batches
    finally:
        Tally.ran = ran  # type: ignore[method-assign]


class Priced:
    """A trace at the prices of the bound for as many queries in time as a policy had."""

    def __init__(self, setting: Setting, trace: Trace, in_time: int) -> None:
        offers = offers_of(setting.catalog)
        classes = classes_of(setting, trace, offers)
        self.kinds = {kind.name: number for number, kind in enumerate(setting.kinds)}
        last_ms = float(trace.arrival_s[-1]) * 1_000
        time = device_time(setting, offers, classes.windows, last_ms)
        found = ServingProgram(classes, time).most_accurate(in_time * (1 - ROUNDING))
        self.query = found.query
        prices = time.prices(found.per_ms)
        self.worth = float((prices * time.there_ms).sum())
        self.edges_ms = classes.windows.edges_ms
        spent = prices * np.diff(self.edges_ms)
        self.until = np.concatenate((np.zeros((len(prices), 1)), spent.cumsum(axis=1)), axis=1)
        self.arrival_ms = np.asarray(trace.arrival_s, dtype=float) * 1_000
        self.latency_ms = np.asarray(trace.latency_ms, dtype=float)
        deadline_ms = self.arrival_ms + self.latency_ms
        first, last = classes.windows.first(self.arrival_ms), classes.windows.last(deadline_ms)
        self.least = [range_least(each, first, last) for each in prices]
        """By kind, of each query: the least price between its arrival and its deadline."""
        self.best = np.full(len(trace), -np.inf)
        """Of each query: what its best option is worth."""
        self.best_kind = np.zeros(len(trace), dtype=np.int64)
        """Of each query: the kind that has it."""
        self.row_ms: dict[Option, Floats] = {}
        """By option, of each query: what the bound counts for it there."""
        task = np.asarray(trace.task)
        for kind, candidates in offers.items():
            for key, each in candidates.items():
                mine = np.nonzero(task == trace.tasks.index(key[0]))[0]
                able = mine[self.latency_ms[mine] >= each.table.ms[1]]
                row_ms = np.full(len(trace), np.inf)
                row_ms[able] = least_row_ms(self.arrival_ms[able], deadline_ms[able], each.table)
                self.row_ms[kind, key] = row_ms
                value = each.accuracy - row_ms[able] * self.least[self.kinds[kind]][able]
                better = value > self.best[able]
                self.best[able[better]] = value[better]
                self.best_kind[able[better]] = self.kinds[kind]

    def paid(self, kind: int, begin_ms: float, end_ms: float) -> float:
        """The price of a device's time."""
        until = np.interp((begin_ms, end_ms), self.edges_ms, self.until[kind])
        return float(until[1] - until[0])


class Answer(NamedTuple):
    """A query that was in time, and what it misses of its best option, as a part of the regret."""

    number: int
    """In the trace."""
    ran: Ran
    option: float
    batch: float
    moment: float


def answers(priced: Priced, trace: Trace, ran: Sequence[Ran]) -> Iterator[Answer]:
    """What each query in time misses, in accuracy."""
    waiting: dict[tuple[str, float], list[int]] = defaultdict(list)
    for number, index in enumerate(trace.task):
        waiting[trace.tasks[index], float(trace.arrival_s[number]) * 1_000].append(number)
    for each in ran:
        name, key = each.option
        kind = priced.kinds[name]
        took_ms = each.end_ms - each.begin_ms
        paid, count = priced.paid(kind, each.begin_ms, each.end_ms), len(each.queries)
        for arrival_ms, latency_ms in each.queries:
            number = waiting[key[0], arrival_ms].pop()
            if each.end_ms > arrival_ms + latency_ms + LATE_MS:
                continue
            row_ms, least = priced.row_ms[each.option][number], priced.least[kind][number]
            yield Answer(
                number,
                each,
                option=priced.best[number] - (each.accuracy - row_ms * least),
                batch=(took_ms / count - row_ms) * paid / took_ms,
                moment=row_ms * (paid / took_ms - least),
            )


def parts(setting: Setting, trace: Trace, report: Report, ran: Sequence[Ran]) -> dict[str, float]:
    """The regret in mean accuracy, by where it comes from."""
    priced = Priced(setting, trace, report.in_time)
    lost = dict.fromkeys(PARTS, 0.0)
    in_time = np.zeros(len(trace), dtype=bool)
    for each in answers(priced, trace, ran):
        in_time[each.number] = True
        lost["option"] += each.option
        lost["batch"] += each.batch
        lost["moment"] += each.moment
    used = sum(priced.paid(priced.kinds[r.option[0]], r.begin_ms, r.end_ms) for r in ran)
    lost["idle"] = priced.worth - used
    lost["late"] = float(np.maximum(0.0, priced.best[~in_time] + priced.query).sum())
    return {name: float(each) / max(1, report.in_time) for name, each in lost.items()}


def main() -> None:
    given = draws_parser(__doc__, "19,12,16,26,29").parse_args()
    print("| draw | " + " | ".join(PARTS) + " | all |\n|---|" + "--:|" * (len(PARTS) + 1))
    for number in draws_of(given):
        case = Case(catalog="draws", workload=f"draw-{number:02}", seed=given.seed)
        setting, trace = setting_of(case, Objective.ACCURACY), made(case)[2].trace
        with recorded() as ran:
            report = simulate(setting, trace, "modelless", clock=lambda: 0.0)
        lost = parts(setting, trace, report, ran)
        cells = [f"{each:.4f}" for each in (*lost.values(), sum(lost.values()))]
        print(f"| {number} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
