"""Whether the simulator still finds the same: ``python -m tests.bench.simulation.fingerprints``.

Prints a digest of everything in a report that is repeatable, for several workloads, policies,
objectives and seeds, and one of what became of each query: where it ran, in which batch, and when
that was done. Run it before and after a change that should only make the simulator quicker, and
compare the lines. Clock times are left out; numbers count to the last bit.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import NamedTuple
from unittest.mock import patch

from planner.simulate import simulate
from planner.simulation.fleet import Ticket
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.tally import Tally
from planner.types import Objective
from tests.bench.planning.catalogs import Ground, synthetic
from tests.bench.planning.energies import with_energy
from tests.bench.simulation.large_catalog import large, zipf
from tests.bench.simulation.workloads import Drawn, Workload, draw, workloads

MEASURED = ("decision_us_p50", "decision_us_p99", "plan_ms_p50", "plan_ms_p99")
"""Fields that a clock fills."""


class Case(NamedTuple):
    name: str
    setting: Setting
    drawn: Drawn
    policies: Sequence[str]


class Outcomes(Tally):
    """A tally that takes down what became of each query, in the order in which it is known."""

    made: "Outcomes"
    """The latest one."""

    def __init__(self, arrival_s: Sequence[float]) -> None:
        super().__init__(arrival_s)
        self.lines = hashlib.sha256()
        Outcomes.made = self

    def rejects(self, arrived_ms: float) -> None:
        self.lines.update(f"rejected {arrived_ms!r}\n".encode())
        super().rejects(arrived_ms)

    def never(self, arrived_ms: float) -> None:
        self.lines.update(f"given up {arrived_ms!r}\n".encode())
        super().never(arrived_ms)

    def answered(self, arrived_ms: float, accuracy: float) -> None:
        self.lines.update(f"answered {arrived_ms!r} {accuracy!r}\n".encode())
        super().answered(arrived_ms, accuracy)

    def ran(self, tickets: Iterable[Ticket], now_ms: float, run_ms: float, accuracy: float) -> None:
        for one in tickets:
            where = (one.replica.worker.id, *one.replica.key, one.tries)
            self.lines.update(f"{one.arrived_ms!r} {where} {run_ms!r} {now_ms!r}\n".encode())
        super().ran(tickets, now_ms, run_ms, accuracy)


def digest(report: Report) -> str:
    """Of all fields that do not depend on a clock, the timeline included."""
    found = [
        (field.name, getattr(report, field.name))
        for field in fields(report)
        if field.name not in MEASURED
    ]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def cases() -> Iterator[Case]:
    ground = synthetic()
    quick = {each.name: each for each in workloads(ground, None, quick=True)}
    everyone = ("modelless", "infaas", "clipper", "static-best", "static-cheapest")
    for name in ("flash", "mixed", "failures"):
        drawn = draw(replace(quick[name], load=quick[name].load[:120]), ground, 0)
        for objective in (Objective.COST, Objective.ACCURACY):
            setting = _setting(ground, objective, failures_every_s=quick[name].failures_every_s)
            yield Case(f"{name}, {objective.value}", setting, drawn, everyone)
    drawn = draw(replace(quick["zipf"], load=quick["zipf"].load[:100]), ground, 1)
    setting = replace(_setting(ground, Objective.ACCURACY), batching="aimd", seed=3)
    yield Case("zipf, aimd", setting, drawn, ("modelless",))
    short = large(tasks=30)
    drawn = draw(zipf(short, 0.4, 150), short, 0)
    for objective in (Objective.COST, Objective.ACCURACY):
        setting = _setting(short, objective)
        yield Case(f"short memory, {objective.value}", setting, drawn, ("modelless",))
    for rule in ("lru", "gdsf"):
        setting = replace(_setting(short, Objective.ACCURACY), eviction=rule)
        yield Case(f"short memory, {rule}", setting, drawn, ("modelless",))
    setting = replace(_setting(short, Objective.ACCURACY), instant=True)
    yield Case("short memory, instant", setting, drawn, ("modelless",))
    yield from _saving_energy(quick)
    many = large()
    drawn = draw(zipf(many, 0.4, 60), many, 0)
    for objective in (Objective.COST, Objective.ACCURACY):
        setting = _setting(many, objective)
        yield Case(f"1,200 variants, {objective.value}", setting, drawn, ("modelless",))


def _saving_energy(quick: Mapping[str, Workload]) -> Iterator[Case]:
    ground = with_energy(synthetic())
    for name in ("flash", "mixed", "failures", "zipf"):
        drawn = draw(replace(quick[name], load=quick[name].load[:120]), ground, 0)
        setting = _setting(ground, Objective.ENERGY, failures_every_s=quick[name].failures_every_s)
        yield Case(f"{name}, energy", setting, drawn, ("modelless", "clipper"))


def _setting(
    ground: Ground, objective: Objective, failures_every_s: float | None = None
) -> Setting:
    return Setting(
        catalog=ground.catalog,
        kinds=ground.kinds,
        objective=objective,
        failures_every_s=failures_every_s,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulation.fingerprints")
    parser.add_argument("--policy", help="only this one")
    parser.add_argument("--case", default="", help="only those whose name begins so")
    asked = parser.parse_args(arguments)
    for case in cases():
        for policy in case.policies:
            if asked.policy in (None, policy) and case.name.startswith(asked.case):
                with patch("planner.simulation.engine.Tally", Outcomes):
                    report = simulate(case.setting, case.drawn.trace, policy, clock=lambda: 0.0)
                told = Outcomes.made.lines.hexdigest()[:16]
                print(
                    f"{case.name:32} {policy:16} {report.requests:8,} {digest(report)} {told}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
