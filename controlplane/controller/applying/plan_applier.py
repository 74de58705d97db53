"""Applies a plan: what the control loop decided is done, what fails waits and is tried again.

So are quarantines ended that operators lifted: at each worker that shows one which began before.

Every step may be repeated. All run beside the loop's turns, which wait for none of them: Serve may
take seconds to scale a kind, or to deploy one. One worker gets loads and unloads in the order in
which they were decided, unloads first, and does one after the other.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from math import inf
from typing import Any, Protocol

from controlplane.backoff import Backoff
from controlplane.controller.applying.told_targets import Told, ToldTargets
from controlplane.controller.events.journal import Journal
from controlplane.controller.events.status_events import in_quarantine
from controlplane.controller.met_workers.worker_pool import WorkerPool
from controlplane.load_specs import Specs
from planner.types import Action, Decision, Load, ReplicaKey, Scale, Unload
from variants.errors import (
    ArtifactDamaged,
    ClusterUnavailable,
    ModellessError,
    Overloaded,
    ReplicaLost,
)
from variants.types import (
    CatalogState,
    DeviceKindName,
    QuarantineLift,
    ReplicaState,
    TaskName,
    VariantName,
    WorkerId,
)
from workers.types import LoadSpec, ReplicaStatus, WorkerStatus

log = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 120.0
TELL_TIMEOUT_S = 5.0
TELL_AGAIN_S = 30.0
"""The longest wait before a worker is told again what it did not take: it is one message, and until
then the worker keeps a share of an older plan."""
READMITTED = "its quarantine was lifted"


Subject = ReplicaKey | DeviceKindName
"""What an action is about: a replica to load or unload, or a device kind to scale."""


class Lever(Protocol):
    """What scales a device kind."""

    async def scale(self, kind: str, count: int) -> None: ...


class PlanApplier:
    """Carries actions out, as the newest plan has it when their turn comes."""

    def __init__(
        self,
        lever: Lever,
        pool: WorkerPool,
        journal: Journal,
        clock_s: Callable[[], float],
        scaled: Callable[[DeviceKindName, int], None],
    ) -> None:
        """
        Args:
            scaled: told how many workers of a kind Ray Serve runs from now on.
        """
        self._lever = lever
        self._scaled = scaled
        self._pool = pool
        self._journal = journal
        self._clock_s = clock_s
        self._targets = ToldTargets()
        self.reasons: dict[str, str] = {}
        """Why Ray Serve was last told to run as many workers of a device kind as it does."""
        self._specs: Specs | None = None
        self._wanted: Mapping[DeviceKindName, int] = {}
        """How many workers of each kind, by the plan."""
        self._workers: Mapping[str, WorkerStatus] = {}
        self._busy: dict[Subject, asyncio.Task[None]] = {}
        self._failures: Backoff[Subject] = Backoff()
        self._missing: set[DeviceKindName] = set()
        """Kinds to be scaled whose workers were not deployed when that was tried last."""
        self._unheard: Backoff[ReplicaKey] = Backoff(longest_s=TELL_AGAIN_S)
        """Replicas whose worker could not be told their target, or that their quarantine is over;
        nothing else waits for that."""

    def know(
        self,
        decision: Decision,
        of: CatalogState,
        specs: Specs,
        workers: Mapping[str, WorkerStatus],
    ) -> None:
        """Go by this from now on. A new catalog may have put right what could not be loaded before,
        and another number of workers what could not be scaled.

        Args:
            decision: the newest one. Of a plan that could not be stored, only the loads are begun.
            of: the catalog that it was made for.
        """
        if specs is not self._specs:
            self._specs = specs
            self._failures.forget(lambda subject: isinstance(subject, tuple))
            self._unheard.forget()
        self._workers = workers
        self._failures.forget(
            lambda subject: isinstance(subject, tuple) and subject[0] not in workers
        )
        self._unheard.forget(lambda replica: replica[0] not in workers)
        self._targets.decided(decision.targets, of)
        before, wanted = self._wanted, decision.plan.workers
        self._wanted = wanted
        self._failures.forget(  # what has failed was asked for another number
            lambda subject: (
                not isinstance(subject, tuple) and before.get(subject) != wanted.get(subject)
            )
        )

    def apply(self, actions: Iterable[Action], deployed: Container[DeviceKindName]) -> list[Action]:
        """Begin actions, all but those that are under way or wait after a failure.

        Only workers of kinds that are ``deployed`` can be scaled.
        """
        return [action for action in actions if self._begin(action, deployed)]

    async def close(self) -> None:
        """Give up what is under way."""
        under_way = tuple(self._busy.values())
        for task in under_way:
            task.cancel()
        self._pool.close()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _begin(self, action: Action, deployed: Container[DeviceKindName]) -> bool:
        key = _subject(action)
        if key in self._busy or self._failures.waits(key, self._clock_s()):
            return False
        if isinstance(action, Scale):
            self._start(key, self._scale(action, there=action.device_kind in deployed))
        elif isinstance(action, Load):
            self._start(key, self._load(action))
        else:
            self._start(key, self._unload(action))
        return True

    def _start(self, key: Subject, work: Coroutine[Any, Any, None]) -> None:
        task = self._busy[key] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._busy.pop(key, None))

    async def _scale(self, action: Scale, *, there: bool) -> None:
        kind = action.device_kind
        if not there and kind not in self._missing:
            self._missing.add(kind)  # the next turn looks again: all may be being stopped
            return
        try:
            if not there:
                raise ClusterUnavailable(f"no workers of {kind} are deployed")
            self._missing.discard(kind)
            await self._lever.scale(kind, action.count)
        except Exception as error:
            self._fail(action, "scale_failed", kind, error)
            return
        self._failures.succeeded(_subject(action))
        self._scaled(kind, action.count)
        self.reasons[kind] = action.why
        self._journal.tell("scaled", kind, f"to {action.why}")

    async def _load(self, action: Load) -> None:
        subject = f"{action.task}/{action.variant} on {action.worker}"
        try:
            async with self._pool.at(action.worker) as connection:
                if not self._targets.placed(_replica(action)):
                    return  # the plan moved on while this waited for its turn
                if action.worker not in self._workers:
                    return  # so did the worker: the next turn sees whether it is there again
                telling = self._targets.of(_replica(action))
                await connection.load(self._spec(action, telling), LOAD_TIMEOUT_S)
        except (ReplicaLost, Overloaded, ArtifactDamaged):
            # The next turn sees that: a variant that found no room, or that the worker lists as
            # damaged and is not asked for again until its file has changed.
            return
        except Exception as error:
            self._fail(action, "load_failed", subject, error)
        else:
            self._failures.succeeded(_subject(action))
            self._targets.told(_replica(action), telling)
            self._journal.tell("loaded", subject, action.why)

    async def _unload(self, action: Unload) -> None:
        subject = f"{action.task}/{action.variant} on {action.worker}"
        try:
            async with self._pool.at(action.worker) as connection:
                if self._targets.placed(_replica(action)):
                    return
                gone = await connection.unload(
                    action.task, action.variant, LOAD_TIMEOUT_S, seen=action.seen
                )
        except ReplicaLost:
            return
        except Exception as error:
            self._fail(action, "unload_failed", subject, error)
        else:
            self._failures.succeeded(_subject(action))
            if gone:
                self._journal.tell("unloaded", subject, action.why)

    def _fail(self, action: Action, kind: str, subject: str, error: Exception) -> None:
        """Let the action wait longer than the last time; tell its reason when it is a new one."""
        if self._failures.failed(_subject(action), str(error), self._clock_s()):
            self._tell_failure(kind, subject, error)

    def _tell_failure(self, kind: str, subject: str, error: Exception) -> None:
        if isinstance(error, ModellessError):
            self._journal.tell(kind, subject, str(error))
        else:
            self._journal.tell(kind, subject, f"unexpected: {error!r}", error)

    def _spec(self, action: Load, telling: Told) -> LoadSpec:
        assert self._specs is not None
        kind = self._workers[action.worker].device_kind
        return self._specs.of(action.task, action.variant, kind, target=telling.target)

    def tell_targets(self) -> None:
        """Tell workers the new targets of what they hold: loading it again does only that.

        A worker was told when it has answered. Until then a later turn tells it again.
        """
        now_s = self._clock_s()
        ready: dict[ReplicaKey, ReplicaStatus] = {
            (WorkerId(worker), replica.task, replica.variant): replica
            for worker, status in self._workers.items()
            for replica in status.replicas
            if replica.state is ReplicaState.READY
        }
        for key in self._targets.untold(ready.keys()):
            if key not in self._busy and not self._unheard.waits(key, now_s):
                telling, (worker, task, variant) = self._targets.of(key), key
                again = Load(worker=worker, task=task, variant=variant)
                self._start(key, self._tell(again, telling))

    def readmit(self, lifts: Iterable[QuarantineLift], workers: Mapping[str, WorkerStatus]) -> None:
        """End the quarantines at workers that operators lifted since they began."""
        now_s = self._clock_s()
        lifted_s = {(lift.task, lift.variant): lift.at_s for lift in lifts}
        for id_, status in workers.items():
            for replica in in_quarantine(status):
                key = (WorkerId(id_), replica.task, replica.variant)
                lifted = (replica.quarantined_s or 0.0) <= lifted_s.get(key[1:], -inf)
                if lifted and key not in self._busy and not self._unheard.waits(key, now_s):
                    self._start(key, self._readmit(*key))

    async def _readmit(self, worker: WorkerId, task: TaskName, variant: VariantName) -> None:
        key, began_s = (worker, task, variant), self._clock_s()
        try:
            async with self._pool.at(worker) as connection:
                await connection.readmit(task, variant, TELL_TIMEOUT_S)
        except Exception as error:
            if self._not_heard(key, error, began_s):
                log.warning("%s/%s on %s stays in quarantine: %s", task, variant, worker, error)
        else:
            self._unheard.succeeded(key)
            self._failures.succeeded(key)
            self._journal.tell("readmitted", f"{task}/{variant} on {worker}", READMITTED)

    async def _tell(self, action: Load, telling: Told) -> None:
        key, began_s = _replica(action), self._clock_s()
        try:
            async with self._pool.at(action.worker) as connection:
                await connection.load(self._spec(action, telling), TELL_TIMEOUT_S)
        except Exception as error:
            if self._not_heard(key, error, began_s):
                self._tell_failure(
                    "tell_failed", f"{action.task}/{action.variant} on {action.worker}", error
                )
        else:
            self._unheard.succeeded(key)
            self._targets.told(key, telling)

    def _not_heard(self, key: ReplicaKey, error: Exception, began_s: float) -> bool:
        """Let what a worker did not take wait; whether to tell of it. That a worker is lost is told
        elsewhere."""
        now_s = self._clock_s()
        news = self._unheard.failed(key, str(error), now_s, now_s - began_s)
        return news and not isinstance(error, ReplicaLost)


def _replica(action: Load | Unload) -> ReplicaKey:
    return (action.worker, action.task, action.variant)


def _subject(action: Action) -> Subject:
    return action.device_kind if isinstance(action, Scale) else _replica(action)
