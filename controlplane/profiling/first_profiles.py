"""What is measured before a machine serves: what no query could be answered without.

The rest is measured while it serves (``controlplane.controller.profiles.measuring``), so that a
start takes no minutes where hundreds of variants are to be measured on other workers than before.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from controlplane.building.types import Progress
from controlplane.profiling.due.orders import candidates
from controlplane.profiling.due.profiles import (
    Cause,
    DueProfile,
    measured_while_serving,
    requests_for,
)
from controlplane.profiling.remeasuring import measure_due
from controlplane.settings import Settings
from variants.artifacts.protocol import ArtifactStore
from variants.catalog.protocol import Catalog
from variants.types import DeviceKindName, ProfilingRequest

FIRST_S = 30.0
"""How long tasks that could not be answered at all are measured for before the machine serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWork:
    """What is due when a machine starts, by when it is measured."""

    before: Sequence[DueProfile]
    """All of it before it serves."""
    meanwhile: Sequence[DueProfile]
    """While it serves, but for what tasks need to be answered at all."""

    def requests(self, at: str) -> tuple[ProfilingRequest, ...]:
        """What the control loop does not find by itself: which libraries a profile was measured
        with is looked at here."""
        stale = (one for one in self.meanwhile if one.cause is Cause.STALE)
        return requests_for(stale, at, by_operator=False)


def start_work(due: Sequence[DueProfile], settings: Settings) -> StartWork:
    """What is measured when.

    Where a machine may be split in several ways, all is measured before: which way it is split is
    decided by what was measured. So is what runs on a GPU.
    """
    pressing = [one for one in due if one.cause is not Cause.PREDICTED]
    before = [one for one in pressing if settings.layouts or not measured_while_serving(one.kind)]
    return StartWork(before=before, meanwhile=[one for one in pressing if one not in before])


def measure_firsts(
    due: Sequence[DueProfile],
    kinds: Collection[DeviceKindName],
    catalog: Catalog,
    store: ArtifactStore,
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    clock_s: Callable[[], float] = time.monotonic,
) -> tuple[int, tuple[str, ...]]:
    """Measure one variant of each task of which none was measured on these kinds, for a while.

    What fails is followed by the task's next. Returns how many were measured, and a sentence for
    each that could not be.

    Raises:
        StateUnavailable: catalog or store cannot be reached.
    """
    ends_s = clock_s() + FIRST_S
    left, measured = list(due), 0
    failures: tuple[str, ...] = ()
    while (rows := candidates(left, catalog.snapshot(), kinds)) and clock_s() < ends_s:
        turn = [row[0] for row in rows]
        count, failed = measure_due(
            turn, catalog, store, progress, ends=lambda: clock_s() >= ends_s
        )
        measured += count
        failures += failed
        left = [one for one in left if one not in turn]
    return measured, failures
