"""KnownCatalog: the catalog as the control loop knows it, also while the database is away."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from controlplane.controller.events.loop_report import LoopReport
from controlplane.load_specs import Specs
from variants.artifacts.protocol import ArtifactStore
from variants.catalog.protocol import Catalog, Marks
from variants.types import CatalogSnapshot, Peak


class Operators(NamedTuple):
    """What operators have said, as the catalog has it beside what is registered."""

    marks: Marks
    """With the numbers of workers that they asked for."""
    peaks: tuple[Peak, ...]


class KnownCatalog:
    """What was registered at the latest look."""

    def __init__(
        self,
        catalog: Catalog,
        store: ArtifactStore,
        report: LoopReport,
        clock_s: Callable[[], float],
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._report = report
        self._clock_s = clock_s
        self.now = CatalogSnapshot(revision=-1)
        self.specs = Specs(self.now, store)
        """What workers are told to load."""

    @property
    def is_read(self) -> bool:
        """Whether the catalog has answered at all."""
        return self.now.revision >= 0

    async def look(self) -> Operators:
        """Take over what has changed, and read what operators have said.

        Raises:
            StateUnavailable: the database does not answer; what is known stays.
        """
        changed, said = await asyncio.to_thread(self._read)
        if changed is not None:
            self.now = changed
            self.specs = Specs(changed, self._store)
        return said

    def _read(self) -> tuple[CatalogSnapshot | None, Operators]:
        """All that a turn asks the catalog, and what it asks of disks: one wait for another thread.
        The snapshot is None while it is the one that is known."""
        self._report.look_at_disks()
        began_s = self._clock_s()
        marks = self._catalog.marks()
        self._report.catalog_pace.answered(1_000 * (self._clock_s() - began_s))
        changed = None if marks.state == self.now.state else self._catalog.snapshot()
        return changed, Operators(marks=marks, peaks=self._catalog.peaks())
