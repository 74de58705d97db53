"""What a thing would be worth that no policy can have: ``python -m
tests.bench.simulation.regret.counterfactuals``.

Each line gives our own policy one thing on random workloads with peaks up to half of capacity
(``half`` of ``tests.bench.simulation.ablation``, which leaves out what the policy does have), and
says what is left of the regret in accuracy:

* *no loads*: variants are loaded at once;
* *foresight*: each tick knows what arrives until the next one;
* *knowing*: gateways know which batches wait, and do not have to work it out;
* *division*: the kinds of devices on which a query is worth less, at the prices of the bound's
  linear program, cost it 1.5 times their price, or 3 times (*strict division*);
* *even*: the queries of each task come evenly spaced within two seconds;
* *no batches*: a row takes what it takes in the largest batch, whatever its own;
* *three times*: there are three times as many devices and queries.

The last three are worlds of their own and have their own bounds; the others are held against the
bound of the world as it is. About two seconds for a draw and a line, and as much again for a bound;
nothing depends on the machine.
"""

import copy
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean, median
from typing import Any

import numpy as np

import planner.selection.plan_following
from planner.bounds.bound import Bound
from planner.forecasting.demand import demands, slo_class
from planner.policies.modelless import Modelless
from planner.selection.open_batches import OpenBatch, OpenBatches
from planner.selection.prices import Offers, UsualFills, priced
from planner.simulate import bound, simulate
from planner.simulation.fleet import Fleet
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Choice, Demand, Objective, Query
from tests.bench.simulation.cases import Case, made
from tests.bench.simulation.mixed_speed import drawn_workload
from tests.bench.simulation.policies import setting_of
from tests.bench.simulation.regret.draws import draws_of, draws_parser
from tests.bench.simulation.regret.parts import Priced
from tests.bench.simulation.workloads import draw
from variants.types import LatencyPoint, TaskName

EVEN_S = 2.0
"""Queries come evenly within so long."""
TIMES = 3
"""So many times as many devices and queries."""


@dataclass(frozen=True, slots=True)
class World:
    """A draw: what there is, and what is asked."""

    number: int
    seed: int
    setting: Setting
    trace: Trace


def world(number: int, seed: int) -> World:
    """A draw as it is."""
    case = Case(catalog="draws", workload=f"draw-{number:02}", seed=seed)
    return World(number, seed, setting_of(case, Objective.ACCURACY), made(case)[2].trace)


# -- worlds ---------------------------------------------------------------------------------------


def without_loads(known: World) -> World:
    """Loads take no time."""
    profiles = tuple(replace(each, load_s=0.0) for each in known.setting.catalog.profiles)
    catalog = replace(known.setting.catalog, profiles=profiles)
    return replace(known, setting=replace(known.setting, catalog=catalog))


def without_batches(known: World) -> World:
    """A row takes as long in any batch as in the largest."""
    profiles = []
    for profile in known.setting.catalog.profiles:
        last = profile.points[-1]
        row_ms = last.p50_ms / last.batch_size
        points = []
        for point in profile.points:
            ms = row_ms * point.batch_size
            points.append(
                LatencyPoint(batch_size=point.batch_size, p50_ms=ms, p95_ms=ms, p99_ms=ms)
            )
        profiles.append(replace(profile, points=tuple(points)))
    catalog = replace(known.setting.catalog, profiles=tuple(profiles))
    return replace(known, setting=replace(known.setting, catalog=catalog))


def evenly(known: World) -> World:
    """As many queries of each task in each stretch of time, evenly spaced."""
    trace = known.trace
    arrival_s, task = np.asarray(trace.arrival_s), np.asarray(trace.task)
    edges_s = np.arange(0.0, arrival_s[-1] + 2 * EVEN_S, EVEN_S)
    spaced_s = np.empty_like(arrival_s)
    for number in range(len(trace.tasks)):
        mine = np.nonzero(task == number)[0]
        counts = np.histogram(arrival_s[mine], edges_s)[0]
        passed = np.concatenate(([0], counts.cumsum()))
        spaced_s[mine] = np.interp(np.arange(len(mine)) + 0.5, passed, edges_s)
    order = np.argsort(spaced_s, kind="stable")
    columns = (trace.latency_ms, trace.min_accuracy, trace.max_cost)
    latency_ms, floor, ceiling = (array("d", np.asarray(each)[order]) for each in columns)
    return replace(
        known,
        trace=Trace(
            tasks=trace.tasks,
            arrival_s=array("d", spaced_s[order]),
            task=array("q", task[order]),
            latency_ms=latency_ms,
            min_accuracy=floor,
            max_cost=ceiling,
        ),
    )


def larger(known: World) -> World:
    """More devices of each kind, and as many times the queries."""
    ground, workload = drawn_workload(known.number, known.seed, times=TIMES)
    setting = replace(known.setting, catalog=ground.catalog, kinds=ground.kinds)
    return replace(known, setting=setting, trace=draw(workload, ground, known.seed).trace)


# -- what the policy is told ----------------------------------------------------------------------


@contextmanager
def replaced(where: Any, what: str, instead: Any) -> Iterator[None]:
    """An attribute of a class or module, for a while."""
    before = getattr(where, what)
    setattr(where, what, instead)
    try:
        yield
    finally:
        setattr(where, what, before)


