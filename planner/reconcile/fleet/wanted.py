"""The wanted fleet: how many workers of each kind there are to be, and how they come and go."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from planner.reconcile.by_layout.layout_change import until_changed
from planner.reconcile.by_layout.layout_choice import split
from planner.reconcile.by_zone.zoned_sizing import NeededNear, needed_near
from planner.reconcile.explanation import told_of_size
from planner.reconcile.sizing import (
    FleetPlanner,
    going_kinds,
    size,
    staying,
    until_replaced,
    without,
)
from planner.residency.pinned_fleet import pinned_least, pinning_layouts
from planner.solver.problem import Planner
from planner.types import Action, Demand, Observation, Scale, Snapshot
from variants.types import DeviceKindName, Plan


class WantedFleet(NamedTuple):
    """How many workers there are to be, and who of those that are there counts on the way."""

    wanted: dict[DeviceKindName, int]
    """Workers by kind."""
    why: str
    near: NeededNear
    found_by: FleetPlanner | None
    held: frozenset[DeviceKindName]
    """Kinds on their way out that go on until those that are wanted are there."""
    going: frozenset[DeviceKindName]
    """The others of which none is to stay."""
    seen: Observation
    left: Observation
    """The same, as if all workers that go were on their way out; the same object where none is."""

    def sentences(self) -> tuple[str, ...]:
        """Why there are to be so many, for the plan's explanation."""
        layouts = self.seen.layouts
        first = (self.why,) if layouts else ()
        return (
            *first,
            *self.near.sentences,
            *(() if layouts else told_of_size(self.seen, self.why)),
        )

    def scaling(self, plan: Plan, snapshot: Snapshot) -> Iterable[Action]:
        """The steps towards it that can be made now: who goes stays until others hold what is
        needed.

        Args:
            snapshot: of those that are ``left``.
        """
        if self.seen.layouts:
            counts = until_changed(self.wanted, plan, self.seen, snapshot)
        else:
            counts = {
                **staying(self.wanted, self.going, plan.placements, self.left),
                **{kind: self.seen.running[kind] for kind in self.held},
            }
        return scaling(counts, self.seen.running, self.why)


def wanted_fleet(
    observation: Observation,
    snapshot: Snapshot,
    expected: Sequence[Demand],
    planner: Planner,
    before: FleetPlanner | None,
) -> WantedFleet:
    """How many workers of each kind there are to be.

    Args:
        before: what found it in the tick before.
    """
    near = NeededNear()
    if observation.elastic and not observation.layouts:
        envelope = expected if observation.envelope is None else observation.envelope
        near = needed_near(snapshot, observation, envelope, planner)
    wanted, why, found_by = _workers(observation, snapshot, expected, planner, near, before)
    going = going_kinds(wanted, observation)
    held = until_replaced(wanted, going, observation)
    going -= held
    left = observation
    if going and any(not w.draining and w.device_kind not in going for w in observation.workers):
        left = without(observation, going)
    return WantedFleet(wanted, why, near, found_by, held, going, observation, left)


def _workers(
    observation: Observation,
    snapshot: Snapshot,
    expected: Sequence[Demand],
    planner: Planner,
    near: NeededNear,
    before: FleetPlanner | None,
) -> tuple[dict[DeviceKindName, int], str, FleetPlanner | None]:
    """Worker counts by kind, with the reason, and what was found for the next tick."""
    inventory = observation.inventory
    if not observation.elastic:
        counts = {kind: n for kind, n in sorted(inventory.items()) if n > 0}
        return counts, observation.sized_by, None
    if observation.layouts:
        return *split(snapshot, pinning_layouts(observation), expected, planner), None
    absent = observation.absent
    if observation.plan is None and not expected:
        here = {kind: n for kind, n in inventory.items() if kind not in absent}
        known = here if any(here.values()) else dict(inventory)
        return known, "nothing is known of the demand yet", None
    usable: dict[DeviceKindName, int] = {}
    for report in observation.workers:
        if not report.draining:
            usable[report.device_kind] = usable.get(report.device_kind, 0) + 1
    least = {
        kind: max(observation.least.get(kind, 0), near.least.get(kind, 0)) for kind in inventory
    }
    counts, why, found = size(
        snapshot,
        {kind.name: kind for kind in observation.catalog.device_kinds},
        inventory,
        # What waits for a machine was not there yet: nothing is kept because it was ordered.
        {kind: 0 if kind in absent else n for kind, n in observation.running.items()},
        usable,
        expected if observation.envelope is None else observation.envelope,
        planner,
        watched=observation.watched,
        steady=observation.steady,
        objective=observation.objective,
        least=pinned_least(observation.catalog, inventory, least),
        interference=observation.interference,
        room=observation.room.part,
        dispersion=observation.dispersion,
        before=before,
    )
    if not any(counts.values()):
        # One worker stays to answer the next query, whenever it comes.
        prices = {kind.name: kind.usd_per_hour for kind in observation.catalog.device_kinds}
        there = [kind for kind, most in inventory.items() if most > 0 and kind in prices]
        running = observation.running
        there.sort(key=lambda k: (k in absent, not running.get(k, 0), prices[k], k))
        counts = dict.fromkeys(there[:1], 1)
        why = "one stays for the next query"
    return {kind: n for kind, n in sorted(counts.items()) if n > 0}, why, found


def scaling(
    wanted: Mapping[DeviceKindName, int], running: Mapping[DeviceKindName, int], why: str
) -> Iterable[Action]:
    """What makes of the workers that run those that are wanted."""
    for kind in sorted({*wanted, *running}):
        want, have = wanted.get(kind, 0), running.get(kind, 0)
        if want != have:
            yield Scale(device_kind=kind, count=want, why=f"{want} instead of {have}: {why}")
