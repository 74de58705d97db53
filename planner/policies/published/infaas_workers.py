"""How INFaaS scales workers: by their utilisation, and by what the rates of variants need."""

from collections.abc import Iterable, Mapping, Sequence

from planner.policies.published import infaas_rules as rules
from planner.policies.published.infaas_offers import Offer
from planner.simulation.fleet import LEAST_BILLED_MS, Fleet, Worker
from planner.solver.problem import AvailableKind
from planner.types import Action, Scale
from variants.types import DeviceKindName, WorkerId


class WorkerScaling:
    """Watches the workers of a fleet from one second to the next."""

    def __init__(self, fleet: Fleet, kinds: Sequence[AvailableKind]) -> None:
        self._fleet = fleet
        self._kinds = kinds
        self._utilisation: dict[WorkerId, float] = {}
        self._busy_ms: dict[WorkerId, float] = {}
        self._empty_since_s: dict[WorkerId, float] = {}

    def measure(self, elapsed_s: float) -> None:
        """Take in the utilisation of each worker over the last ``elapsed_s`` seconds."""
        for worker in self._fleet.workers.values():
            before = self._busy_ms.get(worker.id, 0.0)
            self._busy_ms[worker.id] = worker.busy_ms
            self._utilisation[worker.id] = (worker.busy_ms - before) / (1_000 * elapsed_s)

    def rank(self, worker: Worker) -> tuple[float, int]:
        """The less, the rather it gets a new replica: utilisation in tenths, then replicas held."""
        return (round(self._utilisation.get(worker.id, 0.0), 1), len(worker.replicas))

    def scale(
        self, now_s: float, offers: Iterable[Offer], short: Mapping[DeviceKindName, int]
    ) -> list[Action]:
        """Order workers where all of a kind are busy; release what has been empty for a while.

        Args:
            offers: every variant on every device kind, with its rate in queries per second.
            short: replicas that found no device, by kind.
        """
        actions: list[Action] = []
        work: dict[DeviceKindName, float] = {}
        for offer in offers:
            kind = offer.it.device_kind
            work[kind] = work.get(kind, 0.0) + offer.qps / offer.thr
        idle = self._idle(now_s)
        for setting in self._kinds:
            have = self._fleet.count(setting.name)
            usable = [w for w in self._fleet.workers.values() if w.kind.name == setting.name]
            ordered = sum(1 for w in self._fleet.ordered.values() if w.kind.name == setting.name)
            least = min((self._utilisation[worker.id] for worker in usable), default=0.0)
            need = max(
                rules.workers_for(work.get(setting.name, 0.0)),
                have + rules.more_workers(least, len(usable), ordered),
                have + short.get(setting.name, 0) - ordered,
            )
            if need > have:
                actions.append(Scale(device_kind=setting.name, count=min(need, setting.count)))
            elif need < have and idle.get(setting.name):
                leave = min(have - need, idle[setting.name])
                actions.append(Scale(device_kind=setting.name, count=have - leave))
        return actions

    def _idle(self, now_s: float) -> dict[DeviceKindName, int]:
        """Workers by kind that have held nothing for a minute."""
        found: dict[DeviceKindName, int] = {}
        for worker in self._fleet.workers.values():
            if worker.replicas or worker.draining:
                self._empty_since_s.pop(worker.id, None)
                continue
            since_s = self._empty_since_s.setdefault(worker.id, now_s)
            if now_s - since_s >= LEAST_BILLED_MS / 1_000:
                found[worker.kind.name] = found.get(worker.kind.name, 0) + 1
        return found
