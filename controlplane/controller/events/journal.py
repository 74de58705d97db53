"""The control loop's journal: events, ticks, and the troubles that it goes on with.

Events wait while the database is away; a trouble is told when it comes and when it goes, not in
every turn.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress

from controlplane.controller.events.tick_records import tick_record
from controlplane.timestamps import timestamp
from planner.types import Action, Decision, Observation
from variants.catalog.protocol import Catalog
from variants.catalog.validity.plain_values import storable
from variants.errors import ModellessError, NotFound, StateUnavailable
from variants.types import Event, Rule
from workers.process.sparing_log import SparingLog

log = logging.getLogger(__name__)
sparing = SparingLog(log)

RECORD_EVERY_S = 60.0
RECORD_SOON_S = 5.0
"""The same while it is doubtful whether the catalog can be written: only writing shows that."""
EVENTS_HELD = 1_000
"""Events that wait for the database to come back; the oldest go first."""


TROUBLES = frozenset(
    {
        "accuracy_differs", "artifact_invalid", "canary_rolled_back", "catalog_slow",
        "clock_set_back", "control_store_lost", "cores_short", "disk_nearly_full",
        "forecast_forgotten", "gateway_lost",
        "layout_given_up", "live_state_slow", "load_failed", "measuring_failed",
        "other_installation", "profile_check_failed", "quarantined", "rebuild_failed",
        "scale_failed", "slo_missed", "start_failed", "tell_failed", "unload_failed", "worker_lost",
        "worker_warning",
    }
)  # fmt: skip
"""Kinds of events that are warnings in the log: who reads no more than warnings misses nothing that
wants a hand. Of what is away, ``Journal.trouble`` has warned already."""


class Journal:
    """Keeps events and troubles, and stores events and ticks when the database answers."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._events: deque[Event] = deque(maxlen=EVENTS_HELD)
        self._troubles: dict[str, str] = {}
        self.told: Counter[str] = Counter()
        """How many events of each kind were told, stored or not."""
        self._recorded_at_s = float("-inf")
        self.doubtful = False
        """Whether the catalog may not be writable, such as on a full disk."""

    # -- troubles -------------------------------------------------------------------------------

    def troubled(self, what: str) -> bool:
        return what in self._troubles

    def why(self, what: str) -> str:
        """What the trouble is; empty where there is none."""
        return self._troubles.get(what, "")

    def trouble(self, what: str, error: ModellessError) -> None:
        """Log that something is gone when it goes."""
        if what not in self._troubles:
            sparing.warning(what, "going on with what is known: %s", error)
        self._troubles[what] = error.message

    def unexpected(self, what: str, error: Exception) -> None:
        """Log an unexpected error with its traceback, unless it is the same again."""
        if self._troubles.get(what) != repr(error):
            sparing.error(what, error, "a %s of the control loop failed", what)
        self._troubles[what] = repr(error)

    def failed(self, what: str, error: Exception) -> None:
        """Log that something failed for which no turn waits: as a trouble, or with its traceback
        where nobody foresaw it."""
        if isinstance(error, ModellessError):
            self.trouble(what, error)
        else:
            self.unexpected(what, error)

    def over(self, what: str) -> None:
        if self._troubles.pop(what, None) is not None:
            log.info("%s: back to normal", what)

    # -- events and ticks -----------------------------------------------------------------------

    def tell(
        self, kind: str, subject: str, message: str, unexpected: Exception | None = None
    ) -> None:
        """Note an event and log it; this turn or the next one stores it.

        Args:
            unexpected: why, where nobody foresaw it; its traceback goes into the log.
        """
        # What a worker says of an error may hold anything.
        subject, message = storable(subject), storable(message)
        level = logging.WARNING if kind in TROUBLES else logging.INFO
        log.log(level, "%s %s: %s", kind, subject, message, exc_info=unexpected)
        self.told[kind] += 1
        self._events.append(Event(at=timestamp(), kind=kind, subject=subject, message=message))

    async def end_freeze(self, rules: Iterable[Rule], wall_s: float) -> None:
        """Take back a freeze whose time is over, and tell it.

        Raises:
            StateUnavailable: the database is away. It counts no more all the same.
        """
        for rule in rules:
            if rule.until_s is not None and rule.until_s <= wall_s:
                with suppress(NotFound):  # an operator was quicker
                    await asyncio.to_thread(self._catalog.remove_rule, rule.id)
                    self.tell("thawed", "plan", f"its time was over (rule {rule.id})")

    async def store_events(self) -> None:
        """Store the events that wait, in one transaction.

        Raises:
            StateUnavailable: the database is away; what was not stored waits.
        """
        while self._events:
            waiting = tuple(self._events)
            self._events.clear()
            try:
                await asyncio.to_thread(self._catalog.add_event, *waiting)
            except StateUnavailable:
                # What was told meanwhile is newer; the oldest go where these are too many.
                newer = tuple(self._events)
                self._events.clear()
                self._events.extend(waiting + newer)
                raise

    async def store(
        self,
        observation: Observation,
        decision: Decision,
        begun: Iterable[Action],
        *,
        epoch: int,
        version: int,
    ) -> None:
        """Store the events that wait, and the tick when it did something, a minute has passed,
        or it is doubtful whether anything can be written.

        Raises:
            StateUnavailable: the database is away; what was not stored waits.
        """
        await self.store_events()
        begun = tuple(begun)
        every_s = RECORD_SOON_S if self.doubtful else RECORD_EVERY_S
        due = observation.now_s - self._recorded_at_s >= every_s
        # That nothing was to be written does not show that it can be.
        due = due or self.troubled("writing")
        if decision.changed or begun or due:
            record = tick_record(observation, decision, begun, epoch, version)
            await asyncio.to_thread(self._catalog.add_tick, record)
            self._recorded_at_s = observation.now_s
