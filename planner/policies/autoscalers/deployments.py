"""Deployments: the replicas of each task's variant, and the devices that they are on.

A replica is a device of its own, as a pod with a GPU is. Only where no device is free or can be
ordered, a task without any replica shares the device with the fewest, so that every task is served.
Devices of several kinds are taken in the order in which the variant is good on them: by cost where
devices are ordered, by speed compared with the other tasks' variants where they are given.
"""

from collections.abc import Iterable, Mapping, Sequence

from planner.policies.autoscalers.scaling_rule import Load, ScalingRule
from planner.policies.static import Pick, unit_ms
from planner.simulation.fleet import LEAST_BILLED_MS, Fleet, Replica, Worker
from planner.solver.problem import AvailableKind
from planner.types import Action, Scale, Unload
from planner.types import Load as LoadAction
from variants.types import DeviceKindName, ReplicaState, TaskName, VariantKey, WorkerId


class Deployment:
    """A task's variant: how many replicas there are to be, and on which devices."""

    def __init__(
        self, task: TaskName, made: Pick, rule: ScalingRule, order: Sequence[DeviceKindName]
    ) -> None:
        self.task = task
        self.pick = made
        self.key: VariantKey = (task, made.variant)
        self.rule = rule
        self.order = order
        """Device kinds, the best first."""
        self.target = 1
        self.workers: list[WorkerId] = []
        self.coming: dict[DeviceKindName, int] = {}
        """Devices that were ordered for it."""
        self.arrived = 0
        self._asked_s = 0.0
        self._arrived_before = 0
        self._seen: dict[Replica, tuple[int, float]] = {}
        """Queries done, and their time, of each replica when the rule was asked last."""
        self._busy_ms: dict[WorkerId, float] = {}

    @property
    def count(self) -> int:
        """Replicas that there are or will be."""
        return len(self.workers) + sum(self.coming.values())

    def replicas(self, fleet: Fleet) -> list[Replica]:
        """Those that are loaded or loading."""
        there = (fleet.workers.get(id_) for id_ in self.workers)
        found = (worker.replicas.get(self.key) for worker in there if worker is not None)
        return [replica for replica in found if replica is not None]

    def ask(self, fleet: Fleet, now_s: float) -> None:
        """Ask the rule, if it is time."""
        if now_s - self._asked_s < self.rule.period_s - 1e-6:
            return
        elapsed_ms = 1_000 * (now_s - self._asked_s)
        self._asked_s = now_s
        replicas = self.replicas(fleet)
        done, done_ms = 0, 0.0
        seen: dict[Replica, tuple[int, float]] = {}
        busy, busy_ms = 0.0, {}
        ready = 0
        for replica in replicas:
            before, before_ms = self._seen.get(replica, (0, 0.0))
            done += replica.done - before
            done_ms += replica.done_ms - before_ms
            seen[replica] = (replica.done, replica.done_ms)
            worker = replica.worker
            busy_ms[worker.id] = worker.busy_ms
            if replica.state is ReplicaState.READY:
                ready += 1
                since_ms = worker.busy_ms - self._busy_ms.get(worker.id, worker.busy_ms)
                busy += min(1.0, since_ms / elapsed_ms)
        load = Load(
            now_s=now_s,
            target=self.target,
            ready=ready,
            ongoing=float(sum(replica.in_flight for replica in replicas)),
            busy=busy,
            arrived=self.arrived - self._arrived_before,
            done=done,
            mean_ms=done_ms / done if done else 0.0,
        )
        self._seen, self._busy_ms, self._arrived_before = seen, busy_ms, self.arrived
        self.target = max(1, self.rule.wanted(load))


