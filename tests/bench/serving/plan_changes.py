"""How often a plan changes at little traffic: ``python -m tests.bench.serving.plan_changes``.

Ten tasks on ``--devices`` devices of each of two kinds whose memory is short, a tick per second as
in the product, constant Poisson arrivals at ``--load`` of the capacity. With ``--off 0.2`` each
profile is wrong by up to a fifth and each batch varies by half of that, so that latencies are
corrected all the time. Counted are the ticks after which another plan would be stored and sent, and
of these the ones with other routes. Nothing depends on the machine.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

from planner.policies.modelless import Modelless, planner_of
from planner.simulate import offers_of
from planner.simulation.engine import Engine
from planner.simulation.fleet import Fleet
from planner.simulation.policy import Brief
from planner.simulation.setting import Setting
from planner.types import Action, Objective
from tests.bench.planning.catalogs import synthetic
from tests.bench.planning.energies import with_energy
from tests.bench.simulation.workloads import draw, workloads


class Counting(Modelless):
    """Our own policy, its ticks and changes counted."""

    ticks = replanned = rerouted = actions = 0

    def tick(self, now_s: float) -> Iterable[Action]:
        before = self.plan
        found = tuple(super().tick(now_s))
        self.ticks += 1
        self.actions += len(found)
        if before is not None and self.plan is not before and self.plan is not None:
            self.replanned += 1
            self.rerouted += self.plan.routes != before.routes
        return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.serving.plan_changes")
    parser.add_argument("--load", type=float, default=0.1)
    parser.add_argument("--seconds", type=int, default=200)
    parser.add_argument("--devices", type=int, default=2, help="of each kind")
    parser.add_argument("--objective", choices=[o.value for o in Objective], default="accuracy")
    parser.add_argument("--off", type=float, default=0.0, help="part that profiles are wrong by")
    asked = parser.parse_args(arguments)
    ground = synthetic()
    ground = replace(
        ground, kinds=tuple(replace(kind, count=asked.devices) for kind in ground.kinds)
    )
    if asked.objective == Objective.ENERGY:
        ground = with_energy(ground)
    steady = workloads(ground, None)[0]
    trace = draw(replace(steady, load=[asked.load] * asked.seconds), ground, 0).trace
    setting = Setting(
        catalog=ground.catalog,
        kinds=ground.kinds,
        objective=Objective(asked.objective),
        elastic=False,
        tick_s=1.0,
        latency_error=(1.0 - asked.off, 1.0 + asked.off),
        latency_noise=asked.off / 2,
    )
    brief = Brief(setting=setting, average=tuple, clock_s=lambda: 0.0)
    fleet = Fleet(offers_of(setting.catalog), setting.kinds)
    policy = Counting(brief, fleet, planner_of(brief))
    Engine(setting, trace, fleet, lambda _: policy, lambda: 0.0).run()
    print(
        f"{len(trace) / asked.seconds:.1f} queries/s: of {policy.ticks} ticks {policy.replanned} "
        f"changed the plan, {policy.rerouted} its routes; {policy.actions:,} loads and unloads"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
