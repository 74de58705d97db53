"""Loads: what begins now, what waits for its turn, and what leaves for it.

Memory is reserved from the moment of the decision to load a variant until it is gone. Loads run
beside serving, one after the other unless ``Setting.loads_in_turn`` says otherwise.
"""

from collections.abc import Callable

from planner.eviction.turns import AHEAD_S, turn_of
from planner.simulation.devices import At
from planner.simulation.fleet import Fleet, Replica, Worker, next_load
from planner.simulation.memory import Memories
from planner.simulation.policy import Policy
from planner.simulation.setting import Setting
from planner.simulation.tally import Tally
from variants.types import ReplicaState, VariantKey

LOOK_MS = 900.0 * AHEAD_S
"""So long before other loads end, those that wait for their turn are looked at: a little after it
may have come (``AHEAD_S``), so that rounding makes it no sooner."""


class Loads:
    """The loads of all devices."""

    def __init__(
        self,
        setting: Setting,
        fleet: Fleet,
        policy: Policy,
        memories: Memories,
        tally: Tally,
        *,
        at: At,
        clock_ms: Callable[[], float],
        ready: Callable[[Replica], None],
    ) -> None:
        """
        Args:
            ready: called when a variant has become ready, with what waits for it.
        """
        self._setting = setting
        self._fleet = fleet
        self._policy = policy
        self._memories = memories
        self._tally = tally
        self._at = at
        self._clock_ms = clock_ms
        self._tell_ready = ready

    def begin(
        self,
        worker: Worker,
        key: VariantKey,
        *,
        waiting: bool | None = None,
        patience_ms: float = 0.0,
        counted: bool = False,
    ) -> Replica | None:
        """Begin a load, evicting what the rule says; None when there is no room, or none yet.

        Args:
            waiting: whether the query that asks for it waits; None: no query asks.
            patience_ms: how much later than now it may begin, for the query that waits.
            counted: that a query asks was counted before, and the load's turn did not come.
        """
        candidate = self._fleet.offers[worker.kind.name].get(key)
        if candidate is None:
            return None
        setting, now_ms = self._setting, self._clock_ms()
        turn = None
        if waiting is not None and candidate.memory_mib > worker.free_mib:
            busy_ms = worker.loading_ms(now_ms)
            turn = turn_of(busy_ms / 1_000, waiting=waiting, patience_s=patience_ms / 1_000)
            waiting = turn.waits
        if waiting is not None and not counted:
            self._memories.missed(key, waits=waiting)  # refused or not
        if turn is not None and not turn.now:
            if turn.soon:
                if not worker.put_off:
                    self._at(now_ms + busy_ms - LOOK_MS, self._next_turn, worker)
                worker.put_off[key] = candidate
            return None
        leave = self._memories.to_evict(
            worker, candidate, now_ms, waiting=waiting, patience_ms=patience_ms
        )
        if leave is None:
            return None
        for other in leave:
            self.unload(worker.replicas[other])
        queue = worker.queue.add_variant(candidate.task, candidate.table)
        replica = Replica(key, candidate, worker, queue)
        worker.replicas[key] = replica
        worker.reserved_mib += candidate.memory_mib
        worker.view.free_mib = worker.free_mib
        replica.displaces = bool(leave)
        if waiting is None:
            worker.view.will_load(key, asked=False)
        else:
            self.asked(replica)
        self._tally.loaded(now_ms, candidate.load_ms / 1_000)
        if setting.instant:
            self._ready(replica)
        elif setting.loads_in_turn:
            worker.to_load.append(replica)
            self._begin_next(worker)
        else:
            self._at(now_ms + candidate.load_ms, self._ready, replica)
        return replica

    def asked(self, replica: Replica) -> None:
        """Queries ask for what is being loaded, or waits for its turn."""
        worker = replica.worker
        worker.view.will_load(replica.key, asked=True)
        if self._setting.loads_in_turn and worker.loads is not replica and not replica.displaces:
            replica.asked_qps = self._memories.learned_qps(replica.key, self._clock_ms() / 1_000)

    def _begin_next(self, worker: Worker) -> None:
        """Begin the load whose turn it is."""
        if worker.loads is not None or not worker.to_load:
            return
        replica = next_load(worker.to_load)
        worker.to_load.remove(replica)
        worker.loads = replica
        worker.loads_until_ms = self._clock_ms() + replica.candidate.load_ms
        self._at(worker.loads_until_ms, self._loaded, replica)

    def _loaded(self, replica: Replica) -> None:
        worker = replica.worker
        if worker.loads is replica:  # the device has not failed meanwhile
            worker.loads = None
            self._begin_next(worker)
            self._ready(replica)

    def _next_turn(self, worker: Worker) -> None:
        """The turn has come of a load that queries asked for while others were loaded."""
        waiting, worker.put_off = worker.put_off, {}
        if self._fleet.workers.get(worker.id) is not worker or worker.draining:
            return
        for candidate in self._memories.by_gain(worker, waiting.values(), self._clock_ms()):
            key = (candidate.task, candidate.variant)
            if key not in worker.replicas:  # those after the first may be put off once more
                self.begin(worker, key, waiting=False, counted=True)

    def _ready(self, replica: Replica) -> None:
        worker = replica.worker
        if worker.replicas.get(replica.key) is not replica:
            return  # the device failed meanwhile
        worker.view.loads_no_more(replica.key)
        replica.state = ReplicaState.READY
        worker.holds(replica.key, ready=True)
        replica.loaded_ms = self._clock_ms()
        self._policy.changed()
        self._tell_ready(replica)

    def unload(self, replica: Replica) -> None:
        """Take a variant out of routing; it is gone once nothing of it is in flight."""
        replica.state = ReplicaState.UNLOADING
        replica.worker.holds(replica.key, ready=False)
        self._tally.evicted(self._clock_ms())
        self._policy.changed()
        if not replica.in_flight:
            self.gone(replica)

    def gone(self, replica: Replica) -> None:
        """Give free what it takes: nothing of it is in flight any more."""
        worker = replica.worker
        del worker.replicas[replica.key]
        worker.queue.remove_variant(replica.queue)
        worker.reserved_mib -= replica.candidate.memory_mib
        if not worker.replicas:
            worker.reserved_mib = 0.0
        worker.view.free_mib = worker.free_mib