class Cluster:
    """Brings devices and what is loaded on them to what the deployments are to have."""

    def __init__(
        self, fleet: Fleet, kinds: Sequence[AvailableKind], deployments: Sequence[Deployment]
    ) -> None:
        self._fleet = fleet
        self._kinds = {kind.name: kind for kind in kinds}
        self._deployments = deployments
        self._empty_since_s: dict[WorkerId, float] = {}

    def settle(self, now_s: float, *, elastic: bool) -> list[Action]:
        """What to do now: order and release devices, load and unload."""
        self._forget_lost(elastic)
        for each in self._deployments:
            self._shrink(each)
        actions: list[Action] = []
        for each in sorted(self._deployments, key=lambda d: d.count > 0):
            self._grow(each, elastic)
        if elastic:
            actions += self._scaling(now_s)
        return [*self._unloads(), *self._loads(), *actions]

    def _usable(self) -> Iterable[Worker]:
        return (worker for worker in self._fleet.workers.values() if not worker.draining)

    def _forget_lost(self, elastic: bool) -> None:
        """Devices that failed or left, and orders that came."""
        there = {worker.id for worker in self._usable()}
        for each in self._deployments:
            each.workers = [id_ for id_ in each.workers if id_ in there]
        if not elastic:
            return
        for kind in self._kinds:
            ordered = sum(1 for w in self._fleet.ordered.values() if w.kind.name == kind)
            for each in self._deployments:
                keep = min(each.coming.get(kind, 0), ordered)
                ordered -= keep
                each.coming[kind] = keep

    def _shrink(self, each: Deployment) -> None:
        """Give back what is too much: orders first, then the devices with the least to do."""
        for kind in reversed(each.order):
            less = min(each.coming.get(kind, 0), max(0, each.count - each.target))
            each.coming[kind] = each.coming.get(kind, 0) - less
        if each.count > each.target:
            rank = {kind: at for at, kind in enumerate(each.order)}
            workers = [self._fleet.workers[id_] for id_ in each.workers]
            workers.sort(key=lambda w: (rank.get(w.kind.name, 0), w.queue.count, w.id))
            each.workers = [w.id for w in workers[: each.target]]

    def _grow(self, each: Deployment, elastic: bool) -> None:
        """Take free devices, else order some, else share one."""
        taken = {id_ for other in self._deployments for id_ in other.workers}
        for kind in each.order:
            need_mib = each.pick.offers[kind].memory_mib
            for worker in self._usable():
                if each.count >= each.target:
                    return
                fits = worker.kind.name == kind and need_mib <= worker.kind.memory_mib
                if fits and worker.id not in taken:
                    each.workers.append(worker.id)
        if elastic:
            for kind in each.order:
                wanted = sum(d.coming.get(kind, 0) for d in self._deployments)
                there = sum(1 for w in self._fleet.workers.values() if w.kind.name == kind)
                left = self._kinds[kind].count - there - wanted
                more = max(0, min(left, each.target - each.count))
                each.coming[kind] = each.coming.get(kind, 0) + more
        if not each.count:
            self._share(each)

    def _share(self, each: Deployment) -> None:
        """A replica beside others, where memory allows."""
        held: dict[WorkerId, list[Deployment]] = {}
        for other in self._deployments:
            for id_ in other.workers:
                held.setdefault(id_, []).append(other)
        able = [
            worker
            for worker in self._usable()
            if worker.kind.name in each.order
            and worker.kind.memory_mib
            >= each.pick.offers[worker.kind.name].memory_mib
            + sum(
                other.pick.offers[worker.kind.name].memory_mib for other in held.get(worker.id, ())
            )
        ]
        if able:
            each.workers.append(min(able, key=lambda w: len(held.get(w.id, ()))).id)

    def _scaling(self, now_s: float) -> Iterable[Action]:
        """Order what deployments wait for; release what has been empty for a minute, the least that
        is billed."""
        taken = {id_ for each in self._deployments for id_ in each.workers}
        for kind in self._kinds:
            wanted = sum(each.coming.get(kind, 0) for each in self._deployments)
            spare = 0
            for worker in self._usable():
                if worker.kind.name != kind:
                    continue
                if worker.id in taken or worker.replicas:
                    self._empty_since_s.pop(worker.id, None)
                    continue
                since_s = self._empty_since_s.setdefault(worker.id, now_s)
                spare += now_s - since_s >= LEAST_BILLED_MS / 1_000
            there = sum(1 for worker in self._usable() if worker.kind.name == kind)
            count = there - spare + wanted
            if count != self._fleet.count(kind):
                yield Scale(device_kind=kind, count=count)

    def _unloads(self) -> Iterable[Action]:
        keys = {(id_, each.key) for each in self._deployments for id_ in each.workers}
        for worker in self._usable():
            for key, replica in worker.replicas.items():
                if (worker.id, key) not in keys and replica.state is ReplicaState.READY:
                    yield Unload(worker=worker.id, task=key[0], variant=key[1])

    def _loads(self) -> Iterable[Action]:
        for each in self._deployments:
            for id_ in each.workers:
                if each.key not in self._fleet.workers[id_].replicas:
                    yield LoadAction(worker=id_, task=each.task, variant=each.pick.variant)


def order_of(
    made: Pick, others: Iterable[Pick], usd_per_hour: Mapping[DeviceKindName, float] | None
) -> list[DeviceKindName]:
    """A variant's device kinds, the best first.

    Args:
        usd_per_hour: of each kind, where cost counts: then by cost per query; None: by time per
            query, relative to that of all variants on the kind.
    """
    own_ms = {kind: unit_ms(c, made.latency_ms) for kind, c in made.offers.items()}
    if usd_per_hour is not None:
        return sorted(own_ms, key=lambda kind: (own_ms[kind] * usd_per_hour[kind], kind))
    mean_ms: dict[DeviceKindName, list[float]] = {}
    for other in others:
        for kind, candidate in other.offers.items():
            mean_ms.setdefault(kind, []).append(unit_ms(candidate, other.latency_ms))
    return sorted(
        own_ms, key=lambda kind: (own_ms[kind] * len(mean_ms[kind]) / sum(mean_ms[kind]), kind)
    )
