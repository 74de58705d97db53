"""Meeting: a gateway that has just started connects to its workers before it refuses a query.

It has met its workers when it has read their directory in the live state, or knows that the live
state does not answer, and has connected to each worker of the directory, or failed to. The first
status of a worker comes with its connection. Until then, the query path holds what it would refuse
(``controlplane.gateway.query.waiting``).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from controlplane.gateway.query.query_context import QueryContext
from planner.worker_starts import Starts, Wanted
from variants.types import DeviceKindName, WorkerId

MEET_S = 5.0
"""How long a gateway that has just started may hold queries at most."""

FRESH_S = 30.0
"""What the control loop told before says nothing of workers that start now."""


class Meeting:
    """What one gateway knows of the workers that there should be; its query path holds meanwhile.

    ``changed`` is called when ``wanted`` gives something else than before.
    """

    def __init__(
        self, path: QueryContext, changed: Callable[[], None], most_s: float = MEET_S
    ) -> None:
        self._path = path
        self._changed = changed
        self._most_s = most_s
        self._path.hold()
        self._untried: set[WorkerId] | None = None
        """Workers of the directory that were not tried yet; None before it was read."""
        self._starts = Starts()
        self._counts: Mapping[DeviceKindName, int] | None = None
        self._listed = True
        self._failed: frozenset[DeviceKindName] = frozenset()
        self.ending = False
        """Whether everything is being stopped."""

    def begin(self) -> None:
        """Hold queries from now on, for a while at most."""
        asyncio.get_running_loop().call_later(self._most_s, self.over)

    # -- getting to know ------------------------------------------------------------------------

    def read(self, directory: Iterable[WorkerId]) -> None:
        """The directory of workers was read."""
        self._set_listed(True)
        if self._untried is None:
            self._untried = set(directory)
            self._end_when_all_are_tried()

    def unreadable(self) -> None:
        """The live state does not answer."""
        self._set_listed(False)
        self.over()

    def tried(self, worker: WorkerId) -> None:
        """A worker was connected to, or cannot be reached."""
        if self._path.waiting is not None:
            self._path.waiting.try_again()
            if self._untried is not None:
                self._untried.discard(worker)
            self._end_when_all_are_tried()

    def over(self) -> None:
        """Hold nothing any more: a worker that is not known by now counts as absent."""
        if self._path.release():
            self._changed()

    def _set_listed(self, listed: bool) -> None:
        if listed is not self._listed:
            self._listed = listed
            self._changed()

    def _end_when_all_are_tried(self) -> None:
        if self._untried is not None and not self._untried:
            self.over()

    # -- missing workers ------------------------------------------------------------------------

    def want(self, counts: Mapping[DeviceKindName, int]) -> None:
        """Take in how many workers of each device kind are wanted."""
        if counts != self._counts:
            self._counts = counts
            self._changed()

    def hear_of_starts(self, told: Mapping[str, Any], silent_s: float | None) -> None:
        """Take in which workers do not start; what was told long ago says nothing.

        Args:
            told: by the control loop, of itself (``controller.events.loop_report``).
            silent_s: how long ago its last turn ended; None where it has not said.
        """
        said = told.get("failed_starts") or {}
        fresh = silent_s is not None and silent_s < FRESH_S
        failed = frozenset(map(DeviceKindName, said)) if fresh else frozenset()
        if failed != self._failed:
            self._failed = failed
            self._changed()

    def end(self) -> None:
        """Everything is being stopped: no worker that leaves from now on is followed by another."""
        if not self.ending:
            self.ending = True
            self._changed()

    def wanted(self, present: Collection[DeviceKindName]) -> Wanted:
        """What is wanted and missing, given the device kinds of which a worker is there."""
        if self._counts is None or self._path.waiting is not None:
            return Wanted(counts=self._counts, listed=self._listed, ending=self.ending)
        starting = self._starts.see(self._counts, present, self._path.clock_ms())
        return Wanted(
            counts=self._counts,
            starting=starting,
            listed=self._listed,
            ending=self.ending,
            failed=self._failed,
        )
