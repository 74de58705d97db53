"""What gateways say of the workers that serve, as `modelless upgrade` asks it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Held = frozenset[tuple[str, str]]
"""Task and variant of what a worker has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What gateways say: workers with what is loaded, and where the plan puts what."""

    workers: Mapping[str, Held]
    """All that is ready at each worker that takes queries."""
    planned: Mapping[str, Held]

    def of(self, worker: str) -> Held:
        """What a worker has ready; nothing where it takes no queries."""
        return self.workers.get(worker, Held())

    def tasks_only_of(self, worker: str) -> list[str]:
        """The tasks for which no other worker answers."""
        others = {task for task, _ in self._others(worker)}
        return sorted({task for task, _ in self.of(worker)} - others)

    def only_of(self, worker: str) -> list[tuple[str, str]]:
        """What no other worker has ready."""
        return sorted(self.of(worker) - self._others(worker))

    def has(self, worker: str, held: Held) -> bool:
        """Whether a worker has what is expected of it: this, or all that the plan puts there."""
        planned = self.planned.get(worker)
        there = self.workers.get(worker)
        if there is None:
            return False
        return there >= held or (planned is not None and there >= planned)

    def _others(self, worker: str) -> Held:
        return Held().union(*(held for one, held in self.workers.items() if one != worker))


def serving(workers: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> Serving:
    """What ``/v1/workers`` and ``/v1/plan`` say."""
    planned: dict[str, set[tuple[str, str]]] = {}
    for row in plan.get("placements", ()):
        planned.setdefault(row["worker"], set()).add((row["task"], row["variant"]))
    return Serving(
        workers={
            one["worker"]: frozenset(
                (row["task"], row["variant"]) for row in one["replicas"] if row["state"] == "ready"
            )
            for one in workers
            if not one["draining"]
        },
        planned={worker: frozenset(held) for worker, held in planned.items()},
    )
