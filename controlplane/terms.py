"""Terms: the share and pace that the plan gives to each replica, and what workers know of them."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from planner.division import paces
from planner.snapshot import build_snapshot
from planner.types import WorkerView
from variants.types import CatalogSnapshot, DeviceKindName, Plan, WorkerId
from workers.types import WorkerStatus

Key = tuple[str, str, str]
"""Worker, task and variant."""


class Term(NamedTuple):
    share: float
    """Of the worker's time, for the task."""
    pace_ms: float
    """Longest batch on the worker; 0: its queue sees for itself."""
    revision: int
    """Of the catalog, whose latencies go with it."""


class Terms:
    """What replicas are to be told, and whether they were.

    A controller that starts tells everybody: it does not know what its predecessor said.
    """

    def __init__(self) -> None:
        self._terms: dict[Key, Term] = {}
        self._told: dict[Key, Term] = {}
        self._plan: Plan | None = None
        self._met: tuple[int, frozenset[str]] = (-1, frozenset())

    def make(
        self, plan: Plan | None, catalog: CatalogSnapshot, workers: Iterable[WorkerStatus]
    ) -> None:
        """Take the terms from a plan, unless they were taken from it already."""
        workers = tuple(workers)
        met = (catalog.revision, frozenset(worker.worker for worker in workers))
        if plan is self._plan and met == self._met:
            return
        self._plan, self._met, self._terms = plan, met, {}
        if plan is None:
            return
        views = [
            WorkerView(id=WorkerId(w.worker), device_kind=DeviceKindName(w.device_kind))
            for w in workers
        ]
        longest = paces(plan.routes, build_snapshot(catalog, ((view, ()) for view in views)))
        shares: dict[tuple[str, str], float] = {}
        for placed in plan.placements:
            tenant = (placed.worker, placed.task)
            shares[tenant] = shares.get(tenant, 0.0) + placed.share
        for placed in plan.placements:
            self._terms[placed.worker, placed.task, placed.variant] = Term(
                share=min(1.0, shares[placed.worker, placed.task]),
                pace_ms=longest.get(placed.worker, 0.0),
                revision=catalog.revision,
            )

    def placed(self, key: Key) -> bool:
        """Whether the plan names a replica."""
        return key in self._terms

    def of(self, key: Key) -> Term:
        return self._terms[key]

    def told(self, key: Key, term: Term) -> None:
        """A worker was told, or is being told."""
        self._told[key] = term

    def untold(self, ready: Collection[Key]) -> list[Key]:
        """Replicas of the plan that are ready and know other terms, or none.

        Those that are not ready any more are forgotten: what comes back knows nothing.
        """
        self._told = {key: term for key, term in self._told.items() if key in ready}
        return [
            key for key, term in self._terms.items() if key in ready and self._told.get(key) != term
        ]
