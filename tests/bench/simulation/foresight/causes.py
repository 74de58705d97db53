"""Possible causes of the regret side by side: ``python -m
tests.bench.simulation.foresight.causes``.

For each random workload with peaks up to half of capacity, under our own policy and the objective
``accuracy``:

* *regret*: how far the mean accuracy is below the bound for as many queries in time;
* *plan*: how far the mean accuracy by the plans' routes is below it, at what was asked for while
  each plan stood;
* *off routes*: which part of the queries was answered by another variant or on another kind of
  device than any route of their class named, and how far the mean accuracy of those was above
  (below, if negative) that of the routes;
* *loads*, *demand* and *batches*: by how much the regret falls where loads take no time, where
  ticks know what arrives until the next one, and where rows take what they do in the largest batch
  (``counterfactuals``; the last one against its own bound).

Ten seconds for a draw; nothing depends on the machine.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean, median

from planner.policies.modelless import Modelless
from planner.simulate import bound, simulate
from planner.simulation.fleet import Ticket
from planner.simulation.tally import Tally
from planner.types import Action
from tests.bench.simulation.regret.counterfactuals import COUNTERFACTUALS, World, left, world
from tests.bench.simulation.regret.draws import draws_of, draws_parser
from variants.types import DeviceKindName, TaskName, VariantName

GIVEN = {"loads": "no loads", "demand": "foresight", "batches": "no batches"}
"""The counterfactual of each cause."""


@dataclass(slots=True)
class Followed:
    """What plans would have had answered, and what was."""

    queries: int = 0
    planned: float = 0.0
    """The sum of the accuracies that routes have for these queries."""
    off: int = 0
    """Answered by what no route named."""
    off_gained: float = 0.0
    """By how much the accuracies of these answers are above those of routes, in all."""
    accuracies: dict[TaskName, float] = field(default_factory=dict)
    """By the routes of now: the mean of each task."""
    named: dict[TaskName, set[tuple[VariantName, DeviceKindName]]] = field(
        default_factory=lambda: defaultdict(set)
    )


@contextmanager
def following() -> Iterator[Followed]:
    """What comes of the plans of a simulation."""
    found = Followed()
    tick, ran = Modelless.tick, Tally.ran

    def ticked(self: Modelless, now_s: float) -> Sequence[Action]:
        actions = list(tick(self, now_s))
        if self.plan is not None:
            _note(found, self)
        return actions

    def answered(
        self: Tally, tickets: Sequence[Ticket], now_ms: float, run_ms: float, accuracy: float
    ) -> None:
        held = list(tickets)
        replica = held[0].replica
        task, variant = replica.key
        usual = found.accuracies.get(task)
        if usual is not None:
            found.queries += len(held)
            found.planned += usual * len(held)
            if (variant, replica.worker.kind.name) not in found.named[task]:
                found.off += len(held)
                found.off_gained += (accuracy - usual) * len(held)
        ran(self, held, now_ms, run_ms, accuracy)

    Modelless.tick = ticked  # type: ignore[method-assign]
    Tally.ran = answered  # type: ignore[method-assign,assignment]
    try:
        yield found
    finally:
        Modelless.tick = tick  # type: ignore[method-assign]
        Tally.ran = ran  # type: ignore[method-assign]


def _note(found: Followed, policy: Modelless) -> None:
    """What the routes of now say of each task."""
    assert policy.plan is not None
    workers, offers = policy._fleet.workers, policy._fleet.offers
    sums: dict[TaskName, tuple[float, float]] = {}
    found.named.clear()
    for route in policy.plan.routes:
        worker = workers.get(route.worker)
        if worker is None:
            continue
        accuracy = offers[worker.kind.name][route.task, route.variant].accuracy
        qps, right = sums.get(route.task, (0.0, 0.0))
        sums[route.task] = (qps + route.qps, right + route.qps * accuracy)
        found.named[route.task].add((route.variant, worker.kind.name))
    found.accuracies = {task: right / qps for task, (qps, right) in sums.items() if qps > 0.0}


def causes(known: World) -> dict[str, float]:
    """All of it for one draw."""
    with following() as plans:
        report = simulate(known.setting, known.trace, "modelless", clock=lambda: 0.0)
    limit = bound(known.setting, known.trace, [report])
    beside = limit.beside(report)
    best = report.effective_accuracy + beside.regret_accuracy
    queries, off = max(1, plans.queries), max(1, plans.off)
    found = {
        "regret": beside.regret_accuracy,
        "plan": best - plans.planned / queries,
        "off routes": plans.off / queries,
        "gained there": plans.off_gained / off,
    }
    for cause, name in GIVEN.items():
        given = next(each for each in COUNTERFACTUALS if each.name == name)
        found[cause] = beside.regret_accuracy - left(given, known, report, limit)
    return found


def main() -> None:
    given = draws_parser(__doc__).parse_args()
    rows: list[dict[str, float]] = []
    for number in draws_of(given):
        row = causes(world(number, given.seed))
        if not rows:
            print("| draw | " + " | ".join(row) + " |\n|---|" + "--:|" * len(row))
        rows.append(row)
        print(
            f"| {number:02} | " + " | ".join(_cell(*each) for each in row.items()) + " |",
            flush=True,
        )
    for name, of in (("median", median), ("mean", fmean)):
        cells = [_cell(key, of([row[key] for row in rows])) for key in rows[0]]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def _cell(name: str, value: float) -> str:
    return f"{value:.1%}" if name == "off routes" else f"{value:.4f}"


if __name__ == "__main__":
    main()
