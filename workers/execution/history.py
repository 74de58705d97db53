"""What a worker did for queries without being told by the control loop: loads and evictions.

They are kept until the control loop says that it has stored them, so that none is told twice or
lost when one controller follows another. Where nothing asks for long, the oldest go first.
"""

from collections.abc import Iterable

from planner.eviction.rules import Resident
from variants.types import TaskName, VariantName
from workers.types import Occurrence, OccurrenceKind

KEPT = 1_000
WHY_CHARACTERS = 200
"""A need comes from another process: so much of it is kept."""


class History:
    """Numbered occurrences, oldest first. Lives on the event loop."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._untold: dict[int, Occurrence] = {}
        self.newest = 0
        """Number of the newest occurrence; 0: there was none."""

    def loaded(self, task: TaskName, variant: VariantName, need: str, took_s: float) -> None:
        """A query had a variant loaded; ``need`` is what it asked for."""
        why = f"for a query ({need[:WHY_CHARACTERS]})" if need else "for a query"
        self._note(OccurrenceKind.LOADED_ON_DEMAND, task, variant, f"{why}, in {took_s:.2g} s")

    def evicted(
        self, task: TaskName, variant: VariantName, resident: Resident[int], successor: str
    ) -> None:
        """A variant left to make room for another one, of which it was worth less."""
        self._note(
            OccurrenceKind.EVICTED,
            task,
            variant,
            f"made room for {successor}: it was worth less here "
            f"({resident.popularity:.2g} queries/s, loads in {resident.load_s:.2g} s, "
            f"{resident.memory_mib:,.1f} MiB)",
        )

    def untold(self, told: Iterable[int] = (), after: int = 0) -> list[Occurrence]:
        """What is not told yet and came later than ``after``, oldest first; forgets ``told``."""
        for seq in told:
            self._untold.pop(seq, None)
        return [one for seq, one in self._untold.items() if seq > after]

    def _note(self, kind: OccurrenceKind, task: TaskName, variant: VariantName, why: str) -> None:
        self.newest += 1
        self._untold[self.newest] = Occurrence(
            seq=self.newest, kind=kind, task=task, variant=variant, why=why
        )
        if len(self._untold) > self._kept:
            del self._untold[next(iter(self._untold))]
