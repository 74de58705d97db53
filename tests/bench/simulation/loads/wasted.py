"""What plans load, and what of it was worth it: ``python -m tests.bench.simulation.loads.wasted``.

Some minutes for a seed. Each line is one workload under one objective: the loads that plans order
in an hour of simulated time, after the beginning in which everything is loaded once, and which part
of them was wasted. A load is wasted if the batches that its variant ran until it left took less of
the device's time than the load did. Loads whose variant is still there at the end, and those of
devices that ended, are not judged. Nothing depends on the machine.

Loads are told apart by whether others had to leave for them, since what is loaded into memory that
is free takes nothing from anybody, and by whether a route of the plan led to them.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from unittest.mock import patch

from planner.policies.modelless import Modelless
from planner.simulate import simulate
from planner.simulation.fleet import Replica, Ticket, Worker
from planner.simulation.loads import Loads
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.tally import Tally
from planner.simulation.trace import Trace
from planner.types import Action, Objective
from tests.bench.planning.catalogs import synthetic
from tests.bench.simulation.cases import Case, made
from tests.bench.simulation.large_catalog import large, zipf
from tests.bench.simulation.workloads import draw, workloads
from variants.types import VariantKey, WorkerId

BEGINNING_S = 100.0
"""Until then the load rises and everything is loaded for the first time."""
WORKLOADS = ("steady", "diurnal", "zipf", "mixed")
QUIET = "quiet"
"""A load of 0.3 on sixteen devices, with a tick per second and profiles that are a fifth off."""
LARGE = "1,200 variants"
"""On 60 devices whose memory is short (``tests.bench.simulation.large_catalog``)."""
LARGE_S = 240


@dataclass(slots=True, kw_only=True)
class Stay:
    """A variant on a device, from the decision to load it until it has left."""

    began_s: float
    load_ms: float
    by_plan: bool
    displaced: bool
    """Others had to leave for it."""
    routed: bool
    """A route of the plan led to it when it was loaded."""
    ran_ms: float = 0.0
    queries: int = 0
    left_s: float | None = None

    @property
    def wasted(self) -> bool:
        return self.left_s is not None and self.ran_ms < self.load_ms


@dataclass(slots=True)
class Book:
    """Every load of one run."""

    stays: list[Stay] = field(default_factory=list)
    there: dict[int, Stay] = field(default_factory=dict)
    """By replica."""
    unloaded: set[WorkerId] = field(default_factory=set)
    """Devices from which the tick under way has unloaded something."""
    routes: set[tuple[WorkerId, VariantKey]] = field(default_factory=set)
    plans: int = 0
    """That differ from the one before."""
    reroutes: int = 0
    """Of these, with other routes."""


class CountedLoads(Loads):
    """Loads, written down."""

    book: Book

    def begin(
        self, worker: Worker, key: VariantKey, *, waiting: bool | None = None, **named: Any
    ) -> Replica | None:
        replica = super().begin(worker, key, waiting=waiting, **named)
        if replica is not None:
            stay = Stay(
                began_s=self._clock_ms() / 1_000,
                load_ms=replica.candidate.load_ms,
                by_plan=waiting is None,
                displaced=replica.displaces
                or (waiting is None and worker.id in self.book.unloaded),
                routed=(worker.id, key) in self.book.routes,
            )
            self.book.stays.append(stay)
            self.book.there[id(replica)] = stay
        return replica

    def unload(self, replica: Replica) -> None:
        self.book.unloaded.add(replica.worker.id)
        super().unload(replica)

    def gone(self, replica: Replica) -> None:
        stay = self.book.there.pop(id(replica), None)
        if stay is not None:
            stay.left_s = self._clock_ms() / 1_000
        super().gone(replica)


class CountedBatches(Tally):
    """A tally that credits batches to the stays that ran them."""

    book: Book

    def ran(self, tickets: Iterable[Ticket], now_ms: float, run_ms: float, accuracy: float) -> None:
        tickets = list(tickets)
        stay = self.book.there.get(id(tickets[0].replica)) if tickets else None
        if stay is not None:
            stay.ran_ms += run_ms
            stay.queries += len(tickets)
        super().ran(tickets, now_ms, run_ms, accuracy)


@contextmanager
def counted() -> Iterator[Book]:
    """Has runs of our own policy write down what is loaded."""
    book = CountedLoads.book = CountedBatches.book = Book()
    tick: Callable[[Modelless, float], Iterable[Action]] = Modelless.tick

    def counting(policy: Modelless, now_s: float) -> Iterable[Action]:
        before = policy.plan
        actions = tick(policy, now_s)
        book.unloaded.clear()
        if policy.plan is not before and policy.plan is not None:
            book.plans += 1
            routes = policy.plan.routes
            book.reroutes += before is None or before.routes != routes
            book.routes = {(r.worker, (r.task, r.variant)) for r in routes}
        return actions

    with (
        patch("planner.simulation.engine.Loads", CountedLoads),
        patch("planner.simulation.engine.Tally", CountedBatches),
        patch.object(Modelless, "tick", counting),
    ):
        yield book


class Run(NamedTuple):
    """What is played."""

    name: str
    setting: Setting
    trace: Trace


class Outcome(NamedTuple):
    """What became of it."""

    report: Report
    book: Book
    hours: float
    """From ``BEGINNING_S`` on."""

    def later(self) -> list[Stay]:
        """After the beginning, those that were loaded by plans."""
        return [s for s in self.book.stays if s.by_plan and s.began_s >= BEGINNING_S]


def play(run: Run) -> Outcome:
    with counted() as book:
        report = simulate(run.setting, run.trace, "modelless", clock=lambda: 0.0)
    end_s = run.trace.arrival_s[-1] if len(run.trace) else 0.0
    return Outcome(report, book, max(end_s - BEGINNING_S, 1.0) / 3_600)


def runs(
    names: Sequence[str], seed: int, objective: Objective, named: Mapping[str, Any]
) -> Iterator[Run]:
    """The workloads of these names.

    Args:
        named: fields of the setting that are others than usual.
    """
    for name in names:
        if name == LARGE:
            ground = large()
            trace = draw(zipf(ground, 0.4, LARGE_S), ground, seed).trace
            setting = Setting(
                catalog=ground.catalog, kinds=ground.kinds, objective=objective, seed=seed
            )
        elif name == QUIET:
            whole = synthetic()
            kinds = tuple(replace(kind, count=8) for kind in whole.kinds)
            ground = replace(whole, kinds=kinds)
            calm = replace(workloads(ground, None)[0], load=[0.3] * 300)
            trace = draw(calm, ground, seed).trace
            setting = Setting(
                catalog=ground.catalog, kinds=kinds, objective=objective, seed=seed,
                elastic=False, tick_s=1.0, latency_error=(0.8, 1.2), latency_noise=0.1,
            )  # fmt: skip
        else:
            catalog, _, workload = name.rpartition(":")
            case = Case(catalog=catalog or "synthetic", workload=workload, seed=seed, quick=False)
            ground, what, drawn = made(case)
            trace = drawn.trace
            setting = Setting(
                catalog=ground.catalog, kinds=ground.kinds, objective=objective, seed=seed,
                failures_every_s=what.failures_every_s,
            )  # fmt: skip
        yield Run(name, replace(setting, **named), trace)


HEAD = (
    "| workload | plans for | seed | violated | accuracy | USD | plans, with other routes | "
    "loads by plans: at first, per hour later | of these displacing | displacing: wasted, unused |"
    " displacing beside routes: all, wasted | loads for queries | loading, s |"
)


def line(run: Run, seed: int, found: Outcome) -> str:
    """One line of the table."""
    report, later = found.report, found.later()
    first = sum(s.by_plan and s.began_s < BEGINNING_S for s in found.book.stays)
    displacing = [s for s in later if s.displaced]
    beside = [s for s in displacing if not s.routed]
    left = [s for s in displacing if s.left_s is not None]
    per_h = len(later) / found.hours
    return (
        f"| {run.name} | {run.setting.objective.value} | {seed} | {report.violation_ratio:.3%} "
        f"| {report.effective_accuracy:.4f} | {report.cost_usd:.3f} "
        f"| {found.book.plans}, {found.book.reroutes} "
        f"| {first}, {per_h:,.0f} | {len(displacing) / found.hours:,.0f}/h "
        f"| {sum(s.wasted for s in left)}, {sum(not s.queries for s in left)} of {len(left)} "
        f"| {len(beside)}, {sum(s.wasted for s in beside)} "
        f"| {sum(not s.by_plan for s in found.book.stays)} | {report.load_s_total:,.0f} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        default=";".join((*WORKLOADS, QUIET, LARGE)),
        help="workloads, by semicolon; timm:mixed is mixed on measured models",
    )
    parser.add_argument("--seed", default="0", help="one or several, by comma")
    parser.add_argument("--objective", default="cost,accuracy", help="one or several, by comma")
    parser.add_argument("--tick-s", type=float, help="between two plans")
    asked = parser.parse_args(arguments)
    named = {} if asked.tick_s is None else {"tick_s": asked.tick_s}
    print(HEAD)
    print("|---|---|" + "--:|" * (HEAD.count("|") - 3))
    for objective in map(Objective, asked.objective.split(",")):
        for seed in map(int, asked.seed.split(",")):
            for run in runs(asked.only.split(";"), seed, objective, named):
                print(line(run, seed, play(run)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
