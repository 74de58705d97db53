"""Diversions: which queries go to a canary, and what became of them.

Of a task whose canary has a share, each query that names no variant is drawn or not by its request
id. One that is drawn goes to the canary where that is ready and predicted to meet its SLO; else it
is answered as always. While no task has a share, ``QueryContext.canaries`` is None, and a query
costs one look at that.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from controlplane.gateway.canaries.arms import Arm, Trial
from controlplane.gateway.texts.holding import HoldingVersions
from controlplane.http_errors import request_id
from planner.canary.diversion import INFEASIBLE, NOT_READY, OVERLOADED, divert
from planner.canary.draw import is_drawn, limit_of, salt_of
from planner.canary.some_versions import of_version
from planner.types import Choice, Query, Snapshot
from variants.types import Canary, TaskName


class Flight(Protocol):
    """A query in flight, as far as it matters here."""

    arm: Arm | None
    given_id: bytes | None


class Path(Protocol):
    """What is known of workers."""

    snapshot: Snapshot
    holding: HoldingVersions

    def snapshots(self) -> list[Snapshot]:
        """What can be chosen, the nearest workers first."""

    def leaving_room(self, query: Query, found: Choice, now_ms: float) -> Choice | None: ...


class _Running:
    """A canary with a share, and what is counted of it."""

    __slots__ = ("canary", "choices", "limit", "of", "salt", "trial")

    def __init__(self, canary: Canary) -> None:
        self.canary = canary
        self.salt = salt_of(canary.task, canary.label)
        self.limit = limit_of(canary.share)
        self.trial = Trial()
        self.of: Snapshot | None = None
        """The snapshot that ``choices`` were made from."""
        self.choices: list[Snapshot] = []
        """One for each distance of workers that can run it."""


class Diversions:
    """The canaries of one gateway."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running: dict[TaskName, _Running] = {}

    def __bool__(self) -> bool:
        return bool(self._running)

    def follow(self, canaries: Iterable[Canary]) -> None:
        """Go by these shares from now on. One that was set anew is counted anew."""
        known = {one.canary.share_id: one for one in self._running.values()}
        self._running = {
            one.task: known.get(one.share_id) or _Running(one) for one in canaries if one.share
        }

    def share_of(self, query: Query) -> Canary | None:
        """The canary that may get a query like this; None where none may."""
        names_none = query.variant is None and query.version is None
        running = self._running.get(query.task) if names_none else None
        return None if running is None else running.canary

    def counted(self) -> Mapping[str, Mapping[str, Any]]:
        """What is counted, by the id of the share."""
        return {one.canary.share_id: one.trial.plain() for one in self._running.values()}

    def choose(self, flight: Flight, query: Query, now_ms: float) -> Choice | None:
        """The canary's variant and worker for a query; None where it is answered as always.

        From then on the query counts for the canary or for the live versions.
        """
        if flight.arm is not None or query.avoid is not None:
            return None
        if query.variant is not None or query.version is not None:
            return None
        running = self._running.get(query.task)
        if running is None:
            return None
        if query.unread and self._path.holding.why_not(query, running.canary.label):
            return None  # it counts for neither
        trial = running.trial
        flight.arm = trial.live
        id_ = flight.given_id = request_id(flight.given_id).encode()
        if not is_drawn(id_, running.salt, running.limit):
            return None
        found = self._diverted(running, query, now_ms)
        if isinstance(found, str):
            trial.kept_back(found)
            return None
        flight.arm = trial.canary
        return found

    def _diverted(self, running: _Running, query: Query, now_ms: float) -> Choice | str:
        path = self._path
        if running.of is not path.snapshot:
            task, label = running.canary.task, running.canary.label
            made = (of_version(each, task, label) for each in path.snapshots())
            running.choices = [each for each in made if each is not None]
            running.of = path.snapshot
        why = NOT_READY
        for snapshot in running.choices:
            found = divert(snapshot, query, now_ms)
            if not isinstance(found, str):
                return OVERLOADED if path.leaving_room(query, found, now_ms) is not found else found
            why = found if why in (NOT_READY, INFEASIBLE) else why
        return why