def foresight(known: World, _: Report) -> AbstractContextManager[None]:
    """What is expected is what will come until the next tick."""
    trace, tick_s = known.trace, known.setting.tick_s
    before = Modelless._demands

    def told(self: Modelless, now_s: float) -> tuple[tuple[Demand, ...], ...]:
        low, high = np.searchsorted(trace.arrival_s, (now_s, now_s + tick_s))
        counts: dict[tuple[TaskName, tuple[float, float | None]], float] = {}
        tightest: dict[tuple[TaskName, float, float | None], float] = {}
        for index in range(low, high):
            task, latency_ms = trace.tasks[trace.task[index]], trace.latency_ms[index]
            slo = slo_class(latency_ms, None, self._steps.get(task, ()))
            counts[task, slo] = counts.get((task, slo), 0.0) + 1
            tightest[task, *slo] = min(tightest.get((task, *slo), inf), latency_ms)
        if not counts:
            return before(self, now_s)
        coming = tuple(
            replace(each, slo_ms=tightest[each.task, each.latency_ms, each.accuracy])
            for each in demands([counts], tick_s)
        )
        return self._demand, coming, coming

    return replaced(Modelless, "_demands", told)


@contextmanager
def knowing(_: World, __: Report) -> Iterator[None]:
    """Open batches are those that wait on the devices."""
    fleets: list[Fleet] = []
    begin = Modelless.__init__

    def begun(self: Modelless, brief: Any, fleet: Fleet, planner: Any) -> None:
        fleets[:] = [fleet]
        begin(self, brief, fleet, planner)

    def waiting(_: OpenBatches, task: TaskName, __: float) -> Sequence[OpenBatch]:
        found = []
        for worker in fleets[0].workers.values():
            for key, replica in worker.replicas.items():
                queue = replica.queue
                if key[0] == task and 0 < queue.rows < queue.limit:
                    free_ms = worker.queue.busy_until_ms
                    found.append(
                        OpenBatch(replica.candidate, worker.view, free_ms, queue.rows, queue.limit)
                    )
        return found

    def sent(_: OpenBatches, *__: object) -> float:
        return 0.0

    with (
        replaced(Modelless, "__init__", begun),
        replaced(OpenBatches, "of", waiting),
        replaced(OpenBatches, "sent", sent),
    ):
        yield


def division(factor: float) -> Callable[[World, Report], AbstractContextManager[None]]:
    """Where the bound would not have a query, it costs ``factor`` times the price."""

    def told(known: World, report: Report) -> AbstractContextManager[None]:
        trace, kinds = known.trace, known.setting.kinds
        at_best = Priced(known.setting, trace, report.in_time).best_kind
        kind_of = {
            (trace.tasks[task], arrival_s * 1_000): frozenset((kinds[kind].name,))
            for task, arrival_s, kind in zip(trace.task, trace.arrival_s, at_best, strict=True)
        }

        def divided(
            offers: Offers,
            batches: OpenBatches,
            usual: UsualFills,
            query: Query,
            now_ms: float,
            transport_ms: float,
            window: float,
            _: float,
        ) -> Choice | None:
            mine = copy.copy(offers)
            mine.planned = kind_of[query.task, query.received_ms]
            return priced(mine, batches, usual, query, now_ms, transport_ms, window, factor)

        return replaced(planner.selection.plan_following, "priced", divided)

    return told


def nothing(_: World, __: Report) -> AbstractContextManager[None]:
    """The policy is told nothing more."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """One thing that the policy is given."""

    name: str
    told: Callable[[World, Report], AbstractContextManager[None]] = nothing
    """The world, and what came of it as it is, in; the policy is told more meanwhile."""
    world: Callable[[World], World] | None = None
    """Another world to play in."""
    own: bool = False
    """Whether that one's bound counts."""


COUNTERFACTUALS = (
    Counterfactual(name="as it is"),
    Counterfactual(name="no loads", world=without_loads),
    Counterfactual(name="foresight", told=foresight),
    Counterfactual(name="knowing", told=knowing),
    Counterfactual(name="division", told=division(1.5)),
    Counterfactual(name="strict division", told=division(3.0)),
    Counterfactual(name="even", world=evenly, own=True),
    Counterfactual(name="no batches", world=without_batches, own=True),
    Counterfactual(name="three times", world=larger, own=True),
)


def _played(known: World) -> Report:
    return simulate(known.setting, known.trace, "modelless", clock=lambda: 0.0)


def left(given: Counterfactual, known: World, report: Report, limit: Bound) -> float:
    """The regret that is left; ``report`` and ``limit`` are of the world as it is."""
    other = known if given.world is None else given.world(known)
    with given.told(known, report):
        found = _played(other)
    if given.own:
        limit = bound(other.setting, other.trace, [found])
    return limit.beside(found).regret_accuracy


def main() -> None:
    parser = draws_parser(__doc__)
    parser.add_argument("--only", help="names, by commas")
    given = parser.parse_args()
    numbers = draws_of(given)
    worlds = [world(number, given.seed) for number in numbers]
    reports = [_played(each) for each in worlds]
    limits = [
        bound(each.setting, each.trace, [report])
        for each, report in zip(worlds, reports, strict=True)
    ]
    print("| | median | mean | worst | " + " | ".join(f"{each:02}" for each in numbers) + " |")
    print("|---|" + "--:|" * (len(numbers) + 3))
    for each in COUNTERFACTUALS:
        if given.only and each.name not in given.only.split(","):
            continue
        regrets = [left(each, *one) for one in zip(worlds, reports, limits, strict=True)]
        cells = [median(regrets), fmean(regrets), max(regrets), *regrets]
        print(f"| {each.name} | " + " | ".join(f"{x:.4f}" for x in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
