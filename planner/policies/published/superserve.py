"""SuperServe (Khare et al., NSDI'25): all variants at hand, and slack decides the accuracy.

SubNetAct keeps all sub-networks of a weight-shared network in memory and switches between them in
no time; SlackFit (``slack_fit``) chooses one when a device is free. Variants here share no weights:
a device holds as many as its memory has room for, and switches between those in no time.

Where the paper is silent, and what was assumed:

* One task has one network on all devices in the paper. Here devices are divided among the tasks by
  the trace's own mean rates, as for static policies (``planner.policies.allocation``), so that
  each task is somewhere; then all devices take in further variants of their tasks, and then
  further tasks, for as long as memory lasts: the fastest variant first, then the most accurate,
  then those between. What no other variant of the task beats in both is left out.
* It does not scale: under the objective ``cost`` the whole fleet is ordered at 0 and kept.
* Floors and cost ceilings are not in the paper. Queries that ask for the same share a queue, and
  its control tuples are those of the variants that meet it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from planner.batching.protocol import Queue
from planner.policies.allocation import Need, Slot, divide
from planner.policies.offers import (
    INFEASIBLE,
    NOWHERE,
    UNKNOWN,
    Held,
    answering,
    chosen,
    cold,
    least_backlog,
    permits,
    roomiest,
)
from planner.policies.published.demand_watch import whole_fleet
from planner.policies.published.slack_fit import SlackFitQueue, Waiting
from planner.simulation.fleet import Fleet, Worker
from planner.simulation.policy import Brief
from planner.types import Action, Candidate, Choice, Load, Query, Refusal
from variants.types import DeviceKindName, TaskName, VariantKey, WorkerId


def make(brief: Brief, fleet: Fleet) -> "SuperServe":
    return SuperServe(brief, fleet)


class SuperServe:
    """Loads what there is room for, and lets the queues of the devices choose."""

    tick_s = 1.0

    def __init__(self, brief: Brief, fleet: Fleet) -> None:
        self._setting = brief.setting
        self._fleet = fleet
        self._held = Held(fleet)
        self._candidates = answering(fleet, brief.setting.kinds)
        self._waiting = Waiting(self._able)
        self._slots = _slots(brief, self._candidates)
        self._contents = [_contents(slot, self._candidates) for slot in self._slots]
        self._slot_of: dict[WorkerId, int] = {}

    def queue(self) -> Queue:
        return SlackFitQueue(self._waiting)

    def changed(self) -> None:
        self._held.stale = True
        for worker in self._fleet.workers.values():
            cast(SlackFitQueue, worker.queue).belongs_to(worker)

    def _able(self, query: Query) -> list[Candidate]:
        return [c for c in self._candidates.get(query.task, ()) if permits(query, c)]

    # -- queries ----------------------------------------------------------------------------------

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        """Count a query on the idlest device that can answer it; which one runs it is seen then."""
        able = self._able(query)
        if query.task not in self._candidates:
            return UNKNOWN
        left_ms = query.received_ms + query.latency_ms - now_ms
        able = [c for c in able if c.table.ms[1] <= left_ms]
        if not able:
            return INFEASIBLE
        for held in (self._held.ready, self._held.loading):
            replicas = (
                replica
                for candidate in able
                for replica in held((candidate.task, candidate.variant))
                if replica.candidate is candidate
            )
            best = least_backlog(replicas, query)
            if best is not None:
                return chosen(best, query, now_ms)
        return self._instantly(able) if self._setting.instant else NOWHERE

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        return self.choose(query, now_ms)

    def _instantly(self, able: Sequence[Candidate]) -> Choice | Refusal:
        """Without time there is no slack: the most accurate variant."""
        best = max(able, key=lambda c: c.accuracy)
        host = roomiest(self._fleet, {c.device_kind: c for c in able if c.variant == best.variant})
        if host is None:
            return NOWHERE
        self._held.stale = True
        return cold(*host)

    # -- what devices hold ------------------------------------------------------------------------

    def tick(self, now_s: float) -> Iterable[Action]:
        """Order the fleet, and load what devices lack."""
        self.changed()
        actions = whole_fleet(self._setting, self._fleet)
        self._slot_of = {id_: at for id_, at in self._slot_of.items() if id_ in self._fleet.workers}
        for worker in self._fleet.workers.values():
            at = self._slot_of.get(worker.id)
            if at is None:
                at = self._free_slot(worker)
                if at is None:
                    continue
                self._slot_of[worker.id] = at
            for task, variant in self._contents[at]:
                if (task, variant) not in worker.replicas:
                    actions.append(Load(worker=worker.id, task=task, variant=variant))
        return actions

    def _free_slot(self, worker: Worker) -> int | None:
        taken = set(self._slot_of.values())
        for at, slot in enumerate(self._slots):
            if slot.kind == worker.kind.name and at not in taken:
                return at
        return None


def _slots(brief: Brief, candidates: Mapping[TaskName, Sequence[Candidate]]) -> Sequence[Slot]:
    """The fleet, divided among the tasks by their fastest variants; every device with a slot."""
    qps: dict[TaskName, float] = {}
    for wanted in brief.average():
        qps[wanted.task] = qps.get(wanted.task, 0.0) + wanted.qps
    needs = []
    for task, rate in qps.items():
        fastest: dict[DeviceKindName, Candidate] = {}
        for candidate in candidates.get(task, ()):
            best = fastest.get(candidate.device_kind)
            if best is None or candidate.table.row_ms < best.table.row_ms:
                fastest[candidate.device_kind] = candidate
        needs.append(
            Need(
                task=task,
                qps=rate,
                unit_ms={kind: c.table.row_ms for kind, c in fastest.items()},
                memory_mib={kind: c.memory_mib for kind, c in fastest.items()},
            )
        )
    slots = list(divide(needs, brief.setting.kinds))
    for kind in brief.setting.kinds:
        there = sum(1 for slot in slots if slot.kind == kind.name)
        slots += [Slot(kind=kind.name, left_mib=kind.memory_mib) for _ in range(kind.count - there)]
    sizes = {kind.name: kind.memory_mib for kind in brief.setting.kinds}
    for slot in slots:
        slot.left_mib = sizes[slot.kind]
    return slots


def _contents(slot: Slot, candidates: Mapping[TaskName, Sequence[Candidate]]) -> list[VariantKey]:
    """What a device holds: its tasks' variants, then those of others, while memory lasts."""
    found: list[VariantKey] = []
    left_mib = slot.left_mib
    own = {task: _frontier(offers, slot.kind) for task, offers in candidates.items()}
    others = [task for task in own if task not in slot.shares]
    for tasks in (list(slot.shares), others):
        ranks = max((len(own[task]) for task in tasks if task in own), default=0)
        for rank in range(ranks):
            for task in tasks:
                for candidate in own.get(task, ())[rank : rank + 1]:
                    if candidate.memory_mib <= left_mib:
                        left_mib -= candidate.memory_mib
                        found.append((task, candidate.variant))
    return found


def _frontier(offers: Iterable[Candidate], kind: DeviceKindName) -> list[Candidate]:
    """A task's variants on a kind that no other beats: the fastest, the most accurate, the rest."""
    frontier: list[Candidate] = []
    here = [c for c in offers if c.device_kind == kind]
    for candidate in sorted(here, key=lambda c: (-c.accuracy, c.table.row_ms)):
        if not frontier or candidate.table.row_ms < frontier[-1].table.row_ms:
            frontier.append(candidate)
    if len(frontier) < 2:
        return frontier
    return [frontier[-1], frontier[0], *frontier[1:-1]]
