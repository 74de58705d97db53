"""Which layout the machine is to have, for the demand that workers are to be there for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from planner.layouts import START_S, Layout, Worth, chosen, possible, present_layout, runs
from planner.reconcile.matching import kept_out_everywhere
from planner.reconcile.problem_builder import BuiltProblem, build_problem
from planner.reconcile.sizing import available
from planner.selection.snapshot import build_snapshot
from planner.solver.problem import Planner
from planner.types import Demand, Objective, Observation, Snapshot
from variants.types import DeviceKind, DeviceKindName, TaskName, VariantKey

MOST_LOAD = 0.97
"""Most of a worker's time that a layout is to be used for."""


def split(
    snapshot: Snapshot, observation: Observation, expected: Sequence[Demand], planner: Planner
) -> tuple[dict[DeviceKindName, int], str]:
    """Worker counts of the layout that the machine is to have, with the reason."""
    layouts = possible(observation.layouts, observation.inventory)
    layouts = [one for one in layouts if one not in observation.refused] or layouts
    every = layouts  # while the machine rests, what only others could answer is asked all the same
    planned = observation.plan.workers if observation.plan else {}
    now = present_layout(layouts, planned, observation.running)
    resting = ""
    if observation.rests:  # what still runs beside it may be gone back to
        some = [one for one in layouts if runs(one, observation.running)]
        if len(some) < len(layouts) and now in layouts:
            resting = f" It was split anew within the last {observation.horizon_s:,.0f} s."
            layouts = [one for one in layouts if one == now or one in some]
    weighed = len(layouts) > 1 or bool(resting)  # else there is nothing to say of them
    if observation.measured is not None and weighed:
        transport_ms = observation.transport_ms
        snapshot = build_snapshot(observation.measured, (), transport_ms=transport_ms)
    envelope = expected if observation.envelope is None else observation.envelope
    fleets = _Fleets(
        snapshot,
        {kind.name: kind for kind in observation.catalog.device_kinds},
        observation.interference,
        kept_out_everywhere(observation.workers),
    )
    asked = [one for one in envelope if one.qps > 0 and one.task in snapshot.tasks]
    if weighed:
        asked = fleets.answerable(every, asked)
    if not weighed or not asked:
        worths = [_empty(one) for one in layouts]
    else:
        by_accuracy = observation.objective is Objective.ACCURACY
        aim = Objective.ACCURACY if by_accuracy else Objective.COST
        worths = [fleets.worth(one, asked, planner, aim) for one in layouts]
    loads_s = {
        task: min((c.load_ms for c in snapshot.tasks[task].by_cost), default=0.0) / 1_000
        for task in {one.task for one in asked}
    }
    layout, why = chosen(
        worths,
        now,
        observation.objective,
        change_s=START_S + sum(loads_s.values()),
        horizon_s=observation.horizon_s,
    )
    return dict(layout), f"{why}{resting}"


def _empty(layout: Layout) -> Worth:
    return Worth(layout=layout, served_qps=0.0, asked_qps=0.0, accuracy=0.0, usd_per_hour=0.0)


@dataclass(frozen=True, slots=True)
class _Fleets:
    """The workers of any layout, all of which are there and paid for."""

    snapshot: Snapshot
    kinds: Mapping[DeviceKindName, DeviceKind]
    interference: Mapping[DeviceKindName, float]
    forbidden: Mapping[DeviceKindName, Collection[VariantKey]]
    """What no worker of a kind may be given."""

    def answerable(self, layouts: Sequence[Layout], demand: Sequence[Demand]) -> list[Demand]:
        """The classes of a demand that some layout could answer: no choice helps the others."""
        left = set(demand)
        for layout in layouts:
            left &= set(self._built(layout, demand).unanswerable)
        return [one for one in demand if one not in left]

    def worth(
        self, layout: Layout, demand: Sequence[Demand], planner: Planner, objective: Objective
    ) -> Worth:
        """What a layout serves of a demand."""
        made = self._built(layout, demand)
        found = planner(made.problem, objective) if made.problem.demand else None
        served_qps = sum(
            one.qps / made.factors[one.demand] for one in (found.assignments if found else ())
        )
        return Worth(
            layout=layout,
            served_qps=served_qps,
            asked_qps=sum(one.qps for one in demand),
            accuracy=found.accuracy if found else 0.0,
            usd_per_hour=sum(
                self.kinds[kind].usd_per_hour * n
                for kind, n in layout.items()
                if kind in self.kinds  # else nothing was ever measured on it
            ),
            tasks=len(self._tasks(layout, demand, made.unanswerable)),
        )

    def _built(self, layout: Layout, demand: Sequence[Demand]) -> BuiltProblem:
        there = available(self.kinds, layout, self.interference, powered=False)
        forbidden = self.forbidden
        return build_problem(self.snapshot, there, demand, load=MOST_LOAD, forbidden=forbidden)

    def _tasks(
        self, layout: Layout, demand: Sequence[Demand], unanswerable: Collection[Demand]
    ) -> set[TaskName]:
        """Tasks that its workers could answer: of one that is asked for some class, of another
        whatever fits."""
        room_mib = {k: self.kinds[k].memory_mib for k, n in layout.items() if n and k in self.kinds}
        fitting = {
            task
            for task, view in self.snapshot.tasks.items()
            if any(
                c.memory_mib <= room_mib.get(c.device_kind, -1.0)
                and (task, c.variant) not in self.forbidden.get(c.device_kind, ())
                for c in view.by_cost
            )
        }
        answered = {one.task for one in demand if one not in unanswerable}
        return (fitting - {one.task for one in demand}) | answered
