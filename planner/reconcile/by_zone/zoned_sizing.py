"""Zoned sizing: how many workers zones need of their own, where plans decide how many run.

A kind has as many workers as the whole demand needs, and the cheapest kind may stand far away. What
is asked for in a zone and is late by the way from anywhere else needs workers there: as many are
kept of the kinds whose workers stand in that zone alone. The rest is sized as where there are no
zones, with those workers as there anyway.

Of a kind whose workers stand in several zones nobody can say which one goes: where a zone needs
some of them, none of that kind does, however many there are.

What is not known yet lets nothing go: no worker of any kind before it was looked for a while where
is asked, none of a kind of which no worker was seen, and none that a class may need of which
nobody has asked anything lately.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from planner.reconcile.sizing import cheapest
from planner.selection.eligibility import profile_rule
from planner.solver.problem import Planner
from planner.types import Demand, Observation, Snapshot, class_of
from planner.zone_demand import ASKED_IN, Zone, named, share_key
from planner.zones.zone_parts import NEGLIGIBLE, shortened
from variants.types import DeviceKind, DeviceKindName

Counts = Mapping[DeviceKindName, int]

UNSETTLED = "No worker goes before it is known in which zones is asked."


@dataclass(frozen=True, slots=True)
class NeededNear:
    """Fewest workers of each kind so that each zone has those that it needs of its own."""

    least: Counts = field(default_factory=dict)
    sentences: tuple[str, ...] = ()


def needed_near(
    snapshot: Snapshot, observation: Observation, envelope: Sequence[Demand], planner: Planner
) -> NeededNear:
    """What zones need of their own, and a sentence for each that needs something.

    Args:
        envelope: what workers are to be there for.
    """
    zones = observation.zones
    stand = {
        kind: where
        for kind, where in observation.kind_zones.items()
        if observation.inventory.get(kind)
    }
    homes = sorted({zone for where in stand.values() for zone in where})
    least = _unknown(observation, {*homes, *zones.usual}, envelope)
    if not observation.zones_settled and least:
        return NeededNear(least, (UNSETTLED,))
    if len(homes) < 2 or not zones.matters(homes):
        return NeededNear(least)
    kinds = _Kinds(snapshot, {kind.name: kind for kind in observation.catalog.device_kinds})
    sentences = []
    for home in homes:
        own = [kind for kind, where in stand.items() if home in where]
        others = {other: [k for k, where in stand.items() if other in where] for other in homes}
        del others[home]
        bound = []
        for each in envelope:
            key = share_key(*class_of(each))
            part = zones.of(key).get(home, 0.0)
            near = shortened(each, zones.away_ms(home, home))
            forgotten = key not in zones.shares
            if (
                (forgotten or part > NEGLIGIBLE)
                and kinds.able(own, near)
                and not any(
                    kinds.able(there, shortened(each, zones.away_ms(home, other)))
                    for other, there in others.items()
                )
            ):
                if part > NEGLIGIBLE:
                    bound.append(replace(near, qps=part * near.qps))
                if forgotten:
                    able = (kind for kind in own if kinds.able([kind], near))
                    least |= {kind: observation.running.get(kind, 0) for kind in able}
        if not bound:
            continue
        counts = _needed(snapshot, observation, planner, kinds, home, own, bound)
        for kind, count in counts.items():
            least[kind] = max(least.get(kind, 0), count)
        # Without their number, which follows the demand: each sentence is another plan.
        kept = ", ".join(kind for kind, count in sorted(counts.items()) if count)
        tasks = ", ".join(sorted({each.task for each in bound}))
        sentences.append(
            f"{ASKED_IN}{named(home)}: {tasks} in less time than the way to any other zone leaves. "
            + (f"Workers stay for it: {kept}." if kept else "No kind has a worker there.")
        )
    return NeededNear(least, tuple(sentences))


def _unknown(
    observation: Observation, zones: Collection[Zone], envelope: Sequence[Demand]
) -> dict[DeviceKindName, int]:
    """Fewest workers of the kinds of which it is not known yet where they are needed."""
    running = {kind: observation.running.get(kind, 0) for kind in observation.inventory}
    unseen = {
        kind: count
        for kind, count in running.items()
        if count and kind not in observation.kind_zones and kind not in observation.absent
    }
    if len(zones) < 2 and not (unseen and any(zones)):
        return {}
    if observation.zones_settled:
        return unseen
    # What nobody asks for is asked for nowhere.
    return running if any(each.qps > 0.0 for each in envelope) else {}


@dataclass(frozen=True, slots=True)
class _Kinds:
    """What the workers of each kind could do."""

    snapshot: Snapshot
    known: Mapping[DeviceKindName, DeviceKind]

    def able(self, kinds: Sequence[DeviceKindName], asked: Demand) -> bool:
        """Whether an idle worker of one of the kinds could answer a class in time."""
        view = self.snapshot.tasks.get(asked.task)
        if view is None or asked.qps <= 0.0:
            return False
        rule = profile_rule(
            replace(asked, latency_ms=asked.tightest_ms), self.snapshot.transport_ms
        )
        return any(
            candidate.device_kind in kinds
            and candidate.device_kind in self.known
            and candidate.memory_mib <= self.known[candidate.device_kind].memory_mib
            and rule(candidate) is None
            for candidate in view.by_cost
        )


def _needed(
    snapshot: Snapshot,
    observation: Observation,
    planner: Planner,
    kinds: _Kinds,
    home: Zone,
    own: Sequence[DeviceKindName],
    bound: Sequence[Demand],
) -> dict[DeviceKindName, int]:
    """How many workers a zone needs for what only it can answer in time."""
    alone = [kind for kind in own if observation.kind_zones[kind] == {home}]
    counts = cheapest(
        snapshot,
        kinds.known,
        {kind: observation.inventory[kind] for kind in alone},
        [each for each in bound if kinds.able(alone, each)],
        planner,
        observation.objective,
        observation.interference,
    )
    for kind in own:
        if kind not in alone and any(
            kinds.able([kind], each) and not kinds.able(alone, each) for each in bound
        ):
            counts[kind] = observation.running.get(kind, 0)
    return counts
