"""Acting: what the control loop decided is done, and what fails waits before it is tried again.

Every step may be repeated. Loads and unloads run beside the loop; one worker gets them in the order
in which they were decided, unloads first, and does one after the other.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

from controlplane.backoff import Backoff
from controlplane.contacts import Contacts
from controlplane.journal import Journal
from controlplane.specs import Specs
from controlplane.terms import Key, Term, Terms
from planner.types import Action, Load, Scale, Unload
from variants.errors import ClusterUnavailable, ModellessError, Overloaded, ReplicaLost
from variants.types import CatalogSnapshot, DeviceKindName, Plan, ReplicaState, WorkerId
from workers.types import LoadSpec, ReplicaStatus, WorkerStatus

log = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 120.0
TELL_TIMEOUT_S = 5.0


class Lever(Protocol):
    """What scales a device kind."""

    async def scale(self, kind: str, count: int) -> None: ...


class Acting:
    """Carries actions out, as the newest plan has it when their turn comes."""

    def __init__(
        self, lever: Lever, contacts: Contacts, journal: Journal, clock_s: Callable[[], float]
    ) -> None:
        self._lever = lever
        self._contacts = contacts
        self._journal = journal
        self._clock_s = clock_s
        self._terms = Terms()
        self._specs: Specs | None = None
        self._workers: Mapping[str, WorkerStatus] = {}
        self._busy: dict[Key, asyncio.Task[None]] = {}
        self._failures: Backoff[Key] = Backoff()

    def know(
        self,
        plan: Plan | None,
        catalog: CatalogSnapshot,
        specs: Specs,
        workers: Mapping[str, WorkerStatus],
    ) -> None:
        """Go by this from now on. A new catalog may have put right what failed before."""
        if specs is not self._specs:
            self._specs = specs
            self._failures.forget()
        self._workers = workers
        self._failures.forget(lambda key: bool(key[1]) and key[0] not in workers)
        self._terms.make(plan, catalog, workers.values())

    async def apply(
        self, actions: Iterable[Action], running: dict[DeviceKindName, int]
    ) -> list[Action]:
        """Begin actions, all but those that are under way or wait after a failure.

        ``running``, what Ray Serve was told to run, is brought up to date.
        """
        return [action for action in actions if await self._begin(action, running)]

    async def close(self) -> None:
        """Give up what is under way."""
        under_way = tuple(self._busy.values())
        for task in under_way:
            task.cancel()
        self._contacts.close()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _begin(self, action: Action, running: dict[DeviceKindName, int]) -> bool:
        key = _key(action)
        if key in self._busy or self._failures.waits(key, self._clock_s()):
            return False
        if isinstance(action, Scale):
            await self._scale(action, running)
        elif isinstance(action, Load):
            self._start(key, self._load(action))
        else:
            self._start(key, self._unload(action))
        return True

    def _start(self, key: Key, work: Coroutine[Any, Any, None]) -> None:
        task = self._busy[key] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._busy.pop(key, None))

    async def _scale(self, action: Scale, running: dict[DeviceKindName, int]) -> None:
        try:
            if action.device_kind not in running:
                raise ClusterUnavailable(f"no workers of {action.device_kind} are deployed")
            await self._lever.scale(action.device_kind, action.count)
        except ClusterUnavailable as error:
            self._fail(action, "scale_failed", action.device_kind, error)
            return
        self._failures.succeeded(_key(action))
        running[action.device_kind] = action.count
        self._journal.tell("scaled", action.device_kind, f"to {action.count}: {action.why}")

    async def _load(self, action: Load) -> None:
        subject = f"{action.task}/{action.variant} on {action.worker}"
        try:
            async with self._contacts.at(action.worker) as connection:
                if not self._terms.placed(_key(action)):
                    return  # the plan moved on while this waited for its turn
                term = self._terms.of(_key(action))
                await connection.load(self._spec(action, term), LOAD_TIMEOUT_S)
        except (ReplicaLost, Overloaded):
            return  # the next turn sees that; nothing is wrong with a variant that found no room
        except Exception as error:
            self._fail(action, "load_failed", subject, error)
        else:
            self._failures.succeeded(_key(action))
            self._terms.told(_key(action), term)
            self._journal.tell("loaded", subject, action.why)

    async def _unload(self, action: Unload) -> None:
        subject = f"{action.task}/{action.variant} on {action.worker}"
        try:
            async with self._contacts.at(action.worker) as connection:
                if self._terms.placed(_key(action)):
                    return
                await connection.unload(action.task, action.variant, LOAD_TIMEOUT_S)
        except ReplicaLost:
            return
        except Exception as error:
            self._fail(action, "unload_failed", subject, error)
        else:
            self._failures.succeeded(_key(action))
            self._journal.tell("unloaded", subject, action.why)

    def _fail(self, action: Action, kind: str, subject: str, error: Exception) -> None:
        """Let the action wait longer than the last time; tell its reason when it is a new one."""
        if self._failures.failed(_key(action), str(error), self._clock_s()):
            expected = isinstance(error, ModellessError)
            log.warning("%s: %s: %s", kind, subject, error, exc_info=None if expected else error)
            self._journal.tell(kind, subject, str(error) if expected else f"unexpected: {error!r}")

    def _spec(self, action: Load, term: Term) -> LoadSpec:
        assert self._specs is not None
        kind = self._workers[action.worker].device_kind
        return self._specs.of(
            action.task, action.variant, kind, share=term.share, pace_ms=term.pace_ms
        )

    def tell_terms(self) -> None:
        """Tell workers new terms of what they hold: loading it again does only that."""
        ready: dict[Key, ReplicaStatus] = {
            (worker, replica.task, replica.variant): replica
            for worker, status in self._workers.items()
            for replica in status.replicas
            if replica.state is ReplicaState.READY
        }
        for key in self._terms.untold(ready.keys()):
            if key not in self._busy:
                term, replica = self._terms.of(key), ready[key]
                self._terms.told(key, term)
                again = Load(worker=WorkerId(key[0]), task=replica.task, variant=replica.variant)
                self._start(key, self._tell(again, term))

    async def _tell(self, action: Load, term: Term) -> None:
        try:
            async with self._contacts.at(action.worker) as connection:
                await connection.load(self._spec(action, term), TELL_TIMEOUT_S)
        except ReplicaLost:
            return
        except Exception as error:
            log.warning("%s/%s keeps its old share: %s", action.task, action.variant, error)


def _key(action: Action) -> Key:
    """What an action is about: worker, task and variant, or a device kind alone."""
    if isinstance(action, Scale):
        return (action.device_kind, "", "")
    return (action.worker, action.task, action.variant)
